use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{CSIVolumeSource, Container, PodSpec, PodTemplateSpec, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ray_api::meta::annotation;
use ray_api::ray::v1::{
    AutoscalerOptions, AutoscalerVersion as ApiAutoscaler, HeadGroupSpec, RayCluster, RayClusterSpec,
    WorkerGroupSpec,
};

use super::{AutoscalerVersion, ClusterConfig, DEFAULT_RAY_VERSION, GcsFuse, GroupConfig, Resources};

const DEFAULT_GROUP: &str = "default-group";
/// Most replicas of an autoscaled group that names no bound.
const DEFAULT_MAX_REPLICAS: i32 = 10;
const TPU_SELECTORS: [&str; 2] = [
    "cloud.google.com/gke-tpu-accelerator",
    "cloud.google.com/gke-tpu-topology",
];

/// How template references are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// As fields of our CRD.
    Fields,
    /// As annotations, for KubeRay's CRD, which prunes fields that it does not know.
    Annotations,
}

/// The RayCluster that `config` describes.
///
/// # Errors
/// With the flag or key that is wrong; what the API server can check is left to it.
pub fn cluster(config: &ClusterConfig, style: Style) -> Result<RayCluster, String> {
    let defaults = [GroupConfig::default()];
    let groups = config.worker_groups.as_deref().unwrap_or(&defaults);
    let shared = Shared::of(config, style);
    let workers = groups
        .iter()
        .enumerate()
        .map(|(index, group)| shared.worker_group(index, group))
        .collect::<Result<_, _>>()?;
    let by_field = style == Style::Fields;
    let mut annotations = config.annotations.clone();
    if !by_field {
        annotate(
            &mut annotations,
            annotation::IMAGE_TEMPLATE,
            config.image_template.as_ref(),
        );
        annotate(
            &mut annotations,
            annotation::COMPUTE_TEMPLATE,
            config.compute_template.as_ref(),
        );
    }
    let spec = RayClusterSpec {
        head_group_spec: shared.head(),
        worker_group_specs: workers,
        image_template: config.image_template.clone().filter(|_| by_field),
        compute_template: config.compute_template.clone().filter(|_| by_field),
        ray_version: shared.ray_version(),
        enable_in_tree_autoscaling: config.autoscaler.map(|_| true),
        autoscaler_options: config.autoscaler.and_then(|a| autoscaler(a.version)),
        ..RayClusterSpec::default()
    };
    let mut cluster = RayCluster::new(config.name.as_deref().unwrap_or_default(), spec);
    cluster.metadata.namespace.clone_from(&config.namespace);
    cluster.metadata.labels = some_map(&config.labels);
    cluster.metadata.annotations = some_map(&annotations);
    Ok(cluster)
}

/// A worker group to add to a cluster that exists.
///
/// # Errors
/// With the flag or key that is wrong.
pub fn worker_group(
    config: &ClusterConfig,
    group: &GroupConfig,
    style: Style,
) -> Result<WorkerGroupSpec, String> {
    Shared::of(config, style).worker_group(0, group)
}

/// What head and workers have in common.
struct Shared<'a> {
    config: &'a ClusterConfig,
    style: Style,
    fuse: Option<&'a GcsFuse>,
}

/// What differs between groups when their pods are made.
struct Group<'a> {
    container: &'static str,
    resources: &'a Resources,
    compute_template: Option<&'a String>,
    image_template: Option<&'a String>,
    image: Option<&'a String>,
    node_selectors: &'a BTreeMap<String, String>,
}

impl<'a> Shared<'a> {
    fn of(config: &'a ClusterConfig, style: Style) -> Self {
        Self {
            config,
            style,
            fuse: config.gke.as_ref().and_then(|gke| gke.gcsfuse.as_ref()),
        }
    }

