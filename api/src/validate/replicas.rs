//! Counts of pods (C5, and how many hosts a replica can have).

use super::Invalid;
use super::group::Group;
use crate::ray::RayCluster;

/// Hosts of one replica: twice the nodes that a Kubernetes cluster is built for, and the largest TPU slice.
pub(super) const MOST_HOSTS: i32 = 10_000;

pub(super) fn check(cluster: &RayCluster, found: &mut Vec<Invalid>) {
    let autoscaling = cluster.spec.enable_in_tree_autoscaling == Some(true);
    for (group, spec) in Group::workers(cluster).zip(&cluster.spec.worker_group_specs) {
        let (min, max) = (spec.min_replicas, spec.max_replicas);
        for (field, count) in [("minReplicas", min), ("maxReplicas", max)] {
            match count {
                Some(count) if count < 0 => {
                    found.push(group.invalid("C5", field, format!("{count} is below 0: write 0 or more")));
                }
                None if !autoscaling => {
                    found.push(group.invalid("C5", field, "is missing: set it, or enableInTreeAutoscaling"));
                }
                _ => {}
            }
        }
        if let Some(hosts) = spec.num_of_hosts.filter(|hosts| *hosts > MOST_HOSTS) {
            let message = format!("{hosts} hosts are more than any replica has: write at most {MOST_HOSTS}");
            found.push(group.invalid("hosts", "numOfHosts", message));
        }
        if let (Some(min), Some(max)) = (min, max)
            && min > max
        {
            found.push(group.invalid(
                "C5",
                "minReplicas",
                format!("{min} is above maxReplicas {max}: lower it, or raise maxReplicas"),
            ));
        }
    }
}
