//! What follows from many results at once: conditions, events, the service's selector, counts.

use std::time::Instant;

use super::{Counts, Fleet};
use crate::serve::condition::{self, Tally};
use crate::serve::facts::{Label, Uid};
use crate::serve::machine::{Fault, Outcome};
use crate::serve::patch::Write;

impl<C> Fleet<C> {
    /// A write was made, or given up: what is not true yet after the next look is asked for again.
    pub(in crate::serve) fn written(&mut self, write: &Write) {
        match write {
            Write::Label { pod, value } => {
                if let Some(member) = self.pods.get_mut(&pod.uid) {
                    member.labelling.take_if(|labelling| labelling == value);
                    member.facts.label = *value;
                    member.facts.label_is_ours = true;
                    self.changed.insert(member.facts.owner.clone());
                }
                self.reconcile_label(&pod.uid);
            }
            Write::Selector { service } => {
                let known = self.services.values_mut().find(|known| known.key == *service);
                if let Some(service) = known {
                    service.lacks_selector = false;
                }
            }
            // The watch tells when these have arrived.
            Write::Conditions { .. } | Write::Event { .. } => {}
        }
    }

    /// Looks at the clusters that changed: conditions, events, the service's selector. Returns their counts.
    pub(in crate::serve) fn settle(&mut self, now: Instant) -> Vec<Counts> {
        let gone = std::mem::take(&mut self.gone);
        let mut counts: Vec<Counts> = gone.into_iter().map(|key| (key, None)).collect();
        for uid in std::mem::take(&mut self.changed) {
            let tally = self.tally(&uid);
            let Some(cluster) = self.clusters.get_mut(&uid) else {
                continue;
            };
            let key = cluster.facts.key.clone();
            let Some(settings) = &cluster.facts.settings else {
                counts.push((key, None));
                continue;
            };
            let said = condition::say(settings, tally, &cluster.facts.conditions);
            let generation = cluster.facts.generation;
            let told = condition::is_said(&said, &cluster.facts.conditions, generation);
            if !told && cluster.saying.as_ref() != Some(&(generation, said.clone())) {
                cluster.saying = Some((generation, said.clone()));
                let existing = cluster.facts.conditions.clone();
                self.writes.push(Write::Conditions {
                    cluster: key.clone(),
                    generation,
                    said,
                    existing,
                });
            }
            let service = self.services.get(&uid).filter(|service| service.lacks_selector);
            if let Some(service) = service.filter(|_| tally.labelled > 0) {
                // Twice while the first is on its way is once: the queue holds one write an object.
                let service = service.key.clone();
                self.writes.push(Write::Selector { service });
            }
            let (announcements, pending) = cluster.journal.announce(now);
            for announcement in announcements {
                self.writes.push(Write::Event {
                    cluster: key.clone(),
                    announcement,
                });
            }
            if pending {
                self.changed.insert(uid);
            }
            counts.push((key, Some(tally)));
        }
        counts
    }

    fn tally(&self, cluster: &Uid) -> Tally {
        let mut tally = Tally::default();
        for member in self.members(cluster) {
            let asked = member.probe.is_some();
            let is_in = member.health.label() == Some(Label::In);
            tally.asked += usize::from(asked);
            tally.unknown += usize::from(asked && member.last.is_none());
            tally.refusing += usize::from(member.last == Some(Outcome::Failed(Fault::Refused)));
            tally.eligible += usize::from(member.health.is_eligible());
            tally.healthy += usize::from(is_in);
            tally.held += usize::from(member.health.is_held(self.options.thresholds));
            let labelled = member.facts.label == Some(Label::In) && member.facts.label_is_ours;
            tally.labelled += usize::from(is_in && labelled);
        }
        tally
    }
}
