//! The state of one pod's Serve proxy as a pure function: (state, probe result, now) → state.

use std::time::Instant;

use super::facts::Label;

/// What one probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// HTTP 200.
    Healthy,
    /// Anything else that the pod or the way to it is to blame for.
    Failed(Fault),
    /// The prober itself was at fault: says nothing about the pod.
    Inconclusive,
}

impl Outcome {
    /// One word, for metrics.
    #[must_use]
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Inconclusive => "inconclusive",
            Self::Failed(Fault::Refused) => "refused",
            Self::Failed(Fault::Broken) => "broken",
            Self::Failed(Fault::Status(_)) => "status",
            Self::Failed(Fault::Hung | Fault::Timeout) => "timeout",
            Self::Failed(Fault::Unreachable) => "unreachable",
        }
    }
}

/// Why a probe failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The pod refused the connection: nothing listens there.
    Refused,
    /// The connection broke, or what came was not HTTP.
    Broken,
    /// An HTTP status other than 200.
    Status(u16),
    /// The pod took a new connection and then said nothing in time.
    Hung,
    /// A connection that was kept open said nothing in time.
    Timeout,
    /// No connection in time, or no route.
    Unreachable,
}

impl Fault {
    /// Whether the pod itself answered. Silence may also be the fault of the way to it, or of the prober.
    #[must_use]
    pub(super) fn is_answer(self) -> bool {
        matches!(self, Self::Refused | Self::Broken | Self::Status(_))
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused => f.write_str("connection refused"),
            Self::Broken => f.write_str("connection broken"),
            Self::Status(status) => write!(f, "HTTP status {status}"),
            Self::Hung | Self::Timeout => f.write_str("no answer in time"),
            Self::Unreachable => f.write_str("unreachable"),
        }
    }
}

/// How many results in a row it takes to move a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Thresholds {
    /// Failures until a pod goes out.
    pub failure: u32,
    /// Successes until a pod comes in.
    pub success: u32,
}

/// Failures in a row of a pod that gets traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failing {
    /// How many.
    pub count: u32,
    /// When the first was found.
    pub since: Instant,
    /// The last one.
    pub last: Fault,
    /// Whether the pod itself gave one of them.
    pub answered: bool,
}

/// State of one pod's Serve proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// Never seen to have a proxy: not eligible, not failing, no label.
    NoProxy {
        /// Successes in a row.
        successes: u32,
    },
    /// Gets traffic.
    In {
        /// None while it answers.
        failing: Option<Failing>,
    },
    /// Had a proxy, and gets no traffic.
    Out {
        /// Successes in a row.
        successes: u32,
    },
}

impl Health {
    /// What a label of ours says about a pod that this process has not asked yet: it keeps its place until we know better.
    #[must_use]
    pub(super) fn adopt(label: Option<Label>) -> Self {
        match label {
            None => Self::NoProxy { successes: 0 },
            Some(Label::In) => Self::In { failing: None },
            Some(Label::Out) => Self::Out { successes: 0 },
        }
    }

    /// The label that the pod should carry.
    #[must_use]
    pub(super) fn label(self) -> Option<Label> {
        match self {
            Self::NoProxy { .. } => None,
            Self::In { .. } => Some(Label::In),
            Self::Out { .. } => Some(Label::Out),
        }
    }

