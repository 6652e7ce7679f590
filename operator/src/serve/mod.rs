//! The serve controller.

mod metrics;

pub use metrics::Metrics;
use tokio_util::sync::CancellationToken;

use crate::shared::Shared;

/// Flags of the serve controller.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {}

/// Runs the serve controller until `shutdown`.
///
/// # Errors
/// When it cannot start.
pub async fn run(
    _shared: Shared,
    _args: ServeArgs,
    _metrics: Metrics,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    shutdown.cancelled().await;
    Ok(())
}
