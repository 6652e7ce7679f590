//! Pure: does a live object still say what is desired, whatever others have added to it?

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ray_api::meta::manager;
use serde_json::{Map, Value};

/// Whether everything desired is there. Further fields are other writers' or the API server's; a list of named
/// things is compared by name, and has to have the same members.
#[must_use]
pub(super) fn covers(live: &Value, desired: &Value) -> bool {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => desired.iter().all(|(key, desired)| {
            // A bare object has no type; an owner's uid is compared before.
            matches!(key.as_str(), "apiVersion" | "kind" | "ownerReferences")
                || live.get(key).is_some_and(|live| covers(live, desired))
        }),
        (Value::Array(live), Value::Array(desired)) => {
            live.len() == desired.len()
                && desired.iter().enumerate().all(|(index, desired)| {
                    let same = |item: &&Value| !desired["name"].is_null() && item["name"] == desired["name"];
                    let item = live.iter().find(same).or_else(|| live.get(index));
                    item.is_some_and(|live| covers(live, desired))
                })
        }
        (live, desired) => live == desired,
    }
}

/// The merge patch that brings a live object to what is desired; none where it says that already.
///
/// Not an apply: what our creation wrote belongs to another operation than our applies, so an apply would never
/// take it back. A merge patch replaces lists whole and leaves other writers' keys alone.
#[must_use]
pub(super) fn correction(live: &Value, metadata: &ObjectMeta, desired: Value) -> Option<Value> {
    let is_covered = covers(live, &desired);
    let mut patch = desired;
    let is_replaced = replace(live, &mut patch);
    if !take_back(metadata, &mut patch) && !is_replaced && is_covered {
        return None;
    }
    // Ours is there, and a list that is replaced whole would drop other owners.
    if let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("ownerReferences");
    }
    Some(patch)
}

/// Maps that only hold what somebody wrote: the API server adds no defaults to them.
const MAPS: [[&str; 2]; 3] = [
    ["metadata", "labels"],
    ["metadata", "annotations"],
    ["spec", "selector"],
];

/// Fields of an Ingress to which the API server adds no defaults: they are as desired, or replaced whole.
const WHOLE: [&str; 2] = ["rules", "tls"];

/// Adds nulls for such fields that are there and not desired; whether one of them is another than is desired.
fn replace(live: &Value, patch: &mut Value) -> bool {
    let (Some("Ingress"), Some(live)) = (patch["kind"].as_str(), live.get("spec")) else {
        return false;
    };
    let Some(desired) = child(patch, "spec").and_then(Value::as_object_mut) else {
        return false;
    };
    let mut differs = false;
    for field in WHOLE {
        if desired.get(field) != live.get(field) {
            desired.entry(field).or_insert(Value::Null);
            differs = true;
        }
    }
    differs
}

/// Adds nulls for the keys that we wrote once and do not want any more; whether there are any.
fn take_back(metadata: &ObjectMeta, patch: &mut Value) -> bool {
    let fields = metadata.managed_fields.iter().flatten();
    let ours: Vec<_> = fields
        .filter(|entry| entry.manager.as_deref() == Some(manager::CLUSTER))
        .filter_map(|entry| entry.fields_v1.as_ref())
        .collect();
    let mut stale = false;
    for [parent, map] in MAPS {
        let written: BTreeSet<&str> = ours
            .iter()
            .filter_map(|fields| fields.0.pointer(&format!("/f:{parent}/f:{map}"))?.as_object())
            .flat_map(|keys| keys.keys().filter_map(|key| key.strip_prefix("f:")))
            .collect();
        if written.is_empty() {
            continue;
        }
        let Some(wanted) = child(patch, parent).and_then(|parent| child(parent, map)?.as_object_mut()) else {
            continue;
        };
        for key in written {
            if !wanted.contains_key(key) {
                wanted.insert(key.to_owned(), Value::Null);
                stale = true;
            }
        }
    }
    stale
}

