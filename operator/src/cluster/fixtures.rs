//! Clusters and pods for tests.

use std::sync::Arc;

use ray_api::ray::v1::RayCluster;
use serde_json::{Value, json};

use super::pods::{PodView, WatchedPod};

/// A cluster with one group `g` without workers; `patch` changes it.
pub(super) fn cluster(patch: Value) -> RayCluster {
    let mut cluster = json!({
        "metadata": {"name": "c", "namespace": "n", "uid": "u", "generation": 7},
        "spec": {
            "headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray-head", "image": "i"}]}}},
            "workerGroupSpecs": [{"groupName": "g", "replicas": 0, "minReplicas": 0, "maxReplicas": 99}],
        },
    });
    json_patch::merge(&mut cluster, &patch);
    serde_json::from_value(cluster).unwrap()
}

/// The same with these fields in its group.
pub(super) fn group(fields: Value) -> RayCluster {
    let mut spec = json!({"groupName": "g", "minReplicas": 0, "maxReplicas": 99});
    json_patch::merge(&mut spec, &fields);
    cluster(json!({"spec": {"workerGroupSpecs": [spec]}}))
}

/// A running, ready worker; `patch` changes it.
pub(super) fn pod(name: &str, labels: Value, patch: Value) -> Arc<PodView> {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "n", "uid": format!("uid-{name}"),
            "labels": {"ray.io/cluster": "c", "ray.io/node-type": "worker", "ray.io/group": "g"}},
        "spec": {"containers": [{"name": "ray"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    json_patch::merge(&mut pod, &json!({"metadata": {"labels": labels}}));
    json_patch::merge(&mut pod, &patch);
    let pod: WatchedPod = serde_json::from_value(pod).unwrap();
    Arc::new(pod.view.unwrap())
}

pub(super) fn head(patch: Value) -> Arc<PodView> {
    let labels = json!({"ray.io/node-type": "head", "ray.io/group": "headgroup"});
    pod("head", labels, patch)
}

pub(super) fn worker(index: u32) -> Arc<PodView> {
    worker_with(index, json!({}))
}

pub(super) fn worker_with(index: u32, patch: Value) -> Arc<PodView> {
    let labels = json!({"ray.io/worker-group-replica-index": index.to_string()});
    pod(&format!("w{index}"), labels, patch)
}
