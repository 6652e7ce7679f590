use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the operator observed (raycluster-behaviour 1.5); names and formats are KubeRay's, tools depend on them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayClusterStatus {
    /// `ready`, `suspended`, or empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<ClusterState>,
    /// Why `state` is what it is, where that needs words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Worker pods asked for, within min and max.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_worker_replicas: Option<i32>,
    /// Fewest worker pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_worker_replicas: Option<i32>,
    /// Most worker pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_worker_replicas: Option<i32>,
    /// Worker pods that run and are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_worker_replicas: Option<i32>,
    /// Worker pods that run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_worker_replicas: Option<i32>,
    /// CPUs of head and workers.
    #[serde(rename = "desiredCPU", skip_serializing_if = "Option::is_none")]
    pub desired_cpu: Option<Quantity>,
    /// Memory of head and workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_memory: Option<Quantity>,
    /// GPUs of head and workers.
    #[serde(rename = "desiredGPU", skip_serializing_if = "Option::is_none")]
    pub desired_gpu: Option<Quantity>,
    /// TPUs of head and workers.
    #[serde(rename = "desiredTPU", skip_serializing_if = "Option::is_none")]
    pub desired_tpu: Option<Quantity>,
    /// The head pod and its Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<HeadInfo>,
    /// Ports of the head Service by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<BTreeMap<String, String>>,
    /// Conditions by type.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
    /// Generation that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When this status was last written.
    #[schemars(extend("nullable" = true))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// When each state was last entered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_transition_times: Option<BTreeMap<String, Time>>,
}

/// State of a cluster in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClusterState {
    /// Not there yet.
    #[serde(rename = "")]
    Unset,
    /// All pods run and are ready.
    #[serde(rename = "ready")]
    Ready,
    /// All pods are gone on request.
    #[serde(rename = "suspended")]
    Suspended,
    /// Declared by KubeRay, written by nobody.
    #[serde(rename = "failed")]
    Failed,
}

impl ClusterState {
    /// The word in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unset => "",
            Self::Ready => "ready",
            Self::Suspended => "suspended",
            Self::Failed => "failed",
        }
    }
}

/// The head pod and its Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeadInfo {
    /// Name of the head pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// Address of the head pod.
    #[serde(rename = "podIP", skip_serializing_if = "Option::is_none")]
    pub pod_ip: Option<String>,
    /// Name of the head Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// Cluster address of the head Service, or the pod's where it is headless.
    #[serde(rename = "serviceIP", skip_serializing_if = "Option::is_none")]
    pub service_ip: Option<String>,
}
