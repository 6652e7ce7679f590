//! The yardstick on the real API server: the 27 recorded inputs become the objects and the status that KubeRay's
//! operator made of them, but for the intended differences (docs/compatibility.md).

#![allow(clippy::indexing_slicing, reason = "a test")]

mod cluster;

use std::cell::RefCell;

use anyhow::Context;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use ray_tests::recorded::{self, Case};
use ray_tests::{Cluster, eventually};
use serde_json::{Value, json};

/// The recording's namespace: service names carry it.
const NAMESPACE: &str = "recorded";

fn api(cluster: &Cluster, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    recorded::api(cluster, NAMESPACE, group, version, kind)
}

/// Objects of every cluster, by kind, as they are now.
async fn dump(cluster: &Cluster) -> anyhow::Result<Vec<(&'static str, Vec<Value>)>> {
    let mut all = Vec::new();
    for (plural, group, version, kind) in recorded::KINDS {
        let objects = api(cluster, group, version, kind)
            .list(&ListParams::default())
            .await?;
        let objects = objects.items.into_iter().map(serde_json::to_value);
        all.push((plural, objects.collect::<Result<_, _>>()?));
    }
    Ok(all)
}

fn owner(object: &Value) -> Option<&str> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    owners.iter().find(|owner| owner["kind"] == "RayCluster")?["name"].as_str()
}

/// What became of one cluster, in the recorder's form.
fn actual(name: &str, ray_cluster: &Value, objects: &[(&'static str, Vec<Value>)], has_nodes: bool) -> Value {
    let mut all = json!({
        "status": status(&ray_cluster["status"], has_nodes),
        "finalizers": ray_cluster["metadata"]["finalizers"],
    });
    for (kind, objects) in objects {
        let objects = objects
            .iter()
            .filter(|object| owner(object) == Some(name))
            .cloned();
        let objects = objects.map(|mut object| {
            if *kind == "secrets" {
                let keys: Vec<_> = object["data"]
                    .as_object()
                    .into_iter()
                    .flat_map(|data| data.keys())
                    .collect();
                object["keys"] = json!(keys);
                object.as_object_mut().map(|object| object.remove("data"));
            }
            recorded::normalise(&mut object, true);
            object
        });
        all[kind] = recorded::sorted(objects.collect()).into();
    }
    drop_empty(&mut all);
    all
}

fn expected(case: &Case, has_nodes: bool) -> Value {
    let mut output = case.output.clone();
    recorded::intend(&mut output, &ray_api::meta::operator_version());
    let mut all = json!({"status": status(&output["status"], has_nodes), "finalizers": output["finalizers"]});
    for (kind, ..) in recorded::KINDS {
        let objects = output[kind].as_array().cloned().unwrap_or_default();
        let objects = objects.into_iter().map(|mut object| {
            recorded::normalise(&mut object, true);
            object
        });
        all[kind] = recorded::sorted(objects.collect()).into();
    }
    drop_empty(&mut all);
    all
}

/// The status without times, chance and zeros. The recording had no nodes: where there are some, what comes of
/// running pods is left out.
fn status(status: &Value, has_nodes: bool) -> Value {
    let mut status = status.clone();
    if let Some(map) = status.as_object_mut() {
        // KubeRay's finalizer came by a full update, which counts as a new generation.
        map.retain(|key, value| {
            !matches!(
                key.as_str(),
                "lastUpdateTime" | "stateTransitionTimes" | "observedGeneration"
            ) && *value != json!(0)
                && *value != json!("")
        });
    }
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        // Ours say which generation they speak of.
        if let Some(condition) = condition.as_object_mut() {
            condition.retain(|key, _| !matches!(key.as_str(), "lastTransitionTime" | "observedGeneration"));
        }
    }
    if let Some(head) = status.get_mut("head").and_then(Value::as_object_mut) {
        for (key, value) in head {
            let text = value.as_str().unwrap_or_default();
            *value = match key.as_str() {
                "podName" => json!(recorded::without_suffix(text)),
                "podIP" | "serviceIP" => json!("IP"),
                _ => json!(text),
            };
        }
    }
    for endpoint in status
        .get_mut("endpoints")
        .and_then(Value::as_object_mut)
        .into_iter()
        .flat_map(|map| map.values_mut())
    {
        // A node's port is drawn by the API server.
        let port: u16 = endpoint
            .as_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or_default();
        if port >= 30000 {
            *endpoint = json!("node port");
        }
    }
    if has_nodes && let Some(map) = status.as_object_mut() {
        for field in [
            "conditions",
            "state",
            "head",
            "readyWorkerReplicas",
            "availableWorkerReplicas",
        ] {
            map.remove(field);
        }
    }
    status
}

fn drop_empty(all: &mut Value) {
    if let Some(all) = all.as_object_mut() {
        all.retain(|_, value| !value.is_null() && value != &json!([]));
    }
}

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn the_recorded_inputs_become_what_kuberay_made_of_them() -> anyhow::Result<()> {
    let cluster = Cluster::control_plane().await?;
    cluster::install_crd(&cluster).await?;
    cluster::fixed_namespace(&cluster, NAMESPACE).await?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "team"}});
    cluster::create_if_absent(&api(&cluster, "", "v1", "ServiceAccount"), account).await?;
    let clusters = api(&cluster, "ray.io", "v1", "RayCluster");
    cluster::delete_all(&clusters).await?;

    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(cluster.client.clone());
    let has_nodes = !nodes.list(&ListParams::default()).await?.items.is_empty();
    let operator = cluster::operator(&cluster, NAMESPACE, &[])?;
    let cases = recorded::cases()?;
    for case in &cases {
        let object = serde_json::from_value(case.input.clone())?;
        clusters
            .create(&PostParams::default(), &object)
            .await
            .context(case.name.clone())?;
    }
    let report = RefCell::new(String::new());
    let settled = eventually("the recorded objects and statuses", || async {
        let objects = dump(&cluster).await?;
        let mut found = String::new();
        for case in &cases {
            let name = case.input["metadata"]["name"].as_str().unwrap_or_default();
            let live = serde_json::to_value(clusters.get(name).await?)?;
            for difference in recorded::differences(
                &expected(case, has_nodes),
                &actual(name, &live, &objects, has_nodes),
            ) {
                found.push_str(&format!("{}{difference}\n", case.name));
            }
        }
        let done = found.is_empty();
        report.replace(found);
        Ok(done.then_some(()))
    })
    .await;
    settled.with_context(|| format!("{}\nlog: {}", report.borrow(), operator.log.display()))?;
    // What is done stays done: nothing is written any more.
    let before = cluster::versions(&clusters).await?;
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert_eq!(
        before,
        cluster::versions(&clusters).await?,
        "a settled cluster is not written again"
    );
    cluster::delete_all(&clusters).await
}
