//! The image controller.

/// Flags of the image controller.
#[derive(Clone, Debug, clap::Args)]
pub struct ImageArgs {}
