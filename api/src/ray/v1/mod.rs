//! `ray.io/v1` RayCluster (raycluster-behaviour section 1): what the cluster controller reads and the CRD declares.

#![allow(unreachable_pub, reason = "KubeSchema copies each struct into a function")]
#![allow(clippy::duplicated_attributes, reason = "each printcolumn has its own type")]

mod autoscaler;
mod fault_tolerance;
mod options;
mod status;

pub use autoscaler::{AutoscalerOptions, AutoscalerVersion, UpscalingMode};
pub use fault_tolerance::{
    GcsFaultToleranceBackend, GcsFaultToleranceOptions, GcsStorage, RedisCredential, StorageDeletionPolicy,
};
pub use options::{
    AuthMode, AuthOptions, CollectorOptions, HistoryServerOptions, IngressOptions, NetworkPolicyMode,
    NetworkPolicyOptions, NetworkPolicyRules, TlsOptions, UpgradeStrategy, UpgradeType,
    WorkerGroupNetworkPolicy,
};
pub use status::{ClusterState, HeadInfo, RayClusterStatus};

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodTemplateSpec, Service};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::{self, LABEL_VALUE, OBJECT_NAME, QUANTITY, rules};

/// A Ray cluster: one head and any number of worker groups.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "ray.io",
    version = "v1",
    kind = "RayCluster",
    namespaced,
    status = "RayClusterStatus",
    doc = "A Ray cluster: one head and any number of worker groups.",
    validation = rules::cluster_name(),
    derive = "PartialEq",
    derive = "Default",
    category = "all",
    category = "ray",
    printcolumn(
        name = "desired workers",
        type_ = "integer",
        json_path = ".status.desiredWorkerReplicas"
    ),
    printcolumn(
        name = "available workers",
        type_ = "integer",
        json_path = ".status.availableWorkerReplicas"
    ),
    printcolumn(name = "cpus", type_ = "string", json_path = ".status.desiredCPU"),
    printcolumn(name = "memory", type_ = "string", json_path = ".status.desiredMemory"),
    printcolumn(name = "gpus", type_ = "string", json_path = ".status.desiredGPU"),
    printcolumn(
        name = "tpus",
        type_ = "string",
        json_path = ".status.desiredTPU",
        priority = 1
    ),
    printcolumn(name = "status", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "head pod IP",
        type_ = "string",
        json_path = ".status.head.podIP",
        priority = 1
    ),
    printcolumn(
        name = "head service IP",
        type_ = "string",
        json_path = ".status.head.serviceIP",
        priority = 1
    )
)]
#[x_kube(validation = rules::head_has_container())]
#[x_kube(validation = rules::workers_have_container())]
#[serde(rename_all = "camelCase")]
pub struct RayClusterSpec {
    /// The one head pod.
    pub head_group_spec: HeadGroupSpec,
    /// Worker groups; their order matters (the autoscaler patches by index).
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["groupName"], "maxItems" = 1000))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worker_group_specs: Vec<WorkerGroupSpec>,
    /// ImageTemplate for all groups that name none themselves. Read by the webhook only.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_template: Option<String>,
    /// ComputeTemplate for all groups that name none themselves. Read by the webhook only.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_template: Option<String>,
    /// Version of Ray in the image; decides the style of probes and which features are allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ray_version: Option<String>,
    /// Adds Ray's autoscaler to the head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_in_tree_autoscaling: Option<bool>,
    /// Overrides of the autoscaler's container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoscaler_options: Option<AutoscalerOptions>,
    /// Deletes all pods and holds; `false` or absence resumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Controller that runs this cluster: absent or `ray.io/kuberay-operator` is this operator.
    #[x_kube(validation = rules::immutable(), validation = rules::known_manager())]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    /// What a change of the spec does to running pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade_strategy: Option<UpgradeStrategy>,
    /// Token authentication of Ray.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_options: Option<AuthOptions>,
    /// Fault tolerance of the GCS; presence alone enables it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gcs_fault_tolerance_options: Option<GcsFaultToleranceOptions>,
    /// Annotations of the head Service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub head_service_annotations: BTreeMap<String, String>,
    /// History server: not supported yet, asking for it shows as a condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history_server_options: Option<HistoryServerOptions>,
    /// Network policies: not supported yet, asking for it shows as a condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<NetworkPolicyOptions>,
    /// mTLS: not supported yet, asking for it shows as a condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_options: Option<TlsOptions>,
}

