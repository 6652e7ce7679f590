//! The parts that head and worker groups share: containers, resources, labels (C2, C3, C4).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, PodTemplateSpec};

use super::Invalid;
use crate::names::{is_label_value, is_qualified_name};
use crate::ray::RayCluster;

/// Start parameters that say what `resources` says.
const RESOURCE_PARAMS: [&str; 4] = ["num-cpus", "num-gpus", "memory", "resources"];

/// The head or a worker group, and where it stands.
pub(super) struct Group<'a> {
    /// Path of the group.
    pub(super) path: String,
    /// Name of a worker group.
    pub(super) name: Option<&'a str>,
    /// Logical resources of its Ray nodes.
    pub(super) resources: &'a BTreeMap<String, String>,
    template: Option<&'a PodTemplateSpec>,
    params: Option<&'a BTreeMap<String, String>>,
    labels: &'a BTreeMap<String, String>,
    has_reference: bool,
}

impl<'a> Group<'a> {
    /// The head group.
    pub(super) fn head(cluster: &'a RayCluster) -> Self {
        let head = &cluster.spec.head_group_spec;
        Self {
            path: "spec.headGroupSpec".to_owned(),
            name: None,
            template: head.template.as_ref(),
            params: head.ray_start_params.as_ref(),
            resources: &head.resources,
            labels: &head.labels,
            has_reference: head.image_template.is_some() || head.compute_template.is_some(),
        }
    }

    /// The worker groups.
    pub(super) fn workers(cluster: &'a RayCluster) -> impl Iterator<Item = Self> {
        let groups = cluster.spec.worker_group_specs.iter().enumerate();
        groups.map(|(index, group)| Self {
            path: format!("spec.workerGroupSpecs[{index}]"),
            name: Some(&group.group_name),
            template: group.template.as_ref(),
            params: group.ray_start_params.as_ref(),
            resources: &group.resources,
            labels: &group.labels,
            has_reference: group.image_template.is_some() || group.compute_template.is_some(),
        })
    }

    /// The pod that the template makes.
    pub(super) fn pod(&self) -> Option<&'a PodSpec> {
        self.template?.spec.as_ref()
    }

    /// A start parameter that is not empty.
    pub(super) fn param(&self, key: &str) -> Option<&'a str> {
        let value = self.params?.get(key)?;
        Some(value.as_str()).filter(|value| !value.is_empty())
    }

    /// A variable of the Ray container, which is always the first.
    pub(super) fn env(&self, name: &str) -> Option<&'a EnvVar> {
        let ray: &Container = self.pod()?.containers.first()?;
        ray.env.as_ref()?.iter().find(|variable| variable.name == name)
    }

    /// A complaint about a field of the group.
    pub(super) fn invalid(&self, rule: &'static str, field: &str, message: impl Into<String>) -> Invalid {
        Invalid::new(rule, format!("{}.{field}", self.path), message).in_group(self.name)
    }
}

pub(super) fn check(cluster: &RayCluster, found: &mut Vec<Invalid>) {
    let spec = &cluster.spec;
    let has_reference = spec.image_template.is_some() || spec.compute_template.is_some();
    for group in std::iter::once(Group::head(cluster)).chain(Group::workers(cluster)) {
        if !has_reference && !group.has_reference && group.pod().is_none_or(|pod| pod.containers.is_empty()) {
            found.push(group.invalid(
                "C2",
                "template.spec.containers",
                "needs at least one container (the first one runs Ray), or name an imageTemplate or computeTemplate",
            ));
        }
        check_resources(&group, found);
        check_labels(&group, found);
    }
}

fn check_resources(group: &Group<'_>, found: &mut Vec<Invalid>) {
    if !group.resources.is_empty() && RESOURCE_PARAMS.iter().any(|key| group.param(key).is_some()) {
        found.push(group.invalid(
            "C3",
            "resources",
            "resources and rayStartParams num-cpus, num-gpus, memory or resources say the same thing twice: keep one of them",
        ));
    }
}

fn check_labels(group: &Group<'_>, found: &mut Vec<Invalid>) {
    if group.params.is_some_and(|params| params.contains_key("labels")) {
        found.push(group.invalid(
            "C4",
            "rayStartParams",
            "rayStartParams.labels is not supported: use the group's own labels",
        ));
    }
    for (key, value) in group.labels {
        if !is_qualified_name(key) {
            found.push(group.invalid(
                "C4",
                "labels",
                format!("{key:?} is not a label key: write [prefix/]name of letters, digits, - _ and ."),
            ));
        }
        if !is_label_value(value) {
            found.push(group.invalid(
                "C4",
                &format!("labels[{key}]"),
                format!("{value:?} is not a label value: at most 63 letters, digits, - _ and ."),
            ));
        }
    }
}
