//! Rules of a valid object, the same for webhook, operator and plugin.
//!
//! The rows C1 to C24 and W1 are KubeRay's own rules (raycluster-behaviour 1.4); what the CRD says in CEL stands in
//! `schema/rules.rs`, and a test holds the two equal. What KubeRay runs is not
//! invalid here either, and what we do not support is not: see [`warnings`] and [`unsupported`].

mod auth;
mod autoscaling;
mod compute;
mod fault_tolerance;
mod group;
mod names;
mod replicas;
mod status;
mod unsupported;
mod upgrade;
mod warnings;

use std::fmt;

pub use compute::compute_template;
pub use unsupported::{Unsupported, unsupported};
pub use warnings::warnings;

use crate::ray::RayCluster;

/// What a rule is about; KubeRay's events tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The name.
    Metadata,
    /// What the user asks for.
    Spec,
    /// What the operator wrote.
    Status,
}

impl Class {
    /// Reason of KubeRay's event about it.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Metadata => "InvalidRayClusterMetadata",
            Self::Spec => "InvalidRayClusterSpec",
            Self::Status => "InvalidRayClusterStatus",
        }
    }
}

/// A field that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The rule: a row of the reference such as `C5`, or a word.
    pub rule: &'static str,
    /// Path of the field, as `spec.workerGroupSpecs[1].minReplicas`.
    pub field: String,
    /// What is wrong, and what to do.
    pub message: String,
    /// What the rule is about.
    pub class: Class,
    /// The worker group, where the rule is about one; its index may change.
    group: Option<String>,
}

impl Invalid {
    fn new(rule: &'static str, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            rule,
            field: field.into(),
            message: message.into(),
            class: Class::Spec,
            group: None,
        }
    }

    fn about(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// Rule and place, the group by name: what makes two errors the same.
    fn identity(&self) -> (&'static str, Option<&str>, &str) {
        let within_group = self.group.as_ref().and_then(|_| self.field.split_once("]."));
        let field = within_group.map_or(self.field.as_str(), |(_, field)| field);
        (self.rule, self.group.as_deref(), field)
    }

    fn in_group(mut self, group: Option<&str>) -> Self {
        self.group = group.map(str::to_owned);
        self
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Everything wrong with a cluster; empty where it can be run.
#[must_use]
pub fn cluster(cluster: &RayCluster) -> Vec<Invalid> {
    let mut found = Vec::new();
    names::check(cluster, &mut found);
    group::check(cluster, &mut found);
    replicas::check(cluster, &mut found);
    autoscaling::check(cluster, &mut found);
    fault_tolerance::check(cluster, &mut found);
    auth::check(cluster, &mut found);
    upgrade::check(cluster, &mut found);
    status::check(cluster, &mut found);
    found
}

/// What is wrong with `new` and was not with `old`: an update may leave an error, but not make one.
///
/// Groups are compared by name, since removing one moves the others.
#[must_use]
pub fn new_errors(old: &RayCluster, new: &RayCluster) -> Vec<Invalid> {
    let before = cluster(old);
    let mut errors = cluster(new);
    errors.retain(|error| !before.iter().any(|known| known.identity() == error.identity()));
    errors
}
