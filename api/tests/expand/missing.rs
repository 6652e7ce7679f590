//! Rule 7: templates that do not exist, or extend what does not.

use ray_api::expand::Request;
use serde_json::json;

use crate::world::{cluster, compute, with, world};

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
