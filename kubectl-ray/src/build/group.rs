use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Resources;

/// A worker group as a person describes it: an entry of the file, or one `--worker-group`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct GroupConfig {
    /// Name of the group.
    pub name: Option<String>,
    /// Replicas to start with.
    pub replicas: Option<i32>,
    /// Fewest replicas.
    pub min_replicas: Option<i32>,
    /// Most replicas.
    pub max_replicas: Option<i32>,
    /// Pods in a replica.
    pub num_of_hosts: Option<i32>,
    /// Resources of a worker pod.
    #[serde(flatten)]
    pub resources: Resources,
    /// ComputeTemplate of the group.
    pub compute_template: Option<String>,
    /// ImageTemplate of the group.
    pub image_template: Option<String>,
    /// Image of the group.
    pub image: Option<String>,
    /// Flags of `ray start`.
    pub ray_start_params: BTreeMap<String, String>,
    /// Node labels that workers need.
    pub node_selectors: BTreeMap<String, String>,
}

const KEYS: &str = "name, replicas, min-replicas, max-replicas, num-of-hosts, cpu, memory, gpu, tpu, \
                    ephemeral-storage, compute-template, image-template, image, node-selector.KEY, \
                    ray-start-param.KEY, or a resource such as amd.com/gpu";

impl FromStr for GroupConfig {
    type Err = String;

    /// Parses `name=gpu,replicas=2,compute-template=a100`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut group = Self::default();
        let mut seen = Vec::new();
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = crate::cli::key_value(pair)?;
            if seen.contains(&key) {
                return Err(format!("`{key}` is given twice"));
            }
            group.set(&key, value)?;
            seen.push(key);
        }
        if group.name.is_none() {
            return Err("`name=` is missing".to_owned());
        }
        Ok(group)
    }
}

impl GroupConfig {
    fn set(&mut self, key: &str, value: String) -> Result<(), String> {
        let number = || -> Result<Option<i32>, String> {
            let parsed = value.parse::<i32>().ok().filter(|n| *n >= 0);
            parsed
                .map(Some)
                .ok_or_else(|| format!("{key}: `{value}` is not a number of 0 or more"))
        };
        match key {
            "replicas" => self.replicas = number()?,
            "min-replicas" | "min" => self.min_replicas = number()?,
            "max-replicas" | "max" => self.max_replicas = number()?,
            "num-of-hosts" | "hosts" => self.num_of_hosts = number()?,
            "name" => self.name = Some(value),
            "cpu" => self.resources.cpu = Some(value),
            "memory" => self.resources.memory = Some(value),
            "gpu" => self.resources.gpu = Some(value),
            "tpu" => self.resources.tpu = Some(value),
            "ephemeral-storage" => self.resources.ephemeral_storage = Some(value),
            "compute-template" => self.compute_template = Some(value),
            "image-template" => self.image_template = Some(value),
            "image" => self.image = Some(value),
            _ => return self.set_nested(key, value),
        }
        Ok(())
    }

    fn set_nested(&mut self, key: &str, value: String) -> Result<(), String> {
        if let Some(label) = key.strip_prefix("node-selector.") {
            self.node_selectors.insert(label.to_owned(), value);
        } else if let Some(param) = key.strip_prefix("ray-start-param.") {
            self.ray_start_params.insert(param.to_owned(), value);
        } else if key.contains('/') {
            self.resources.resources.insert(key.to_owned(), value);
        } else {
            return Err(format!("there is no key `{key}`; the keys are {KEYS}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_finds_its_place() {
        let group: GroupConfig =
            "name=g,replicas=2,min=1,max-replicas=4,hosts=3,cpu=1,memory=2Gi,gpu=1,tpu=4,\
             ephemeral-storage=9Gi,compute-template=a,image-template=b,image=c,node-selector.x/y=z,\
             ray-start-param.num-cpus=0,amd.com/gpu=1"
                .parse()
                .unwrap();
        insta::assert_yaml_snapshot!(group, @r#"
    name: g
    replicas: 2
    min-replicas: 1
    max-replicas: 4
    num-of-hosts: 3
    cpu: "1"
    memory: 2Gi
    gpu: "1"
    tpu: "4"
    ephemeral-storage: 9Gi
    resources:
      amd.com/gpu: "1"
    compute-template: a
    image-template: b
    image: c
    ray-start-params:
      num-cpus: "0"
    node-selectors:
      x/y: z
"#);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("replicas=1", "`name=` is missing"),
            ("name=a,name=b", "given twice"),
            ("name=a,replicas=x", "replicas: `x`"),
            ("name=a,replicas=-1", "0 or more"),
            ("name=a,color=red", "no key `color`"),
            ("name", "not KEY=VALUE"),
        ] {
            let error = text.parse::<GroupConfig>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
