//! Steps that run inside the pods of image builds, from this same binary and image: non-root, read-only, no network.
//!
//! ```text
//!   secrets   the mounted Secrets → only the logins that each later step needs
//!   context   the ConfigMap's Dockerfile and files → a folder of plain files
//!   seal      the built OCI layout → its digest, or a refusal
//! ```
//!
//! What they print last is what a person reads in the ImageTemplate's status.

mod context;
mod seal;
mod secrets;

use clap::{Args, Subcommand};

pub(crate) use secrets::{DOCKER_KEY, NETRC_KEY};

/// Arguments of a step.
#[derive(Debug, Args)]
pub struct HelperArgs {
    /// The step.
    #[command(subcommand)]
    pub step: Step,
}

/// A step of a build.
#[derive(Debug, Subcommand)]
pub enum Step {
    /// Checks the mounted Secrets and hands on the logins that the build and the push need.
    Secrets(secrets::SecretsArgs),
    /// Copies the rendered files out of their ConfigMap.
    Context(context::ContextArgs),
    /// Checks a built OCI layout and writes its digest.
    Seal(seal::SealArgs),
}

/// Runs a step.
///
/// # Errors
/// When the step fails; the message is for the person who reads the ImageTemplate's status.
pub fn run(args: &HelperArgs) -> anyhow::Result<()> {
    let result = match &args.step {
        Step::Secrets(args) => secrets::run(args),
        Step::Context(args) => context::run(args),
        Step::Seal(args) => seal::run(args),
    };
    // In one line: it becomes the message of a status.
    result.map_err(|error| anyhow::anyhow!("{error:#}"))
}