/// Drops from an object's bookkeeping what [`correction`] does not read, which is most of what a cached Service takes.
pub(super) fn forget_unused(metadata: &mut ObjectMeta) {
    let Some(entries) = metadata.managed_fields.as_mut() else {
        return;
    };
    entries.retain(|entry| entry.manager.as_deref() == Some(manager::CLUSTER));
    for fields in entries.iter_mut().filter_map(|entry| entry.fields_v1.as_mut()) {
        let mut kept = Value::Object(Map::new());
        for [parent, map] in MAPS {
            let keys = fields
                .0
                .pointer_mut(&format!("/f:{parent}/f:{map}"))
                .map(Value::take);
            let parent = child(&mut kept, &format!("f:{parent}")).and_then(Value::as_object_mut);
            if let (Some(keys), Some(parent)) = (keys, parent) {
                parent.insert(format!("f:{map}"), keys);
            }
        }
        fields.0 = kept;
    }
}

/// The object's field, made an empty object where it is missing.
fn child<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    let object = value.as_object_mut()?;
    Some(object.entry(key).or_insert_with(|| Value::Object(Map::new())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn additions_of_others_are_no_drift() {
        let desired = json!({
            "kind": "Service",
            "metadata": {"annotations": {"a": "1"}},
            "spec": {"ports": [{"name": "x", "port": 1}, {"name": "y", "port": 2}]},
        });
        let live = json!({
            "metadata": {"annotations": {"a": "1", "ingress-controller/checksum": "z"}},
            "spec": {"ports": [{"name": "y", "port": 2, "nodePort": 7}, {"name": "x", "port": 1}], "type": "NodePort"},
            "status": {},
        });
        assert!(covers(&live, &desired));
    }

    #[test]
    fn changed_and_surplus_values_are_drift() {
        let desired = json!({"spec": {"ports": [{"name": "x", "port": 1}]}});
        assert!(!covers(
            &json!({"spec": {"ports": [{"name": "x", "port": 2}]}}),
            &desired
        ));
        let two = json!({"spec": {"ports": [{"name": "x", "port": 1}, {"name": "y", "port": 2}]}});
        assert!(!covers(&two, &desired));
        assert!(!covers(&json!({"spec": {}}), &desired));
    }

    #[test]
    fn rules_and_certificates_of_an_ingress_are_replaced_whole() {
        let live = json!({"spec": {"ingressClassName": "nginx", "rules": [{"host": "a", "http": {}}], "tls": [{"hosts": ["a"]}]}});
        let desired = json!({"kind": "Ingress", "spec": {"rules": [{"http": {}}]}});
        let patch = json!({"kind": "Ingress", "spec": {"rules": [{"http": {}}], "tls": null}});
        assert_eq!(
            correction(&live, &ObjectMeta::default(), desired.clone()),
            Some(patch)
        );
        let live = json!({"spec": {"ingressClassName": "nginx", "rules": [{"http": {}}]}});
        assert_eq!(correction(&live, &ObjectMeta::default(), desired), None);
    }

    #[test]
    fn only_what_we_wrote_is_taken_back() {
        let metadata: ObjectMeta = serde_json::from_value(json!({
            "managedFields": [
                {"manager": manager::CLUSTER, "fieldsV1": {"f:metadata": {"f:annotations": {".": {}, "f:team": {}, "f:keep": {}}},
                    "f:spec": {"f:selector": {"f:app": {}}, "f:type": {}}}},
                {"manager": "ingress", "fieldsV1": {"f:metadata": {"f:annotations": {"f:checksum": {}}}}},
            ],
        }))
        .unwrap();
        let live = json!({"metadata": {"annotations": {"keep": "1", "team": "a", "checksum": "z"}}, "spec": {"selector": {"app": "x"}}});
        let desired = json!({"metadata": {"annotations": {"keep": "1"}, "ownerReferences": [{}]}});
        let patch = json!({"metadata": {"annotations": {"keep": "1", "team": null}}, "spec": {"selector": {"app": null}}});
        assert_eq!(correction(&live, &metadata, desired.clone()), Some(patch.clone()));
        let mut cached = metadata.clone();
        forget_unused(&mut cached);
        assert_eq!(correction(&live, &cached, desired.clone()), Some(patch));
        let kept = json!([{"manager": manager::CLUSTER, "fieldsV1": {
            "f:metadata": {"f:annotations": {".": {}, "f:team": {}, "f:keep": {}}}, "f:spec": {"f:selector": {"f:app": {}}}}}]);
        assert_eq!(json!(cached.managed_fields), kept);
        assert_eq!(correction(&live, &ObjectMeta::default(), desired), None);
    }
}
