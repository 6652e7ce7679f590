//! The finalizer of clusters with Redis-backed fault tolerance (raycluster-behaviour 3.10): it always ends.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, Patch};
use kube::{Resource, ResourceExt};
use ray_api::meta::{REDIS_CLEANUP_FINALIZER, annotation};
use ray_api::ray::RayCluster;
use serde_json::json;

use super::build::{Facts, cleanup_job, cleanup_job_name, needs_redis_cleanup};
use super::context::Context;
use super::error::{Error, Failure, RequestError};
use super::events::Kind;
use super::execute;
use super::memory::Memory;
use super::plan::{Why, delete_all};
use super::pods::{ClusterKey, NodeType, PodView};
use super::report::warn;
use super::request::{merge, post, within};

/// Seconds of deletion after which a stuck cleanup is given up, where no annotation says otherwise.
const PATIENCE: i64 = 300;
/// Between two looks at the Job.
const POLL: Duration = Duration::from_secs(2);

/// What the finalizer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing: go on with the cluster.
    Run,
    /// The cluster needs the finalizer before anything is made.
    Add,
    /// The cluster is being deleted, and nothing is left to do.
    Gone,
    /// It can go: nothing to clean up, or not any more.
    Remove,
    /// Too long: it goes, whatever is left in Redis.
    GiveUp,
    /// Pods have to go first: a living head would write its state back.
    DeletePods,
    /// Wait for the head to be gone.
    AwaitHead,
    /// The Job's turn.
    Clean,
}

/// Pure: what the finalizer asks for.
#[must_use]
pub(super) fn step(cluster: &RayCluster, enabled: bool, pods: &[Arc<PodView>], now: Timestamp) -> Step {
    let has_finalizer = cluster
        .finalizers()
        .iter()
        .any(|name| name == REDIS_CLEANUP_FINALIZER);
    let needed = enabled && needs_redis_cleanup(cluster);
    let Some(deletion) = cluster.metadata.deletion_timestamp.as_ref() else {
        return if needed && !has_finalizer {
            Step::Add
        } else {
            Step::Run
        };
    };
    if !has_finalizer {
        return Step::Gone;
    }
    if !needed {
        return Step::Remove;
    }
    if now.duration_since(deletion.0) >= patience(cluster) {
        return Step::GiveUp;
    }
    let nodes = || pods.iter().filter(|pod| pod.node_type != NodeType::RedisCleanup);
    if nodes().any(|pod| !pod.is_terminating()) {
        Step::DeletePods
    } else if nodes().any(|pod| pod.node_type == NodeType::Head) {
        Step::AwaitHead
    } else {
        Step::Clean
    }
}

fn patience(cluster: &RayCluster) -> SignedDuration {
    let text = cluster.annotations().get(annotation::GCS_FT_DELETION_TIMEOUT);
    let seconds = text
        .and_then(|text| text.trim().parse().ok())
        .filter(|seconds| *seconds > 0);
    SignedDuration::from_secs(seconds.unwrap_or(PATIENCE))
}

/// Does it. None means: go on with the cluster; otherwise this pass is over, and the next comes after that long.
///
/// # Errors
/// When a request fails; the next pass tries again.
pub(super) async fn execute(
    ctx: &Context,
    facts: &Facts<'_>,
    key: &ClusterKey,
    pods: &[Arc<PodView>],
    memory: &std::sync::Mutex<Memory>,
) -> Result<Option<Option<Duration>>, Error> {
    let cluster = facts.cluster;
    let reference = cluster.object_ref(&());
    match step(cluster, ctx.config.args.redis_cleanup, pods, Timestamp::now()) {
        Step::Run => return Ok(None),
        Step::Gone => {}
        Step::Add => {
            let mut finalizers = cluster.finalizers().to_vec();
            finalizers.push(REDIS_CLEANUP_FINALIZER.to_owned());
            write_finalizers(ctx, &cluster.metadata, &finalizers).await?;
            return Ok(None);
        }
        Step::Remove => release(ctx, &cluster.metadata).await?,
        Step::GiveUp => {
            let note = "the cleanup of Redis took too long: keys of this cluster may be left in it";
            ctx.events.publish(
                &reference,
                Kind::warning("ForceDeletedStuckCluster", "Cleanup"),
                note,
            );
            release(ctx, &cluster.metadata).await?;
        }
        Step::DeletePods => {
            let plan = delete_all(pods, Why::Suspended);
            let outcome = execute::execute(ctx, facts, key, &plan, memory).await;
            for failure in outcome.failures {
                let kind = (failure.reason, failure.action);
                warn(ctx, memory, &reference, kind, &failure.message);
            }
            return Ok(Some(Some(POLL)));
        }
        // The watch tells when it is gone; the clock, when that takes too long.
        Step::AwaitHead => return Ok(Some(Some(POLL * 5))),
        Step::Clean => return clean(ctx, facts).await.map(Some),
    }
    Ok(Some(None))
}

/// Runs the Job to its end.
async fn clean(ctx: &Context, facts: &Facts<'_>) -> Result<Option<Duration>, Error> {
    let api: Api<Job> = Api::namespaced(ctx.client.clone(), facts.namespace);
    let name = cleanup_job_name(facts.name);
    let reference = facts.cluster.object_ref(&());
    let job = within(api.get_opt(&name)).await.map_err(Error::Finalizer)?;
    let Some(job) = job else {
        let created = within(api.create(&post(), &cleanup_job(facts))).await;
        if let Err(error) = created.as_ref().map(drop).or_else(ignore_existing) {
            let failure = Failure::new(
                "FailedToCreateRedisCleanupJob",
                "Create",
                &format!("Failed to create Redis cleanup Job {name}"),
                error,
            );
            ctx.events.publish(
                &reference,
                Kind::warning(failure.reason, failure.action),
                &failure.message,
            );
            return Err(Error::Incomplete(failure.message));
        }
        let note = format!("Created Redis cleanup Job {name}");
        ctx.events.publish(
            &reference,
            Kind::normal("CreatedRedisCleanupJob", "Create"),
            &note,
        );
        return Ok(Some(POLL));
    };
    match result(&job) {
        None => Ok(Some(POLL)),
        Some(succeeded) => {
            if !succeeded {
                let note = format!("the Job {name} failed: keys of this cluster may be left in Redis");
                ctx.events
                    .publish(&reference, Kind::warning("RedisCleanupFailed", "Cleanup"), &note);
            }
            release(ctx, &facts.cluster.metadata).await?;
            Ok(None)
        }
    }
}

