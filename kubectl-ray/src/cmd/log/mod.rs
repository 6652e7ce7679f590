//! `log`: follows a process of a Ray node, or brings the logs of all nodes home.

mod archive;
mod download;
mod link;
mod stream;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use ray_api::meta::{NODE_TYPE_HEAD, NODE_TYPE_WORKER, label};
use ray_api::ray::v1::RayCluster;

use crate::cmd::session::{cluster_of, target};
use crate::connection::{Connection, ConnectionArgs};
use crate::error::{Failure, Result};
use crate::kinds::Kind;
use crate::output;

/// Where Ray writes the logs of the running session.
const SESSION: &str = "/tmp/ray/session_latest";

/// Flags of `log`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl ray log demo -f                                    # what head and workers print
  kubectl ray log demo -f --node-type head --file gcs_server.out
  kubectl ray log demo --list                                # names for --file
  kubectl ray log demo --out-dir ./logs                      # Ray's log directory of every node")]
pub struct LogArgs {
    /// Ray cluster, or TYPE/NAME with raycluster, rayjob or rayservice.
    #[arg(value_name = "CLUSTER | TYPE/NAME", add = crate::complete::targets(&Kind::WITH_CLUSTER))]
    target: String,
    /// Only these nodes.
    #[arg(long, value_enum, default_value = "all")]
    node_type: NodeType,
    /// Only this node (pod); may be repeated.
    #[arg(long = "node", value_name = "POD", add = crate::complete::nodes())]
    nodes: Vec<String>,
    /// Show the logs here instead of downloading them, and follow them.
    #[arg(short, long)]
    follow: bool,
    /// Show a file of Ray's log directory, such as `raylet.out`, in place of what the container prints.
    #[arg(long, value_name = "NAME")]
    file: Option<String>,
    /// Show only so many lines of the past; all where absent.
    #[arg(long, value_name = "LINES")]
    tail: Option<i64>,
    /// Show only what is newer, as `5m`; not for files.
    #[arg(long, value_name = "DURATION", value_parser = crate::cli::duration, conflicts_with = "file")]
    since: Option<std::time::Duration>,
    /// Show the log of the container before its last restart.
    #[arg(short, long, conflicts_with_all = ["file", "follow"])]
    previous: bool,
    /// List the files of Ray's log directory.
    #[arg(long, conflicts_with_all = ["follow", "file", "previous", "out_dir"])]
    list: bool,
    /// Directory to download into; a new one named as the cluster where absent.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["follow", "file", "previous"], value_hint = clap::ValueHint::DirPath)]
    out_dir: Option<PathBuf>,
    /// Print the address of the page that shows these logs, and nothing else.
    #[arg(long, value_enum, value_name = "WHERE", conflicts_with_all = ["follow", "file", "previous", "list", "out_dir"])]
    link: Option<link::Viewer>,
    /// Most bytes that are taken from one node, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    max_size: u64,
}

/// Which nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NodeType {
    All,
    Head,
    Worker,
}

pub(crate) async fn run(connection: &ConnectionArgs, args: &LogArgs) -> Result<()> {
    let (kind, name) = target(&args.target)?;
    let connected = connection.connect().await?;
    let cluster = cluster_of(&connected, kind, &name).await?;
    if let Some(viewer) = args.link {
        let kubernetes = connection.cluster_name()?.unwrap_or_default();
        let query = link::query(
            viewer,
            &kubernetes,
            &connected.namespace,
            &cluster,
            args.node_type,
        );
        return output::line(&query);
    }
    let pods = nodes(&connected, &cluster, args).await?;
    if args.list {
        return list(&connected, &pods).await;
    }
    if args.follow || args.file.is_some() || args.previous || args.tail.is_some() || args.since.is_some() {
        return stream::run(&connected, &pods, args).await;
    }
    download::run(&connected, &pods, &cluster, args).await
}

/// The chosen pods, the head first.
async fn nodes(connected: &Connection, cluster: &str, args: &LogArgs) -> Result<Vec<Pod>> {
    let types = match args.node_type {
        NodeType::All => format!("{NODE_TYPE_HEAD},{NODE_TYPE_WORKER}"),
        NodeType::Head => NODE_TYPE_HEAD.to_owned(),
        NodeType::Worker => NODE_TYPE_WORKER.to_owned(),
    };
    let selector = format!("{}={cluster},{} in ({types})", label::CLUSTER, label::NODE_TYPE);
    let mut pods = connected
        .api::<Pod>()
        .list(&ListParams::default().labels(&selector))
        .await?
        .items;
    if pods.is_empty() {
        // Tells a missing cluster from one without pods.
        connected.api::<RayCluster>().get(cluster).await?;
        return Err(
            Failure::failed(format!("RayCluster `{cluster}` has no such node"))
                .hint(format!("`kubectl ray get node -c {cluster}` lists them")),
        );
    }
    if !args.nodes.is_empty() {
        let known: Vec<String> = pods.iter().map(name_of).collect();
        if let Some(unknown) = args.nodes.iter().find(|node| !known.contains(node)) {
            return Err(
                Failure::not_found(format!("RayCluster `{cluster}` has no node `{unknown}`"))
                    .hint(format!("the nodes are: {}", known.join(", "))),
            );
        }
        pods.retain(|pod| args.nodes.contains(&name_of(pod)));
    }
    pods.sort_by_key(|pod| (!crate::follow::pod::is_head(pod), name_of(pod)));
    Ok(pods)
}

fn name_of(pod: &Pod) -> String {
    pod.metadata.name.clone().unwrap_or_default()
}

/// The Ray container is the first: a head has the autoscaler beside it.
fn ray_container(pod: &Pod) -> Option<String> {
    Some(pod.spec.as_ref()?.containers.first()?.name.clone())
}

async fn list(connected: &Connection, pods: &[Pod]) -> Result<()> {
    let command = ["ls", "-1", "-p", &format!("{SESSION}/logs")].map(str::to_owned);
    for pod in pods {
        output::line(&format!("{}:", name_of(pod)))?;
        let names = download::output_of(connected, pod, &command).await?;
        for name in names.lines().filter(|name| !name.ends_with('/')) {
            output::line(&format!("  {name}"))?;
        }
    }
    Ok(())
}
