//! Flags of KubeRay's operator that mean nothing here: accepted, so that its manifests start this operator,
//! and named loudly in the log.

use clap::Args;

/// Flags that are accepted and ignored. Go's switches are texts here: `--x`, `--x=true`, `--x=false`.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Accepted for KubeRay's sake, without effect")]
pub struct IgnoredArgs {
    /// Logs go to stderr.
    #[arg(long, hide = true)]
    log_file_path: Option<String>,
    /// Logs go to stderr.
    #[arg(long, hide = true)]
    log_file_encoder: Option<String>,
    /// Pod groups of batch schedulers are not supported; a pod template may still name a scheduler.
    #[arg(long, hide = true)]
    batch_scheduler: Option<String>,
    /// As `--batch-scheduler=volcano`.
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_batch_scheduler: Option<String>,
    /// Configuration comes from flags and variables.
    #[arg(long, hide = true)]
    config: Option<String>,
    /// Pods are probed at their own address.
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    use_kubernetes_proxy: Option<String>,
    /// What is stable is on, what is not supported shows as a condition.
    #[arg(long, hide = true)]
    feature_gates: Option<String>,
    /// Metrics are always there.
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_metrics: Option<String>,
    /// The API server's own fairness limits requests.
    #[arg(long, hide = true)]
    qps: Option<f64>,
    /// The API server's own fairness limits requests.
    #[arg(long, hide = true)]
    burst: Option<u32>,
    /// Without effect in KubeRay too.
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    forced_cluster_upgrade: Option<String>,
    /// See `--log-format`.
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    zap_devel: Option<String>,
    /// See `--log-format`.
    #[arg(long, hide = true)]
    zap_encoder: Option<String>,
    /// See `--log-level`.
    #[arg(long, hide = true)]
    zap_log_level: Option<String>,
    /// Without a counterpart.
    #[arg(long, hide = true)]
    zap_stacktrace_level: Option<String>,
    /// Without a counterpart.
    #[arg(long, hide = true)]
    zap_time_encoding: Option<String>,
}

/// Variables of KubeRay's operator that mean nothing here, with what holds instead.
const VARIABLES: [(&str, &str); 4] = [
    (
        "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV",
        "clusters are looked at when something happens, and every five minutes",
    ),
    ("ENABLE_WEBHOOKS", "the webhook is a server of its own"),
    (
        "USE_INGRESS_ON_OPENSHIFT",
        "enableIngress always makes an Ingress, never a Route",
    ),
    (
        "ENABLE_ZERO_DOWNTIME",
        "RayServices are run by KubeRay's operator",
    ),
];

impl IgnoredArgs {
    /// The flags that were given although they mean nothing, with what holds instead.
    #[must_use]
    pub fn given(&self) -> Vec<(&'static str, &'static str)> {
        let logs = "logs go to stderr: see --log-format and --log-level";
        let limits = "requests are limited by the API server's priority and fairness";
        [
            ("--log-file-path", self.log_file_path.is_some(), logs),
            ("--log-file-encoder", self.log_file_encoder.is_some(), logs),
            (
                "--batch-scheduler",
                self.batch_scheduler.is_some() || self.enable_batch_scheduler.is_some(),
                "pod groups are not made; name the scheduler in the pod templates",
            ),
            (
                "--config",
                self.config.is_some(),
                "settings are flags and variables: see --help",
            ),
            (
                "--use-kubernetes-proxy",
                self.use_kubernetes_proxy.is_some(),
                "pods are probed at their own address",
            ),
            (
                "--feature-gates",
                self.feature_gates.is_some(),
                "stable features are on; a cluster that asks for another gets a condition",
            ),
            ("--qps", self.qps.is_some(), limits),
            ("--burst", self.burst.is_some(), limits),
            (
                "--zap-*",
                self.zap_devel.is_some()
                    || self.zap_encoder.is_some()
                    || self.zap_log_level.is_some()
                    || self.zap_stacktrace_level.is_some()
                    || self.zap_time_encoding.is_some(),
                logs,
            ),
        ]
        .into_iter()
        .filter(|(_, given, _)| *given)
        .map(|(flag, _, instead)| (flag, instead))
        .chain(
            VARIABLES
                .into_iter()
                .filter(|(name, _)| std::env::var_os(name).is_some()),
        )
        .collect()
    }
}
