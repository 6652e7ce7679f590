//! A worker group (raycluster-behaviour 4.4).

use std::collections::BTreeSet;
use std::sync::Arc;

use ray_api::ray::v1::WorkerGroupSpec;

use super::{Create, Plan, Situation, Why, multi_host, replicas};
use crate::cluster::build::{Facts, WorkerIdentity, hosts};
use crate::cluster::pods::{NodeType, PodView};

/// Plans one group; groups do not wait for each other.
pub(super) fn plan(
    facts: &Facts<'_>,
    index: usize,
    spec: &WorkerGroupSpec,
    situation: &mut Situation<'_>,
    plan: &mut Plan,
) {
    let pods: Vec<_> = situation
        .pods
        .iter()
        .filter(|pod| pod.node_type == NodeType::Worker && !pod.is_terminating())
        .filter(|pod| pod.group.as_ref() == Some(&spec.group_name))
        .cloned()
        .collect();
    if spec.suspend == Some(true) {
        plan.delete_each(&pods, Why::GroupSuspended);
    } else if hosts(spec) > 1 {
        multi_host::plan(facts, index, spec, pods, situation, plan);
    } else {
        single_host(facts, index, spec, pods, situation, plan);
    }
}

/// Whether surplus workers go without being named: with autoscaling on, only the autoscaler knows who is idle.
pub(super) fn may_shrink(facts: &Facts<'_>) -> bool {
    !facts.autoscaling() || facts.config.args.random_pod_delete
}

/// Names that the autoscaler wants gone.
pub(super) fn named(spec: &WorkerGroupSpec) -> BTreeSet<&str> {
    let strategy = spec.scale_strategy.as_ref();
    strategy
        .iter()
        .flat_map(|strategy| strategy.workers_to_delete.iter().map(String::as_str))
        .collect()
}

fn single_host(
    facts: &Facts<'_>,
    index: usize,
    spec: &WorkerGroupSpec,
    pods: Vec<Arc<PodView>>,
    situation: &Situation<'_>,
    plan: &mut Plan,
) {
    let named = named(spec);
    let (ended, pods): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| pod.has_ended());
    let (unwanted, mut pods): (Vec<_>, Vec<_>) = pods
        .into_iter()
        .partition(|pod| named.contains(pod.name.as_str()));
    plan.delete_each(&ended, Why::Ended);
    plan.delete_each(&unwanted, Why::Named);

    let wanted = usize::try_from(replicas::wanted(spec).pods).unwrap_or(usize::MAX);
    if pods.len() > wanted && may_shrink(facts) {
        pods.sort_by_key(|pod| worth(pod));
        let surplus = pods.len() - wanted;
        plan.delete_each(pods.get(..surplus).unwrap_or_default(), Why::Surplus);
        return;
    }
    let missing = wanted.saturating_sub(pods.len());
    if missing == 0 || plan.is_held(Some(&spec.group_name), situation) {
        return;
    }
    let part = plan.part(missing);
    let taken: BTreeSet<u32> = pods.iter().filter_map(|pod| pod.replica).collect();
    let free = (0..).filter(|replica| !taken.contains(replica)).take(part);
    plan.create.extend(free.map(|replica| Create::Worker {
        group: index,
        identity: WorkerIdentity {
            replica,
            replica_name: None,
            host: 0,
        },
    }));
}

/// What is lost by deleting a pod, least first: one that is not ready, then the youngest.
fn worth(
    pod: &PodView,
) -> (
    bool,
    bool,
    std::cmp::Reverse<Option<k8s_openapi::jiff::Timestamp>>,
    std::cmp::Reverse<Option<u32>>,
) {
    (
        pod.is_ready(),
        pod.phase == crate::cluster::pods::Phase::Running,
        std::cmp::Reverse(pod.created),
        std::cmp::Reverse(pod.replica),
    )
}
