//! The groups of a RayCluster in raw JSON, and the template references that apply to each.

use std::fmt;

use serde_json::Value;

use super::path::Path;
use super::record::Origin;
use crate::meta::annotation;

/// A group of a RayCluster. Worker groups go by name: their order may change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupKey {
    /// `spec.headGroupSpec`.
    Head,
    /// The item of `spec.workerGroupSpecs` with that `groupName`.
    Worker(String),
}

impl GroupKey {
    /// Path from the object's root.
    #[must_use]
    pub fn path(&self) -> Path {
        match self {
            Self::Head => Path::of(&["spec", "headGroupSpec"]),
            Self::Worker(name) => Path::of(&["spec", "workerGroupSpecs"]).item("groupName", name.clone()),
        }
    }

    /// Name that a created Ray container gets.
    #[must_use]
    pub fn container_name(&self) -> &'static str {
        match self {
            Self::Head => "ray-head",
            Self::Worker(_) => "ray-worker",
        }
    }
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head => f.write_str("the head group"),
            Self::Worker(name) => write!(f, "worker group {name}"),
        }
    }
}

/// The groups of a RayCluster in their order, the head first.
#[must_use]
pub fn keys(object: &Value) -> Vec<GroupKey> {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let head = spec.get("headGroupSpec").map(|_| GroupKey::Head);
    let workers = spec.get("workerGroupSpecs").and_then(Value::as_array);
    let names = workers
        .into_iter()
        .flatten()
        .filter_map(|group| group.get("groupName")?.as_str())
        .map(|name| GroupKey::Worker(name.to_owned()));
    head.into_iter().chain(names).collect()
}

/// A group by key.
#[must_use]
pub fn get<'a>(object: &'a Value, key: &GroupKey) -> Option<&'a Value> {
    super::path::get(object, &key.path().0, &Value::Null)
}

/// A group by key, to change.
pub fn get_mut<'a>(object: &'a mut Value, key: &GroupKey) -> Option<&'a mut Value> {
    super::path::get_mut(object, &key.path().0, &Value::Null)
}

/// Whether the cluster may have pods: it is not suspended, and each group has an image to run.
pub(super) fn may_run(object: &Value) -> bool {
    let has_image = |key: &GroupKey| {
        let group = get(object, key);
        let image = group.and_then(|group| group.pointer("/template/spec/containers/0/image"));
        name(image).is_some()
    };
    object.pointer("/spec/suspend") != Some(&Value::Bool(true)) && keys(object).iter().all(has_image)
}

/// A template's name as a RayCluster gives it for one of its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Name of the template.
    pub name: String,
    /// Path of the field or annotation, as people write it.
    pub field: String,
    /// Whether it is an annotation, as with KubeRay's own CRD.
    pub by_annotation: bool,
}

/// The reference that applies to a group: its own beats the cluster's, a field beats an annotation.
#[must_use]
pub fn reference(object: &Value, key: &GroupKey, origin: Origin) -> Option<Reference> {
    let (field, annotation) = match origin {
        Origin::Compute => ("computeTemplate", annotation::COMPUTE_TEMPLATE),
        Origin::Image => ("imageTemplate", annotation::IMAGE_TEMPLATE),
    };
    let group = get(object, key);
    let pod_metadata = group.and_then(|group| group.get("template")?.get("metadata"));
    let places = [
        (Some(key), group, pod_metadata),
        (None, object.get("spec"), object.get("metadata")),
    ];
    places.into_iter().find_map(|(key, owner, metadata)| {
        let in_field = owner.and_then(|owner| name(owner.get(field)));
        let by_annotation = in_field.is_none();
        let name = in_field.or_else(|| name(metadata?.get("annotations")?.get(annotation)))?;
        let field = match (key.map(|key| group_field(object, key)), by_annotation) {
            (Some(group), false) => format!("{group}.{field}"),
            (Some(group), true) => format!("{group}.template.metadata.annotations[{annotation}]"),
            (None, false) => format!("spec.{field}"),
            (None, true) => format!("metadata.annotations[{annotation}]"),
        };
        Some(Reference {
            name,
            field,
            by_annotation,
        })
    })
}

/// Path of a group as people write it: by index, as validation errors of the API server do.
#[must_use]
pub fn group_field(object: &Value, key: &GroupKey) -> String {
    match key {
        GroupKey::Head => "spec.headGroupSpec".to_owned(),
        GroupKey::Worker(name) => {
            let workers = object.pointer("/spec/workerGroupSpecs").and_then(Value::as_array);
            let is_it = |worker: &Value| worker.get("groupName").and_then(Value::as_str) == Some(name);
            let index = workers.and_then(|workers| workers.iter().position(is_it));
            format!("spec.workerGroupSpecs[{}]", index.unwrap_or_default())
        }
    }
}

fn name(value: Option<&Value>) -> Option<String> {
    let name = value?.as_str()?;
    (!name.is_empty()).then(|| name.to_owned())
}
