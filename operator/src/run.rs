//! Starts the admin endpoints, waits for the Lease, runs the controllers until told to stop.

use crate::args::RunArgs;

/// Runs the operator until a signal.
///
/// # Errors
/// When the cluster cannot be reached, the CRDs are missing, or a listener fails.
pub async fn run(_args: RunArgs) -> anyhow::Result<()> {
    Ok(())
}
