//! The template controller.

use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use crate::shared::Shared;

/// Flags of the template controller.
#[derive(Clone, Debug, clap::Args)]
pub struct TemplateArgs {}

/// Metrics of the template controller.
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
    _args: TemplateArgs,
    _metrics: Metrics,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    shutdown.cancelled().await;
    Ok(())
}
