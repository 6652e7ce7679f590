//! Events about pods that enter or leave: a few words a cluster, however many pods move at once.

use std::time::{Duration, Instant};

use super::facts::{Label, ObjectKey};

/// At least this long between two events of one kind about one cluster.
const PAUSE: Duration = Duration::from_secs(10);
/// Pods named in an event; the others are counted.
const NAMED: usize = 5;

/// A pod that entered or left.
#[derive(Clone, Debug)]
pub(super) struct Flip {
    /// Which pod.
    pub pod: ObjectKey,
    /// Where it went.
    pub to: Label,
    /// Why it left.
    pub why: String,
}

/// An event about a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Announcement {
    /// Where the pods went.
    pub to: Label,
    /// The first of them.
    pub pod: ObjectKey,
    /// The sentence.
    pub note: String,
}

impl Announcement {
    /// Reason of the event, CamelCase.
    #[must_use]
    pub(super) fn reason(&self) -> &'static str {
        match self.to {
            Label::In => "ServePodHealthy",
            Label::Out => "ServePodUnhealthy",
        }
    }
}

/// Flips of a cluster that no event told yet.
#[derive(Debug, Default)]
pub(super) struct Journal {
    entered: Page,
    left: Page,
}

#[derive(Debug, Default)]
struct Page {
    flips: Vec<Flip>,
    told: Option<Instant>,
}

impl Journal {
    /// Notes a flip. A pod that went back and forth between two events is told by where it ended.
    pub(super) fn add(&mut self, flip: Flip) {
        let (page, opposite) = match flip.to {
            Label::In => (&mut self.entered, &mut self.left),
            Label::Out => (&mut self.left, &mut self.entered),
        };
        opposite.flips.retain(|other| other.pod.uid != flip.pod.uid);
        page.flips.push(flip);
    }

    /// What to tell now, and whether something waits for a pause to end.
    pub(super) fn announce(&mut self, now: Instant) -> (Vec<Announcement>, bool) {
        let told = [self.left.tell(now), self.entered.tell(now)]
            .into_iter()
            .flatten()
            .collect();
        (
            told,
            !self.left.flips.is_empty() || !self.entered.flips.is_empty(),
        )
    }
}

impl Page {
    fn tell(&mut self, now: Instant) -> Option<Announcement> {
        let first = self.flips.first()?;
        if self
            .told
            .is_some_and(|told| now.saturating_duration_since(told) < PAUSE)
        {
            return None;
        }
        let (to, pod) = (first.to, first.pod.clone());
        let names: Vec<String> = self.flips.iter().take(NAMED).map(Flip::words).collect();
        let others = self.flips.len() - names.len();
        let mut note = match to {
            Label::In => format!("gets Serve traffic: {}", names.join(", ")),
            Label::Out => format!("gets no Serve traffic any more: {}", names.join(", ")),
        };
        if others > 0 {
            note.push_str(&format!(" and {others} more"));
        }
        self.flips.clear();
        self.told = Some(now);
        Some(Announcement { to, pod, note })
    }
}

impl Flip {
    fn words(&self) -> String {
        match self.to {
            Label::In => self.pod.name.to_string(),
            Label::Out => format!("{} ({})", self.pod.name, self.why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flip(pod: u32, to: Label) -> Flip {
        let uid = format!("uid-{pod}").into();
        let pod = ObjectKey {
            uid,
            namespace: "ns".into(),
            name: format!("pod-{pod}").into(),
        };
        Flip {
            pod,
            to,
            why: "connection refused".into(),
        }
    }

    #[test]
    fn many_pods_make_one_event_that_names_a_few() {
        let now = Instant::now();
        let mut journal = Journal::default();
        for pod in 0..40 {
            journal.add(flip(pod, Label::Out));
        }
        let (told, pending) = journal.announce(now);
        assert_eq!(told.len(), 1);
        assert!(!pending);
        assert!(told[0].note.contains("pod-0 (connection refused)") && told[0].note.ends_with("and 35 more"));
        assert!(told[0].note.len() < 1024, "the API server's limit");
    }

    #[test]
    fn the_next_event_of_a_kind_waits_and_a_pod_that_came_back_is_not_told_as_gone() {
        let now = Instant::now();
        let mut journal = Journal::default();
        journal.add(flip(1, Label::Out));
        assert_eq!(journal.announce(now).0.len(), 1);
        journal.add(flip(2, Label::Out));
        let (told, pending) = journal.announce(now + Duration::from_secs(1));
        assert!(told.is_empty() && pending);
        journal.add(flip(2, Label::In));
        let (told, _) = journal.announce(now + PAUSE);
        assert_eq!(
            told.iter().map(Announcement::reason).collect::<Vec<_>>(),
            ["ServePodHealthy"]
        );
    }
}
