//! Writes that wait for the API server: the newest for each object, urgent ones first, failed ones later again.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use super::facts::{Label, Uid};
use super::patch::{Kind, Write};

/// What a write is about; a newer write about the same replaces an older one.
pub(super) type Key = (Kind, Uid);

/// Pause before the first repetition; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Waiting {
    write: Write,
    failures: u32,
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: HashMap<Key, Waiting>,
    /// Pods that leave: traffic is lost as long as these wait.
    urgent: VecDeque<Key>,
    normal: VecDeque<Key>,
    later: BTreeSet<(Instant, Key)>,
    /// Being written. A newer write about the same waits until that is over.
    running: HashSet<Key>,
}

impl Queue {
    /// Adds a write.
    pub(super) fn push(&mut self, write: Write) {
        let key = write.key();
        let is_new = self
            .waiting
            .insert(key.clone(), Waiting { write, failures: 0 })
            .is_none();
        // A pod that leaves overtakes even if it waits already, as one that enters, or after a failure.
        let overtakes = self.is_urgent(&key);
        if !self.running.contains(&key) && (is_new || overtakes) {
            self.line_up(key);
        }
    }

    /// The next write to make now.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Write> {
        while let Some(entry) = self.later.first().filter(|(at, _)| *at <= now).cloned() {
            self.later.remove(&entry);
            self.line_up(entry.1);
        }
        while let Some(key) = self.urgent.pop_front().or_else(|| self.normal.pop_front()) {
            // A key may stand in line twice: the first to come up takes the write.
            if self.running.contains(&key) {
                continue;
            }
            if let Some(waiting) = self.waiting.get(&key) {
                self.running.insert(key);
                return Some(waiting.write.clone());
            }
        }
        None
    }

    /// A write was made, or is pointless.
    pub(super) fn done(&mut self, write: &Write) {
        let key = write.key();
        self.running.remove(&key);
        if self
            .waiting
            .get(&key)
            .is_some_and(|waiting| waiting.write == *write)
        {
            self.waiting.remove(&key);
        } else if self.waiting.contains_key(&key) {
            self.line_up(key);
        }
    }

    /// A write failed: it comes again after a pause, unless a newer one took its place.
    pub(super) fn failed(&mut self, write: &Write, now: Instant) {
        let key = write.key();
        self.running.remove(&key);
        let Some(waiting) = self.waiting.get_mut(&key) else {
            return;
        };
        if waiting.write != *write {
            self.line_up(key);
            return;
        }
        let pause = FIRST_PAUSE
            .saturating_mul(2_u32.saturating_pow(waiting.failures))
            .min(LONGEST_PAUSE);
        waiting.failures += 1;
        self.later.insert((now + pause, key));
    }

    /// Whether a write could be made now.
    #[must_use]
    pub(super) fn is_ready(&self) -> bool {
        !self.urgent.is_empty() || !self.normal.is_empty()
    }

    /// When a failed write comes again.
    #[must_use]
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }

    /// Writes that wait or are being made.
    #[must_use]
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    fn is_urgent(&self, key: &Key) -> bool {
        let write = self.waiting.get(key).map(|waiting| &waiting.write);
        matches!(write, Some(Write::Label { value, .. }) if *value != Some(Label::In))
    }

    fn line_up(&mut self, key: Key) {
        if self.is_urgent(&key) {
            self.urgent.push_back(key);
        } else {
            self.normal.push_back(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::ObjectKey;
    use super::*;

    fn label(pod: &str, value: Label) -> Write {
        let pod = ObjectKey {
            uid: pod.into(),
            namespace: "ns".into(),
            name: pod.into(),
        };
        Write::Label {
            pod,
            value: Some(value),
        }
    }

    fn queue(writes: &[Write]) -> Queue {
        let mut queue = Queue::default();
        writes.iter().cloned().for_each(|write| queue.push(write));
        queue
    }

    #[test]
    fn pods_that_leave_come_before_pods_that_enter() {
        let now = Instant::now();
        let mut queue = queue(&[
            label("a", Label::In),
            label("b", Label::In),
            label("c", Label::Out),
        ]);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(now)).collect();
        assert_eq!(
            order,
            [
                label("c", Label::Out),
                label("a", Label::In),
                label("b", Label::In)
            ]
        );
    }

    #[test]
    fn the_newest_wish_wins_and_is_made_once() {
        let now = Instant::now();
        let mut queue = queue(&[
            label("a", Label::In),
            label("a", Label::Out),
            label("a", Label::In),
        ]);
        assert_eq!(queue.pop(now), Some(label("a", Label::In)));
        assert_eq!(queue.pop(now), None);
        queue.done(&label("a", Label::In));
        assert_eq!((queue.pop(now), queue.len()), (None, 0));
    }

    #[test]
    fn a_wish_during_a_write_waits_for_its_end() {
        let now = Instant::now();
        for failed in [false, true] {
            let mut queue = queue(&[label("a", Label::In)]);
            assert_eq!(queue.pop(now), Some(label("a", Label::In)));
            queue.push(label("a", Label::Out));
            assert_eq!(queue.pop(now), None);
            if failed {
                queue.failed(&label("a", Label::In), now);
            } else {
                queue.done(&label("a", Label::In));
            }
            assert_eq!(queue.pop(now), Some(label("a", Label::Out)));
        }
    }

    #[test]
    fn a_failed_write_comes_again_after_a_growing_pause() {
        let mut now = Instant::now();
        let mut queue = queue(&[label("a", Label::In)]);
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            let write = queue.pop(now).unwrap();
            queue.failed(&write, now);
            assert_eq!(queue.pop(now), None);
            assert_eq!(queue.wake_at(), Some(now + Duration::from_secs(pause)));
            now += Duration::from_secs(pause);
        }
    }

    #[test]
    fn a_pod_that_leaves_does_not_wait_out_the_pause_of_its_entry() {
        let now = Instant::now();
        let mut queue = queue(&[label("a", Label::In)]);
        let write = queue.pop(now).unwrap();
        queue.failed(&write, now);
        queue.push(label("a", Label::Out));
        assert_eq!(queue.pop(now), Some(label("a", Label::Out)));
        queue.done(&label("a", Label::Out));
        assert_eq!(queue.pop(now + Duration::from_secs(60)), None);
    }
}
