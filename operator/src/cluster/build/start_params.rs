//! The flags of `ray start` (raycluster-behaviour 3.2). Values are shell text and pass through untouched.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use ray_api::quantity::Amount;
use serde_json::{Map, Number, Value};

use super::facts::{Facts, ray_container};
use super::probes::DEFAULT_AGENT_PORT;

/// Flags by name; the map's order is the order on the command line.
pub(super) type Params = BTreeMap<String, String>;

/// Ray's names of accelerators that are custom resources, in the order in which the first one wins.
const ACCELERATORS: [(&str, &str); 2] = [
    ("aws.amazon.com/neuroncore", "neuron_cores"),
    ("google.com/tpu", "TPU"),
];

/// A group as start parameters see it.
pub(super) struct Group<'a> {
    /// The user's parameters.
    pub params: Option<&'a Params>,
    /// Logical resources by Kubernetes name.
    pub resources: &'a BTreeMap<String, String>,
    /// Labels of the Ray node.
    pub labels: &'a BTreeMap<String, String>,
    /// The pod template.
    pub template: Option<&'a PodTemplateSpec>,
}

/// The flags of the head.
pub(super) fn head(facts: &Facts<'_>) -> Params {
    let spec = &facts.spec.head_group_spec;
    let group = Group {
        params: spec.ray_start_params.as_ref(),
        resources: &spec.resources,
        labels: &spec.labels,
        template: spec.template.as_ref(),
    };
    let mut params = from_user(&group);
    default(&mut params, "dashboard-host", "0.0.0.0");
    add_common(&mut params);
    if facts.autoscaling() {
        params.insert("no-monitor".to_owned(), "true".to_owned());
    }
    if let Some(fault_tolerance) = &facts.fault_tolerance {
        fault_tolerance.add_params(&mut params);
    }
    add_resources(&mut params, ray_container(group.template));
    params
}

/// The flags of a worker of that group.
pub(super) fn worker(facts: &Facts<'_>, group: &Group<'_>) -> Params {
    let mut params = from_user(group);
    params
        .entry("address".to_owned())
        .or_insert_with(|| facts.gcs_address());
    add_common(&mut params);
    add_resources(&mut params, ray_container(group.template));
    params
}

/// The user's parameters, with the group's logical resources and labels folded in.
fn from_user(group: &Group<'_>) -> Params {
    let mut params = group.params.cloned().unwrap_or_default();
    let mut custom = Map::new();
    for (name, text) in group.resources {
        let lower = name.to_lowercase();
        let flag = match lower.as_str() {
            "cpu" => Some("num-cpus"),
            "memory" => Some("memory"),
            _ if is_gpu(&lower) => Some("num-gpus"),
            _ => None,
        };
        match flag {
            Some(flag) => {
                if let Ok(amount) = text.parse::<Amount>() {
                    params.insert(flag.to_owned(), amount.ceil().to_string());
                }
            }
            None => {
                let amount = text.parse::<Amount>().ok().map(Amount::to_f64);
                if let Some(number) = amount.and_then(number) {
                    custom.insert(name.clone(), Value::Number(number));
                }
            }
        }
    }
    if !custom.is_empty() {
        params.insert("resources".to_owned(), quote(&custom));
    }
    if !group.labels.is_empty() {
        let pairs: Vec<_> = group.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        params.insert("labels".to_owned(), pairs.join(","));
    }
    params
}

fn add_common(params: &mut Params) {
    default(params, "metrics-export-port", "8080");
    default(
        params,
        "dashboard-agent-listen-port",
        &DEFAULT_AGENT_PORT.to_string(),
    );
    // The container ends with Ray, so that Kubernetes notices.
    params.insert("block".to_owned(), "true".to_owned());
}

fn default(params: &mut Params, key: &str, value: &str) {
    params.entry(key.to_owned()).or_insert_with(|| value.to_owned());
}

/// Tells Ray what Kubernetes gives its container.
fn add_resources(params: &mut Params, ray: Option<&Container>) {
    protect(params);
    let Some(resources) = ray.and_then(|ray| ray.resources.as_ref()) else {
        return;
    };
    let empty = BTreeMap::new();
    let limits = resources.limits.as_ref().unwrap_or(&empty);
    let requests = resources.requests.as_ref().unwrap_or(&empty);
    let whole = |quantity: &Quantity| Amount::of(quantity).ok().map(Amount::ceil);
    if let Some(cpus) = limits.get("cpu").or(requests.get("cpu")).and_then(whole) {
        default(params, "num-cpus", &cpus.to_string());
    }
    if let Some(bytes) = limits.get("memory").and_then(whole) {
        default(params, "memory", &bytes.to_string());
    }
    if add_accelerator(params, limits).is_err() {
        // The user's own JSON does not parse: it is passed on as it is, and Ray will say so.
        return;
    }
    let gpus = limits
        .iter()
        .filter(|(name, _)| is_gpu(name))
        .filter_map(|(_, quantity)| whole(quantity))
        .find(|count| *count > 0);
    if let Some(gpus) = gpus {
        default(params, "num-gpus", &gpus.to_string());
    }
}

