//! The yardstick: the objects that are built for each recorded input equal KubeRay's.

use ray_api::meta::operator_version;
use ray_api::ray::v1::RayCluster;
use ray_tests::recorded::{self, Case};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Facts, WorkerIdentity, auth_secret, children, head_pod, worker_pod};
use crate::cluster::config::Config;
use crate::cluster::plan::replicas;

fn to_value(object: impl Serialize) -> Value {
    let mut value = serde_json::to_value(object).unwrap();
    recorded::normalise(&mut value, true);
    value
}

/// Everything that the spec alone decides, in the recorder's form.
fn built(case: &Case) -> Value {
    let mut input = case.input.clone();
    input["metadata"]["namespace"] = json!("recorded");
    input["metadata"]["uid"] = json!("8a1cd5a6-556f-42a5-9212-8c8ea154e068");
    let cluster: RayCluster = serde_json::from_value(input).unwrap();
    let config = Config::for_tests();
    let facts = Facts::new(&cluster, &config);
    let mut pods = Vec::new();
    if cluster.spec.suspend != Some(true) {
        pods.push(with_name(head_pod(&facts)));
        for group in &cluster.spec.worker_group_specs {
            let target = replicas::wanted(group);
            for index in 0..target.pods {
                let identity = WorkerIdentity {
                    replica: u32::try_from(index / target.hosts).unwrap(),
                    replica_name: Some(format!("{}-abcde", group.group_name)),
                    host: u32::try_from(index % target.hosts).unwrap(),
                };
                pods.push(with_name(worker_pod(&facts, group, &identity)));
            }
        }
    }
    let children = children(&facts);
    let mut all = json!({
        "pods": recorded::sorted(pods),
        "services": recorded::sorted(children.services.into_iter().map(to_value).collect()),
        "serviceaccounts": children.service_account.into_iter().map(to_value).collect::<Vec<_>>(),
        "roles": children.role.into_iter().map(to_value).collect::<Vec<_>>(),
        "rolebindings": children.role_binding.into_iter().map(to_value).collect::<Vec<_>>(),
        "ingresses": children.ingress.into_iter().map(to_value).collect::<Vec<_>>(),
        "secrets": auth_secret(&facts, &[0; 32]).into_iter().map(|secret| {
            let keys: Vec<_> = secret.data.clone().unwrap_or_default().into_keys().collect();
            let mut value = to_value(secret);
            value.as_object_mut().unwrap().remove("data");
            value["keys"] = json!(keys);
            value
        }).collect::<Vec<_>>(),
    });
    drop_empty(&mut all);
    all
}

fn with_name(pod: k8s_openapi::api::core::v1::Pod) -> Value {
    let mut value = serde_json::to_value(pod).unwrap();
    if let Some(prefix) = value["metadata"]["generateName"].as_str() {
        value["metadata"]["name"] = json!(format!("{prefix}abcde"));
    }
    to_value(value)
}

fn expected(case: &Case) -> Value {
    let mut output = case.output.clone();
    recorded::intend(&mut output, &operator_version());
    let mut all = json!({});
    for (kind, objects) in output.as_object().unwrap() {
        if matches!(kind.as_str(), "status" | "finalizers") {
            continue;
        }
        let objects = objects.as_array().unwrap().iter().cloned();
        let objects = recorded::sorted(objects.map(to_value).collect());
        all[kind] = objects
            .into_iter()
            .map(|mut object| {
                // The kind of a Secret is the API server's default.
                if kind == "secrets" {
                    object.as_object_mut().unwrap().remove("type");
                }
                object
            })
            .collect();
    }
    drop_empty(&mut all);
    all
}

fn drop_empty(all: &mut Value) {
    all.as_object_mut()
        .unwrap()
        .retain(|_, objects| !objects.as_array().unwrap().is_empty());
}

#[test]
fn the_27_recorded_clusters_are_built_as_kuberay_builds_them() {
    let cases = recorded::cases().unwrap();
    assert_eq!(cases.len(), 27);
    let mut report = String::new();
    for case in &cases {
        for difference in recorded::differences(&expected(case), &built(case)) {
            report.push_str(&format!("{}{difference}\n", case.name));
        }
    }
    assert!(report.is_empty(), "{report}");
}
