//! Rule 1: only what is unset is filled, from fields or annotations.

use ray_api::expand::{Record, Request, strip};
use serde_json::{Value, json};

use crate::world::{World, cluster, compute, world};

#[test]
fn eight_lines_become_a_full_cluster_and_back() {
    let expanded = world().expand(&cluster(), None).unwrap();
    let mut shown = expanded.object.clone();
    let record = shown["metadata"]["annotations"]["templates.ray.io/expansion"].take();
    shown["metadata"]["annotations"]["templates.ray.io/expansion"] =
        serde_json::from_str(record.as_str().unwrap()).unwrap();
    insta::assert_yaml_snapshot!(shown);
    assert_eq!(
        expanded.warnings,
        ["spec.headGroupSpec.computeTemplate: numOfHosts of the template means nothing in the head group"]
    );
    assert_eq!(strip(&expanded.object), cluster());
    assert_eq!(
        world().expand(&expanded.object, None).unwrap().object,
        expanded.object
    );
}

#[test]
fn what_the_user_wrote_wins_by_unit() {
    let own = json!({"spec": {
        "containers": [
            {"name": "mine", "resources": {"requests": {"cpu": "3"}}, "env": [{"name": "A", "value": "own"}, {"name": "B", "value": "2"}],
             "volumeMounts": [{"name": "x", "mountPath": "/dev/shm"}]},
            {"name": "sidecar", "image": "other"}],
        "volumes": [{"name": "x", "emptyDir": {}}], "nodeSelector": {"zone": "z"}}});
    let mut object = cluster();
    object["spec"]["headGroupSpec"]["template"] = own.clone();
    let expanded = world().expand(&object, None).unwrap();
    let spec = &expanded.object["spec"]["headGroupSpec"]["template"]["spec"];
    let ray = &spec["containers"][0];
    assert_eq!(
        ray["resources"],
        json!({"requests": {"cpu": "3"}, "limits": {"memory": "4Gi"}})
    );
    assert_eq!(
        ray["env"],
        json!([{"name": "A", "value": "own"}, {"name": "B", "value": "2"}])
    );
    assert_eq!(ray["image"], "reg/torch@sha256:one");
    assert_eq!(spec["containers"][1], own["spec"]["containers"][1]);
    assert_eq!(spec["nodeSelector"], json!({"zone": "z", "pool": "a"}));
    assert_eq!(
        spec["volumes"],
        json!([{"name": "x", "emptyDir": {}}, {"name": "scratch", "emptyDir": {}}])
    );
    assert!(
        expanded
            .warnings
            .iter()
            .any(|w| w.contains("cpu") && w.contains("/dev/shm")),
        "{:?}",
        expanded.warnings
    );
    assert_eq!(strip(&expanded.object), object);
}

#[test]
fn a_volume_of_that_name_for_something_else_is_denied() {
    let mut object = cluster();
    object["spec"]["headGroupSpec"]["template"] =
        json!({"spec": {"volumes": [{"name": "scratch", "hostPath": {"path": "/x"}}]}});
    let denials = world().expand(&object, None).unwrap_err();
    assert_eq!(denials.len(), 1);
    assert_eq!(denials[0].field, "spec.headGroupSpec");
    assert!(denials[0].message.contains("volume scratch"));
}

#[test]
fn annotations_stand_in_for_fields_and_kuberays_default_host_count_gives_way() {
    let object = json!({"metadata": {"name": "c", "annotations": {"templates.ray.io/image-template": "torch"}}, "spec": {
        "headGroupSpec": {"template": {"metadata": {"annotations": {"templates.ray.io/compute-template": "a100"}}}},
        "workerGroupSpecs": [{"groupName": "w", "numOfHosts": 1, "template": {"metadata": {"annotations": {"templates.ray.io/compute-template": "small"}}}}]}});
    let expanded = world().expand(&object, None).unwrap().object;
    assert_eq!(expanded["spec"]["workerGroupSpecs"][0]["numOfHosts"], 4);
    assert_eq!(
        expanded.pointer("/spec/headGroupSpec/template/spec/runtimeClassName"),
        Some(&json!("nvidia"))
    );
    assert_eq!(strip(&expanded), object);
    assert_eq!(
        World::default().expand(&object, Some(&expanded)).unwrap().object,
        expanded
    );
}

#[test]
fn a_schemas_defaults_in_an_atomic_list_are_nobodys_wish() {
    let object = json!({"metadata": {"name": "c", "managedFields": [{"manager": "me", "operation": "Apply",
            "fieldsV1": {"f:spec": {"f:headGroupSpec": {}, "f:workerGroupSpecs": {}}}}]},
        "spec": {"headGroupSpec": {}, "workerGroupSpecs": [{"groupName": "w", "numOfHosts": 1,
            "template": {"metadata": {"annotations": {"templates.ray.io/compute-template": "small"}}}}]}});
    let request = Request {
        namespace: "team-a",
        object: &object,
        old_object: None,
        dry_run: false,
        field_manager: Some("me"),
    };
    let expanded = world().write(request).unwrap().object;
    assert_eq!(expanded["spec"]["workerGroupSpecs"][0]["numOfHosts"], 4);
}

#[test]
fn ray_resources_give_way_to_flags_that_set_them() {
    let mut object = cluster();
    object["spec"]["headGroupSpec"]["rayStartParams"] = json!({"num-cpus": "0"});
    let expanded = world().expand(&object, None).unwrap();
    assert_eq!(expanded.object["spec"]["headGroupSpec"].get("resources"), None);
    assert!(
        expanded
            .warnings
            .iter()
            .any(|w| w.contains("rayStartParams sets num-cpus"))
    );
    let record = Record::of(&expanded.object).unwrap();
    assert_eq!(record.head.compute.unwrap().uid.as_deref(), Some("uid-small"));
}

#[test]
fn a_child_that_says_it_another_way_takes_the_place_of_its_parent() {
    let mut world = world();
    let volume = |name: &str| json!([{"name": name, "emptyDir": {}}]);
    let mount = |name: &str| json!([{"name": name, "mountPath": "/dev/shm"}]);
    for (name, spec) in [
        (
            "amounts",
            json!({"rayResources": {"fast": 2.0}, "sharedMemory": "1Gi"}),
        ),
        (
            "flags",
            json!({"extends": "amounts", "rayStartParams": {"num-cpus": "4", "block": "true"},
                "volumes": volume("shm"), "volumeMounts": mount("shm")}),
        ),
        (
            "amounts-again",
            json!({"extends": "flags", "rayResources": {"slow": 1.0}, "sharedMemory": "2Gi"}),
        ),
    ] {
        world.compute.push(compute(Some("team-a"), name, spec));
    }
    let head = |name: &str| {
        let mut object = cluster();
        object["spec"]["headGroupSpec"] = json!({"computeTemplate": name});
        world.expand(&object, None).unwrap().object["spec"]["headGroupSpec"].clone()
    };
    let mounted = |head: &Value| head["template"]["spec"]["containers"][0]["volumeMounts"].clone();
    let flags = head("flags");
    assert_eq!(flags["rayStartParams"], json!({"num-cpus": "4", "block": "true"}));
    assert_eq!(
        (&flags["resources"], mounted(&flags)),
        (&Value::Null, mount("shm"))
    );
    let again = head("amounts-again");
    assert_eq!(again["rayStartParams"], json!({"block": "true"}));
    assert_eq!(again["resources"], json!({"slow": "1"}));
    assert_eq!(mounted(&again), mount("shared-mem"));
}
