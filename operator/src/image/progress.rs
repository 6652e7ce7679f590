//! How far a Job has come, from the Job, its pod, and the events about both. Pure.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Event, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use ray_api::image::{Ended, classify, mask};
use ray_api::template::v1alpha1::{BuildFailure, FailureReason};

use super::attempt::{Found, Progress, StopReason, Stopped, Verification, failure};

/// How long an image may fail to be pulled before the attempt is given up: registries have their moments.
const PULL_PATIENCE: Duration = Duration::from_secs(90);

/// What is known of a Job.
#[derive(Clone, Copy)]
pub(super) struct Sight<'a> {
    pub(super) job: &'a Job,
    pub(super) pod: Option<&'a Pod>,
    /// Events about the Job and its pod.
    pub(super) events: &'a [Event],
    pub(super) now: Timestamp,
}

/// The time at which a Job ended, and whether it completed.
pub(super) fn end(job: &Job) -> Option<(Timestamp, bool)> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions
        .iter()
        .filter(|condition| condition.status == "True")
        .find_map(|condition| {
            let completed = match condition.type_.as_str() {
                "Complete" => true,
                "Failed" => false,
                _ => return None,
            };
            Some((
                condition
                    .last_transition_time
                    .as_ref()
                    .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
                completed,
            ))
        })
}

/// How far a build has come.
pub(super) fn build(sight: Sight<'_>) -> Progress {
    let end = end(sight.job);
    let completed = end.is_some_and(|(_, completed)| completed);
    // A push that was faster than the order to stop did happen.
    if let Some(digest) = sight.pod.filter(|_| completed).and_then(digest) {
        return Progress::Built(digest);
    }
    if let Some(stopped) = Stopped::of(sight.job) {
        return match stopped.why {
            StopReason::Cancelled => Progress::Cancelled(stopped.time),
            StopReason::Superseded => Progress::Superseded(stopped.time),
            StopReason::Failed(failure) => Progress::Failed {
                failure: *failure,
                time: stopped.time,
                stop: false,
            },
        };
    }
    match end {
        Some((time, true)) => Progress::Failed {
            failure: failure(
                FailureReason::BuildFailed,
                "its pod was gone before the digest was read",
            ),
            time,
            stop: false,
        },
        Some((time, false)) => Progress::Failed {
            failure: failed(sight),
            time,
            stop: false,
        },
        None => match stuck(sight) {
            Some(failure) => Progress::Failed {
                failure,
                time: sight.now,
                stop: true,
            },
            None => unfinished(sight),
        },
    }
}

/// How far a verification has come.
pub(super) fn verification(sight: Sight<'_>) -> Verification {
    let statuses = sight.pod.map(container_statuses).unwrap_or_default();
    let terminated = statuses.iter().find_map(|status| terminated(status));
    match (end(sight.job), terminated) {
        (_, Some(ended)) if ended.exit_code == 0 => {
            match serde_json::from_str::<Found>(ended.message.as_deref().unwrap_or_default()) {
                Ok(found) => Verification::Found(found),
                Err(_) => Verification::Unavailable("its answer could not be read".to_owned()),
            }
        }
        (_, Some(ended)) => {
            let log = mask(ended.message.as_deref().unwrap_or_default());
            let last = log
                .lines()
                .rev()
                .find(|line| !line.trim().is_empty())
                .unwrap_or("it printed nothing");
            Verification::Failed(last.to_owned())
        }
        (Some(_), None) => {
            let message = deadline(sight.job).unwrap_or("its pod is gone");
            Verification::Unavailable(format!("it did not run to its end: {message}"))
        }
        (None, None) => match stuck(sight) {
            Some(failure) => Verification::Unavailable(failure.message),
            None => Verification::Running,
        },
    }
}

/// The digest that `seal` wrote, or the archived executor.
fn digest(pod: &Pod) -> Option<String> {
    let statuses = container_statuses(pod);
    let writer = ["seal", "build"]
        .into_iter()
        .find_map(|name| statuses.iter().find(|status| status.name == name))?;
    let text = terminated(writer)?.message.as_deref()?.trim();
    let digits = text.strip_prefix("sha256:")?;
    let is_digest = digits.len() == 64
        && digits
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    is_digest.then(|| text.to_owned())
}

