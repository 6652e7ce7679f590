//! Names of the cluster and of its worker groups (C1, and what pods' labels can hold).

use std::collections::BTreeSet;

use super::group::Group;
use super::{Class, Invalid};
use crate::names::{MAX_CLUSTER_NAME, is_dns_1035_label, is_label_value};
use crate::ray::RayCluster;

pub(super) fn check(cluster: &RayCluster, found: &mut Vec<Invalid>) {
    // Without a name yet (generateName), there is nothing to say.
    if let Some(name) = &cluster.metadata.name
        && (name.len() > MAX_CLUSTER_NAME || !is_dns_1035_label(name))
    {
        found.push(
            Invalid::new(
                "C1",
                "metadata.name",
                "must be at most 53 characters: lower-case letters, digits and -, starting with a letter and not ending with - (Services are named after the cluster)",
            )
            .about(Class::Metadata),
        );
    }
    let mut known = BTreeSet::new();
    for group in Group::workers(cluster) {
        let name = group.name.unwrap_or_default();
        if !is_label_value(name) {
            found.push(group.invalid(
                "groupName",
                "groupName",
                format!("{name:?} does not fit the label ray.io/group of pods: at most 63 letters, digits, - _ and ."),
            ));
        }
        if !known.insert(name) {
            found.push(group.invalid(
                "unique",
                "groupName",
                format!("{name:?} is the name of another group too: give each its own"),
            ));
        }
    }
}
