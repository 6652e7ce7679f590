//! Carries out a plan: deletions and creations, bounded, and every group on its own.

use std::sync::Mutex;

use futures::StreamExt;
use futures::future::join_all;
use futures::stream;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use rand::Rng;
use ray_api::meta::{annotation, operator_version};

use super::build::{Facts, head_pod, spec_hash, worker_pod};
use super::context::Context;
use super::error::{Failure, RequestError};
use super::memory::{Memory, Setback};
use super::plan::{Create, Delete, Plan, Why};
use super::pods::{ClusterKey, NodeType, PodView};
use super::request;
use crate::shared::lock;

/// Kubernetes' alphabet of generated names: no vowels, so no words.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// What became of a plan.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Names of created heads.
    pub created_heads: Vec<String>,
    /// Names of created workers.
    pub created_workers: Vec<String>,
    /// Names of deleted pods, with the part they had and why.
    pub deleted: Vec<(String, NodeType, Why)>,
    /// What was not done.
    pub failures: Vec<Failure>,
}

impl Outcome {
    /// Adds another's.
    pub(super) fn absorb(&mut self, other: Self) {
        self.created_heads.extend(other.created_heads);
        self.created_workers.extend(other.created_workers);
        self.deleted.extend(other.deleted);
        self.failures.extend(other.failures);
    }
}

/// Five characters that make a name of its own.
#[must_use]
pub(super) fn suffix() -> String {
    let mut random = rand::rng();
    (0..5)
        .filter_map(|_| ALPHABET.get(random.random_range(0..ALPHABET.len())))
        .map(|byte| char::from(*byte))
        .collect()
}

/// Carries out the plan.
pub(super) async fn execute(
    ctx: &Context,
    facts: &Facts<'_>,
    key: &ClusterKey,
    plan: &Plan,
    memory: &Mutex<Memory>,
) -> Outcome {
    let executor = Executor {
        ctx,
        facts,
        key,
        memory,
    };
    let mut outcome = Outcome::default();
    if let Some(head) = &plan.restamp {
        executor.restamp(head, &mut outcome).await;
    }
    executor.delete(&plan.delete, &mut outcome).await;
    // The head by itself, and each group by itself: none waits for another's quota.
    let mut batches: Vec<Vec<&Create>> = Vec::new();
    for create in &plan.create {
        match batches.last_mut() {
            Some(batch) if batch.first().is_some_and(|first| same_group(first, create)) => batch.push(create),
            _ => batches.push(vec![create]),
        }
    }
    let creations: Vec<_> = batches.iter().map(|batch| executor.create(batch)).collect();
    let created = join_all(creations).await;
    for (batch, (names, failure)) in batches.iter().zip(created) {
        match batch.first() {
            Some(Create::Head) => outcome.created_heads.extend(names),
            _ => outcome.created_workers.extend(names),
        }
        outcome.failures.extend(failure);
    }
    outcome
}

fn same_group(a: &Create, b: &Create) -> bool {
    match (a, b) {
        (Create::Worker { group: a, .. }, Create::Worker { group: b, .. }) => a == b,
        (a, b) => a == b,
    }
}

struct Executor<'a> {
    ctx: &'a Context,
    facts: &'a Facts<'a>,
    key: &'a ClusterKey,
    memory: &'a Mutex<Memory>,
}

