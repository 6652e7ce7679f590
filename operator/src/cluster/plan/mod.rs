//! Pure: (cluster, observed pods, now) → which pods to create and to delete (raycluster-behaviour 4.3 – 4.8).
//!
//! Terminating pods never count as running: what someone else deletes is replaced at once. The head alone is
//! replaced only when its predecessor is gone, since two heads of one cluster would fight.

mod group;
mod head;
mod multi_host;
pub mod replicas;
mod upgrade;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use ray_api::conditions::{find, is_true};
use ray_api::meta::condition;
use ray_api::ray::v1::RayCluster;

use super::build::{Facts, WorkerIdentity};
use super::pods::{NodeType, PodView};

pub use head::OVERDUE;

/// A pod to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Create {
    /// The head.
    Head,
    /// A worker of the group at that index of the spec.
    Worker {
        /// Index of the group in the spec.
        group: usize,
        /// Which worker.
        identity: WorkerIdentity,
    },
}

/// Pods of a group that one pass creates at most; the next pass goes on. A number that nobody can mean, and the
/// CRD allows 2³¹ − 1, must not fill our memory before the first request.
const PART: usize = 2000;

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It has ended, or its Ray container has for good.
    Ended,
    /// The autoscaler named it.
    Named,
    /// Its group has more than it wants.
    Surplus,
    /// Its group is not in the spec any more.
    Orphan,
    /// Its group is suspended.
    GroupSuspended,
    /// Its multi-host replica lost a host.
    BrokenReplica,
    /// The cluster is suspended.
    Suspended,
    /// The spec changed under `upgradeStrategy: Recreate`.
    Recreate,
    /// It should be gone, but its node does not answer.
    Stuck,
}

/// A pod to delete.
#[derive(Clone, Debug)]
pub struct Delete {
    /// The pod.
    pub pod: Arc<PodView>,
    /// The reason.
    pub why: Why,
}

/// What to do about a cluster's pods.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Pods to delete, workers before the head.
    pub delete: Vec<Delete>,
    /// Pods to create, the head first.
    pub create: Vec<Create>,
    /// A head whose hash and version are written anew.
    pub restamp: Option<Arc<PodView>>,
    /// Something that a person has to solve: reason and message.
    pub problem: Option<(&'static str, String)>,
    /// Groups that lack pods and create none for a while; the head's is `None`.
    pub held: Vec<Option<String>>,
    /// When to look again, if nothing happens until then.
    pub look_again: Option<Duration>,
}

/// What the plan must know besides the spec.
pub struct Situation<'a> {
    /// The cluster's pods.
    pub pods: &'a [Arc<PodView>],
    /// The time.
    pub now: Timestamp,
    /// Until when a group creates nothing, since its pods ended or could not be created; the head's is `None`.
    pub held_until: &'a dyn Fn(Option<&str>) -> Option<Timestamp>,
    /// Makes a name for a new multi-host replica of a group.
    pub replica_name: &'a mut dyn FnMut(&str) -> String,
}

/// What the conditions and the spec say about suspension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspension {
    /// Runs.
    None,
    /// Asked for, and not yet said in the status: nothing is deleted before.
    Requested,
    /// All pods go, whatever the spec says by now.
    Suspending,
    /// Holds.
    Suspended,
}

/// Where the cluster stands between running and suspended.
#[must_use]
pub fn suspension(cluster: &RayCluster) -> Suspension {
    let conditions = cluster
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let wanted = cluster.spec.suspend == Some(true);
    if is_true(conditions, condition::SUSPENDING) {
        Suspension::Suspending
    } else if !wanted {
        Suspension::None
    } else if is_true(conditions, condition::SUSPENDED) {
        Suspension::Suspended
    } else {
        Suspension::Requested
    }
}

