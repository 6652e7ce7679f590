//! Rule 6: a cluster waits for its image.

use ray_api::expand::strip;
use serde_json::json;

use crate::world::{World, cluster, image, touch, with, world};

#[test]
fn an_image_that_is_not_there_gates_the_cluster_until_it_is() {
    let object = with(cluster(), "/spec/imageTemplate", json!("slow"));
    let gated = world().expand(&object, None).unwrap();
    assert_eq!(gated.object["spec"]["suspend"], true);
    assert_eq!(
        gated.object["metadata"]["labels"]["templates.ray.io/gated"],
        "true"
    );
    assert_eq!(strip(&gated.object), object);
    assert!(
        gated
            .warnings
            .iter()
            .any(|w| w.contains("is suspended until ImageTemplate team-a/slow has an image"))
    );
    // Again and again, as re-applies do.
    assert_eq!(
        world().expand(&object, Some(&gated.object)).unwrap().object,
        gated.object
    );

    let mut world = world();
    world.image[1] = image("slow", Some("new"));
    let mut touched = gated.object.clone();
    touched["metadata"]["annotations"]["templates.ray.io/gate-lift"] = json!("sha256:new");
    let lifted = world.expand(&touched, Some(&gated.object)).unwrap().object;
    assert_eq!(lifted["spec"]["suspend"], false);
    assert_eq!(lifted.pointer("/metadata/labels"), None);
    assert_eq!(
        lifted.pointer("/metadata/annotations/templates.ray.io~1gate-lift"),
        None
    );
    assert_eq!(
        lifted.pointer("/spec/headGroupSpec/template/spec/containers/0/image"),
        Some(&json!("reg/slow@sha256:new"))
    );
    assert_eq!(lifted["spec"]["rayVersion"], "2.60.0");
    assert_eq!(strip(&lifted), object);
    assert_eq!(
        World::default().expand(&object, Some(&lifted)).unwrap().object,
        lifted
    );
}

#[test]
fn a_users_own_suspend_is_never_lifted() {
    let mut object = with(cluster(), "/spec/imageTemplate", json!("slow"));
    object["spec"]["suspend"] = json!(true);
    let gated = world().expand(&object, None).unwrap().object;
    let mut world = world();
    world.image[1] = image("slow", Some("new"));
    let lifted = world.expand(&touch(&gated), Some(&gated)).unwrap().object;
    assert_eq!(lifted["spec"]["suspend"], true);
    assert_eq!(lifted.pointer("/metadata/labels"), None);
}

#[test]
fn a_suspend_that_the_user_asks_for_during_the_gate_is_kept() {
    let object = with(cluster(), "/spec/imageTemplate", json!("slow"));
    let mut gated = world().expand(&object, None).unwrap().object;
    gated["metadata"]["managedFields"] =
        json!([{"manager": "me", "operation": "Apply", "fieldsV1": {"f:spec": {"f:suspend": {}}}}]);
    let mut world = world();
    world.image[1] = image("slow", Some("new"));
    assert_eq!(
        world.expand(&touch(&gated), Some(&gated)).unwrap().object["spec"]["suspend"],
        true
    );
}

#[test]
fn an_explicit_false_is_gated_and_comes_back() {
    let mut object = with(cluster(), "/spec/imageTemplate", json!("slow"));
    object["spec"]["suspend"] = json!(false);
    let gated = world().expand(&object, None).unwrap().object;
    assert_eq!(gated["spec"]["suspend"], true);
    assert_eq!(strip(&gated), object);
    let mut world = world();
    world.image[1] = image("slow", Some("new"));
    let lifted = world.expand(&touch(&gated), Some(&gated)).unwrap().object;
    assert_eq!(lifted["spec"]["suspend"], false);
}

#[test]
fn a_queued_cluster_is_left_to_kueue() {
    let mut object = with(cluster(), "/spec/imageTemplate", json!("slow"));
    object["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "q"});
    let gated = world().expand(&object, None).unwrap().object;
    assert_eq!(gated.pointer("/spec/suspend"), None);
    let denial = ray_api::expand::check_gate(&gated).unwrap();
    assert_eq!(denial.field, "spec.suspend");
    let mut suspended = gated.clone();
    suspended["spec"]["suspend"] = json!(true);
    assert_eq!(ray_api::expand::check_gate(&suspended), None);
    let mut world = world();
    world.image[1] = image("slow", Some("new"));
    assert_eq!(
        world.expand(&touch(&suspended), Some(&suspended)).unwrap().object["spec"]["suspend"],
        true
    );
}

#[test]
fn a_running_cluster_is_never_suspended_for_an_image_to_come() {
    let old = world().expand(&cluster(), None).unwrap().object;
    let changed = with(old.clone(), "/spec/imageTemplate", json!("slow"));
    let waiting = world().expand(&changed, Some(&old)).unwrap().object;
    assert_eq!(waiting.pointer("/spec/suspend"), None);
    assert_eq!(waiting["metadata"]["labels"]["templates.ray.io/gated"], "true");
    assert_eq!(
        waiting.pointer("/spec/headGroupSpec/template/spec/containers/0/image"),
        Some(&json!("reg/torch@sha256:one"))
    );
    let mut world = world();
    world.image[1] = image("slow", Some("new"));
    let filled = world.expand(&touch(&waiting), Some(&waiting)).unwrap().object;
    assert_eq!(
        filled.pointer("/spec/headGroupSpec/template/spec/containers/0/image"),
        Some(&json!("reg/slow@sha256:new"))
    );
}
