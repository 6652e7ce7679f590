//! `refresh cluster`: asks the webhook to fill in the newest versions of the templates.

use std::fmt;
use std::time::Duration;

use clap::{Args, Subcommand};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use ray_api::expand::{GroupRecord, Origin, Record, TemplateId};
use ray_api::meta::{NODE_TYPE_HEAD, NODE_TYPE_WORKER, annotation, label, manager};
use serde_json::{Value, json};

use crate::cli::{DryRun, DryRunArgs, WaitArgs};
use crate::connection::{Connection, ConnectionArgs};
use crate::error::{Failure, Result};
use crate::expansion::{self, Source};
use crate::follow;
use crate::kinds::Kind;
use crate::output;

const PATIENCE: Duration = Duration::from_secs(10 * 60);
/// Pods that are deleted at once.
const PARALLEL: usize = 16;

/// Flags of `refresh`.
#[derive(Debug, Args)]
pub struct RefreshArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Give a Ray cluster the newest versions of its templates.
    #[command(alias = "raycluster")]
    Cluster(ClusterArgs),
}

#[derive(Debug, Args)]
struct ClusterArgs {
    /// Ray cluster.
    #[arg(add = crate::complete::clusters())]
    name: String,
    /// Delete its pods as well, so that head and workers run the new versions together.
    #[arg(long)]
    restart: bool,
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(flatten)]
    wait: WaitArgs,
}

pub(crate) async fn run(connection: &ConnectionArgs, args: &RefreshArgs) -> Result<()> {
    let What::Cluster(args) = &args.what;
    let connected = connection.connect().await?;
    let resource = Kind::RayCluster.resource();
    let api: Api<DynamicObject> =
        Api::namespaced_with(connected.client.clone(), &connected.namespace, &resource);
    let before = serde_json::to_value(api.get(&args.name).await?)?;
    let old = given(&before);
    if old.is_empty() {
        return Err(Failure::failed(format!(
            "RayCluster `{}` was not filled in from any template",
            args.name
        )));
    }
    let object = Kind::RayCluster.object_name(&args.name);
    if args.dry_run.dry_run == DryRun::Client {
        return output::line(&format!("{object} refreshed (dry run)"));
    }
    let params = PatchParams {
        dry_run: args.dry_run.dry_run == DryRun::Server,
        field_manager: Some(manager::PLUGIN.to_owned()),
        ..PatchParams::default()
    };
    let patch = json!({"metadata": {"annotations": {annotation::REFRESH: Timestamp::now().to_string()}}});
    let after = serde_json::to_value(api.patch(&args.name, &params, &Patch::Merge(patch)).await?)?;
    let dry = if params.dry_run { " (server dry run)" } else { "" };
    check_refreshed(&connected, &args.name, &before, &after).await?;
    let changes = changes(&old, &given(&after));
    if changes.is_empty() {
        output::line(&format!("{object} has the newest templates already{dry}"))?;
    }
    for change in &changes {
        output::line(&format!("{object} refreshed{dry}: {change}"))?;
    }
    if params.dry_run {
        return Ok(());
    }
    if args.restart {
        delete_pods(&connected, &args.name).await?;
        output::line(&format!("{object} restarting: its pods were deleted"))?;
    }
    if args.wait.wait {
        follow::cluster::wait(&connected, &args.name, args.wait.timeout.unwrap_or(PATIENCE)).await?;
    }
    Ok(())
}

/// Expands as the webhook should have: where that still changes something, no webhook looked.
async fn check_refreshed(connected: &Connection, name: &str, before: &Value, after: &Value) -> Result<()> {
    let source = Source {
        manifests: &[],
        connection: Some(connected),
        namespace: &connected.namespace,
    };
    let expected = expansion::fill(&source, after, Some(before)).await?;
    let missed = changes(&given(after), &given(&expected.object));
    if missed.is_empty() {
        return Ok(());
    }
    let message = format!(
        "RayCluster `{name}` was not refreshed, no webhook filled in its templates: {}",
        missed.join(", ")
    );
    Err(Failure::failed(message).hint(
        "look for the webhook with `kubectl ray doctor`; where there is none, expand the cluster's manifest anew: \
         `kubectl ray render -f FILE | kubectl apply -f -`",
    ))
}

