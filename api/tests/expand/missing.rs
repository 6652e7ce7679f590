//! Rule 7: templates that do not exist, or extend what does not.

use ray_api::expand::Request;
use serde_json::json;

use crate::world::{World, cluster, compute, image, with, world};

#[test]
fn a_missing_template_is_denied_with_near_names() {
    let object = with(
        cluster(),
        "/spec/workerGroupSpecs/0/computeTemplate",
        json!("a10"),
    );
    let denials = world().expand(&object, None).unwrap_err();
    assert_eq!(
        denials[0].to_string(),
        "spec.workerGroupSpecs[0].computeTemplate: ComputeTemplate team-a/a10 not found, and no \
         ClusterComputeTemplate of that name; did you mean `a100`?"
    );
    let request = Request {
        namespace: "team-a",
        object: &object,
        old_object: None,
        dry_run: true,
        field_manager: None,
    };
    let expanded = world().write(request).unwrap();
    assert!(expanded.warnings.iter().any(|w| w.contains("a10 not found")));
    assert!(
        expanded
            .object
            .pointer("/spec/headGroupSpec/template/spec/containers/0")
            .is_some()
    );
}

#[test]
fn a_field_is_named_by_its_place_in_the_list() {
    let groups = json!([{"replicas": 1}, {"groupName": "w", "computeTemplate": "a10"}]);
    let object = with(cluster(), "/spec/workerGroupSpecs", groups);
    let denials = world().expand(&object, None).unwrap_err();
    assert_eq!(denials[0].field, "spec.workerGroupSpecs[1].computeTemplate");
}

#[test]
fn circles_and_depth_of_extends_are_named() {
    let mut world = world();
    world
        .compute
        .push(compute(Some("team-a"), "x", json!({"extends": "y"})));
    world
        .compute
        .push(compute(Some("team-a"), "y", json!({"extends": "x"})));
    let object = with(cluster(), "/spec/headGroupSpec/computeTemplate", json!("x"));
    let denials = world.expand(&object, None).unwrap_err();
    assert!(
        denials[0].message.contains("y extends x, which leads back to it"),
        "{}",
        denials[0].message
    );
}

#[test]
fn a_chain_of_eight_passes_and_one_of_nine_is_too_deep() {
    let mut world = World {
        image: vec![image("torch", Some("one"))],
        ..World::default()
    };
    // Half of them cluster-wide: a chain may leave its namespace, and counts on.
    for depth in 0..9 {
        let namespace = (depth > 4).then_some("team-a");
        let spec = match depth {
            0 => json!({"nodeSelector": {"root": "yes"}}),
            _ => json!({"extends": format!("t{}", depth - 1)}),
        };
        world.compute.push(compute(namespace, &format!("t{depth}"), spec));
    }
    let naming = |name: &str| {
        let mut object = cluster();
        object["spec"]["workerGroupSpecs"] = json!([]);
        with(object, "/spec/headGroupSpec/computeTemplate", json!(name))
    };
    let expanded = world.expand(&naming("t7"), None).unwrap().object;
    let root = "/spec/headGroupSpec/template/spec/nodeSelector/root";
    assert_eq!(expanded.pointer(root), Some(&json!("yes")));
    let denials = world.expand(&naming("t8"), None).unwrap_err();
    assert!(denials[0].message.contains("deeper than 8"), "{}", denials[0]);
}

#[test]
fn the_namespaces_template_goes_before_the_cluster_wide_one() {
    let pool = |name: &str| json!({"nodeSelector": {"pool": name}});
    let mut world = world();
    world.compute.push(compute(None, "small", pool("everybody")));
    world
        .compute
        .push(compute(Some("team-b"), "gpu", pool("another")));
    let expanded = world.expand(&cluster(), None).unwrap().object;
    let head = "/spec/headGroupSpec/template/spec/nodeSelector/pool";
    assert_eq!(expanded.pointer(head), Some(&json!("a")));
    // A cluster-wide template extends cluster-wide ones alone, whatever a namespace calls its own.
    world.compute.push(compute(Some("team-a"), "gpu", pool("ours")));
    let expanded = world.expand(&cluster(), None).unwrap().object;
    let worker = "/spec/workerGroupSpecs/0/template/spec";
    assert_eq!(expanded.pointer(worker).unwrap()["runtimeClassName"], "nvidia");
    assert_eq!(expanded.pointer(worker).unwrap().get("nodeSelector"), None);
    // Without its own the namespace gets the cluster-wide one.
    world.compute.remove(0);
    let expanded = world.expand(&cluster(), None).unwrap().object;
    assert_eq!(expanded.pointer(head), Some(&json!("everybody")));
}

#[test]
fn another_namespaces_templates_are_neither_used_nor_named() {
    let mut world = world();
    world.compute.push(compute(
        Some("team-b"),
        "secret-a10",
        json!({"nodeSelector": {"pool": "b"}}),
    ));
    let named = with(
        cluster(),
        "/spec/headGroupSpec/computeTemplate",
        json!("secret-a10"),
    );
    let denials = world.expand(&named, None).unwrap_err();
    assert!(
        denials[0].message.contains("team-a/secret-a10 not found"),
        "{}",
        denials[0]
    );
    let mistyped = with(
        cluster(),
        "/spec/headGroupSpec/computeTemplate",
        json!("secret-a1"),
    );
    let denials = world.expand(&mistyped, None).unwrap_err();
    assert!(!denials[0].message.contains("secret-a10"), "{}", denials[0]);
}
