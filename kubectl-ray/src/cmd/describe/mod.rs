//! `describe`: one object as a tree, with the reason of what is not ready at the top.

mod cluster;
mod template;
mod tree;

use clap::{Args, Subcommand};

use crate::connection::ConnectionArgs;
use crate::error::Result;

/// Flags of `describe`.
#[derive(Debug, Args)]
pub struct DescribeArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// A Ray cluster: its groups, their pods, their last events, its templates.
    #[command(aliases = ["clusters", "raycluster"])]
    Cluster {
        /// Ray cluster.
        #[arg(add = crate::complete::clusters())]
        name: String,
    },
    /// An ImageTemplate: what goes in, what came out, how the last builds ended.
    #[command(alias = "imagetemplate")]
    ImageTemplate {
        /// ImageTemplate.
        #[arg(add = crate::complete::image_templates())]
        name: String,
    },
    /// A ComputeTemplate: what it fills in, and who uses it.
    #[command(alias = "computetemplate")]
    ComputeTemplate {
        /// ComputeTemplate of the namespace, or else of all namespaces.
        #[arg(add = crate::complete::compute_templates())]
        name: String,
    },
}

pub(crate) async fn run(connection: &ConnectionArgs, args: &DescribeArgs) -> Result<()> {
    let connected = connection.connect().await?;
    match &args.what {
        What::Cluster { name } => cluster::run(&connected, name).await,
        What::ImageTemplate { name } => template::image(&connected, name).await,
        What::ComputeTemplate { name } => template::compute(&connected, name).await,
    }
}
