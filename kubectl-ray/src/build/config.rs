use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::{GroupConfig, Resources};

/// A Ray cluster as a person describes it: the file of `create cluster --file`, or the flags, or both.
///
/// Keys are KubeRay's plugin's, plus the templates. Unknown keys are errors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ClusterConfig {
    /// Namespace; must agree with `--namespace` where both are given.
    pub namespace: Option<String>,
    /// Name; must agree with the name on the command line where both are given.
    pub name: Option<String>,
    /// Labels of the RayCluster.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the RayCluster.
    pub annotations: BTreeMap<String, String>,
    /// Version of Ray; also the tag of the default image.
    #[serde(deserialize_with = "text")]
    pub ray_version: Option<String>,
    /// Image of all groups.
    pub image: Option<String>,
    /// ImageTemplate of all groups.
    pub image_template: Option<String>,
    /// ComputeTemplate of all groups that name none.
    pub compute_template: Option<String>,
    /// Service account of all pods.
    pub service_account: Option<String>,
    /// The head.
    pub head: HeadConfig,
    /// The worker groups; one group of one worker where absent.
    pub worker_groups: Option<Vec<GroupConfig>>,
    /// Ray's autoscaler.
    pub autoscaler: Option<AutoscalerConfig>,
    /// Features of Google's Kubernetes.
    pub gke: Option<Gke>,
}

/// The head.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct HeadConfig {
    /// Resources of the head pod.
    #[serde(flatten)]
    pub resources: Resources,
    /// ComputeTemplate of the head.
    pub compute_template: Option<String>,
    /// ImageTemplate of the head.
    pub image_template: Option<String>,
    /// Flags of `ray start --head`.
    pub ray_start_params: BTreeMap<String, String>,
    /// Node labels that the head needs.
    pub node_selectors: BTreeMap<String, String>,
}

/// Ray's autoscaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AutoscalerConfig {
    /// Its generation.
    pub version: AutoscalerVersion,
}

/// Generation of Ray's autoscaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum AutoscalerVersion {
    /// The first.
    V1,
    /// The second.
    V2,
}

/// Features of Google's Kubernetes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Gke {
    /// A bucket as a volume of all pods.
    pub gcsfuse: Option<GcsFuse>,
}

/// A bucket as a volume, by Google's CSI driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct GcsFuse {
    /// The bucket.
    pub bucket_name: String,
    /// Where it is mounted.
    pub mount_path: String,
    /// Options of the mount.
    pub mount_options: Option<String>,
    /// Switches the driver's metrics off.
    pub disable_metrics: Option<bool>,
    /// Reads the bucket's metadata ahead.
    pub gcsfuse_metadata_prefetch_on_mount: Option<bool>,
    /// Skips the driver's check of the bucket.
    pub skip_csi_bucket_access_check: Option<bool>,
    /// Resources of the driver's sidecar.
    pub resources: Option<Resources>,
}

impl ClusterConfig {
    /// Parses the file.
    ///
    /// # Errors
    /// With line and column; a manifest is told apart from a file of ours.
    pub fn parse(yaml: &str) -> Result<Self, String> {
        serde_saphyr::from_str(yaml).map_err(|error| {
            if yaml.lines().any(|line| line.starts_with("apiVersion:")) {
                "this is a manifest: create it with `kubectl apply -f`".to_owned()
            } else {
                error.to_string()
            }
        })
    }
}

/// Reads a scalar as it is written, so that `cpu: 2` and `cpu: "2"` are the same.
pub(super) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    use serde_json::Value;
    Ok(match Option::<Value>::deserialize(deserializer)? {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text),
        Some(Value::Number(number)) => Some(number.to_string()),
        Some(other) => return Err(serde::de::Error::custom(format!("`{other}` is not a quantity"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_kuberays_plugin_is_read() {
        let config = ClusterConfig::parse(
            "name: demo\nray-version: 2.52.0\nhead:\n  cpu: 3\n  memory: 5Gi\n  ray-start-params:\n    metrics-export-port: '8082'\n\
             worker-groups:\n- name: g\n  replicas: 2\n  cpu: '2'\n  tpu: 4\n  num-of-hosts: 2\n\
             autoscaler:\n  version: v2\n\
             gke:\n  gcsfuse:\n    bucket-name: b\n    mount-path: /mnt\n    resources:\n      cpu: 250m\n",
        )
        .unwrap();
        assert_eq!(config.head.resources.cpu.as_deref(), Some("3"));
        let group = &config.worker_groups.unwrap()[0];
        assert_eq!(group.num_of_hosts, Some(2));
        assert_eq!(group.resources.tpu.as_deref(), Some("4"));
    }

    #[test]
    fn unknown_keys_and_manifests_are_told() {
        for wrong in ["nmae: x\n", "head: {cppu: 1}\n", "worker-groups: [{nam: x}]\n"] {
            assert!(ClusterConfig::parse(wrong).is_err(), "{wrong}");
        }
        let manifest = ClusterConfig::parse("apiVersion: ray.io/v1\nkind: RayCluster\n");
        assert!(manifest.unwrap_err().contains("kubectl apply"));
    }
}
