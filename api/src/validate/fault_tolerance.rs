//! Fault tolerance of the GCS: options or annotation, and one place for Redis (C8 to C10, C12, C13).

use super::Invalid;
use super::group::Group;
use crate::meta::annotation;
use crate::ray::RayCluster;
use crate::ray::v1::{GcsFaultToleranceBackend, GcsFaultToleranceOptions};

pub(super) fn check(cluster: &RayCluster, found: &mut Vec<Invalid>) {
    let head = Group::head(cluster);
    let ft_enabled = annotation_of(cluster, annotation::FT_ENABLED);
    match &cluster.spec.gcs_fault_tolerance_options {
        Some(options) => {
            if !ft_enabled.is_empty() {
                found.push(Invalid::new(
                    "C8",
                    format!("metadata.annotations[{}]", annotation::FT_ENABLED),
                    "excludes spec.gcsFaultToleranceOptions: remove the annotation",
                ));
            }
            check_redis(cluster, &head, found);
            check_storage(options, found);
        }
        None if !ft_enabled.eq_ignore_ascii_case("true") && head.env("RAY_REDIS_ADDRESS").is_some() => {
            found.push(head.invalid(
                "C9",
                "template.spec.containers[0].env",
                "RAY_REDIS_ADDRESS makes the GCS fault tolerant unasked: set spec.gcsFaultToleranceOptions.redisAddress",
            ));
        }
        None => {}
    }
    if head.param("redis-username").is_some() {
        found.push(head.invalid(
            "C13",
            "rayStartParams",
            "rayStartParams.redis-username is not supported: use gcsFaultToleranceOptions.redisUsername",
        ));
    }
    if head.env("REDIS_USERNAME").is_some() {
        found.push(head.invalid(
            "C13",
            "template.spec.containers[0].env",
            "REDIS_USERNAME is not supported: use gcsFaultToleranceOptions.redisUsername",
        ));
    }
}

fn check_redis(cluster: &RayCluster, head: &Group<'_>, found: &mut Vec<Invalid>) {
    if head.param("redis-password").is_some() {
        found.push(head.invalid(
            "C10",
            "rayStartParams",
            "redis-password excludes gcsFaultToleranceOptions: use its redisPassword",
        ));
    }
    for (variable, instead) in [
        ("REDIS_PASSWORD", "redisPassword"),
        ("RAY_REDIS_ADDRESS", "redisAddress"),
    ] {
        if head.env(variable).is_some() {
            found.push(head.invalid(
                "C10",
                "template.spec.containers[0].env",
                format!("{variable} excludes gcsFaultToleranceOptions: use its {instead}"),
            ));
        }
    }
    if !annotation_of(cluster, annotation::EXTERNAL_STORAGE_NAMESPACE).is_empty() {
        found.push(Invalid::new(
            "C10",
            format!("metadata.annotations[{}]", annotation::EXTERNAL_STORAGE_NAMESPACE),
            "excludes spec.gcsFaultToleranceOptions: use its externalStorageNamespace",
        ));
    }
}

fn check_storage(options: &GcsFaultToleranceOptions, found: &mut Vec<Invalid>) {
    if options.backend != Some(GcsFaultToleranceBackend::RocksDb) && options.storage.is_some() {
        found.push(Invalid::new(
            "C12",
            "spec.gcsFaultToleranceOptions.storage",
            "storage is for backend rocksdb: remove it, or set that backend",
        ));
    }
}

/// The annotation's value; absent is empty.
fn annotation_of<'a>(cluster: &'a RayCluster, key: &str) -> &'a str {
    let annotations = cluster.metadata.annotations.as_ref();
    annotations
        .and_then(|annotations| annotations.get(key))
        .map_or("", String::as_str)
}
