//! The part of a pod that the cluster controller uses; a cluster of a thousand pods is a thousand of these.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use ray_api::meta::{NODE_TYPE_HEAD, NODE_TYPE_WORKER, annotation, label};
use serde::{Deserialize, Deserializer};

/// What a pod is to its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeType {
    /// The head.
    Head,
    /// A worker.
    Worker,
    /// Of the Job that cleans up Redis.
    RedisCleanup,
}

/// `status.phase`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Phase {
    /// Not started, or not scheduled.
    #[default]
    Pending,
    /// Started.
    Running,
    /// Ended well; a Ray node never should.
    Succeeded,
    /// Ended badly, or evicted.
    Failed,
    /// The node does not answer.
    #[serde(other)]
    Unknown,
}

/// State of the Ray container and of what holds the pod back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RayState {
    /// The Ray container has ended.
    pub terminated: bool,
    /// Name, reason and message of the first container that waits or has ended.
    pub blocked: Option<(String, String, String)>,
}

/// The Ready condition of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why.
    pub reason: String,
    /// In words.
    pub message: String,
}

/// A Ray pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodView {
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Uid of the object that controls it.
    pub owner_uid: Option<String>,
    /// Its part.
    pub node_type: NodeType,
    /// Worker group; absent where the label is.
    pub group: Option<String>,
    /// Index of its replica.
    pub replica: Option<u32>,
    /// Name of its multi-host replica.
    pub replica_name: Option<String>,
    /// Index in its replica.
    pub host: Option<u32>,
    /// When it was asked for.
    pub created: Option<Timestamp>,
    /// When it must be gone: `deletionTimestamp`, which has the grace period in it.
    pub deletion: Option<Timestamp>,
    /// Whether it is being deleted without any grace.
    pub deleted_by_force: bool,
    /// Phase.
    pub phase: Phase,
    /// Readiness, once the kubelet has said something.
    pub ready: Option<Ready>,
    /// Address.
    pub ip: Option<String>,
    /// Whether containers that end stay ended.
    pub never_restarts: bool,
    /// The Ray container.
    pub ray: RayState,
    /// Hash that the head was made from.
    pub spec_hash: Option<String>,
    /// Operator that made the head.
    pub operator_version: Option<String>,
}

impl PodView {
    /// A pod that is about to be created, as it will be seen.
    #[must_use]
    pub fn expected(pod: &Pod, node_type: NodeType, now: Timestamp) -> Self {
        let label = |key| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key));
        let number = |key| label(key).and_then(|text: &String| text.parse().ok());
        let owners = pod.metadata.owner_references.iter().flatten();
        Self {
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: String::new(),
            owner_uid: owners.map(|owner| owner.uid.clone()).next(),
            node_type,
            group: label(label::GROUP).cloned(),
            replica: number(label::REPLICA_INDEX),
            replica_name: label(label::REPLICA_NAME).cloned(),
            host: number(label::HOST_INDEX),
            created: Some(now),
            deletion: None,
            deleted_by_force: false,
            phase: Phase::Pending,
            ready: None,
            ip: None,
            never_restarts: false,
            ray: RayState::default(),
            spec_hash: None,
            operator_version: None,
        }
    }

    /// Whether it is being deleted.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.deletion.is_some()
    }

    /// Runs, and nothing says that it is not ready.
    #[must_use]
    pub fn is_running_and_ready(&self) -> bool {
        self.phase == Phase::Running && self.ready.as_ref().is_none_or(|ready| ready.status == "True")
    }

    /// Runs, and its Ready condition says True.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Running && self.ready.as_ref().is_some_and(|ready| ready.status == "True")
    }

    /// Waits for a Secret or ConfigMap that its environment is taken from.
    #[must_use]
    pub fn lacks_config(&self) -> bool {
        let blocked = self.ray.blocked.as_ref();
        blocked.is_some_and(|(_, reason, _)| reason == "CreateContainerConfigError")
    }

    /// Has ended for good (raycluster-behaviour 4.5): a new pod must take its place.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        match self.phase {
            Phase::Failed | Phase::Succeeded => true,
            Phase::Running => self.ray.terminated && self.never_restarts,
            Phase::Pending | Phase::Unknown => false,
        }
    }
}