impl Executor<'_> {
    /// Requests of a group that go on at the same time: more would only wait for a slot, with other clusters behind.
    fn most(&self) -> usize {
        self.ctx.config.pod_concurrency()
    }

    /// Creates the pods of one group, in batches that double as long as all goes well: a quota that lets none
    /// through is told by one request.
    async fn create(&self, creates: &[&Create]) -> (Vec<String>, Option<Failure>) {
        let mut names = Vec::new();
        let mut rest = creates;
        let mut size = 1;
        let group = creates.first().and_then(|create| self.group_name(create));
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(size.min(rest.len()));
            let requests: Vec<_> = batch.iter().map(|create| self.create_one(create)).collect();
            let results: Vec<_> = stream::iter(requests)
                .buffer_unordered(size.min(self.most()))
                .collect()
                .await;
            let mut failure = None;
            for result in results {
                match result {
                    Ok(name) => names.push(name),
                    Err(error) => failure = failure.or(Some(error)),
                }
            }
            if let Some((failure, setback)) = failure {
                let mut memory = lock(self.memory);
                memory.set_back(group, setback, Timestamp::now());
                memory.refused(group, &failure);
                return (names, Some(failure));
            }
            rest = later;
            size *= 2;
        }
        lock(self.memory).accepted(group);
        (names, None)
    }

    async fn create_one(&self, create: &Create) -> Result<String, (Failure, Setback)> {
        let (mut pod, node_type, reason) = match create {
            Create::Head => (head_pod(self.facts), NodeType::Head, "FailedCreateHeadPod"),
            Create::Worker { group, identity } => {
                let Some(spec) = self.facts.spec.worker_group_specs.get(*group) else {
                    return Ok(String::new());
                };
                (
                    worker_pod(self.facts, spec, identity),
                    NodeType::Worker,
                    "FailedCreateWorkerPod",
                )
            }
        };
        // The API server would draw the name itself; drawn here, a repeated request is not a second pod, and a
        // pod whose answer was lost is known.
        if pod.metadata.name.is_none() {
            let prefix = pod.metadata.generate_name.as_deref().unwrap_or_default();
            pod.metadata.name = Some(format!("{prefix}{}", suffix()));
        }
        let view = PodView::expected(&pod, node_type, Timestamp::now());
        let name = view.name.clone();
        let Ok(_slot) = self.ctx.slots.acquire().await else {
            return Ok(String::new());
        };
        self.ctx.pods.expect_created(self.key, view, Timestamp::now());
        match request::create_pod(&self.ctx.client, self.facts.namespace, &pod).await {
            Ok(()) => {
                self.ctx.metrics.created.inc();
                Ok(name)
            }
            Err(error) => Err(self.refused(&pod, &name, reason, &error)),
        }
    }

    fn refused(
        &self,
        pod: &Pod,
        name: &str,
        reason: &'static str,
        error: &RequestError,
    ) -> (Failure, Setback) {
        if error.is_refusal() {
            self.ctx.pods.unexpect_created(self.key, name);
        }
        let what = if pod.metadata.generate_name.is_some() && !error.is_already_exists() {
            pod.metadata.generate_name.as_deref().unwrap_or_default()
        } else {
            name
        };
        let part = if reason == "FailedCreateHeadPod" {
            "head"
        } else {
            "worker"
        };
        let about = format!("Failed to create {part} Pod {}/{what}", self.facts.namespace);
        let mut failure = Failure::new(reason, "Create", &about, error);
        // The API server's sentence has the name that was drawn: without it, the next attempt's is the same.
        failure.message = failure.message.replace(name, what);
        (failure, error.setback())
    }

    /// Deletes pods, workers before heads.
    async fn delete(&self, deletes: &[Delete], outcome: &mut Outcome) {
        let (heads, workers): (Vec<_>, Vec<_>) = deletes
            .iter()
            .partition(|delete| delete.pod.node_type == NodeType::Head);
        for mut part in [workers, heads] {
            // The head's hash tells of workers of the old spec: it stays until they are gone.
            part.retain(|delete| {
                delete.why != Why::Recreate
                    || delete.pod.node_type != NodeType::Head
                    || outcome.failures.is_empty()
            });
            let requests: Vec<_> = part.into_iter().map(|delete| self.delete_one(delete)).collect();
            let results: Vec<_> = stream::iter(requests)
                .buffer_unordered(self.most())
                .collect()
                .await;
            for result in results {
                match result {
                    Ok(deleted) => outcome.deleted.push(deleted),
                    Err(failure) => outcome.failures.push(failure),
                }
            }
        }
    }

    async fn delete_one(&self, delete: &Delete) -> Result<(String, NodeType, Why), Failure> {
        let pod = &delete.pod;
        let done = (pod.name.clone(), pod.node_type, delete.why);
        if delete.why == Why::Ended {
            let group = pod.group.as_deref().filter(|_| pod.node_type == NodeType::Worker);
            lock(self.memory).set_back(group, Setback::Ended, Timestamp::now());
        }
        let Ok(_slot) = self.ctx.slots.acquire().await else {
            return Ok(done);
        };
        let (client, by_force) = (&self.ctx.client, delete.why == Why::Stuck);
        match request::delete_pod(client, self.facts.namespace, &pod.name, &pod.uid, by_force).await {
            Ok(()) => {
                self.ctx.pods.expect_deleted(self.key, &pod.uid, Timestamp::now());
                self.ctx.metrics.deleted.inc();
                Ok(done)
            }
            // Gone already, or another pod has its name by now: the watch will tell.
            Err(error) if error.is_not_found() || error.is_conflict() => {
                self.ctx.pods.expect_deleted(self.key, &pod.uid, Timestamp::now());
                Ok(done)
            }
            Err(error) => {
                let (reason, part) = match pod.node_type {
                    NodeType::Head => ("FailedDeleteHeadPod", "head"),
                    _ => ("FailedDeleteWorkerPod", "worker"),
                };
                let what = format!(
                    "Failed to delete {part} Pod {}/{}",
                    self.facts.namespace, pod.name
                );
                Err(Failure::new(reason, "Delete", &what, &error))
            }
        }
    }

    /// Gives a head that another operator made our hash and version.
    async fn restamp(&self, head: &PodView, outcome: &mut Outcome) {
        let annotations = serde_json::json!({
            annotation::RECREATE_HASH: spec_hash(self.facts.spec),
            annotation::OPERATOR_VERSION: operator_version(),
        });
        let (client, namespace) = (&self.ctx.client, self.facts.namespace);
        if let Err(error) = request::annotate_pod(client, namespace, &head.name, annotations).await {
            let what = format!("Failed to take over head Pod {namespace}/{}", head.name);
            outcome
                .failures
                .push(Failure::new("FailedUpdateHeadPod", "Update", &what, &error));
        }
    }

    fn group_name(&self, create: &Create) -> Option<&str> {
        match create {
            Create::Head => None,
            Create::Worker { group, .. } => {
                let spec = self.facts.spec.worker_group_specs.get(*group)?;
                Some(spec.group_name.as_str())
            }
        }
    }
}
