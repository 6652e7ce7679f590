//! The rules in Rust, held to the table that the API server is held to as well (`tests/tests/crds.rs`).

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use ray_api::image;
use ray_api::ray::RayCluster;
use ray_api::template::{ClusterComputeTemplate, ComputeTemplate, ImageTemplate};
use ray_api::validate::{self, Class};
use serde_json::{Value, json};

fn cases() -> Vec<Value> {
    serde_saphyr::from_str(include_str!("fixtures/rules.yaml")).unwrap()
}

/// A valid object of the kind, as `tests/tests/crds.rs` has it too.
fn base(kind: &str) -> Value {
    match kind {
        "RayCluster" => cluster_json(),
        "ComputeTemplate" | "ClusterComputeTemplate" => {
            json!({"metadata": {"name": "base-case"}, "spec": {}})
        }
        _ => json!({"metadata": {"name": "base-case"}, "spec": {"baseImage": "rayproject/ray:2.60.0"}}),
    }
}

fn cluster_json() -> Value {
    json!({
        "metadata": {"name": "base-case"},
        "spec": {
            "headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray-head", "image": "ray"}]}}},
            "workerGroupSpecs": [{
                "groupName": "g",
                "minReplicas": 0,
                "maxReplicas": 5,
                "template": {"spec": {"containers": [{"name": "ray-worker", "image": "ray"}]}},
            }],
        },
    })
}

fn cluster(patch: &Value) -> RayCluster {
    let mut object = cluster_json();
    merge(&mut object, patch);
    decoded(object)
}

/// Decodes as after an API server: defaults of the CRD are there, nulls are not.
fn decoded(mut object: Value) -> RayCluster {
    for group in object["spec"]["workerGroupSpecs"].as_array_mut().unwrap() {
        let group = group.as_object_mut().unwrap();
        group.retain(|_, value| !value.is_null());
        for (field, default) in [("replicas", 0), ("minReplicas", 0), ("maxReplicas", i32::MAX)] {
            group.entry(field).or_insert_with(|| json!(default));
        }
    }
    serde_json::from_value(object).unwrap()
}

/// JSON merge patch (RFC 7386).
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

/// Fields that Rust finds wrong.
fn fields(kind: &str, object: Value) -> Vec<String> {
    match kind {
        "RayCluster" => validate::cluster(&decoded(object))
            .into_iter()
            .map(|error| error.field)
            .collect(),
        "ComputeTemplate" => {
            let template: ComputeTemplate = serde_json::from_value(object).unwrap();
            validate::compute_template("base-case", &template.spec)
                .into_iter()
                .map(|error| error.field)
                .collect()
        }
        "ClusterComputeTemplate" => {
            let template: ClusterComputeTemplate = serde_json::from_value(object).unwrap();
            validate::compute_template("base-case", &template.spec.compute)
                .into_iter()
                .map(|error| error.field)
                .collect()
        }
        _ => {
            let template: ImageTemplate = serde_json::from_value(object).unwrap();
            image::validate(&template.spec)
                .into_iter()
                .map(|error| error.field)
                .collect()
        }
    }
}

#[test]
fn each_case_is_judged_as_the_table_says() {
    for case in cases() {
        let name = case["name"].as_str().unwrap();
        for kind in kinds(&case) {
            let mut object = base(kind);
            merge(&mut object, &case["patch"]);
            match case["by"].as_str().unwrap() {
                "both" | "rust" => {
                    let field = case["field"].as_str().unwrap();
                    let found = fields(kind, object);
                    assert!(
                        found.iter().any(|found| found == field),
                        "{kind}: {name}: {found:?}"
                    );
                }
                "nobody" => assert_eq!(fields(kind, object), Vec::<String>::new(), "{kind}: {name}"),
                // An enum of the API that a Rust enum cannot even hold, or what the API server alone has to say.
                by => assert_eq!(by, "crd", "{name}"),
            }
        }
    }
}

/// The kinds that a case is about: cluster-wide templates are held to the rules of the others.
fn kinds(case: &Value) -> Vec<&str> {
    match case["kind"].as_str().unwrap_or("RayCluster") {
        "ComputeTemplate" => vec!["ComputeTemplate", "ClusterComputeTemplate"],
        kind => vec![kind],
    }
}

