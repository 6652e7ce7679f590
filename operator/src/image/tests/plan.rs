//! The state machine, step by step, and from every state that a killed operator can leave behind.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ray_api::template::v1alpha1::{FailureReason, ImageTemplateSpec};
use serde_json::json;

use super::super::attempt::{Found, Identity, Progress, StopReason, Verification};
use super::super::observe::Observed;
use super::super::phase::{Action, Phase};
use super::super::plan::goes_on;
use super::super::share::Sibling;
use super::super::status::notices;
use super::world::{DIGEST, World, starts};
use super::{at, template, want};

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
fn a_failed_build_is_tried_again_once_the_spec_says_what_was_missing() {
    let index = json!({"pip": {"indexUrl": "https://index.example/simple", "credentialsSecret": "old"}});
    let start = || World::new(template(index.clone()));
    type Edit = fn(&mut ImageTemplateSpec);
    let cases: [(Option<FailureReason>, Edit); 7] = [
        (Some(FailureReason::OutOfMemory), |spec| {
            let more = json!({"limits": {"memory": "16Gi"}});
            spec.resources = Some(serde_json::from_value(more).unwrap());
        }),
        (Some(FailureReason::Timeout), |spec| {
            spec.timeout = Some("3h".to_owned())
        }),
        (Some(FailureReason::PushUnauthorized), |spec| {
            spec.push_secret = Some("new".to_owned());
        }),
        (Some(FailureReason::BaseImageNotFound), |spec| {
            spec.pull_secrets = vec!["new".to_owned()];
        }),
        (Some(FailureReason::SecretInvalid), |spec| {
            spec.pip.as_mut().unwrap().credentials_secret = Some("new".to_owned());
        }),
        (Some(FailureReason::PodSecurityRejected), |spec| {
            spec.node_selector.insert("pool".to_owned(), "builds".to_owned());
        }),
        // Cancelled.
        (None, |spec| spec.backoff_limit = Some(0)),
    ];
    for (reason, edit) in cases {
        let mut world = start();
        world.step();
        match reason {
            Some(reason) => world.fail(reason),
            None => world.newest().progress = Progress::Cancelled(at(1)),
        }
        assert!(world.step().actions.is_empty(), "{reason:?}");
        edit(&mut world.template.spec);
        assert_eq!(starts(&world.step()), [(2, 1, "SpecChanged")], "{reason:?}");
        assert_eq!(world.conditions(), "False/True/False Building");
        assert!(world.step().actions.is_empty(), "once is enough");
    }
    // So does one that finds no node; what runs and what is built goes on.
    let mut world = start();
    world.step();
    world
        .template
        .spec
        .node_selector
        .insert("pool".to_owned(), "builds".to_owned());
    let plan = world.step();
    assert_eq!(starts(&plan), [(2, 1, "SpecChanged")]);
    assert!(
        matches!(
            plan.actions.first(),
            Some(Action::Stop(_, StopReason::Superseded))
        ),
        "{plan:?}"
    );
    world.newest().progress = Progress::Running("build".to_owned());
    world.template.spec.timeout = Some("3h".to_owned());
    assert!(world.step().actions.is_empty());
    world.succeed();
    world.step();
    world.template.spec.timeout = None;
    assert!(world.step().actions.is_empty());
    assert_eq!(world.conditions(), "True/False/False Built");
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

/// Two templates for one image; by age and uid the first is to build it.
fn pair() -> (World, World) {
    let repository = json!({"repository": "reg.example:5000/images/team/shared"});
    let first = World::new(template(repository.clone()));
    let mut other = template(repository);
    other.metadata.name = Some("other".to_owned());
    other.metadata.uid = Some("zzzzzzzz".to_owned());
    (first, World::new(other))
}

/// What one sees of the other.
fn sees(world: &mut World, other: &World, has_begun: bool) {
    world.observed.siblings = vec![Sibling {
        template: Arc::new(other.template.clone()),
        has_begun,
    }];
}

#[test]
fn equal_templates_of_a_namespace_build_once() {
    let (mut first, mut second) = pair();
    sees(&mut first, &second, false);
    sees(&mut second, &first, false);
    assert_eq!(starts(&first.step()).len(), 1);
    let plan = second.step();
    assert!(plan.actions.is_empty() && plan.requeue.is_some());
    assert_eq!(second.conditions(), "False/True/False SharedBuild");
    first.succeed();
    first.step();
    sees(&mut second, &first, false);
    assert!(second.step().actions.is_empty());
    assert_eq!(second.status().image, first.status().image);
    assert_eq!(second.conditions(), "True/False/False Built");
}

#[test]
fn a_build_that_has_begun_is_waited_for_whatever_the_age_of_its_template() {
    let (mut first, mut second) = pair();
    assert_eq!(starts(&second.step()).len(), 1);
    let told = second.template.status.take();
    // Its status tells nothing yet.
    sees(&mut first, &second, true);
    assert!(first.step().actions.is_empty());
    assert_eq!(first.conditions(), "False/True/False SharedBuild");
    second.template.status = told;
    sees(&mut second, &first, false);
    assert!(second.step().actions.is_empty());
    assert_eq!(second.conditions(), "False/True/False Building");
    // Its Job is deleted: now the older one's turn is first, and no two wait for each other.
    second.observed.attempts.clear();
    assert!(second.step().actions.is_empty());
    assert_eq!(second.conditions(), "False/True/False SharedBuild");
    sees(&mut first, &second, false);
    assert_eq!(starts(&first.step()).len(), 1);

    let (mut first, mut second) = pair();
    assert_eq!(starts(&second.step()).len(), 1);
    // After a restart of the operator its status alone tells.
    sees(&mut first, &second, false);
    assert!(first.step().actions.is_empty());
    second.fail(FailureReason::BaseImageNotFound);
    second.step();
    sees(&mut first, &second, false);
    assert_eq!(starts(&first.step()).len(), 1);
}

#[test]
fn a_build_that_does_not_go_on_holds_nobody_up() {
    let (mut first, mut second) = pair();
    first.step();
    first.fail(FailureReason::RegistryUnreachable);
    let plan = first.step();
    assert!(goes_on(&first.template, &plan.phase));
    sees(&mut second, &first, false);
    assert_eq!(starts(&second.step()).len(), 0, "its next attempt is waited for");
    first.template.spec.suspend = Some(true);
    let plan = first.step();
    assert!(!goes_on(&first.template, &plan.phase) && plan.requeue.is_none());
    sees(&mut second, &first, false);
    assert_eq!(starts(&second.step()).len(), 1);
}

#[test]
fn a_template_that_is_being_deleted_holds_nobody_up() {
    let (mut first, mut second) = pair();
    first.step();
    first.template.metadata.deletion_timestamp = Some(Time(at(1)));
    sees(&mut second, &first, true);
    assert_eq!(starts(&second.step()).len(), 1);
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
fn the_wanted_hash_and_tag_agree() {
    let template = template(json!({}));
    let wanted = want(&template);
    assert_eq!(wanted.target.tag, wanted.inputs_hash);
    let identity = Identity {
        number: 1,
        attempt: 1,
        inputs_hash: wanted.inputs_hash.clone(),
        destination: wanted.target.destination(),
        settings: wanted.settings.clone(),
        reason: "Created".to_owned(),
        rebuild: None,
        verifies: None,
    };
    assert!(identity.destination.ends_with(&wanted.inputs_hash));
}
