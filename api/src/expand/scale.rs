//! Fields that the autoscaler writes, and requests that change nothing else.

use serde_json::{Map, Value};

use super::group::{self, GroupKey};
use super::ownership::Ownership;
use super::path::Path;

/// Fields of a worker group that scale it. The webhook configurations' matchConditions name the same.
pub const SCALE_FIELDS: [&str; 4] = ["replicas", "minReplicas", "maxReplicas", "scaleStrategy"];

/// Whether an update leaves spec and annotations as they were, but for groups' scale.
#[must_use]
pub fn only_scale_changed(object: &Value, old: &Value) -> bool {
    let annotations = |object: &Value| {
        object
            .pointer("/metadata/annotations")
            .cloned()
            .unwrap_or_default()
    };
    annotations(object) == annotations(old) && without_scale(object) == without_scale(old)
}

fn without_scale(object: &Value) -> Value {
    let mut spec = object.get("spec").cloned().unwrap_or_default();
    let workers = spec.get_mut("workerGroupSpecs").and_then(Value::as_array_mut);
    for group in workers.into_iter().flatten().filter_map(Value::as_object_mut) {
        group.retain(|field, _| !SCALE_FIELDS.contains(&field.as_str()));
    }
    spec
}

/// With autoscaling on, a re-apply that names no `replicas` or `scaleStrategy` keeps those of the old object.
///
/// The autoscaler owns them; the CRD's default of 0 would otherwise scale a group down.
pub(super) fn keep_autoscaled(object: &mut Value, old: &Value, ownership: &Ownership<'_>) {
    if object.pointer("/spec/enableInTreeAutoscaling") != Some(&Value::Bool(true)) {
        return;
    }
    for key in group::keys(object) {
        let (GroupKey::Worker(_), Some(old)) = (&key, group::get(old, &key)) else {
            continue;
        };
        for field in ["replicas", "scaleStrategy"] {
            let Some(value) = old.get(field) else { continue };
            let group = group::get_mut(object, &key).and_then(Value::as_object_mut);
            let Some(group) = group.filter(|group| is_default(group, field)) else {
                continue;
            };
            if !is_named(&key, field, ownership) {
                group.insert(field.to_owned(), value.clone());
            }
        }
    }
}

/// Absent, or what the schema puts in place of absence.
fn is_default(group: &Map<String, Value>, field: &str) -> bool {
    match group.get(field) {
        None | Some(Value::Null) => true,
        Some(value) => field == "replicas" && value.as_i64() == Some(0),
    }
}

/// Whether the configuration that was applied names that field of a group.
pub(super) fn is_named(key: &GroupKey, field: &'static str, ownership: &Ownership<'_>) -> bool {
    let path: Path = key.path().key(field);
    let applied = ownership.last_applied();
    applied.is_some_and(|applied| super::path::get(applied, &path.0, &Value::Null).is_some())
        || ownership.applies(&path)
}
