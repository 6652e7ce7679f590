//! Pure: a RayCluster's spec → the objects that it wants (raycluster-behaviour sections 2 and 3).
//!
//! ```text
//!   facts      what the whole build needs to know, worked out once
//!   head, worker      a pod of each group, from start_params · command · env · probes · volumes · init ·
//!                     autoscaler · fault_tolerance · auth
//!   service, rbac, ingress, secret      the objects around them
//!   cleanup_job       the Job that empties Redis when a fault tolerant cluster is deleted
//!   hash              what upgradeStrategy Recreate compares
//! ```

mod auth;
mod autoscaler;
mod cleanup_job;
mod command;
mod env;
mod facts;
mod fault_tolerance;
mod hash;
mod head;
mod ingress;
mod init;
mod pod;
mod probes;
mod rbac;
mod secret;
mod service;
mod start_params;
mod volumes;
mod worker;

use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

pub use auth::Auth;
pub use cleanup_job::{cleanup_job, cleanup_job_name};
pub use facts::{Crd, Facts, annotation_is_true, hosts, ray_container};
pub use fault_tolerance::needs_redis_cleanup;
pub use hash::spec_hash;
pub use head::head_pod;
pub use secret::auth_secret;
pub use start_params::is_gpu;
pub use worker::{WorkerIdentity, worker_pod};

/// The objects around the pods, all made before them.
#[derive(Debug, Default)]
pub struct Children {
    /// Head, headless and Serve Services.
    pub services: Vec<Service>,
    /// The autoscaler's ServiceAccount, where the user named none.
    pub service_account: Option<ServiceAccount>,
    /// What the autoscaler may do.
    pub role: Option<Role>,
    /// Gives the role to the head's ServiceAccount.
    pub role_binding: Option<RoleBinding>,
    /// To the dashboard.
    pub ingress: Option<Ingress>,
}

/// The objects around the pods.
#[must_use]
pub fn children(facts: &Facts<'_>) -> Children {
    let mut services = vec![service::head(facts)];
    services.extend(service::headless(facts));
    services.extend(service::serve(facts));
    let autoscaling = facts.autoscaling();
    Children {
        services,
        service_account: autoscaling.then(|| rbac::service_account(facts)).flatten(),
        role: autoscaling.then(|| rbac::role(facts)),
        role_binding: autoscaling.then(|| rbac::role_binding(facts)),
        ingress: ingress::ingress(facts),
    }
}

/// Metadata of an object that the cluster owns.
fn owned(facts: &Facts<'_>, name: String, labels: &[(&str, &str)]) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(facts.namespace.to_owned()),
        labels: Some(
            labels
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        ),
        owner_references: Some(vec![owner_reference(facts)]),
        ..ObjectMeta::default()
    }
}

/// The controller reference that every object of a cluster carries.
fn owner_reference(facts: &Facts<'_>) -> OwnerReference {
    OwnerReference {
        api_version: "ray.io/v1".to_owned(),
        kind: "RayCluster".to_owned(),
        name: facts.name.to_owned(),
        uid: facts.uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
