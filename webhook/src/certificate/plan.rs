//! The next step of a certificate's life, from what the Secret holds and the time.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::bundle::Bundle;

/// What to do to the Secret now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Keep,
    /// Nothing usable is there: a new certificate, served at once.
    Issue,
    /// A new certificate to be served later; its CA is trusted from now on.
    Prepare,
    /// The new certificate is served.
    Promote,
    /// The old CA is trusted no more.
    Retire,
}

/// What a certificate must be.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Names and addresses that it must be for.
    pub names: Vec<String>,
    /// Pause between the steps of a rotation.
    pub pause: Duration,
}

/// Decides the next step.
#[must_use]
pub fn plan(bundle: &Bundle, wanted: &Wanted, now: Timestamp) -> Step {
    let facts = bundle.current.as_ref().and_then(super::bundle::Pair::facts);
    let Some(facts) = facts.filter(|facts| wanted.names.iter().all(|name| facts.names.contains(name))) else {
        return Step::Issue;
    };
    if now >= facts.not_after || bundle.authorities.is_empty() {
        return Step::Issue;
    }
    let pause = SignedDuration::try_from(wanted.pause).unwrap_or(SignedDuration::MAX);
    let paused = bundle
        .since
        .is_none_or(|since| now.duration_since(since) >= pause);
    if bundle.next.is_some() {
        return if paused { Step::Promote } else { Step::Keep };
    }
    if bundle.authorities.len() > 1 {
        return if paused { Step::Retire } else { Step::Keep };
    }
    let life = facts.not_after.duration_since(facts.not_before);
    if now.duration_since(facts.not_before) > life * 2 / 3 {
        Step::Prepare
    } else {
        Step::Keep
    }
}
