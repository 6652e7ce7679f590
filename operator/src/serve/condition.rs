//! What a RayCluster's conditions say about its Serve health: pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use ray_api::conditions::{self, Statement};
use ray_api::meta::condition;

use super::targets::Settings;

/// True while labels stay as they are because nothing about the pods can be known.
pub(super) const HEALTH_UNKNOWN: &str = condition::SERVE_HEALTH_UNKNOWN;
/// True while at least one pod gets Serve traffic.
pub(super) const AVAILABLE: &str = "ServeAvailable";
/// The condition types that Serve health writes, and nobody else.
pub(super) const TYPES: [&str; 2] = [HEALTH_UNKNOWN, AVAILABLE];

/// The pods of a cluster, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Pods that are asked.
    pub asked: usize,
    /// Of those, pods that have not answered or failed to even once.
    pub unknown: usize,
    /// Pods without a proxy that refuse connections.
    pub refusing: usize,
    /// Pods that have or had a proxy.
    pub eligible: usize,
    /// Pods that get traffic.
    pub healthy: usize,
    /// Of those, pods that only the guard keeps in.
    pub held: usize,
    /// Pods that carry a label of ours that lets them into the service.
    pub labelled: usize,
}

/// What a condition should say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// Condition type.
    pub type_: &'static str,
    /// True, False, or None for Unknown.
    pub status: Option<bool>,
    /// Machine-readable reason.
    pub reason: &'static str,
    /// Sentence for a person. No numbers in it: each would be a write.
    pub message: String,
}

impl Said {
    fn new(
        type_: &'static str,
        status: Option<bool>,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        let message = message.into();
        Self {
            type_,
            status,
            reason,
            message,
        }
    }
}

/// What the conditions should say; an empty list leaves them as they are.
#[must_use]
pub(super) fn say(settings: &Result<Settings, String>, tally: Tally, existing: &[Condition]) -> Vec<Said> {
    let settings = match settings {
        Ok(settings) => settings,
        Err(problem) => {
            return vec![
                Said::new(
                    HEALTH_UNKNOWN,
                    Some(true),
                    "InvalidAnnotation",
                    format!("{problem}; until then labels stay as they are"),
                ),
                Said::new(
                    AVAILABLE,
                    None,
                    "InvalidAnnotation",
                    "The pods are not asked; see ServeHealthUnknown.",
                ),
            ];
        }
    };
    // Right after a start the pods' labels are all we know: neither a success nor a failure to report.
    if tally.healthy == 0 && tally.unknown > 0 {
        return Vec::new();
    }
    let mut said = Vec::new();
    if tally.held > 0 {
        let message = "Pods give no answer in time, and no other pod answers either: the operator's own network may be \
                       at fault, so the label ray.io/serve stays as it is.";
        said.push(Said::new(HEALTH_UNKNOWN, Some(true), "NoPodAnswers", message));
    } else if conditions::find(existing, HEALTH_UNKNOWN).is_some() {
        said.push(Said::new(
            HEALTH_UNKNOWN,
            Some(false),
            "PodsAnswer",
            "The health of the pods is known.",
        ));
    }
    said.push(availability(settings, tally));
    said
}

fn availability(settings: &Settings, tally: Tally) -> Said {
    let unavailable = |reason, message: String| Said::new(AVAILABLE, Some(false), reason, message);
    if tally.healthy > 0 {
        return Said::new(
            AVAILABLE,
            Some(true),
            "PodsHealthy",
            "The Serve service has healthy pods.",
        );
    }
    if tally.asked == 0 {
        return unavailable("NoPods", "No pod runs that may get Serve traffic.".into());
    }
    if tally.eligible > 0 {
        return unavailable(
            "PodsUnhealthy",
            "Every Serve proxy fails its health check; events name the pods.".into(),
        );
    }
    let port = settings.port();
    if tally.refusing > 0 {
        let message = format!(
            "Nothing listens on port {port} of the pods' addresses. Either no Serve application runs, or Serve listens \
             on 127.0.0.1 only, its default: start it with the HTTP option host 0.0.0.0."
        );
        return unavailable("NoProxy", message);
    }
    let message = format!(
        "No pod answers the operator on port {port} with HTTP 200. Does a NetworkPolicy keep the operator out?"
    );
    unavailable("Unreachable", message)
}

