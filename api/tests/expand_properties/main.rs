//! Expansion over generated clusters and templates.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod generate;

use proptest::option;
use proptest::prelude::*;
use ray_api::expand::strip;
use ray_api::ray::RayCluster;
use ray_api::validate;
use serde::Deserialize;
use serde_json::{Value, json};

use generate::{cluster, hostile, world};

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
        prop_assert!(keeps(&expanded, &cluster), "{expanded:#}");
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
            let head = spec["headGroupSpec"].as_object_mut().unwrap();
            head.remove("computeTemplate");
            head.remove("imageTemplate");
            for group in spec["workerGroupSpecs"].as_array_mut().unwrap() {
                group.as_object_mut().unwrap().remove("computeTemplate");
                group.as_object_mut().unwrap().remove("imageTemplate");
            }
            spec.remove("computeTemplate");
            spec.remove("imageTemplate");
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
