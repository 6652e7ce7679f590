//! The template controller: lifts image gates, counts users, follows changes.
//!
//! ```text
//!   world    what the watches have seen: templates, and RayClusters by their metadata alone
//!   plan     world -> touches, conditions, statuses, refreshes     pure
//!   execute  writes them
//! ```
//!
//! It never writes a RayCluster's spec. It touches the cluster, and the webhook fills the image and lifts the suspend.

mod cache;
mod execute;
#[cfg(test)]
mod mocked;
pub mod plan;
pub mod world;

use std::time::Duration;

use futures::StreamExt;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::shared::Shared;
use execute::Executor;
use world::World;

/// Between a change and what follows from it: changes come in bursts.
const SETTLE: Duration = Duration::from_millis(100);
/// Between looks at gates that did not lift, and at clusters that wait for their refresh.
const RETRY: Duration = Duration::from_secs(5);
/// Between updates of the templates' statuses.
const STATUS_DEBOUNCE: Duration = Duration::from_secs(10);

/// Flags of the template controller.
#[derive(Clone, Debug, clap::Args)]
pub struct TemplateArgs {
    /// RayClusters with `templates.ray.io/update-policy: Track` that are refreshed in a minute, at most.
    #[arg(long, default_value_t = 10)]
    pub max_refreshes: u32,
    /// Seconds that changes of `usedBy` and `stale` are gathered before they are written.
    #[arg(long, default_value_t = STATUS_DEBOUNCE.as_secs(), value_parser = clap::value_parser!(u64).range(1..))]
    pub template_status_debounce: u64,
}

/// Metrics of the template controller.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    gated: Gauge,
    lifts: Counter,
    refreshes: Counter,
    failures: Counter,
}

impl Metrics {
    /// Adds them to the registry.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("ray_templates");
        registry.register(
            "gated_clusters",
            "RayClusters that wait for an image",
            metrics.gated.clone(),
        );
        registry.register("gate_lifts", "Image gates lifted", metrics.lifts.clone());
        registry.register(
            "refreshes",
            "RayClusters refreshed to newer templates",
            metrics.refreshes.clone(),
        );
        registry.register("failures", "Writes that failed", metrics.failures.clone());
        metrics
    }
}

/// Runs until `shutdown`.
///
/// # Errors
/// None so far: watches and writes are tried again.
pub async fn run(
    shared: Shared,
    args: TemplateArgs,
    metrics: Metrics,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut changes = std::pin::pin!(cache::watch(&shared).take_until(shutdown.cancelled_owned()));
    let mut world = World::default();
    let mut executor = Executor::new(&shared, args.max_refreshes, metrics);
    let debounce = Duration::from_secs(args.template_status_debounce);
    let mut retry = interval(RETRY);
    retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut gates_due, mut statuses_due) = (None, None);
    loop {
        tokio::select! {
            change = changes.next() => {
                let Some(change) = change else { return Ok(()) };
                world.apply(change);
                let now = Instant::now();
                gates_due.get_or_insert(now + SETTLE);
                statuses_due.get_or_insert(now + debounce);
            }
            () = due(gates_due) => {
                gates_due = None;
                executor.gates(&world).await;
                executor.refreshes(&world).await;
            }
            () = due(statuses_due) => {
                statuses_due = None;
                executor.statuses(&world).await;
            }
            _ = retry.tick() => {
                gates_due.get_or_insert_with(Instant::now);
                if executor.owes_statuses() {
                    statuses_due.get_or_insert_with(|| Instant::now() + debounce);
                }
            }
        }
    }
}

async fn due(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
