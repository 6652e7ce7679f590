//! Pure: does a live object still say what is desired, whatever others have added to it?

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ray_api::meta::manager;
use serde_json::{Map, Value, json};

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

/// Merge patches that remove labels and annotations which we wrote once and do not want any more.
#[must_use]
pub(super) fn stale_keys(metadata: &ObjectMeta, desired: &Value) -> Option<Value> {
    let fields = metadata.managed_fields.iter().flatten();
    let ours: Vec<_> = fields
        .filter(|entry| entry.manager.as_deref() == Some(manager::CLUSTER))
        .filter_map(|entry| entry.fields_v1.as_ref())
        .collect();
    let mut stale = Map::new();
    for map in ["labels", "annotations"] {
        let written: BTreeSet<&str> = ours
            .iter()
            .filter_map(|fields| fields.0.pointer(&format!("/f:metadata/f:{map}"))?.as_object())
            .flat_map(|keys| keys.keys().filter_map(|key| key.strip_prefix("f:")))
            .collect();
        let wanted = desired.pointer(&format!("/metadata/{map}"));
        let unwanted: Map<String, Value> = written
            .into_iter()
            .filter(|key| wanted.is_none_or(|wanted| wanted.get(key).is_none()))
            .map(|key| (key.to_owned(), Value::Null))
            .collect();
        if !unwanted.is_empty() {
            stale.insert(map.to_owned(), Value::Object(unwanted));
        }
    }
    (!stale.is_empty()).then(|| json!({"metadata": stale}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additions_of_others_are_no_drift() {
        let desired = json!({
            "kind": "Ingress",
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
    fn only_what_we_wrote_is_taken_back() {
        let metadata: ObjectMeta = serde_json::from_value(json!({
            "managedFields": [
                {"manager": manager::CLUSTER, "fieldsV1": {"f:metadata": {"f:annotations": {".": {}, "f:team": {}, "f:keep": {}}}}},
                {"manager": "ingress", "fieldsV1": {"f:metadata": {"f:annotations": {"f:checksum": {}}}}},
            ],
        }))
        .unwrap();
        let desired = json!({"metadata": {"annotations": {"keep": "1"}}});
        assert_eq!(
            stale_keys(&metadata, &desired),
            Some(json!({"metadata": {"annotations": {"team": null}}}))
        );
    }
}
