//! Rules 2 and 3: what was filled is recorded, and stays while the reference does.

use ray_api::expand::{Needed, Record, Request};
use serde_json::{Value, json};

use crate::world::{World, cluster, compute, image, touch, world};

#[test]
fn an_unknown_or_broken_record_is_ignored() {
    let mut object = cluster();
    object["metadata"]["annotations"] = json!({"templates.ray.io/expansion": "not json"});
    let expanded = world().expand(&object, None).unwrap().object;
    assert!(Record::of(&expanded).is_some());
}

#[test]
fn re_applying_bare_groups_keeps_the_values_of_a_deleted_template() {
    let old = world().expand(&cluster(), None).unwrap().object;
    let mut bare = old.clone();
    bare["spec"]["workerGroupSpecs"] = cluster()["spec"]["workerGroupSpecs"].clone();
    let nothing = World::default();
    assert_eq!(nothing.expand(&bare, Some(&old)).unwrap().object, old);
    // kubectl replace: neither values nor record.
    assert_eq!(nothing.expand(&cluster(), Some(&old)).unwrap().object, old);
}

#[test]
fn an_edited_template_reaches_pinned_clusters_by_refresh_only() {
    let old = world().expand(&cluster(), None).unwrap().object;
    let mut world = world();
    world.compute[0] = compute(
        Some("team-a"),
        "small",
        json!({"resources": {"limits": {"cpu": "16"}}}),
    );
    world.image[0] = image("torch", Some("two"));
    assert_eq!(world.expand(&touch(&old), Some(&old)).unwrap().object, old);

    let mut refresh = old.clone();
    refresh["metadata"]["annotations"]["templates.ray.io/refresh"] = json!("1");
    let expanded = world.expand(&refresh, Some(&old)).unwrap();
    let head = &expanded.object["spec"]["headGroupSpec"]["template"]["spec"];
    assert_eq!(
        head["containers"][0]["resources"],
        json!({"limits": {"cpu": "16"}})
    );
    assert_eq!(head["containers"][0]["image"], "reg/torch@sha256:two");
    assert_eq!(head.get("nodeSelector"), None);
    assert!(
        expanded
            .warnings
            .iter()
            .any(|w| w.contains("new workers would run another Ray")),
        "{:?}",
        expanded.warnings
    );
    // The annotation stays; it is not a new value the next time.
    assert_eq!(
        World::default()
            .expand(&touch(&expanded.object), Some(&expanded.object))
            .unwrap()
            .object,
        expanded.object
    );
}

#[test]
fn a_record_in_a_request_does_not_make_its_references_old_ones() {
    let recorded = world().expand(&cluster(), None).unwrap().object;
    let asks = |world: &World, object: &Value, old: Option<&Value>| {
        let request = Request {
            namespace: "team-a",
            object,
            old_object: old,
            dry_run: false,
            field_manager: None,
        };
        world.added(&request)
    };
    let compute = |name: &str| Needed::Compute {
        namespace: "team-a".to_owned(),
        name: name.to_owned(),
    };
    let torch = Needed::Image {
        namespace: "team-a".to_owned(),
        name: "torch".to_owned(),
    };
    let a100 = Needed::ClusterCompute {
        name: "a100".to_owned(),
    };
    let all = vec![compute("small"), a100, torch.clone()];
    assert_eq!(asks(&world(), &cluster(), None), all);
    assert_eq!(
        asks(&world(), &recorded, None),
        all,
        "the record came with the request"
    );
    // A template that does not exist may, by the next refresh.
    let none = vec![compute("a100"), compute("small"), torch];
    assert_eq!(asks(&World::default(), &recorded, None), none);
    // Nor does a record that was smuggled in before its references.
    let mut bare = recorded.clone();
    bare["spec"]["headGroupSpec"]
        .as_object_mut()
        .unwrap()
        .remove("computeTemplate");
    assert_eq!(asks(&world(), &recorded, Some(&bare)), [compute("small")]);
    assert_eq!(asks(&world(), &touch(&recorded), Some(&recorded)), []);
}
