//! Templates and a cluster that names them.

use ray_api::expand::{Compute, Decisions, Denial, Expanded, Image, Needed, Request, Templates};
use serde_json::{Value, json};

pub(crate) fn compute(namespace: Option<&str>, name: &str, spec: Value) -> (Needed, Compute) {
    let metadata =
        json!({"name": name, "namespace": namespace, "uid": format!("uid-{name}"), "generation": 1});
    match namespace {
        Some(namespace) => {
            let object = json!({"apiVersion": "templates.ray.io/v1alpha1", "kind": "ComputeTemplate", "metadata": metadata, "spec": spec});
            let template: ray_api::template::ComputeTemplate = serde_json::from_value(object).unwrap();
            let needed = Needed::Compute {
                namespace: namespace.into(),
                name: name.into(),
            };
            (needed, Compute::from(&template))
        }
        None => {
            let object = json!({"apiVersion": "templates.ray.io/v1alpha1", "kind": "ClusterComputeTemplate", "metadata": metadata, "spec": spec});
            let template: ray_api::template::ClusterComputeTemplate = serde_json::from_value(object).unwrap();
            (
                Needed::ClusterCompute { name: name.into() },
                Compute::from(&template),
            )
        }
    }
}

pub(crate) fn image(name: &str, digest: Option<&str>) -> (Needed, Image) {
    let status =
        digest.map(|digest| json!({"image": format!("reg/{name}@sha256:{digest}"), "rayVersion": "2.60.0"}));
    let object = json!({"apiVersion": "templates.ray.io/v1alpha1", "kind": "ImageTemplate",
        "metadata": {"name": name, "namespace": "team-a", "uid": format!("uid-{name}"), "generation": 1},
        "spec": {"baseImage": "rayproject/ray:2.60.0", "runPullSecrets": ["pull"]}, "status": status});
    let template: ray_api::template::ImageTemplate = serde_json::from_value(object).unwrap();
    (
        Needed::Image {
            namespace: "team-a".into(),
            name: name.into(),
        },
        Image::from(&template),
    )
}

/// A world of templates, read the way callers do.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) compute: Vec<(Needed, Compute)>,
    pub(crate) image: Vec<(Needed, Image)>,
}

impl World {
    pub(crate) fn read(&self, request: &Request<'_>) -> Templates {
        let decisions = Decisions::of(*request);
        let mut templates = Templates::default();
        templates.suggest_from(self.compute.iter().map(|(needed, _)| needed.clone()));
        templates.suggest_from(self.image.iter().map(|(needed, _)| needed.clone()));
        loop {
            let needed = decisions.needed(&templates);
            if needed.is_empty() {
                return templates;
            }
            needed
                .into_iter()
                .for_each(|needed| self.give(&mut templates, needed));
        }
    }

    /// What the request newly refers to.
    pub(crate) fn added(&self, request: &Request<'_>) -> Vec<Needed> {
        let (decisions, mut templates) = (Decisions::of(*request), self.read(request));
        loop {
            match decisions.added(&templates) {
                Ok(added) => return added,
                Err(unread) => unread
                    .into_iter()
                    .for_each(|needed| self.give(&mut templates, needed)),
            }
        }
    }

    fn give(&self, templates: &mut Templates, needed: Needed) {
        if let Needed::Image { .. } = needed {
            let found = self.image.iter().find(|(name, _)| *name == needed);
            templates.insert_image(needed, found.map(|(_, found)| found.clone()));
        } else {
            let found = self.compute.iter().find(|(name, _)| *name == needed);
            templates.insert_compute(needed, found.map(|(_, found)| found.clone()));
        }
    }

    pub(crate) fn expand(&self, object: &Value, old: Option<&Value>) -> Result<Expanded, Vec<Denial>> {
        self.write(Request {
            namespace: "team-a",
            object,
            old_object: old,
            dry_run: false,
            field_manager: None,
        })
    }

    pub(crate) fn write(&self, request: Request<'_>) -> Result<Expanded, Vec<Denial>> {
        Decisions::of(request).expand(&self.read(&request))
    }
}

pub(crate) fn world() -> World {
    World {
        compute: vec![
            compute(
                Some("team-a"),
                "small",
                json!({
                    "resources": {"limits": {"cpu": "2", "memory": "4Gi"}, "requests": {"cpu": "1"}},
                    "nodeSelector": {"pool": "a"}, "env": [{"name": "A", "value": "1"}],
                    "tolerations": [{"key": "gpu", "operator": "Exists"}], "sharedMemory": "1Gi",
                    "volumes": [{"name": "scratch", "emptyDir": {}}],
                    "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                    "rayResources": {"fast": 2.0, "slot": 0.5}, "numOfHosts": 4,
                }),
            ),
            compute(
                None,
                "a100",
                json!({"extends": "gpu", "resources": {"limits": {"nvidia.com/gpu": "8"}}}),
            ),
            compute(
                None,
                "gpu",
                json!({"resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "8"}}, "runtimeClassName": "nvidia"}),
            ),
        ],
        image: vec![image("torch", Some("one")), image("slow", None)],
    }
}

pub(crate) fn cluster() -> Value {
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "train"},
        "spec": {
            "imageTemplate": "torch",
            "headGroupSpec": {"computeTemplate": "small"},
            "workerGroupSpecs": [{"groupName": "gpu", "replicas": 2, "computeTemplate": "a100"}],
        },
    })
}

pub(crate) fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    *object.pointer_mut(pointer).unwrap() = value;
    object
}

/// What the template controller writes, and any other write that changes no value.
pub(crate) fn touch(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["annotations"]["templates.ray.io/gate-lift"] = json!("now");
    object
}
