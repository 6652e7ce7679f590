//! What this process remembers of a cluster between two passes; nothing that a restart must not lose.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use ray_api::ray::v1::{RayCluster, RayClusterStatus};

use super::error::Failure;
use super::pods::ClusterKey;
use crate::shared::lock;

/// Longest hold of a group whose pods end or are refused.
const LONGEST_HOLD: SignedDuration = SignedDuration::from_secs(300);
/// Hold of a group that ran into a quota: short enough to go on soon after it is raised.
const QUOTA_HOLD: SignedDuration = SignedDuration::from_secs(60);
/// A group without failures for this long starts over.
const FORGIVE: SignedDuration = SignedDuration::from_secs(600);
/// Longest wait after an error.
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);
/// A change of the status waits this long for others.
const SETTLE: Duration = Duration::from_secs(1);
/// Between two writes that nobody waits for.
const STATUS_PERIOD: Duration = Duration::from_secs(5);
/// A Secret that was deleted by hand and that no pod waits for is missed after this long.
const SECRET_PERIOD: Duration = Duration::from_secs(240);

/// Why a group creates nothing for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setback {
    /// A pod ended; the first is replaced at once.
    Ended,
    /// The API server refused a pod.
    Refused,
    /// A quota was exceeded.
    Quota,
}

/// A group that creates nothing for a while.
#[derive(Clone, Copy, Debug)]
struct Hold {
    setbacks: u32,
    last: Timestamp,
    until: Timestamp,
}

/// Of one cluster.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Generation that the holds belong to: a new spec starts over.
    generation: Option<i64>,
    /// By group; the head's is `None`.
    holds: HashMap<Option<String>, Hold>,
    /// Why the last pod of a group was refused, by group.
    refused: HashMap<Option<String>, Failure>,
    /// The last status that was written, with the resourceVersion that it made.
    written: Option<(u64, RayClusterStatus)>,
    dirty_since: Option<Instant>,
    last_write: Option<Instant>,
    /// When the authentication Secret was last known to be there.
    secret_seen: Option<Instant>,
    /// Errors of this cluster in a row.
    pub errors: u32,
    /// Last warning of each reason, so that it is said once.
    said: HashMap<&'static str, String>,
}

impl Memory {
    /// Starts over where the spec has changed.
    pub(super) fn see_generation(&mut self, generation: Option<i64>) {
        if self.generation != generation {
            self.generation = generation;
            self.holds.clear();
            self.refused.clear();
        }
    }

    /// Until when a group creates nothing.
    #[must_use]
    pub(super) fn held_until(&self, group: Option<&str>) -> Option<Timestamp> {
        self.holds.get(&group.map(str::to_owned)).map(|hold| hold.until)
    }

    /// Holds a group: 0 s (1 s where it was refused), then twice as long each time.
    pub(super) fn set_back(&mut self, group: Option<&str>, setback: Setback, now: Timestamp) {
        let hold = self.holds.entry(group.map(str::to_owned)).or_insert(Hold {
            setbacks: 0,
            last: now,
            until: now,
        });
        if now.duration_since(hold.last) > FORGIVE {
            hold.setbacks = 0;
        }
        let doubled = |exponent: u32| SignedDuration::from_secs(1_i64 << exponent.min(10)).min(LONGEST_HOLD);
        let wait = match setback {
            Setback::Quota => QUOTA_HOLD,
            Setback::Refused => doubled(hold.setbacks),
            Setback::Ended if hold.setbacks == 0 => SignedDuration::ZERO,
            Setback::Ended => doubled(hold.setbacks - 1),
        };
        hold.setbacks = hold.setbacks.saturating_add(1);
        hold.last = now;
        hold.until = now + wait;
    }

    /// Remembers why a group's pods were refused: that holds until the next attempt, which may be a minute away.
    pub(super) fn refused(&mut self, group: Option<&str>, failure: &Failure) {
        self.refused.insert(group.map(str::to_owned), failure.clone());
    }

    /// Why the first of these groups is held, where its pods were refused.
    #[must_use]
    pub(super) fn why_held(&self, groups: &[Option<String>]) -> Option<&Failure> {
        groups.iter().find_map(|group| self.refused.get(group))
    }

    /// All pods that a group asked for were taken.
    pub(super) fn accepted(&mut self, group: Option<&str>) {
        self.refused.remove(&group.map(str::to_owned));
    }

    /// Whether it is time to see to the authentication Secret.
    #[must_use]
    pub(super) fn secret_is_due(&self, now: Instant) -> bool {
        self.secret_seen.is_none_or(|seen| now - seen >= SECRET_PERIOD)
    }

    /// The authentication Secret is there.
    pub(super) fn secret_seen(&mut self, now: Instant) {
        self.secret_seen = Some(now);
    }

    /// Whether that warning is new; the same one again is said by nobody.
    pub(super) fn is_news(&mut self, reason: &'static str, message: &str) -> bool {
        let old = self.said.insert(reason, message.to_owned());
        old.as_deref() != Some(message)
    }

    /// Forgets a warning, so that it is news when it comes back.
    pub(super) fn forget(&mut self, reason: &'static str) {
        self.said.remove(reason);
    }

    /// The cluster with the status that was last written, where the watch has not shown it yet.
    pub(super) fn refresh(&mut self, cluster: &RayCluster) -> Option<RayCluster> {
        let shown = cluster
            .metadata
            .resource_version
            .as_deref()
            .and_then(|text| text.parse().ok());
        match &self.written {
            Some((version, status)) if shown.is_none_or(|shown: u64| shown < *version) => {
                let mut cluster = cluster.clone();
                cluster.status = Some(status.clone());
                Some(cluster)
            }
            _ => {
                self.written = None;
                None
            }
        }
    }

