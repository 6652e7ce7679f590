//! Flags of the image controller.

use clap::{ArgAction, Args, ValueEnum};
use ray_runtime::policy::PolicyArgs;

/// The maintained kaniko fork.
const BUILDER_IMAGE: &str = "ghcr.io/osscontainertools/kaniko:v1.28.3";

/// Which kaniko the builder image holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum BuilderFlavor {
    /// The maintained fork, whose `push` is a step of its own: no command of a build sees the push secret.
    #[default]
    Maintained,
    /// The archived original: one container builds and pushes, so that commands of a build can read the push secret.
    Archived,
}

/// Flags of the image controller.
#[derive(Clone, Debug, Args)]
pub struct ImageArgs {
    /// Image of the kaniko executor.
    #[arg(long, default_value = BUILDER_IMAGE)]
    pub builder_image: String,
    /// Which kaniko the builder image holds.
    #[arg(long, value_enum, default_value_t)]
    pub builder_flavor: BuilderFlavor,
    /// Image that holds this binary at /usr/local/bin/ray-operator, for the steps around a build.
    #[arg(long, default_value = concat!("ghcr.io/kubectl-ray/servers:", env!("CARGO_PKG_VERSION")))]
    pub helper_image: String,
    /// Registry (host:port) that is reached over plain HTTP; repeatable.
    #[arg(long)]
    pub insecure_registry: Vec<String>,
    /// Registry (host:port) that is asked before docker.io; repeatable.
    #[arg(long)]
    pub registry_mirror: Vec<String>,
    /// Whether each built image is started once, to read its Ray and Python versions.
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub verify_images: bool,
    /// What the platform team allows.
    #[command(flatten)]
    pub policy: PolicyArgs,
}
