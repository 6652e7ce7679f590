//! A broken prober must not drain a service: when everything falls silent at once, the labels stay.

use std::time::{Duration, Instant};

use super::machine::Fault;
use super::schedule::ClusterId;

/// When pods last answered, whatever they said.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answers {
    last: Option<(ClusterId, Instant)>,
    /// The newest answer of any cluster other than the one of `last`.
    other: Option<Instant>,
}

impl Answers {
    /// A pod of that cluster answered.
    pub(super) fn record(&mut self, cluster: ClusterId, now: Instant) {
        match self.last {
            Some((last, at)) if last != cluster => self.other = Some(at),
            _ => {}
        }
        self.last = Some((cluster, now));
    }

    /// The newest answer of a pod of any other cluster.
    #[must_use]
    pub(super) fn elsewhere(&self, cluster: ClusterId) -> Option<Instant> {
        match self.last {
            Some((last, at)) if last != cluster => Some(at),
            _ => self.other,
        }
    }
}

/// What is known when a pod is about to go out by silence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    /// The newest answer of a pod of the same cluster that has or had a proxy.
    pub here: Option<Instant>,
    /// The newest answer of any pod of another cluster.
    pub elsewhere: Option<Instant>,
    /// Pods of the cluster that have or had a proxy.
    pub eligible: usize,
}

/// Whether the pod must stay, because the silence may be the prober's own fault.
///
/// It stays when neither its cluster's proxies nor any other cluster's pods answered within `window`. A lone pod that
/// takes connections and says nothing goes out all the same: the way to it evidently works.
#[must_use]
pub(super) fn holds(fault: Fault, evidence: Evidence, now: Instant, window: Duration) -> bool {
    let recent = |at: Option<Instant>| at.is_some_and(|at| now.saturating_duration_since(at) <= window);
    let lone_and_hung = evidence.eligible <= 1 && fault == Fault::Hung;
    !lone_and_hung && !recent(evidence.here) && !recent(evidence.elsewhere)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW: Duration = Duration::from_secs(3);

    #[test]
    fn a_cluster_is_held_only_when_all_is_silent() {
        let start = Instant::now();
        let now = start + Duration::from_secs(60);
        let recent = Some(now - Duration::from_secs(1));
        let old = Some(start);
        let cases = [
            ("all silent for long", Fault::Timeout, old, old, 40, true),
            (
                "never an answer from anybody",
                Fault::Unreachable,
                None,
                None,
                40,
                true,
            ),
            ("a sibling answers", Fault::Timeout, recent, None, 40, false),
            ("another cluster answers", Fault::Timeout, old, recent, 40, false),
            (
                "a lone pod that takes connections",
                Fault::Hung,
                old,
                None,
                1,
                false,
            ),
            (
                "a lone pod that cannot be reached",
                Fault::Unreachable,
                old,
                None,
                1,
                true,
            ),
            ("many pods that take connections", Fault::Hung, old, None, 2, true),
        ];
        for (name, fault, here, elsewhere, eligible, expected) in cases {
            let evidence = Evidence {
                here,
                elsewhere,
                eligible,
            };
            assert_eq!(holds(fault, evidence, now, WINDOW), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn elsewhere_is_the_newest_answer_of_the_others(answers in prop::collection::vec(0_u64..4, 0..40)) {
            let start = Instant::now();
            let mut seen = Answers::default();
            let mut newest = [None; 4];
            for (second, cluster) in answers.iter().enumerate() {
                let now = start + Duration::from_secs(second as u64);
                seen.record(ClusterId(*cluster), now);
                newest[*cluster as usize] = Some(now);
                for asked in 0..4 {
                    let expected = (0..4).filter(|other| *other != asked).filter_map(|other| newest[other]).max();
                    prop_assert_eq!(seen.elsewhere(ClusterId(asked as u64)), expected);
                }
            }
        }
    }
}
