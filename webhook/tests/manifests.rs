//! The shipped configurations hold what the design asks of them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::path::Path;

use ray_api::expand::SCALE_FIELDS;
use ray_api::meta::annotation;
use serde_json::Value;

fn documents(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../manifests/webhook")
        .join(name);
    serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn webhooks() -> Vec<Value> {
    let configurations = documents("configurations.yaml").into_iter();
    configurations
        .flat_map(|configuration| configuration["webhooks"].as_array().unwrap().clone())
        .collect()
}

fn of_clusters() -> Vec<Value> {
    webhooks()
        .into_iter()
        .filter(|webhook| webhook["rules"][0]["resources"][0] == "rayclusters")
        .collect()
}

#[test]
fn both_webhooks_of_rayclusters_are_called_for_the_same_requests() {
    let [mutating, validating] = of_clusters().try_into().unwrap();
    assert_eq!(mutating["matchConditions"], validating["matchConditions"]);
    assert_eq!(mutating["rules"], validating["rules"]);
    assert_eq!(mutating["reinvocationPolicy"], "IfNeeded");
}

#[test]
fn match_conditions_name_what_expansion_reads() {
    let text = of_clusters()[0]["matchConditions"].to_string();
    for word in SCALE_FIELDS.into_iter().chain([
        annotation::EXPANSION,
        annotation::IMAGE_TEMPLATE,
        annotation::COMPUTE_TEMPLATE,
    ]) {
        assert!(text.contains(&format!("'{word}'")), "{word} is missing in {text}");
    }
}

#[test]
fn every_field_that_the_api_server_would_fill_in_is_there() {
    for webhook in webhooks() {
        let name = webhook["name"].as_str().unwrap();
        for field in [
            "admissionReviewVersions",
            "failurePolicy",
            "matchPolicy",
            "namespaceSelector",
            "objectSelector",
            "sideEffects",
            "timeoutSeconds",
        ] {
            assert!(!webhook[field].is_null(), "{name}: {field}");
        }
        assert_eq!(
            (webhook["failurePolicy"].as_str(), webhook["sideEffects"].as_str()),
            (Some("Fail"), Some("None")),
            "{name}"
        );
        assert!(webhook["rules"][0]["scope"].is_string(), "{name}");
        assert!(webhook["clientConfig"]["service"]["port"].is_number(), "{name}");
        assert!(
            webhook["clientConfig"]["caBundle"].is_null(),
            "{name}: the webhook's to write"
        );
    }
}

#[test]
fn rights_are_by_name_where_they_can_be() {
    for role in documents("rbac.yaml")
        .into_iter()
        .filter(|object| object["rules"].is_array())
    {
        for rule in role["rules"].as_array().unwrap() {
            let writes = rule["verbs"]
                .as_array()
                .unwrap()
                .iter()
                .any(|verb| verb == "update" || verb == "patch");
            assert_eq!(writes, rule["resourceNames"].is_array(), "{rule}");
        }
    }
}
