//! What runs, though not as it is written. The CRD refuses most of it; clusters of older CRDs have it.

use super::Invalid;
use super::autoscaling::{never_restarts, version};
use super::group::Group;
use crate::quantity::Amount;
use crate::ray::RayCluster;
use crate::ray::v1::AutoscalerVersion;

/// Everything in a cluster that runs but surprises.
#[must_use]
pub fn warnings(cluster: &RayCluster) -> Vec<Invalid> {
    let mut found = Vec::new();
    for group in std::iter::once(Group::head(cluster)).chain(Group::workers(cluster)) {
        for (name, quantity) in group.resources {
            if let Err(error) = quantity.parse::<Amount>() {
                let message = format!("is left out: {error}");
                found.push(group.invalid("quantity", &format!("resources[{name}]"), message));
            }
        }
    }
    let v1 = cluster.spec.enable_in_tree_autoscaling == Some(true)
        && version(cluster) == Some(AutoscalerVersion::V1);
    for (group, spec) in Group::workers(cluster).zip(&cluster.spec.worker_group_specs) {
        if let Some(replicas) = spec.replicas.filter(|replicas| *replicas < 0) {
            let message = format!("{replicas} counts as minReplicas: write 0 or more");
            found.push(group.invalid("negative", "replicas", message));
        }
        if let Some(hosts) = spec.num_of_hosts.filter(|hosts| *hosts < 0) {
            let message = format!("{hosts} counts as 1: write 1 or more");
            found.push(group.invalid("negative", "numOfHosts", message));
        }
        if let (Some(replicas), Some(max)) = (spec.replicas, spec.max_replicas)
            && replicas > max
        {
            let message = format!("{replicas} counts as maxReplicas, {max}: lower it, or raise maxReplicas");
            found.push(group.invalid("above", "replicas", message));
        }
        if v1 && !never_restarts(&group) {
            found.push(group.invalid(
                "W1",
                "template.spec.restartPolicy",
                "should be Never: the autoscaler replaces workers, and one that restarts in place is counted twice",
            ));
        }
    }
    found
}
