//! GCS fault tolerance on Redis (raycluster-behaviour 3.4 rows 2–5, 3.10).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::EnvVar;
use ray_api::meta::annotation;
use ray_api::ray::v1::{GcsFaultToleranceBackend, GcsFaultToleranceOptions, RayCluster, RedisCredential};

use super::env::{literal, push_absent};
use super::facts::{annotation_is_true, param};

/// Redis-backed fault tolerance, by options or by the old annotation.
#[derive(Clone, Debug)]
pub struct FaultTolerance<'a> {
    options: Option<&'a GcsFaultToleranceOptions>,
    /// Key namespace in Redis: option, else annotation, else the cluster's uid.
    pub storage_namespace: &'a str,
}

impl<'a> FaultTolerance<'a> {
    /// What the cluster asks for; the RocksDB backend is not supported and shows as a condition.
    #[must_use]
    pub fn of(cluster: &'a RayCluster) -> Option<Self> {
        let options = cluster.spec.gcs_fault_tolerance_options.as_ref();
        let annotations = cluster.metadata.annotations.as_ref();
        let by_annotation = annotation_is_true(annotations, annotation::FT_ENABLED);
        let rocksdb = options.is_some_and(|o| o.backend == Some(GcsFaultToleranceBackend::RocksDb));
        if rocksdb || (options.is_none() && !by_annotation) {
            return None;
        }
        let by_option = options.and_then(|o| o.external_storage_namespace.as_deref());
        let storage_namespace = by_option
            .or_else(|| param(annotations, annotation::EXTERNAL_STORAGE_NAMESPACE))
            .filter(|name| !name.is_empty())
            .or(cluster.metadata.uid.as_deref())
            .unwrap_or_default();
        Some(Self {
            options,
            storage_namespace,
        })
    }

    /// Credentials as start parameters; the shell resolves the variables.
    pub fn add_params(&self, params: &mut BTreeMap<String, String>) {
        let Some(options) = self.options else { return };
        if options.redis_username.is_some() {
            params.insert("redis-username".to_owned(), "$REDIS_USERNAME".to_owned());
        }
        if options.redis_password.is_some() {
            params.insert("redis-password".to_owned(), "$REDIS_PASSWORD".to_owned());
        }
    }

    /// Variables of the head.
    pub fn add_head_env(&self, env: &mut Vec<EnvVar>, user_params: Option<&BTreeMap<String, String>>) {
        push_absent(
            env,
            literal("RAY_external_storage_namespace", self.storage_namespace),
        );
        let Some(options) = self.options else {
            if let Some(password) = param(user_params, "redis-password") {
                push_absent(env, literal("REDIS_PASSWORD", password));
            }
            return;
        };
        env.push(literal(
            "RAY_REDIS_ADDRESS",
            options.redis_address.clone().unwrap_or_default(),
        ));
        env.extend(credential("REDIS_USERNAME", options.redis_username.as_ref()));
        env.extend(credential("REDIS_PASSWORD", options.redis_password.as_ref()));
    }

    /// Variables of a worker: it waits ten minutes for a new head.
    pub fn add_worker_env(env: &mut Vec<EnvVar>) {
        push_absent(env, literal("RAY_gcs_rpc_server_reconnect_timeout_s", "600"));
    }
}

/// Whether deletion has to empty Redis first.
#[must_use]
pub fn needs_redis_cleanup(cluster: &RayCluster) -> bool {
    FaultTolerance::of(cluster).is_some()
}

fn credential(name: &str, source: Option<&RedisCredential>) -> Option<EnvVar> {
    source.map(|source| EnvVar {
        name: name.to_owned(),
        value: source.value.clone(),
        value_from: source.value_from.clone(),
    })
}
