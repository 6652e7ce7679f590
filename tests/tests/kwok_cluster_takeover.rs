//! Clusters that KubeRay's operator made: ours finds them running and leaves them so.

#![allow(clippy::indexing_slicing, reason = "a test")]

mod cluster;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use cluster::life::Life;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use ray_api::ray::RayCluster;
use ray_tests::eventually;
use ray_tests::recorded::{self, Case};
use serde_json::{Value, json};

/// A recorded object as it can be created: with what the recorder took out.
fn revived(mut object: Value, index: usize, namespace: &str, owner: &str) -> Value {
    let suffix = format!("-k{index:04}");
    if let Some(name) = object["metadata"]["name"].as_str() {
        object["metadata"]["name"] = json!(name.replace("-XXXXX", &suffix));
    }
    let labels = &mut object["metadata"]["labels"];
    if let Some(name) = labels["ray.io/worker-group-replica-name"].as_str() {
        let replica = labels["ray.io/worker-group-replica-index"]
            .as_str()
            .unwrap_or("0");
        labels["ray.io/worker-group-replica-name"] = json!(name.replace("XXXXX", &format!("k000{replica}")));
    }
    for owners in object["metadata"]["ownerReferences"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        owners["uid"] = json!(owner);
    }
    for subject in object["subjects"].as_array_mut().into_iter().flatten() {
        subject["namespace"] = json!(namespace);
    }
    if object["keys"].is_array() {
        object["data"] = json!({"auth_token": "dG9rZW4="});
        object.as_object_mut().map(|object| object.remove("keys"));
    }
    let spec = &mut object["spec"];
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("clusterIPs");
        if spec.get("clusterIP").is_some_and(|ip| ip == "ALLOCATED") {
            spec.remove("clusterIP");
        }
    }
    if spec.is_null() {
        object.as_object_mut().map(|object| object.remove("spec"));
    }
    object
}

/// Creates a case's cluster and all that KubeRay made of it.
async fn revive(life: &Life, case: &Case) -> anyhow::Result<()> {
    let mut input = case.input.clone();
    input["metadata"]["namespace"] = json!(life.namespace);
    input["metadata"]["finalizers"] = case.output["finalizers"].clone();
    let ray_cluster = life.create(input).await?;
    let owner = ray_cluster.uid().unwrap_or_default();
    for (plural, group, version, kind) in recorded::KINDS {
        let api = recorded::api(&life.cluster, &life.namespace, group, version, kind);
        for (index, object) in case.output[plural].as_array().into_iter().flatten().enumerate() {
            let mut object = revived(object.clone(), index, &life.namespace, &owner);
            object["apiVersion"] = json!(if group.is_empty() {
                version.to_owned()
            } else {
                format!("{group}/{version}")
            });
            object["kind"] = json!(kind);
            if kind == "Pod" {
                // They ran somewhere: not every machine that they ask for is simulated.
                object["spec"]["nodeName"] = json!("kwok-0");
            }
            api.create(&PostParams::default(), &serde_json::from_value(object)?)
                .await
                .with_context(|| format!("{}: {kind} {index}", case.name))?;
        }
    }
    Ok(())
}

/// The status that KubeRay writes when all pods are ready.
async fn settle(life: &Life, case: &Case) -> anyhow::Result<()> {
    let name = case.input["metadata"]["name"].as_str().unwrap_or_default();
    let pods = life.live_pods(name).await?;
    let mut status = case.output["status"].clone();
    if !pods.is_empty() {
        let head = pods
            .iter()
            .find(|pod| {
                pod.labels()
                    .get("ray.io/node-type")
                    .is_some_and(|part| part == "head")
            })
            .context("no head")?;
        let ip = head.status.as_ref().and_then(|status| status.pod_ip.clone());
        status["state"] = json!("ready");
        status["readyWorkerReplicas"] = json!(pods.len() - 1);
        status["availableWorkerReplicas"] = json!(pods.len() - 1);
        status["head"]["podName"] = json!(head.name_any());
        status["head"]["podIP"] = json!(ip);
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            if condition["type"] == "HeadPodReady" || condition["type"] == "RayClusterProvisioned" {
                condition["status"] = json!("True");
                condition["reason"] = json!("AllPodRunningAndReadyFirstTime");
            }
        }
    }
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"] = json!("2026-01-01T00:00:00Z");
    }
    let mut live = serde_json::to_value(life.clusters.get(name).await?)?;
    live["status"] = status;
    let params = PostParams {
        field_manager: Some("kuberay-operator".to_owned()),
        ..PostParams::default()
    };
    life.clusters
        .replace_status(name, &params, &serde_json::from_value(live)?)
        .await
        .with_context(|| format!("status of {name}"))?;
    Ok(())
}

