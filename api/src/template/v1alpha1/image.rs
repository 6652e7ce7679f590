#![allow(clippy::duplicated_attributes, reason = "each printcolumn has its own type")]
#![allow(unreachable_pub, reason = "KubeSchema copies each struct into a function")]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::UsedBy;
use crate::schema::{self, IMAGE_REFERENCE, LABEL_VALUE, OBJECT_NAME, REPOSITORY, TAG, USER, rules};

/// Packages in, digest-pinned image out.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "templates.ray.io",
    version = "v1alpha1",
    kind = "ImageTemplate",
    namespaced,
    status = "ImageTemplateStatus",
    doc = "Packages in, digest-pinned image out.",
    derive = "PartialEq",
    shortname = "it",
    category = "ray",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Image", type_ = "string", json_path = ".status.shortDigest"),
    printcolumn(name = "Base", type_ = "string", json_path = ".spec.baseImage"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ImageTemplateSpec {
    /// Image to build on; its Ray is the Ray that runs.
    #[schemars(length(min = 1, max = 1024), regex(pattern = IMAGE_REFERENCE))]
    pub base_image: String,
    /// Python packages as pip names them (PEP 508): `torch==2.9.0`, `ray[serve]>=2`.
    #[schemars(length(max = 1000), inner(length(max = 1024)), transform = schema::each(rules::one_package()))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pip_packages: Vec<String>,
    /// Conda packages as conda names them; the base image must have conda.
    #[schemars(length(max = 1000), inner(length(max = 1024)), transform = schema::each(rules::one_package()))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conda_packages: Vec<String>,
    /// Debian packages, `name` or `name=version`.
    #[schemars(length(max = 1000), inner(length(max = 1024)), transform = schema::each(rules::one_package()))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub system_packages: Vec<String>,
    /// Environment of the image, byte for byte.
    #[schemars(extend("additionalProperties" = schema::strings("^[^\\x00]*$", 65536)))]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment_variables: BTreeMap<String, String>,
    /// Shell scripts that run last, each with `bash -eo pipefail`.
    #[schemars(length(max = 100), inner(length(min = 1, max = 65536)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub custom_commands: Vec<String>,
    /// Where to push, without tag; the operator's default repository + `/<namespace>/<name>` where absent.
    #[schemars(length(min = 1, max = 512), regex(pattern = REPOSITORY))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Tag to push; a hash of the inputs where absent.
    #[schemars(regex(pattern = TAG))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Secret (kubernetes.io/dockerconfigjson) to push with.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push_secret: Option<String>,
    /// Secrets to pull the base image with.
    #[schemars(length(max = 32), inner(length(min = 1, max = 253), regex(pattern = OBJECT_NAME)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pull_secrets: Vec<String>,
    /// Secrets that pods need to pull the result.
    #[schemars(length(max = 32), inner(length(min = 1, max = 253), regex(pattern = OBJECT_NAME)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub run_pull_secrets: Vec<String>,
    /// Where pip looks, and how.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pip: Option<PipOptions>,
    /// User that pip, conda and the image run as; `ray` for images named so, else `root`.
    #[schemars(regex(pattern = USER))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Platform such as `linux/arm64`; the build runs on such a node.
    #[schemars(length(max = 64), regex(pattern = "^[a-z0-9]+/[a-z0-9]+(/[a-z0-9.]+)?$"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// Resources of the build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Nodes that the build may run on.
    #[schemars(extend("additionalProperties" = schema::strings(LABEL_VALUE, 63)))]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the build tolerates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Cache of layers; off where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<BuildCache>,
    /// Longest time that a build may take, as `30m`.
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::build_time())]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// How often a build that failed for a passing reason is tried again; 2 where absent.
    #[schemars(range(min = 0, max = 10))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_limit: Option<i32>,
    /// Starts no build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Builds whose Jobs and records are kept; 5 where absent.
    #[schemars(range(min = 0, max = 50))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history_limit: Option<i32>,
}

/// Where pip looks, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = rules::index_address(), validation = rules::extra_index_addresses())]
#[serde(rename_all = "camelCase")]
pub struct PipOptions {
    /// Package index in place of PyPI.
    #[schemars(length(max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index_url: Option<String>,
    /// Further package indexes.
    #[schemars(length(max = 32), inner(length(max = 1024)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_index_urls: Vec<String>,
    /// Secret of type `templates.ray.io/pip-credentials` with the key `netrc`.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_secret: Option<String>,
    /// Passes `--break-system-packages`, which Debian's own Python needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub break_system_packages: Option<bool>,
}

/// Cache of layers in a registry. Its secret is visible to the build's commands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildCache {
    /// Switches it on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Repository of the cache.
    #[schemars(length(min = 1, max = 512), regex(pattern = REPOSITORY))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Secret to push the cache with.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push_secret: Option<String>,
}

/// The image, and how the newest build goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageTemplateStatus {
    /// The last good image, `repository@sha256:…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Its digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The first 12 hex digits of the digest, for columns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short_digest: Option<String>,
    /// Tags that it was pushed under.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Version of Ray found in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ray_version: Option<String>,
    /// Version of Python found in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python_version: Option<String>,
    /// Hash of the inputs that `image` was built from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inputs_hash: Option<String>,
    /// The newest build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<BuildStatus>,
    /// Why the newest build failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<BuildFailure>,
    /// Ended builds, newest first, at most `historyLimit`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<BuildRecord>,
    /// RayClusters that refer to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_by: Option<UsedBy>,
    /// Value of the rebuild annotation that was last acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebuild: Option<String>,
    /// Generation that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`, `Building`, `Failed`.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
}

/// A build that runs or ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildStatus {
    /// Counts builds from 1.
    pub number: i32,
    /// Hash of the inputs that it builds.
    pub inputs_hash: String,
    /// Why it was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its Job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// When it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Attempts so far.
    #[serde(default)]
    pub attempts: i32,
}

/// An ended build.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildRecord {
    /// Its number.
    pub number: i32,
    /// Hash of its inputs.
    pub inputs_hash: String,
    /// `Succeeded`, `Cancelled`, `Superseded`, or the failure's reason.
    pub result: String,
    /// Its image where it succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// When it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
}

/// Why a build failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildFailure {
    /// A reason that a person can act on.
    pub reason: FailureReason,
    /// The line that explains it.
    pub message: String,
    /// End of the log, at most 2 KiB, credentials masked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_tail: Option<String>,
    /// Exit code of the container that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

/// Reasons of a failed build (design section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)] // the names are the documentation; docs/reference has the table
pub enum FailureReason {
    PipPackageNotFound,
    SystemPackageNotFound,
    CondaUnavailable,
    BaseImageNotFound,
    RegistryUnreachable,
    PushUnauthorized,
    RegistryTlsMismatch,
    OutOfMemory,
    StorageExhausted,
    RateLimited,
    Timeout,
    CommandFailed,
    PodSecurityRejected,
    SecretNotFound,
    SecretInvalid,
    PolicyDenied,
    InvalidSpec,
    BuilderImageUnavailable,
    RayMissing,
    BuildFailed,
}
