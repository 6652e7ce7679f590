//! Steps that run inside the pods of image builds, from this same binary and image.

/// Arguments of a step.
#[derive(Debug, clap::Args)]
pub struct HelperArgs {}

/// Runs a step.
///
/// # Errors
/// When the step fails; the message is for the person who reads the pod's log.
pub fn run(_args: &HelperArgs) -> anyhow::Result<()> {
    Ok(())
}
