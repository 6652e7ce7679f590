//! Generated clusters and templates, sound ones and hostile ones.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use ray_api::expand::{Compute, Decisions, Image, Needed, Request, Templates, check_compute};
use ray_api::meta::annotation::{COMPUTE_TEMPLATE, IMAGE_TEMPLATE};
use ray_api::template::{ClusterComputeTemplate, ComputeTemplate, ImageTemplate};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

const NAMESPACE: &str = "ns";
/// Those of the namespace; each may extend what stands before it, and what is cluster-wide.
const TEMPLATES: [&str; 3] = ["t0", "t1", "t2"];
/// Those of the whole cluster; the first hides behind the namespace's of the same name.
const CLUSTER_WIDE: [&str; 3] = ["t0", "w1", "w2"];

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

/// Flags of `ray start`, among them those that `resources` of the group would set too.
fn start_params() -> impl Strategy<Value = Value> {
    let flag = prop_oneof![
        Just("num-cpus"),
        Just("num-gpus"),
        Just("block"),
        Just("dashboard-host")
    ];
    btree_map(flag, "[1-4]", 1..3).prop_map(|map| json!(map))
}

fn env_from() -> impl Strategy<Value = Value> {
    prop::collection::btree_set("[a-c]", 1..3).prop_map(|names| {
        names
            .into_iter()
            .map(|name| json!({"configMapRef": {"name": name}}))
            .collect()
    })
}