/// One by one: who may delete a pod need not have the right to delete all of them.
async fn delete_pods(connected: &Connection, cluster: &str) -> Result<()> {
    let nodes = format!(
        "{}={cluster},{} in ({NODE_TYPE_HEAD},{NODE_TYPE_WORKER})",
        label::CLUSTER,
        label::NODE_TYPE
    );
    let api = connected.api::<Pod>();
    let pods = api.list_metadata(&ListParams::default().labels(&nodes)).await?;
    let names = pods.items.into_iter().filter_map(|pod| pod.metadata.name);
    stream::iter(names)
        .map(|name| {
            let api = &api;
            async move {
                match api.delete(&name, &DeleteParams::default()).await {
                    // It went by itself meanwhile.
                    Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                    other => other.map(drop),
                }
            }
        })
        .buffer_unordered(PARALLEL)
        .try_collect::<()>()
        .await?;
    Ok(())
}

/// A template as a cluster has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Given {
    id: TemplateId,
    /// What an ImageTemplate was built to: a rebuild changes this alone.
    image: Option<String>,
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id.generation {
            Some(generation) => write!(f, "generation {generation}")?,
            None => f.write_str("pending")?,
        }
        match &self.image {
            Some(image) => write!(f, ", {image}"),
            None => Ok(()),
        }
    }
}

fn given(cluster: &Value) -> Vec<Given> {
    let record = Record::of(cluster).unwrap_or_default();
    let mut all = Vec::new();
    for (_, group) in record.groups() {
        let computes = group.compute.iter().chain(&group.extends);
        all.extend(computes.map(|id| Given {
            id: id.clone(),
            image: None,
        }));
        all.extend(group.image.iter().map(|id| Given {
            id: id.clone(),
            image: image_of(group),
        }));
    }
    all.sort_by(|a, b| (&a.id.kind, &a.id.name).cmp(&(&b.id.kind, &b.id.name)));
    all.dedup();
    all
}

fn image_of(group: &GroupRecord) -> Option<String> {
    let piece = group
        .pieces_from(Origin::Image)
        .find(|piece| piece.at.leaf_name() == "image")?;
    piece.value.as_str().map(str::to_owned)
}

fn changes(old: &[Given], new: &[Given]) -> Vec<String> {
    new.iter()
        .filter(|given| !old.contains(given))
        .map(|given| {
            let TemplateId { kind, name, .. } = &given.id;
            let before = old.iter().find(|o| (&o.id.kind, &o.id.name) == (kind, name));
            let from = before.map_or_else(|| "none".to_owned(), ToString::to_string);
            format!("{kind} {name}: {from} → {given}")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_templates_that_give_something_else_are_changes() {
        let cluster = |generation: i64, image: &str| {
            let id = |kind: &str, name: &str, generation: i64| json!({"kind": kind, "name": name, "uid": "u", "generation": generation});
            let pieces =
                json!([{"at": "template/spec/containers/[0]/image", "value": image, "from": "image"}]);
            let record = json!({"head": {"compute": id("ComputeTemplate", "a", 1), "extends": [id("ComputeTemplate", "b", generation)],
                "image": id("ImageTemplate", "torch", 1), "pieces": pieces}});
            json!({"metadata": {"annotations": {annotation::EXPANSION: record.to_string()}}})
        };
        let changed = |old: &Value, new: &Value| changes(&given(old), &given(new));
        let old = cluster(2, "r@sha256:1");
        assert_eq!(changed(&old, &old), [""; 0]);
        assert_eq!(
            changed(&old, &cluster(3, "r@sha256:2")),
            [
                "ComputeTemplate b: generation 2 → generation 3",
                "ImageTemplate torch: generation 1, r@sha256:1 → generation 1, r@sha256:2"
            ]
        );
    }
}
