//! What head and workers have in common: labels, annotations, the Ray container.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerPort, Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ray_api::meta::{APP_NAME, CREATED_BY, annotation, label};
use ray_api::names;

use super::facts::{Facts, annotation_is_true};
use super::start_params::Params;
use super::{command, env, owner_reference, probes, volumes};

/// Port of Ray's metrics; a container that declares no port named `metrics` gets it.
pub(super) const METRICS_PORT: i32 = 8080;

/// A pod of the cluster's namespace with the template's labels, annotations and finalizers, under its labels.
pub(super) fn from_template(
    facts: &Facts<'_>,
    template: &PodTemplateSpec,
    labels: BTreeMap<String, String>,
) -> Pod {
    let metadata = template.metadata.as_ref();
    let mut annotations = metadata
        .and_then(|metadata| metadata.annotations.clone())
        .unwrap_or_default();
    if facts.overwrites_command() {
        annotations.insert(annotation::OVERWRITE_CONTAINER_CMD.to_owned(), "true".to_owned());
    }
    Pod {
        metadata: ObjectMeta {
            namespace: Some(facts.namespace.to_owned()),
            labels: Some(labels),
            annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
            finalizers: metadata.and_then(|metadata| metadata.finalizers.clone()),
            owner_references: Some(vec![owner_reference(facts)]),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec.clone().unwrap_or_default()),
        status: None,
    }
}

/// Labels of a pod: defaults under the user's, and above both the three that everything is found by.
pub(super) fn labels(
    facts: &Facts<'_>,
    node_type: &str,
    group: &str,
    template: Option<&PodTemplateSpec>,
    group_labels: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> = [
        (label::IS_RAY_NODE, "yes"),
        (label::APP_NAME, APP_NAME),
        (label::APP_CREATED_BY, CREATED_BY),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    labels.insert(label::IDENTIFIER.to_owned(), identifier(facts, node_type));
    let own = template
        .and_then(|template| template.metadata.as_ref())
        .and_then(|metadata| metadata.labels.as_ref());
    labels.extend(
        own.into_iter()
            .flatten()
            .chain(group_labels)
            .map(|(k, v)| (k.clone(), v.clone())),
    );
    for (key, value) in [
        (label::CLUSTER, facts.name),
        (label::NODE_TYPE, node_type),
        (label::GROUP, group),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    labels
}

/// Value of `ray.io/identifier`.
pub(super) fn identifier(facts: &Facts<'_>, node_type: &str) -> String {
    names::check_label(&format!("{}-{node_type}", facts.name))
}

/// Turns the first container into a Ray node: everything that only head or worker has is there already.
pub(super) fn finish(pod: &mut Pod, facts: &Facts<'_>, params: &Params, is_head: bool) {
    let left_to_user = annotation_is_true(
        pod.metadata.annotations.as_ref(),
        annotation::OVERWRITE_CONTAINER_CMD,
    );
    let Some(spec) = pod.spec.as_mut() else { return };
    volumes::add_shared_memory(spec, params);
    let start = command::ray_start(params, is_head);
    for init in spec.init_containers.iter_mut().flatten() {
        init.env.get_or_insert_default().extend(env::head_address(facts));
    }
    facts.auth.add_volume(spec);
    if let Some(ray) = spec.containers.first_mut() {
        add_metrics_port(ray);
        facts.auth.add(ray);
        command::set(ray, facts, &start, left_to_user);
        probes::add(ray, facts, params, is_head);
        env::add_common(ray.env.get_or_insert_default(), facts, is_head, &start);
    }
}

fn add_metrics_port(ray: &mut Container) {
    let ports = ray.ports.get_or_insert_default();
    if ports.iter().all(|port| port.name.as_deref() != Some("metrics")) {
        ports.push(ContainerPort {
            name: Some("metrics".to_owned()),
            container_port: METRICS_PORT,
            ..ContainerPort::default()
        });
    }
}
