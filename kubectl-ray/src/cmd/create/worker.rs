use clap::Args;

use crate::build::{GroupConfig, Resources};
use crate::cli::key_value;

/// A worker group without a template; the same flags for a new cluster and for a group that is added.
#[derive(Debug, Args)]
#[group(id = "worker_flags", multiple = true)]
pub(super) struct WorkerFlags {
    /// CPUs of a worker [default: 2 without a ComputeTemplate].
    #[arg(long, value_name = "QUANTITY")]
    worker_cpu: Option<String>,
    /// Memory of a worker [default: 4Gi without a ComputeTemplate].
    #[arg(long, value_name = "QUANTITY")]
    worker_memory: Option<String>,
    /// GPUs of a worker.
    #[arg(long, value_name = "COUNT")]
    worker_gpu: Option<String>,
    /// TPU chips of a worker.
    #[arg(long, value_name = "COUNT")]
    worker_tpu: Option<String>,
    /// Ephemeral storage of a worker.
    #[arg(long, value_name = "QUANTITY")]
    worker_ephemeral_storage: Option<String>,
    /// Flags of `ray start`.
    #[arg(long, value_name = "KEY=VALUE,…", value_delimiter = ',', value_parser = key_value)]
    worker_ray_start_params: Vec<(String, String)>,
    /// Node labels that workers need.
    #[arg(long, value_name = "KEY=VALUE,…", value_delimiter = ',', value_parser = key_value)]
    worker_node_selectors: Vec<(String, String)>,
    /// Pods in a replica [default: 1].
    #[arg(long, value_name = "COUNT")]
    num_of_hosts: Option<i32>,
}

impl WorkerFlags {
    /// What the flags say of a group, and nothing else.
    pub(super) fn group(&self) -> GroupConfig {
        GroupConfig {
            num_of_hosts: self.num_of_hosts,
            resources: Resources {
                cpu: self.worker_cpu.clone(),
                memory: self.worker_memory.clone(),
                gpu: self.worker_gpu.clone(),
                tpu: self.worker_tpu.clone(),
                ephemeral_storage: self.worker_ephemeral_storage.clone(),
                ..Resources::default()
            },
            ray_start_params: self.worker_ray_start_params.iter().cloned().collect(),
            node_selectors: self.worker_node_selectors.iter().cloned().collect(),
            ..GroupConfig::default()
        }
    }
}
