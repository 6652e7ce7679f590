//! Settings of the cluster controller: flags, and KubeRay's environment variables under their own names.

use crate::args::{RunArgs, parse_bool};

/// Flags of the cluster controller.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Cluster controller")]
pub struct ClusterArgs {
    /// DNS domain of the Kubernetes cluster.
    #[arg(long, env = "CLUSTER_DOMAIN", default_value = "cluster.local")]
    pub cluster_domain: String,
    /// Add `wait-gcs-ready` to workers.
    #[arg(long, env = "ENABLE_INIT_CONTAINER_INJECTION", default_value = "true", value_parser = parse_bool)]
    pub inject_init_container: bool,
    /// Add liveness and readiness probes where the user set none.
    #[arg(long, env = "ENABLE_PROBES_INJECTION", default_value = "true", value_parser = parse_bool)]
    pub inject_probes: bool,
    /// Give head Services a cluster address instead of making them headless.
    #[arg(long, env = "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE", default_value = "false", value_parser = parse_bool)]
    pub head_cluster_ip_service: bool,
    /// Call the head pod `<cluster>-head`.
    #[arg(long, env = "ENABLE_DETERMINISTIC_HEAD_POD_NAME", default_value = "false", value_parser = parse_bool)]
    pub deterministic_head_pod_name: bool,
    /// Start Ray from a login shell.
    #[arg(long, env = "ENABLE_LOGIN_SHELL", default_value = "false", value_parser = parse_bool)]
    pub login_shell: bool,
    /// With autoscaling on, delete surplus workers that the autoscaler did not name.
    #[arg(long, env = "ENABLE_RANDOM_POD_DELETE", default_value = "false", value_parser = parse_bool)]
    pub random_pod_delete: bool,
    /// Clean up Redis when a fault tolerant cluster is deleted.
    #[arg(long, env = "ENABLE_GCS_FT_REDIS_CLEANUP", default_value = "true", value_parser = parse_bool)]
    pub redis_cleanup: bool,
    /// CPU request of `wait-gcs-ready` where the Ray container names none.
    #[arg(long, default_value = "200m", value_parser = quantity)]
    pub init_container_cpu: String,
    /// CPU limit of `wait-gcs-ready` where the Ray container names none.
    #[arg(long, default_value = "1", value_parser = quantity)]
    pub init_container_cpu_limit: String,
    /// Memory request of `wait-gcs-ready` where the Ray container names none.
    #[arg(long, default_value = "256Mi", value_parser = quantity)]
    pub init_container_memory: String,
    /// Memory limit of `wait-gcs-ready` where the Ray container names none; its health check outgrows 256Mi.
    #[arg(long, default_value = "512Mi", value_parser = quantity)]
    pub init_container_memory_limit: String,
    /// Pods that are created or deleted at the same time, over all clusters; more where admission makes each creation slow.
    // A burst makes the API server drop watchers that fall behind, which then read everything again.
    #[arg(long, default_value_t = 4)]
    pub pod_concurrency: usize,
}

/// What the cluster controller was told.
#[derive(Clone, Debug)]
pub struct Config {
    /// The flags.
    pub args: ClusterArgs,
    /// Clusters reconciled at the same time.
    pub concurrency: u16,
}

impl Config {
    /// From the flags.
    #[must_use]
    pub fn new(args: &ClusterArgs, run: &RunArgs) -> Self {
        Self {
            args: args.clone(),
            concurrency: run.reconcile_concurrency.max(1),
        }
    }
}

impl Config {
    /// Pods that are created or deleted at the same time; without any nothing would go on.
    pub(super) fn pod_concurrency(&self) -> usize {
        self.args.pod_concurrency.max(1)
    }
}

#[cfg(test)]
impl Config {
    /// The defaults, whatever the environment says.
    pub(crate) fn for_tests() -> Self {
        use clap::Parser;
        let cli = crate::args::Cli::parse_from(["ray-operator"]);
        Self::new(&cli.run.cluster, &cli.run)
    }
}

fn quantity(text: &str) -> Result<String, String> {
    match text.parse::<ray_api::quantity::Amount>() {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