fn ignore_existing(error: &RequestError) -> Result<(), &RequestError> {
    if error.is_already_exists() {
        Ok(())
    } else {
        Err(error)
    }
}

/// Whether the Job has ended, and how.
fn result(job: &Job) -> Option<bool> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let ended = conditions
        .iter()
        .filter(|condition| condition.status == "True")
        .find(|condition| matches!(condition.type_.as_str(), "Complete" | "Failed" | "FailureTarget"))?;
    Some(ended.type_ == "Complete")
}

/// Takes our finalizer away, if it is there.
///
/// # Errors
/// When the request fails.
pub(super) async fn release(ctx: &Context, metadata: &ObjectMeta) -> Result<(), Error> {
    let all = metadata.finalizers.as_deref().unwrap_or_default();
    let others: Vec<_> = all
        .iter()
        .filter(|name| *name != REDIS_CLEANUP_FINALIZER)
        .cloned()
        .collect();
    if others.len() == all.len() {
        return Ok(());
    }
    match write_finalizers(ctx, metadata, &others).await {
        Err(Error::Finalizer(error)) if error.is_not_found() => Ok(()),
        result => result,
    }
}

/// Replaces the list, if the cluster is still the one that was read.
async fn write_finalizers(ctx: &Context, metadata: &ObjectMeta, finalizers: &[String]) -> Result<(), Error> {
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<RayCluster> = Api::namespaced(ctx.client.clone(), namespace);
    let patch = json!({"metadata": {
        "finalizers": finalizers,
        "resourceVersion": metadata.resource_version,
    }});
    let name = metadata.name.as_deref().unwrap_or_default();
    within(api.patch_metadata(name, &merge(), &Patch::Merge(patch)))
        .await
        .map(drop)
        .map_err(Error::Finalizer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn cluster(fault_tolerant: bool, finalizer: bool, deleted_at: Option<i64>) -> RayCluster {
        let mut cluster: RayCluster = serde_json::from_value(json!({
            "metadata": {"name": "c", "annotations": {"ray.io/ft-enabled": fault_tolerant.to_string()}},
            "spec": {"headGroupSpec": {}},
        }))
        .unwrap();
        cluster.metadata.finalizers = finalizer.then(|| vec![REDIS_CLEANUP_FINALIZER.to_owned()]);
        cluster.metadata.deletion_timestamp = deleted_at.map(|second| Time(at(second)));
        cluster
    }

    fn pod(node_type: &str, terminating: bool) -> Arc<PodView> {
        let mut pod = json!({"metadata": {"name": "p", "labels": {"ray.io/cluster": "c", "ray.io/node-type": node_type}}});
        if terminating {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let pod: super::super::pods::WatchedPod = serde_json::from_value(pod).unwrap();
        Arc::new(pod.view.unwrap())
    }

    #[test]
    fn the_finalizer_comes_first_and_only_where_it_is_needed() {
        assert_eq!(step(&cluster(true, false, None), true, &[], at(0)), Step::Add);
        assert_eq!(step(&cluster(true, true, None), true, &[], at(0)), Step::Run);
        assert_eq!(step(&cluster(true, false, None), false, &[], at(0)), Step::Run);
        assert_eq!(step(&cluster(false, false, None), true, &[], at(0)), Step::Run);
    }

    #[test]
    fn deletion_goes_pods_head_job() {
        let deleted = cluster(true, true, Some(0));
        let next = |pods: &[Arc<PodView>]| step(&deleted, true, pods, at(1));
        assert_eq!(next(&[pod("head", false)]), Step::DeletePods);
        assert_eq!(next(&[pod("head", true)]), Step::AwaitHead);
        assert_eq!(
            next(&[pod("worker", true)]),
            Step::Clean,
            "workers need not be gone"
        );
        assert_eq!(next(&[]), Step::Clean);
        assert_eq!(next(&[pod("redis-cleanup", false)]), Step::Clean);
    }

    #[test]
    fn it_always_ends() {
        assert_eq!(
            step(&cluster(true, true, Some(0)), true, &[], at(300)),
            Step::GiveUp
        );
        assert_eq!(
            step(&cluster(true, true, Some(0)), false, &[], at(1)),
            Step::Remove
        );
        assert_eq!(
            step(&cluster(false, true, Some(0)), true, &[], at(1)),
            Step::Remove
        );
        assert_eq!(step(&cluster(true, false, Some(0)), true, &[], at(1)), Step::Gone);
        let mut hasty = cluster(true, true, Some(0));
        for (text, patience) in [("1", 1), ("0", 300), ("-5", 300), ("soon", 300)] {
            let annotations = hasty.annotations_mut();
            annotations.insert(annotation::GCS_FT_DELETION_TIMEOUT.to_owned(), text.to_owned());
            assert_eq!(step(&hasty, true, &[], at(patience)), Step::GiveUp, "{text}");
            assert_eq!(step(&hasty, true, &[], at(patience - 1)), Step::Clean, "{text}");
        }
    }
}
