//! Expansion over generated clusters and templates.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use ray_api::expand::{Compute, Image, Needed, Request, Templates, expand, references, strip};
use ray_api::template::{ComputeTemplate, ImageTemplate};
use serde_json::{Map, Value, json};

const NAMESPACE: &str = "ns";
const TEMPLATES: [&str; 3] = ["t0", "t1", "t2"];

fn quantity() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("1".to_owned()),
        Just("500m".to_owned()),
        Just("2Gi".to_owned())
    ]
}

fn quantities() -> impl Strategy<Value = Value> {
    let name = prop_oneof![Just("cpu"), Just("memory"), Just("nvidia.com/gpu")];
    btree_map(name, quantity(), 1..3).prop_map(|map| json!(map))
}

fn strings() -> impl Strategy<Value = Value> {
    btree_map("[a-c](/[x-z])?", "[a-z]{1,3}", 1..3).prop_map(|map| json!(map))
}

fn env() -> impl Strategy<Value = Value> {
    btree_map("[A-E]", "[a-z]{0,3}", 1..4).prop_map(|map| {
        map.into_iter()
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect()
    })
}

fn tolerations() -> impl Strategy<Value = Value> {
    prop::collection::btree_set("[a-c]", 1..3).prop_map(|keys| {
        keys.into_iter()
            .map(|key| json!({"key": key, "operator": "Exists"}))
            .collect()
    })
}

/// Fields that are there or not.
fn fields(parts: Vec<(&'static str, BoxedStrategy<Value>)>) -> impl Strategy<Value = Value> {
    let parts: Vec<_> = parts
        .into_iter()
        .map(|(name, value)| {
            option::of(value).prop_map(move |value| value.map(|value| (name.to_owned(), value)))
        })
        .collect();
    parts.prop_map(|parts| Value::Object(parts.into_iter().flatten().collect::<Map<_, _>>()))
}

fn resources() -> BoxedStrategy<Value> {
    fields(vec![
        ("limits", quantities().boxed()),
        ("requests", quantities().boxed()),
    ])
    .boxed()
}

fn affinity() -> BoxedStrategy<Value> {
    "[a-c]"
        .prop_map(|key| {
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "Exists"}]}]}}})
        })
        .boxed()
}

fn template_spec() -> impl Strategy<Value = Value> {
    let volumes = btree_map("v[0-3]", "/m[0-3]", 1..3);
    let spec = fields(vec![
        ("resources", resources()),
        ("nodeSelector", strings().boxed()),
        ("labels", strings().boxed()),
        ("annotations", strings().boxed()),
        ("env", env().boxed()),
        ("tolerations", tolerations().boxed()),
        ("affinity", affinity()),
        ("priorityClassName", Just(json!("high")).boxed()),
        ("sharedMemory", Just(json!("1Gi")).boxed()),
        ("rayStartParams", strings().boxed()),
        ("rayResources", Just(json!({"slot": 0.5, "fast": 2.0})).boxed()),
        ("numOfHosts", (1..4).prop_map(|n| json!(n)).boxed()),
    ]);
    (spec, option::of(volumes)).prop_map(|(mut spec, volumes)| {
        if let Some(volumes) = volumes {
            spec["volumes"] = volumes
                .keys()
                .map(|name| json!({"name": name, "emptyDir": {}}))
                .collect();
            spec["volumeMounts"] = volumes
                .iter()
                .map(|(name, path)| json!({"name": name, "mountPath": path}))
                .collect();
            // Two volumes at one place would be refused at the template already.
            let mut seen = Vec::new();
            if let Some(mounts) = spec["volumeMounts"].as_array_mut() {
                mounts.retain(|mount| {
                    let new = !seen.contains(&mount["mountPath"]);
                    seen.push(mount["mountPath"].clone());
                    new
                });
            }
        }
        spec
    })
}

fn container() -> BoxedStrategy<Value> {
    let mounts = btree_map("/m[0-3]", Just("own"), 1..3).prop_map(|map| {
        map.into_iter()
            .map(|(path, name)| json!({"name": name, "mountPath": path}))
            .collect()
    });
    (
        "[a-z]{1,4}",
        fields(vec![
            ("resources", resources()),
            ("env", env().boxed()),
            ("image", Just(json!("own/image:1")).boxed()),
            ("volumeMounts", mounts.boxed()),
            ("unknownField", Just(json!({"kept": [1, {"x": null}]})).boxed()),
        ]),
    )
        .prop_map(|(name, mut container)| {
            container["name"] = json!(name);
            container
        })
        .boxed()
}

fn pod_template() -> BoxedStrategy<Value> {
    let spec = fields(vec![
        ("containers", vec(container(), 0..3).prop_map(Value::from).boxed()),
        ("nodeSelector", strings().boxed()),
        ("tolerations", tolerations().boxed()),
        ("affinity", affinity()),
        ("priorityClassName", Just(json!("own")).boxed()),
        ("volumes", Just(json!([{"name": "own", "emptyDir": {}}])).boxed()),
        ("imagePullSecrets", Just(json!([{"name": "mine"}])).boxed()),
    ]);
    let metadata = fields(vec![
        ("labels", strings().boxed()),
        ("annotations", strings().boxed()),
    ]);
    fields(vec![("spec", spec.boxed()), ("metadata", metadata.boxed())]).boxed()
}

fn reference() -> BoxedStrategy<Value> {
    prop::sample::select(&TEMPLATES[..])
        .prop_map(|name| json!(name))
        .boxed()
}

