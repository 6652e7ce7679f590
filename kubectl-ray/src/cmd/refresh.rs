//! `refresh cluster`: asks the webhook to fill in the newest versions of the templates.

use std::time::Duration;

use clap::{Args, Subcommand};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use ray_api::expand::{Record, TemplateId};
use ray_api::meta::{annotation, label, manager};
use serde_json::json;

use crate::cli::{DryRun, DryRunArgs, WaitArgs};
use crate::connection::ConnectionArgs;
use crate::error::{Failure, Result};
use crate::follow;
use crate::kinds::Kind;
use crate::output;

const PATIENCE: Duration = Duration::from_secs(10 * 60);

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
    let before = api.get(&args.name).await?;
    let old = templates(&before)?;
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
    let after = api.patch(&args.name, &params, &Patch::Merge(patch)).await?;
    let dry = if params.dry_run { " (server dry run)" } else { "" };
    let changes = changes(&old, &templates(&after)?);
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
        let of_cluster = ListParams::default().labels(&format!("{}={}", label::CLUSTER, args.name));
        connected
            .api::<Pod>()
            .delete_collection(&DeleteParams::default(), &of_cluster)
            .await?;
        output::line(&format!("{object} restarting: its pods were deleted"))?;
    }
    if args.wait.wait {
        follow::cluster::wait(&connected, &args.name, args.wait.timeout.unwrap_or(PATIENCE)).await?;
    }
    Ok(())
}

fn templates(cluster: &DynamicObject) -> Result<Vec<TemplateId>> {
    let record = Record::of(&serde_json::to_value(cluster)?).unwrap_or_default();
    let mut templates: Vec<TemplateId> = record.templates().chain(record.ancestors()).cloned().collect();
    templates.sort_by(|a, b| (&a.kind, &a.name).cmp(&(&b.kind, &b.name)));
    templates.dedup();
    Ok(templates)
}

fn changes(old: &[TemplateId], new: &[TemplateId]) -> Vec<String> {
    let shown = |id: &TemplateId| {
        id.generation
            .map_or_else(|| "pending".to_owned(), |g| format!("generation {g}"))
    };
    new.iter()
        .filter(|id| !old.contains(id))
        .map(|id| {
            let before = old.iter().find(|o| (&o.kind, &o.name) == (&id.kind, &id.name));
            let from = before.map_or_else(|| "none".to_owned(), shown);
            format!("{} {}: {from} → {}", id.kind, id.name, shown(id))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_templates_with_another_generation_are_changes() {
        let id = |name: &str, generation| TemplateId {
            kind: "ComputeTemplate".into(),
            namespace: Some("n".into()),
            name: name.into(),
            uid: Some("u".into()),
            generation: Some(generation),
        };
        assert_eq!(
            changes(&[id("a", 1), id("b", 2)], &[id("a", 1), id("b", 3)]),
            ["ComputeTemplate b: generation 2 → generation 3"]
        );
    }
}
