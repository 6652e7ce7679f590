//! Expansion over generated clusters and templates.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod generate;
mod hostile;

use proptest::option;
use proptest::prelude::*;
use ray_api::expand::{GroupKey, Origin, group, reference as group_reference, strip};
use ray_api::meta::annotation::{COMPUTE_TEMPLATE, IMAGE_TEMPLATE};
use ray_api::ray::RayCluster;
use ray_api::validate;
use serde::Deserialize;
use serde_json::{Value, json};

use generate::{cluster, reference, world};
use hostile::hostile;

/// A write that changes no value, as the template controller's.
fn touch(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["annotations"]["templates.ray.io/gate-lift"] = json!("now");
    object
}

/// Adds a field to every object below, as a schema's defaults would.
fn add_defaults(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(add_defaults);
            fields.entry("defaulted").or_insert(json!("default"));
        }
        Value::Array(items) => items.iter_mut().for_each(add_defaults),
        _ => {}
    }
}

/// Without the `numOfHosts: 1` of groups that refer by annotation: KubeRay's CRD, which makes people write annotations, has it
/// as default, and nothing tells who wrote it.
fn without_default_hosts(mut cluster: Value) -> Value {
    let by_annotation = |cluster: &Value, key: &GroupKey| {
        group_reference(cluster, key, Origin::Compute).is_some_and(|reference| reference.by_annotation)
    };
    for key in group::keys(&cluster) {
        if by_annotation(&cluster, &key)
            && let Some(Value::Object(fields)) = group::get_mut(&mut cluster, &key)
            && fields.get("numOfHosts") == Some(&json!(1))
        {
            fields.remove("numOfHosts");
        }
    }
    cluster
}

fn group_at<'a>(object: &'a Value, name: &str) -> &'a Value {
    let groups = object["spec"]["workerGroupSpecs"].as_array().unwrap();
    groups.iter().find(|group| group["groupName"] == name).unwrap()
}

/// Whether all that is in `part` is in `whole`; lists may have grown at their end.
fn keeps(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(key, value)| whole.get(key).is_some_and(|whole| keeps(whole, value))),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() >= part.len() && part.iter().zip(whole).all(|(part, whole)| keeps(whole, part))
        }
        _ => whole == part,
    }
}

fn groups_of(object: &mut Value) -> Vec<&mut Value> {
    let spec = object["spec"].as_object_mut().unwrap();
    let mut groups = Vec::new();
    for (field, value) in spec {
        match (field.as_str(), value) {
            ("headGroupSpec", head) => groups.push(head),
            ("workerGroupSpecs", Value::Array(workers)) => groups.extend(workers),
            _ => {}
        }
    }
    groups
}

