//! The head pod.

use k8s_openapi::api::core::v1::Pod;
use ray_api::meta::{HEAD_GROUP, NODE_TYPE_HEAD, annotation, label, operator_version};
use ray_api::names;
use ray_api::ray::v1::AutoscalerVersion;

use super::env::literal;
use super::facts::{Crd, Facts};
use super::{autoscaler, pod, spec_hash, start_params, volumes};

/// The head pod. A name that the user gave it stays; otherwise it carries `generateName` alone.
#[must_use]
pub fn head_pod(facts: &Facts<'_>) -> Pod {
    let group = &facts.spec.head_group_spec;
    let template = group.template.clone().unwrap_or_default();
    let mut labels = pod::labels(
        facts,
        NODE_TYPE_HEAD,
        HEAD_GROUP,
        group.template.as_ref(),
        &group.labels,
    );
    // The head Service selects on these two: KubeRay lets a user's value break it.
    labels.insert(
        label::IDENTIFIER.to_owned(),
        pod::identifier(facts, NODE_TYPE_HEAD),
    );
    labels.insert(
        label::APP_CREATED_BY.to_owned(),
        ray_api::meta::CREATED_BY.to_owned(),
    );
    if facts.crd == Crd::RayService {
        labels.insert(label::SERVE.to_owned(), "false".to_owned());
    }
    let params = start_params::head(facts);
    let mut head = pod::from_template(facts, &template, labels);
    name(&mut head, facts);
    annotate(&mut head, facts);
    if let Some(spec) = head.spec.as_mut() {
        if facts.autoscaling() {
            spec.containers.push(autoscaler::container(facts));
            spec.service_account_name = Some(facts.head_service_account());
        }
        let version = facts.autoscaler_version();
        if version == Some(AutoscalerVersion::V2) {
            spec.restart_policy = Some("Never".to_owned());
        }
        if let Some(ray) = spec.containers.first_mut() {
            let env = ray.env.get_or_insert_default();
            env.extend(version.map(|version| {
                let v2 = version == AutoscalerVersion::V2;
                literal("RAY_enable_autoscaler_v2", v2.to_string())
            }));
            if let Some(fault_tolerance) = &facts.fault_tolerance {
                fault_tolerance.add_head_env(env, group.ray_start_params.as_ref());
            }
        }
    }
    pod::finish(&mut head, facts, &params, true);
    if let Some(spec) = head.spec.as_mut().filter(|_| facts.autoscaling()) {
        volumes::share_logs(spec, &[autoscaler::NAME]);
    }
    head
}

fn name(head: &mut Pod, facts: &Facts<'_>) {
    let own = facts
        .head_template()
        .and_then(|template| template.metadata.as_ref()?.name.clone())
        .filter(|name| !name.is_empty());
    let prefix = names::pod_prefix(facts.name, NODE_TYPE_HEAD);
    if facts.config.args.deterministic_head_pod_name && own.is_none() {
        head.metadata.name = Some(prefix.trim_end_matches('-').to_owned());
    } else {
        head.metadata.name = own;
        head.metadata.generate_name = Some(prefix);
    }
}

fn annotate(head: &mut Pod, facts: &Facts<'_>) {
    let annotations = head.metadata.annotations.get_or_insert_default();
    let fault_tolerant = facts.fault_tolerance.is_some();
    annotations.insert(annotation::FT_ENABLED.to_owned(), fault_tolerant.to_string());
    if let Some(fault_tolerance) = &facts.fault_tolerance {
        annotations.insert(
            annotation::EXTERNAL_STORAGE_NAMESPACE.to_owned(),
            fault_tolerance.storage_namespace.to_owned(),
        );
    }
    annotations.insert(annotation::RECREATE_HASH.to_owned(), spec_hash(facts.spec));
    annotations.insert(annotation::OPERATOR_VERSION.to_owned(), operator_version());
}
