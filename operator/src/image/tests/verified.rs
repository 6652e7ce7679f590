//! What is said of an image that was started once.

use serde_json::json;

use super::super::attempt::{Found, Verification};
use super::super::status::notices;
use super::template;
use super::world::World;

#[test]
fn an_image_without_ray_is_a_failure_and_another_ray_a_warning() {
    let mut world = World::new(template(json!({})));
    world.verify = true;
    world.step();
    world.succeed();
    world.step();
    let verifications = world.observed.verifications.clone();
    world.observed.verifications.get_mut(&1).unwrap().1 =
        Verification::Failed("No module named 'ray'".to_owned());
    world.step();
    assert_eq!(world.conditions(), "False/False/True RayMissing");
    assert_eq!(world.status().image, None);

    world.observed.verifications = verifications;
    let found = Found {
        ray: Some("2.49.0".to_owned()),
        ..Found::default()
    };
    world.observed.verifications.get_mut(&1).unwrap().1 = Verification::Found(found);
    let before = world.template.clone();
    let plan = world.step();
    assert_eq!(world.conditions(), "True/False/False Built");
    let said = notices(&before, world.status(), &plan.phase);
    assert!(
        said.iter()
            .any(|notice| notice.is_warning && notice.note.contains("2.49.0")),
        "{said:?}"
    );
}

#[test]
fn another_user_than_the_one_that_is_meant_is_a_warning() {
    let root = json!({"user": "root", "uid": 0, "has_ray_user": true});
    let ray = json!({"user": "ray", "uid": 1000, "has_ray_user": true});
    let vim = json!(["vim"]);
    for (spec, found, warns) in [
        (json!({}), &ray, false),
        (json!({}), &root, true),
        (json!({"baseImage": "mine/base:1"}), &root, false),
        (json!({"baseImage": "mine/base:1"}), &ray, false),
        (json!({"user": "root"}), &root, false),
        (json!({"user": "root"}), &ray, true),
        (json!({"user": "1000:100"}), &ray, false),
        (json!({"user": "1001"}), &ray, true),
        (json!({"systemPackages": vim}), &ray, false),
        // Root by our own guess, in an image made for somebody else.
        (
            json!({"systemPackages": vim, "baseImage": "mine/base:1"}),
            &root,
            true,
        ),
        (
            json!({"systemPackages": vim, "baseImage": "mine/base:1", "user": "root"}),
            &root,
            false,
        ),
    ] {
        let mut world = World::new(template(spec.clone()));
        world.verify = true;
        world.step();
        world.succeed();
        world.step();
        let found: Found = serde_json::from_value(found.clone()).unwrap();
        world.observed.verifications.get_mut(&1).unwrap().1 = Verification::Found(found);
        let before = world.template.clone();
        let plan = world.step();
        let said = notices(&before, world.status(), &plan.phase);
        let warned = said
            .iter()
            .any(|notice| notice.is_warning && notice.note.contains("set spec.user"));
        assert_eq!(warned, warns, "{spec}: {said:?}");
    }
}
