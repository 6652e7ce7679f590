//! The watches: RayClusters, pods and the objects around them, all restricted to what carries our labels.

use std::collections::HashSet;
use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use ray_api::meta::{NODE_TYPE_HEAD, NODE_TYPE_REDIS_CLEANUP, NODE_TYPE_WORKER, label};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::drift;
use super::pods::{ClusterKey, Feed, PodIndex, WatchedPod};
use crate::guard::Guarded;
use crate::shared::Shared;

/// Changes that come together within this time are one pass.
const COALESCE: Duration = Duration::from_millis(50);

/// Tells which clusters have to be looked at: one listener for each namespace, or one for all.
#[derive(Clone, Debug, Default)]
pub(super) struct Trigger(Vec<(Option<String>, mpsc::UnboundedSender<ClusterKey>)>);

impl Trigger {
    /// Adds the listener of a namespace, or of all.
    pub(super) fn listen(
        &mut self,
        namespace: Option<&str>,
    ) -> impl Stream<Item = ObjectRef<Guarded>> + Send + use<> {
        let (sender, keys) = mpsc::unbounded_channel();
        self.0.push((namespace.map(str::to_owned), sender));
        coalesced(keys)
    }

    fn send(&self, key: &ClusterKey) {
        for (namespace, listener) in &self.0 {
            if namespace
                .as_ref()
                .is_none_or(|namespace| *namespace == key.namespace)
            {
                // A listener that is gone has stopped with its controller.
                let _ = listener.send(key.clone());
            }
        }
    }
}

/// Feeds the pods of all clusters into `index`; the future resolves once every list was read whole.
pub(super) fn pods(
    shared: &Shared,
    index: &PodIndex,
    trigger: &Trigger,
    tasks: &mut JoinSet<()>,
) -> impl Future<Output = ()> + use<> {
    let selector = format!(
        "{} in ({NODE_TYPE_HEAD},{NODE_TYPE_WORKER},{NODE_TYPE_REDIS_CLEANUP})",
        label::NODE_TYPE
    );
    let mut synced = Vec::new();
    for api in shared.scope.apis::<WatchedPod>(&shared.client) {
        // The first list is a consistent one: whoever counts pods counts those that a predecessor created.
        let config = ray_runtime::watch::config().labels(&selector);
        let mut feed = Feed::new(index.clone(), api.namespace().map(str::to_owned));
        let trigger = trigger.clone();
        let (done, listed) = tokio::sync::oneshot::channel();
        let mut done = Some(done);
        synced.push(listed);
        tasks.spawn(async move {
            let mut events = std::pin::pin!(watcher(api, config).default_backoff());
            while let Some(event) = events.next().await {
                let event = match event {
                    Ok(event) => event,
                    Err(error) => {
                        tracing::warn!(%error, "the watch of pods broke; it starts again");
                        continue;
                    }
                };
                let whole = matches!(event, watcher::Event::InitDone);
                for key in feed.handle(event) {
                    trigger.send(&key);
                }
                if let Some(done) = done.take_if(|_| whole) {
                    let _ = done.send(());
                }
            }
        });
    }
    async move {
        for listed in synced {
            let _ = listed.await;
        }
    }
}

/// Stores of a kind of child, filled by tasks.
pub(super) fn children<K>(shared: &Shared, trigger: &Trigger, tasks: &mut JoinSet<()>) -> Vec<Store<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let mut stores = Vec::new();
    for api in shared.scope.apis::<K>(&shared.client) {
        let (reader, writer) = store();
        stores.push(reader);
        let config = ray_runtime::watch::config().labels(label::CLUSTER);
        let trigger = trigger.clone();
        tasks.spawn(async move {
            let stream = watcher(api, config).default_backoff().modify(|object: &mut K| {
                drift::forget_unused(object.meta_mut());
            });
            let stream = stream.reflect(writer).touched_objects();
            let mut objects = std::pin::pin!(stream);
            while let Some(object) = objects.next().await {
                match object {
                    Ok(object) => {
                        let owner = object.labels().get(label::CLUSTER);
                        trigger.send(&ClusterKey {
                            namespace: object.namespace().unwrap_or_default(),
                            name: owner.cloned().unwrap_or_default(),
                        });
                    }
                    Err(error) => {
                        tracing::warn!(kind = %K::kind(&()), %error, "a watch broke; it starts again")
                    }
                }
            }
        });
    }
    stores
}

/// RayClusters of one scope: their store, and the stream that fills it. `gone` hears of those that were deleted.
pub(super) fn clusters(
    api: Api<Guarded>,
    gone: impl Fn(ClusterKey) + Send + 'static,
) -> (
    Store<Guarded>,
    impl Stream<Item = Result<Guarded, watcher::Error>> + Send + 'static,
) {
    let (reader, writer) = store();
    let stream = watcher(api, ray_runtime::watch::config())
        .default_backoff()
        .inspect_ok(move |event| {
            if let watcher::Event::Delete(cluster) = event {
                gone(ClusterKey {
                    namespace: cluster.namespace().unwrap_or_default(),
                    name: cluster.name_any(),
                });
            }
        });
    (reader, stream.reflect(writer).applied_objects())
}

/// Turns bursts of keys into single ones.
fn coalesced(
    mut keys: mpsc::UnboundedReceiver<ClusterKey>,
) -> impl Stream<Item = ObjectRef<Guarded>> + Send + 'static {
    let (sender, merged) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(first) = keys.recv().await {
            tokio::time::sleep(COALESCE).await;
            for key in drain(first, &mut keys) {
                if sender
                    .send(ObjectRef::new(&key.name).within(&key.namespace))
                    .is_err()
                {
                    return;
                }
            }
        }
    });
    futures::stream::unfold(merged, |mut merged| async move {
        Some((merged.recv().await?, merged))
    })
}

/// What waits in the channel, each once.
fn drain<T: Eq + Hash>(first: T, waiting: &mut mpsc::UnboundedReceiver<T>) -> HashSet<T> {
    let mut all = HashSet::from([first]);
    while let Ok(next) = waiting.try_recv() {
        all.insert(next);
    }
    all
}