    /// How long a changed status still waits: zero means now.
    pub(super) fn status_wait(&mut self, urgent: bool, now: Instant) -> Duration {
        self.dirty_since.get_or_insert(now);
        let due = self.status_due().filter(|_| !urgent);
        due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now))
    }

    /// When a changed status that nobody waits for is written.
    fn status_due(&self) -> Option<Instant> {
        let settled = self.dirty_since? + SETTLE;
        let paced = self.last_write.map(|last| last + STATUS_PERIOD);
        Some(paced.map_or(settled, |paced| paced.max(settled)))
    }

    /// How long a cluster whose pass failed waits for the next: longer each time, but no longer than its status. One that
    /// is due already is what failed.
    pub(super) fn backoff(&self, jitter: f64, now: Instant) -> Duration {
        let longer = Duration::from_secs(1 << self.errors.min(6)).min(LONGEST_BACKOFF);
        let wait = longer.mul_f64(jitter);
        let due = self.status_due().filter(|due| *due > now);
        due.map_or(wait, |due| wait.min(due - now))
    }

    /// The status is as it should be.
    pub(super) fn status_is_clean(&mut self) {
        self.dirty_since = None;
    }

    /// Remembers a write that made that resourceVersion.
    pub(super) fn status_written(
        &mut self,
        status: RayClusterStatus,
        resource_version: Option<&str>,
        now: Instant,
    ) {
        self.dirty_since = None;
        self.last_write = Some(now);
        let version = resource_version.and_then(|text| text.parse().ok());
        self.written = version.map(|version| (version, status));
    }
}

/// Of all clusters. Passes of one cluster never overlap, so nobody waits for one.
#[derive(Debug, Default)]
pub(super) struct Memories(Mutex<HashMap<ClusterKey, Arc<Mutex<Memory>>>>);

impl Memories {
    /// Of that cluster.
    pub(super) fn of(&self, key: &ClusterKey) -> Arc<Mutex<Memory>> {
        let mut all = lock(&self.0);
        Arc::clone(all.entry(key.clone()).or_default())
    }

    /// The cluster is gone.
    pub(super) fn forget(&self, key: &ClusterKey) {
        lock(&self.0).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_first_pod_that_ends_is_replaced_at_once_and_a_crash_loop_slows_down() {
        let mut memory = Memory::default();
        let mut waits = Vec::new();
        for _ in 0..12 {
            memory.set_back(Some("g"), Setback::Ended, at(0));
            waits.push(memory.held_until(Some("g")).unwrap().as_second());
        }
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(memory.held_until(Some("other")), None);
        memory.set_back(Some("g"), Setback::Ended, at(700));
        assert_eq!(
            memory.held_until(Some("g")),
            Some(at(700)),
            "ten quiet minutes are forgiven"
        );
        memory.see_generation(Some(2));
        assert_eq!(memory.held_until(Some("g")), None, "a new spec starts over");
    }

    #[test]
    fn an_exceeded_quota_is_retried_ten_times_in_ten_minutes() {
        let mut memory = Memory::default();
        let (mut now, mut attempts) = (0, 0);
        while now < 600 {
            memory.set_back(None, Setback::Quota, at(now));
            attempts += 1;
            let next = memory.held_until(None).unwrap().as_second();
            assert!(next - now <= 60, "raising the quota heals within a minute");
            now = next;
        }
        assert_eq!(attempts, 10);
    }

    #[test]
    fn status_changes_wait_for_each_other_but_not_when_somebody_waits_for_them() {
        let mut memory = Memory::default();
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        assert_eq!(memory.status_wait(false, after(0)), SETTLE);
        assert_eq!(memory.status_wait(false, after(400)), Duration::from_millis(600));
        assert_eq!(memory.status_wait(true, after(400)), Duration::ZERO);
        memory.status_written(RayClusterStatus::default(), Some("7"), after(1000));
        assert_eq!(
            memory.status_wait(false, after(1100)),
            Duration::from_millis(4900)
        );
    }

    #[test]
    fn a_failed_pass_is_repeated_later_each_time_but_not_after_the_status_is_due() {
        let mut memory = Memory::default();
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        memory.errors = 3;
        assert_eq!(memory.backoff(0.5, after(0)), Duration::from_secs(4));
        memory.errors = 60;
        assert_eq!(memory.backoff(1.0, after(0)), LONGEST_BACKOFF);
        memory.status_wait(false, after(0));
        assert_eq!(memory.backoff(1.0, after(300)), Duration::from_millis(700));
        assert_eq!(
            memory.backoff(1.0, after(1000)),
            LONGEST_BACKOFF,
            "its write failed"
        );
    }

    #[test]
    fn the_written_status_holds_until_the_watch_has_caught_up() {
        let mut memory = Memory::default();
        let mut cluster = RayCluster::default();
        let status = RayClusterStatus {
            observed_generation: Some(3),
            ..Default::default()
        };
        memory.status_written(status, Some("10"), Instant::now());
        cluster.metadata.resource_version = Some("9".to_owned());
        assert_eq!(
            memory
                .refresh(&cluster)
                .unwrap()
                .status
                .unwrap()
                .observed_generation,
            Some(3)
        );
        cluster.metadata.resource_version = Some("10".to_owned());
        assert!(memory.refresh(&cluster).is_none());
    }
}