/// Why a Job that has ended failed.
fn failed(sight: Sight<'_>) -> BuildFailure {
    if deadline(sight.job).is_some() {
        let seconds = sight
            .job
            .spec
            .as_ref()
            .and_then(|spec| spec.active_deadline_seconds)
            .unwrap_or_default();
        let message = format!(
            "the build took longer than {} min: raise spec.timeout",
            seconds / 60
        );
        return failure(FailureReason::Timeout, message);
    }
    let Some(pod) = sight.pod else {
        return failure(
            FailureReason::BuildFailed,
            "its pod is gone: its node was lost, or somebody deleted it",
        );
    };
    if let Some(failure) = evicted(pod) {
        return failure;
    }
    let statuses = container_statuses(pod);
    let ended = statuses
        .iter()
        .find_map(|status| Some((status, terminated(status).filter(|it| it.exit_code != 0)?)));
    let Some((status, ended)) = ended else {
        let message = pod.status.as_ref().and_then(|status| status.message.clone());
        return failure(
            FailureReason::BuildFailed,
            message.unwrap_or_else(|| "its pod ended without a reason".to_owned()),
        );
    };
    step_failure(&status.name, ended)
}

/// Why a step failed: our own steps say it themselves, the executor's log is read.
fn step_failure(step: &str, ended: &ContainerStateTerminated) -> BuildFailure {
    let log = ended.message.as_deref().unwrap_or_default();
    let reason = match step {
        "secrets" => FailureReason::SecretInvalid,
        "context" | "seal" => FailureReason::BuildFailed,
        _ => {
            return classify(&Ended {
                exit_code: Some(ended.exit_code),
                reason: ended.reason.as_deref().unwrap_or_default(),
                log,
            });
        }
    };
    let said = log
        .trim()
        .trim_start_matches("error: ")
        .lines()
        .collect::<Vec<_>>()
        .join(" ");
    BuildFailure {
        exit_code: Some(ended.exit_code),
        ..failure(reason, mask(&format!("{step}: {said}")))
    }
}

fn evicted(pod: &Pod) -> Option<BuildFailure> {
    let status = pod
        .status
        .as_ref()
        .filter(|status| status.reason.as_deref() == Some("Evicted"))?;
    let message = status.message.clone().unwrap_or_default();
    let reason = if message.contains("ephemeral")
        || message.contains("storage")
        || message.contains("disk")
        || message.contains("DiskPressure")
    {
        FailureReason::StorageExhausted
    } else if message.contains("memory") {
        FailureReason::OutOfMemory
    } else {
        FailureReason::BuildFailed
    };
    Some(failure(
        reason,
        format!("the node evicted the build: {}", message.trim()),
    ))
}

/// Why a Job that has not ended never will, or not soon enough to wait.
fn stuck(sight: Sight<'_>) -> Option<BuildFailure> {
    let Some(pod) = sight.pod else {
        return sight.events.iter().find_map(rejected);
    };
    if let Some(failure) = sight.events.iter().find_map(|event| unmountable(event, pod)) {
        return Some(failure);
    }
    let age = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    let age = age.map_or(SignedDuration::ZERO, |start| sight.now.duration_since(start.0));
    container_statuses(pod).iter().find_map(|status| {
        let waiting = status.state.as_ref()?.waiting.as_ref()?;
        let given_up = match waiting.reason.as_deref()? {
            "InvalidImageName" | "ErrImageNeverPull" => true,
            "ErrImagePull" | "ImagePullBackOff" | "CreateContainerConfigError" | "CreateContainerError" => {
                age >= SignedDuration::try_from(PULL_PATIENCE).unwrap_or(SignedDuration::MAX)
            }
            _ => false,
        };
        let detail = waiting.message.as_deref().unwrap_or_default();
        given_up.then(|| {
            let message = format!(
                "the image {} of the step {} cannot be started: {}",
                status.image,
                status.name,
                mask(detail)
            );
            failure(FailureReason::BuilderImageUnavailable, message)
        })
    })
}

/// A pod that admission refused.
fn rejected(event: &Event) -> Option<BuildFailure> {
    let message = event.message.as_deref().unwrap_or_default();
    (event.reason.as_deref() == Some("FailedCreate") && message.contains("violates PodSecurity")).then(|| {
        let advice = "builds need the level `baseline`: label the namespace pod-security.kubernetes.io/enforce=baseline, or build in another namespace";
        failure(FailureReason::PodSecurityRejected, format!("{advice} ({message})"))
    })
}