    /// With an ImageTemplate the version comes from the image, unless it is named.
    fn ray_version(&self) -> Option<String> {
        let named = self.config.ray_version.clone();
        let known = self.config.image_template.is_none() && self.config.image.is_none();
        named.or_else(|| known.then(|| DEFAULT_RAY_VERSION.to_owned()))
    }

    fn head(&self) -> HeadGroupSpec {
        let head = &self.config.head;
        let by_field = self.style == Style::Fields;
        HeadGroupSpec {
            template: self.template(&Group {
                container: "ray-head",
                resources: &head.resources,
                compute_template: head.compute_template.as_ref(),
                image_template: head.image_template.as_ref(),
                image: None,
                node_selectors: &head.node_selectors,
            }),
            // Some versions of the CRD require the field.
            ray_start_params: Some(head.ray_start_params.clone()),
            image_template: head.image_template.clone().filter(|_| by_field),
            compute_template: head.compute_template.clone().filter(|_| by_field),
            ..HeadGroupSpec::default()
        }
    }

    fn worker_group(&self, index: usize, group: &GroupConfig) -> Result<WorkerGroupSpec, String> {
        let name = group.name.clone().unwrap_or_else(|| default_name(index));
        check_tpu(&name, group)?;
        let by_field = self.style == Style::Fields;
        let replicas = group
            .replicas
            .unwrap_or_else(|| group.min_replicas.unwrap_or(0).max(1));
        let scaled = self.config.autoscaler.is_some();
        Ok(WorkerGroupSpec {
            group_name: name,
            replicas: Some(replicas),
            min_replicas: group.min_replicas.or(scaled.then_some(0)),
            max_replicas: group
                .max_replicas
                .or(scaled.then(|| replicas.max(DEFAULT_MAX_REPLICAS))),
            num_of_hosts: group.num_of_hosts,
            template: self.template(&Group {
                container: "ray-worker",
                resources: &group.resources,
                compute_template: group.compute_template.as_ref(),
                image_template: group.image_template.as_ref(),
                image: group.image.as_ref(),
                node_selectors: &group.node_selectors,
            }),
            ray_start_params: Some(group.ray_start_params.clone()),
            image_template: group.image_template.clone().filter(|_| by_field),
            compute_template: group.compute_template.clone().filter(|_| by_field),
            ..WorkerGroupSpec::default()
        })
    }

    /// The pod template; None where templates give everything and the CRD allows its absence.
    fn template(&self, group: &Group<'_>) -> Option<PodTemplateSpec> {
        let templated_compute = group
            .compute_template
            .or(self.config.compute_template.as_ref())
            .is_some();
        let resources = if templated_compute {
            group.resources.clone()
        } else {
            group.resources.clone().or_default()
        };
        let container = Container {
            name: group.container.to_owned(),
            image: self.image(group),
            resources: resources.requirements(),
            volume_mounts: self.fuse.map(|fuse| vec![fuse_mount(fuse)]),
            ..Container::default()
        };
        let mut annotations = self.fuse.map(fuse_annotations).unwrap_or_default();
        if self.style == Style::Annotations {
            annotate(&mut annotations, annotation::IMAGE_TEMPLATE, group.image_template);
            annotate(
                &mut annotations,
                annotation::COMPUTE_TEMPLATE,
                group.compute_template,
            );
        }
        let spec = PodSpec {
            containers: vec![container],
            node_selector: some_map(group.node_selectors),
            service_account_name: self.config.service_account.clone(),
            volumes: self.fuse.map(|fuse| vec![fuse_volume(fuse)]),
            ..PodSpec::default()
        };
        let empty = PodSpec {
            containers: vec![Container {
                name: group.container.to_owned(),
                ..Container::default()
            }],
            ..PodSpec::default()
        };
        if self.style == Style::Fields && spec == empty {
            return None;
        }
        Some(PodTemplateSpec {
            metadata: (!annotations.is_empty()).then(|| ObjectMeta {
                annotations: Some(annotations),
                ..ObjectMeta::default()
            }),
            spec: Some(spec),
        })
    }