/// Whether the conditions already say so, for this generation.
#[must_use]
pub(super) fn is_said(said: &[Said], existing: &[Condition], generation: Option<i64>) -> bool {
    said.iter().all(|said| {
        conditions::find(existing, said.type_).is_some_and(|found| {
            let status = match found.status.as_str() {
                "True" => Some(true),
                "False" => Some(false),
                _ => None,
            };
            (status, found.reason.as_str(), found.message.as_str())
                == (said.status, said.reason, &*said.message)
                && found.observed_generation == generation
        })
    })
}

/// The conditions after `said`, at `now`.
#[must_use]
pub(super) fn updated(
    said: &[Said],
    existing: &[Condition],
    generation: Option<i64>,
    now: &Time,
) -> Vec<Condition> {
    let mut conditions = existing.to_vec();
    for said in said {
        let statement = Statement {
            type_: said.type_,
            status: said.status,
            reason: said.reason,
            message: &said.message,
        };
        conditions::upsert(&mut conditions, &statement, generation, now);
    }
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;
    use std::collections::BTreeMap;

    fn settings() -> Result<Settings, String> {
        Settings::parse(&BTreeMap::new(), Some(9000))
    }

    fn reasons(tally: Tally) -> Vec<(&'static str, Option<bool>, &'static str)> {
        let said = say(&settings(), tally, &[]);
        said.iter()
            .map(|said| (said.type_, said.status, said.reason))
            .collect()
    }

    #[test]
    fn availability_says_why() {
        let asked = Tally {
            asked: 3,
            ..Tally::default()
        };
        let cases = [
            (Tally::default(), (AVAILABLE, Some(false), "NoPods")),
            (
                Tally { refusing: 2, ..asked },
                (AVAILABLE, Some(false), "NoProxy"),
            ),
            (asked, (AVAILABLE, Some(false), "Unreachable")),
            (
                Tally {
                    refusing: 2,
                    eligible: 1,
                    ..asked
                },
                (AVAILABLE, Some(false), "PodsUnhealthy"),
            ),
            (
                Tally {
                    refusing: 2,
                    eligible: 1,
                    healthy: 1,
                    ..asked
                },
                (AVAILABLE, Some(true), "PodsHealthy"),
            ),
        ];
        for (tally, expected) in cases {
            assert_eq!(reasons(tally), [expected]);
        }
    }

    #[test]
    fn a_cluster_where_nothing_listens_is_told_about_the_loopback_default() {
        let said = say(
            &settings(),
            Tally {
                asked: 1,
                refusing: 1,
                ..Tally::default()
            },
            &[],
        );
        assert!(
            said[0].message.contains("port 9000") && said[0].message.contains("127.0.0.1"),
            "{said:?}"
        );
    }

    #[test]
    fn nothing_is_said_before_the_pods_were_asked() {
        assert!(
            reasons(Tally {
                asked: 3,
                unknown: 1,
                refusing: 2,
                ..Tally::default()
            })
            .is_empty()
        );
    }

    #[test]
    fn held_pods_are_unknown_and_that_ends_with_a_false_condition() {
        let held = Tally {
            asked: 3,
            eligible: 3,
            healthy: 3,
            held: 1,
            ..Tally::default()
        };
        assert_eq!(reasons(held)[0], (HEALTH_UNKNOWN, Some(true), "NoPodAnswers"));
        let now = Time(Timestamp::UNIX_EPOCH);
        let existing = updated(&say(&settings(), held, &[]), &[], Some(1), &now);
        let after = say(&settings(), Tally { held: 0, ..held }, &existing);
        assert_eq!((after[0].type_, after[0].status), (HEALTH_UNKNOWN, Some(false)));
    }

    #[test]
    fn a_bad_annotation_is_a_condition() {
        let said = say(&Err("annotation x is bad".into()), Tally::default(), &[]);
        assert_eq!(
            (said[0].status, said[0].reason),
            (Some(true), "InvalidAnnotation")
        );
        assert!(said[0].message.starts_with("annotation x is bad"));
    }

    #[test]
    fn what_is_said_already_is_not_said_again() {
        let said = say(
            &settings(),
            Tally {
                asked: 1,
                healthy: 1,
                ..Tally::default()
            },
            &[],
        );
        let now = Time(Timestamp::UNIX_EPOCH);
        let written = updated(&said, &[], Some(2), &now);
        assert!(!is_said(&said, &[], Some(2)));
        assert!(is_said(&said, &written, Some(2)));
        assert!(
            !is_said(&said, &written, Some(3)),
            "a new generation was observed"
        );
    }
}
