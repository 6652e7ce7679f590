//! The cluster controller: RayCluster → pods, services, RBAC, ingress, status.
//!
//! ```text
//!   watch      RayClusters, pods, services, … by our labels     pods/  what the watch shows, and expectations
//!   reconcile  one pass over one cluster:
//!     admit    deletion, rules, what is not supported
//!     build/   pure: spec → objects                             plan/  pure: (spec, pods, now) → create, delete
//!     children, execute   the writes                            cleanup  the finalizer
//!     status/  pure: what was seen and done → status            report  events, status, when to look again
//! ```

pub mod build;
mod children;
mod cleanup;
mod config;
mod context;
mod drift;
mod error;
mod events;
mod execute;
mod memory;
mod metrics;
pub mod plan;
pub mod pods;
mod reconcile;
mod report;
mod request;
pub mod status;
mod unreadable;
mod watch;

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod mocked;

use std::future::ready;
use std::sync::Arc;

use futures::StreamExt;
use futures::future::join_all;
use kube::runtime::controller::{self, Controller};
use kube::runtime::reflector::Store;
use kube::runtime::{WatchStreamExt, predicates};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use config::{ClusterArgs, Config};
pub use metrics::Metrics;

use crate::guard::Guarded;
use crate::shared::Shared;
use context::{ChildStores, Context};
use events::Events;
use kube::runtime::Predicate;
use memory::Memories;
use pods::PodIndex;
use watch::Trigger;

/// Runs until `shutdown`; passes that are under way are finished.
///
/// # Errors
/// Never by itself: watches that break start again.
pub async fn run(
    shared: Shared,
    config: Config,
    metrics: Metrics,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let apis = shared.scope.apis::<Guarded>(&shared.client);
    let mut trigger = Trigger::default();
    let triggers: Vec<_> = apis.iter().map(|api| trigger.listen(api.namespace())).collect();
    let mut watches = JoinSet::new();
    let index = PodIndex::default();
    let listed = watch::pods(&shared, &index, &trigger, &mut watches);
    let children = ChildStores {
        services: watch::children(&shared, &trigger, &mut watches),
        service_accounts: watch::children(&shared, &trigger, &mut watches),
        roles: watch::children(&shared, &trigger, &mut watches),
        role_bindings: watch::children(&shared, &trigger, &mut watches),
        ingresses: watch::children(&shared, &trigger, &mut watches),
    };
    tokio::select! {
        () = shutdown.cancelled() => return Ok(()),
        // No pod is created before every pod was seen that is there.
        () = listed => {}
    }
    for service in &children.services {
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            _ = service.wait_until_ready() => {}
        }
    }
    let ctx = Arc::new(Context {
        client: shared.client.clone(),
        pods: index,
        children,
        memories: Memories::default(),
        events: Events::start(shared.client.clone(), &shared.instance, shutdown.clone()),
        metrics: metrics.clone(),
        slots: Semaphore::new(config.pod_concurrency()),
        config,
    });
    let (stores, runs): (Vec<Store<Guarded>>, Vec<_>) = apis
        .into_iter()
        .zip(triggers)
        .map(|(api, triggers)| {
            let forget = Arc::clone(&ctx);
            let (store, clusters) = watch::clusters(api, move |key| forget.memories.forget(&key));
            let changed = predicates::generation
                .combine(predicates::labels)
                .combine(predicates::annotations);
            let settings = controller::Config::default().concurrency(ctx.config.concurrency);
            let run = Controller::for_stream(
                clusters.predicate_filter(changed, Default::default()),
                store.clone(),
            )
            .with_config(settings)
            .reconcile_on(triggers)
            .graceful_shutdown_on(shutdown.clone().cancelled_owned())
            .run(reconcile::reconcile, reconcile::error_policy, Arc::clone(&ctx))
            .for_each(|_| ready(()));
            (store, run)
        })
        .unzip();
    metrics.show(stores);
    tracing::info!(pods = ctx.pods.len(), "the cluster controller starts");
    join_all(runs).await;
    Ok(())
}