/// A volume of a pod that the kubelet cannot mount.
fn unmountable(event: &Event, pod: &Pod) -> Option<BuildFailure> {
    if event.reason.as_deref() != Some("FailedMount") {
        return None;
    }
    let message = event.message.as_deref().unwrap_or_default();
    if let Some((_, key)) = message.split_once("references non-existent secret key: ") {
        let message = match secret_of_volume(message, pod) {
            Some(name) => format!("Secret {name} is of another type: it has no key {key}"),
            None => format!("a Secret is of another type: {message}"),
        };
        return Some(failure(FailureReason::SecretInvalid, message));
    }
    let (_, rest) = message.split_once("secret \"")?;
    let (name, rest) = rest.split_once('"')?;
    rest.contains("not found").then(|| {
        let message = format!("Secret {name} is not in this namespace: create it, then ask for a rebuild");
        failure(FailureReason::SecretNotFound, message)
    })
}

/// The Secret behind the volume that a message names as `volume "NAME"`.
fn secret_of_volume<'a>(message: &str, pod: &'a Pod) -> Option<&'a str> {
    let (_, rest) = message.split_once("volume \"")?;
    let (name, _) = rest.split_once('"')?;
    let volumes = pod.spec.as_ref()?.volumes.as_ref()?;
    let volume = volumes.iter().find(|volume| volume.name == name)?;
    volume.secret.as_ref()?.secret_name.as_deref()
}

/// What a Job that goes on is doing.
fn unfinished(sight: Sight<'_>) -> Progress {
    let Some(pod) = sight.pod else {
        let refused = sight
            .events
            .iter()
            .rev()
            .find(|event| event.reason.as_deref() == Some("FailedCreate"));
        let message = refused.and_then(|event| event.message.clone());
        return Progress::Pending(message.unwrap_or_else(|| "waiting for a pod".to_owned()));
    };
    let statuses = container_statuses(pod);
    let is_running =
        |status: &&ContainerStatus| status.state.as_ref().is_some_and(|state| state.running.is_some());
    if let Some(running) = statuses.iter().rev().find(is_running) {
        return Progress::Running(running.name.clone());
    }
    // Between two steps none runs: the next one is on its way.
    let has_ended = |status: &&ContainerStatus| terminated(status).is_some();
    let is_quiet = |status: &&ContainerStatus| {
        let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
        waiting.is_none_or(|it| matches!(it.reason.as_deref(), Some("PodInitializing") | None))
    };
    if statuses.first().filter(has_ended).is_some() {
        let next = statuses.iter().find(|status| !has_ended(status)).filter(is_quiet);
        if let Some(step) = next.or(statuses.last().filter(has_ended)) {
            return Progress::Running(step.name.clone());
        }
    }
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let unscheduled = conditions
        .into_iter()
        .flatten()
        .find(|it| it.type_ == "PodScheduled" && it.status == "False");
    let mut waiting = statuses
        .iter()
        .filter_map(|status| status.state.as_ref()?.waiting.as_ref());
    let waiting =
        waiting.rfind(|waiting| !matches!(waiting.reason.as_deref(), Some("PodInitializing") | None));
    Progress::Pending(match (unscheduled, waiting) {
        (Some(condition), _) => format!(
            "no node for the build's pod: {}",
            condition.message.as_deref().unwrap_or_default()
        ),
        (None, Some(waiting)) => mask(
            waiting
                .message
                .as_deref()
                .or(waiting.reason.as_deref())
                .unwrap_or_default(),
        ),
        (None, None) => "the build's pod is starting".to_owned(),
    })
}

fn deadline(job: &Job) -> Option<&'static str> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let exceeded = conditions
        .iter()
        .any(|condition| condition.reason.as_deref() == Some("DeadlineExceeded"));
    exceeded.then_some("its time was over")
}

/// Statuses of all steps, in the order in which they run.
fn container_statuses(pod: &Pod) -> Vec<ContainerStatus> {
    let Some(status) = &pod.status else {
        return Vec::new();
    };
    let steps = status.init_container_statuses.iter().flatten();
    let mut all: Vec<_> = steps
        .chain(status.container_statuses.iter().flatten())
        .cloned()
        .collect();
    // The API server keeps the order of the spec, the kubelet sorts by name.
    let order = |name: &str| {
        let spec = pod.spec.as_ref()?;
        let names = spec.init_containers.iter().flatten().chain(&spec.containers);
        names.map(|container| &container.name).position(|one| one == name)
    };
    all.sort_by_key(|status| order(&status.name));
    all
}

fn terminated(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    status
        .state
        .as_ref()
        .and_then(|state: &ContainerState| state.terminated.as_ref())
}
