//! The cluster controller.

/// Flags of the cluster controller.
#[derive(Clone, Debug, clap::Args)]
pub struct ClusterArgs {}
