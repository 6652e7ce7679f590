//! `build`: follow, cancel or repeat the build of an ImageTemplate.

use std::time::Duration;

use clap::{Args, Subcommand};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use ray_api::conditions;
use ray_api::meta::{annotation, manager};
use ray_api::template::v1alpha1::ImageTemplate;
use serde_json::json;

use crate::cli::WaitArgs;
use crate::connection::{Connection, ConnectionArgs};
use crate::error::{Failure, Result};
use crate::follow;
use crate::follow::image::Target;
use crate::kinds::Kind;
use crate::output;

const PATIENCE: Duration = Duration::from_secs(40 * 60);

/// Flags of `build`.
#[derive(Debug, Args)]
pub struct BuildArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show the log of the newest build; follow it while it runs.
    #[command(alias = "logs")]
    Log(NameArgs),
    /// Stop the build that runs.
    Cancel(NameArgs),
    /// Build again, even if nothing changed.
    Rebuild(RebuildArgs),
}

#[derive(Debug, Args)]
struct NameArgs {
    /// ImageTemplate.
    #[arg(add = crate::complete::image_templates())]
    name: String,
}

#[derive(Debug, Args)]
struct RebuildArgs {
    /// ImageTemplate.
    #[arg(add = crate::complete::image_templates())]
    name: String,
    #[command(flatten)]
    wait: WaitArgs,
}

pub(crate) async fn run(connection: &ConnectionArgs, args: &BuildArgs) -> Result<()> {
    let connected = connection.connect().await?;
    match &args.what {
        What::Log(args) => log(&connected, &args.name).await,
        What::Cancel(args) => cancel(&connected, &args.name).await,
        What::Rebuild(args) => rebuild(&connected, args).await,
    }
}

async fn log(connected: &Connection, name: &str) -> Result<()> {
    follow::image::follow(connected, name, Target::Stdout).await?;
    let template = connected.api::<ImageTemplate>().get(name).await?;
    let status = template.status.unwrap_or_default();
    if let Some(failure) = status.failure {
        // The pod may be gone; what the operator kept of its log is not.
        if let Some(tail) = &failure.log_tail {
            output::note(&format!(
                "--- end of the log, as the operator kept it ---\n{}",
                tail.trim_end()
            ));
        }
        return Err(Failure::failed(format!(
            "the image was not built: {:?}: {}",
            failure.reason, failure.message
        )));
    }
    Ok(())
}

async fn cancel(connected: &Connection, name: &str) -> Result<()> {
    let api: Api<ImageTemplate> = connected.api();
    let status = api.get(name).await?.status.unwrap_or_default();
    let list = status.conditions.unwrap_or_default();
    let object = Kind::ImageTemplate.object_name(name);
    let Some(build) = status.build.filter(|_| conditions::is_true(&list, "Building")) else {
        return output::line(&format!("{object} has no build that runs"));
    };
    annotate(&api, name, annotation::CANCEL, &build.number.to_string()).await?;
    output::line(&format!("{object}: build {} is being cancelled", build.number))
}

async fn rebuild(connected: &Connection, args: &RebuildArgs) -> Result<()> {
    let api: Api<ImageTemplate> = connected.api();
    annotate(
        &api,
        &args.name,
        annotation::REBUILD,
        &Timestamp::now().to_string(),
    )
    .await?;
    output::line(&format!(
        "{} is being built again",
        Kind::ImageTemplate.object_name(&args.name)
    ))?;
    if args.wait.wait {
        follow::image::wait(connected, &args.name, args.wait.timeout.unwrap_or(PATIENCE)).await?;
    }
    Ok(())
}

async fn annotate(api: &Api<ImageTemplate>, name: &str, key: &str, value: &str) -> Result<()> {
    let params = PatchParams {
        field_manager: Some(manager::PLUGIN.to_owned()),
        ..PatchParams::default()
    };
    let patch = json!({"metadata": {"annotations": {key: value}}});
    api.patch(name, &params, &Patch::Merge(patch)).await?;
    Ok(())
}
