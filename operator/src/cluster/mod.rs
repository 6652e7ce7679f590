//! The cluster controller: RayCluster → pods, services, RBAC, ingress, status.

mod config;

use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

pub use config::{ClusterArgs, Config};

use crate::shared::Shared;

/// Metrics of the cluster controller.
#[derive(Clone, Debug, Default)]
pub struct Metrics {}

impl Metrics {
    /// Adds them to the registry.
    #[must_use]
    pub fn register(_registry: &mut Registry) -> Self {
        Self::default()
    }
}

/// Runs until `shutdown`.
///
/// # Errors
/// When it cannot go on.
pub async fn run(
    _shared: Shared,
    _config: Config,
    _metrics: Metrics,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    shutdown.cancelled().await;
    Ok(())
}
