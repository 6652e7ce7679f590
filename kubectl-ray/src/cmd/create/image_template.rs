use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ray_api::template::v1alpha1::{ImageTemplate, ImageTemplateSpec, PipOptions};

use super::{ResultArgs, create};
use crate::cli::{WaitArgs, key_value};
use crate::connection::ConnectionArgs;
use crate::error::{Failure, Result};
use crate::follow;
use crate::kinds::Kind;

/// A build of the default timeout, and what may go before it.
pub(super) const PATIENCE: Duration = Duration::from_secs(40 * 60);

/// Flags of `create image-template`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl ray create image-template torch --base-image rayproject/ray:2.60.0 --pip torch==2.9.0 --wait
  kubectl ray create image-template nlp --base-image rayproject/ray:2.60.0 --requirements requirements.txt \\
    --apt git --env HF_HOME=/data/hf")]
pub(super) struct ImageTemplateArgs {
    /// Name of the template.
    name: String,
    /// Image to build on; its Ray is the Ray that runs.
    #[arg(long, visible_alias = "base", value_name = "IMAGE")]
    base_image: String,
    /// Python package as pip names it, such as `torch==2.9.0`; may be repeated.
    #[arg(long, value_name = "PACKAGE")]
    pip: Vec<String>,
    /// File of Python packages, one a line.
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    requirements: Option<PathBuf>,
    /// Conda package; may be repeated.
    #[arg(long, value_name = "PACKAGE")]
    conda: Vec<String>,
    /// Debian package; may be repeated.
    #[arg(long, visible_alias = "system", value_name = "PACKAGE")]
    apt: Vec<String>,
    /// Environment variable of the image; may be repeated.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = key_value)]
    env: Vec<(String, String)>,
    /// Shell command that runs last; may be repeated.
    #[arg(long, value_name = "COMMAND")]
    command: Vec<String>,
    /// Where to push, without tag; the platform's default where absent.
    #[arg(long, value_name = "REPOSITORY")]
    repository: Option<String>,
    /// Tag to push; a hash of the inputs where absent.
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Secret to push with; the platform's default where absent.
    #[arg(long, value_name = "SECRET")]
    push_secret: Option<String>,
    /// Secret to pull the base image with; may be repeated.
    #[arg(long, value_name = "SECRET")]
    pull_secret: Vec<String>,
    /// Secret that pods need to pull the result; may be repeated.
    #[arg(long, value_name = "SECRET")]
    run_pull_secret: Vec<String>,
    /// Package index in place of PyPI.
    #[arg(long, value_name = "URL")]
    index_url: Option<String>,
    /// Further package index; may be repeated.
    #[arg(long, value_name = "URL")]
    extra_index_url: Vec<String>,
    /// Secret with the credentials of the package index.
    #[arg(long, value_name = "SECRET")]
    pip_credentials: Option<String>,
    /// Let pip install into a Python that Debian manages.
    #[arg(long)]
    break_system_packages: bool,
    /// User that the image runs as.
    #[arg(long, value_name = "USER")]
    run_as: Option<String>,
    /// Platform such as `linux/arm64`.
    #[arg(long, value_name = "PLATFORM")]
    platform: Option<String>,
    /// Longest time that the build may take, as `30m`.
    #[arg(long, value_name = "DURATION")]
    build_timeout: Option<String>,
    #[command(flatten)]
    result: ResultArgs,
    #[command(flatten)]
    wait: WaitArgs,
}

pub(super) async fn run(connection: &ConnectionArgs, args: &ImageTemplateArgs) -> Result<()> {
    let template = ImageTemplate::new(&args.name, spec(args)?);
    let object = serde_json::to_value(template)?;
    let Some((connected, _)) = create(connection, &args.result, Kind::ImageTemplate, object).await? else {
        return Ok(());
    };
    if args.wait.wait {
        let limit = args.wait.timeout.unwrap_or(PATIENCE);
        follow::image::wait(&connected, &args.name, limit).await?;
    }
    Ok(())
}

fn spec(args: &ImageTemplateArgs) -> Result<ImageTemplateSpec> {
    let mut pip_packages = args.pip.clone();
    if let Some(path) = &args.requirements {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::usage(format!("--requirements: cannot read {}: {error}", path.display()))
        })?;
        pip_packages.extend(requirements(&text)?);
    }
    let pip = PipOptions {
        index_url: args.index_url.clone(),
        extra_index_urls: args.extra_index_url.clone(),
        credentials_secret: args.pip_credentials.clone(),
        break_system_packages: args.break_system_packages.then_some(true),
    };
    Ok(ImageTemplateSpec {
        base_image: args.base_image.clone(),
        pip_packages,
        conda_packages: args.conda.clone(),
        system_packages: args.apt.clone(),
        environment_variables: args.env.iter().cloned().collect(),
        custom_commands: args.command.clone(),
        repository: args.repository.clone(),
        tag: args.tag.clone(),
        push_secret: args.push_secret.clone(),
        pull_secrets: args.pull_secret.clone(),
        run_pull_secrets: args.run_pull_secret.clone(),
        pip: (pip != PipOptions::default()).then_some(pip),
        user: args.run_as.clone(),
        platform: args.platform.clone(),
        timeout: args.build_timeout.clone(),
        ..ImageTemplateSpec::default()
    })
}

/// The packages of a requirements file. Options of pip are refused: the template has fields for them.
fn requirements(text: &str) -> Result<Vec<String>> {
    let mut packages = Vec::new();
    for (number, line) in text.replace("\\\n", " ").lines().enumerate() {
        let package = line.split(" #").next().unwrap_or_default().trim();
        if package.is_empty() || package.starts_with('#') {
            continue;
        }
        if package.starts_with('-') {
            let message = format!(
                "--requirements: line {}: `{package}` is an option of pip",
                number + 1
            );
            return Err(Failure::usage(message).hint("use --index-url, --extra-index-url or --pip instead"));
        }
        packages.push(package.to_owned());
    }
    Ok(packages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requirements_file_is_a_list_of_packages() {
        let text = "# comment\ntorch==2.9.0  # pinned\n\nray[serve]>=2 ; python_version < '3.13'\n";
        assert_eq!(
            requirements(text).unwrap(),
            ["torch==2.9.0", "ray[serve]>=2 ; python_version < '3.13'"]
        );
        let error = requirements("a\n-r other.txt\n").unwrap_err();
        assert!(error.message.contains("line 2"), "{error}");
    }
}
