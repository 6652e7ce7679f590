//! The serve controller.

/// Flags of the serve controller.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {}
