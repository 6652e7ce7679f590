#![allow(clippy::duplicated_attributes, reason = "each printcolumn has its own type")]
#![allow(unreachable_pub, reason = "KubeSchema copies each struct into a function")]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, EnvFromSource, EnvVar, ResourceRequirements, Toleration, TopologySpreadConstraint, Volume,
    VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::{self, LABEL_VALUE, OBJECT_NAME, rules};

/// Hardware to run Ray nodes on, published under a name. Fills what a group of a RayCluster leaves unset.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "templates.ray.io",
    version = "v1alpha1",
    kind = "ComputeTemplate",
    doc = "Hardware to run Ray nodes on, published under a name. Fills what a group of a RayCluster leaves unset.",
    namespaced,
    status = "ComputeTemplateStatus",
    validation = rules::extends_another(),
    derive = "PartialEq",
    shortname = "ct",
    category = "ray",
    printcolumn(name = "CPU", type_ = "string", json_path = ".spec.resources.limits.cpu"),
    printcolumn(
        name = "Memory",
        type_ = "string",
        json_path = ".spec.resources.limits.memory"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Used by", type_ = "integer", json_path = ".status.usedBy.clusters"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Description",
        type_ = "string",
        json_path = ".spec.description",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ComputeTemplateSpec {
    /// Template of the same namespace (or cluster-wide) that this one builds on; at most 8 deep, no cycles.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extends: Option<String>,
    /// Resources of the Ray container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Node labels that pods need.
    #[schemars(extend("additionalProperties" = schema::strings(LABEL_VALUE, 63)))]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that pods tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Affinity of the pods, as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Spread of the pods, as a whole.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["topologyKey", "whenUnsatisfiable"]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Priority class of the pods.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// Runtime class of the pods.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,
    /// Scheduler of the pods.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// Service account of the pods.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Environment of the Ray container.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
    /// Sources of environment of the Ray container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<EnvFromSource>,
    /// Volumes of the pods.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,
    /// Mounts of the Ray container.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["mountPath"]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<VolumeMount>,
    /// Size of /dev/shm, a memory volume (Ray's object store lives there).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_memory: Option<Quantity>,
    /// Labels of the pods; keys under `ray.io/`, `templates.ray.io/` and `kueue.x-k8s.io/` are refused.
    #[schemars(extend("additionalProperties" = schema::strings(LABEL_VALUE, 63), "maxProperties" = 64))]
    #[x_kube(validation = rules::keys_not_reserved())]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pods; the same keys are refused.
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = rules::keys_not_reserved())]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Flags of `ray start`.
    #[x_kube(validation = rules::no_label_flag())]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ray_start_params: BTreeMap<String, String>,
    /// Logical Ray resources by name.
    #[schemars(extend("additionalProperties" = schema::at_least_zero()))]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ray_resources: BTreeMap<String, f64>,
    /// Pods in a replica.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_of_hosts: Option<i32>,
    /// A sentence for those who choose.
    #[schemars(length(max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Hardware for all namespaces; a ComputeTemplate of the same name in the namespace goes first.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "templates.ray.io",
    version = "v1alpha1",
    kind = "ClusterComputeTemplate",
    doc = "Hardware for all namespaces; a ComputeTemplate of the same name in the namespace goes first.",
    status = "ComputeTemplateStatus",
    validation = rules::extends_another(),
    derive = "PartialEq",
    shortname = "cct",
    category = "ray",
    printcolumn(name = "CPU", type_ = "string", json_path = ".spec.resources.limits.cpu"),
    printcolumn(
        name = "Memory",
        type_ = "string",
        json_path = ".spec.resources.limits.memory"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Used by", type_ = "integer", json_path = ".status.usedBy.clusters"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Description",
        type_ = "string",
        json_path = ".spec.description",
        priority = 1
    )
)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct ClusterComputeTemplateSpec {
    /// The same fields as a ComputeTemplate.
    pub compute: ComputeTemplateSpec,
}

/// Who uses a template, and whether it is sound.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComputeTemplateStatus {
    /// RayClusters that refer to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_by: Option<UsedBy>,
    /// Clusters that run on an older generation of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale: Option<i32>,
    /// Generation that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: False with a reason where `extends` is broken.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
}

/// RayClusters that refer to a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsedBy {
    /// How many.
    pub clusters: i32,
    /// At most ten of them, `namespace/name` where the template is cluster-wide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}
