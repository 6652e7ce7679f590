//! The template controller.

/// Flags of the template controller.
#[derive(Clone, Debug, clap::Args)]
pub struct TemplateArgs {}
