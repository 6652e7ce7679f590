//! Counts of pods (C5).

use super::Invalid;
use super::group::Group;
use crate::ray::RayCluster;

pub(super) fn check(cluster: &RayCluster, found: &mut Vec<Invalid>) {
    let autoscaling = cluster.spec.enable_in_tree_autoscaling == Some(true);
    for (group, spec) in Group::workers(cluster).zip(&cluster.spec.worker_group_specs) {
        let (min, max) = (spec.min_replicas, spec.max_replicas);
        let counts = [
            ("replicas", spec.replicas),
            ("minReplicas", min),
            ("maxReplicas", max),
            ("numOfHosts", spec.num_of_hosts),
        ];
        for (field, count) in counts {
            if let Some(count) = count.filter(|count| *count < 0) {
                found.push(group.invalid("negative", field, format!("{count} is below 0: write 0 or more")));
            }
        }
        for (field, count) in [("minReplicas", min), ("maxReplicas", max)] {
            if !autoscaling && count.is_none() {
                found.push(group.invalid("C5", field, "is missing: set it, or enableInTreeAutoscaling"));
            }
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
