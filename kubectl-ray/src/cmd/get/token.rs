use clap::Args;
use ray_api::ray::v1::RayCluster;

use crate::connection::ConnectionArgs;
use crate::error::{Failure, Result};
use crate::{output, ray};

#[derive(Debug, Args)]
pub(super) struct TokenArgs {
    /// Ray cluster.
    #[arg(value_name = "CLUSTER", add = crate::complete::clusters())]
    name: String,
}

/// Prints the token without a newline, so that it can be captured whole.
pub(super) async fn run(connection: &ConnectionArgs, args: &TokenArgs) -> Result<()> {
    let connected = connection.connect().await?;
    let cluster = connected.api::<RayCluster>().get(&args.name).await?;
    match ray::auth_token(&connected, &cluster).await? {
        Some(token) => output::text(&token),
        None => Err(
            Failure::failed(format!("RayCluster `{}` has no token authentication", args.name))
                .hint("set spec.authOptions.mode: token"),
        ),
    }
}
