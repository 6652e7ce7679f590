//! What the whole build needs to know of a cluster, worked out once.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodTemplateSpec};
use ray_api::meta::{annotation, label};
use ray_api::names;
use ray_api::ray::RayVersion;
use ray_api::ray::v1::{AutoscalerVersion, RayCluster, RayClusterSpec, WorkerGroupSpec};

use super::auth::Auth;
use super::fault_tolerance::FaultTolerance;
use crate::cluster::config::Config;

/// Port of the GCS where the head's `rayStartParams` name none.
pub(super) const DEFAULT_GCS_PORT: &str = "6379";
/// Oldest Ray whose dashboard agent answers `/api/healthz`.
const FIRST_HTTP_HEALTH: RayVersion = RayVersion::new(2, 53, 0);

/// Kind that a cluster was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crd {
    /// Itself.
    RayCluster,
    /// A RayJob.
    RayJob,
    /// A RayService.
    RayService,
}

impl Crd {
    /// The kind's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RayCluster => "RayCluster",
            Self::RayJob => "RayJob",
            Self::RayService => "RayService",
        }
    }
}

/// What the whole build needs to know of a cluster.
pub struct Facts<'a> {
    /// The cluster.
    pub cluster: &'a RayCluster,
    /// Its spec.
    pub spec: &'a RayClusterSpec,
    /// The operator's settings.
    pub config: &'a Config,
    /// Its name.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its uid.
    pub uid: &'a str,
    /// Name of the head Service.
    pub head_service: String,
    /// DNS name of the head Service.
    pub fqdn: String,
    /// Port of the GCS; shell text, as the user wrote it.
    pub gcs_port: &'a str,
    /// Kind that the cluster was made for.
    pub crd: Crd,
    /// GCS fault tolerance, where it is on.
    pub fault_tolerance: Option<FaultTolerance<'a>>,
    /// Token authentication.
    pub auth: Auth<'a>,
}

impl<'a> Facts<'a> {
    /// Works them out.
    #[must_use]
    pub fn new(cluster: &'a RayCluster, config: &'a Config) -> Self {
        let spec = &cluster.spec;
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        let namespace = cluster.metadata.namespace.as_deref().unwrap_or_default();
        let head = &spec.head_group_spec;
        let head_service = head
            .head_service
            .as_ref()
            .and_then(|service| service.metadata.name.clone())
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| names::head_service(name));
        Self {
            cluster,
            spec,
            config,
            name,
            namespace,
            uid: cluster.metadata.uid.as_deref().unwrap_or_default(),
            fqdn: format!("{head_service}.{namespace}.svc.{}", config.args.cluster_domain),
            head_service,
            gcs_port: param(head.ray_start_params.as_ref(), "port").unwrap_or(DEFAULT_GCS_PORT),
            crd: crd(cluster),
            fault_tolerance: FaultTolerance::of(cluster),
            auth: Auth::of(cluster),
        }
    }

    /// `<head service>:<gcs port>`, where workers find the head.
    #[must_use]
    pub fn gcs_address(&self) -> String {
        format!("{}:{}", self.fqdn, self.gcs_port)
    }

    /// Whether Ray's autoscaler runs beside the head.
    #[must_use]
    pub fn autoscaling(&self) -> bool {
        self.spec.enable_in_tree_autoscaling == Some(true)
    }

    /// The autoscaler's version, where autoscaling is on and the user chose one.
    #[must_use]
    pub fn autoscaler_version(&self) -> Option<AutoscalerVersion> {
        let options = self.spec.autoscaler_options.as_ref();
        options
            .filter(|_| self.autoscaling())
            .and_then(|options| options.version)
    }

    /// Whether `ray.io/overwrite-container-cmd` on the cluster leaves all commands to the user.
    #[must_use]
    pub fn overwrites_command(&self) -> bool {
        annotation_is_true(
            self.cluster.metadata.annotations.as_ref(),
            annotation::OVERWRITE_CONTAINER_CMD,
        )
    }

    /// Whether Ray is new enough to be probed by plain HTTP.
    #[must_use]
    pub fn has_http_health(&self) -> bool {
        let version = self.spec.ray_version.as_deref().and_then(RayVersion::parse);
        version.is_some_and(|version| version >= FIRST_HTTP_HEALTH)
    }

    /// The head's ServiceAccount: the user's, else the cluster's name, cut as KubeRay cuts it.
    #[must_use]
    pub fn head_service_account(&self) -> String {
        let named = self
            .head_template()
            .and_then(|template| template.spec.as_ref())
            .and_then(|spec| spec.service_account_name.as_deref())
            .filter(|name| !name.is_empty());
        names::check_name(named.unwrap_or(self.name))
    }

    /// The head's pod template.
    #[must_use]
    pub fn head_template(&self) -> Option<&'a PodTemplateSpec> {
        self.spec.head_group_spec.template.as_ref()
    }

    /// The Ray container of the head.
    #[must_use]
    pub fn head_container(&self) -> Option<&'a Container> {
        ray_container(self.head_template())
    }
}

/// Pods of one replica; absent and zero mean one, since older CRDs do not know the field.
#[must_use]
pub fn hosts(group: &WorkerGroupSpec) -> i32 {
    group.num_of_hosts.filter(|hosts| *hosts > 0).unwrap_or(1)
}

/// The Ray container: always the first.
#[must_use]
pub fn ray_container(template: Option<&PodTemplateSpec>) -> Option<&Container> {
    template?.spec.as_ref()?.containers.first()
}

/// A start parameter with a value.
#[must_use]
pub(super) fn param<'a>(params: Option<&'a BTreeMap<String, String>>, key: &str) -> Option<&'a str> {
    params?.get(key).map(String::as_str)
}

/// Whether that annotation says `true`, in any case.
#[must_use]
pub fn annotation_is_true(annotations: Option<&BTreeMap<String, String>>, key: &str) -> bool {
    annotations
        .and_then(|annotations| annotations.get(key))
        .is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

fn crd(cluster: &RayCluster) -> Crd {
    let labels = cluster.metadata.labels.as_ref();
    match labels
        .and_then(|labels| labels.get(label::ORIGINATED_FROM_CRD))
        .map(String::as_str)
    {
        Some("RayJob") => Crd::RayJob,
        Some("RayService") => Crd::RayService,
        _ => Crd::RayCluster,
    }
}