    /// The state after a result. `hold` is asked only before a pod would go out by silence alone: true keeps it in.
    #[must_use]
    pub(super) fn next(
        self,
        outcome: Outcome,
        now: Instant,
        thresholds: Thresholds,
        hold: impl FnOnce(Fault) -> bool,
    ) -> Self {
        match (self, outcome) {
            (state, Outcome::Inconclusive) => state,
            (Self::In { .. }, Outcome::Healthy) => Self::In { failing: None },
            (Self::NoProxy { successes } | Self::Out { successes }, Outcome::Healthy)
                if successes.saturating_add(1) >= thresholds.success =>
            {
                Self::In { failing: None }
            }
            (Self::NoProxy { successes }, Outcome::Healthy) => Self::NoProxy {
                successes: successes + 1,
            },
            (Self::Out { successes }, Outcome::Healthy) => Self::Out {
                successes: successes + 1,
            },
            (Self::NoProxy { .. }, Outcome::Failed(_)) => Self::NoProxy { successes: 0 },
            (Self::Out { .. }, Outcome::Failed(_)) => Self::Out { successes: 0 },
            (Self::In { failing }, Outcome::Failed(fault)) => {
                let failing = Failing {
                    count: failing.map_or(0, |failing| failing.count).saturating_add(1),
                    since: failing.map_or(now, |failing| failing.since),
                    last: fault,
                    answered: fault.is_answer() || failing.is_some_and(|failing| failing.answered),
                };
                if failing.count >= thresholds.failure && (failing.answered || !hold(fault)) {
                    Self::Out { successes: 0 }
                } else {
                    Self::In {
                        failing: Some(failing),
                    }
                }
            }
        }
    }

    /// The state of a pod that must not get traffic, whatever its proxy says.
    #[must_use]
    pub(super) fn leave(self) -> Self {
        match self {
            Self::NoProxy { .. } => Self::NoProxy { successes: 0 },
            Self::In { .. } | Self::Out { .. } => Self::Out { successes: 0 },
        }
    }

    /// Whether the pod would be out, were it not held in.
    #[must_use]
    pub(super) fn is_held(self, thresholds: Thresholds) -> bool {
        matches!(self, Self::In { failing: Some(failing) } if failing.count >= thresholds.failure)
    }

