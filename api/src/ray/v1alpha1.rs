//! `ray.io/v1alpha1`: served for KubeRay's sake, deprecated, and kept whole whatever it carries.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The old RayCluster: any fields, so that a write through this version loses nothing.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ray.io",
    version = "v1alpha1",
    kind = "RayCluster",
    namespaced,
    storage = false,
    deprecated = "ray.io/v1alpha1 RayCluster is deprecated; use ray.io/v1",
    category = "all",
    category = "ray"
)]
pub struct RayClusterSpec {
    /// Whatever `ray.io/v1` has; stored unread.
    #[serde(flatten)]
    pub fields: std::collections::BTreeMap<String, serde_json::Value>,
}
