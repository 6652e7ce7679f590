//! Resources that a cluster wants: the requests (else limits) of the user's containers, over head and workers.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use ray_api::quantity::Amount;

use crate::cluster::build::{Facts, is_gpu};
use crate::cluster::plan::replicas;

/// Sums for the status.
pub(super) struct Wanted {
    pub(super) cpu: Quantity,
    pub(super) memory: Quantity,
    pub(super) gpu: Quantity,
    pub(super) tpu: Quantity,
}

/// Sums over head and workers; groups count as many pods as they want, within their bounds.
pub(super) fn wanted(facts: &Facts<'_>) -> Wanted {
    let mut templates = vec![(facts.head_template(), 1)];
    for group in &facts.spec.worker_group_specs {
        templates.push((group.template.as_ref(), replicas::wanted(group).pods));
    }
    let sum = |counts: &dyn Fn(&str) -> bool| -> Quantity {
        let total: Amount = templates
            .iter()
            .map(|(template, pods)| pod(*template, counts).times(*pods))
            .fold(Amount::ZERO, |sum, amount| sum + amount);
        total.into()
    };
    Wanted {
        cpu: sum(&|name| name == "cpu"),
        memory: sum(&|name| name == "memory"),
        gpu: sum(&is_gpu),
        tpu: sum(&|name| name == "google.com/tpu"),
    }
}

/// What the containers of one pod want of the resources that count.
fn pod(template: Option<&PodTemplateSpec>, counts: &dyn Fn(&str) -> bool) -> Amount {
    let containers = template
        .and_then(|template| template.spec.as_ref())
        .map(|spec| spec.containers.as_slice())
        .unwrap_or_default();
    let mut total = Amount::ZERO;
    for resources in containers
        .iter()
        .filter_map(|container| container.resources.as_ref())
    {
        let requests = resources.requests.iter().flatten();
        let unrequested = resources.limits.iter().flatten().filter(|(name, _)| {
            resources
                .requests
                .as_ref()
                .is_none_or(|requests| !requests.contains_key(*name))
        });
        for (_, quantity) in requests.chain(unrequested).filter(|(name, _)| counts(name)) {
            total = total + Amount::of(quantity).unwrap_or(Amount::ZERO);
        }
    }
    total
}
