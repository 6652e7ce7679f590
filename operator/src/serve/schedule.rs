//! When each pod is asked next: a period with jitter, a bound on probes at once, and a fair share of it for every cluster.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

/// One target of the prober, never reused: a result under an id that is gone is nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ProbeId(pub u64);

/// A cluster among which probes are shared fairly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ClusterId(pub u64);

/// Part of the period by which a probe comes earlier or later, so that pods do not march in step.
const JITTER: f64 = 0.1;

/// The time of a pod's next probe: about a period after the time of the last, but not in the past. `random` is in 0..1.
#[must_use]
pub(super) fn next_due(last_due: Instant, now: Instant, period: Duration, random: f64) -> Instant {
    (last_due + period.mul_f64(1.0 - JITTER + 2.0 * JITTER * random)).max(now)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Its time has not come.
    Waiting,
    /// Its time has come; it waits for its cluster's turn.
    Ready,
    /// Being asked.
    Running,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    cluster: ClusterId,
    due: Instant,
    place: Place,
}

#[derive(Debug, Default)]
struct Share {
    running: usize,
    /// When it was last served, in turns: among equals the one that waited longest comes first.
    turn: u64,
    ready: VecDeque<ProbeId>,
}

/// All probes, and which is next.
#[derive(Debug)]
pub(super) struct Schedule {
    capacity: usize,
    turn: u64,
    entries: HashMap<ProbeId, Entry>,
    waiting: BTreeSet<(Instant, ProbeId)>,
    shares: HashMap<ClusterId, Share>,
    /// Clusters with a ready probe, the one with the fewest running first.
    order: BTreeSet<(usize, u64, ClusterId)>,
    /// Includes probes that were removed while they ran: their slots are taken until they end.
    running: HashMap<ProbeId, ClusterId>,
}