fn remove_references(annotations: &mut Value) {
    let annotations = annotations.as_object_mut().unwrap();
    annotations.retain(|key, _| key != COMPUTE_TEMPLATE && key != IMAGE_TEMPLATE);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn expanding_twice_is_expanding_once(cluster in cluster(), world in world()) {
        let Some(once) = world.expand(&cluster, None) else { return Ok(()) };
        let once = Some(once);
        prop_assert_eq!(&world.expand(once.as_ref().unwrap(), None), &once);
        if once.as_ref().unwrap()["metadata"]["annotations"].is_object() {
            prop_assert_eq!(&world.expand(&touch(once.as_ref().unwrap()), once.as_ref()), &once);
        }
        prop_assert_eq!(&world.expand(&cluster, once.as_ref()), &once);
    }

    #[test]
    fn stripping_gives_back_what_was_written(cluster in cluster(), world in world()) {
        let Some(expanded) = world.expand(&cluster, None) else { return Ok(()) };
        prop_assert_eq!(strip(&expanded), cluster);
    }

    #[test]
    fn what_the_user_wrote_is_never_changed(cluster in cluster(), world in world()) {
        let Some(mut expanded) = world.expand(&cluster, None) else { return Ok(()) };
        // The gate alone may turn an explicit false; and an image's absence is its only reason.
        if world.image.is_none() && cluster["spec"]["suspend"] == false {
            expanded["spec"]["suspend"] = json!(false);
        }
        prop_assert!(keeps(&expanded, &without_default_hosts(cluster)), "{expanded:#}");
    }

    #[test]
    fn the_order_of_groups_does_not_matter(cluster in cluster(), world in world()) {
        let Some(expanded) = world.expand(&cluster, None) else { return Ok(()) };
        let mut reversed = cluster.clone();
        reversed["spec"]["workerGroupSpecs"].as_array_mut().unwrap().reverse();
        let reversed = world.expand(&reversed, None).unwrap();
        for group in expanded["spec"]["workerGroupSpecs"].as_array().unwrap() {
            prop_assert_eq!(group_at(&reversed, group["groupName"].as_str().unwrap()), group);
        }
        let mut swapped = touch(&expanded);
        swapped["spec"]["workerGroupSpecs"].as_array_mut().unwrap().reverse();
        let again = world.expand(&swapped, Some(&expanded)).unwrap();
        prop_assert_eq!(&again["spec"], &swapped["spec"]);
    }

    #[test]
    fn expansion_adds_no_fault(cluster in cluster(), world in world()) {
        let Some(expanded) = world.expand(&cluster, None) else { return Ok(()) };
        let faults = |object: &Value| validate::cluster(&RayCluster::deserialize(object).unwrap());
        let before = faults(&cluster);
        let added: Vec<_> = faults(&expanded).into_iter().filter(|fault| !before.contains(fault)).collect();
        prop_assert_eq!(added, []);
    }

    #[test]
    fn removing_every_reference_leaves_what_the_user_wrote(cluster in cluster(), world in world()) {
        let Some(expanded) = world.expand(&cluster, None) else { return Ok(()) };
        let without = |object: &Value| {
            let mut object = object.clone();
            let spec = object["spec"].as_object_mut().unwrap();
            let fields = ["computeTemplate", "imageTemplate"];
            spec.retain(|field, _| !fields.contains(&field.as_str()));
            for group in groups_of(&mut object) {
                group.as_object_mut().unwrap().retain(|field, _| !fields.contains(&field.as_str()));
                if let Some(annotations) = group.pointer_mut("/template/metadata/annotations") {
                    remove_references(annotations);
                }
            }
            if let Some(annotations) = object.pointer_mut("/metadata/annotations") {
                remove_references(annotations);
            }
            object
        };
        let mut after = world.expand(&without(&expanded), Some(&expanded)).unwrap();
        // A gate that was ours is lifted by an explicit false.
        if expanded["spec"]["suspend"] == true && cluster["spec"].get("suspend").is_none() {
            prop_assert_eq!(&after["spec"]["suspend"], &json!(false));
            after = strip(&after);
        }
        prop_assert_eq!(after, without(&cluster));
    }

    #[test]
    fn a_changed_reference_is_as_if_it_had_been_there_from_the_start(
        cluster in cluster(), world in world(), head in reference(), worker in reference(),
    ) {
        let change = |object: &Value| {
            let mut object = object.clone();
            for (at, group) in groups_of(&mut object).into_iter().enumerate() {
                group["computeTemplate"] = if at % 2 == 0 { head.clone() } else { worker.clone() };
            }
            object
        };
        let Some(expanded) = world.expand(&cluster, None) else { return Ok(()) };
        let wanted = world.expand(&change(&cluster), None);
        let changed = world.expand(&change(&expanded), Some(&expanded));
        let specs = |object: &Option<Value>| object.as_ref().map(|object| object["spec"].clone());
        prop_assert_eq!(specs(&changed), specs(&wanted));
        prop_assert_eq!(changed.map(|changed| strip(&changed)), wanted.map(|_| change(&cluster)));
    }

    #[test]
    fn defaults_inside_filled_values_are_not_the_users(cluster in cluster(), world in world()) {
        let Some(expanded) = world.expand(&cluster, None) else { return Ok(()) };
        let record = ray_api::expand::Record::of(&expanded).unwrap_or_default();
        let mut defaulted = expanded.clone();
        for (key, group) in record.groups() {
            let target = ray_api::expand::group::get_mut(&mut defaulted, &key).unwrap();
            for piece in group.filled.pieces.iter().filter(|piece| !piece.overridden) {
                if let Some(value) = ray_api::expand::path::get_mut(target, &piece.at.0, &piece.value) {
                    // Containers and their like are created by name, and then hold other pieces.
                    if piece.value.as_object().is_none_or(|fields| fields.len() > 1) {
                        add_defaults(value);
                    }
                }
            }
        }
        // The server keeps books; nobody owns what it added.
        defaulted["metadata"]["managedFields"] = json!([{"manager": "m", "operation": "Update", "fieldsV1": {"f:spec": {".": {}}}}]);
        let again = world.expand(&touch(&defaulted), Some(&defaulted)).unwrap();
        let overridden = |object: &Value| {
            let record = ray_api::expand::Record::of(object).unwrap_or_default();
            let flags = record.groups().flat_map(|(_, group)| group.filled.pieces.iter().map(|piece| piece.overridden).collect::<Vec<_>>());
            flags.collect::<Vec<_>>()
        };
        prop_assert_eq!(overridden(&again), overridden(&expanded));
    }

    #[test]
    fn hostile_shapes_are_answered_without_a_panic(object in hostile(), old in option::of(hostile()), world in world()) {
        let expanded = world.expand(&object, old.as_ref());
        if let Some(expanded) = expanded {
            let _ = strip(&expanded);
        }
    }
}
