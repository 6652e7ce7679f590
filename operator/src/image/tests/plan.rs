//! The state machine, step by step, and from every state that a killed operator can leave behind.

use std::sync::Arc;

use ray_api::conditions;
use ray_api::template::v1alpha1::{FailureReason, ImageTemplate, ImageTemplateStatus};
use serde_json::json;

use super::super::attempt::{Attempt, Found, Identity, Progress, StopReason, Verification, failure};
use super::super::observe::Observed;
use super::super::phase::{Action, Phase};
use super::super::plan::{Plan, plan};
use super::super::status::notices;
use super::super::wanted::wanted;
use super::{at, policy, template, want};

const DIGEST: &str = "sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a";

/// A controller in a world that the test changes by hand.
struct World {
    template: ImageTemplate,
    observed: Observed,
    verify: bool,
    second: i64,
}

impl World {
    fn new(template: ImageTemplate) -> Self {
        Self {
            template,
            observed: Observed::default(),
            verify: false,
            second: 0,
        }
    }

    /// One reconcile: what it wants written is written.
    fn step(&mut self) -> Plan {
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

    fn newest(&mut self) -> &mut Attempt {
        self.observed
            .attempts
            .iter_mut()
            .max_by_key(|it| (it.identity.number, it.identity.attempt))
            .unwrap()
    }

    fn fail(&mut self, reason: FailureReason) {
        let time = at(self.second);
        self.newest().progress = Progress::Failed {
            failure: failure(reason, "because"),
            time,
            stop: false,
        };
    }

    fn succeed(&mut self) {
        let now = at(self.second);
        let newest = self.newest();
        newest.progress = Progress::Built(DIGEST.to_owned());
        newest.ended = Some(now);
    }

    fn status(&self) -> &ImageTemplateStatus {
        self.template.status.as_ref().unwrap()
    }

    /// `Ready/Building/Failed` and the reason of `Ready`.
    fn conditions(&self) -> String {
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

    fn edit(&mut self, packages: &[&str]) {
        self.template.spec.pip_packages = packages.iter().map(ToString::to_string).collect();
        *self.template.metadata.generation.as_mut().unwrap() += 1;
    }

    fn annotate(&mut self, key: &str, value: &str) {
        let annotations = self.template.metadata.annotations.get_or_insert_default();
        annotations.insert(format!("templates.ray.io/{key}"), value.to_owned());
    }
}

fn starts(plan: &Plan) -> Vec<(i32, i32, &str)> {
    plan.actions
        .iter()
        .filter_map(|action| match action {
            Action::Start(identity) => Some((identity.number, identity.attempt, identity.reason.as_str())),
            _ => None,
        })
        .collect()
}

#[test]
fn from_a_list_of_packages_to_an_image() {
    let mut world = World::new(template(json!({})));
    world.verify = true;
    let plan = world.step();
    assert_eq!(starts(&plan), [(1, 1, "Created")]);
    assert_eq!(world.conditions(), "False/True/False Building");
    world.newest().progress = Progress::Running("build".to_owned());
    assert!(world.step().actions.is_empty());
    world.succeed();
    let plan = world.step();
    assert!(matches!(plan.actions.as_slice(), [Action::Verify(_)]), "{plan:?}");
    assert_eq!(world.conditions(), "False/True/False Building");
    let found = Found {
        ray: Some("2.50.0".to_owned()),
        python: Some("3.12.1".to_owned()),
        ..Found::default()
    };
    world.observed.verifications.get_mut(&1).unwrap().1 = Verification::Found(found);
    let before = world.template.clone();
    let plan = world.step();
    let status = world.status();
    assert_eq!(
        status.image.as_deref(),
        Some(format!("reg.example:5000/images/team/emoji@{DIGEST}").as_str())
    );
    assert_eq!(status.short_digest.as_deref(), Some("0a0a0a0a0a0a"));
    assert_eq!(
        (status.ray_version.as_deref(), status.python_version.as_deref()),
        (Some("2.50.0"), Some("3.12.1"))
    );
    assert_eq!(world.conditions(), "True/False/False Built");
    assert_eq!(status.history.len(), 1);
    assert_eq!(status.history[0].result, "Succeeded");
    assert!(status.build.as_ref().unwrap().completion_time.is_some());
    let said: Vec<_> = notices(&before, status, &plan.phase)
        .into_iter()
        .map(|notice| notice.reason)
        .collect();
    assert_eq!(said, ["ImageReady"]);
    // Nothing changes any more: no action, and the same status.
    let status = world.status().clone();
    let plan = world.step();
    assert_eq!((plan.actions.as_slice(), &plan.status), (&[][..], &status));
}

#[test]
fn an_operator_that_forgot_everything_reads_it_back_from_the_jobs() {
    let mut world = World::new(template(json!({})));
    world.step();
    world.succeed();
    world.step();
    let status = world.status().clone();
    world.template.status = None;
    let plan = world.step();
    assert!(plan.actions.is_empty(), "{:?}", plan.actions);
    assert_eq!(plan.status.image, status.image);
    assert_eq!(plan.status.history, status.history);
    // And the other way round: the Jobs are gone, the status knows.
    world.observed = Observed::default();
    assert!(world.step().actions.is_empty());
    assert_eq!(world.status().image, status.image);
}

#[test]
fn passing_failures_are_tried_again_and_others_are_not() {
    let mut world = World::new(template(json!({})));
    world.step();
    world.fail(FailureReason::RegistryUnreachable);
    let plan = world.step();
    assert!(matches!(plan.phase, Phase::Retrying(..)), "{plan:?}");
    assert!(plan.requeue.is_some() && plan.actions.is_empty());
    assert_eq!(world.conditions(), "False/True/False Retrying");
    assert_eq!(
        world.status().failure.as_ref().unwrap().reason,
        FailureReason::RegistryUnreachable
    );
    world.second += 10;
    assert_eq!(starts(&world.step()), [(1, 2, "Created")]);
    assert_eq!(world.status().build.as_ref().unwrap().attempts, 2);
    for attempt in 2..=3 {
        assert_eq!(world.newest().identity.attempt, attempt);
        world.fail(FailureReason::RegistryUnreachable);
        world.step();
        world.second += 100;
        world.step();
    }
    assert_eq!(world.conditions(), "False/False/True RegistryUnreachable");
    assert_eq!(world.observed.attempts.len(), 3);
    assert_eq!(world.status().history[0].result, "RegistryUnreachable");

    let mut world = World::new(template(json!({})));
    world.step();
    world.fail(FailureReason::PipPackageNotFound);
    world.step();
    world.second += 100_000;
    assert!(world.step().actions.is_empty());
    assert_eq!(world.conditions(), "False/False/True PipPackageNotFound");
    // A change of spec is a new build.
    world.edit(&["emoji"]);
    assert_eq!(starts(&world.step()), [(2, 1, "SpecChanged")]);
    assert_eq!(world.status().failure, None);
}

#[test]
fn a_failed_newer_build_leaves_the_last_good_image_in_use() {
    let mut world = World::new(template(json!({})));
    world.step();
    world.succeed();
    world.step();
    let image = world.status().image.clone();
    world.edit(&["nope"]);
    world.step();
    assert_eq!(world.conditions(), "True/True/False Building");
    world.fail(FailureReason::PipPackageNotFound);
    world.step();
    assert_eq!(world.conditions(), "True/False/True PipPackageNotFound");
    assert_eq!(world.status().image, image);
    // Back to what was built: nothing is built again.
    world.edit(&["emoji==2.14.0"]);
    assert!(world.step().actions.is_empty());
    assert_eq!(world.conditions(), "True/False/False Built");
    let results: Vec<_> = world
        .status()
        .history
        .iter()
        .map(|record| (record.number, record.result.as_str()))
        .collect();
    assert_eq!(results, [(2, "PipPackageNotFound"), (1, "Succeeded")]);
}

#[test]
fn an_edit_during_a_build_stops_it() {
    let mut world = World::new(template(json!({})));
    world.step();
    world.newest().progress = Progress::Running("build".to_owned());
    world.edit(&["emoji"]);
    let plan = world.step();
    assert_eq!(starts(&plan), [(2, 1, "SpecChanged")]);
    // In this order: both may push to the same tag.
    assert!(
        matches!(
            plan.actions.as_slice(),
            [Action::Stop(_, StopReason::Superseded), Action::Start(_)]
        ),
        "{plan:?}"
    );
    world.succeed();
    world.step();
    let results: Vec<_> = world
        .status()
        .history
        .iter()
        .map(|record| record.result.as_str())
        .collect();
    assert_eq!(results, ["Succeeded", "Superseded"]);
    // Back again: the stopped build does not count as an answer.
    world.edit(&["emoji==2.14.0"]);
    assert_eq!(starts(&world.step()), [(3, 1, "SpecChanged")]);
}

#[test]
fn cancel_suspend_and_rebuild() {
    let mut world = World::new(template(json!({"suspend": true})));
    assert!(world.step().actions.is_empty());
    assert_eq!(world.conditions(), "False/False/False Suspended");
    world.template.spec.suspend = None;
    world.step();
    world.newest().progress = Progress::Running("build".to_owned());
    world.annotate("cancel", "1");
    let plan = world.step();
    assert!(
        matches!(plan.actions.as_slice(), [Action::Stop(_, StopReason::Cancelled)]),
        "{plan:?}"
    );
    assert_eq!(world.conditions(), "False/False/True Cancelled");
    assert!(world.step().actions.is_empty());
    world.annotate("rebuild", "now");
    assert_eq!(starts(&world.step()), [(2, 1, "Requested")]);
    assert_eq!(world.status().rebuild.as_deref(), Some("now"));
    world.succeed();
    world.step();
    assert!(world.step().actions.is_empty());
    world.annotate("rebuild", "again");
    assert_eq!(starts(&world.step()), [(3, 1, "Requested")]);
    // Killed before the status was written: the Job answers the annotation.
    world.template.status.as_mut().unwrap().rebuild = Some("now".to_owned());
    assert!(world.step().actions.is_empty());
    assert_eq!(world.status().rebuild.as_deref(), Some("again"));
}

#[test]
fn equal_templates_of_a_namespace_build_once() {
    let repository = json!({"repository": "reg.example:5000/images/team/shared"});
    let mut first = World::new(template(repository.clone()));
    let mut other = template(repository);
    other.metadata.name = Some("other".to_owned());
    other.metadata.uid = Some("22222222".to_owned());
    let mut second = World::new(other);
    second.observed.siblings = vec![Arc::new(first.template.clone())];
    first.observed.siblings = vec![Arc::new(second.template.clone())];
    assert_eq!(starts(&first.step()).len(), 1);
    let plan = second.step();
    assert!(plan.actions.is_empty() && plan.requeue.is_some());
    assert_eq!(second.conditions(), "False/True/False SharedBuild");
    first.succeed();
    first.step();
    second.observed.siblings = vec![Arc::new(first.template.clone())];
    assert!(second.step().actions.is_empty());
    assert_eq!(second.status().image, first.status().image);
    assert_eq!(second.conditions(), "True/False/False Built");
}

#[test]
fn old_builds_go_with_the_history() {
    let mut world = World::new(template(json!({"historyLimit": 2})));
    for number in 1..=5 {
        world.edit(&[format!("emoji=={number}").as_str()]);
        world.step();
        world.succeed();
        world.step();
    }
    world.step();
    let numbers: Vec<_> = world
        .observed
        .attempts
        .iter()
        .map(|attempt| attempt.identity.number)
        .collect();
    assert_eq!(numbers, [4, 5]);
    assert_eq!(world.status().history.len(), 2);
    world.observed.orphans = vec!["left".to_owned()];
    assert_eq!(world.step().actions, [Action::DeleteConfigMap("left".to_owned())]);
}

#[test]
fn what_may_not_be_built_is_said_and_stopped() {
    let mut world = World::new(template(json!({})));
    world.step();
    world.template.spec.repository = Some("elsewhere.example/x".to_owned());
    let plan = world.step();
    assert!(
        matches!(plan.actions.as_slice(), [Action::Stop(_, StopReason::Superseded)]),
        "{plan:?}"
    );
    assert_eq!(world.conditions(), "False/False/True PolicyDenied");
    assert!(
        world
            .status()
            .failure
            .as_ref()
            .unwrap()
            .message
            .contains("reg.example:5000/images/team")
    );
    world.template.spec.repository = None;
    world.template.spec.pip_packages = vec!["a\nb".to_owned()];
    world.step();
    assert_eq!(world.conditions(), "False/False/True InvalidSpec");
}

#[test]
fn an_image_without_ray_is_a_failure_and_another_ray_a_warning() {
    let mut world = World::new(template(json!({})));
    world.verify = true;
    world.step();
    world.succeed();
    world.step();
    let verifications = world.observed.verifications.clone();
    world.observed.verifications.get_mut(&1).unwrap().1 =
        Verification::Failed("No module named 'ray'".to_owned());
    world.step();
    assert_eq!(world.conditions(), "False/False/True RayMissing");
    assert_eq!(world.status().image, None);

    world.observed.verifications = verifications;
    let found = Found {
        ray: Some("2.49.0".to_owned()),
        ..Found::default()
    };
    world.observed.verifications.get_mut(&1).unwrap().1 = Verification::Found(found);
    let before = world.template.clone();
    let plan = world.step();
    assert_eq!(world.conditions(), "True/False/False Built");
    let said = notices(&before, world.status(), &plan.phase);
    assert!(
        said.iter()
            .any(|notice| notice.is_warning && notice.note.contains("2.49.0")),
        "{said:?}"
    );
}

#[test]
fn the_wanted_hash_and_tag_agree() {
    let template = template(json!({}));
    let wanted = want(&template);
    assert_eq!(wanted.target.tag, wanted.inputs_hash);
    let identity = Identity {
        number: 1,
        attempt: 1,
        inputs_hash: wanted.inputs_hash.clone(),
        destination: wanted.target.destination(),
        reason: "Created".to_owned(),
        rebuild: None,
        verifies: None,
    };
    assert!(identity.destination.ends_with(&wanted.inputs_hash));
}
