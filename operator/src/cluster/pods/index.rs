//! Pods by cluster, fed by the watch, with expectations laid over them.
//!
//! A watch lags behind writes. Whoever counts pods right after creating some would create them again, so a pod
//! that was created counts from then on, and one that was deleted counts as terminating, until the watch shows
//! it or [`PATIENCE`] ends: a pod that never appears does not block its group for ever.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::runtime::watcher::Event;

use super::view::{PodView, WatchedPod};
use crate::shared::lock;

/// How long the watch may take to show what was done.
const PATIENCE: SignedDuration = SignedDuration::from_secs(30);

/// Namespace and name of a RayCluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// Pods of one cluster.
#[derive(Debug, Default)]
struct ClusterPods {
    watched: BTreeMap<String, Arc<PodView>>,
    /// By name: created, not yet seen.
    created: BTreeMap<String, (Arc<PodView>, Timestamp)>,
    /// By uid: deleted, not yet seen terminating.
    deleted: BTreeMap<String, Timestamp>,
}

impl ClusterPods {
    fn is_empty(&self) -> bool {
        self.watched.is_empty() && self.created.is_empty()
    }
}

/// All Ray pods in scope.
#[derive(Clone, Debug, Default)]
pub struct PodIndex(Arc<Mutex<HashMap<ClusterKey, ClusterPods>>>);

impl PodIndex {
    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterKey, ClusterPods>> {
        lock(&self.0)
    }

    /// The pods of a cluster as they are, or will soon be seen: those of another owner of its name left out.
    #[must_use]
    pub fn observe(&self, key: &ClusterKey, owner_uid: &str, now: Timestamp) -> Vec<Arc<PodView>> {
        let mut clusters = self.lock();
        let Some(pods) = clusters.get_mut(key) else {
            return Vec::new();
        };
        pods.created
            .retain(|_, (_, since)| now.duration_since(*since) < PATIENCE);
        pods.deleted
            .retain(|_, since| now.duration_since(*since) < PATIENCE);
        let seen = pods.watched.values().map(|pod| match pods.deleted.get(&pod.uid) {
            Some(since) if !pod.is_terminating() => Arc::new(PodView {
                deletion: Some(*since),
                ..PodView::clone(pod)
            }),
            _ => Arc::clone(pod),
        });
        let expected = pods.created.values().map(|(pod, _)| Arc::clone(pod));
        seen.chain(expected)
            .filter(|pod| pod.owner_uid.as_deref().is_none_or(|uid| uid == owner_uid))
            .collect()
    }

    /// Counts a pod from now on that the API server may have created.
    pub fn expect_created(&self, key: &ClusterKey, pod: PodView, now: Timestamp) {
        let mut clusters = self.lock();
        let pods = clusters.entry(key.clone()).or_default();
        if !pods.watched.contains_key(&pod.name) {
            pods.created.insert(pod.name.clone(), (Arc::new(pod), now));
        }
    }

    /// Withdraws [`PodIndex::expect_created`]: the API server refused the pod.
    pub fn unexpect_created(&self, key: &ClusterKey, name: &str) {
        if let Some(pods) = self.lock().get_mut(key) {
            pods.created.remove(name);
        }
    }

    /// Counts a pod as terminating from now on.
    pub fn expect_deleted(&self, key: &ClusterKey, uid: &str, now: Timestamp) {
        if let Some(pods) = self.lock().get_mut(key) {
            pods.deleted.insert(uid.to_owned(), now);
        }
    }

    /// Pods that the watch shows, over all clusters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().values().map(|pods| pods.watched.len()).sum()
    }

    /// Whether the watch shows none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes in one pod; whether anything changed that is used.
    fn apply(&self, key: &ClusterKey, pod: PodView) -> bool {
        let mut clusters = self.lock();
        let pods = clusters.entry(key.clone()).or_default();
        pods.created.remove(&pod.name);
        if pod.is_terminating() {
            pods.deleted.remove(&pod.uid);
        }
        let changed = pods.watched.get(&pod.name).is_none_or(|old| **old != pod);
        if changed {
            pods.watched.insert(pod.name.clone(), Arc::new(pod));
        }
        changed
    }

    fn remove(&self, key: &ClusterKey, name: &str) {
        let mut clusters = self.lock();
        if let Some(pods) = clusters.get_mut(key) {
            pods.created.remove(name);
            if let Some(pod) = pods.watched.remove(name) {
                pods.deleted.remove(&pod.uid);
            }
            if pods.is_empty() {
                clusters.remove(key);
            }
        }
    }

    /// Replaces what the watch showed of some namespaces by a new list; the clusters of either.
    fn replace(&self, namespace: Option<&str>, list: Vec<(ClusterKey, PodView)>) -> Vec<ClusterKey> {
        let mut clusters = self.lock();
        let mut touched: Vec<ClusterKey> = Vec::new();
        for (key, pods) in clusters.iter_mut() {
            if namespace.is_none_or(|namespace| namespace == key.namespace) {
                pods.watched.clear();
                touched.push(key.clone());
            }
        }
        for (key, pod) in list {
            touched.push(key.clone());
            let pods = clusters.entry(key).or_default();
            pods.created.remove(&pod.name);
            pods.watched.insert(pod.name.clone(), Arc::new(pod));
        }
        clusters.retain(|_, pods| !pods.is_empty());
        touched.sort_unstable();
        touched.dedup();
        touched
    }
}

