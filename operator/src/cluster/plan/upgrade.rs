//! `upgradeStrategy: Recreate` (raycluster-behaviour 4.7).

use std::sync::Arc;

use ray_api::meta::operator_version;
use ray_api::ray::v1::UpgradeType;

use crate::cluster::build::{Facts, spec_hash};
use crate::cluster::pods::{NodeType, PodView};

/// What a change of the spec does to running pods.
pub(super) enum Upgrade {
    /// Nothing.
    None,
    /// The head was made by another operator, whose hash says nothing to us: it gets ours.
    Restamp(Arc<PodView>),
    /// All pods are made anew.
    Recreate,
}

/// Compares the head's hash with the spec's.
pub(super) fn decide(facts: &Facts<'_>, pods: &[Arc<PodView>]) -> Upgrade {
    let strategy = facts.spec.upgrade_strategy.as_ref();
    let recreates = strategy.and_then(|strategy| strategy.type_) == Some(UpgradeType::Recreate);
    let head = pods
        .iter()
        .find(|pod| pod.node_type == NodeType::Head && !pod.is_terminating());
    let Some(head) = head.filter(|_| recreates) else {
        return Upgrade::None;
    };
    // A head that was just created is known by its name alone; what it was made from is today's spec.
    let Some(hash) = &head.spec_hash else {
        return Upgrade::None;
    };
    if head.operator_version.as_ref() != Some(&operator_version()) {
        return Upgrade::Restamp(Arc::clone(head));
    }
    if *hash == spec_hash(facts.spec) {
        Upgrade::None
    } else {
        Upgrade::Recreate
    }
}
