//! The conditions (raycluster-behaviour 1.6), each with the generation it speaks of.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use ray_api::conditions::{Statement, find, is_true, upsert};
use ray_api::meta::condition;

use super::{Count, Observation, live_head};
use crate::cluster::build::Facts;
use crate::cluster::plan::{Suspension, suspension};
use crate::cluster::pods::PodView;

/// Conditions that are not there before they have something to say.
const PASSING: [&str; 4] = [
    condition::REPLICA_FAILURE,
    condition::ACCEPTED,
    condition::OBJECT_FAILURE,
    condition::UNSUPPORTED_FEATURES,
];

/// Ours among the conditions of other writers.
const OURS: [&str; 8] = [
    condition::HEAD_POD_READY,
    condition::PROVISIONED,
    condition::SUSPENDED,
    condition::SUSPENDING,
    condition::REPLICA_FAILURE,
    condition::ACCEPTED,
    condition::OBJECT_FAILURE,
    condition::UNSUPPORTED_FEATURES,
];

/// Whether a condition of that type is ours to write.
pub(super) fn is_ours(type_: &str) -> bool {
    OURS.contains(&type_)
}

/// A builder of our conditions on top of what the status holds.
struct Conditions<'a> {
    list: Vec<Condition>,
    facts: &'a Facts<'a>,
    observation: &'a Observation<'a>,
}

impl Conditions<'_> {
    fn say(&mut self, type_: &str, status: Option<bool>, reason: &str, message: &str) {
        let statement = Statement {
            type_,
            status,
            reason: if reason.is_empty() { "Unknown" } else { reason },
            message,
        };
        let generation = self.facts.cluster.metadata.generation;
        upsert(&mut self.list, &statement, generation, self.observation.now);
    }
}

/// Our conditions, in KubeRay's order.
pub(super) fn compute(facts: &Facts<'_>, observation: &Observation<'_>, count: &Count) -> Vec<Condition> {
    let old = old(facts);
    let mut conditions = Conditions {
        list: old
            .iter()
            .filter(|condition| is_ours(&condition.type_))
            .filter(|condition| !PASSING.contains(&condition.type_.as_str()))
            .cloned()
            .collect(),
        facts,
        observation,
    };
    head_pod_ready(&mut conditions);
    provisioned(&mut conditions, count);
    suspended(&mut conditions);
    let passing = [
        (condition::REPLICA_FAILURE, &observation.replica_failure),
        (condition::OBJECT_FAILURE, &observation.object_failure),
    ];
    for (type_, failure) in passing {
        if let Some((reason, message)) = failure {
            keep_time(&mut conditions, old, type_);
            conditions.say(type_, Some(true), reason, message);
        } else if find(old, type_).is_some() {
            // It stays, as False: where another operator wrote it first, an apply without it leaves half of it behind,
            // and the API server takes no status with half a condition.
            keep_time(&mut conditions, old, type_);
            conditions.say(type_, Some(false), "Recovered", "");
        }
    }
    if let Some(message) = &observation.unsupported {
        keep_time(&mut conditions, old, condition::UNSUPPORTED_FEATURES);
        conditions.say(
            condition::UNSUPPORTED_FEATURES,
            Some(true),
            "NotSupported",
            message,
        );
    }
    conditions.list
}

/// The conditions of a cluster that is not acted on: the old ones and why.
pub fn rejected(
    facts: &Facts<'_>,
    observation: &Observation<'_>,
    reason: &str,
    message: &str,
) -> Vec<Condition> {
    let mut conditions = Conditions {
        list: old(facts)
            .iter()
            .filter(|condition| is_ours(&condition.type_))
            .cloned()
            .collect(),
        facts,
        observation,
    };
    conditions.say(condition::ACCEPTED, Some(false), reason, message);
    conditions.list
}

fn old<'a>(facts: &Facts<'a>) -> &'a [Condition] {
    let status = facts.cluster.status.as_ref();
    status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default()
}

/// Brings back an old condition, so that what is said next keeps its transition time.
fn keep_time(conditions: &mut Conditions<'_>, old: &[Condition], type_: &str) {
    conditions.list.extend(find(old, type_).cloned());
}

fn head_pod_ready(conditions: &mut Conditions<'_>) {
    let type_ = condition::HEAD_POD_READY;
    let Some(head) = live_head(conditions.observation.pods) else {
        conditions.say(type_, Some(false), "HeadPodNotFound", "Head Pod not found");
        return;
    };
    let Some(ready) = &head.ready else {
        conditions.say(type_, Some(false), "Unknown", "");
        return;
    };
    match ready.status.as_str() {
        "True" => conditions.say(type_, Some(true), "HeadPodRunningAndReady", ""),
        status => {
            let status = (status == "False").then_some(false);
            let (reason, message) = why_not_ready(head);
            conditions.say(type_, status, &reason, &message);
        }
    }
}

/// The pod's reason, or that of the container that holds it back.
fn why_not_ready(head: &PodView) -> (String, String) {
    let (reason, message) = head
        .ready
        .as_ref()
        .map(|ready| (ready.reason.clone(), ready.message.clone()))
        .unwrap_or_default();
    match &head.ray.blocked {
        Some((container, why, detail)) if reason == "ContainersNotReady" && !why.is_empty() => {
            (why.clone(), format!("{message}; {container}: {detail}"))
        }
        _ => (reason, message),
    }
}

/// True for good once all pods that are wanted were ready; a suspended cluster starts over.
fn provisioned(conditions: &mut Conditions<'_>, count: &Count) {
    let type_ = condition::PROVISIONED;
    if is_true(&conditions.list, type_) || is_true(&conditions.list, condition::SUSPENDED) {
        return;
    }
    if count.complete {
        let message = "All Ray Pods are ready for the first time";
        conditions.say(type_, Some(true), "AllPodRunningAndReadyFirstTime", message);
    } else {
        let message = "RayCluster Pods are being provisioned for first time";
        conditions.say(type_, Some(false), "RayClusterPodsProvisioning", message);
    }
}

fn suspended(conditions: &mut Conditions<'_>) {
    let (suspended, suspending) = (condition::SUSPENDED, condition::SUSPENDING);
    let gone = conditions.observation.pods.is_empty();
    let (is_suspended, is_suspending) = match suspension(conditions.facts.cluster) {
        Suspension::None => (false, false),
        Suspension::Requested => (false, true),
        Suspension::Suspending => (gone, !gone),
        Suspension::Suspended => (true, false),
    };
    if is_suspended && !is_true(&conditions.list, suspended) {
        conditions.say(
            condition::PROVISIONED,
            Some(false),
            "RayClusterPodsProvisioning",
            "RayCluster has been suspended",
        );
    }
    conditions.say(suspended, Some(is_suspended), suspended, "");
    conditions.say(suspending, Some(is_suspending), suspending, "");
}
