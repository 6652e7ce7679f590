//! Worker pods.

use k8s_openapi::api::core::v1::Pod;
use ray_api::meta::{NODE_TYPE_WORKER, label};
use ray_api::names;
use ray_api::ray::v1::{AutoscalerVersion, WorkerGroupSpec};

use super::facts::{Crd, Facts, hosts};
use super::fault_tolerance::FaultTolerance;
use super::start_params::Group;
use super::{init, pod, start_params};

/// Which worker of its group a pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerIdentity {
    /// Index of the replica in the group.
    pub replica: u32,
    /// Name that the replica's hosts share; only of groups with several hosts a replica.
    pub replica_name: Option<String>,
    /// Index of the host in its replica.
    pub host: u32,
}

/// A worker of that group; it carries `generateName`, whatever its template's metadata says.
#[must_use]
pub fn worker_pod(facts: &Facts<'_>, group: &WorkerGroupSpec, identity: &WorkerIdentity) -> Pod {
    let template = group.template.clone().unwrap_or_default();
    let mut labels = pod::labels(
        facts,
        NODE_TYPE_WORKER,
        &group.group_name,
        group.template.as_ref(),
        &group.labels,
    );
    labels.insert(label::REPLICA_INDEX.to_owned(), identity.replica.to_string());
    if let Some(name) = identity.replica_name.as_ref().filter(|_| hosts(group) > 1) {
        labels.insert(label::REPLICA_NAME.to_owned(), name.clone());
        labels.insert(label::HOST_INDEX.to_owned(), identity.host.to_string());
    }
    if facts.crd == Crd::RayService {
        labels.insert(label::SERVE.to_owned(), "true".to_owned());
    }
    let params = start_params::worker(
        facts,
        &Group {
            params: group.ray_start_params.as_ref(),
            resources: &group.resources,
            labels: &group.labels,
            template: group.template.as_ref(),
        },
    );
    let mut worker = pod::from_template(facts, &template, labels);
    worker.metadata.generate_name = Some(names::pod_prefix(
        &format!("{}-{}", facts.name, group.group_name),
        NODE_TYPE_WORKER,
    ));
    if let Some(spec) = worker.spec.as_mut() {
        if facts.autoscaler_version() == Some(AutoscalerVersion::V2) {
            spec.restart_policy = Some("Never".to_owned());
        }
        let inits = spec.init_containers.get_or_insert_default();
        if let Some(ray) = spec.containers.first()
            && facts.config.args.inject_init_container
            && inits.iter().all(|container| container.name != init::NAME)
        {
            let mut wait = init::container(ray, facts);
            facts.auth.add(&mut wait);
            inits.push(wait);
        }
        if let Some(ray) = spec.containers.first_mut()
            && facts.fault_tolerance.is_some()
        {
            FaultTolerance::add_worker_env(ray.env.get_or_insert_default());
        }
    }
    pod::finish(&mut worker, facts, &params, false);
    worker
}
