use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::worker::WorkerFlags;
use super::{ResultArgs, post, set_namespace};
use crate::build::{self, AutoscalerConfig, AutoscalerVersion, ClusterConfig, GroupConfig, Resources, Style};
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
pub(super) struct ClusterArgs {
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

pub(super) async fn run(connection: &ConnectionArgs, args: &ClusterArgs) -> Result<()> {
    let config = config(args, connection.namespace.as_deref())?;
    let connection = ConnectionArgs {
        namespace: config.namespace.clone(),
        ..connection.clone()
    };
    let object = manifest(&config, Style::Fields)?;
    if args.result.is_client_dry_run() {
        return args.result.print_unsent(Kind::RayCluster, &object);
    }
    let connected = connection.connect().await?;
    let object = match args.expand {
        Expand::Server => object,
        Expand::Client => expand(&connected, &object).await?,
    };
    let dry_run = args.result.dry_run.dry_run;
    let resource = Kind::RayCluster.resource();
    let send = |mut object: Value| {
        let (client, namespace, resource) = (&connected.client, &connected.namespace, &resource);
        set_namespace(&mut object, namespace);
        async move { post(client, resource, Some(namespace), &object, dry_run).await }
    };
    let created = match send(object).await {
        Err(error) if is_unknown_reference(&error) => send(manifest(&config, Style::Annotations)?).await?,
        other => other?,
    };
    args.result.print_sent(Kind::RayCluster, &created, "created")?;
    if args.wait.wait && dry_run == DryRun::None {
        let name = config.name.as_deref().unwrap_or_default();
        follow::cluster::wait(&connected, name, args.wait.timeout.unwrap_or(PATIENCE)).await?;
    }
    Ok(())
}

/// What the webhook would make of the object.
async fn expand(connected: &Connection, object: &Value) -> Result<Value> {
    let source = Source {
        manifests: &[],
        connection: Some(connected),
        namespace: &connected.namespace,
    };
    let expanded = expansion::fill(&source, object).await?;
    expanded
        .warnings
        .iter()
        .for_each(|warning| output::warning(warning));
    Ok(expanded.object)
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

/// File and flags in one; the flags win.
fn config(args: &ClusterArgs, namespace: Option<&str>) -> Result<ClusterConfig> {
    let mut config = match &args.file {
        Some(path) => read(path)?,
        None => ClusterConfig::default(),
    };
    agree("name", &mut config.name, args.name.as_deref())?;
    agree("namespace", &mut config.namespace, namespace)?;
    if config.name.is_none() {
        return Err(
            Failure::usage("the cluster has no name").hint("give it behind `create cluster`, or in the file")
        );
    }
    let set = |field: &mut Option<String>, flag: &Option<String>| {
        if flag.is_some() {
            field.clone_from(flag);
        }
    };
    set(&mut config.ray_version, &args.ray_version);
    set(&mut config.image, &args.image);
    set(&mut config.image_template, &args.image_template);
    set(&mut config.compute_template, &args.compute_template);
    set(&mut config.service_account, &args.service_account);
    config.labels.extend(args.labels.iter().cloned());
    config.annotations.extend(args.annotations.iter().cloned());
    if let Some(version) = args.autoscaler {
        config.autoscaler = Some(AutoscalerConfig { version });
    }
    set(&mut config.head.compute_template, &args.head_compute_template);
    args.head.lay_over(&mut config);
    if !args.worker_groups.is_empty() {
        let groups = config.worker_groups.take().unwrap_or_default();
        config.worker_groups = Some(merge_groups(groups, &args.worker_groups));
    }
    lay_worker_over(args, &mut config)?;
    Ok(config)
}

fn read(path: &PathBuf) -> Result<ClusterConfig> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("--file: cannot read {shown}: {error}")))?;
    ClusterConfig::parse(&text).map_err(|error| Failure::usage(format!("--file: {shown}: {error}")))
}

fn agree(what: &str, in_file: &mut Option<String>, by_flag: Option<&str>) -> Result<()> {
    match (&in_file, by_flag) {
        (Some(file), Some(flag)) if file != flag => Err(Failure::usage(format!(
            "the file says {what} `{file}`, the command line `{flag}`"
        ))),
        (None, Some(flag)) => {
            *in_file = Some(flag.to_owned());
            Ok(())
        }
        _ => Ok(()),
    }
}

/// A group by flag replaces the one of its name in the file, or comes behind.
fn merge_groups(mut groups: Vec<GroupConfig>, by_flag: &[GroupConfig]) -> Vec<GroupConfig> {
    for group in by_flag {
        // Two flags of one name stay two: the API server says so.
        match groups
            .iter_mut()
            .find(|known| known.name == group.name && !by_flag.contains(known))
        {
            Some(known) => known.clone_from(group),
            None => groups.push(group.clone()),
        }
    }
    groups
}

impl HeadArgs {
    fn lay_over(&self, config: &mut ClusterConfig) {
        let head = &mut config.head;
        let resources = Resources {
            cpu: self.head_cpu.clone(),
            memory: self.head_memory.clone(),
            gpu: self.head_gpu.clone(),
            ephemeral_storage: self.head_ephemeral_storage.clone(),
            ..Resources::default()
        };
        head.resources = resources.over(std::mem::take(&mut head.resources));
        head.ray_start_params
            .extend(self.head_ray_start_params.iter().cloned());
        head.node_selectors
            .extend(self.head_node_selectors.iter().cloned());
    }
}

/// The flags of the one group that needs no name.
fn lay_worker_over(args: &ClusterArgs, config: &mut ClusterConfig) -> Result<()> {
    let given = GroupConfig {
        replicas: args.worker_replicas,
        ..args.worker.group()
    };
    if given == GroupConfig::default() {
        return Ok(());
    }
    let groups = config
        .worker_groups
        .get_or_insert_with(|| vec![GroupConfig::default()]);
    let [group] = groups.as_mut_slice() else {
        return Err(
            Failure::usage("the --worker-… flags need exactly one worker group in the file")
                .hint("give each group by --worker-group name=…"),
        );
    };
    group.replicas = given.replicas.or(group.replicas);
    group.num_of_hosts = given.num_of_hosts.or(group.num_of_hosts);
    group.resources = given.resources.over(std::mem::take(&mut group.resources));
    group.ray_start_params.extend(given.ray_start_params);
    group.node_selectors.extend(given.node_selectors);
    Ok(())
}
