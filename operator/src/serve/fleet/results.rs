//! What a probe's result does: to the pod's health, to its label.

use std::time::{Duration, Instant};

use rand::Rng;

use super::Fleet;
use crate::serve::announce::Flip;
use crate::serve::facts::{Label, Uid};
use crate::serve::guard::{self, Evidence};
use crate::serve::machine::{Health, Outcome};
use crate::serve::patch::Write;
use crate::serve::schedule::{ProbeId, next_due};

impl<C> Fleet<C> {
    /// Takes in a probe's result. Returns the time from due to now, or None where the pod is not asked any more.
    pub(in crate::serve) fn finish(
        &mut self,
        id: ProbeId,
        outcome: Outcome,
        kept: Option<C>,
        now: Instant,
    ) -> Option<Duration> {
        let due = self.schedule.done(id)?;
        let next = next_due(due, now, self.options.period, self.random.random());
        self.schedule.again(id, next);
        let uid = self.probes.get(&id)?.clone();
        let member = self.pods.get_mut(&uid)?;
        member.kept = kept;
        if member.last.replace(outcome).is_none() {
            self.changed.insert(member.facts.owner.clone());
        }
        let before = member.health;
        let owner = member.facts.owner.clone();
        self.record_answer(&owner, before, outcome, now);
        let window = self.options.period + self.options.timeout;
        let next = before.next(outcome, now, self.options.thresholds, |fault| {
            let evidence = self.evidence(&owner);
            guard::holds(fault, evidence, now, window)
        });
        let why = reason(before, outcome, now);
        self.set_health(&uid, next, &why);
        self.reconcile_label(&uid);
        Some(now.saturating_duration_since(due))
    }

    fn record_answer(&mut self, owner: &Uid, health: Health, outcome: Outcome, now: Instant) {
        let answered = match outcome {
            Outcome::Healthy => true,
            Outcome::Failed(fault) => fault.is_answer(),
            Outcome::Inconclusive => false,
        };
        if let Some(cluster) = self.clusters.get_mut(owner).filter(|_| answered) {
            self.answers.record(cluster.id, now);
            if health.is_eligible() {
                cluster.answered = Some(now);
            }
        }
    }

    fn evidence(&self, owner: &Uid) -> Evidence {
        let cluster = self.clusters.get(owner);
        let eligible = self.members(owner).filter(|member| member.health.is_eligible());
        Evidence {
            here: cluster.and_then(|cluster| cluster.answered),
            elsewhere: cluster.and_then(|cluster| self.answers.elsewhere(cluster.id)),
            // Only "one" or "more" matters.
            eligible: eligible.take(2).count(),
        }
    }

    pub(super) fn set_health(&mut self, uid: &Uid, health: Health, why: &str) {
        let thresholds = self.options.thresholds;
        let Some(member) = self.pods.get_mut(uid) else {
            return;
        };
        let before = std::mem::replace(&mut member.health, health);
        if before.label() == health.label() && before.is_held(thresholds) == health.is_held(thresholds) {
            return;
        }
        self.changed.insert(member.facts.owner.clone());
        let Some(to) = health.label().filter(|label| Some(*label) != before.label()) else {
            return;
        };
        let key = &member.facts.key;
        let (pod, namespace) = (&*key.name, &*key.namespace);
        match to {
            Label::In => tracing::info!(pod, namespace, "enters the Serve service"),
            Label::Out => tracing::info!(pod, namespace, why, "leaves the Serve service"),
        }
        if let Some(cluster) = self.clusters.get_mut(&member.facts.owner) {
            let flip = Flip {
                pod: key.clone(),
                to,
                why: why.to_owned(),
            };
            cluster.journal.add(flip);
        }
    }

    /// Asks for the label that the pod should carry, if it does not and that is not on its way yet.
    pub(super) fn reconcile_label(&mut self, uid: &Uid) {
        let Some(member) = self.pods.get_mut(uid) else {
            return;
        };
        let want = member.health.label();
        let on_its_way = member.labelling.unwrap_or(member.facts.label);
        if want == on_its_way {
            if want == member.facts.label {
                member.labelling = None;
            }
            return;
        }
        member.labelling = Some(want);
        self.writes.push(Write::Label {
            pod: member.facts.key.clone(),
            value: want,
        });
    }
}

/// Why a pod moved, for logs and events.
fn reason(before: Health, outcome: Outcome, now: Instant) -> String {
    let since = match before {
        Health::In {
            failing: Some(failing),
        } => now.saturating_duration_since(failing.since).as_secs(),
        _ => 0,
    };
    match outcome {
        Outcome::Failed(fault) => format!("{fault}, failing for {since} s"),
        Outcome::Healthy | Outcome::Inconclusive => String::new(),
    }
}
