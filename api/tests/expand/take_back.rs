//! Rule 4: a removed reference takes its values with it, and nothing of the user's.

use ray_api::expand::Request;
use serde_json::{Value, json};

use crate::world::{cluster, touch, with, world};

/// The cluster without the reference of its head.
fn without_compute(cluster: &Value) -> Value {
    let mut cluster = cluster.clone();
    let head = cluster["spec"]["headGroupSpec"].as_object_mut().unwrap();
    head.remove("computeTemplate");
    cluster
}

#[test]
fn a_removed_reference_is_taken_back_and_a_pruned_one_is_not() {
    let old = world().expand(&cluster(), None).unwrap().object;
    let removed = without_compute(&old);
    let expanded = world().expand(&removed, Some(&old)).unwrap();
    let head = &expanded.object["spec"]["headGroupSpec"]["template"]["spec"];
    assert_eq!(
        head,
        &json!({"containers": [{"name": "ray-head", "image": "reg/torch@sha256:one"}], "imagePullSecrets": [{"name": "pull"}]})
    );

    // KubeRay's CRD prunes the fields even on read.
    let mut pruned = old.clone();
    for path in ["/spec", "/spec/headGroupSpec", "/spec/workerGroupSpecs/0"] {
        let fields = pruned.pointer_mut(path).unwrap().as_object_mut().unwrap();
        fields.remove("computeTemplate");
        fields.remove("imageTemplate");
    }
    let kept = world().expand(&touch(&pruned), Some(&pruned)).unwrap();
    assert_eq!(kept.object, pruned);
    assert!(kept.warnings.iter().any(|w| w.contains("stays")));
}

#[test]
fn a_value_that_the_user_changed_stays_when_the_reference_goes() {
    let old = world().expand(&cluster(), None).unwrap().object;
    let cpu = "/spec/headGroupSpec/template/spec/containers/0/resources/limits/cpu";
    let edited = world()
        .expand(&with(old.clone(), cpu, json!("7")), Some(&old))
        .unwrap()
        .object;
    assert_eq!(edited.pointer(cpu), Some(&json!("7")));
    let mut removed = edited.clone();
    removed["spec"]["headGroupSpec"]
        .as_object_mut()
        .unwrap()
        .remove("computeTemplate");
    let expanded = world().expand(&removed, Some(&edited)).unwrap().object;
    assert_eq!(
        expanded.pointer("/spec/headGroupSpec/template/spec/containers/0/resources"),
        Some(&json!({"limits": {"cpu": "7"}}))
    );
    // And a re-apply that drops the edit gets the given value again, not none.
    let reapplied = world().expand(&cluster(), Some(&edited)).unwrap().object;
    assert_eq!(reapplied.pointer(cpu), Some(&json!("2")));
}

#[test]
fn values_that_the_manifest_names_now_are_the_users() {
    let old = world().expand(&cluster(), None).unwrap().object;
    let mut inlined = old.clone();
    let head = inlined["spec"]["headGroupSpec"].as_object_mut().unwrap();
    head.remove("computeTemplate");
    inlined["metadata"]["managedFields"] = json!([{"manager": "me", "operation": "Apply", "fieldsV1":
        {"f:spec": {"f:headGroupSpec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"ray-head\"}":
            {".": {}, "f:name": {}, "f:resources": {"f:limits": {"f:cpu": {}}}}}}}}}}}]);
    let expanded = world().expand(&inlined, Some(&old)).unwrap().object;
    assert_eq!(
        expanded.pointer("/spec/headGroupSpec/template/spec/containers/0/resources"),
        Some(&json!({"limits": {"cpu": "2"}}))
    );
}

#[test]
fn an_empty_group_that_someone_applied_owns_nothing_in_it() {
    let old = world().expand(&cluster(), None).unwrap().object;
    let mut removed = without_compute(&old);
    removed["metadata"]["managedFields"] =
        json!([{"manager": "me", "operation": "Apply", "fieldsV1": {"f:spec": {"f:headGroupSpec": {}}}}]);
    let request = Request {
        namespace: "team-a",
        object: &removed,
        old_object: Some(&old),
        dry_run: false,
        field_manager: Some("me"),
    };
    let expanded = world().write(request).unwrap().object;
    assert_eq!(
        expanded.pointer("/spec/headGroupSpec/template/spec/containers/0"),
        Some(&json!({"name": "ray-head", "image": "reg/torch@sha256:one"}))
    );
}