fn group() -> BoxedStrategy<Value> {
    fields(vec![
        ("template", pod_template()),
        ("computeTemplate", reference()),
        ("imageTemplate", Just(json!("i")).boxed()),
        ("rayStartParams", strings().boxed()),
        ("resources", Just(json!({"slot": "3"})).boxed()),
    ])
    .boxed()
}

fn cluster() -> impl Strategy<Value = Value> {
    let workers = vec((group(), option::of(1..5i32)), 0..4);
    let spec = fields(vec![
        ("computeTemplate", reference()),
        ("imageTemplate", Just(json!("i")).boxed()),
        ("rayVersion", Just(json!("2.50.0")).boxed()),
        (
            "suspend",
            any::<bool>().prop_map(|suspend| json!(suspend)).boxed(),
        ),
        ("unknown", Just(json!({"deep": {"field": 1}})).boxed()),
    ]);
    let metadata = fields(vec![
        ("labels", strings().boxed()),
        ("annotations", strings().boxed()),
    ]);
    (spec, metadata, group(), workers).prop_map(|(mut spec, mut metadata, head, workers)| {
        spec["headGroupSpec"] = head;
        let workers = workers
            .into_iter()
            .enumerate()
            .map(|(index, (mut group, hosts))| {
                group["groupName"] = json!(format!("g{index}"));
                if let Some(hosts) = hosts {
                    group["numOfHosts"] = json!(hosts);
                }
                group
            });
        spec["workerGroupSpecs"] = workers.collect();
        metadata["name"] = json!("c");
        json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec})
    })
}

#[derive(Clone, Debug)]
struct World {
    specs: Vec<Value>,
    image: Option<&'static str>,
}

fn world() -> impl Strategy<Value = World> {
    let image = prop_oneof![Just(None), Just(Some("reg/i@sha256:1"))];
    (vec(template_spec(), TEMPLATES.len()), image).prop_map(|(specs, image)| World { specs, image })
}

impl World {
    fn read(&self, request: &Request<'_>) -> Templates {
        let mut templates = Templates::default();
        loop {
            let needed = references(request, &templates);
            if needed.is_empty() {
                return templates;
            }
            for needed in needed {
                match &needed {
                    Needed::Image { .. } => {
                        let status = self
                            .image
                            .map(|image| json!({"image": image, "rayVersion": "2.60.0"}));
                        let object = json!({"apiVersion": "templates.ray.io/v1alpha1", "kind": "ImageTemplate",
                            "metadata": {"name": "i", "namespace": NAMESPACE, "uid": "u", "generation": 1},
                            "spec": {"baseImage": "b", "runPullSecrets": ["pull", "mine"]}, "status": status});
                        let found: ImageTemplate = serde_json::from_value(object).unwrap();
                        templates.insert_image(needed, Some(Image::from(&found)));
                    }
                    Needed::Compute { name, .. } => {
                        let spec = TEMPLATES
                            .iter()
                            .position(|t| t == name)
                            .map(|at| self.specs[at].clone());
                        let found = spec.map(|spec| {
                            let object = json!({"apiVersion": "templates.ray.io/v1alpha1", "kind": "ComputeTemplate",
                                "metadata": {"name": name, "namespace": NAMESPACE, "uid": name, "generation": 1}, "spec": spec});
                            let found: ComputeTemplate = serde_json::from_value(object).unwrap();
                            Compute::from(&found)
                        });
                        templates.insert_compute(needed, found);
                    }
                    Needed::ClusterCompute { .. } => templates.insert_compute(needed, None),
                }
            }
        }
    }

    /// None where the request is denied: a volume's name is used for something else.
    fn expand(&self, object: &Value, old: Option<&Value>) -> Option<Value> {
        let request = Request {
            namespace: NAMESPACE,
            object,
            old_object: old,
            dry_run: false,
            field_manager: None,
        };
        expand(&request, &self.read(&request))
            .ok()
            .map(|expanded| expanded.object)
    }
}

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

/// Any JSON that uses the words of RayClusters in wrong places.
fn hostile() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "metadata",
        "annotations",
        "labels",
        "spec",
        "headGroupSpec",
        "workerGroupSpecs",
        "groupName",
        "template",
        "containers",
        "name",
        "resources",
        "limits",
        "env",
        "volumes",
        "computeTemplate",
        "imageTemplate",
        "suspend",
        "rayStartParams",
        "templates.ray.io/gated",
        "templates.ray.io/refresh",
        "managedFields",
        "fieldsV1",
        "f:spec",
        "k:{\"name\":\"a\"}",
    ]);
    let record = prop::sample::select(vec![
        "{}",
        "[",
        r#"{"head":{"pieces":[{"at":"spec/[0]/[a=b]/[]","value":null}],"created":["","[]"]}}"#,
        r#"{"cluster":{"pieces":[{"at":"","value":{}},{"at":"spec","value":{},"was":[]}],"created":["metadata"]}}"#,
        r#"{"workers":{"t0":{"compute":{"kind":"x","name":"t0"},"pieces":[{"at":"template","value":{"spec":{}}}]}}}"#,
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        Just(json!("t0")),
        Just(json!("i")),
        record.clone().prop_map(Value::from)
    ];
    let body = leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(words.clone().prop_map(str::to_owned), inner, 0..6).prop_map(|map| json!(map))
        ]
    });
    (body.clone(), body, option::of(record)).prop_map(|(spec, metadata, record)| {
        let mut object = json!({"metadata": metadata, "spec": spec});
        if let Some(record) = record {
            object["metadata"] = json!({"annotations": {"templates.ray.io/expansion": record}});
        }
        object
    })
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
