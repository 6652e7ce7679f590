//! What `upgradeStrategy: Recreate` compares: the part of the spec that pods are made from.
//!
//! KubeRay hashes Go structs, which no other implementation can repeat (raycluster-behaviour appendix C); the
//! version annotation beside the hash says whose it is, and a foreign one is written anew instead of compared.

use ray_api::ray::v1::RayClusterSpec;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Fields of the spec that no pod depends on.
const SPEC: [&str; 7] = [
    "suspend",
    "managedBy",
    "upgradeStrategy",
    "headServiceAnnotations",
    "imageTemplate",
    "computeTemplate",
    "networkPolicy",
];
/// Fields of a group that running pods do not depend on.
const GROUP: [&str; 13] = [
    "replicas",
    "minReplicas",
    "maxReplicas",
    "scaleStrategy",
    "suspend",
    "idleTimeoutSeconds",
    "priority",
    "imageTemplate",
    "computeTemplate",
    "serviceType",
    "enableIngress",
    "ingressOptions",
    "numOfHosts",
];
/// Fields of a pod that Kueue injects.
const POD: [&str; 2] = ["tolerations", "schedulingGates"];

/// 32 characters over the alphabet of KubeRay's hash.
#[must_use]
pub fn spec_hash(spec: &RayClusterSpec) -> String {
    let mut value = serde_json::to_value(spec).unwrap_or_default();
    remove(&mut value, &SPEC);
    if let Some(head) = value.get_mut("headGroupSpec") {
        mute_group(head);
    }
    for group in value
        .get_mut("workerGroupSpecs")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        mute_group(group);
    }
    let digest = Sha256::digest(value.to_string());
    base32(digest.as_slice()).chars().take(32).collect()
}

fn mute_group(group: &mut Value) {
    remove(group, &GROUP);
    if let Some(pod) = group.pointer_mut("/template/spec") {
        remove(pod, &POD);
    }
    if let Some(metadata) = group.pointer_mut("/template/metadata") {
        remove(metadata, &["creationTimestamp"]);
    }
}

fn remove(value: &mut Value, fields: &[&str]) {
    if let Some(object) = value.as_object_mut() {
        object.retain(|key, _| !fields.contains(&key.as_str()));
    }
}

/// RFC 4648 base32 with the extended hex alphabet.
fn base32(bytes: &[u8]) -> String {
    let bits = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| (byte >> bit) & 1))
        .collect::<Vec<_>>();
    bits.chunks(5)
        .filter_map(|chunk| {
            let value = chunk.iter().fold(0, |value, bit| value << 1 | u32::from(*bit));
            char::from_digit(value << (5 - chunk.len()), 32)
        })
        .map(|digit| digit.to_ascii_uppercase())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(patch: &Value) -> RayClusterSpec {
        let mut spec = json!({
            "headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray-head", "image": "a"}]}}},
            "workerGroupSpecs": [{"groupName": "g", "replicas": 1}],
        });
        json_patch::merge(&mut spec, patch);
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn only_what_pods_are_made_from_counts() {
        let base = spec_hash(&spec(&json!({})));
        assert_eq!(base.len(), 32);
        for same in [
            json!({"suspend": true}),
            json!({"headServiceAnnotations": {"a": "b"}}),
            json!({"workerGroupSpecs": [{"groupName": "g", "replicas": 7, "maxReplicas": 9}]}),
            json!({"workerGroupSpecs": [{"groupName": "g", "scaleStrategy": {"workersToDelete": ["x"]}}]}),
            json!({"upgradeStrategy": {"type": "Recreate"}}),
            json!({"headGroupSpec": {"template": {"spec": {"tolerations": [{"key": "kueue"}]}}}}),
        ] {
            assert_eq!(spec_hash(&spec(&same)), base, "{same}");
        }
        for other in [
            json!({"rayVersion": "2.60.0"}),
            json!({"headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray-head", "image": "b"}]}}}}),
            json!({"workerGroupSpecs": [{"groupName": "other"}]}),
        ] {
            assert_ne!(spec_hash(&spec(&other)), base, "{other}");
        }
    }
}
