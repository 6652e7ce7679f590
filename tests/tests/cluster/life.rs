//! One namespace in which a test follows RayClusters and their pods.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use ray_api::ray::RayCluster;
use ray_tests::{Cluster, Process, eventually};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A namespace on the control plane, with our CRD.
pub(crate) struct Life {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: String,
    pub(crate) clusters: Api<RayCluster>,
    pub(crate) pods: Api<Pod>,
}

/// A RayCluster with one group `g`.
pub(crate) fn ray_cluster(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name},
        "spec": {"headGroupSpec": {"template": template("ray-head")}, "workerGroupSpecs": [group("g", replicas)]},
    })
}

/// A worker group.
pub(crate) fn group(name: &str, replicas: u32) -> Value {
    json!({"groupName": name, "replicas": replicas, "minReplicas": 0, "maxReplicas": 1000, "template": template("ray-worker")})
}

fn template(container: &str) -> Value {
    json!({"spec": {"containers": [{"name": container, "image": "ray:1"}]}})
}

impl Life {
    pub(crate) async fn new(prefix: &str) -> anyhow::Result<Self> {
        let cluster = Cluster::control_plane().await?;
        super::install_crd(&cluster).await?;
        let namespace = cluster.namespace(prefix).await?;
        super::default_account(&cluster, &namespace).await?;
        Ok(Self {
            clusters: Api::namespaced(cluster.client.clone(), &namespace),
            pods: Api::namespaced(cluster.client.clone(), &namespace),
            cluster,
            namespace,
        })
    }

    /// The same, where somebody plays the kubelet.
    pub(crate) async fn with_nodes(prefix: &str) -> anyhow::Result<Self> {
        let life = Self::new(prefix).await?;
        let nodes: Api<Node> = Api::all(life.cluster.client.clone());
        anyhow::ensure!(
            !nodes.list(&ListParams::default()).await?.items.is_empty(),
            "no nodes: tests/cluster/cluster.sh kwok starts simulated ones"
        );
        Ok(life)
    }

    /// The cluster controller for this namespace, without election.
    pub(crate) fn operator(&self) -> anyhow::Result<Process> {
        super::operator(&self.cluster, &self.namespace, &[])
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.cluster.client.clone(), &self.namespace)
    }

    pub(crate) async fn create(&self, object: Value) -> anyhow::Result<RayCluster> {
        let object = serde_json::from_value(object)?;
        Ok(self.clusters.create(&PostParams::default(), &object).await?)
    }

    pub(crate) async fn patch(&self, name: &str, patch: Value) -> anyhow::Result<()> {
        self.clusters
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// Writes `replicas` of the only group.
    pub(crate) async fn scale(&self, name: &str, replicas: u32) -> anyhow::Result<()> {
        self.patch(
            name,
            json!({"spec": {"workerGroupSpecs": [group("g", replicas)]}}),
        )
        .await
    }

    /// Pods of a cluster that are not terminating.
    pub(crate) async fn live_pods(&self, name: &str) -> anyhow::Result<Vec<Pod>> {
        let selected = ListParams::default().labels(&format!("ray.io/cluster={name}"));
        let mut pods = self.pods.list(&selected).await?.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok(pods)
    }

    /// Their names.
    pub(crate) async fn live(&self, name: &str) -> anyhow::Result<BTreeSet<String>> {
        Ok(self
            .live_pods(name)
            .await?
            .iter()
            .map(ResourceExt::name_any)
            .collect())
    }

    /// How many there are of each group, `headgroup` included.
    pub(crate) async fn live_by_group(&self, name: &str) -> anyhow::Result<BTreeMap<String, usize>> {
        let mut groups = BTreeMap::new();
        for pod in self.live_pods(name).await? {
            let group = pod.labels().get("ray.io/group").cloned().unwrap_or_default();
            *groups.entry(group).or_default() += 1;
        }
        Ok(groups)
    }

    /// `status.state`, empty where it is not set.
    pub(crate) async fn state(&self, name: &str) -> anyhow::Result<&'static str> {
        let status = self.clusters.get(name).await?.status;
        Ok(status
            .and_then(|status| status.state)
            .map_or("", |state| state.as_str()))
    }

    pub(crate) async fn condition(&self, name: &str, type_: &str) -> anyhow::Result<Option<Condition>> {
        let status = self.clusters.get(name).await?.status.unwrap_or_default();
        let mut conditions = status.conditions.into_iter().flatten();
        Ok(conditions.find(|condition| condition.type_ == type_))
    }

    /// Waits until the cluster is in a state with that many live pods; their names.
    pub(crate) async fn until(
        &self,
        name: &str,
        state: &str,
        pods: usize,
    ) -> anyhow::Result<BTreeSet<String>> {
        eventually(&format!("{name} is {state:?} with {pods} pods"), || async {
            let (word, live) = (self.state(name).await?, self.live(name).await?);
            anyhow::ensure!(
                word == state && live.len() == pods,
                "state {word:?}, {} pods",
                live.len()
            );
            Ok(Some(live))
        })
        .await
    }

    /// Waits until a cluster has that many live pods; their names.
    pub(crate) async fn until_pods(&self, name: &str, pods: usize) -> anyhow::Result<BTreeSet<String>> {
        eventually(&format!("{name} has {pods} pods"), || async {
            let live = self.live(name).await?;
            anyhow::ensure!(live.len() == pods, "{} pods", live.len());
            Ok(Some(live))
        })
        .await
    }

    /// Reasons and notes of the events about a cluster.
    pub(crate) async fn events(&self, name: &str) -> anyhow::Result<Vec<(String, String)>> {
        let api: Api<k8s_openapi::api::events::v1::Event> = self.api();
        let about = ListParams::default().fields(&format!("regarding.name={name}"));
        let events = api.list(&about).await?.items.into_iter();
        Ok(events
            .map(|event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default()))
            .collect())
    }

    /// Merge-patches an object as somebody who is not the operator.
    pub(crate) async fn meddle<K>(&self, name: &str, patch: Value) -> anyhow::Result<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let api: Api<K> = self.api();
        Ok(api
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?)
    }
}