/// The head: one pod, its Service and Ingress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = rules::resources_once())]
#[x_kube(validation = rules::labels_in_their_field())]
#[x_kube(validation = rules::redis_username_in_options())]
#[serde(rename_all = "camelCase")]
pub struct HeadGroupSpec {
    /// Head pod; container 0 is Ray. May be absent where a template is referenced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<PodTemplateSpec>,
    /// Flags of `ray start --head`; values are shell text.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub ray_start_params: Option<BTreeMap<String, String>>,
    /// ImageTemplate of the head. Read by the webhook only.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_template: Option<String>,
    /// ComputeTemplate of the head. Read by the webhook only.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_template: Option<String>,
    /// Logical resources of the Ray node by Kubernetes name (`cpu`, `memory`, …), as quantities.
    #[schemars(extend("additionalProperties" = schema::strings(QUANTITY, 64)))]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, String>,
    /// Labels of the Ray node: pod labels and `--labels`.
    #[schemars(extend("additionalProperties" = schema::strings(LABEL_VALUE, 63)))]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Type of the head and Serve Services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_type: Option<String>,
    /// Skeleton of the head Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_service: Option<Service>,
    /// Makes an Ingress to the dashboard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_ingress: Option<bool>,
    /// Details of the Ingress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress_options: Option<IngressOptions>,
}

/// A group of equal workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = rules::min_not_above_max())]
#[x_kube(validation = rules::resources_once())]
#[x_kube(validation = rules::labels_in_their_field())]
#[serde(rename_all = "camelCase")]
pub struct WorkerGroupSpec {
    /// Name of the group, unique in the cluster; label `ray.io/group` of its pods.
    #[schemars(length(max = 63), regex(pattern = LABEL_VALUE))]
    pub group_name: String,
    /// Wanted replicas; the autoscaler writes it.
    #[schemars(extend("default" = 0))]
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Fewest replicas.
    #[schemars(extend("default" = 0))]
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<i32>,
    /// Most replicas.
    #[schemars(extend("default" = 2_147_483_647))]
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<i32>,
    /// Pods in a replica (a TPU slice has several); absent means 1.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_of_hosts: Option<i32>,
    /// Deletes the group's pods and holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Seconds until an idle worker may go; autoscaler v2 only.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_seconds: Option<i32>,
    /// Preference among groups; autoscaler v2 and Ray ≥ 2.56 only.
    #[schemars(extend("default" = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Worker pod; container 0 is Ray. May be absent where a template is referenced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<PodTemplateSpec>,
    /// Flags of `ray start`; values are shell text.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub ray_start_params: Option<BTreeMap<String, String>>,
    /// ImageTemplate of this group. Read by the webhook only.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_template: Option<String>,
    /// ComputeTemplate of this group. Read by the webhook only.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_template: Option<String>,
    /// Logical resources of the Ray node by Kubernetes name, as quantities.
    #[schemars(extend("additionalProperties" = schema::strings(QUANTITY, 64)))]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, String>,
    /// Labels of the Ray node: pod labels and `--labels`.
    #[schemars(extend("additionalProperties" = schema::strings(LABEL_VALUE, 63)))]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Pods that the autoscaler wants gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_strategy: Option<ScaleStrategy>,
}

/// Pods to delete, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleStrategy {
    /// Names of pods of this group; names already gone count as done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers_to_delete: Vec<String>,
}

/// Real manifests carry explicit nulls in maps; Go reads them as absent.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
