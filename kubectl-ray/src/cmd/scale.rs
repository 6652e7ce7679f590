//! `scale cluster`: changes exactly the numbers that are given, by a patch that tests the group's place.

use std::time::Duration;

use clap::{Args, Subcommand};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use ray_api::meta::manager;
use serde_json::{Value, json};

use crate::cli::{DryRun, DryRunArgs, WaitArgs};
use crate::cmd::create::group_names;
use crate::connection::ConnectionArgs;
use crate::error::{Failure, RACES, Result, is_lost_race};
use crate::follow;
use crate::kinds::Kind;
use crate::output;

const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// Flags of `scale`.
#[derive(Debug, Args)]
pub struct ScaleArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Change the replicas of a worker group.
    #[command(alias = "raycluster")]
    Cluster(ClusterArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl ray scale cluster demo --worker-group gpu --replicas 4
  kubectl ray scale cluster demo -w gpu --min-replicas 0 --max-replicas 20")]
struct ClusterArgs {
    /// Ray cluster.
    #[arg(add = crate::complete::clusters())]
    name: String,
    /// Worker group; may be left out where there is only one.
    #[arg(short, long, value_name = "NAME", add = crate::complete::worker_groups())]
    worker_group: Option<String>,
    #[command(flatten)]
    wanted: Wanted,
    /// Change nothing unless the group has so many replicas now.
    #[arg(long, value_name = "COUNT")]
    current_replicas: Option<i32>,
    #[command(flatten)]
    dry_run: DryRunArgs,
    #[command(flatten)]
    wait: WaitArgs,
}

/// The numbers to set.
#[derive(Clone, Copy, Debug, Args)]
#[group(required = true, multiple = true)]
struct Wanted {
    /// Replicas.
    #[arg(short, long, value_name = "COUNT", value_parser = clap::value_parser!(i32).range(0..))]
    replicas: Option<i32>,
    /// Fewest replicas.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i32).range(0..))]
    min_replicas: Option<i32>,
    /// Most replicas.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i32).range(0..))]
    max_replicas: Option<i32>,
}

pub(crate) async fn run(connection: &ConnectionArgs, args: &ScaleArgs) -> Result<()> {
    let What::Cluster(args) = &args.what;
    let connected = connection.connect().await?;
    let resource = Kind::RayCluster.resource();
    let api: Api<DynamicObject> =
        Api::namespaced_with(connected.client.clone(), &connected.namespace, &resource);
    scale(&api, args).await?;
    if args.wait.wait && args.dry_run.dry_run == DryRun::None {
        follow::cluster::wait(&connected, &args.name, args.wait.timeout.unwrap_or(PATIENCE)).await?;
    }
    Ok(())
}

async fn scale(api: &Api<DynamicObject>, args: &ClusterArgs) -> Result<()> {
    let params = PatchParams {
        dry_run: args.dry_run.dry_run == DryRun::Server,
        field_manager: Some(manager::PLUGIN.to_owned()),
        ..PatchParams::default()
    };
    let mut races = 0;
    loop {
        let cluster = api.get(&args.name).await?;
        let change = plan(&cluster, args)?;
        if change.summary.is_empty() {
            return output::line(&format!(
                "worker group {} already has these numbers; nothing changed",
                change.group
            ));
        }
        if races == 0 && args.wanted.replicas.is_some() && is_autoscaled(&cluster) {
            output::warning(
                "the cluster is autoscaled: the autoscaler may change replicas again; set min and max instead",
            );
        }
        let dry = match args.dry_run.dry_run {
            DryRun::None => "",
            DryRun::Client => " (dry run)",
            DryRun::Server => " (server dry run)",
        };
        let said = format!(
            "{} scaled: worker group {}: {}{dry}",
            Kind::RayCluster.object_name(&args.name),
            change.group,
            change.summary.join(", ")
        );
        if args.dry_run.dry_run == DryRun::Client {
            return output::line(&said);
        }
        match api
            .patch(&args.name, &params, &Patch::<()>::Json(change.patch))
            .await
        {
            Ok(_) => return output::line(&said),
            // The groups moved since we read them.
            Err(kube::Error::Api(status)) if races < RACES && is_lost_race(&status) => races += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

struct Change {
    group: String,
    summary: Vec<String>,
    patch: json_patch::Patch,
}

fn plan(cluster: &DynamicObject, args: &ClusterArgs) -> Result<Change> {
    let names = group_names(cluster);
    let group = choose(&names, args)?;
    let index = names.iter().position(|name| *name == group).unwrap_or_default();
    let path = format!("/spec/workerGroupSpecs/{index}");
    let current = |field: &str| {
        cluster
            .data
            .pointer(&format!("{path}/{field}"))
            .and_then(Value::as_i64)
    };
    if let Some(expected) = args.current_replicas
        && current("replicas").unwrap_or_default() != i64::from(expected)
    {
        let now = current("replicas").unwrap_or_default();
        return Err(Failure::failed(format!(
            "worker group `{group}` has {now} replicas, not {expected}"
        )));
    }
    let mut operations = vec![json!({"op": "test", "path": format!("{path}/groupName"), "value": group})];
    let mut summary = Vec::new();
    let wanted = [
        ("replicas", args.wanted.replicas),
        ("minReplicas", args.wanted.min_replicas),
        ("maxReplicas", args.wanted.max_replicas),
    ];
    for (field, wanted) in wanted {
        let Some(wanted) = wanted
            .map(i64::from)
            .filter(|wanted| current(field) != Some(*wanted))
        else {
            continue;
        };
        let before = current(field).map_or_else(|| "unset".to_owned(), |n| n.to_string());
        summary.push(format!("{field} {before} → {wanted}"));
        operations.push(json!({"op": "add", "path": format!("{path}/{field}"), "value": wanted}));
    }
    Ok(Change {
        group: group.to_owned(),
        summary,
        patch: serde_json::from_value(Value::Array(operations))?,
    })
}

fn choose<'a>(names: &[&'a str], args: &'a ClusterArgs) -> Result<&'a str> {
    let known = || format!("the groups are: {}", names.join(", "));
    match (&args.worker_group, names) {
        (Some(wanted), _) if names.contains(&wanted.as_str()) => Ok(wanted),
        (_, []) => Err(
            Failure::failed(format!("RayCluster `{}` has no worker group", args.name))
                .hint("add one with `kubectl ray create workergroup`"),
        ),
        (Some(wanted), _) => Err(Failure::not_found(format!(
            "RayCluster `{}` has no worker group `{wanted}`",
            args.name
        ))
        .hint(known())),
        (None, [only]) => Ok(only),
        (None, _) => Err(Failure::usage("which worker group? (--worker-group)").hint(known())),
    }
}

fn is_autoscaled(cluster: &DynamicObject) -> bool {
    cluster.data.pointer("/spec/enableInTreeAutoscaling") == Some(&Value::Bool(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(group: Option<&str>, replicas: Option<i32>, max: Option<i32>) -> ClusterArgs {
        ClusterArgs {
            name: "c".into(),
            worker_group: group.map(str::to_owned),
            wanted: Wanted {
                replicas,
                min_replicas: None,
                max_replicas: max,
            },
            current_replicas: None,
            dry_run: DryRunArgs {
                dry_run: DryRun::None,
            },
            wait: WaitArgs {
                wait: false,
                timeout: None,
            },
        }
    }

    fn cluster() -> DynamicObject {
        serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {"workerGroupSpecs": [
            {"groupName": "a", "replicas": 1}, {"groupName": "b", "replicas": 2, "maxReplicas": 5}]}}))
        .unwrap()
    }

    #[test]
    fn only_numbers_that_differ_are_patched_behind_a_test_of_the_group() {
        let change = plan(&cluster(), &args(Some("b"), Some(2), Some(9))).unwrap();
        assert_eq!(change.summary, ["maxReplicas 5 → 9"]);
        assert_eq!(
            serde_json::to_value(&change.patch).unwrap(),
            json!([
                {"op": "test", "path": "/spec/workerGroupSpecs/1/groupName", "value": "b"},
                {"op": "add", "path": "/spec/workerGroupSpecs/1/maxReplicas", "value": 9},
            ])
        );
        assert!(
            plan(&cluster(), &args(Some("b"), Some(2), None))
                .unwrap()
                .summary
                .is_empty()
        );
    }

    #[test]
    fn a_wrong_group_is_told_the_right_ones() {
        let failure = plan(&cluster(), &args(Some("nope"), Some(1), None))
            .err()
            .unwrap();
        assert_eq!(failure.hint.as_deref(), Some("the groups are: a, b"));
        assert!(plan(&cluster(), &args(None, Some(1), None)).is_err());
    }

    #[test]
    fn a_precondition_that_does_not_hold_changes_nothing() {
        let mut args = args(Some("a"), Some(3), None);
        args.current_replicas = Some(7);
        assert!(
            plan(&cluster(), &args)
                .err()
                .unwrap()
                .message
                .contains("has 1 replicas, not 7")
        );
    }
}
