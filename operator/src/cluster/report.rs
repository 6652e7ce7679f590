//! The end of a pass: events, the status, and when to look again.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use kube::runtime::controller::Action;
use ray_api::ray::v1::RayClusterStatus;
use ray_api::validate::{self, Class, Invalid};

use super::build::Facts;
use super::children;
use super::context::Context;
use super::error::{Error, Failure};
use super::events::{Kind, listing};
use super::execute::Outcome;
use super::memory::Memory;
use super::plan::{Plan, Suspension, Why, suspension};
use super::pods::{ClusterKey, NodeType};
use super::request::apply_status;
use super::status::{self, Observation};
use crate::shared::lock;

/// Reason of the event about a cluster that is not acted on.
const NOT_ACCEPTED: &str = "NotAccepted";

/// Tells a pass's end.
pub(super) struct Report<'a> {
    pub(super) ctx: &'a Context,
    pub(super) facts: &'a Facts<'a>,
    pub(super) key: &'a ClusterKey,
    pub(super) memory: &'a Mutex<Memory>,
}

impl Report<'_> {
    /// A cluster that is not acted on: its pods stay as they are, and its status says why.
    pub(super) async fn reject(&self, reason: &'static str, message: &str) -> Result<Action, Error> {
        self.warn(reason, "Validate", message);
        let now = Time(Timestamp::now());
        let observation = Observation {
            pods: &[],
            head_service: None,
            replica_failure: None,
            object_failure: None,
            unsupported: None,
            now: &now,
        };
        let old = self.old();
        let new = RayClusterStatus {
            conditions: Some(status::rejected(self.facts, &observation, reason, message)),
            observed_generation: self.facts.cluster.metadata.generation,
            ..old.clone()
        };
        if status::differs(&old, &new) {
            self.write_status(&old, new).await?;
        }
        Ok(Action::await_change())
    }

    /// What runs, though not as it is written: an event, and nothing else comes of it.
    pub(super) fn warn_of(&self, warnings: &[Invalid]) {
        let reason = Class::Spec.reason();
        if warnings.is_empty() {
            lock(self.memory).forget(reason);
        } else {
            self.warn(reason, "Validate", &listed(warnings));
        }
    }

    /// Events, then the status where it changed; when to look again, if the plan or the status says so.
    pub(super) async fn write(
        &self,
        plan: &Plan,
        objects: children::Outcome,
        outcome: Outcome,
    ) -> Result<Option<Duration>, Error> {
        self.publish(plan, &objects, &outcome);
        let replica_failure = self.replica_failure(plan, &outcome);
        let now = Time(Timestamp::now());
        let pods = self.ctx.pods.observe(self.key, self.facts.uid, now.0);
        let observation = Observation {
            pods: &pods,
            head_service: objects.head_service.as_ref(),
            replica_failure,
            object_failure: objects.failures.first().map(failure),
            unsupported: self.unsupported(),
            now: &now,
        };
        let old = self.old();
        let new = status::compute(self.facts, &observation);
        let mut next = plan.look_again;
        let mut look_again_in = |wait: Duration| next = Some(next.map_or(wait, |next| next.min(wait)));
        if status::differs(&old, &new) {
            let urgent = status::is_urgent(&old, &new);
            let wait = lock(self.memory).status_wait(urgent, Instant::now());
            if wait.is_zero() {
                self.write_status(&old, new).await?;
                // A step towards suspension, or back, is followed by the next.
                if suspension(self.facts.cluster) != Suspension::None || self.facts.spec.suspend == Some(true)
                {
                    look_again_in(Duration::ZERO);
                }
            } else {
                look_again_in(wait);
            }
        } else {
            lock(self.memory).status_is_clean();
        }
        let failed = outcome.failures.first().or(objects.failures.first());
        match failed {
            // Groups that were held look again by themselves; everything else backs off.
            Some(failure) if plan.create.is_empty() || !objects.failures.is_empty() => {
                Err(Error::Incomplete(failure.message.clone()))
            }
            Some(_) => {
                for until in self.holds() {
                    let left = until.duration_since(now.0);
                    look_again_in(left.unsigned_abs().max(Duration::from_millis(100)));
                }
                Ok(next)
            }
            None => Ok(next),
        }
    }

    /// What went wrong now, or did before and was not tried again since, or needs a person.
    fn replica_failure(&self, plan: &Plan, outcome: &Outcome) -> Option<(&'static str, String)> {
        let now = outcome.failures.first().map(failure);
        now.or_else(|| lock(self.memory).why_held(&plan.held).map(failure))
            .or_else(|| plan.problem.clone())
    }

    /// When the groups that are held may go on.
    fn holds(&self) -> Vec<Timestamp> {
        let memory = lock(self.memory);
        let groups = self.facts.spec.worker_group_specs.iter();
        groups
            .map(|group| Some(group.group_name.as_str()))
            .chain([None])
            .filter_map(|group| memory.held_until(group))
            .filter(|until| *until > Timestamp::now())
            .collect()
    }

    fn old(&self) -> RayClusterStatus {
        self.facts.cluster.status.clone().unwrap_or_default()
    }

    fn unsupported(&self) -> Option<String> {
        let unsupported = validate::unsupported(self.facts.cluster);
        let texts: Vec<_> = unsupported
            .iter()
            .map(|unsupported| format!("{}: {}", unsupported.field, unsupported.message))
            .collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    async fn write_status(&self, old: &RayClusterStatus, new: RayClusterStatus) -> Result<(), Error> {
        let patch = status::patch(self.facts.cluster, old, &new);
        let answer = apply_status(&self.ctx.client, &self.key.namespace, &self.key.name, patch).await;
        match answer {
            Ok(written) => {
                self.ctx.metrics.status_writes.inc();
                let version = written.metadata.resource_version;
                // The answer, not the wish: it has what other writers said too.
                let status = written.status.unwrap_or(new);
                lock(self.memory).status_written(status, version.as_deref(), Instant::now());
                Ok(())
            }
            // Deleted meanwhile.
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(Error::Status(error)),
        }
    }

    /// One event a reason, with the names in it.
    fn publish(&self, plan: &Plan, objects: &children::Outcome, outcome: &Outcome) {
        let namespace = self.facts.namespace;
        for (reason, name) in &objects.created {
            self.say(
                Kind::normal(reason, "Create"),
                &format!("Created {namespace}/{name}"),
            );
        }
        let created = [
            ("CreatedHeadPod", "head", &outcome.created_heads),
            ("CreatedWorkerPod", "worker", &outcome.created_workers),
        ];
        for (reason, part, names) in created {
            if !names.is_empty() {
                let note = format!(
                    "Created {} {part} Pod(s) in {namespace}: {}",
                    names.len(),
                    listing(names)
                );
                self.say(Kind::normal(reason, "Create"), &note);
            }
        }
        self.publish_deleted(outcome);
        for failure in outcome.failures.iter().chain(&objects.failures) {
            self.warn(failure.reason, failure.action, &failure.message);
        }
        if outcome.failures.is_empty() && plan.held.is_empty() {
            let mut memory = lock(self.memory);
            for reason in ["FailedCreateHeadPod", "FailedCreateWorkerPod"] {
                memory.forget(reason);
            }
        }
    }

    fn publish_deleted(&self, outcome: &Outcome) {
        let mut reasons: Vec<(NodeType, Why)> = Vec::new();
        for (_, node_type, why) in &outcome.deleted {
            if !reasons.contains(&(*node_type, *why)) {
                reasons.push((*node_type, *why));
            }
        }
        for (node_type, why) in reasons {
            let names: Vec<_> = outcome
                .deleted
                .iter()
                .filter(|deleted| deleted.1 == node_type && deleted.2 == why)
                .map(|deleted| deleted.0.clone())
                .collect();
            let reason = match (why, node_type) {
                (Why::Suspended | Why::Recreate, _) => "DeletedPod",
                (_, NodeType::Head) => "DeletedHeadPod",
                _ => "DeletedWorkerPod",
            };
            let note = format!(
                "Deleted {} Pod(s), {}: {}",
                names.len(),
                because(why),
                listing(&names)
            );
            self.say(Kind::normal(reason, "Delete"), &note);
        }
    }

    fn say(&self, kind: Kind, note: &str) {
        let reference = self.facts.cluster.object_ref(&());
        self.ctx.events.publish(&reference, kind, note);
    }

    /// A warning, unless it is the same as the last of its reason.
    fn warn(&self, reason: &'static str, action: &'static str, message: &str) {
        let reference = self.facts.cluster.object_ref(&());
        warn(self.ctx, self.memory, &reference, (reason, action), message);
    }
}

