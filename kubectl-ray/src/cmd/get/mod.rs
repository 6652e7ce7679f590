//! `get`: tables as kubectl prints them, of objects and of what is inside them.

mod cluster;
mod endpoints;
mod list;
mod node;
mod template;
mod token;
mod workergroup;

use std::time::Duration;

use clap::{Args, Subcommand};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use ray_api::quantity::Amount;

use crate::connection::ConnectionArgs;
use crate::error::Result;
use crate::follow::short;
use crate::output::Format;
use crate::table::Cell;

/// Flags of `get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Ray clusters.
    #[command(visible_alias = "clusters", aliases = ["raycluster", "rayclusters"])]
    Cluster(ClusterArgs),
    /// Worker groups of Ray clusters.
    #[command(visible_alias = "workergroups", aliases = ["worker-group", "worker-groups"])]
    Workergroup(WorkergroupArgs),
    /// Ray nodes: the pods of Ray clusters.
    #[command(visible_alias = "nodes")]
    Node(NodeArgs),
    /// The auth token of a Ray cluster.
    Token(token::TokenArgs),
    /// ImageTemplates.
    #[command(visible_alias = "image-templates", aliases = ["imagetemplate", "imagetemplates", "it"])]
    ImageTemplate(ImageTemplateArgs),
    /// ComputeTemplates of the namespace, and those of all namespaces.
    #[command(visible_alias = "compute-templates", aliases = ["computetemplate", "computetemplates", "ct"])]
    ComputeTemplate(ComputeTemplateArgs),
    /// Where dashboard, client, GCS and Serve of a Ray cluster are reached.
    Endpoints(endpoints::EndpointsArgs),
}

/// Flags of every list.
#[derive(Clone, Debug, Args)]
pub(crate) struct ListArgs {
    /// All namespaces.
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Only objects with these labels.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,
    /// Only objects with these fields.
    #[arg(long, value_name = "SELECTOR")]
    pub(crate) field_selector: Option<String>,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value = "table", hide_default_value = true)]
    pub(crate) output: Format,
    /// Keep watching, and print each change.
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Sort by this column.
    #[arg(long, value_name = "COLUMN")]
    pub(crate) sort_by: Option<String>,
    /// Print no header.
    #[arg(long)]
    pub(crate) no_headers: bool,
    /// Objects in one answer of the server.
    #[arg(long, value_name = "COUNT", default_value_t = 500, hide_short_help = true)]
    pub(crate) chunk_size: u32,
}

#[derive(Debug, Args)]
struct ClusterArgs {
    /// Names; all where absent.
    #[arg(add = crate::complete::clusters())]
    names: Vec<String>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Args)]
struct ImageTemplateArgs {
    /// Names; all where absent.
    #[arg(add = crate::complete::image_templates())]
    names: Vec<String>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Args)]
struct ComputeTemplateArgs {
    /// Names; all where absent.
    #[arg(add = crate::complete::compute_templates())]
    names: Vec<String>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Args)]
struct WorkergroupArgs {
    /// Names; all where absent.
    #[arg(add = crate::complete::worker_groups())]
    names: Vec<String>,
    /// Only of this Ray cluster.
    #[arg(short = 'c', long, value_name = "NAME", add = crate::complete::clusters())]
    ray_cluster: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Args)]
struct NodeArgs {
    /// Names; all where absent.
    #[arg(add = crate::complete::nodes())]
    names: Vec<String>,
    /// Only of this Ray cluster.
    #[arg(short = 'c', long, value_name = "NAME", add = crate::complete::clusters())]
    ray_cluster: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

pub(crate) async fn run(connection: &ConnectionArgs, args: &GetArgs) -> Result<()> {
    match &args.what {
        What::Cluster(args) => cluster::run(connection, &args.names, &args.list).await,
        What::Workergroup(args) => {
            workergroup::run(connection, &args.names, args.ray_cluster.as_deref(), &args.list).await
        }
        What::Node(args) => node::run(connection, &args.names, args.ray_cluster.as_deref(), &args.list).await,
        What::Token(args) => token::run(connection, args).await,
        What::ImageTemplate(args) => template::images(connection, &args.names, &args.list).await,
        What::ComputeTemplate(args) => template::computes(connection, &args.names, &args.list).await,
        What::Endpoints(args) => endpoints::run(connection, args).await,
    }
}

/// A quantity as it is written, which sorts by its amount.
fn quantity(written: String) -> Cell {
    match written.parse::<Amount>() {
        Ok(amount) => Cell::ranked(written, amount.to_f64()),
        Err(_) => written.into(),
    }
}

/// The age of an object.
pub(crate) fn age(created: Option<&Time>) -> Cell {
    let Some(Time(created)) = created else {
        return "<unknown>".into();
    };
    let seconds = (Timestamp::now().as_second() - created.as_second()).max(0);
    let age = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    Cell::ranked(short(age), age.as_secs_f64())
}
