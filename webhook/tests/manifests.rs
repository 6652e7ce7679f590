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
fn rules_name_only_our_kinds() {
    for webhook in webhooks() {
        let name = webhook["name"].as_str().unwrap();
        let ours = [
            ("ray.io", "rayclusters"),
            ("templates.ray.io", "computetemplates"),
            ("templates.ray.io", "clustercomputetemplates"),
            ("templates.ray.io", "imagetemplates"),
        ];
        for rule in webhook["rules"].as_array().unwrap() {
            let one = |field: &str| match rule[field].as_array().unwrap().as_slice() {
                [one] => one.as_str().unwrap().to_owned(),
                other => panic!("{name}: {field}: {other:?}"),
            };
            let (group, resource) = (one("apiGroups"), one("resources"));
            assert!(
                ours.contains(&(group.as_str(), resource.as_str())),
                "{name}: {group}/{resource}"
            );
            assert_eq!(
                rule["operations"],
                serde_json::json!(["CREATE", "UPDATE"]),
                "{name}"
            );
            let versions = rule["apiVersions"].as_array().unwrap();
            assert!(versions.iter().all(|version| version != "*"), "{name}");
        }
        // What hangs here hangs people and controllers.
        assert!(webhook["timeoutSeconds"].as_i64().unwrap() <= 10, "{name}");
    }
}

/// Every Role and ClusterRole that is shipped.
fn roles() -> Vec<Value> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests")];
    let mut roles = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "yaml") {
                let text = std::fs::read_to_string(path).unwrap();
                let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
                let is_role = |object: &Value| object["kind"] == "Role" || object["kind"] == "ClusterRole";
                roles.extend(objects.into_iter().filter(is_role));
            }
        }
    }
    roles
}

#[test]
fn roles_add_to_no_other_and_name_what_they_allow() {
    let roles = roles();
    assert!(roles.len() > 3, "{}", roles.len());
    for role in roles {
        let name = role["metadata"]["name"].as_str().unwrap();
        // Who may bind the built-in roles of a cluster decides who may use ours.
        assert!(role["aggregationRule"].is_null(), "{name}");
        let labels = role["metadata"]["labels"].as_object();
        let mut keys = labels.into_iter().flat_map(|labels| labels.keys());
        assert!(!keys.any(|key| key.contains("/aggregate-to-")), "{name}");
        for rule in role["rules"].as_array().unwrap() {
            for field in ["apiGroups", "resources", "verbs"] {
                let named = rule[field].as_array().into_iter().flatten();
                let wild = named.filter(|one| one.as_str().unwrap().contains('*')).count();
                assert_eq!(wild, 0, "{name}: {rule}");
            }
        }
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
