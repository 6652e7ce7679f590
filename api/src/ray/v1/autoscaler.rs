use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, ResourceRequirements, SecurityContext, VolumeMount};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Overrides of the autoscaler's container, and settings that the autoscaler process reads itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoscalerOptions {
    /// Resources of the autoscaler's container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Image of the autoscaler; the head's where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Pull policy of the autoscaler's image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// Security context of the autoscaler's container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_context: Option<SecurityContext>,
    /// Further environment variables.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
    /// Further sources of environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<EnvFromSource>,
    /// Further volume mounts.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["mountPath"]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<VolumeMount>,
    /// Replaces the command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Replaces the arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Seconds until an idle worker goes; the autoscaler's default is 60.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_seconds: Option<i32>,
    /// How eagerly to scale up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upscaling_mode: Option<UpscalingMode>,
    /// Generation of Ray's autoscaler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<AutoscalerVersion>,
}

/// How eagerly the autoscaler scales up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpscalingMode {
    /// As `Aggressive`.
    Default,
    /// No limit.
    Aggressive,
    /// Never more pending than running.
    Conservative,
}

/// Generation of Ray's autoscaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AutoscalerVersion {
    /// The first.
    #[serde(rename = "v1")]
    V1,
    /// The second: pods are never restarted in place.
    #[serde(rename = "v2")]
    V2,
}
