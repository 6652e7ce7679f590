//! The serving certificate: where it comes from, and how it changes without a failed call.
//!
//! ```text
//!   secret   GET the Secret -> load its certificate, publish its CAs, take the next step of its rotation
//!   files    mounted by cert-manager or by hand: read again and again, loaded when they change
//!
//!   plan     (bundle, now) -> step          pure
//!   issue    a CA that signs one leaf; its key is forgotten at once
//!   bundle   what the Secret holds
//!   publish  caBundle of the webhook configurations, by server-side apply
//! ```
//!
//! A rotation has three steps, a pause between each: *prepare* adds the new CA to what API servers trust,
//! *promote* lets every replica serve the new leaf, *retire* drops the old CA.

pub mod bundle;
mod files;
pub mod issue;
pub mod plan;
mod publish;
mod secret;

use axum_server::tls_rustls::RustlsConfig;
use kube::Client;
use ray_runtime::admin::Readiness;
use tokio_util::sync::CancellationToken;

use crate::args::Args;
use crate::metrics::Metrics;
use bundle::Pair;

/// Name of the readiness check.
const CHECK: &str = "certificate";

/// What keeps the certificate.
#[derive(Clone)]
struct Serving {
    readiness: Readiness,
    metrics: Metrics,
    shutdown: CancellationToken,
}

/// Waits for a first certificate and keeps it current until `shutdown`.
///
/// # Errors
/// When mounted files cannot be loaded at the start. A Secret is waited for.
pub async fn start(
    args: &Args,
    client: Client,
    readiness: &Readiness,
    metrics: Metrics,
    shutdown: &CancellationToken,
) -> anyhow::Result<RustlsConfig> {
    readiness.set(CHECK, false);
    let serving = Serving {
        readiness: readiness.clone(),
        metrics,
        shutdown: shutdown.clone(),
    };
    match (&args.certificate.tls_cert_file, &args.certificate.tls_key_file) {
        (Some(certificate), Some(key)) => files::start(certificate.clone(), key.clone(), serving).await,
        _ => secret::start(client, args, serving).await,
    }
}

impl Serving {
    /// The configuration for a first certificate.
    async fn first(&self, pair: &Pair) -> anyhow::Result<RustlsConfig> {
        let (certificate, key) = (pair.certificate.clone(), pair.key.clone());
        let config = RustlsConfig::from_pem(certificate.into(), key.into()).await?;
        self.measure(pair);
        Ok(config)
    }

    /// Serves `pair` from the next connection on.
    async fn reload(&self, config: &RustlsConfig, pair: &Pair) -> anyhow::Result<()> {
        let (certificate, key) = (pair.certificate.clone(), pair.key.clone());
        config.reload_from_pem(certificate.into(), key.into()).await?;
        self.measure(pair);
        tracing::info!("serving a new certificate");
        Ok(())
    }

    fn measure(&self, pair: &Pair) {
        if let Some(facts) = pair.facts() {
            self.metrics.certificate_expiry.set(facts.not_after.as_second());
        }
    }
}
