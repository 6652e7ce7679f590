//! ComputeTemplates: what no reference has to be looked up for.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::Invalid;
use super::replicas::MOST_HOSTS;
use crate::names::{is_label_value, is_qualified_name};
use crate::quantity::Amount;
use crate::template::ComputeTemplateSpec;

/// Prefixes of keys that the operator, the webhook and Kueue decide by.
const RESERVED: [&str; 3] = ["ray.io/", "templates.ray.io/", "kueue.x-k8s.io/"];

/// Everything wrong with the spec of the ComputeTemplate or ClusterComputeTemplate of that name.
#[must_use]
pub fn compute_template(name: &str, spec: &ComputeTemplateSpec) -> Vec<Invalid> {
    let mut found = Vec::new();
    if spec.extends.as_deref() == Some(name) {
        found.push(Invalid::new(
            "extends",
            "spec.extends",
            "a template cannot extend itself",
        ));
    }
    check_keys("spec.labels", &spec.labels, &mut found);
    check_keys("spec.annotations", &spec.annotations, &mut found);
    for (key, value) in &spec.labels {
        if !is_label_value(value) {
            found.push(Invalid::new(
                "label",
                format!("spec.labels[{key}]"),
                format!("{value:?} is not a label value: at most 63 letters, digits, - _ and ."),
            ));
        }
    }
    if let Some(resources) = &spec.resources {
        check_resources(resources, &mut found);
    }
    if let Some(size) = &spec.shared_memory {
        check_amount("spec.sharedMemory", size, &mut found);
    }
    check_variables(spec, &mut found);
    check_ray(spec, &mut found);
    found
}

fn check_keys(field: &str, map: &BTreeMap<String, String>, found: &mut Vec<Invalid>) {
    for key in map.keys() {
        if RESERVED.iter().any(|prefix| key.starts_with(prefix)) {
            found.push(Invalid::new(
                "reserved",
                field,
                format!("{key:?} is reserved, as all keys under ray.io/, templates.ray.io/ and kueue.x-k8s.io/: a template cannot set it"),
            ));
        } else if !is_qualified_name(key) {
            found.push(Invalid::new(
                "label",
                field,
                format!("{key:?} is not a key: write [prefix/]name of letters, digits, - _ and ."),
            ));
        }
    }
}

fn check_resources(resources: &ResourceRequirements, found: &mut Vec<Invalid>) {
    let limits = resources.limits.iter().flatten();
    let requests = resources.requests.iter().flatten();
    for (field, (name, quantity)) in limits
        .map(|limit| ("limits", limit))
        .chain(requests.map(|request| ("requests", request)))
    {
        check_amount(&format!("spec.resources.{field}[{name}]"), quantity, found);
    }
    for (name, request) in resources.requests.iter().flatten() {
        let limit = resources.limits.as_ref().and_then(|limits| limits.get(name));
        if let (Ok(request), Some(Ok(limit))) = (Amount::of(request), limit.map(Amount::of))
            && request > limit
        {
            found.push(Invalid::new(
                "request",
                format!("spec.resources.requests[{name}]"),
                format!("{request} is above the limit {limit}: no pod could be made of it"),
            ));
        }
    }
}

fn check_amount(field: &str, quantity: &Quantity, found: &mut Vec<Invalid>) {
    match Amount::of(quantity) {
        Err(error) => found.push(Invalid::new("quantity", field, error.to_string())),
        Ok(amount) if amount < Amount::ZERO => {
            found.push(Invalid::new("negative", field, format!("{amount} is below 0")));
        }
        Ok(_) => {}
    }
}

fn check_variables(spec: &ComputeTemplateSpec, found: &mut Vec<Invalid>) {
    let mut known = BTreeSet::new();
    for (index, variable) in spec.env.iter().enumerate() {
        let field = format!("spec.env[{index}].name");
        if variable.name.is_empty() || variable.name.contains('=') {
            found.push(Invalid::new(
                "env",
                field,
                format!(
                    "{:?} is not a variable's name: it must not be empty nor hold =",
                    variable.name
                ),
            ));
        } else if !known.insert(&variable.name) {
            found.push(Invalid::new(
                "unique",
                field,
                format!("{:?} is set twice", variable.name),
            ));
        }
    }
}

fn check_ray(spec: &ComputeTemplateSpec, found: &mut Vec<Invalid>) {
    if spec.ray_start_params.contains_key("labels") {
        found.push(Invalid::new(
            "C4",
            "spec.rayStartParams",
            "rayStartParams.labels is not supported: use labels",
        ));
    }
    for (name, amount) in &spec.ray_resources {
        if !amount.is_finite() || *amount < 0.0 {
            found.push(Invalid::new(
                "negative",
                format!("spec.rayResources[{name}]"),
                format!("{amount} is no amount: write 0 or more"),
            ));
        }
    }
    if let Some(hosts) = spec
        .num_of_hosts
        .filter(|hosts| !(1..=MOST_HOSTS).contains(hosts))
    {
        found.push(Invalid::new(
            "negative",
            "spec.numOfHosts",
            format!("{hosts} is not from 1 to {MOST_HOSTS}: a replica has that many pods"),
        ));
    }
}
