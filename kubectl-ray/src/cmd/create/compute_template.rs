use clap::Args;
use k8s_openapi::api::core::v1::{EnvVar, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use ray_api::template::v1alpha1::{
    ClusterComputeTemplate, ClusterComputeTemplateSpec, ComputeTemplate, ComputeTemplateSpec,
};

use super::{ResultArgs, create};
use crate::build::Resources;
use crate::cli::key_value;
use crate::connection::ConnectionArgs;
use crate::error::Result;
use crate::kinds::Kind;

/// Flags of `create compute-template`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl ray create compute-template small --cpu 2 --memory 4Gi
  kubectl ray create compute-template a100 --cpu 8 --memory 64Gi --gpu 1 --node-selector accelerator=a100 \\
    --toleration nvidia.com/gpu=present:NoSchedule --shared-memory 16Gi")]
pub(super) struct ComputeTemplateArgs {
    /// Name of the template.
    name: String,
    /// Publish it to all namespaces, as a ClusterComputeTemplate.
    #[arg(long)]
    cluster_scope: bool,
    /// Template to build on.
    #[arg(long, value_name = "NAME", add = crate::complete::compute_templates())]
    extends: Option<String>,
    /// CPUs; a request without a limit.
    #[arg(long, value_name = "QUANTITY")]
    cpu: Option<String>,
    /// Memory; request and limit.
    #[arg(long, value_name = "QUANTITY")]
    memory: Option<String>,
    /// NVIDIA GPUs.
    #[arg(long, value_name = "COUNT")]
    gpu: Option<String>,
    /// Google TPU chips.
    #[arg(long, value_name = "COUNT")]
    tpu: Option<String>,
    /// Ephemeral storage; request and limit.
    #[arg(long, value_name = "QUANTITY")]
    ephemeral_storage: Option<String>,
    /// Any other resource, such as `amd.com/gpu=1`; may be repeated.
    #[arg(long = "resource", value_name = "NAME=QUANTITY", value_parser = key_value)]
    resources: Vec<(String, String)>,
    /// Label that nodes must have; may be repeated.
    #[arg(long = "node-selector", value_name = "KEY=VALUE", value_delimiter = ',', value_parser = key_value)]
    node_selectors: Vec<(String, String)>,
    /// Taint that is tolerated, as `key=value:Effect`, `key:Effect` or `key`; may be repeated.
    #[arg(long = "toleration", value_name = "TAINT", value_parser = toleration)]
    tolerations: Vec<Toleration>,
    /// Environment variable of the Ray container; may be repeated.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = key_value)]
    env: Vec<(String, String)>,
    /// Size of /dev/shm, where Ray's object store lives.
    #[arg(long, value_name = "QUANTITY")]
    shared_memory: Option<String>,
    /// Priority class of the pods.
    #[arg(long, value_name = "NAME")]
    priority_class: Option<String>,
    /// Runtime class of the pods.
    #[arg(long, value_name = "NAME")]
    runtime_class: Option<String>,
    /// Service account of the pods.
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    /// Flag of `ray start`; may be repeated.
    #[arg(long = "ray-start-param", value_name = "KEY=VALUE", value_parser = key_value)]
    ray_start_params: Vec<(String, String)>,
    /// Logical Ray resource, such as `bandwidth=10`; may be repeated.
    #[arg(long = "ray-resource", value_name = "NAME=NUMBER", value_parser = ray_resource)]
    ray_resources: Vec<(String, f64)>,
    /// Pods in a replica.
    #[arg(long, value_name = "COUNT")]
    num_of_hosts: Option<i32>,
    /// A sentence for those who choose.
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    #[command(flatten)]
    result: ResultArgs,
}

pub(super) async fn run(connection: &ConnectionArgs, args: &ComputeTemplateArgs) -> Result<()> {
    let spec = spec(args);
    let (kind, object) = if args.cluster_scope {
        let spec = ClusterComputeTemplateSpec { compute: spec };
        let object = serde_json::to_value(ClusterComputeTemplate::new(&args.name, spec))?;
        (Kind::ClusterComputeTemplate, object)
    } else {
        let object = serde_json::to_value(ComputeTemplate::new(&args.name, spec))?;
        (Kind::ComputeTemplate, object)
    };
    create(connection, &args.result, kind, object).await?;
    Ok(())
}

fn spec(args: &ComputeTemplateArgs) -> ComputeTemplateSpec {
    let resources = Resources {
        cpu: args.cpu.clone(),
        memory: args.memory.clone(),
        gpu: args.gpu.clone(),
        tpu: args.tpu.clone(),
        ephemeral_storage: args.ephemeral_storage.clone(),
        resources: args.resources.iter().cloned().collect(),
    };
    ComputeTemplateSpec {
        extends: args.extends.clone(),
        resources: resources.requirements(),
        node_selector: args.node_selectors.iter().cloned().collect(),
        tolerations: args.tolerations.clone(),
        priority_class_name: args.priority_class.clone(),
        runtime_class_name: args.runtime_class.clone(),
        service_account_name: args.service_account.clone(),
        env: args
            .env
            .iter()
            .map(|(name, value)| EnvVar {
                name: name.clone(),
                value: Some(value.clone()),
                ..EnvVar::default()
            })
            .collect(),
        shared_memory: args.shared_memory.clone().map(Quantity),
        ray_start_params: args.ray_start_params.iter().cloned().collect(),
        ray_resources: args.ray_resources.iter().cloned().collect(),
        num_of_hosts: args.num_of_hosts,
        description: args.description.clone(),
        ..ComputeTemplateSpec::default()
    }
}

/// Parses a taint as `kubectl taint` writes it.
fn toleration(text: &str) -> std::result::Result<Toleration, String> {
    let (taint, effect) = match text.split_once(':') {
        Some((taint, effect)) => (taint, Some(effect.to_owned())),
        None => (text, None),
    };
    let (key, value) = match taint.split_once('=') {
        Some((key, value)) => (key, Some(value.to_owned())),
        None => (taint, None),
    };
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    if effect.as_deref().is_some_and(|effect| !effects.contains(&effect)) {
        return Err(format!("the effect is one of {}", effects.join(", ")));
    }
    if key.is_empty() {
        return Err("the key is missing".to_owned());
    }
    Ok(Toleration {
        key: Some(key.to_owned()),
        operator: Some(if value.is_some() { "Equal" } else { "Exists" }.to_owned()),
        value,
        effect,
        ..Toleration::default()
    })
}

fn ray_resource(text: &str) -> std::result::Result<(String, f64), String> {
    let (name, value) = key_value(text)?;
    let amount = value
        .parse::<f64>()
        .ok()
        .filter(|amount| amount.is_finite() && *amount >= 0.0);
    Ok((
        name,
        amount.ok_or_else(|| format!("`{value}` is not a number of 0 or more"))?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_are_read_as_kubectl_writes_them() {
        let read = |text| serde_json::to_value(toleration(text).unwrap()).unwrap();
        assert_eq!(
            read("gpu=yes:NoSchedule"),
            serde_json::json!({"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"})
        );
        assert_eq!(
            read("gpu"),
            serde_json::json!({"key": "gpu", "operator": "Exists"})
        );
        assert!(toleration("gpu:Never").is_err() && toleration(":NoExecute").is_err());
    }
}