    /// An image that is named wins over any template; without either there is Ray's own.
    fn image(&self, group: &Group<'_>) -> Option<String> {
        if group.image.is_some() {
            return group.image.cloned();
        }
        if group.image_template.is_some() {
            return None;
        }
        if self.config.image.is_some() || self.config.image_template.is_some() {
            return self.config.image.clone();
        }
        let version = self.config.ray_version.as_deref().unwrap_or(DEFAULT_RAY_VERSION);
        Some(format!("rayproject/ray:{version}"))
    }
}

fn autoscaler(version: AutoscalerVersion) -> Option<AutoscalerOptions> {
    (version == AutoscalerVersion::V2).then(|| AutoscalerOptions {
        version: Some(ApiAutoscaler::V2),
        ..AutoscalerOptions::default()
    })
}

fn default_name(index: usize) -> String {
    match index {
        0 => DEFAULT_GROUP.to_owned(),
        _ => format!("{DEFAULT_GROUP}-{index}"),
    }
}

/// A TPU slice has a shape, which only node labels tell.
fn check_tpu(name: &str, group: &GroupConfig) -> Result<(), String> {
    if !group.resources.has_tpu() || group.compute_template.is_some() {
        return Ok(());
    }
    if let Some(selector) = TPU_SELECTORS
        .iter()
        .find(|s| !group.node_selectors.contains_key(**s))
    {
        return Err(format!(
            "worker group `{name}` asks for TPUs: it needs the node selector {selector}"
        ));
    }
    if group.num_of_hosts == Some(0) {
        return Err(format!(
            "worker group `{name}` asks for TPUs: num-of-hosts must not be 0"
        ));
    }
    Ok(())
}

fn annotate(annotations: &mut BTreeMap<String, String>, key: &str, value: Option<&String>) {
    if let Some(value) = value {
        annotations.insert(key.to_owned(), value.clone());
    }
}

fn some_map(map: &BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    (!map.is_empty()).then(|| map.clone())
}

const FUSE_VOLUME: &str = "cluster-storage";

fn fuse_mount(fuse: &GcsFuse) -> VolumeMount {
    VolumeMount {
        name: FUSE_VOLUME.to_owned(),
        mount_path: fuse.mount_path.clone(),
        ..VolumeMount::default()
    }
}

fn fuse_volume(fuse: &GcsFuse) -> Volume {
    let flag = |value: Option<bool>| value.map(|v| v.to_string());
    let attributes = [
        ("bucketName", Some(fuse.bucket_name.clone())),
        ("mountOptions", fuse.mount_options.clone()),
        ("disableMetrics", flag(fuse.disable_metrics)),
        (
            "gcsfuseMetadataPrefetchOnMount",
            flag(fuse.gcsfuse_metadata_prefetch_on_mount),
        ),
        (
            "skipCSIBucketAccessCheck",
            flag(fuse.skip_csi_bucket_access_check),
        ),
    ];
    Volume {
        name: FUSE_VOLUME.to_owned(),
        csi: Some(CSIVolumeSource {
            driver: "gcsfuse.csi.storage.gke.io".to_owned(),
            volume_attributes: Some(
                attributes
                    .into_iter()
                    .filter_map(|(key, value)| Some((key.to_owned(), value?)))
                    .collect(),
            ),
            ..CSIVolumeSource::default()
        }),
        ..Volume::default()
    }
}

fn fuse_annotations(fuse: &GcsFuse) -> BTreeMap<String, String> {
    let resources = fuse.resources.clone().unwrap_or_default();
    [
        ("gke-gcsfuse/volumes", Some("true".to_owned())),
        ("gke-gcsfuse/cpu-limit", resources.cpu),
        ("gke-gcsfuse/memory-limit", resources.memory),
        ("gke-gcsfuse/ephemeral-storage-limit", resources.ephemeral_storage),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key.to_owned(), value?)))
    .collect()
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
