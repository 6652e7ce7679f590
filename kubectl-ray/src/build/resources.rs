use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

const DEFAULT_CPU: &str = "2";
const DEFAULT_MEMORY: &str = "4Gi";

/// Resources of a Ray node, as quantities. Whether they parse is for the API server to say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Resources {
    /// CPUs.
    #[serde(
        default,
        deserialize_with = "super::config::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub cpu: Option<String>,
    /// Memory.
    #[serde(
        default,
        deserialize_with = "super::config::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub memory: Option<String>,
    /// NVIDIA GPUs.
    #[serde(
        default,
        deserialize_with = "super::config::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub gpu: Option<String>,
    /// Google TPU chips.
    #[serde(
        default,
        deserialize_with = "super::config::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub tpu: Option<String>,
    /// Ephemeral storage.
    #[serde(
        default,
        deserialize_with = "super::config::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub ephemeral_storage: Option<String>,
    /// Any other resource by name, such as `amd.com/gpu`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, String>,
}

impl Resources {
    /// Lets what `self` names win over `base`.
    #[must_use]
    pub fn over(self, base: Self) -> Self {
        let mut resources = base.resources;
        resources.extend(self.resources);
        Self {
            cpu: self.cpu.or(base.cpu),
            memory: self.memory.or(base.memory),
            gpu: self.gpu.or(base.gpu),
            tpu: self.tpu.or(base.tpu),
            ephemeral_storage: self.ephemeral_storage.or(base.ephemeral_storage),
            resources,
        }
    }

    /// KubeRay's sizes for what is not named; a group with a ComputeTemplate takes none of them.
    #[must_use]
    pub fn or_default(self) -> Self {
        self.over(Self {
            cpu: Some(DEFAULT_CPU.to_owned()),
            memory: Some(DEFAULT_MEMORY.to_owned()),
            ..Self::default()
        })
    }

    /// Whether TPUs are asked for.
    #[must_use]
    pub fn has_tpu(&self) -> bool {
        self.tpu.as_deref().is_some_and(|tpu| !is_zero(tpu))
    }

    /// The container's requirements: CPU is a request without a limit (throttled Ray is slow Ray), the rest both.
    #[must_use]
    pub fn requirements(&self) -> Option<ResourceRequirements> {
        let limited = [
            ("memory", &self.memory),
            ("nvidia.com/gpu", &self.gpu),
            ("google.com/tpu", &self.tpu),
            ("ephemeral-storage", &self.ephemeral_storage),
        ];
        let limits: BTreeMap<String, Quantity> = limited
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)))
            .chain(self.resources.clone())
            .filter(|(_, value)| !is_zero(value))
            .map(|(name, value)| (name, Quantity(value)))
            .collect();
        let mut requests = limits.clone();
        if let Some(cpu) = self.cpu.clone().filter(|cpu| !is_zero(cpu)) {
            requests.insert("cpu".to_owned(), Quantity(cpu));
        }
        (!requests.is_empty()).then(|| ResourceRequirements {
            limits: (!limits.is_empty()).then_some(limits),
            requests: Some(requests),
            ..ResourceRequirements::default()
        })
    }
}

fn is_zero(quantity: &str) -> bool {
    quantity.trim_end_matches(|c: char| c.is_alphabetic()).parse() == Ok(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_requested_without_a_limit_and_zeros_are_dropped() {
        let resources = Resources {
            cpu: Some("2".into()),
            memory: Some("4Gi".into()),
            gpu: Some("0".into()),
            tpu: Some("0Gi".into()),
            resources: [("amd.com/gpu".to_owned(), "1".to_owned())].into(),
            ..Resources::default()
        };
        let built = serde_json::to_value(resources.requirements()).unwrap();
        assert_eq!(
            built,
            serde_json::json!({
                "limits": {"memory": "4Gi", "amd.com/gpu": "1"},
                "requests": {"cpu": "2", "memory": "4Gi", "amd.com/gpu": "1"},
            })
        );
        assert_eq!(Resources::default().requirements(), None);
    }

    #[test]
    fn text_that_is_no_quantity_is_left_to_the_server() {
        let resources = Resources {
            memory: Some("abc".into()),
            ..Resources::default()
        };
        assert!(resources.requirements().is_some());
    }
}
