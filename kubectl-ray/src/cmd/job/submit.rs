use std::path::{Path, PathBuf};

use clap::Args;
use rand::Rng as _;
use serde_json::{Value, json};

use super::rayjob::RayJobFlags;
use super::{Target, result};
use crate::cli::key_value;
use crate::connection::ConnectionArgs;
use crate::error::{Failure, Result};
use crate::output::{self, Colour, paint};
use crate::ray::jobs::Submission;
use crate::ray::package;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl ray job submit demo -- python -c 'import ray; print(ray.cluster_resources())'
  kubectl ray job submit demo --working-dir . -- python train.py --epochs 3
  kubectl ray job submit demo --no-wait -- python train.py")]
pub(super) struct SubmitArgs {
    /// Ray cluster.
    #[arg(value_name = "CLUSTER", conflicts_with_all = ["ray_cluster", "address"], add = crate::complete::clusters())]
    name: Option<String>,
    #[command(flatten)]
    target: Target,
    /// Directory to run in: uploaded without what .gitignore and .rayignore name; or a URI.
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::DirPath)]
    working_dir: Option<String>,
    /// File (YAML) with Ray's runtime environment.
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    runtime_env: Option<PathBuf>,
    /// Ray's runtime environment as JSON; wins over the file.
    #[arg(long, value_name = "JSON")]
    runtime_env_json: Option<String>,
    /// Id of the job [default: raysubmit_ and 16 random letters].
    #[arg(long, value_name = "ID")]
    submission_id: Option<String>,
    /// Metadata of the job, as a JSON object of strings.
    #[arg(long, value_name = "JSON")]
    metadata_json: Option<String>,
    /// CPUs of the entrypoint.
    #[arg(long, value_name = "NUMBER")]
    entrypoint_num_cpus: Option<f64>,
    /// GPUs of the entrypoint.
    #[arg(long, value_name = "NUMBER")]
    entrypoint_num_gpus: Option<f64>,
    /// Memory of the entrypoint, in bytes.
    #[arg(long, value_name = "BYTES")]
    entrypoint_memory: Option<u64>,
    /// Ray resources of the entrypoint, as a JSON object of numbers.
    #[arg(long, value_name = "JSON")]
    entrypoint_resources: Option<String>,
    /// Environment variable of the job; may be repeated.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = key_value)]
    env: Vec<(String, String)>,
    /// Do not wait for the end of the job.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    rayjob: RayJobFlags,
    /// Command to run, behind `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    entrypoint: Vec<String>,
}

pub(super) async fn run(connection: &ConnectionArgs, args: &SubmitArgs) -> Result<()> {
    args.rayjob.refuse()?;
    // All that can be wrong here is looked at before anything is sent.
    let mut runtime_env = runtime_env(args)?;
    let packed = pack_working_dir(args, &mut runtime_env)?;
    let submission = Submission {
        entrypoint: entrypoint(&args.entrypoint),
        submission_id: args.submission_id.clone().unwrap_or_else(random_id),
        metadata: json_argument("--metadata-json", args.metadata_json.as_deref())?.unwrap_or_default(),
        entrypoint_num_cpus: args.entrypoint_num_cpus,
        entrypoint_num_gpus: args.entrypoint_num_gpus,
        entrypoint_memory: args.entrypoint_memory,
        entrypoint_resources: json_argument("--entrypoint-resources", args.entrypoint_resources.as_deref())?,
        runtime_env: (runtime_env != json!({})).then_some(runtime_env),
    };
    let dashboard = args.target.dashboard(connection, args.name.as_deref()).await?;
    let version = dashboard.ray_version().await?;
    if let Some(package) = &packed {
        output::note(&format!(
            "uploading {} files ({} KiB)",
            package.files,
            package.bytes.len().div_ceil(1024)
        ));
        package::upload(&dashboard, package).await?;
    }
    let id = dashboard.submit(&submission).await?;
    output::note(&format!(
        "{} {id} (Ray {version})",
        paint(Colour::Green, "submitted:")
    ));
    if args.no_wait {
        return output::line(&id);
    }
    let cluster = args
        .name
        .as_ref()
        .or(args.target.ray_cluster.as_ref())
        .map_or("CLUSTER", String::as_str);
    tokio::select! {
        ended = dashboard.follow(&id) => result(&ended?),
        _ = tokio::signal::ctrl_c() => Err(Failure::failed(format!("no longer following job {id}: it goes on"))
            .hint(format!("`kubectl ray job logs {cluster} {id} -f` follows it, `kubectl ray job stop {cluster} {id}` ends it"))),
    }
}

