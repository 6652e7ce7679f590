//! Real Ray pods as KubeRay's operator leaves them: ours takes them over while they run.

#![allow(clippy::indexing_slicing, reason = "a test")]

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use ray_api::ray::RayCluster;
use ray_tests::{Cluster, User, eventually};
use serde_json::{Value, json};

/// A cluster of KubeRay's kind: full templates, and Recreate to tempt whoever cannot read its hash.
const CLUSTER: &str = r#"
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: c}
spec:
  rayVersion: 2.60.0
  upgradeStrategy: {type: Recreate}
  headGroupSpec:
    rayStartParams: {}
    template: {spec: {containers: [&ray {name: ray, image: "rayproject/ray:2.60.0", resources: {requests: {cpu: 200m, memory: 1Gi}, limits: {cpu: "1", memory: 2Gi}}}]}}
  workerGroupSpecs:
  - {groupName: g, replicas: 1, minReplicas: 1, maxReplicas: 1, rayStartParams: {}, template: {spec: {containers: [*ray]}}}
"#;

/// Scales the installed operator, and waits until that many run.
async fn operators(client: &Client, replicas: i32) -> anyhow::Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "ray-system");
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    deployments
        .patch("ray-operator", &PatchParams::default(), &patch)
        .await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "ray-system");
    eventually("the operator's pods", || async {
        let all = pods.list(&ListParams::default()).await?.items;
        let count = all
            .iter()
            .filter(|pod| pod.name_any().starts_with("ray-operator-"))
            .count();
        let ready = deployments
            .get("ray-operator")
            .await?
            .status
            .and_then(|status| status.ready_replicas)
            .unwrap_or_default();
        anyhow::ensure!(
            i32::try_from(count)? == replicas && ready == replicas,
            "{count} pods, {ready} ready"
        );
        Ok(Some(()))
    })
    .await
}

/// What must not change: each pod's uid and restarts, the Services' resourceVersions.
async fn inventory(client: &Client, namespace: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    for pod in pods.list(&ListParams::default()).await? {
        let statuses = pod
            .status
            .as_ref()
            .and_then(|status| status.container_statuses.as_ref());
        let restarts: i32 = statuses
            .into_iter()
            .flatten()
            .map(|status| status.restart_count)
            .sum();
        all.insert(
            pod.name_any(),
            format!("{} restarted {restarts} times", pod.uid().unwrap_or_default()),
        );
    }
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    for service in services.list(&ListParams::default()).await? {
        all.insert(service.name_any(), service.resource_version().unwrap_or_default());
    }
    Ok(all)
}

/// Makes the head look like KubeRay's: its version, and a hash that only KubeRay can compute.
async fn disguise(client: &Client, namespace: &str) -> anyhow::Result<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let heads = pods
        .list(&ListParams::default().labels("ray.io/node-type=head"))
        .await?;
    let head = heads.items.first().map(ResourceExt::name_any).unwrap_or_default();
    let stamp = json!({"metadata": {"annotations": {
        "ray.io/kuberay-version": "v1.6.0",
        "ray.io/upgrade-strategy-recreate-hash": "4PVH8QK2GFS1ML0DTEJ7RN3OA6C9UIB5",
    }}});
    pods.patch(&head, &PatchParams::default(), &Patch::Merge(stamp))
        .await?;
    Ok(head)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn running_pods_of_kuberay_are_taken_over_without_a_restart() -> anyhow::Result<()> {
    let cluster = Cluster::node().await?;
    let user = User::new(&cluster, "takeover").await?;
    let client = cluster.client.clone();
    let file = tempfile::Builder::new().suffix(".yaml").tempfile()?;
    std::fs::write(file.path(), CLUSTER)?;
    user.kubectl(&["apply", "-f", &file.path().to_string_lossy()])?
        .success()?;
    let clusters: Api<RayCluster> = Api::namespaced(client.clone(), &user.namespace);
    let state = || async {
        let value = serde_json::to_value(clusters.get("c").await?)?;
        anyhow::Ok(value["status"].clone())
    };
    eventually("the cluster is ready", || async {
        let status = state().await?;
        anyhow::ensure!(status["state"] == "ready", "{status}");
        Ok(Some(()))
    })
    .await?;

    operators(&client, 0).await?;
    let head = disguise(&client, &user.namespace).await?;
    let before = inventory(&client, &user.namespace).await?;
    operators(&client, 2).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &user.namespace);
    eventually("the head carries our version", || async {
        let head = pods.get(&head).await?;
        let version = head.annotations().get("ray.io/kuberay-version").cloned();
        Ok((version == Some(ray_api::meta::operator_version())).then_some(()))
    })
    .await?;
    for _ in 0..10 {
        let status: Value = state().await?;
        assert_eq!(status["state"], "ready", "{status}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(before, inventory(&client, &user.namespace).await?);
    user.kubectl(&["delete", "raycluster", "c"])?.success()?;
    Ok(())
}
