use clap::Args;
use json_patch::Patch as JsonPatch;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use ray_api::meta::manager;
use serde_json::{Value, json};

use super::ResultArgs;
use super::worker::WorkerFlags;
use crate::build::{self, ClusterConfig, GroupConfig, Style};
use crate::cli::DryRun;
use crate::connection::ConnectionArgs;
use crate::error::{Failure, RACES, Result, is_lost_race};
use crate::kinds::Kind;

/// Flags of `create workergroup`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl ray create workergroup gpu --ray-cluster demo --compute-template a100 --worker-replicas 2
  kubectl ray create workergroup cpu --ray-cluster demo --worker-cpu 4 --worker-memory 8Gi")]
pub(super) struct WorkerGroupArgs {
    /// Name of the group.
    name: String,
    /// Ray cluster to add it to.
    #[arg(short = 'c', long, value_name = "NAME", add = crate::complete::clusters())]
    ray_cluster: String,
    /// ComputeTemplate of the group.
    #[arg(long, value_name = "NAME", add = crate::complete::compute_templates())]
    compute_template: Option<String>,
    /// ImageTemplate of the group; the cluster's where absent.
    #[arg(long, value_name = "NAME", add = crate::complete::image_templates())]
    image_template: Option<String>,
    /// Version of Ray; selects the image of that version.
    #[arg(long, value_name = "VERSION", conflicts_with = "image")]
    ray_version: Option<String>,
    /// Image of the group; the head's where absent.
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Replicas to start with.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    worker_replicas: i32,
    /// Fewest replicas.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    worker_min_replicas: i32,
    /// Most replicas.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    worker_max_replicas: i32,
    #[command(flatten)]
    worker: WorkerFlags,
    #[command(flatten)]
    result: ResultArgs,
}

pub(super) async fn run(connection: &ConnectionArgs, args: &WorkerGroupArgs) -> Result<()> {
    let connected = connection.connect().await?;
    let resource = Kind::RayCluster.resource();
    let api: Api<DynamicObject> =
        Api::namespaced_with(connected.client.clone(), &connected.namespace, &resource);
    let params = PatchParams {
        dry_run: args.result.dry_run.dry_run == DryRun::Server,
        field_manager: Some(manager::PLUGIN.to_owned()),
        field_validation: Some(kube::api::ValidationDirective::Strict),
        ..PatchParams::default()
    };
    let mut style = Style::Fields;
    let mut races = 0;
    loop {
        let cluster = api.get(&args.ray_cluster).await?;
        let group = worker_group(args, &cluster, style)?;
        let patch = append(&cluster, &group)?;
        if args.result.is_client_dry_run() {
            let mut object = serde_json::to_value(&cluster)?;
            json_patch::patch(&mut object, &patch).map_err(|error| Failure::failed(error.to_string()))?;
            return args.result.print_unsent(Kind::RayCluster, &object);
        }
        match api
            .patch(&args.ray_cluster, &params, &Patch::<()>::Json(patch))
            .await
        {
            Ok(patched) => {
                let verb = format!("changed: worker group {} added", args.name);
                return args
                    .result
                    .print_sent(Kind::RayCluster, &serde_json::to_value(patched)?, &verb);
            }
            Err(kube::Error::Api(status))
                if status.message.contains("unknown field") && style == Style::Fields =>
            {
                style = Style::Annotations;
            }
            // Somebody else changed the cluster since we read it.
            Err(kube::Error::Api(status)) if races < RACES && is_lost_race(&status) => races += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

fn worker_group(args: &WorkerGroupArgs, cluster: &DynamicObject, style: Style) -> Result<Value> {
    let names = group_names(cluster);
    if names.contains(&args.name.as_str()) {
        let message = format!(
            "RayCluster `{}` has a worker group `{}` already",
            args.ray_cluster, args.name
        );
        return Err(Failure::failed(message)
            .hint("choose another name, or change it with `kubectl ray scale cluster`"));
    }
    let at = |pointer: &str| {
        cluster
            .data
            .pointer(pointer)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let head_image = || at("/spec/headGroupSpec/template/spec/containers/0/image");
    let own_image = args
        .ray_version
        .as_ref()
        .map(|version| format!("rayproject/ray:{version}"));
    let config = ClusterConfig {
        image_template: at("/spec/imageTemplate"),
        compute_template: at("/spec/computeTemplate"),
        image: at("/spec/imageTemplate").is_none().then(head_image).flatten(),
        ..ClusterConfig::default()
    };
    let group = GroupConfig {
        name: Some(args.name.clone()),
        replicas: Some(args.worker_replicas),
        min_replicas: Some(args.worker_min_replicas),
        max_replicas: Some(args.worker_max_replicas),
        compute_template: args.compute_template.clone(),
        image_template: args.image_template.clone(),
        image: args.image.clone().or(own_image),
        ..args.worker.group()
    };
    let built = build::worker_group(&config, &group, style).map_err(Failure::usage)?;
    Ok(serde_json::to_value(built)?)
}

pub(crate) fn group_names(cluster: &DynamicObject) -> Vec<&str> {
    let groups = cluster
        .data
        .pointer("/spec/workerGroupSpecs")
        .and_then(Value::as_array);
    groups
        .into_iter()
        .flatten()
        .filter_map(|group| group.get("groupName")?.as_str())
        .collect()
}

/// Appends the group to the cluster as it was read: the resource version is tested, so that no change is lost.
fn append(cluster: &DynamicObject, group: &Value) -> Result<JsonPatch> {
    let mut operations = vec![json!({
        "op": "test", "path": "/metadata/resourceVersion", "value": cluster.metadata.resource_version,
    })];
    operations.push(match cluster.data.pointer("/spec/workerGroupSpecs") {
        Some(Value::Array(_)) => json!({"op": "add", "path": "/spec/workerGroupSpecs/-", "value": group}),
        _ => json!({"op": "add", "path": "/spec/workerGroupSpecs", "value": [group]}),
    });
    Ok(serde_json::from_value(Value::Array(operations))?)
}