impl Schedule {
    /// A schedule that runs at most `capacity` probes at once.
    #[must_use]
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            turn: 0,
            entries: HashMap::new(),
            waiting: BTreeSet::new(),
            shares: HashMap::new(),
            order: BTreeSet::new(),
            running: HashMap::new(),
        }
    }

    /// Adds a probe.
    pub(super) fn insert(&mut self, id: ProbeId, cluster: ClusterId, due: Instant) {
        let place = Place::Waiting;
        self.entries.insert(id, Entry { cluster, due, place });
        self.waiting.insert((due, id));
    }

    /// Forgets a probe. One that runs keeps its slot until it is done.
    pub(super) fn remove(&mut self, id: ProbeId) {
        let Some(entry) = self.entries.remove(&id) else {
            return;
        };
        match entry.place {
            Place::Waiting => {
                self.waiting.remove(&(entry.due, id));
            }
            Place::Ready => {
                self.change_share(entry.cluster, |share| share.ready.retain(|ready| *ready != id))
            }
            Place::Running => {}
        }
    }

    /// The next probe to start now, if one is due and a slot is free.
    pub(super) fn take(&mut self, now: Instant) -> Option<ProbeId> {
        self.collect_due(now);
        if self.running.len() >= self.capacity {
            return None;
        }
        let (_, _, cluster) = *self.order.first()?;
        let turn = self.turn;
        self.turn += 1;
        let mut taken = None;
        self.change_share(cluster, |share| {
            taken = share.ready.pop_front();
            share.running += 1;
            share.turn = turn;
        });
        let id = taken?;
        self.running.insert(id, cluster);
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.place = Place::Running;
        }
        Some(id)
    }

    /// A probe ended. Returns when it was due, or None where it was removed meanwhile.
    pub(super) fn done(&mut self, id: ProbeId) -> Option<Instant> {
        if let Some(cluster) = self.running.remove(&id) {
            self.change_share(cluster, |share| share.running = share.running.saturating_sub(1));
        }
        self.entries.get(&id).map(|entry| entry.due)
    }

    /// Sets when a probe that is done comes next.
    pub(super) fn again(&mut self, id: ProbeId, due: Instant) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.due = due;
            entry.place = Place::Waiting;
            self.waiting.insert((due, id));
        }
    }

    /// When to look again: None while every slot is taken, or nothing waits.
    #[must_use]
    pub(super) fn wake_at(&self) -> Option<Instant> {
        if self.running.len() >= self.capacity {
            return None;
        }
        self.waiting.first().map(|(due, _)| *due)
    }

    /// Probes that run.
    #[must_use]
    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    fn collect_due(&mut self, now: Instant) {
        while let Some((due, id)) = self.waiting.first().copied().filter(|(due, _)| *due <= now) {
            self.waiting.remove(&(due, id));
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.place = Place::Ready;
                let cluster = entry.cluster;
                self.change_share(cluster, |share| share.ready.push_back(id));
            }
        }
    }

    /// Changes a cluster's share and keeps the order of clusters true.
    fn change_share(&mut self, cluster: ClusterId, change: impl FnOnce(&mut Share)) {
        let share = self.shares.entry(cluster).or_default();
        self.order.remove(&(share.running, share.turn, cluster));
        change(share);
        if !share.ready.is_empty() {
            self.order.insert((share.running, share.turn, cluster));
        } else if share.running == 0 {
            self.shares.remove(&cluster);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fill(schedule: &mut Schedule, cluster: u64, ids: std::ops::Range<u64>, due: Instant) {
        for id in ids {
            schedule.insert(ProbeId(id), ClusterId(cluster), due);
        }
    }

    fn take_all(schedule: &mut Schedule, now: Instant) -> Vec<u64> {
        std::iter::from_fn(|| schedule.take(now)).map(|id| id.0).collect()
    }

    #[test]
    fn nothing_starts_before_its_time_or_beyond_the_bound() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let mut schedule = Schedule::new(3);
        fill(&mut schedule, 1, 0..2, now);
        fill(&mut schedule, 1, 2..9, later);
        assert_eq!(take_all(&mut schedule, now), [0, 1]);
        assert_eq!(schedule.wake_at(), Some(later));
        assert_eq!(take_all(&mut schedule, later).len(), 1);
        assert_eq!(
            schedule.wake_at(),
            None,
            "no slot is free: an end wakes us, not a time"
        );
    }

    #[test]
    fn slots_are_shared_equally_and_a_share_that_is_not_used_is_lent() {
        let now = Instant::now();
        let mut schedule = Schedule::new(8);
        fill(&mut schedule, 1, 0..1000, now);
        fill(&mut schedule, 2, 1000..1003, now);
        let taken = take_all(&mut schedule, now);
        assert_eq!(taken.iter().filter(|id| **id >= 1000).count(), 3);
        assert_eq!(taken.len(), 8);
    }

    #[test]
    fn a_cluster_that_holds_every_slot_gets_none_of_the_next_while_another_waits() {
        let now = Instant::now();
        let mut schedule = Schedule::new(64);
        fill(&mut schedule, 1, 0..1000, now);
        let hung = take_all(&mut schedule, now);
        assert_eq!(hung.len(), 64);
        fill(&mut schedule, 2, 1000..1010, now);
        for id in &hung[..10] {
            schedule.done(ProbeId(*id));
        }
        let next = take_all(&mut schedule, now);
        assert_eq!(next, (1000..1010).collect::<Vec<_>>());
    }

    #[test]
    fn a_removed_probe_keeps_its_slot_until_it_ends_and_is_then_nobodys() {
        let now = Instant::now();
        let mut schedule = Schedule::new(1);
        fill(&mut schedule, 1, 0..2, now);
        assert_eq!(take_all(&mut schedule, now), [0]);
        schedule.remove(ProbeId(0));
        assert_eq!(schedule.take(now), None);
        assert_eq!(schedule.done(ProbeId(0)), None);
        assert_eq!(schedule.take(now), Some(ProbeId(1)));
    }

    #[test]
    fn the_next_time_is_a_period_later_give_or_take_a_tenth() {
        let now = Instant::now();
        let period = Duration::from_secs(10);
        assert_eq!(next_due(now, now, period, 0.5), now + period);
        assert_eq!(next_due(now, now, period, 0.0), now + Duration::from_secs(9));
        let late = now + Duration::from_secs(60);
        assert_eq!(next_due(now, late, period, 0.5), late);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64),
        Remove(usize),
        Take,
        Done(usize),
        Pass,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0_u64..4).prop_map(Step::Insert),
            1 => any::<usize>().prop_map(Step::Remove),
            6 => Just(Step::Take),
            4 => any::<usize>().prop_map(Step::Done),
            1 => Just(Step::Pass),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn bounded_fair_and_nothing_is_lost(steps in steps()) {
            const CAPACITY: usize = 5;
            let mut schedule = Schedule::new(CAPACITY);
            let mut now = Instant::now();
            let mut all: Vec<ProbeId> = Vec::new();
            let mut running: Vec<(ProbeId, ClusterId)> = Vec::new();
            let mut cluster_of = HashMap::new();
            for step in steps {
                match step {
                    Step::Insert(cluster) => {
                        let id = ProbeId(cluster_of.len() as u64);
                        schedule.insert(id, ClusterId(cluster), now);
                        cluster_of.insert(id, ClusterId(cluster));
                        all.push(id);
                    }
                    Step::Remove(pick) if !all.is_empty() => schedule.remove(all.swap_remove(pick % all.len())),
                    Step::Take => {
                        let ready: BTreeSet<ClusterId> = all.iter()
                            .filter(|id| !running.iter().any(|(other, _)| other == *id))
                            .filter(|id| schedule.entries[*id].due <= now)
                            .map(|id| cluster_of[id])
                            .collect();
                        let taken = schedule.take(now);
                        prop_assert_eq!(taken.is_some(), !ready.is_empty() && running.len() < CAPACITY);
                        if let Some(id) = taken {
                            let count = |cluster| running.iter().filter(|(_, other)| *other == cluster).count();
                            let fewest = ready.iter().map(|cluster| count(*cluster)).min();
                            prop_assert_eq!(Some(count(cluster_of[&id])), fewest, "the cluster with the fewest goes first");
                            running.push((id, cluster_of[&id]));
                        }
                    }
                    Step::Done(pick) if !running.is_empty() => {
                        let (id, _) = running.swap_remove(pick % running.len());
                        prop_assert_eq!(schedule.done(id).is_some(), all.contains(&id));
                        schedule.again(id, now + Duration::from_secs(1));
                    }
                    Step::Pass => now += Duration::from_secs(1),
                    Step::Remove(_) | Step::Done(_) => {}
                }
                prop_assert_eq!(schedule.running(), running.len());
                prop_assert!(running.len() <= CAPACITY);
            }
        }
    }
}
