#![allow(unreachable_pub, reason = "KubeSchema copies each struct into a function")]

use k8s_openapi::api::core::v1::EnvVarSource;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::rules;

/// Where the GCS keeps its state, so that it outlives the head.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = rules::storage_needs_rocksdb())]
#[serde(rename_all = "camelCase")]
pub struct GcsFaultToleranceOptions {
    /// Kind of storage; absent means Redis.
    #[x_kube(validation = rules::immutable())]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<GcsFaultToleranceBackend>,
    /// Address of Redis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_address: Option<String>,
    /// User of Redis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_username: Option<RedisCredential>,
    /// Password of Redis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_password: Option<RedisCredential>,
    /// Key namespace; the cluster's uid where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_storage_namespace: Option<String>,
    /// Volume of the RocksDB backend: not supported yet, asking for it shows as a condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<GcsStorage>,
}

/// Kind of storage of a fault tolerant GCS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GcsFaultToleranceBackend {
    /// An external Redis.
    #[serde(rename = "redis")]
    Redis,
    /// A volume of the head.
    #[serde(rename = "rocksdb")]
    RocksDb,
}

/// A literal, or where to read one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisCredential {
    /// The literal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Its source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvVarSource>,
}

/// Volume claim of the RocksDB backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcsStorage {
    /// An existing claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// Size of a new claim.
    #[schemars(extend("default" = "1Gi"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity>,
    /// Class of a new claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// Access modes of a new claim.
    #[schemars(extend("default" = ["ReadWriteOnce"]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access_modes: Vec<String>,
    /// Folder inside the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_path: Option<String>,
    /// What becomes of the claim with the cluster.
    #[schemars(extend("default" = "DeleteWithCluster"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<StorageDeletionPolicy>,
}

/// What becomes of the GCS volume when the cluster is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StorageDeletionPolicy {
    /// Goes with the cluster.
    DeleteWithCluster,
    /// Stays.
    Retain,
}
