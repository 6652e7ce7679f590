//! A RayCluster's life on simulated nodes: scaling, lost pods, suspension, take-over, and an operator that is
//! killed in the middle of its work.

mod cluster;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use ray_api::ray::RayCluster;
use ray_tests::{Cluster, eventually};
use serde_json::{Value, json};

struct Life {
    cluster: Cluster,
    namespace: String,
    clusters: Api<RayCluster>,
    pods: Api<Pod>,
}

impl Life {
    async fn new(prefix: &str) -> anyhow::Result<Self> {
        let cluster = Cluster::control_plane().await?;
        cluster::install_crd(&cluster).await?;
        let namespace = cluster.namespace(prefix).await?;
        cluster::default_account(&cluster, &namespace).await?;
        Ok(Self {
            clusters: Api::namespaced(cluster.client.clone(), &namespace),
            pods: Api::namespaced(cluster.client.clone(), &namespace),
            cluster,
            namespace,
        })
    }

    async fn create(&self, name: &str, replicas: u32) -> anyhow::Result<()> {
        let container = |name: &str| json!({"spec": {"containers": [{"name": name, "image": "ray:1"}]}});
        let object = json!({
            "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name},
            "spec": {
                "headGroupSpec": {"template": container("ray-head")},
                "workerGroupSpecs": [{"groupName": "g", "replicas": replicas, "minReplicas": 0, "maxReplicas": 1000,
                    "template": container("ray-worker")}],
            },
        });
        let object = serde_json::from_value(object)?;
        self.clusters.create(&PostParams::default(), &object).await?;
        Ok(())
    }

    async fn patch(&self, name: &str, patch: Value) -> anyhow::Result<()> {
        self.clusters
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// Names of the pods of a cluster that are not terminating.
    async fn live(&self, name: &str) -> anyhow::Result<BTreeSet<String>> {
        let list = self
            .pods
            .list(&ListParams::default().labels(&format!("ray.io/cluster={name}")))
            .await?;
        let live = list
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok(live.map(ResourceExt::name_any).collect())
    }

    async fn until(&self, name: &str, state: &str, pods: usize) -> anyhow::Result<BTreeSet<String>> {
        eventually(&format!("{name} is {state:?} with {pods} pods"), || async {
            let cluster = self.clusters.get(name).await?;
            let word = cluster
                .status
                .and_then(|status| status.state)
                .map_or("", |state| state.as_str());
            let live = self.live(name).await?;
            anyhow::ensure!(
                word == state && live.len() == pods,
                "state {word:?}, {} pods",
                live.len()
            );
            Ok(Some(live))
        })
        .await
    }

    /// Whether somebody plays the kubelet.
    async fn has_nodes(&self) -> anyhow::Result<bool> {
        let nodes: Api<Node> = Api::all(self.cluster.client.clone());
        Ok(!nodes.list(&ListParams::default()).await?.items.is_empty())
    }
}

#[tokio::test]
#[ignore = "needs a control plane with simulated nodes: make test"]
async fn a_cluster_scales_heals_suspends_and_resumes() -> anyhow::Result<()> {
    let life = Life::new("life").await?;
    anyhow::ensure!(
        life.has_nodes().await?,
        "no nodes: tests/cluster/cluster.sh kwok starts simulated ones"
    );
    let _operator = cluster::operator(&life.cluster, &life.namespace, &[])?;
    life.create("c", 2).await?;
    let first = life.until("c", "ready", 3).await?;

    life.patch("c", json!({"spec": {"workerGroupSpecs": [{"groupName": "g", "replicas": 4, "minReplicas": 0,
        "maxReplicas": 9, "template": {"spec": {"containers": [{"name": "ray-worker", "image": "ray:1"}]}}}]}}))
    .await?;
    let grown = life.until("c", "ready", 5).await?;
    assert!(grown.is_superset(&first), "scaling up touches nobody");

    let lost = grown
        .iter()
        .find(|name| name.contains("-g-worker-"))
        .cloned()
        .unwrap_or_default();
    life.pods
        .delete(&lost, &DeleteParams::default().grace_period(0))
        .await?;
    let healed = eventually("the lost worker is replaced", || async {
        let live = life.live("c").await?;
        Ok((live.len() == 5 && !live.contains(&lost)).then_some(live))
    })
    .await?;
    assert_eq!(
        healed.intersection(&grown).count(),
        4,
        "only the lost pod is replaced"
    );
    life.until("c", "ready", 5).await?;

    life.patch("c", json!({"spec": {"suspend": true}})).await?;
    life.until("c", "suspended", 0).await?;
    // Taken away, not set to false: KubeRay would stay suspended.
    life.patch("c", json!({"spec": {"suspend": null}})).await?;
    life.until("c", "ready", 5).await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn an_operator_killed_in_the_middle_never_leaves_more_pods_than_wanted() -> anyhow::Result<()> {
    const WORKERS: usize = 200;
    let life = Life::new("kill").await?;
    life.create("c", 200).await?;
    for round in 0..3 {
        let mut operator = cluster::operator(&life.cluster, &life.namespace, &[])?;
        let enough = 20 + round * 40;
        eventually("some pods are created", || async {
            Ok((life.live("c").await?.len() > enough).then_some(()))
        })
        .await?;
        operator.kill()?;
        assert!(life.live("c").await?.len() <= WORKERS + 1);
    }
    let _operator = cluster::operator(&life.cluster, &life.namespace, &[])?;
    eventually("all pods are created", || async {
        let live = life.live("c").await?.len();
        anyhow::ensure!(live <= WORKERS + 1, "{live} pods");
        Ok((live == WORKERS + 1).then_some(()))
    })
    .await?;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(life.live("c").await?.len(), WORKERS + 1, "no more follow");
    let all = life.pods.list(&ListParams::default()).await?.items.len();
    assert_eq!(all, WORKERS + 1, "and none had to be deleted");
    Ok(())
}

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn pods_of_kuberays_operator_are_taken_over_untouched() -> anyhow::Result<()> {
    let life = Life::new("takeover").await?;
    {
        let _maker = cluster::operator(&life.cluster, &life.namespace, &[])?;
        life.create("c", 2).await?;
        eventually("the pods are there", || async {
            Ok((life.live("c").await?.len() == 3).then_some(()))
        })
        .await?;
    }
    // Made to look like KubeRay's: its hash and version, and Recreate to tempt us.
    life.patch("c", json!({"spec": {"upgradeStrategy": {"type": "Recreate"}}}))
        .await?;
    let before = life.live("c").await?;
    for name in before.iter().filter(|name| name.contains("-head-")) {
        let stamp = json!({"metadata": {"annotations": {
            "ray.io/kuberay-version": "v1.6.0", "ray.io/upgrade-strategy-recreate-hash": "0123456789"}}});
        life.pods
            .patch(name, &PatchParams::default(), &Patch::Merge(stamp))
            .await?;
    }
    let _operator = cluster::operator(&life.cluster, &life.namespace, &[])?;
    eventually("the head carries our version", || async {
        let pods = life
            .pods
            .list(&ListParams::default().labels("ray.io/node-type=head"))
            .await?;
        let ours = pods.iter().all(|pod| {
            pod.annotations().get("ray.io/kuberay-version") == Some(&ray_api::meta::operator_version())
        });
        Ok(ours.then_some(()))
    })
    .await?;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(life.live("c").await?, before, "no pod was created or deleted");
    Ok(())
}