/// What to do about the pods.
pub fn plan(facts: &Facts<'_>, situation: &mut Situation<'_>) -> Plan {
    match suspension(facts.cluster) {
        Suspension::Suspending => return delete_all(situation.pods, Why::Suspended),
        Suspension::Requested | Suspension::Suspended => return Plan::default(),
        Suspension::None => {}
    }
    let mut plan = Plan::default();
    match upgrade::decide(facts, situation.pods) {
        upgrade::Upgrade::Recreate => return delete_all(situation.pods, Why::Recreate),
        upgrade::Upgrade::Restamp(head) => plan.restamp = Some(head),
        upgrade::Upgrade::None => {}
    }
    if !head::plan(facts, situation, &mut plan) {
        return plan;
    }
    for (index, spec) in facts.spec.worker_group_specs.iter().enumerate() {
        group::plan(facts, index, spec, situation, &mut plan);
    }
    delete_orphans(facts, situation.pods, &mut plan);
    plan
}

/// Workers of groups that are not in the spec any more. A worker without a group label is nobody's to judge.
fn delete_orphans(facts: &Facts<'_>, pods: &[Arc<PodView>], plan: &mut Plan) {
    let groups = &facts.spec.worker_group_specs;
    let is_orphan = |pod: &&Arc<PodView>| {
        pod.node_type == NodeType::Worker
            && pod
                .group
                .as_ref()
                .is_some_and(|name| groups.iter().all(|group| group.group_name != *name))
    };
    let orphans: Vec<_> = pods.iter().filter(is_orphan).cloned().collect();
    plan.delete_each(&orphans, Why::Orphan);
}

/// Every pod goes: the head last, since its hash is what a half-done recreation is told by.
pub(super) fn delete_all(pods: &[Arc<PodView>], why: Why) -> Plan {
    let mut plan = Plan::default();
    let (heads, workers): (Vec<_>, Vec<_>) = pods
        .iter()
        .filter(|pod| pod.node_type != NodeType::RedisCleanup)
        .cloned()
        .partition(|pod| pod.node_type == NodeType::Head);
    plan.delete_each(&workers, why);
    let is_unseen = |pod: &Arc<PodView>| !pod.is_terminating() && pod.uid.is_empty();
    if why != Why::Recreate || !workers.iter().any(is_unseen) {
        plan.delete_each(&heads, why);
    }
    plan
}

/// Whether the condition of that type is True in the cluster's status.
#[must_use]
pub fn has_condition(cluster: &RayCluster, type_: &str) -> bool {
    let conditions = cluster
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    find(conditions.unwrap_or_default(), type_).is_some_and(|condition| condition.status == "True")
}

impl Plan {
    /// Deletes those that are not terminating already. One that the watch has not shown yet has no uid to be
    /// told by; it waits until then.
    fn delete_each(&mut self, pods: &[Arc<PodView>], why: Why) {
        self.delete.extend(
            pods.iter()
                .filter(|pod| !pod.is_terminating() && !pod.uid.is_empty())
                .map(|pod| Delete {
                    pod: Arc::clone(pod),
                    why,
                }),
        );
    }

    /// As many of the missing as one pass may create; the rest follows at once.
    fn part(&mut self, missing: usize) -> usize {
        if missing > PART {
            self.look_again_in(Duration::ZERO);
        }
        missing.min(PART)
    }

    /// Looks again after that long, or sooner.
    fn look_again_in(&mut self, wait: Duration) {
        self.look_again = Some(self.look_again.map_or(wait, |sooner| sooner.min(wait)));
    }

    /// Whether creation is held back; then the plan looks again when that ends.
    fn is_held(&mut self, group: Option<&str>, situation: &Situation<'_>) -> bool {
        let Some(until) = (situation.held_until)(group) else {
            return false;
        };
        let left = until.duration_since(situation.now);
        if left.is_positive() {
            self.look_again_in(left.unsigned_abs());
            self.held.push(group.map(str::to_owned));
            return true;
        }
        false
    }
}
