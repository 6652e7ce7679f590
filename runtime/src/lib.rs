//! What the operator and the webhook share: process-wide set-up, shutdown, metrics, the admin endpoints, watches, and flags.

pub mod admin;
pub mod metrics;
pub mod policy;
pub mod shutdown;
pub mod telemetry;
pub mod watch;

/// Installs ring as the process-wide TLS provider; every `main` and TLS test calls it once, first.
///
/// Without it the first TLS handshake panics, because no provider is compiled in as a default.
pub fn install_crypto() {
    // An Err only says that a provider is installed already, which is what we want.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
