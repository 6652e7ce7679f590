//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use ray_runtime::policy::PolicyArgs;

/// Expands template references in RayClusters at admission.
#[derive(Clone, Debug, Parser)]
#[command(name = "ray-webhook", version)]
pub struct Args {
    /// Address of the admission endpoints.
    #[arg(long, default_value = "0.0.0.0:9443")]
    pub bind_address: SocketAddr,
    /// Address of the health and metrics endpoints.
    #[arg(long, default_value = "0.0.0.0:8080")]
    pub admin_address: SocketAddr,
    /// Namespace of the webhook's Service and Secret.
    #[arg(long, env = "POD_NAMESPACE", default_value = "ray-system")]
    pub namespace: String,
    /// Namespaces to work in, comma-separated, objects of others being let through; all where absent.
    #[arg(long, env = "WATCH_NAMESPACE", value_delimiter = ',')]
    pub watch_namespace: Vec<String>,
    /// Where the certificate comes from.
    #[command(flatten)]
    pub certificate: CertificateArgs,
    /// Users need the verb `use` on a template that their RayCluster newly refers to.
    #[arg(long)]
    pub require_use: bool,
    /// Rules for image templates, the same as the operator's.
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Seconds to go on after SIGTERM, until no Service sends requests here.
    #[arg(long, default_value = "5", value_parser = seconds)]
    pub shutdown_delay: Duration,
    /// Log lines: json or text.
    #[arg(long, default_value = "json")]
    pub log_format: String,
    /// Log filter, as `info` or `ray_webhook=debug,info`.
    #[arg(long, env = "RUST_LOG", default_value = "info")]
    pub log_level: String,
}

/// Where the serving certificate comes from: a Secret that this program fills, or mounted files.
#[derive(Clone, Debug, clap::Args)]
pub struct CertificateArgs {
    /// Mounted certificate chain, as cert-manager makes it; whoever mounts it also fills `caBundle`.
    #[arg(long, requires = "tls_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Mounted private key.
    #[arg(long, requires = "tls_cert_file")]
    pub tls_key_file: Option<PathBuf>,
    /// Secret that holds the self-signed certificate. It must exist; an empty one will do.
    #[arg(long, default_value = "ray-webhook-certificate")]
    pub secret_name: String,
    /// Service that the API server calls.
    #[arg(long, default_value = "ray-webhook")]
    pub service_name: String,
    /// Name or address in place of the Service, where the configurations carry a `url`.
    #[arg(long)]
    pub url_host: Option<String>,
    /// MutatingWebhookConfigurations whose `caBundle` is kept.
    #[arg(long, value_delimiter = ',', default_value = "ray-webhook")]
    pub mutating_configuration: Vec<String>,
    /// ValidatingWebhookConfigurations whose `caBundle` is kept.
    #[arg(long, value_delimiter = ',', default_value = "ray-webhook")]
    pub validating_configuration: Vec<String>,
    /// Seconds that a certificate holds; a new one is made after two thirds.
    #[arg(long, default_value = "7776000", value_parser = seconds)]
    pub certificate_lifetime: Duration,
    /// Seconds between the steps of a rotation: until every API server trusts the new CA, until every replica has the new certificate.
    #[arg(long, default_value = "120", value_parser = seconds)]
    pub rotation_step: Duration,
}

fn seconds(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_secs)
}
