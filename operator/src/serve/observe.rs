//! Watches, turned into changes of facts. Pods and services are watched only while a cluster wants Serve health.

use std::collections::HashSet;
use std::fmt::Debug;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Resource, ResourceExt};
use ray_api::meta::label;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::facts::{ClusterFacts, PodFacts, ServiceFacts, Uid};
use super::fleet::Change;
use crate::guard::Guarded;
use crate::shared::Shared;

/// Starts all watches; they end with the receiver of `changes`.
pub(super) fn start(
    shared: &Shared,
    changes: &mpsc::Sender<Change>,
    wanted: &watch::Receiver<bool>,
    tasks: &mut JoinSet<anyhow::Result<()>>,
) {
    for api in shared.scope.apis::<Guarded>(&shared.client) {
        let mut clusters = Watch {
            api,
            config: ray_runtime::watch::config(),
            read: read_cluster,
            gone: Change::ClusterGone,
            changes: changes.clone(),
            known: HashSet::new(),
        };
        tasks.spawn(async move { clusters.follow().await });
    }
    let ray_pods = format!("{},{} in (head,worker)", label::CLUSTER, label::NODE_TYPE);
    for api in shared.scope.apis::<Pod>(&shared.client) {
        let pods = Watch {
            api,
            config: ray_runtime::watch::config().labels(&ray_pods),
            read: read_pod,
            gone: Change::PodGone,
            changes: changes.clone(),
            known: HashSet::new(),
        };
        tasks.spawn(pods.follow_while(wanted.clone()));
    }
    for api in shared.scope.apis::<Service>(&shared.client) {
        let services = Watch {
            api,
            config: ray_runtime::watch::config().labels(label::SERVE),
            read: read_service,
            gone: Change::ServiceGone,
            changes: changes.clone(),
            known: HashSet::new(),
        };
        tasks.spawn(services.follow_while(wanted.clone()));
    }
}

fn read_cluster(cluster: &Guarded) -> Option<(Uid, Change)> {
    match &cluster.0 {
        Ok(cluster) => {
            let facts = ClusterFacts::of(cluster)?;
            Some((facts.key.uid.clone(), Change::Cluster(facts)))
        }
        Err(unreadable) => {
            let (name, why) = (cluster.name_any(), &unreadable.why);
            tracing::warn!(name, why, "a RayCluster cannot be read; its pods are not probed");
            None
        }
    }
}

fn read_pod(pod: &Pod) -> Option<(Uid, Change)> {
    let facts = PodFacts::of(pod)?;
    Some((facts.key.uid.clone(), Change::Pod(facts)))
}

fn read_service(service: &Service) -> Option<(Uid, Change)> {
    let facts = ServiceFacts::of(service)?;
    Some((facts.key.uid.clone(), Change::Service(facts)))
}

/// A watch of one kind: each object that `read` takes becomes a change, each that is gone or not taken any more `gone`.
struct Watch<K> {
    api: Api<K>,
    config: watcher::Config,
    read: fn(&K) -> Option<(Uid, Change)>,
    gone: fn(Uid) -> Change,
    changes: mpsc::Sender<Change>,
    /// Objects that were told of. It outlives the watch, so that the next list shows what vanished meanwhile.
    known: HashSet<Uid>,
}

impl<K> Watch<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    async fn follow_while(mut self, mut wanted: watch::Receiver<bool>) -> anyhow::Result<()> {
        while wanted.wait_for(|wanted| *wanted).await.is_ok() {
            tokio::select! {
                ended = self.follow() => return ended,
                unwanted = wanted.wait_for(|wanted| !*wanted) => if unwanted.is_err() { break },
            }
        }
        Ok(())
    }

    async fn follow(&mut self) -> anyhow::Result<()> {
        let mut listed = HashSet::new();
        let mut events = std::pin::pin!(watcher(self.api.clone(), self.config.clone()).default_backoff());
        loop {
            let told = match events.try_next().await {
                Ok(Some(event)) => self.take_in(event, &mut listed),
                Ok(None) => anyhow::bail!("a watch of Serve health ended"),
                Err(error) => {
                    tracing::warn!(%error, "a watch of Serve health broke; it starts again");
                    continue;
                }
            };
            for change in told {
                if self.changes.send(change).await.is_err() {
                    return Ok(());
                }
            }
        }
    }

    fn take_in(&mut self, event: Event<K>, listed: &mut HashSet<Uid>) -> Vec<Change> {
        match event {
            Event::Init => {
                listed.clear();
                Vec::new()
            }
            Event::InitApply(object) | Event::Apply(object) => match (self.read)(&object) {
                Some((uid, change)) => {
                    listed.insert(uid.clone());
                    self.known.insert(uid);
                    vec![change]
                }
                None => self.forget(&object),
            },
            Event::InitDone => {
                let vanished: Vec<Uid> = self.known.difference(listed).cloned().collect();
                self.known = std::mem::take(listed);
                vanished.into_iter().map(self.gone).collect()
            }
            Event::Delete(object) => self.forget(&object),
        }
    }

    fn forget(&mut self, object: &K) -> Vec<Change> {
        let uid = object.meta().uid.as_deref().map(Uid::from);
        uid.filter(|uid| self.known.remove(uid))
            .map(self.gone)
            .into_iter()
            .collect()
    }
}