/// A warning event about a cluster, unless it is the same as the last of its reason.
pub(super) fn warn(
    ctx: &Context,
    memory: &Mutex<Memory>,
    reference: &ObjectReference,
    (reason, action): (&'static str, &'static str),
    message: &str,
) {
    if lock(memory).is_news(reason, message) {
        let (namespace, name) = (&reference.namespace, &reference.name);
        tracing::warn!(namespace, name, reason, message);
        let kind = Kind::warning(event_reason(reason, message), action);
        ctx.events.publish(reference, kind, message);
    }
}

/// KubeRay's event reasons differ from those of its conditions.
fn event_reason(reason: &'static str, message: &str) -> &'static str {
    match reason {
        "FailedCreateHeadPod" if message.contains("error looking up service account") => {
            "AutoscalerServiceAccountNotFound"
        }
        "FailedCreateHeadPod" => "FailedToCreateHeadPod",
        "FailedCreateWorkerPod" => "FailedToCreateWorkerPod",
        "FailedDeleteHeadPod" => "FailedToDeleteHeadPod",
        "FailedDeleteWorkerPod" => "FailedToDeleteWorkerPod",
        "ImageMissing" => NOT_ACCEPTED,
        other => other,
    }
}

/// Fields and what is wrong with them, in one line.
pub(super) fn listed(invalid: &[Invalid]) -> String {
    let texts: Vec<_> = invalid.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

fn failure(failure: &Failure) -> (&'static str, String) {
    (failure.reason, failure.message.clone())
}

fn because(why: Why) -> &'static str {
    match why {
        Why::Ended => "which had ended",
        Why::Named => "which the autoscaler named",
        Why::Surplus => "of which the group had too many",
        Why::Orphan => "whose group is not in the spec any more",
        Why::GroupSuspended => "whose group is suspended",
        Why::BrokenReplica => "whose replica lost a host",
        Why::Suspended => "for the cluster is suspended or deleted",
        Why::Recreate => "for the spec changed",
        Why::Stuck => "whose node does not answer",
    }
}
