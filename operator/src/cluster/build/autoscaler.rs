//! Ray's autoscaler, beside the head (raycluster-behaviour 3.8).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use ray_api::meta::label;

use super::command::shell;
use super::env::{field, literal, pod_label};
use super::facts::Facts;

/// Name of the sidecar.
pub(super) const NAME: &str = "autoscaler";

const COMMAND: &str =
    "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)";

/// The sidecar, with the user's overrides.
pub(super) fn container(facts: &Facts<'_>) -> Container {
    let mut container = Container {
        name: NAME.to_owned(),
        image: facts.head_container().and_then(|ray| ray.image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(shell(facts)),
        args: Some(vec![COMMAND.to_owned()]),
        env: Some(vec![
            pod_label("RAY_CLUSTER_NAME", label::CLUSTER),
            field("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
            field("RAY_HEAD_POD_NAME", "metadata.name"),
            literal("KUBERAY_CRD_VER", "v1"),
            literal("KUBERAY_GEN_AUTOSCALER_START_CMD", COMMAND),
        ]),
        resources: Some(resources()),
        ..Container::default()
    };
    facts.auth.add(&mut container);
    override_by_user(&mut container, facts);
    container
}

fn override_by_user(container: &mut Container, facts: &Facts<'_>) {
    let Some(options) = facts.spec.autoscaler_options.as_ref() else {
        return;
    };
    if let Some(resources) = &options.resources {
        container.resources = Some(resources.clone());
    }
    if let Some(image) = options.image.as_ref().filter(|image| !image.is_empty()) {
        container.image = Some(image.clone());
    }
    if let Some(policy) = options
        .image_pull_policy
        .as_ref()
        .filter(|policy| !policy.is_empty())
    {
        container.image_pull_policy = Some(policy.clone());
    }
    if let Some(context) = &options.security_context {
        container.security_context = Some(context.clone());
    }
    if !options.command.is_empty() {
        container.command = Some(options.command.clone());
    }
    if !options.args.is_empty() {
        container.args = Some(options.args.clone());
    }
    container
        .env
        .get_or_insert_default()
        .extend(options.env.iter().cloned());
    container
        .env_from
        .get_or_insert_default()
        .extend(options.env_from.iter().cloned());
    container
        .volume_mounts
        .get_or_insert_default()
        .extend(options.volume_mounts.iter().cloned());
}

fn resources() -> ResourceRequirements {
    let amounts: BTreeMap<String, Quantity> = [("cpu", "500m"), ("memory", "512Mi")]
        .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())))
        .into();
    ResourceRequirements {
        requests: Some(amounts.clone()),
        limits: Some(amounts),
        claims: None,
    }
}
