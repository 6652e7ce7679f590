//! What KubeRay's API has and this operator does not do yet. Asking for it is valid, and answered with a condition.

use crate::ray::RayCluster;
use crate::ray::v1::GcsFaultToleranceBackend;

/// KubeRay's label that asks for gang scheduling.
const GANG_SCHEDULING: &str = "ray.io/gang-scheduling-enabled";

/// A field that asks for what is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// Path of the field.
    pub field: String,
    /// What is not there, and what happens instead.
    pub message: &'static str,
}

/// Everything that a cluster asks for in vain.
#[must_use]
pub fn unsupported(cluster: &RayCluster) -> Vec<Unsupported> {
    let spec = &cluster.spec;
    let tls = spec.tls_options.as_ref().and_then(|options| options.enabled);
    let collector = spec
        .history_server_options
        .as_ref()
        .and_then(|options| options.collector_options.as_ref());
    let backend = spec
        .gcs_fault_tolerance_options
        .as_ref()
        .and_then(|options| options.backend);
    let labels = cluster.metadata.labels.as_ref();
    let gang = labels.is_some_and(|labels| labels.contains_key(GANG_SCHEDULING));
    [
        (
            tls == Some(true),
            "spec.tlsOptions.enabled".to_owned(),
            "mTLS is not supported: Ray's traffic is not encrypted",
        ),
        (
            spec.network_policy.is_some(),
            "spec.networkPolicy".to_owned(),
            "network policies are not supported: none is made, write them yourself",
        ),
        (
            collector.is_some(),
            "spec.historyServerOptions".to_owned(),
            "the history server's collector is not supported: no sidecar is added",
        ),
        (
            backend == Some(GcsFaultToleranceBackend::RocksDb),
            "spec.gcsFaultToleranceOptions.backend".to_owned(),
            "backend rocksdb is not supported: the GCS is not fault tolerant, use redis",
        ),
        (
            gang,
            format!("metadata.labels[{GANG_SCHEDULING}]"),
            "gang scheduling is not supported: pods are scheduled one by one",
        ),
    ]
    .into_iter()
    .filter(|(asked, ..)| *asked)
    .map(|(_, field, message)| Unsupported { field, message })
    .collect()
}
