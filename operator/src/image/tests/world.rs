//! A controller in a world that a test changes by hand.

use ray_api::conditions;
use ray_api::template::v1alpha1::{FailureReason, ImageTemplate, ImageTemplateStatus};

use super::super::attempt::{Attempt, Progress, StopReason, Verification, failure};
use super::super::observe::Observed;
use super::super::phase::Action;
use super::super::plan::{Plan, plan};
use super::super::wanted::wanted;
use super::{at, policy};

pub(super) const DIGEST: &str = "sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a";

/// A controller in a world that the test changes by hand.
pub(super) struct World {
    pub(super) template: ImageTemplate,
    pub(super) observed: Observed,
    pub(super) verify: bool,
    pub(super) second: i64,
}

impl World {
    pub(super) fn new(template: ImageTemplate) -> Self {
        Self {
            template,
            observed: Observed::default(),
            verify: false,
            second: 0,
        }
    }

    /// One reconcile: what it wants written is written.
    pub(super) fn step(&mut self) -> Plan {
        self.second += 1;
        let wanted = wanted(&self.template, &policy());
        let plan = plan(
            &self.template,
            wanted.as_ref(),
            &self.observed,
            self.verify,
            at(self.second),
        );
        for action in &plan.actions {
            self.carry_out(action);
        }
        self.template.status = Some(plan.status.clone());
        plan
    }

    fn carry_out(&mut self, action: &Action) {
        match action {
            Action::Start(identity) => {
                let job = identity.job_name("uid");
                assert!(
                    self.observed.attempts.iter().all(|attempt| attempt.job != job),
                    "{job} started twice"
                );
                self.observed.attempts.push(Attempt {
                    job,
                    identity: identity.clone(),
                    created: at(self.second),
                    ended: None,
                    progress: Progress::Pending("waiting for a pod".to_owned()),
                });
            }
            Action::Verify(identity) => {
                let name = identity.job_name("uid");
                assert!(
                    self.observed
                        .verifications
                        .insert(identity.number, (name, Verification::Running))
                        .is_none()
                );
            }
            Action::Stop(job, why) => {
                let time = at(self.second);
                let progress = match why {
                    StopReason::Cancelled => Progress::Cancelled(time),
                    StopReason::Superseded => Progress::Superseded(time),
                    StopReason::Failed(failure) => Progress::Failed {
                        failure: (**failure).clone(),
                        time,
                        stop: false,
                    },
                };
                self.attempt(job).progress = progress;
            }
            Action::Delete(job) => {
                self.observed.attempts.retain(|attempt| attempt.job != *job);
                self.observed.verifications.retain(|_, (name, _)| name != job);
            }
            Action::DeleteConfigMap(name) => self.observed.orphans.retain(|one| one != name),
        }
    }

    fn attempt(&mut self, job: &str) -> &mut Attempt {
        self.observed
            .attempts
            .iter_mut()
            .find(|attempt| attempt.job == job)
            .unwrap()
    }

    pub(super) fn newest(&mut self) -> &mut Attempt {
        self.observed
            .attempts
            .iter_mut()
            .max_by_key(|it| (it.identity.number, it.identity.attempt))
            .unwrap()
    }

    pub(super) fn fail(&mut self, reason: FailureReason) {
        let time = at(self.second);
        self.newest().progress = Progress::Failed {
            failure: failure(reason, "because"),
            time,
            stop: false,
        };
    }

    pub(super) fn succeed(&mut self) {
        let now = at(self.second);
        let newest = self.newest();
        newest.progress = Progress::Built(DIGEST.to_owned());
        newest.ended = Some(now);
    }

    pub(super) fn status(&self) -> &ImageTemplateStatus {
        self.template.status.as_ref().unwrap()
    }

    /// `Ready/Building/Failed` and the reason of `Ready`.
    pub(super) fn conditions(&self) -> String {
        let list = self.status().conditions.as_deref().unwrap();
        let is = |type_| {
            if conditions::is_true(list, type_) {
                "True"
            } else {
                "False"
            }
        };
        let reason = &conditions::find(list, "Ready").unwrap().reason;
        format!("{}/{}/{} {reason}", is("Ready"), is("Building"), is("Failed"))
    }

    pub(super) fn edit(&mut self, packages: &[&str]) {
        self.template.spec.pip_packages = packages.iter().map(ToString::to_string).collect();
        *self.template.metadata.generation.as_mut().unwrap() += 1;
    }

    pub(super) fn annotate(&mut self, key: &str, value: &str) {
        let annotations = self.template.metadata.annotations.get_or_insert_default();
        annotations.insert(format!("templates.ray.io/{key}"), value.to_owned());
    }
}

/// Number, attempt and reason of what a plan starts.
pub(super) fn starts(plan: &Plan) -> Vec<(i32, i32, &str)> {
    plan.actions
        .iter()
        .filter_map(|action| match action {
            Action::Start(identity) => Some((identity.number, identity.attempt, identity.reason.as_str())),
            _ => None,
        })
        .collect()
}
