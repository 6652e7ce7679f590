//! What a change of the spec does to running pods (C23).

use super::Invalid;
use crate::meta::label;
use crate::ray::RayCluster;

pub(super) fn check(cluster: &RayCluster, found: &mut Vec<Invalid>) {
    let strategy = cluster
        .spec
        .upgrade_strategy
        .as_ref()
        .and_then(|strategy| strategy.type_);
    let labels = cluster.metadata.labels.as_ref();
    let origin = labels.and_then(|labels| labels.get(label::ORIGINATED_FROM_CRD));
    if let Some(kind @ ("RayJob" | "RayService")) = origin.map(String::as_str)
        && strategy.is_some()
    {
        found.push(Invalid::new(
            "C23",
            "spec.upgradeStrategy.type",
            format!("a cluster of a {kind} is upgraded by that {kind}: remove it"),
        ));
    }
}
