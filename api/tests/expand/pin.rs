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

/// The cluster of the other tests, with images of its own: it runs without a webhook.
fn running() -> Value {
    let template = |name: &str| json!({"spec": {"containers": [{"name": name, "image": "own:1"}]}});
    let mut object = cluster();
    object["spec"]["headGroupSpec"]["template"] = template("ray-head");
    object["spec"]["workerGroupSpecs"][0]["template"] = template("ray-worker");
    object
}

#[test]
fn a_running_cluster_from_before_the_webhook_is_expanded_only_when_asked() {
    let old = running();
    let annotate = |key: &str| {
        let mut object = old.clone();
        object["metadata"]["annotations"] = json!({(key): "1"});
        object
    };
    let noted = annotate("note");
    let untouched = world().expand(&noted, Some(&old)).unwrap();
    assert_eq!(untouched.object, noted);
    let told = |field: &str| {
        let mut warnings = untouched.warnings.iter();
        warnings.any(|one| one.starts_with(&format!("{field}: ")) && one.contains("templates.ray.io/refresh"))
    };
    assert!(
        told("spec.headGroupSpec.computeTemplate") && told("spec.imageTemplate"),
        "{:?}",
        untouched.warnings
    );

    let refreshed = world()
        .expand(&annotate("templates.ray.io/refresh"), Some(&old))
        .unwrap();
    let cpu = "/spec/headGroupSpec/template/spec/containers/0/resources/limits/cpu";
    assert_eq!(refreshed.object.pointer(cpu), Some(&json!("2")));

    // Another reference is asking, for its group alone.
    let mut changed = old.clone();
    changed["spec"]["workerGroupSpecs"][0]["computeTemplate"] = json!("gpu");
    let changed = world().expand(&changed, Some(&old)).unwrap().object;
    let worker = "/spec/workerGroupSpecs/0/template/spec/runtimeClassName";
    assert_eq!(changed.pointer(worker), Some(&json!("nvidia")));
    assert_eq!(changed.pointer(cpu), None);
    // So is another group.
    let mut more = old.clone();
    let group = json!({"groupName": "more", "replicas": 1});
    more["spec"]["workerGroupSpecs"]
        .as_array_mut()
        .unwrap()
        .push(group);
    let more = world().expand(&more, Some(&old)).unwrap().object;
    assert_eq!(
        more["spec"]["workerGroupSpecs"][1]["template"]["spec"]["containers"][0]["image"],
        "reg/torch@sha256:one"
    );
    assert_eq!(more["spec"]["headGroupSpec"], old["spec"]["headGroupSpec"]);

    // What cannot have a pod yet is expanded by the next write of any kind.
    let mut suspended = old.clone();
    suspended["spec"]["suspend"] = json!(true);
    for old in [cluster(), suspended] {
        let expanded = world().expand(&touch(&old), Some(&old)).unwrap().object;
        assert_eq!(expanded.pointer(cpu), Some(&json!("2")));
    }
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
