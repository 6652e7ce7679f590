//! Groups whose replicas have several hosts, such as TPU slices: a replica lives and dies as a whole
//! (raycluster-behaviour 4.8).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ray_api::ray::v1::WorkerGroupSpec;

use super::group::{may_shrink, named};
use super::{Create, Plan, Situation, Why, replicas};
use crate::cluster::build::{Facts, WorkerIdentity};
use crate::cluster::pods::PodView;

/// Pods that make one replica.
struct Replica {
    /// Shared name; absent for pods from before such names were given.
    name: Option<String>,
    pods: Vec<Arc<PodView>>,
}

impl Replica {
    fn index(&self) -> Option<u32> {
        self.pods.iter().find_map(|pod| pod.replica)
    }

    fn is_ready(&self) -> bool {
        self.pods.iter().all(|pod| pod.is_ready())
    }

    /// Why the replica has to go.
    fn fault(&self, hosts: usize, named: &BTreeSet<&str>) -> Option<Why> {
        if self.pods.iter().any(|pod| pod.has_ended()) {
            Some(Why::Ended)
        } else if self.pods.iter().any(|pod| named.contains(pod.name.as_str())) {
            Some(Why::Named)
        } else if self.name.is_none() {
            // Adopted as it is: nothing tells which hosts belong together.
            None
        } else if self.pods.len() > hosts
            || (self.pods.len() < hosts && self.pods.iter().any(|pod| pod.is_ready()))
        {
            Some(Why::BrokenReplica)
        } else {
            None
        }
    }
}

/// Plans the group.
pub(super) fn plan(
    facts: &Facts<'_>,
    index: usize,
    spec: &WorkerGroupSpec,
    pods: Vec<Arc<PodView>>,
    situation: &mut Situation<'_>,
    plan: &mut Plan,
) {
    let target = replicas::wanted(spec);
    let hosts = usize::try_from(target.hosts).unwrap_or(1);
    let wanted = usize::try_from(target.replicas).unwrap_or(usize::MAX);
    let named = named(spec);
    let mut kept = Vec::new();
    for replica in by_replica(pods, hosts) {
        match replica.fault(hosts, &named) {
            Some(why) => plan.delete_each(&replica.pods, why),
            None => kept.push(replica),
        }
    }
    if let Some(short) = kept
        .iter()
        .find(|replica| replica.name.is_none() && replica.pods.len() < hosts)
    {
        plan.problem = Some(("AdoptedReplicaIncomplete", adopted(spec, hosts, short)));
    }
    if kept.len() > wanted && may_shrink(facts) {
        kept.sort_by_key(|replica| (replica.is_ready(), std::cmp::Reverse(replica.index())));
        for replica in kept.drain(..kept.len() - wanted) {
            plan.delete_each(&replica.pods, Why::Surplus);
        }
    }
    let incomplete = |replica: &Replica| replica.name.is_some() && replica.pods.len() < hosts;
    if (kept.len() < wanted || kept.iter().any(incomplete))
        && !plan.is_held(Some(&spec.group_name), situation)
    {
        complete(index, &kept, hosts, plan);
        create(index, spec, &kept, (wanted, hosts), situation, plan);
    }
}

/// What a person does about adopted pods that do not make whole replicas.
fn adopted(spec: &WorkerGroupSpec, hosts: usize, short: &Replica) -> String {
    let names: Vec<_> = short.pods.iter().map(|pod| pod.name.as_str()).collect();
    format!(
        "pods of the group {} are from before replicas had names, and do not make whole replicas of {hosts} hosts: \
         {} of them are left over ({}). Nothing tells which hosts belong together: delete the pods of the replica \
         that lost a host, and it is made anew",
        spec.group_name,
        names.len(),
        names.join(", "),
    )
}

/// Adds the hosts that a replica, none of which ran yet, still lacks: a quota may let only some through.
fn complete(index: usize, kept: &[Replica], hosts: usize, plan: &mut Plan) {
    for replica in kept {
        let (Some(name), Some(number)) = (&replica.name, replica.index()) else {
            continue;
        };
        let there: BTreeSet<u32> = replica.pods.iter().filter_map(|pod| pod.host).collect();
        let missing = hosts.saturating_sub(replica.pods.len());
        let free = (0..).filter(|host| !there.contains(host)).take(missing);
        plan.create.extend(free.map(|host| Create::Worker {
            group: index,
            identity: WorkerIdentity {
                replica: number,
                replica_name: Some(name.clone()),
                host,
            },
        }));
    }
}

/// Adds whole replicas, at the smallest free indexes.
fn create(
    index: usize,
    spec: &WorkerGroupSpec,
    kept: &[Replica],
    (wanted, hosts): (usize, usize),
    situation: &mut Situation<'_>,
    plan: &mut Plan,
) {
    let taken: BTreeSet<u32> = kept.iter().filter_map(Replica::index).collect();
    let free = (0..).filter(|replica| !taken.contains(replica));
    // A replica is not begun where it cannot be made whole: validation bounds its hosts.
    let part = plan
        .part(wanted.saturating_sub(kept.len()).saturating_mul(hosts))
        .div_ceil(hosts);
    for replica in free.take(part) {
        let name = (situation.replica_name)(&spec.group_name);
        let hosts = u32::try_from(hosts).unwrap_or(u32::MAX);
        plan.create.extend((0..hosts).map(|host| Create::Worker {
            group: index,
            identity: WorkerIdentity {
                replica,
                replica_name: Some(name.clone()),
                host,
            },
        }));
    }
}

/// Pods by the name of their replica; those without one are taken together in the order of their names.
fn by_replica(pods: Vec<Arc<PodView>>, hosts: usize) -> Vec<Replica> {
    let mut by_name: BTreeMap<Option<String>, Vec<Arc<PodView>>> = BTreeMap::new();
    for pod in pods {
        by_name.entry(pod.replica_name.clone()).or_default().push(pod);
    }
    let nameless = by_name.remove(&None).unwrap_or_default();
    let adopted = nameless.chunks(hosts.max(1)).map(|pods| Replica {
        name: None,
        pods: pods.to_vec(),
    });
    let replicas: Vec<_> = adopted.collect();
    let named = by_name.into_iter().map(|(name, pods)| Replica { name, pods });
    replicas.into_iter().chain(named).collect()
}
