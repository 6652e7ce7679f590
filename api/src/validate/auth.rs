//! Token authentication (C20).

use super::Invalid;
use crate::meta::annotation;
use crate::ray::v1::AuthMode;
use crate::ray::{RayCluster, RayVersion};

/// Oldest Ray that checks tokens.
const FIRST_TOKEN: RayVersion = RayVersion::new(2, 52, 0);
/// Oldest Ray that lets Kubernetes check tokens.
const FIRST_KUBERNETES_TOKEN: RayVersion = RayVersion::new(2, 55, 0);

pub(super) fn check(cluster: &RayCluster, found: &mut Vec<Invalid>) {
    let Some(options) = &cluster.spec.auth_options else {
        return;
    };
    let by_kubernetes = options.enable_k8s_token_auth == Some(true);
    let mut complain = |field: &str, message: String| {
        found.push(Invalid::new("C20", format!("spec.authOptions.{field}"), message));
    };
    if by_kubernetes && options.mode != Some(AuthMode::Token) {
        complain(
            "enableK8sTokenAuth",
            "enableK8sTokenAuth needs mode: token".to_owned(),
        );
    }
    if by_kubernetes && options.secret_name.is_some() {
        complain(
            "secretName",
            "secretName excludes enableK8sTokenAuth, which needs no Secret".to_owned(),
        );
    }
    let (field, needed) = if by_kubernetes {
        ("enableK8sTokenAuth", FIRST_KUBERNETES_TOKEN)
    } else {
        ("mode", FIRST_TOKEN)
    };
    if options.mode == Some(AuthMode::Token) && !at_least(cluster, needed) && !version_will_come(cluster) {
        complain(
            field,
            format!("needs Ray {needed} or newer: set rayVersion to that of the image"),
        );
    }
}

/// Whether the cluster says that its Ray is at least that.
pub(super) fn at_least(cluster: &RayCluster, version: RayVersion) -> bool {
    let written = cluster.spec.ray_version.as_deref();
    written
        .and_then(RayVersion::parse)
        .is_some_and(|written| written >= version)
}

/// Whether the version is still to be filled in from an ImageTemplate that is not built yet.
pub(super) fn version_will_come(cluster: &RayCluster) -> bool {
    let head = &cluster.spec.head_group_spec;
    let pod = head
        .template
        .as_ref()
        .and_then(|template| template.metadata.as_ref());
    let annotations = [
        cluster.metadata.annotations.as_ref(),
        pod.and_then(|metadata| metadata.annotations.as_ref()),
    ];
    let referenced = cluster.spec.image_template.is_some()
        || head.image_template.is_some()
        || annotations
            .into_iter()
            .flatten()
            .any(|annotations| annotations.contains_key(annotation::IMAGE_TEMPLATE));
    referenced && cluster.spec.ray_version.as_deref().unwrap_or_default().is_empty()
}
