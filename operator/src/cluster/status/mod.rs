//! Pure: what was observed and done → the status (raycluster-behaviour 1.5 – 1.7).

mod conditions;
mod patch;
mod resources;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use ray_api::ray::v1::{ClusterState, HeadInfo, RayClusterStatus};

use super::build::Facts;
use super::plan::replicas;
use super::pods::{NodeType, PodView};

pub use conditions::rejected;
pub use patch::{differs, is_urgent, patch};

/// What the status is computed from.
pub struct Observation<'a> {
    /// The cluster's pods, terminating ones too.
    pub pods: &'a [Arc<PodView>],
    /// The head Service.
    pub head_service: Option<&'a Service>,
    /// Reason and message of a pod that could not be created or deleted.
    pub replica_failure: Option<(&'a str, String)>,
    /// Reason and message of another object that could not be brought about.
    pub object_failure: Option<(&'a str, String)>,
    /// What the cluster asks for in vain.
    pub unsupported: Option<String>,
    /// The time.
    pub now: &'a Time,
}

/// Pods that count: not terminating.
pub struct Count {
    /// Workers that run.
    pub available: i32,
    /// Workers that run and are ready.
    pub ready: i32,
    /// Whether head and workers are as many as wanted, and all of them run and are ready.
    pub complete: bool,
}

impl Count {
    fn of(facts: &Facts<'_>, pods: &[Arc<PodView>]) -> Self {
        let live = || pods.iter().filter(|pod| !pod.is_terminating());
        let workers = || live().filter(|pod| pod.node_type == NodeType::Worker);
        let nodes = || live().filter(|pod| pod.node_type != NodeType::RedisCleanup);
        let wanted: i64 = groups(facts, |group| replicas::wanted(group).pods);
        Self {
            available: saturate(
                workers()
                    .filter(|pod| pod.phase == super::pods::Phase::Running)
                    .count(),
            ),
            ready: saturate(workers().filter(|pod| pod.is_ready()).count()),
            complete: i64::try_from(nodes().count()).is_ok_and(|count| count == wanted + 1)
                && nodes().all(|pod| pod.is_running_and_ready()),
        }
    }
}

/// The new status, on top of the old one.
#[must_use]
pub fn compute(facts: &Facts<'_>, observation: &Observation<'_>) -> RayClusterStatus {
    let old = facts.cluster.status.clone().unwrap_or_default();
    let count = Count::of(facts, observation.pods);
    let wanted = resources::wanted(facts);
    let mut status = RayClusterStatus {
        desired_worker_replicas: non_zero(groups(facts, |group| replicas::wanted(group).pods)),
        min_worker_replicas: non_zero(groups(facts, |group| replicas::fewest(group).pods)),
        max_worker_replicas: non_zero(groups(facts, |group| replicas::most(group).pods)),
        ready_worker_replicas: non_zero(count.ready.into()),
        available_worker_replicas: non_zero(count.available.into()),
        desired_cpu: Some(wanted.cpu),
        desired_memory: Some(wanted.memory),
        desired_gpu: Some(wanted.gpu),
        desired_tpu: Some(wanted.tpu),
        head: Some(head_info(facts, observation)).filter(|head| *head != HeadInfo::default()),
        endpoints: endpoints(observation.head_service).or_else(|| old.endpoints.clone()),
        observed_generation: facts.cluster.metadata.generation,
        last_update_time: Some(observation.now.clone()),
        state: old.state,
        reason: None,
        state_transition_times: old.state_transition_times.clone(),
        conditions: Some(conditions::compute(facts, observation, &count)),
    };
    enter(
        &mut status,
        state(facts, observation, &count, &old),
        observation.now,
    );
    status
}

/// `ready` is entered with the last pod, and left when a pod is lost that was there: not when more are asked for.
fn state(
    facts: &Facts<'_>,
    observation: &Observation<'_>,
    count: &Count,
    old: &RayClusterStatus,
) -> Option<ClusterState> {
    if facts.spec.suspend == Some(true) {
        let gone = observation.pods.is_empty();
        return if gone {
            Some(ClusterState::Suspended)
        } else {
            old.state
        };
    }
    // Without its Service nobody finds the head; what else could not be brought about is told, and keeps nobody waiting.
    let failed = observation.replica_failure.is_some() || observation.head_service.is_none();
    if count.complete && !failed {
        return Some(ClusterState::Ready);
    }
    let head_is_ready = observation
        .pods
        .iter()
        .any(|pod| pod.node_type == NodeType::Head && !pod.is_terminating() && pod.is_running_and_ready());
    let desired = groups(facts, |group| replicas::wanted(group).pods);
    let before = old.ready_worker_replicas.unwrap_or_default();
    let lost = !head_is_ready || (count.ready < before && i64::from(count.ready) < desired);
    match old.state {
        Some(ClusterState::Ready) if lost => Some(ClusterState::Unset),
        state => state,
    }
}

fn enter(status: &mut RayClusterStatus, state: Option<ClusterState>, now: &Time) {
    let word = |state: Option<ClusterState>| state.map_or("", ClusterState::as_str);
    if word(status.state) != word(state) && !word(state).is_empty() {
        status
            .state_transition_times
            .get_or_insert_default()
            .insert(word(state).to_owned(), now.clone());
    }
    status.state = state;
}

fn head_info(facts: &Facts<'_>, observation: &Observation<'_>) -> HeadInfo {
    let head = live_head(observation.pods);
    let ip = head.and_then(|pod| pod.ip.clone());
    let service_ip = observation
        .head_service
        .and_then(|service| service.spec.as_ref()?.cluster_ip.clone())
        .filter(|ip| !ip.is_empty());
    let headless = service_ip.as_deref() == Some("None");
    HeadInfo {
        pod_name: head.map(|pod| pod.name.clone()),
        pod_ip: ip.clone(),
        service_name: observation.head_service.map(|_| facts.head_service.clone()),
        service_ip: if headless { ip } else { service_ip },
    }
}

/// The head that is not terminating.
fn live_head(pods: &[Arc<PodView>]) -> Option<&Arc<PodView>> {
    pods.iter()
        .find(|pod| pod.node_type == NodeType::Head && !pod.is_terminating())
}

/// Named ports: a node's where there is one, else the target's.
fn endpoints(service: Option<&Service>) -> Option<BTreeMap<String, String>> {
    let ports = service?.spec.as_ref()?.ports.as_ref()?;
    let endpoints: BTreeMap<_, _> = ports
        .iter()
        .filter_map(|port| {
            let name = port.name.clone()?;
            let target = match (port.node_port, &port.target_port) {
                (Some(node_port), _) if node_port != 0 => node_port.to_string(),
                (_, Some(IntOrString::Int(number))) => number.to_string(),
                (_, Some(IntOrString::String(name))) => name.clone(),
                (_, None) => port.port.to_string(),
            };
            Some((name, target))
        })
        .collect();
    (!endpoints.is_empty()).then_some(endpoints)
}

fn groups(facts: &Facts<'_>, pods: impl Fn(&ray_api::ray::v1::WorkerGroupSpec) -> i64) -> i64 {
    facts
        .spec
        .worker_group_specs
        .iter()
        .fold(0, |sum, group| sum.saturating_add(pods(group)))
}

/// KubeRay leaves zeros out.
fn non_zero(count: i64) -> Option<i32> {
    Some(i32::try_from(count).unwrap_or(i32::MAX)).filter(|count| *count != 0)
}

fn saturate(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
