//! One pass over one cluster.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use rand::Rng;
use ray_api::names;
use ray_api::ray::RayCluster;
use ray_api::validate;

use super::build::{Facts, ray_container};
use super::context::Context;
use super::error::Error;
use super::memory::Memory;
use super::plan::{self, Situation};
use super::pods::ClusterKey;
use super::report::{Report, listed};
use super::{children, cleanup, execute, unreadable};
use crate::guard::Guarded;
use crate::shared::lock;

/// A cluster that nothing happens to is looked at this often; no request comes of it.
const RESYNC: Duration = Duration::from_secs(300);

/// Who runs clusters that name a manager.
const MANAGED_BY: &str = "ray.io/kuberay-operator";

/// One pass over one cluster.
pub(super) async fn reconcile(guarded: Arc<Guarded>, ctx: Arc<Context>) -> Result<Action, Error> {
    let cluster = match &guarded.0 {
        Ok(cluster) => cluster,
        Err(unreadable) => return unreadable::tell(&ctx, &guarded, &unreadable.why).await,
    };
    if cluster
        .spec
        .managed_by
        .as_deref()
        .is_some_and(|manager| manager != MANAGED_BY)
    {
        // It may have been ours before: a finalizer that nobody else knows must not keep it.
        if cluster.metadata.deletion_timestamp.is_some() {
            cleanup::release(&ctx, &cluster.metadata).await?;
        }
        return Ok(Action::await_change());
    }
    let start = Instant::now();
    ctx.metrics.passes.inc();
    let key = ClusterKey {
        namespace: cluster.namespace().unwrap_or_default(),
        name: cluster.name_any(),
    };
    let memory = ctx.memories.of(&key);
    let result = Box::pin(pass(&ctx, cluster, &key, &memory)).await;
    ctx.metrics.seconds.observe(start.elapsed().as_secs_f64());
    let mut memory = lock(&memory);
    memory.errors = if result.is_ok() {
        0
    } else {
        memory.errors.saturating_add(1)
    };
    result
}

/// Repeats a pass that failed, later each time.
pub(super) fn error_policy(guarded: Arc<Guarded>, error: &Error, ctx: Arc<Context>) -> Action {
    ctx.metrics.failures.inc();
    let key = ClusterKey {
        namespace: guarded.namespace().unwrap_or_default(),
        name: guarded.name_any(),
    };
    let jitter = rand::rng().random_range(0.5..1.0);
    let wait = lock(&ctx.memories.of(&key)).backoff(jitter, Instant::now());
    tracing::warn!(namespace = key.namespace, name = key.name, %error, ?wait, "the pass is repeated");
    Action::requeue(wait)
}

async fn pass(
    ctx: &Context,
    cluster: &RayCluster,
    key: &ClusterKey,
    memory: &Mutex<Memory>,
) -> Result<Action, Error> {
    let cluster = {
        let mut memory = lock(memory);
        memory.see_generation(cluster.metadata.generation);
        memory.refresh(cluster).map_or(Cow::Borrowed(cluster), Cow::Owned)
    };
    let facts = Facts::new(&cluster, &ctx.config);
    let report = Report {
        ctx,
        facts: &facts,
        key,
        memory,
    };
    let pods = ctx.pods.observe(key, facts.uid, Timestamp::now());
    if let Some(next) = cleanup::execute(ctx, &facts, key, &pods, memory).await? {
        return Ok(next.map_or_else(Action::await_change, Action::requeue));
    }
    if let Some((reason, message)) = rejection(&cluster) {
        return report.reject(reason, &message).await;
    }
    report.warn_of(&validate::warnings(&cluster));
    let objects = children::execute(ctx, &facts).await;

    let plan = plan::plan(
        &facts,
        &mut Situation {
            pods: &pods,
            now: Timestamp::now(),
            held_until: &|group| lock(memory).held_until(group),
            replica_name: &mut |group| names::check_label(&format!("{group}-{}", execute::suffix())),
        },
    );
    let mut outcome = execute::Outcome::default();
    let needed = !plan.create.is_empty() || pods.iter().any(|pod| pod.lacks_config());
    if needed || (!pods.is_empty() && lock(memory).secret_is_due(Instant::now())) {
        match children::ensure_secret(&ctx.client, &facts).await {
            Ok(()) => lock(memory).secret_seen(Instant::now()),
            Err(failure) => outcome.failures.push(failure),
        }
    }
    outcome.absorb(execute::execute(ctx, &facts, key, &plan, memory).await);
    let next = report.write(&plan, objects, outcome).await?;
    Ok(Action::requeue(next.unwrap_or_else(|| {
        RESYNC.mul_f64(rand::rng().random_range(0.9..1.1))
    })))
}

/// Why the cluster is not acted on: the reason of the event, and what to do.
fn rejection(cluster: &RayCluster) -> Option<(&'static str, String)> {
    if let Some(message) = without_image(cluster) {
        return Some(("ImageMissing", message));
    }
    let invalid = validate::cluster(cluster);
    let reason = invalid.first()?.class.reason();
    Some((reason, listed(&invalid)))
}

/// A cluster that names templates and was not expanded. While it is suspended it waits for its image.
fn without_image(cluster: &RayCluster) -> Option<String> {
    let spec = &cluster.spec;
    if spec.suspend == Some(true) {
        return None;
    }
    let head = [(
        "spec.headGroupSpec".to_owned(),
        spec.head_group_spec.template.as_ref(),
    )];
    let workers = spec.worker_group_specs.iter().enumerate();
    let workers =
        workers.map(|(index, group)| (format!("spec.workerGroupSpecs[{index}]"), group.template.as_ref()));
    let (field, _) = head.into_iter().chain(workers).find(|(_, template)| {
        let image = ray_container(*template).and_then(|ray| ray.image.as_deref());
        image.is_none_or(str::is_empty)
    })?;
    Some(format!(
        "{field} has no image in its first container. A template that is named is filled in by the webhook when \
         the cluster is created: install it (`kubectl ray doctor` checks it) and run `kubectl ray refresh cluster`, or apply what `kubectl ray render` \
         prints, or name an image"
    ))
}
