//! `job`: Ray's Jobs API, without Ray installed here.

mod list;
mod rayjob;
mod submit;

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use http::{HeaderName, HeaderValue};

use crate::connection::ConnectionArgs;
use crate::error::{Failure, Result};
use crate::output::{self, Colour, paint};
use crate::ray::dashboard::Dashboard;
use crate::ray::jobs::{JobDetails, JobStatus};

/// Flags of `job`.
#[derive(Debug, Args)]
pub struct JobArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Run a command on a Ray cluster, show its log, and exit by its result.
    Submit(Box<submit::SubmitArgs>),
    /// List the jobs of a Ray cluster.
    List(list::ListArgs),
    /// Show the log of a job.
    #[command(alias = "log")]
    Logs(LogsArgs),
    /// Stop a job.
    Stop(StopArgs),
}

/// Where the jobs are.
#[derive(Debug, Args)]
struct Target {
    /// Ray cluster, in place of the argument.
    #[arg(short = 'c', long, value_name = "NAME", add = crate::complete::clusters())]
    ray_cluster: Option<String>,
    /// Address of the dashboard, in place of a cluster: http://HOST:PORT.
    #[arg(long, value_name = "URL", conflicts_with = "ray_cluster")]
    address: Option<String>,
    /// HTTP headers to send along, as a JSON object.
    #[arg(long, value_name = "JSON", hide_short_help = true, value_parser = headers)]
    headers: Option<Headers>,
}

/// A job of a cluster.
#[derive(Debug, Args)]
struct JobRef {
    /// Ray cluster (unless -c or --address names it), and id of the job.
    #[arg(required = true, num_args = 1..=2, value_names = ["CLUSTER", "JOB"], add = crate::complete::clusters_and_jobs())]
    words: Vec<String>,
}

impl JobRef {
    /// The cluster, where it stands here, and the job.
    fn split(&self, target: &Target) -> Result<(Option<&str>, &str)> {
        let elsewhere = target.ray_cluster.is_some() || target.address.is_some();
        match self.words.as_slice() {
            [job] if elsewhere => Ok((None, job)),
            [cluster, job] if !elsewhere => Ok((Some(cluster), job)),
            [_, _] => Err(Failure::usage("the cluster is named twice")),
            _ => Err(Failure::usage("name the Ray cluster and the job")
                .hint("`kubectl ray job list CLUSTER` shows the ids")),
        }
    }
}

#[derive(Clone, Debug)]
struct Headers(Vec<(HeaderName, HeaderValue)>);

#[derive(Debug, Args)]
struct LogsArgs {
    #[command(flatten)]
    job: JobRef,
    #[command(flatten)]
    target: Target,
    /// Keep following until the job ends, and exit by its result.
    #[arg(short, long)]
    follow: bool,
}

#[derive(Debug, Args)]
struct StopArgs {
    #[command(flatten)]
    job: JobRef,
    #[command(flatten)]
    target: Target,
    /// Do not wait for the end of the job.
    #[arg(long)]
    no_wait: bool,
}

pub(crate) async fn run(connection: &ConnectionArgs, args: &JobArgs) -> Result<()> {
    match &args.what {
        What::Submit(args) => submit::run(connection, args).await,
        What::List(args) => list::run(connection, args).await,
        What::Logs(args) => logs(connection, args).await,
        What::Stop(args) => stop(connection, args).await,
    }
}

impl Target {
    async fn dashboard(&self, connection: &ConnectionArgs, cluster: Option<&str>) -> Result<Dashboard> {
        let dashboard = match (&self.address, cluster.or(self.ray_cluster.as_deref())) {
            (Some(address), _) => Dashboard::at_address(address)?,
            (None, Some(name)) => Dashboard::of_cluster(&connection.connect().await?, name).await?,
            (None, None) => {
                return Err(Failure::usage("which Ray cluster?").hint("`kubectl ray get cluster` lists them"));
            }
        };
        Ok(match &self.headers {
            Some(Headers(headers)) => dashboard.with_headers(headers),
            None => dashboard,
        })
    }
}

/// The job's result as ours.
fn result(job: &JobDetails) -> Result<()> {
    // Ray repeats the end of the log behind the reason; it has been shown already.
    let said = job
        .message
        .as_deref()
        .unwrap_or_default()
        .split(", last available logs")
        .next();
    let said = said.unwrap_or_default().trim();
    match job.status {
        JobStatus::Succeeded => {
            output::note(&format!("{} {}", paint(Colour::Green, "succeeded:"), job.id()));
            Ok(())
        }
        status => Err(Failure::failed(format!(
            "job {} {}: {said}",
            job.id(),
            status.as_str().to_lowercase()
        ))),
    }
}

async fn logs(connection: &ConnectionArgs, args: &LogsArgs) -> Result<()> {
    let (cluster, job) = args.job.split(&args.target)?;
    let dashboard = args.target.dashboard(connection, cluster).await?;
    if args.follow {
        return result(&dashboard.follow(job).await?);
    }
    output::text(&dashboard.log(job).await?)
}

async fn stop(connection: &ConnectionArgs, args: &StopArgs) -> Result<()> {
    let (cluster, job) = args.job.split(&args.target)?;
    let dashboard = args.target.dashboard(connection, cluster).await?;
    if !dashboard.stop(job).await? {
        let ended = dashboard.job(job).await?;
        return output::line(&format!(
            "job/{job} has ended already ({})",
            ended.status.as_str()
        ));
    }
    if !args.no_wait {
        dashboard.wait(job).await?;
    }
    output::line(&format!("job/{job} stopped"))
}

fn headers(text: &str) -> std::result::Result<Headers, String> {
    let map: BTreeMap<String, String> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let pairs = map.into_iter().map(|(name, value)| {
        let name = HeaderName::try_from(&name).map_err(|error| format!("{name}: {error}"))?;
        let value = HeaderValue::try_from(&value).map_err(|error| format!("{name}: {error}"))?;
        Ok((name, value))
    });
    pairs.collect::<std::result::Result<_, String>>().map(Headers)
}
