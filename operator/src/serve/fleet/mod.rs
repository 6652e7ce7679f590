//! Everything known about clusters, pods and their health, and what follows from it. No I/O: changes, results and the
//! time come in, probes to start and writes to make come out. `C` is a kept-open connection.

mod results;
mod settle;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::serve::announce::Journal;
use crate::serve::condition::{Said, Tally};
use crate::serve::facts::{ClusterFacts, Label, ObjectKey, PodFacts, ServiceFacts, Uid};
use crate::serve::guard::Answers;
use crate::serve::machine::{Health, Outcome, Thresholds};
use crate::serve::patch::Write;
use crate::serve::schedule::{ClusterId, ProbeId, Schedule};
use crate::serve::targets::{self, Assessment, Settings, Target};

/// How pods are asked.
#[derive(Clone, Copy, Debug)]
pub(in crate::serve) struct Options {
    /// Time between two probes of a pod.
    pub period: Duration,
    /// Longest time for an answer.
    pub timeout: Duration,
    /// Results in a row that move a pod.
    pub thresholds: Thresholds,
    /// Probes at once.
    pub concurrency: usize,
    /// Which addresses may be asked.
    pub reachable: fn(IpAddr) -> bool,
}

/// Something that the API server told.
#[derive(Clone, Debug)]
pub(in crate::serve) enum Change {
    /// A RayCluster is there, or changed.
    Cluster(ClusterFacts),
    /// It is gone.
    ClusterGone(Uid),
    /// A pod is there, or changed.
    Pod(PodFacts),
    /// It is gone.
    PodGone(Uid),
    /// A Serve service is there, or changed.
    Service(ServiceFacts),
    /// It is gone.
    ServiceGone(Uid),
}

/// A probe to start.
#[derive(Debug)]
pub(in crate::serve) struct Job<C> {
    /// Under which its result is to be reported.
    pub id: ProbeId,
    /// Where to ask.
    pub target: Target,
    /// The connection of the last probe.
    pub kept: Option<C>,
}

/// The counts of one cluster, for metrics; None where it is not probed any more.
pub(in crate::serve) type Counts = (ObjectKey, Option<Tally>);

#[derive(Debug)]
struct Cluster {
    id: ClusterId,
    facts: ClusterFacts,
    /// The newest answer of a pod that has or had a proxy.
    answered: Option<Instant>,
    journal: Journal,
    /// Conditions on their way to the API server and back.
    saying: Option<(Option<i64>, Vec<Said>)>,
}

#[derive(Debug)]
struct Member<C> {
    facts: PodFacts,
    health: Health,
    probe: Option<(ProbeId, Target)>,
    last: Option<Outcome>,
    kept: Option<C>,
    /// A label on its way to the API server.
    labelling: Option<Option<Label>>,
}

/// All clusters and pods.
#[derive(Debug)]
pub(in crate::serve) struct Fleet<C> {
    options: Options,
    random: SmallRng,
    next_id: u64,
    clusters: HashMap<Uid, Cluster>,
    pods: HashMap<Uid, Member<C>>,
    /// Pods by the cluster that controls them, which may not be known yet.
    pods_of: HashMap<Uid, BTreeSet<Uid>>,
    /// Serve services by the cluster that controls them.
    services: HashMap<Uid, ServiceFacts>,
    probes: HashMap<ProbeId, Uid>,
    schedule: Schedule,
    answers: Answers,
    /// Clusters to look at when things settle.
    changed: BTreeSet<Uid>,
    /// Clusters that vanished since.
    gone: Vec<ObjectKey>,
    writes: Vec<Write>,
}

impl<C> Fleet<C> {
    /// An empty fleet; `seed` decides the jitter.
    #[must_use]
    pub(in crate::serve) fn new(options: Options, seed: u64) -> Self {
        Self {
            options,
            random: SmallRng::seed_from_u64(seed),
            next_id: 0,
            clusters: HashMap::new(),
            pods: HashMap::new(),
            pods_of: HashMap::new(),
            services: HashMap::new(),
            probes: HashMap::new(),
            schedule: Schedule::new(options.concurrency),
            answers: Answers::default(),
            changed: BTreeSet::new(),
            gone: Vec::new(),
            writes: Vec::new(),
        }
    }

    /// Whether any cluster wants Serve health: only then pods and services need watching.
    #[must_use]
    pub(in crate::serve) fn is_wanted(&self) -> bool {
        self.clusters
            .values()
            .any(|cluster| cluster.facts.settings.is_some())
    }

    /// Probes that run.
    #[must_use]
    pub(in crate::serve) fn running(&self) -> usize {
        self.schedule.running()
    }

    /// When the next probe is due, if a slot is free for it.
    #[must_use]
    pub(in crate::serve) fn wake_at(&self) -> Option<Instant> {
        self.schedule.wake_at()
    }

