#![allow(unreachable_pub, reason = "KubeSchema copies each struct into a function")]

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements};
use k8s_openapi::api::networking::v1::{IngressTLS, NetworkPolicyEgressRule, NetworkPolicyIngressRule};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::rules;

/// What a change of the spec does to running pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UpgradeStrategy {
    /// Absent means `None`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<UpgradeType>,
}

/// What a change of the spec does to running pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpgradeType {
    /// All pods are made anew.
    Recreate,
    /// Pods that run are left alone.
    None,
}

/// Token authentication of Ray.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = rules::kubernetes_tokens_need_token_mode())]
#[x_kube(validation = rules::kubernetes_tokens_need_no_secret())]
#[serde(rename_all = "camelCase")]
pub struct AuthOptions {
    /// `token` switches it on; absent means `disabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<AuthMode>,
    /// A Secret with the key `auth_token`; one is made where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
    /// Delegate to Kubernetes' TokenReview.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_k8s_token_auth: Option<bool>,
}

/// Authentication mode of Ray.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AuthMode {
    /// No authentication.
    #[serde(rename = "disabled")]
    Disabled,
    /// A shared token.
    #[serde(rename = "token")]
    Token,
}

/// Ingress to the dashboard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IngressOptions {
    /// Host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Path; `/` where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// `Exact`, `Prefix` (where absent) or `ImplementationSpecific`.
    #[schemars(extend("enum" = ["Exact", "Prefix", "ImplementationSpecific"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_type: Option<String>,
    /// TLS of the Ingress.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tls: Vec<IngressTLS>,
}

/// mTLS by cert-manager.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TlsOptions {
    /// Switches it on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// Ray's history server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryServerOptions {
    /// The collector's sidecar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collector_options: Option<CollectorOptions>,
}

/// Sidecar that collects events for the history server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CollectorOptions {
    /// Its image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Its pull policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// Its resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Its environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
}

/// Network isolation of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyOptions {
    /// What is denied unless a rule allows it.
    #[schemars(extend("default" = "DenyAll"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<NetworkPolicyMode>,
    /// Rules of the head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<NetworkPolicyRules>,
    /// Rules of all workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<NetworkPolicyRules>,
    /// Rules of single groups, in place of `worker`.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["groupName"]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worker_groups: Vec<WorkerGroupNetworkPolicy>,
}

/// Direction that is denied by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NetworkPolicyMode {
    /// Both directions.
    DenyAll,
    /// Incoming traffic.
    DenyAllIngress,
    /// Outgoing traffic.
    DenyAllEgress,
}

/// Rules that allow traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyRules {
    /// Incoming.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ingress_rules: Vec<NetworkPolicyIngressRule>,
    /// Outgoing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress_rules: Vec<NetworkPolicyEgressRule>,
}

/// Rules of one worker group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerGroupNetworkPolicy {
    /// The group's name.
    pub group_name: String,
    /// Incoming.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ingress_rules: Vec<NetworkPolicyIngressRule>,
    /// Outgoing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress_rules: Vec<NetworkPolicyEgressRule>,
}
