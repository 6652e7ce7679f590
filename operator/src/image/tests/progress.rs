//! From what Kubernetes says about a Job to how far a build has come.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod, SecretVolumeSource, Volume};
use ray_api::template::v1alpha1::FailureReason;
use serde_json::{Value, json};

use super::super::attempt::{Found, Progress, Verification};
use super::super::progress::{self, Sight};
use super::at;

fn job(condition: Option<(&str, &str)>) -> Job {
    let conditions: Vec<_> = condition
        .iter()
        .map(|(type_, reason)| json!({"type": type_, "status": "True", "reason": reason, "lastTransitionTime": at(60).to_string()}))
        .collect();
    serde_json::from_value(json!({
        "metadata": {"name": "j"},
        "spec": {"activeDeadlineSeconds": 1800, "template": {}},
        "status": {"conditions": conditions},
    }))
    .unwrap()
}

/// A pod with the steps of a build, and the states of some of them.
fn pod(states: &[(&str, Value)]) -> Pod {
    let names = ["secrets", "context", "build", "seal"];
    let status = |name: &str| {
        let state = states
            .iter()
            .find(|(step, _)| *step == name)
            .map_or(json!({}), |(_, state)| state.clone());
        json!({"name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state})
    };
    serde_json::from_value(json!({
        "metadata": {"name": "p"},
        "spec": {
            "initContainers": names.map(|name| json!({"name": name})),
            "containers": [{"name": "push"}],
        },
        "status": {
            "startTime": at(0).to_string(),
            "initContainerStatuses": names.map(status),
            "containerStatuses": [status("push")],
        },
    }))
    .unwrap()
}

fn ended(code: i32, reason: &str, message: &str) -> Value {
    json!({"terminated": {"exitCode": code, "reason": reason, "message": message}})
}

fn event(reason: &str, message: &str) -> Event {
    serde_json::from_value(json!({
        "metadata": {}, "involvedObject": {}, "reason": reason, "message": message,
    }))
    .unwrap()
}

fn build(job: &Job, pod: Option<&Pod>, events: &[Event], second: i64) -> Progress {
    progress::build(Sight {
        job,
        pod,
        events,
        now: at(second),
    })
}

fn failed(progress: Progress) -> (FailureReason, String, bool) {
    match progress {
        Progress::Failed { failure, stop, .. } => (failure.reason, failure.message, stop),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_digest_is_what_seal_wrote() {
    let digest = format!("sha256:{}", "0a".repeat(32));
    let done = |step: &str, text: &str| pod(&[(step, ended(0, "Completed", text))]);
    let complete = job(Some(("Complete", "")));
    assert_eq!(
        build(&complete, Some(&done("seal", &digest)), &[], 61),
        Progress::Built(digest.clone())
    );
    // The build ran foreign code: where there is a seal, the build's word counts nothing.
    let (reason, ..) = failed(build(&complete, Some(&done("build", &digest)), &[], 61));
    assert_eq!(reason, FailureReason::BuildFailed);
    let (reason, ..) = failed(build(&complete, Some(&done("seal", "sha256:short")), &[], 61));
    assert_eq!(reason, FailureReason::BuildFailed);
    let (_, message, _) = failed(build(&complete, None, &[], 61));
    assert!(message.contains("gone"), "{message}");
}

#[test]
fn failures_of_steps_have_reasons() {
    use FailureReason::*;
    let job = job(Some(("Failed", "BackoffLimitExceeded")));
    for (step, state, expected, words) in [
        (
            "secrets",
            ended(1, "Error", "error: Secret x has no login for reg, only for a"),
            SecretInvalid,
            "no login for reg",
        ),
        (
            "build",
            ended(
                127,
                "Error",
                "/bin/sh: 1: conda: not found\nerror building image: error building stage: failed to execute command: exit status 127",
            ),
            CondaUnavailable,
            "conda: not found",
        ),
        (
            "build",
            ended(137, "OOMKilled", "INFO[0001] RUN pip install torch"),
            OutOfMemory,
            "limits.memory",
        ),
        (
            "seal",
            ended(
                1,
                "Error",
                "error: the built image is refused: index.json names 2 manifests, not one",
            ),
            BuildFailed,
            "2 manifests",
        ),
        (
            "push",
            ended(
                1,
                "Error",
                "error checking push permissions: checking push permission for \"r/x:1\": UNAUTHORIZED: authentication required",
            ),
            PushUnauthorized,
            "UNAUTHORIZED",
        ),
    ] {
        let (reason, message, stop) = failed(build(&job, Some(&pod(&[(step, state)])), &[], 61));
        assert_eq!(reason, expected, "{step}: {message}");
        assert!(message.contains(words), "{message}");
        assert!(!stop);
    }
}

#[test]
fn what_ends_a_pod_from_outside_has_a_reason_too() {
    let (reason, message, _) = failed(build(&job(Some(("Failed", "DeadlineExceeded"))), None, &[], 61));
    assert_eq!(reason, FailureReason::Timeout);
    assert!(
        message.contains("30 min") && message.contains("spec.timeout"),
        "{message}"
    );

    let mut evicted = pod(&[]);
    for said in [
        "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi.",
        "Pod was rejected: The node had condition: [DiskPressure].",
    ] {
        let status = evicted.status.as_mut().unwrap();
        status.reason = Some("Evicted".to_owned());
        status.message = Some(said.to_owned());
        let over = job(Some(("Failed", "BackoffLimitExceeded")));
        let (reason, ..) = failed(build(&over, Some(&evicted), &[], 61));
        assert_eq!(reason, FailureReason::StorageExhausted, "{said}");
    }
}

#[test]
fn a_job_that_never_will_start_is_stopped_at_once() {
    let going = job(None);
    let refused = event(
        "FailedCreate",
        "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": …",
    );
    let (reason, message, stop) = failed(build(&going, None, &[refused], 1));
    assert_eq!((reason, stop), (FailureReason::PodSecurityRejected, true));
    assert!(message.contains("baseline"), "{message}");

    let missing = event(
        "FailedMount",
        "MountVolume.SetUp failed for volume \"secret-1\" : secret \"push\" not found",
    );
    let (reason, message, stop) = failed(build(&going, Some(&pod(&[])), &[missing], 1));
    assert_eq!((reason, stop), (FailureReason::SecretNotFound, true));
    assert!(
        message.contains("Secret push is not in this namespace"),
        "{message}"
    );

    let wrong = event(
        "FailedMount",
        "MountVolume.SetUp failed for volume \"secret-1\" : references non-existent secret key: .dockerconfigjson",
    );
    let mut mounts = pod(&[]);
    mounts.spec.as_mut().unwrap().volumes = Some(vec![Volume {
        name: "secret-1".to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some("mine".to_owned()),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    }]);
    let (reason, message, _) = failed(build(&going, Some(&mounts), &[wrong], 1));
    assert_eq!(reason, FailureReason::SecretInvalid);
    assert_eq!(
        message,
        "Secret mine is of another type: it has no key .dockerconfigjson"
    );
    // A ConfigMap that is a moment late is no reason to stop.
    let late = event(
        "FailedMount",
        "MountVolume.SetUp failed for volume \"inputs\" : configmap \"x\" not found",
    );
    assert!(matches!(
        build(&going, Some(&pod(&[])), &[late], 1),
        Progress::Pending(_)
    ));
}

#[test]
fn a_builder_image_that_cannot_be_pulled_is_given_some_time() {
    let waiting =
        json!({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image \"kaniko\""}});
    let stuck = pod(&[("build", waiting)]);
    let Progress::Pending(why) = build(&job(None), Some(&stuck), &[], 10) else {
        panic!()
    };
    assert!(why.contains("Back-off"), "{why}");
    let (reason, _, stop) = failed(build(&job(None), Some(&stuck), &[], 100));
    assert_eq!((reason, stop), (FailureReason::BuilderImageUnavailable, true));
}

#[test]
fn what_goes_on_is_told() {
    let running = pod(&[
        ("context", ended(0, "Completed", "")),
        ("build", json!({"running": {}})),
    ]);
    assert_eq!(
        build(&job(None), Some(&running), &[], 1),
        Progress::Running("build".to_owned())
    );
    let initializing = || json!({"waiting": {"reason": "PodInitializing"}});
    let done = || ended(0, "Completed", "");
    let pull = || json!({"waiting": {"reason": "ErrImagePull", "message": "no such image"}});
    let told = |[before, build, after]: [Value; 3]| {
        let (secrets, context) = (before.clone(), before);
        let steps = [
            ("secrets", secrets),
            ("context", context),
            ("build", build),
            ("seal", after.clone()),
            ("push", after),
        ];
        self::build(&job(None), Some(&pod(&steps)), &[], 1)
    };
    assert_eq!(
        told([done(), initializing(), initializing()]),
        Progress::Running("build".to_owned()),
        "between two steps the next one is told"
    );
    assert_eq!(
        told([done(), done(), done()]),
        Progress::Running("push".to_owned()),
        "its Job has not heard yet"
    );
    assert_eq!(
        told([initializing(), initializing(), initializing()]),
        Progress::Pending("the build's pod is starting".to_owned())
    );
    assert_eq!(
        told([done(), pull(), initializing()]),
        Progress::Pending("no such image".to_owned())
    );
    let mut unscheduled = pod(&[]);
    let full = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: 3 Insufficient memory"}]);
    unscheduled.status.as_mut().unwrap().conditions = serde_json::from_value(full).unwrap();
    assert_eq!(
        build(&job(None), Some(&unscheduled), &[], 1),
        Progress::Pending("no node for the build's pod: 0/3 nodes: 3 Insufficient memory".to_owned())
    );
    let quota = event("FailedCreate", "exceeded quota: compute");
    assert_eq!(
        build(&job(None), None, &[quota], 1),
        Progress::Pending("exceeded quota: compute".to_owned())
    );
}

#[test]
fn verifications() {
    let see = |job: &Job, state: Value| {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p"}, "spec": {"containers": [{"name": "verify"}]},
            "status": {"containerStatuses": [
                {"name": "verify", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state}
            ]},
        }))
        .unwrap();
        progress::verification(Sight {
            job,
            pod: Some(&pod),
            events: &[],
            now: at(1),
        })
    };
    let text = r#"{"ray": "2.50.0", "python": "3.12.1", "user": "ray", "uid": 1000, "has_ray_user": true}"#;
    let Verification::Found(found) = see(&job(Some(("Complete", ""))), ended(0, "Completed", text)) else {
        panic!()
    };
    assert_eq!(
        found,
        Found {
            ray: Some("2.50.0".to_owned()),
            python: Some("3.12.1".to_owned()),
            user: Some("ray".to_owned()),
            uid: Some(1000),
            has_ray_user: true,
        }
    );
    let trace = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'ray'\n";
    let failed = job(Some(("Failed", "BackoffLimitExceeded")));
    assert_eq!(
        see(&failed, ended(1, "Error", trace)),
        Verification::Failed("ModuleNotFoundError: No module named 'ray'".to_owned())
    );
    assert!(matches!(
        see(&job(Some(("Failed", "DeadlineExceeded"))), json!({})),
        Verification::Unavailable(_)
    ));
    assert_eq!(see(&job(None), json!({"running": {}})), Verification::Running);
}