/// A pod as the watch delivers it: decoded straight into what is used.
#[derive(Clone, Debug)]
pub struct WatchedPod {
    metadata: ObjectMeta,
    /// What is used; absent for a pod whose labels name no cluster or part.
    pub view: Option<PodView>,
    /// Value of `ray.io/cluster`.
    pub cluster: String,
}

impl Resource for WatchedPod {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        Pod::kind(&())
    }
    fn group(_: &()) -> Cow<'_, str> {
        Pod::group(&())
    }
    fn version(_: &()) -> Cow<'_, str> {
        Pod::version(&())
    }
    fn plural(_: &()) -> Cow<'_, str> {
        Pod::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<'de> Deserialize<'de> for WatchedPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        wire::Pod::deserialize(deserializer).map(Self::from)
    }
}

/// The fields that are read, and nothing else: the rest of the JSON is skipped, not stored.
mod wire {
    use super::{BTreeMap, Deserialize, OwnerReference, Phase, Time};

    #[derive(Deserialize)]
    pub(super) struct Pod {
        #[serde(default)]
        pub metadata: Metadata,
        #[serde(default)]
        pub spec: Spec,
        #[serde(default)]
        pub status: Status,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct Metadata {
        pub name: Option<String>,
        pub namespace: Option<String>,
        pub uid: Option<String>,
        pub resource_version: Option<String>,
        pub labels: BTreeMap<String, String>,
        pub annotations: BTreeMap<String, String>,
        pub owner_references: Vec<OwnerReference>,
        pub creation_timestamp: Option<Time>,
        pub deletion_timestamp: Option<Time>,
        pub deletion_grace_period_seconds: Option<i64>,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct Spec {
        pub restart_policy: Option<String>,
        pub containers: Vec<Container>,
    }

    #[derive(Default, Deserialize)]
    #[serde(default)]
    pub(super) struct Container {
        pub name: String,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct Status {
        pub phase: Phase,
        #[serde(rename = "podIP")]
        pub pod_ip: Option<String>,
        pub conditions: Vec<Condition>,
        pub container_statuses: Vec<ContainerStatus>,
        pub init_container_statuses: Vec<ContainerStatus>,
    }

    #[derive(Default, Deserialize)]
    #[serde(default)]
    pub(super) struct Condition {
        #[serde(rename = "type")]
        pub type_: String,
        pub status: String,
        pub reason: String,
        pub message: String,
    }

    #[derive(Default, Deserialize)]
    #[serde(default)]
    pub(super) struct ContainerStatus {
        pub name: String,
        pub state: State,
    }

    #[derive(Default, Deserialize)]
    #[serde(default)]
    pub(super) struct State {
        pub waiting: Option<Why>,
        pub terminated: Option<Why>,
    }

    #[derive(Default, Deserialize)]
    #[serde(default)]
    pub(super) struct Why {
        pub reason: String,
        pub message: String,
    }
}

impl From<wire::Pod> for WatchedPod {
    fn from(pod: wire::Pod) -> Self {
        let cluster = pod
            .metadata
            .labels
            .get(label::CLUSTER)
            .cloned()
            .unwrap_or_default();
        Self {
            view: view(&pod),
            cluster,
            metadata: ObjectMeta {
                name: pod.metadata.name,
                namespace: pod.metadata.namespace,
                uid: pod.metadata.uid,
                resource_version: pod.metadata.resource_version,
                ..ObjectMeta::default()
            },
        }
    }
}

fn view(pod: &wire::Pod) -> Option<PodView> {
    let metadata = &pod.metadata;
    let labels = &metadata.labels;
    let number = |key| labels.get(key).and_then(|text| text.parse().ok());
    let node_type = match labels.get(label::NODE_TYPE)?.as_str() {
        NODE_TYPE_HEAD => NodeType::Head,
        NODE_TYPE_WORKER => NodeType::Worker,
        _ => NodeType::RedisCleanup,
    };
    labels.get(label::CLUSTER)?;
    let controller = metadata
        .owner_references
        .iter()
        .find(|owner| owner.controller == Some(true));
    Some(PodView {
        name: metadata.name.clone()?,
        uid: metadata.uid.clone().unwrap_or_default(),
        owner_uid: controller.map(|owner| owner.uid.clone()),
        node_type,
        group: labels.get(label::GROUP).cloned(),
        replica: number(label::REPLICA_INDEX),
        replica_name: labels.get(label::REPLICA_NAME).cloned(),
        host: number(label::HOST_INDEX),
        created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        deletion: metadata.deletion_timestamp.as_ref().map(|time| time.0),
        deleted_by_force: metadata.deletion_grace_period_seconds == Some(0),
        phase: pod.status.phase,
        ready: ready(&pod.status.conditions),
        ip: pod.status.pod_ip.clone().filter(|ip| !ip.is_empty()),
        never_restarts: pod.spec.restart_policy.as_deref() == Some("Never"),
        ray: ray_state(pod),
        spec_hash: metadata.annotations.get(annotation::RECREATE_HASH).cloned(),
        operator_version: metadata.annotations.get(annotation::OPERATOR_VERSION).cloned(),
    })
}

fn ready(conditions: &[wire::Condition]) -> Option<Ready> {
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    Some(Ready {
        status: ready.status.clone(),
        reason: ready.reason.clone(),
        message: ready.message.clone(),
    })
}

fn ray_state(pod: &wire::Pod) -> RayState {
    let name = pod.spec.containers.first().map(|container| &container.name);
    let ray = pod
        .status
        .container_statuses
        .iter()
        .find(|status| Some(&status.name) == name);
    let blocked = pod
        .status
        .init_container_statuses
        .iter()
        // An init container that ended well blocks nothing.
        .filter(|status| status.state.waiting.is_some())
        .chain(&pod.status.container_statuses)
        .find_map(|status| {
            let why = status
                .state
                .waiting
                .as_ref()
                .or(status.state.terminated.as_ref())?;
            Some((status.name.clone(), why.reason.clone(), why.message.clone()))
        });
    RayState {
        terminated: ray.is_some_and(|status| status.state.terminated.is_some()),
        blocked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn watched(pod: serde_json::Value) -> PodView {
        serde_json::from_value::<WatchedPod>(pod).unwrap().view.unwrap()
    }

    #[test]
    fn a_pod_is_decoded_into_what_is_used() {
        let view = watched(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "c-g-worker-abcde", "namespace": "n", "uid": "u", "resourceVersion": "7",
                "labels": {"ray.io/cluster": "c", "ray.io/node-type": "worker", "ray.io/group": "g",
                    "ray.io/worker-group-replica-index": "3"},
                "ownerReferences": [{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "c", "uid": "o",
                    "controller": true}],
                "managedFields": [{"manager": "m", "fieldsV1": {"f:x": {}}}],
            },
            "spec": {"restartPolicy": "Never", "containers": [{"name": "ray"}, {"name": "log"}]},
            "status": {
                "phase": "Running", "podIP": "10.0.0.1",
                "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "m"}],
                "containerStatuses": [
                    {"name": "log", "state": {"running": {}}},
                    {"name": "ray", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}},
                ],
            },
        }));
        assert_eq!(view.owner_uid.as_deref(), Some("o"));
        assert_eq!((view.replica, view.phase), (Some(3), Phase::Running));
        assert!(view.has_ended(), "the Ray container ended and is not restarted");
        assert_eq!(view.ray.blocked.unwrap().1, "Error");
    }

    #[test]
    fn which_pods_have_ended() {
        let pod = |policy: &str, phase: &str, terminated: bool| {
            let state = if terminated {
                json!({"terminated": {}})
            } else {
                json!({"running": {}})
            };
            watched(json!({
                "metadata": {"name": "p", "labels": {"ray.io/cluster": "c", "ray.io/node-type": "head"}},
                "spec": {"restartPolicy": policy, "containers": [{"name": "ray"}]},
                "status": {"phase": phase, "containerStatuses": [{"name": "ray", "state": state}]},
            }))
            .has_ended()
        };
        assert!(
            pod("Always", "Failed", false),
            "evicted pods are not restarted, whatever the policy"
        );
        assert!(pod("Always", "Succeeded", false));
        assert!(pod("Never", "Running", true));
        assert!(!pod("Always", "Running", true), "the kubelet restarts it");
        assert!(!pod("Never", "Running", false));
        assert!(!pod("Never", "Pending", false));
        assert!(!pod("Never", "SomethingNew", false));
    }
}
