//! `create cluster`: one POST of what file and flags say.

mod merge;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use ray_api::expand::{Expanded, Record};
use ray_api::meta::label;
use serde_json::Value;

use super::worker::WorkerFlags;
use super::{ResultArgs, image_template, post, set_namespace};
use crate::build::{self, AutoscalerVersion, ClusterConfig, GroupConfig, Style};
use crate::cli::{DryRun, WaitArgs, key_value};
use crate::connection::{Connection, ConnectionArgs};
use crate::error::{Failure, Result};
use crate::expansion::{self, Source};
use crate::follow;
use crate::kinds::Kind;
use crate::output;

/// KubeRay's plugin waits as long.
const PATIENCE: Duration = Duration::from_secs(5 * 60);
const WORKERS: &str = "Workers (one group, in place of --worker-group)";

/// Flags of `create cluster`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl ray create cluster demo --image-template torch --compute-template small
  kubectl ray create cluster train --image-template torch --head-compute-template small \\
    --worker-group name=gpu,replicas=2,compute-template=a100 --wait
  kubectl ray create cluster plain --worker-replicas 3 --worker-cpu 4 --worker-memory 8Gi
  kubectl ray create cluster --file cluster.yaml --dry-run")]
pub(in crate::cmd::create) struct ClusterArgs {
    /// Name of the cluster; may stand in the file instead.
    #[arg(required_unless_present = "file")]
    name: Option<String>,
    /// File that describes the cluster; flags win over it.
    #[arg(short, long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// ImageTemplate of all groups.
    #[arg(long, value_name = "NAME", add = crate::complete::image_templates())]
    image_template: Option<String>,
    /// ComputeTemplate of all groups that name none.
    #[arg(long, value_name = "NAME", add = crate::complete::compute_templates())]
    compute_template: Option<String>,
    /// ComputeTemplate of the head.
    #[arg(long, value_name = "NAME", add = crate::complete::compute_templates())]
    head_compute_template: Option<String>,
    /// A worker group, as `name=gpu,replicas=2,compute-template=a100`; may be repeated.
    #[arg(
        long = "worker-group",
        value_name = "KEY=VALUE,…",
        conflicts_with_all = ["worker_flags", "worker_replicas"]
    )]
    worker_groups: Vec<GroupConfig>,
    /// Version of Ray; also moves the default image.
    #[arg(long, value_name = "VERSION")]
    ray_version: Option<String>,
    /// Image of all groups.
    #[arg(long, value_name = "IMAGE", conflicts_with = "image_template")]
    image: Option<String>,
    /// Labels of the RayCluster.
    #[arg(long, value_name = "KEY=VALUE,…", value_delimiter = ',', value_parser = key_value)]
    labels: Vec<(String, String)>,
    /// Annotations of the RayCluster.
    #[arg(long, value_name = "KEY=VALUE,…", value_delimiter = ',', value_parser = key_value)]
    annotations: Vec<(String, String)>,
    /// Service account of all pods.
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    /// Add Ray's autoscaler, of this generation.
    #[arg(long, value_enum)]
    autoscaler: Option<AutoscalerVersion>,
    #[command(flatten)]
    head: HeadArgs,
    /// Replicas of the group [default: 1].
    #[arg(long, value_name = "COUNT", help_heading = WORKERS)]
    worker_replicas: Option<i32>,
    #[command(flatten, next_help_heading = WORKERS)]
    worker: WorkerFlags,
    /// Who fills the templates in: the webhook, or the plugin where there is none.
    #[arg(long, value_enum, default_value = "server")]
    expand: Expand,
    #[command(flatten)]
    result: ResultArgs,
    #[command(flatten)]
    wait: WaitArgs,
}

/// Who fills the templates in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Expand {
    /// The webhook.
    Server,
    /// The plugin, with the same code.
    Client,
}

/// The head, without a template.
#[derive(Debug, Args)]
#[command(next_help_heading = "Head")]
struct HeadArgs {
    /// CPUs of the head [default: 2 without a ComputeTemplate].
    #[arg(long, value_name = "QUANTITY")]
    head_cpu: Option<String>,
    /// Memory of the head [default: 4Gi without a ComputeTemplate].
    #[arg(long, value_name = "QUANTITY")]
    head_memory: Option<String>,
    /// GPUs of the head.
    #[arg(long, value_name = "COUNT")]
    head_gpu: Option<String>,
    /// Ephemeral storage of the head.
    #[arg(long, value_name = "QUANTITY")]
    head_ephemeral_storage: Option<String>,
    /// Flags of `ray start --head`.
    #[arg(long, value_name = "KEY=VALUE,…", value_delimiter = ',', value_parser = key_value)]
    head_ray_start_params: Vec<(String, String)>,
    /// Node labels that the head needs.
    #[arg(long, value_name = "KEY=VALUE,…", value_delimiter = ',', value_parser = key_value)]
    head_node_selectors: Vec<(String, String)>,
}

