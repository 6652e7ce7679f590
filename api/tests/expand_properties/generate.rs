//! Generated clusters and templates, sound ones and hostile ones.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use ray_api::expand::{Compute, Image, Needed, Request, Templates, expand, references};
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

pub(crate) fn cluster() -> impl Strategy<Value = Value> {
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
pub(crate) struct World {
    specs: Vec<Value>,
    pub(crate) image: Option<&'static str>,
}

pub(crate) fn world() -> impl Strategy<Value = World> {
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
    pub(crate) fn expand(&self, object: &Value, old: Option<&Value>) -> Option<Value> {
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

/// Any JSON that uses the words of RayClusters in wrong places.
pub(crate) fn hostile() -> impl Strategy<Value = Value> {
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