    /// Whether the pod has or had a proxy.
    #[must_use]
    pub(super) fn is_eligible(self) -> bool {
        !matches!(self, Self::NoProxy { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    const THRESHOLDS: Thresholds = Thresholds {
        failure: 3,
        success: 2,
    };
    const NEW: Health = Health::NoProxy { successes: 0 };
    const IN: Health = Health::In { failing: None };
    const OUT: Health = Health::Out { successes: 0 };

    fn after(start: Health, outcomes: &[Outcome], held: bool) -> Health {
        let start_time = Instant::now();
        outcomes
            .iter()
            .enumerate()
            .fold(start, |state, (second, outcome)| {
                let now = start_time + Duration::from_secs(second as u64);
                state.next(*outcome, now, THRESHOLDS, |_| held)
            })
    }

    #[test]
    fn transitions() {
        use Fault::{Hung, Refused, Timeout, Unreachable};
        use Outcome::{Failed, Healthy, Inconclusive};
        let refused = Failed(Refused);
        type Case<'a> = (&'a str, Health, &'a [Outcome], bool, Option<Label>);
        let cases: &[Case<'_>] = &[
            (
                "a pod that never had a proxy stays without a label",
                NEW,
                &[refused; 9],
                false,
                None,
            ),
            ("one success is not enough", NEW, &[Healthy], false, None),
            (
                "enough successes bring it in",
                NEW,
                &[Healthy, Healthy],
                false,
                Some(Label::In),
            ),
            (
                "successes must be in a row",
                NEW,
                &[Healthy, refused, Healthy],
                false,
                None,
            ),
            (
                "a healthy pod survives failures below the threshold",
                IN,
                &[refused, refused],
                false,
                Some(Label::In),
            ),
            (
                "a success starts the count anew",
                IN,
                &[refused, refused, Healthy, refused, refused],
                false,
                Some(Label::In),
            ),
            (
                "it goes at the threshold",
                IN,
                &[refused; 3],
                false,
                Some(Label::Out),
            ),
            (
                "any status but 200 counts",
                IN,
                &[
                    Failed(Fault::Status(503)),
                    Failed(Fault::Status(404)),
                    Failed(Fault::Status(302)),
                ],
                false,
                Some(Label::Out),
            ),
            (
                "silence counts too",
                IN,
                &[Failed(Timeout), Failed(Hung), Failed(Unreachable)],
                false,
                Some(Label::Out),
            ),
            (
                "silence alone can be held",
                IN,
                &[Failed(Timeout); 9],
                true,
                Some(Label::In),
            ),
            (
                "an own answer of the pod cannot",
                IN,
                &[refused; 3],
                true,
                Some(Label::Out),
            ),
            (
                "nor silence after an own answer",
                IN,
                &[refused, Failed(Timeout), Failed(Timeout)],
                true,
                Some(Label::Out),
            ),
            (
                "a held pod goes when it answers badly",
                IN,
                &[Failed(Hung), Failed(Hung), Failed(Hung), refused],
                true,
                Some(Label::Out),
            ),
            (
                "a failing pod says so until it answers",
                OUT,
                &[refused; 9],
                false,
                Some(Label::Out),
            ),
            ("and comes back", OUT, &[Healthy, Healthy], false, Some(Label::In)),
            (
                "an inconclusive probe changes nothing",
                IN,
                &[refused, refused, Inconclusive],
                false,
                Some(Label::In),
            ),
            (
                "nor does it break a row",
                IN,
                &[refused, refused, Inconclusive, refused],
                false,
                Some(Label::Out),
            ),
        ];
        for (name, start, outcomes, held, label) in cases {
            assert_eq!(after(*start, outcomes, *held).label(), *label, "{name}");
        }
    }

    #[test]
    fn a_held_pod_is_known_as_held_until_it_answers() {
        let silence = [Outcome::Failed(Fault::Timeout); 3];
        assert!(after(IN, &silence, true).is_held(THRESHOLDS));
        assert!(!after(IN, &silence[..2], true).is_held(THRESHOLDS));
        let then_healthy = after(after(IN, &silence, true), &[Outcome::Healthy], true);
        assert!(!then_healthy.is_held(THRESHOLDS));
    }

    #[test]
    fn leaving_needs_no_threshold_and_makes_no_label_where_there_was_none() {
        assert_eq!(IN.leave().label(), Some(Label::Out));
        assert_eq!(NEW.leave().label(), None);
    }

    fn outcome() -> impl Strategy<Value = Outcome> {
        use Fault::{Broken, Hung, Refused, Status, Timeout, Unreachable};
        let faults = prop::sample::select(vec![Refused, Broken, Status(500), Hung, Timeout, Unreachable]);
        prop_oneof![
            Just(Outcome::Healthy),
            faults.prop_map(Outcome::Failed),
            Just(Outcome::Inconclusive)
        ]
    }

    proptest! {
        #[test]
        fn a_label_moves_only_after_a_full_row(outcomes in prop::collection::vec(outcome(), 0..60), held in any::<bool>()) {
            let now = Instant::now();
            let mut state = NEW;
            let (mut good, mut bad) = (0, 0);
            for outcome in outcomes {
                let before = state.label();
                state = state.next(outcome, now, THRESHOLDS, |_| held);
                match outcome {
                    Outcome::Healthy => (good, bad) = (good + 1, 0),
                    Outcome::Failed(_) => (good, bad) = (0, bad + 1),
                    Outcome::Inconclusive => {}
                }
                match (before, state.label()) {
                    (None | Some(Label::Out), Some(Label::In)) => prop_assert!(good >= THRESHOLDS.success),
                    (Some(Label::In), Some(Label::Out)) => prop_assert!(bad >= THRESHOLDS.failure),
                    (Some(_), None) => prop_assert!(false, "a proxy once seen is never forgotten"),
                    (before, after) => prop_assert_eq!(before, after),
                }
                if !held {
                    prop_assert!(!state.is_held(THRESHOLDS));
                    prop_assert!(bad < THRESHOLDS.failure || state.label() != Some(Label::In));
                }
            }
        }
    }
}