/// Ray runs the entrypoint by a shell: words that were one word here stay one.
fn entrypoint(words: &[String]) -> String {
    match words {
        [one] => one.clone(),
        many => many.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" "),
    }
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\"'\"'"))
}

fn random_id() -> String {
    let letters: String = rand::rng()
        .sample_iter(rand::distr::Alphanumeric)
        .take(16)
        .map(char::from)
        .collect();
    format!("raysubmit_{letters}")
}

fn runtime_env(args: &SubmitArgs) -> Result<Value> {
    let mut env = match &args.runtime_env {
        Some(path) => {
            let shown = path.display();
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::usage(format!("--runtime-env: cannot read {shown}: {error}")))?;
            serde_saphyr::from_str::<Value>(&text)
                .map_err(|error| Failure::usage(format!("--runtime-env: {shown}: {error}")))?
        }
        None => json!({}),
    };
    let by_json: Option<Value> = json_argument("--runtime-env-json", args.runtime_env_json.as_deref())?;
    let object = env
        .as_object_mut()
        .ok_or_else(|| Failure::usage("--runtime-env: it is no mapping"))?;
    if let Some(by_json) = by_json {
        let by_json = by_json
            .as_object()
            .cloned()
            .ok_or_else(|| Failure::usage("--runtime-env-json: it is no object"))?;
        object.extend(by_json);
    }
    if let Some(folder) = &args.working_dir {
        object.insert("working_dir".to_owned(), folder.clone().into());
    }
    if !args.env.is_empty() {
        let variables = object.entry("env_vars").or_insert_with(|| json!({}));
        let variables = variables
            .as_object_mut()
            .ok_or_else(|| Failure::usage("env_vars: it is no mapping"))?;
        variables.extend(
            args.env
                .iter()
                .map(|(name, value)| (name.clone(), value.clone().into())),
        );
    }
    Ok(env)
}

/// Packs a working directory of this machine, and names it in the environment by the package's URI.
fn pack_working_dir(args: &SubmitArgs, env: &mut Value) -> Result<Option<package::Package>> {
    let Some(folder) = env.get("working_dir").and_then(Value::as_str).map(str::to_owned) else {
        return Ok(None);
    };
    if folder.contains("://") {
        return Ok(None);
    }
    // A path in the file is relative to the file, one on the command line to where we are.
    let base = match (&args.working_dir, &args.runtime_env) {
        (None, Some(file)) => file.parent().unwrap_or(Path::new(".")),
        _ => Path::new("."),
    };
    let excludes: Vec<String> = match env.get("excludes").cloned() {
        Some(list) => {
            serde_json::from_value(list).map_err(|_| Failure::usage("excludes: it is no list of texts"))?
        }
        None => Vec::new(),
    };
    let package = package::pack(&base.join(folder), &excludes, package::MAX_BYTES)?;
    if let Some(env) = env.as_object_mut() {
        env.insert("working_dir".to_owned(), package.uri().into());
        env.remove("excludes");
    }
    Ok(Some(package))
}

fn json_argument<T: serde::de::DeserializeOwned>(flag: &str, text: Option<&str>) -> Result<Option<T>> {
    text.map(|text| serde_json::from_str(text).map_err(|error| Failure::usage(format!("{flag}: {error}"))))
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_shell_on_the_head_as_they_were_typed_here() {
        let words = |list: &[&str]| entrypoint(&list.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        assert_eq!(words(&["python", "a.py", "--x=1"]), "python a.py --x=1");
        assert_eq!(
            words(&["python", "-c", "print('a b')"]),
            "python -c 'print('\"'\"'a b'\"'\"')'"
        );
        assert_eq!(words(&["python a.py && echo done"]), "python a.py && echo done");
        assert_eq!(words(&["echo", ""]), "echo ''");
    }

    #[test]
    fn ids_are_like_rays_own() {
        let id = random_id();
        assert_eq!((id.len(), id.starts_with("raysubmit_")), (26, true));
    }
}