fn spread() -> impl Strategy<Value = Value> {
    "[a-c]".prop_map(|key| json!([{"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]))
}

fn one_of(words: [&'static str; 2]) -> BoxedStrategy<Value> {
    prop::sample::select(words.to_vec())
        .prop_map(|word| json!(word))
        .boxed()
}

fn template_spec() -> impl Strategy<Value = Value> {
    let place = prop_oneof![4 => "/m[0-3]", 1 => Just("/dev/shm".to_owned())];
    let volumes = btree_map("v[0-3]", place, 1..3);
    let spec = fields(vec![
        ("resources", resources()),
        ("nodeSelector", strings().boxed()),
        ("labels", strings().boxed()),
        ("annotations", strings().boxed()),
        ("env", env().boxed()),
        ("tolerations", tolerations().boxed()),
        ("affinity", affinity()),
        ("priorityClassName", Just(json!("high")).boxed()),
        ("topologySpreadConstraints", spread().boxed()),
        ("runtimeClassName", one_of(["nvidia", "gvisor"])),
        ("schedulerName", one_of(["packer", "spreader"])),
        ("serviceAccountName", one_of(["trainer", "reader"])),
        ("envFrom", env_from().boxed()),
        ("sharedMemory", Just(json!("1Gi")).boxed()),
        ("rayStartParams", start_params().boxed()),
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
        // So would be two ways to set Ray's resources, or to mount /dev/shm.
        if !check_compute(&serde_json::from_value(spec.clone()).unwrap()).is_empty() {
            let ways = ["rayResources", "sharedMemory"];
            spec.as_object_mut()
                .unwrap()
                .retain(|field, _| !ways.contains(&field.as_str()));
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
            ("envFrom", env_from().boxed()),
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
        ("runtimeClassName", one_of(["nvidia", "own"])),
        ("serviceAccountName", Just(json!("own")).boxed()),
        ("topologySpreadConstraints", spread().boxed()),
        ("volumes", Just(json!([{"name": "own", "emptyDir": {}}])).boxed()),
        ("imagePullSecrets", Just(json!([{"name": "mine"}])).boxed()),
    ]);
    fields(vec![("spec", spec.boxed()), ("metadata", metadata().boxed())]).boxed()
}

/// Labels and annotations, references as with KubeRay's own CRD among them.
fn metadata() -> impl Strategy<Value = Value> {
    let annotations = (
        option::of(strings()),
        option::weighted(0.2, reference()),
        option::weighted(0.2, Just(json!("i"))),
    );
    let annotations = annotations.prop_map(|(own, compute, image)| {
        let mut annotations = own.unwrap_or_else(|| json!({}));
        for (key, name) in [(COMPUTE_TEMPLATE, compute), (IMAGE_TEMPLATE, image)] {
            if let Some(name) = name {
                annotations[key] = name;
            }
        }
        annotations
    });
    fields(vec![
        ("labels", strings().boxed()),
        ("annotations", annotations.boxed()),
    ])
}

pub(crate) fn reference() -> BoxedStrategy<Value> {
    let names = TEMPLATES.into_iter().chain(CLUSTER_WIDE);
    prop::sample::select(names.collect::<Vec<_>>())
        .prop_map(|name| json!(name))
        .boxed()
}

fn group() -> BoxedStrategy<Value> {
    fields(vec![
        ("template", pod_template()),
        ("computeTemplate", reference()),
        ("imageTemplate", Just(json!("i")).boxed()),
        ("rayStartParams", start_params().boxed()),
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
    (spec, metadata(), group(), workers).prop_map(|(mut spec, mut metadata, head, workers)| {
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
    own: Vec<Value>,
    cluster_wide: Vec<Value>,
    pub(crate) image: Option<&'static str>,
}

pub(crate) fn world() -> impl Strategy<Value = World> {
    let image = prop_oneof![Just(None), Just(Some("reg/i@sha256:1"))];
    // What each extends, if it does: the one before it, or a cluster-wide one.
    let parents = vec(option::of(any::<bool>()), 2 * TEMPLATES.len());
    let specs = vec(template_spec(), 2 * TEMPLATES.len());
    (specs, parents, image).prop_map(|(mut specs, parents, image)| {
        let mut cluster_wide = specs.split_off(TEMPLATES.len());
        let mut own = specs;
        for (at, parent) in parents.into_iter().enumerate() {
            let (own_one, at) = (at < TEMPLATES.len(), at % TEMPLATES.len());
            let before = at.checked_sub(1);
            let parent = match (parent, own_one, before) {
                (Some(true), true, Some(before)) => TEMPLATES[before],
                // Its own first one hides the cluster-wide one.
                (Some(_), true, _) => CLUSTER_WIDE[2],
                (Some(_), false, Some(before)) => CLUSTER_WIDE[before],
                _ => continue,
            };
            let specs = if own_one { &mut own } else { &mut cluster_wide };
            specs[at]["extends"] = json!(parent);
        }
        World {
            own,
            cluster_wide,
            image,
        }
    })
}

fn template<T: DeserializeOwned>(kind: &str, name: &str, spec: &Value) -> T {
    let namespace = (kind != "ClusterComputeTemplate").then_some(NAMESPACE);
    let metadata =
        json!({"name": name, "namespace": namespace, "uid": format!("{kind}-{name}"), "generation": 1});
    let object =
        json!({"apiVersion": "templates.ray.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec});
    serde_json::from_value(object).unwrap()
}

impl World {
    fn read(&self, request: &Request<'_>) -> Templates {
        let decisions = Decisions::of(*request);
        let mut templates = Templates::default();
        loop {
            let needed = decisions.needed(&templates);
            if needed.is_empty() {
                return templates;
            }
            for needed in needed {
                let spec = |names: [&str; 3], specs: &[Value]| {
                    let at = names.iter().position(|name| *name == needed.name())?;
                    specs.get(at).cloned()
                };
                match &needed {
                    Needed::Image { name, .. } => {
                        let spec = json!({"baseImage": "b", "runPullSecrets": ["pull", "mine"]});
                        let mut found: ImageTemplate = template("ImageTemplate", name, &spec);
                        let status = |image| json!({"image": image, "rayVersion": "2.60.0"});
                        found.status = self
                            .image
                            .map(|image| serde_json::from_value(status(image)).unwrap());
                        templates.insert_image(needed, Some(Image::from(&found)));
                    }
                    Needed::Compute { name, .. } => {
                        let found = spec(TEMPLATES, &self.own).map(|spec| {
                            Compute::from(&template::<ComputeTemplate>("ComputeTemplate", name, &spec))
                        });
                        templates.insert_compute(needed, found);
                    }
                    Needed::ClusterCompute { name } => {
                        let found = spec(CLUSTER_WIDE, &self.cluster_wide).map(|spec| {
                            Compute::from(&template::<ClusterComputeTemplate>(
                                "ClusterComputeTemplate",
                                name,
                                &spec,
                            ))
                        });
                        templates.insert_compute(needed, found);
                    }
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
        Decisions::of(request)
            .expand(&self.read(&request))
            .ok()
            .map(|expanded| expanded.object)
    }
}