/// Quotes JSON that the user wrote without quotes: the shell would take it apart, and Ray would never start.
fn protect(params: &mut Params) {
    let Some(text) = params.get("resources").map(|text| text.trim()) else {
        return;
    };
    if let Ok(bare) = serde_json::from_str::<Map<String, Value>>(text) {
        params.insert("resources".to_owned(), quote(&bare));
    }
}

/// Merges the first accelerator among the limits into `--resources`.
fn add_accelerator(params: &mut Params, limits: &BTreeMap<String, Quantity>) -> serde_json::Result<()> {
    let Some((name, count)) = ACCELERATORS.iter().find_map(|(limit, name)| {
        let count = Amount::of(limits.get(*limit)?)
            .ok()
            .filter(|count| !count.is_zero())?;
        Some((*name, number(count.to_f64())?))
    }) else {
        return params
            .get("resources")
            .map_or(Ok(()), |text| parse(text).map(drop));
    };
    let mut resources = match params.get("resources") {
        Some(text) => parse(text)?,
        None => Map::new(),
    };
    if ACCELERATORS
        .iter()
        .any(|(_, known)| resources.contains_key(*known))
    {
        return Ok(());
    }
    resources.insert(name.to_owned(), Value::Number(count));
    params.insert("resources".to_owned(), quote(&resources));
    Ok(())
}

/// `resources` without the quotes that protect it from the shell.
fn parse(text: &str) -> serde_json::Result<Map<String, Value>> {
    let text = text.trim_matches(|c: char| matches!(c, '\'' | '"' | '`' | ' '));
    serde_json::from_str(&text.replace("\\\"", "\""))
}

/// JSON in single quotes, keys sorted, as the shell takes it.
fn quote(resources: &Map<String, Value>) -> String {
    let sorted: BTreeMap<_, _> = resources.iter().collect();
    format!("'{}'", serde_json::json!(sorted))
}

/// A number as Go prints it: whole ones without a fraction.
fn number(value: f64) -> Option<Number> {
    // Every whole number below 2^53 is exact.
    if value.fract() == 0.0 && value.abs() < 9e15 {
        return format!("{value}").parse::<i64>().ok().map(Number::from);
    }
    Number::from_f64(value)
}

/// Names that Ray counts as GPUs: anything that ends in `gpu`, and NVIDIA's partitions.
pub fn is_gpu(name: &str) -> bool {
    name.ends_with("gpu") || name.strip_prefix("nvidia.com/mig-").is_some_and(is_partition)
}

/// `<n>g.<m>gb`.
fn is_partition(text: &str) -> bool {
    let Some((slices, memory)) = text.split_once("g.") else {
        return false;
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits(slices) && memory.strip_suffix("gb").is_some_and(digits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ResourceRequirements;

    fn with_limits(limits: &[(&str, &str)], resources: Option<&str>) -> Params {
        let container = Container {
            resources: Some(ResourceRequirements {
                limits: Some(
                    limits
                        .iter()
                        .map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())))
                        .collect(),
                ),
                ..ResourceRequirements::default()
            }),
            ..Container::default()
        };
        let mut params = Params::new();
        params.extend(resources.map(|text| ("resources".to_owned(), text.to_owned())));
        add_resources(&mut params, Some(&container));
        params
    }

    #[test]
    fn gpus_and_partitions_count_and_accelerators_are_custom_resources() {
        assert_eq!(with_limits(&[("amd.com/gpu", "2")], None)["num-gpus"], "2");
        assert_eq!(
            with_limits(&[("nvidia.com/mig-1g.5gb", "3")], None)["num-gpus"],
            "3"
        );
        assert_eq!(
            with_limits(&[("google.com/tpu", "4")], None)["resources"],
            r#"'{"TPU":4}'"#
        );
        assert_eq!(with_limits(&[("cpu", "500m")], None)["num-cpus"], "1");
        assert!(!is_gpu("nvidia.com/mig-1g"));
    }

    #[test]
    fn an_accelerator_joins_the_users_resources_unless_it_is_there() {
        let tpu = [("google.com/tpu", "4")];
        assert_eq!(
            with_limits(&tpu, Some(r#"'{"special": 1.5}'"#))["resources"],
            r#"'{"TPU":4,"special":1.5}'"#
        );
        assert_eq!(
            with_limits(&[], Some(r#"{"NPU": 1}"#))["resources"],
            r#"'{"NPU":1}'"#
        );
        assert_eq!(with_limits(&[], Some("$(cat r)"))["resources"], "$(cat r)");
        let own = r#""{\"TPU\": 8}""#;
        assert_eq!(with_limits(&tpu, Some(own))["resources"], own);
    }

    #[test]
    fn resources_that_do_not_parse_pass_through_and_hide_accelerators_and_gpus() {
        let params = with_limits(&[("google.com/tpu", "4"), ("nvidia.com/gpu", "1")], Some("$MINE"));
        assert_eq!(params["resources"], "$MINE");
        assert!(!params.contains_key("num-gpus"));
    }
}