/// Feeds one watch into the index.
pub struct Feed {
    index: PodIndex,
    namespace: Option<String>,
    list: Vec<(ClusterKey, PodView)>,
}

impl Feed {
    /// Of one namespace, or of all.
    #[must_use]
    pub fn new(index: PodIndex, namespace: Option<String>) -> Self {
        Self {
            index,
            namespace,
            list: Vec::new(),
        }
    }

    /// Takes in an event; the clusters that have to look at their pods again.
    pub fn handle(&mut self, event: Event<WatchedPod>) -> Vec<ClusterKey> {
        match event {
            Event::Init => {
                self.list.clear();
                Vec::new()
            }
            Event::InitApply(pod) => {
                let key = key(&pod);
                self.list.extend(pod.view.map(|view| (key, view)));
                Vec::new()
            }
            Event::InitDone => {
                let list = std::mem::take(&mut self.list);
                self.index.replace(self.namespace.as_deref(), list)
            }
            Event::Apply(pod) => {
                let key = key(&pod);
                let changed = pod.view.is_some_and(|view| self.index.apply(&key, view));
                if changed { vec![key] } else { Vec::new() }
            }
            Event::Delete(pod) => {
                let key = key(&pod);
                self.index.remove(&key, &pod.name_any());
                vec![key]
            }
        }
    }
}

fn key(pod: &WatchedPod) -> ClusterKey {
    ClusterKey {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.cluster.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pod(name: &str, uid: &str) -> WatchedPod {
        serde_json::from_value(json!({"metadata": {
            "name": name, "namespace": "n", "uid": uid,
            "labels": {"ray.io/cluster": "c", "ray.io/node-type": "worker", "ray.io/group": "g"},
        }}))
        .unwrap()
    }

    fn names(index: &PodIndex, second: i64) -> Vec<(String, bool)> {
        let key = key(&pod("", ""));
        let pods = index.observe(&key, "owner", at(second));
        pods.iter()
            .map(|pod| (pod.name.clone(), pod.is_terminating()))
            .collect()
    }

    fn live(name: &str) -> (String, bool) {
        (name.to_owned(), false)
    }

    #[test]
    fn a_created_pod_counts_until_the_watch_shows_it_or_patience_ends() {
        let index = PodIndex::default();
        let key = key(&pod("", ""));
        let mut feed = Feed::new(index.clone(), None);
        for name in ["a", "b"] {
            index.expect_created(&key, pod(name, "").view.unwrap(), at(0));
        }
        assert_eq!(names(&index, 1), [live("a"), live("b")]);
        feed.handle(Event::Apply(pod("a", "1")));
        assert_eq!(names(&index, 2), [live("a"), live("b")], "each once");
        assert_eq!(names(&index, 31), [live("a")], "b never came");
        feed.handle(Event::Delete(pod("a", "1")));
        assert!(names(&index, 32).is_empty());
    }

    #[test]
    fn a_pod_that_came_and_went_before_the_next_look_leaves_no_ghost() {
        let index = PodIndex::default();
        let key = key(&pod("", ""));
        let mut feed = Feed::new(index.clone(), None);
        index.expect_created(&key, pod("a", "").view.unwrap(), at(0));
        feed.handle(Event::Apply(pod("a", "1")));
        feed.handle(Event::Delete(pod("a", "1")));
        assert!(names(&index, 1).is_empty());
    }

    #[test]
    fn a_deleted_pod_counts_as_terminating_but_not_for_ever() {
        let index = PodIndex::default();
        let key = key(&pod("", ""));
        let mut feed = Feed::new(index.clone(), None);
        feed.handle(Event::Apply(pod("a", "1")));
        index.expect_deleted(&key, "1", at(0));
        assert_eq!(names(&index, 1), [("a".to_owned(), true)]);
        assert_eq!(names(&index, 31), [live("a")], "the deletion was lost");
    }

    #[test]
    fn a_new_list_replaces_the_old_one_and_keeps_expectations() {
        let index = PodIndex::default();
        let key = key(&pod("", ""));
        let mut feed = Feed::new(index.clone(), None);
        feed.handle(Event::Apply(pod("gone", "1")));
        index.expect_created(&key, pod("coming", "").view.unwrap(), at(0));
        feed.handle(Event::Init);
        feed.handle(Event::InitApply(pod("new", "2")));
        assert_eq!(
            names(&index, 1),
            [live("gone"), live("coming")],
            "not before the list is whole"
        );
        assert_eq!(feed.handle(Event::InitDone), [key]);
        assert_eq!(names(&index, 1), [live("new"), live("coming")]);
    }

    #[test]
    fn what_is_not_used_wakes_nobody() {
        let mut feed = Feed::new(PodIndex::default(), None);
        assert_eq!(feed.handle(Event::Apply(pod("a", "1"))).len(), 1);
        assert!(feed.handle(Event::Apply(pod("a", "1"))).is_empty());
    }

    #[test]
    fn pods_of_an_earlier_cluster_of_the_same_name_are_not_ours() {
        let index = PodIndex::default();
        let mut other = pod("old", "1");
        other.view.as_mut().unwrap().owner_uid = Some("earlier".to_owned());
        Feed::new(index.clone(), None).handle(Event::Apply(other));
        assert!(names(&index, 1).is_empty());
    }
}