/// Pods and Services with their uids and resourceVersions.
async fn inventory(life: &Life) -> anyhow::Result<BTreeMap<String, (Option<String>, Option<String>)>> {
    let mut all = BTreeMap::new();
    for pod in life.pods.list(&ListParams::default()).await? {
        all.insert(
            format!("pod {}", pod.name_any()),
            (pod.uid(), pod.resource_version()),
        );
    }
    for service in life.api::<Service>().list(&ListParams::default()).await? {
        all.insert(
            format!("service {}", service.name_any()),
            (service.uid(), service.resource_version()),
        );
    }
    Ok(all)
}

/// Notes every state that a cluster is seen in.
fn follow_states(life: &Life) -> Arc<Mutex<BTreeMap<String, BTreeSet<&'static str>>>> {
    let seen = Arc::new(Mutex::new(BTreeMap::<String, BTreeSet<&'static str>>::new()));
    let (api, noted): (Api<RayCluster>, _) = (life.clusters.clone(), Arc::clone(&seen));
    tokio::spawn(async move {
        let mut clusters = watcher(api, watcher::Config::default())
            .default_backoff()
            .applied_objects()
            .boxed();
        while let Some(Ok(cluster)) = clusters.next().await {
            let state = cluster.status.as_ref().and_then(|status| status.state);
            let mut seen = noted.lock().unwrap_or_else(PoisonError::into_inner);
            seen.entry(cluster.name_any())
                .or_default()
                .insert(state.map_or("", |state| state.as_str()));
        }
    });
    seen
}

async fn heads(life: &Life) -> anyhow::Result<Vec<Pod>> {
    let selected = ListParams::default().labels("ray.io/node-type=head");
    Ok(life.pods.list(&selected).await?.items)
}

#[tokio::test]
#[ignore = "needs a control plane with simulated nodes: make test"]
async fn what_kuberay_recorded_is_taken_over_without_a_change() -> anyhow::Result<()> {
    let life = Life::with_nodes("takeover").await?;
    let team: k8s_openapi::api::core::v1::ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": "team"}}))?;
    life.api().create(&PostParams::default(), &team).await?;
    let cases = recorded::cases()?;
    for case in &cases {
        revive(&life, case).await?;
    }
    eventually("KubeRay's pods run", || async {
        let pods = life.pods.list(&ListParams::default()).await?.items;
        let waiting = pods
            .iter()
            .filter(|pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Running"))
            .map(ResourceExt::name_any);
        let waiting: Vec<_> = waiting.collect();
        anyhow::ensure!(waiting.is_empty(), "{waiting:?}");
        Ok(Some(()))
    })
    .await?;
    for case in &cases {
        settle(&life, case).await?;
    }
    let before = inventory(&life).await?;
    let seen = follow_states(&life);

    let _operator = life.operator()?;
    eventually("the head under Recreate carries our version", || async {
        let ours = ray_api::meta::operator_version();
        let heads = heads(&life).await?;
        let mut stamped = heads
            .iter()
            .filter(|head| head.annotations().get("ray.io/kuberay-version") == Some(&ours));
        Ok(stamped
            .any(|head| head.name_any().starts_with("recreate-"))
            .then_some(()))
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after = inventory(&life).await?;
    for (name, (uid, version)) in &before {
        let (uid_now, version_now) = after.get(name).with_context(|| format!("{name} is gone"))?;
        assert_eq!(uid, uid_now, "{name} was made anew");
        // Under Recreate the head gets our hash; the headless Service gets the label that every Service has.
        if !name.starts_with("pod recreate-head") && !name.ends_with("-headless") {
            assert_eq!(version, version_now, "{name} was written");
        }
    }
    assert_eq!(before.len(), after.len(), "nothing was added");
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(seen.len(), cases.len());
    for (name, states) in seen.iter() {
        let state = if name == "suspended" { "suspended" } else { "ready" };
        assert_eq!(states.iter().copied().collect::<Vec<_>>(), [state], "{name}");
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn a_head_of_another_operator_is_stamped_and_not_recreated() -> anyhow::Result<()> {
    let life = Life::new("stamp").await?;
    {
        let _maker = life.operator()?;
        life.create(cluster::life::ray_cluster("c", 2)).await?;
        life.until_pods("c", 3).await?;
    }
    // Made to look like KubeRay's: its hash and version, and Recreate to tempt us.
    life.patch("c", json!({"spec": {"upgradeStrategy": {"type": "Recreate"}}}))
        .await?;
    let before = life.live("c").await?;
    for head in heads(&life).await? {
        let stamp = json!({"metadata": {"annotations": {
            "ray.io/kuberay-version": "v1.6.0", "ray.io/upgrade-strategy-recreate-hash": "0123456789"}}});
        life.pods
            .patch(&head.name_any(), &PatchParams::default(), &Patch::Merge(stamp))
            .await?;
    }
    let _operator = life.operator()?;
    eventually("the head carries our version", || async {
        let ours = ray_api::meta::operator_version();
        let heads = heads(&life).await?;
        let stamped = heads
            .iter()
            .all(|head| head.annotations().get("ray.io/kuberay-version") == Some(&ours));
        Ok(stamped.then_some(()))
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(life.live("c").await?, before, "no pod was created or deleted");
    Ok(())
}