    /// Takes the writes that have come up.
    pub(in crate::serve) fn take_writes(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.writes)
    }

    /// Takes in what the API server told.
    pub(in crate::serve) fn apply(&mut self, change: Change, now: Instant) {
        match change {
            Change::Cluster(facts) => self.apply_cluster(facts, now),
            Change::ClusterGone(uid) => {
                self.gone
                    .extend(self.clusters.remove(&uid).map(|cluster| cluster.facts.key));
                self.reassess_all(&uid, now);
            }
            Change::Pod(facts) => self.apply_pod(facts, now),
            Change::PodGone(uid) => self.remove_pod(&uid),
            Change::Service(facts) => {
                self.changed.insert(facts.owner.clone());
                self.services.insert(facts.owner.clone(), facts);
            }
            Change::ServiceGone(uid) => self.services.retain(|_, service| service.key.uid != uid),
        }
    }

    fn apply_cluster(&mut self, facts: ClusterFacts, now: Instant) {
        let uid = facts.key.uid.clone();
        self.changed.insert(uid.clone());
        let reassess = match self.clusters.get_mut(&uid) {
            Some(cluster) => {
                let differs = cluster.facts.settings != facts.settings;
                if cluster.facts.conditions != facts.conditions {
                    cluster.saying = None;
                }
                cluster.facts = facts;
                differs
            }
            None => {
                let cluster = Cluster {
                    id: ClusterId(self.new_id()),
                    facts,
                    answered: None,
                    journal: Journal::default(),
                    saying: None,
                };
                self.clusters.insert(uid.clone(), cluster);
                true
            }
        };
        if reassess {
            self.reassess_all(&uid, now);
        }
    }

    fn apply_pod(&mut self, facts: PodFacts, now: Instant) {
        let uid = facts.key.uid.clone();
        let owner = facts.owner.clone();
        match self.pods.get_mut(&uid) {
            Some(member) => {
                if member.facts.owner != owner {
                    self.stop_probe(&uid);
                    self.forget_owner(&uid);
                }
                if let Some(member) = self.pods.get_mut(&uid) {
                    member.facts = facts;
                }
            }
            None => {
                let health = Health::adopt(facts.label.filter(|_| facts.label_is_ours));
                let member = Member {
                    facts,
                    health,
                    probe: None,
                    last: None,
                    kept: None,
                    labelling: None,
                };
                self.pods.insert(uid.clone(), member);
            }
        }
        self.pods_of.entry(owner.clone()).or_default().insert(uid.clone());
        self.changed.insert(owner);
        self.reassess(&uid, now);
    }

    fn remove_pod(&mut self, uid: &Uid) {
        self.stop_probe(uid);
        self.forget_owner(uid);
        self.pods.remove(uid);
    }

    fn forget_owner(&mut self, uid: &Uid) {
        let Some(member) = self.pods.get(uid) else { return };
        self.changed.insert(member.facts.owner.clone());
        if let Some(pods) = self.pods_of.get_mut(&member.facts.owner) {
            pods.remove(uid);
            if pods.is_empty() {
                self.pods_of.remove(&member.facts.owner);
            }
        }
    }

    fn reassess_all(&mut self, cluster: &Uid, now: Instant) {
        for uid in self.pods_of.get(cluster).cloned().unwrap_or_default() {
            self.reassess(&uid, now);
        }
    }

    /// Decides anew whether and where a pod is asked.
    fn reassess(&mut self, uid: &Uid, now: Instant) {
        let Some(member) = self.pods.get(uid) else { return };
        let cluster = self.clusters.get(&member.facts.owner);
        let settings: Option<&Settings> =
            cluster.and_then(|cluster| cluster.facts.settings.as_ref()?.as_ref().ok());
        let (Some(cluster), Some(settings)) = (cluster, settings) else {
            self.stop_probe(uid);
            return;
        };
        let cluster = cluster.id;
        match targets::assess(settings, &member.facts, self.options.reachable) {
            Assessment::Probe(target) if member.probe.as_ref().is_some_and(|(_, known)| *known == target) => {
            }
            Assessment::Probe(target) => {
                self.stop_probe(uid);
                let id = ProbeId(self.new_id());
                // Spread over a period, so that the pods of a start do not march in step.
                let due = now + self.options.period.mul_f64(self.random.random());
                self.schedule.insert(id, cluster, due);
                self.probes.insert(id, uid.clone());
                if let Some(member) = self.pods.get_mut(uid) {
                    member.probe = Some((id, target));
                }
            }
            Assessment::Out => {
                let health = member.health.leave();
                self.stop_probe(uid);
                self.set_health(uid, health, "not running, or excluded");
            }
        }
        self.reconcile_label(uid);
    }

    fn stop_probe(&mut self, uid: &Uid) {
        let Some(member) = self.pods.get_mut(uid) else {
            return;
        };
        member.kept = None;
        member.last = None;
        if let Some((id, _)) = member.probe.take() {
            self.schedule.remove(id);
            self.probes.remove(&id);
        }
    }

    /// The next probe to start now.
    pub(in crate::serve) fn take(&mut self, now: Instant) -> Option<Job<C>> {
        let id = self.schedule.take(now)?;
        let member = self.pods.get_mut(self.probes.get(&id)?)?;
        let (_, target) = member.probe.clone()?;
        Some(Job {
            id,
            target,
            kept: member.kept.take(),
        })
    }

    fn members(&self, cluster: &Uid) -> impl Iterator<Item = &Member<C>> {
        let pods = self.pods_of.get(cluster).into_iter().flatten();
        pods.filter_map(|uid| self.pods.get(uid))
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}