#[test]
fn an_update_is_blamed_for_new_errors_only() {
    let broken = json!({"spec": {"workerGroupSpecs": [
        {"groupName": "fine", "template": {"spec": {"containers": [{"name": "w"}]}}},
        {"groupName": "broken", "minReplicas": 5, "maxReplicas": 1, "template": {"spec": {"containers": [{"name": "w"}]}}},
    ]}});
    let old = cluster(&broken);
    assert_eq!(validate::new_errors(&old, &old), []);

    // The first group goes, and the broken one takes its index.
    let mut moved = broken.clone();
    moved["spec"]["workerGroupSpecs"]
        .as_array_mut()
        .unwrap()
        .remove(0);
    moved["spec"]["workerGroupSpecs"][0]["minReplicas"] = json!(6);
    assert_eq!(validate::new_errors(&old, &cluster(&moved)), []);

    let mut worse = broken.clone();
    worse["spec"]["workerGroupSpecs"][0]["minReplicas"] = json!(9);
    worse["spec"]["workerGroupSpecs"][0]["maxReplicas"] = json!(8);
    let errors = validate::new_errors(&old, &cluster(&worse));
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].field, "spec.workerGroupSpecs[0].minReplicas");
    assert_eq!(
        errors[0].to_string(),
        "spec.workerGroupSpecs[0].minReplicas: 9 is above maxReplicas 8: lower it, or raise maxReplicas"
    );
}

#[test]
fn missing_bounds_need_the_autoscaler() {
    // No CRD default fills them in: an object of an older CRD.
    let mut object = cluster_json();
    object["spec"]["workerGroupSpecs"][0]
        .as_object_mut()
        .unwrap()
        .retain(|key, _| !key.ends_with("Replicas"));
    let without: RayCluster = serde_json::from_value(object).unwrap();
    let rules: Vec<_> = validate::cluster(&without)
        .iter()
        .map(|error| error.rule)
        .collect();
    assert_eq!(rules, ["C5", "C5"]);
    let mut autoscaled = without;
    autoscaled.spec.enable_in_tree_autoscaling = Some(true);
    assert_eq!(validate::cluster(&autoscaled), []);
}

#[test]
fn suspending_and_suspended_exclude_each_other() {
    let condition = |type_: &str| json!({"type": type_, "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let one = cluster(&json!({"status": {"conditions": [condition("RayClusterSuspending")]}}));
    assert_eq!(validate::cluster(&one), []);
    let both = cluster(&json!({"status": {"conditions": [
        condition("RayClusterSuspending"), condition("RayClusterSuspended"),
    ]}}));
    let errors = validate::cluster(&both);
    assert_eq!((errors[0].rule, errors[0].class), ("C24", Class::Status));
    assert_eq!(errors[0].class.reason(), "InvalidRayClusterStatus");
}

#[test]
fn restarting_workers_of_the_first_autoscaler_are_a_warning() {
    let with = |version: &str| {
        cluster(&json!({"spec": {
            "enableInTreeAutoscaling": true,
            "autoscalerOptions": {"version": version},
            "workerGroupSpecs": [{"groupName": "g", "template": {"spec": {"restartPolicy": "Always", "containers": [{"name": "w"}]}}}],
        }}))
    };
    let warnings = validate::warnings(&with("v1"));
    assert_eq!(
        warnings[0].field,
        "spec.workerGroupSpecs[0].template.spec.restartPolicy"
    );
    assert_eq!(validate::cluster(&with("v1")), []);
    assert_eq!(validate::warnings(&with("v2")), []);
}

#[test]
fn what_kuberay_runs_is_a_warning() {
    let odd = cluster(&json!({"spec": {
        "headGroupSpec": {"resources": {"cpu": "two"}},
        "workerGroupSpecs": [
            {"groupName": "g", "replicas": -1, "numOfHosts": -1, "template": {"spec": {"containers": [{"name": "w"}]}}},
            {"groupName": "h", "replicas": 8, "maxReplicas": 4, "template": {"spec": {"containers": [{"name": "w"}]}}},
        ],
    }}));
    assert_eq!(validate::cluster(&odd), []);
    let fields: Vec<_> = validate::warnings(&odd)
        .into_iter()
        .map(|warning| warning.field)
        .collect();
    assert_eq!(
        fields,
        [
            "spec.headGroupSpec.resources[cpu]",
            "spec.workerGroupSpecs[0].replicas",
            "spec.workerGroupSpecs[0].numOfHosts",
            "spec.workerGroupSpecs[1].replicas",
        ]
    );
}

#[test]
fn what_is_not_supported_is_named_but_not_invalid() {
    let asking = cluster(&json!({
        "metadata": {"labels": {"ray.io/gang-scheduling-enabled": "true"}},
        "spec": {
            "tlsOptions": {"enabled": true},
            "networkPolicy": {},
            "historyServerOptions": {"collectorOptions": {}},
            "gcsFaultToleranceOptions": {"backend": "rocksdb"},
        },
    }));
    let fields: Vec<_> = validate::unsupported(&asking)
        .into_iter()
        .map(|unsupported| unsupported.field)
        .collect();
    assert_eq!(
        fields,
        [
            "spec.tlsOptions.enabled",
            "spec.networkPolicy",
            "spec.historyServerOptions",
            "spec.gcsFaultToleranceOptions.backend",
            "metadata.labels[ray.io/gang-scheduling-enabled]",
        ]
    );
    assert_eq!(validate::cluster(&asking), []);
    assert_eq!(
        validate::unsupported(&cluster(&json!({"spec": {"tlsOptions": {"enabled": false}}}))),
        []
    );
}
