//! The serve controller: only pods whose Serve proxy answers get traffic.
//!
//! Ray, not Kubernetes, decides on which nodes a Serve proxy runs, so a readiness probe is the wrong tool. This
//! controller asks every pod of an annotated RayCluster itself, and keeps the label that the Serve service selects on.
//!
//! ```text
//!   observe ──facts──► fleet ◄──results── probe        pure: facts, targets, machine, guard, schedule, fleet,
//!                        │  ╲                                condition, announce, queue
//!                      writes jobs──────► probe        effects: observe (watches), probe (HTTP), patch (writes)
//!                        ▼
//!                      queue ──► patch                 prober: the loop that ties them together
//! ```

mod announce;
mod condition;
mod facts;
mod fleet;
mod guard;
mod machine;
mod metrics;
mod observe;
mod patch;
mod probe;
mod prober;
mod queue;
mod schedule;
mod targets;

use std::time::Duration;

use anyhow::ensure;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::fleet::{Fleet, Options};
use self::machine::Thresholds;
pub use self::metrics::Metrics;
use crate::shared::Shared;

/// Facts on their way to the prober: a start lists many at once.
const CHANGES: usize = 1024;

/// Flags of the serve controller.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// Time between two probes of a pod's Serve proxy.
    #[arg(long, default_value = "2s", value_parser = parse_duration)]
    pub serve_health_period: Duration,
    /// Longest time for a Serve proxy's answer.
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    pub serve_health_timeout: Duration,
    /// Failures in a row until a pod leaves its Serve service.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub serve_health_failure_threshold: u32,
    /// Successes in a row until a pod enters its Serve service.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub serve_health_success_threshold: u32,
    /// Serve proxies probed at once, shared fairly among clusters.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u16).range(1..))]
    pub serve_health_concurrency: u16,
    /// Requests a second to the API server for labels, conditions and events of Serve health.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub serve_health_write_rate: u32,
}

impl ServeArgs {
    fn options(&self) -> anyhow::Result<Options> {
        let (period, timeout) = (self.serve_health_period, self.serve_health_timeout);
        ensure!(
            !period.is_zero() && !timeout.is_zero(),
            "--serve-health-period and --serve-health-timeout must be longer than 0s"
        );
        Ok(Options {
            period,
            timeout,
            thresholds: Thresholds {
                failure: self.serve_health_failure_threshold,
                success: self.serve_health_success_threshold,
            },
            concurrency: self.serve_health_concurrency.into(),
            reachable: targets::is_pod_address,
        })
    }
}

/// Go's notation, as `500ms` or `1m30s`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    ray_api::duration::parse(text).ok_or_else(|| format!("{text:?} is no duration such as 500ms or 1m30s"))
}

/// Runs the serve controller until `stop`.
///
/// # Errors
/// When a flag makes no sense, or a part of it ends by itself.
pub async fn run(
    shared: Shared,
    args: ServeArgs,
    metrics: Metrics,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let options = args.options()?;
    raise_file_limit();
    let (change_sender, changes) = mpsc::channel(CHANGES);
    let (writes, write_receiver) = mpsc::unbounded_channel();
    let (written_sender, written) = mpsc::unbounded_channel();
    let (wanted, wanted_receiver) = watch::channel(false);

    let mut tasks = JoinSet::new();
    observe::start(&shared, &change_sender, &wanted_receiver, &mut tasks);
    drop(change_sender);
    let writer = patch::Writer::new(shared.client.clone(), shared.instance.clone());
    let (rate, write_metrics, write_stop) = (args.serve_health_write_rate, metrics.clone(), stop.clone());
    tasks.spawn(async move {
        patch::run(
            writer,
            rate,
            write_receiver,
            written_sender,
            write_metrics,
            write_stop,
        )
        .await;
        Ok(())
    });
    let channels = prober::Channels {
        changes,
        writes,
        written,
        wanted,
    };
    let fleet = Fleet::new(options, rand::random());
    let prober_stop = stop.clone();
    tasks.spawn(async move {
        prober::run(
            fleet,
            options.timeout,
            options.period,
            channels,
            metrics,
            prober_stop,
        )
        .await;
        Ok(())
    });

    tokio::select! {
        () = stop.cancelled() => Ok(()),
        ended = tasks.join_next() => match ended {
            Some(Ok(Err(error))) => Err(error),
            Some(Err(error)) => Err(error.into()),
            Some(Ok(Ok(()))) | None if stop.is_cancelled() => Ok(()),
            Some(Ok(Ok(()))) | None => anyhow::bail!("a part of Serve health ended by itself"),
        },
    }
}

/// Raises the soft limit of open files to the hard one, as Go programs do: each pod takes a kept-open connection.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files stays; many Serve pods may be too many for it");
    }
}