pub(in crate::cmd::create) async fn run(connection: &ConnectionArgs, args: &ClusterArgs) -> Result<()> {
    let config = merge::config(args, connection.namespace.as_deref())?;
    let connection = ConnectionArgs {
        namespace: config.namespace.clone(),
        ..connection.clone()
    };
    if args.result.is_client_dry_run() {
        return args
            .result
            .print_unsent(Kind::RayCluster, &manifest(&config, Style::Fields)?);
    }
    let connected = connection.connect().await?;
    let dry_run = args.result.dry_run.dry_run;
    let resource = Kind::RayCluster.resource();
    let send = |mut object: Value| {
        let (client, namespace, resource) = (&connected.client, &connected.namespace, &resource);
        set_namespace(&mut object, namespace);
        async move { post(client, resource, Some(namespace), &object, dry_run).await }
    };
    let Expanded { object, mut warnings } =
        prepare(&connected, args, manifest(&config, Style::Fields)?).await?;
    let created = match send(object).await {
        Err(error) if is_unknown_reference(&error) => {
            let annotated = prepare(&connected, args, manifest(&config, Style::Annotations)?).await?;
            warnings = annotated.warnings;
            send(annotated.object).await?
        }
        other => other?,
    };
    warn(&warnings);
    args.result.print_sent(Kind::RayCluster, &created, "created")?;
    if args.wait.wait && dry_run == DryRun::None {
        let name = config.name.as_deref().unwrap_or_default();
        follow::cluster::wait(&connected, name, args.wait.timeout.unwrap_or(PATIENCE)).await?;
    }
    Ok(())
}

/// The object to send: where nobody else expands it, with its templates filled in, and its images built.
async fn prepare(connected: &Connection, args: &ClusterArgs, object: Value) -> Result<Expanded> {
    if args.expand == Expand::Server {
        return Ok(Expanded {
            object,
            warnings: Vec::new(),
        });
    }
    let expanded = expand(connected, &object).await?;
    let unbuilt = unbuilt(&expanded.object);
    if !unbuilt.is_empty() && args.result.dry_run.dry_run == DryRun::None {
        // Why there is no image: not built yet, failed, or a name that does not exist.
        warn(&expanded.warnings);
        if !args.wait.wait {
            return Err(never_started(&unbuilt));
        }
        let limit = args.wait.timeout.unwrap_or(image_template::PATIENCE);
        for image in &unbuilt {
            follow::image::wait(connected, image, limit).await?;
        }
        return expand(connected, &object).await;
    }
    Ok(expanded)
}

fn warn(warnings: &[String]) {
    warnings.iter().for_each(|warning| output::warning(warning));
}

/// What the webhook would make of the object.
async fn expand(connected: &Connection, object: &Value) -> Result<Expanded> {
    let source = Source {
        manifests: &[],
        connection: Some(connected),
        namespace: &connected.namespace,
    };
    expansion::fill(&source, object, None).await
}

/// The ImageTemplates for whose images the cluster is gated.
fn unbuilt(object: &Value) -> Vec<String> {
    let labels = object.pointer("/metadata/labels");
    if labels.and_then(|labels| labels.get(label::GATED)).is_none() {
        return Vec::new();
    }
    let record = Record::of(object).unwrap_or_default();
    let pending = record
        .templates()
        .filter(|id| id.kind == Kind::ImageTemplate.kind() && id.is_pending());
    let mut names: Vec<_> = pending.map(|id| id.name.clone()).collect();
    names.sort();
    names.dedup();
    names
}

/// A gate is lifted by operator and webhook together, and `--expand=client` is for sites without them.
fn never_started(unbuilt: &[String]) -> Failure {
    Failure::failed(format!(
        "the image of ImageTemplate {} is not built: without the webhook nothing would start the cluster later",
        unbuilt.join(", ")
    ))
    .hint("wait for it with --wait, or leave it to the webhook with --expand=server")
}

fn manifest(config: &ClusterConfig, style: Style) -> Result<Value> {
    let cluster = build::cluster(config, style).map_err(Failure::usage)?;
    Ok(serde_json::to_value(cluster)?)
}

/// KubeRay's CRD has no fields for references: strict validation names them, and annotations carry them instead.
fn is_unknown_reference(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let fields = ["imageTemplate", "computeTemplate"];
    let message = &status.message;
    let unknown = message.contains("unknown field") && fields.iter().any(|field| message.contains(field));
    // It also requires a pod template in each group.
    let template_required = status.code == 422 && message.contains("template: Required value");
    unknown || template_required
}
