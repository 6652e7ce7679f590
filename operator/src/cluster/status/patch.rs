//! When the status is worth a write, and what is written.

use ray_api::conditions::find;
use ray_api::meta::condition;
use ray_api::ray::v1::{RayCluster, RayClusterStatus};
use serde_json::{Map, Value, json};

/// Fields that only say when the others were written.
const TIMES: [&str; 2] = ["lastUpdateTime", "stateTransitionTimes"];

/// Whether the two say different things; a zero says as little as an absent field.
#[must_use]
pub fn differs(old: &RayClusterStatus, new: &RayClusterStatus) -> bool {
    let said = |status: &RayClusterStatus| {
        let mut value = serde_json::to_value(status).unwrap_or_default();
        if let Some(map) = value.as_object_mut() {
            map.retain(|key, _| !TIMES.contains(&key.as_str()));
            for condition in map
                .get_mut("conditions")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                if let Some(condition) = condition.as_object_mut() {
                    condition.remove("lastTransitionTime");
                }
            }
            if let Some(Value::Array(conditions)) = map.get_mut("conditions") {
                conditions.sort_by_key(|condition| condition["type"].to_string());
            }
        }
        drop_zeros(&mut value);
        value
    };
    let ours = |status: &RayClusterStatus, other: &RayClusterStatus| {
        // Conditions of other writers are none of our business.
        let mut status = status.clone();
        let known = other.conditions.clone().unwrap_or_default();
        if let Some(conditions) = &mut status.conditions {
            conditions.retain(|condition| {
                find(&known, &condition.type_).is_some() || super::conditions::is_ours(&condition.type_)
            });
        }
        status
    };
    said(&ours(old, new)) != said(new)
}

/// Whether somebody waits for just this change: the state, a head that is lost, or a condition that other
/// controllers follow. A head that gets ready waits for its workers' news.
#[must_use]
pub fn is_urgent(old: &RayClusterStatus, new: &RayClusterStatus) -> bool {
    let word = |status: &RayClusterStatus| status.state.map_or("", ray_api::ray::v1::ClusterState::as_str);
    let said = |status: &RayClusterStatus, type_: &str| {
        let conditions = status.conditions.as_deref().unwrap_or_default();
        find(conditions, type_).map_or("False".to_owned(), |condition| condition.status.clone())
    };
    let flipped = |type_: &&str| said(old, type_) != said(new, type_);
    let followed = [
        condition::SUSPENDING,
        condition::SUSPENDED,
        condition::REPLICA_FAILURE,
    ];
    let lost = flipped(&condition::HEAD_POD_READY) && said(new, condition::HEAD_POD_READY) != "True";
    word(old) != word(new) || lost || followed.iter().any(flipped)
}

/// The server-side apply of the status. A field that is no more is written as zero, since leaving it out keeps
/// the value that KubeRay's operator may have left there.
#[must_use]
pub fn patch(cluster: &RayCluster, old: &RayClusterStatus, new: &RayClusterStatus) -> Value {
    let mut status = serde_json::to_value(new).unwrap_or_default();
    let old = serde_json::to_value(old).unwrap_or_default();
    if let (Some(status), Some(old)) = (status.as_object_mut(), old.as_object()) {
        write_zeros(status, old);
    }
    json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {
            "name": cluster.metadata.name,
            // Another cluster of the same name must not get this one's status.
            "uid": cluster.metadata.uid,
        },
        "status": status,
    })
}

fn write_zeros(new: &mut Map<String, Value>, old: &Map<String, Value>) {
    for (key, value) in old {
        match (new.get_mut(key), value) {
            (Some(Value::Object(new)), Value::Object(old)) if key == "head" => write_zeros(new, old),
            (Some(_), _) => {}
            (None, Value::Number(_)) => {
                new.insert(key.clone(), json!(0));
            }
            (None, Value::String(_)) => {
                new.insert(key.clone(), json!(""));
            }
            (None, Value::Object(old)) if key == "head" => {
                let mut head = Map::new();
                write_zeros(&mut head, old);
                new.insert(key.clone(), Value::Object(head));
            }
            (None, _) => {}
        }
    }
}

fn drop_zeros(value: &mut Value) {
    if let Value::Object(map) = value {
        map.values_mut().for_each(drop_zeros);
        map.retain(|_, value| match value {
            Value::Null => false,
            Value::Number(number) => number.as_i64() != Some(0),
            Value::String(text) => !text.is_empty(),
            Value::Object(map) => !map.is_empty(),
            Value::Array(_) | Value::Bool(_) => true,
        });
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    #[test]
    fn a_head_that_is_lost_is_told_at_once_and_one_that_gets_ready_with_its_workers() {
        let head = |status: &str| RayClusterStatus {
            conditions: Some(vec![Condition {
                type_: condition::HEAD_POD_READY.to_owned(),
                status: status.to_owned(),
                reason: "R".to_owned(),
                message: String::new(),
                observed_generation: None,
                last_transition_time: Time(Timestamp::UNIX_EPOCH),
            }]),
            ..RayClusterStatus::default()
        };
        assert!(!is_urgent(&head("False"), &head("True")));
        assert!(is_urgent(&head("True"), &head("False")));
        assert!(is_urgent(&head("True"), &head("Unknown")));
    }
}
