//! Where a template stands, in words: status, conditions, and the events on the way. Pure.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use ray_api::conditions::{self, Statement};
use ray_api::image::{Reference, base_ray_version, default_user};
use ray_api::template::v1alpha1::{
    BuildRecord, BuildStatus, ImageTemplate, ImageTemplateSpec, ImageTemplateStatus,
};

use super::attempt::{Found, Identity, Progress, Verification};
use super::phase::{Action, Build, Image, Phase};
use super::share::{RETRYING, SHARED_BUILD};
use super::wanted::Wanted;

/// Hexadecimal digits of a digest in columns.
const SHORT_DIGEST: usize = 12;

/// Everything that a status follows from.
pub(super) struct Standing<'a> {
    pub(super) template: &'a ImageTemplate,
    pub(super) old: &'a ImageTemplateStatus,
    pub(super) wanted: Option<&'a Wanted>,
    pub(super) phase: &'a Phase,
    pub(super) actions: &'a [Action],
    pub(super) builds: &'a BTreeMap<i32, Build<'a>>,
    pub(super) verifications: &'a HashMap<i32, (String, Verification)>,
    /// Number of the build of what is wanted.
    pub(super) current: Option<i32>,
    pub(super) history_limit: i32,
    pub(super) now: Timestamp,
}

/// The status after the actions have been carried out.
pub(super) fn after(standing: &Standing<'_>) -> ImageTemplateStatus {
    let mut status = standing.old.clone();
    status.observed_generation = standing.template.metadata.generation;
    if let (Phase::Ready(Some(image)), Some(wanted)) = (standing.phase, standing.wanted) {
        take(&mut status, image, wanted);
    }
    status.failure = match standing.phase {
        Phase::Failed(failure) | Phase::Retrying(failure, _) => Some(failure.clone()),
        Phase::Refused(refusal) => Some(super::attempt::failure(refusal.reason, refusal.message.clone())),
        Phase::Building(_) if standing.old.failure.is_some() && is_retry(standing) => {
            standing.old.failure.clone()
        }
        _ => None,
    };
    if let Some(rebuild) = standing.wanted.and_then(|wanted| wanted.rebuild.clone())
        && (standing.current.is_some() || matches!(standing.phase, Phase::Ready(_)))
    {
        status.rebuild = Some(rebuild);
    }
    if let Some(build) = newest(standing) {
        status.build = Some(build);
    }
    status.history = history(standing);
    let mut list = status.conditions.take().unwrap_or_default();
    let now = Time(standing.now);
    for (type_, value, reason, message) in statements(standing, &status) {
        let statement = Statement {
            type_,
            status: Some(value),
            reason: &reason,
            message: &message,
        };
        conditions::upsert(&mut list, &statement, status.observed_generation, &now);
    }
    status.conditions = Some(list);
    status
}

/// Makes an image the template's.
fn take(status: &mut ImageTemplateStatus, image: &Image, wanted: &Wanted) {
    status.image = Some(Reference::pinned(&wanted.target.repository, &image.digest));
    status.digest = Some(image.digest.clone());
    status.short_digest = image
        .digest
        .strip_prefix("sha256:")
        .and_then(|digits| digits.get(..SHORT_DIGEST))
        .map(str::to_owned);
    status.tags = vec![wanted.target.tag.clone()];
    status.inputs_hash = Some(wanted.inputs_hash.clone());
    status.ray_version.clone_from(&image.found.ray);
    status.python_version.clone_from(&image.found.python);
}

fn is_retry(standing: &Standing<'_>) -> bool {
    let attempts = standing.current.and_then(|number| standing.builds.get(&number));
    attempts
        .and_then(Build::last)
        .is_some_and(|last| last.identity.attempt > 1)
        || standing
            .actions
            .iter()
            .any(|action| matches!(action, Action::Start(identity) if identity.attempt > 1))
}

/// The newest build, including one that is being started.
fn newest(standing: &Standing<'_>) -> Option<BuildStatus> {
    let started = standing.actions.iter().find_map(|action| match action {
        Action::Start(identity) => Some(identity),
        _ => None,
    });
    let newest = standing.builds.values().last();
    let identity: &Identity = started.or_else(|| newest.and_then(Build::identity))?;
    let uid = super::build::uid(standing.template);
    let build = standing.builds.get(&identity.number);
    let first = build.and_then(|build| build.attempts.first());
    let is_over = Some(identity.number) != standing.current
        || matches!(
            standing.phase,
            Phase::Ready(_) | Phase::Failed(_) | Phase::Cancelled(_) | Phase::Refused(_)
        );
    let kept = standing
        .old
        .build
        .as_ref()
        .filter(|old| old.number == identity.number);
    let completion = is_over.then(|| {
        let known = kept.and_then(|old| old.completion_time.clone());
        known.unwrap_or_else(|| Time(build.and_then(ended).unwrap_or(standing.now)))
    });
    Some(BuildStatus {
        number: identity.number,
        inputs_hash: identity.inputs_hash.clone(),
        reason: Some(identity.reason.clone()),
        job: Some(identity.job_name(&uid)),
        start_time: Some(Time(first.map_or(standing.now, |first| first.created))),
        completion_time: completion,
        attempts: identity.attempt,
    })
}

fn ended(build: &Build<'_>) -> Option<Timestamp> {
    let last = build.last()?;
    match &last.progress {
        Progress::Failed { time, .. } | Progress::Cancelled(time) | Progress::Superseded(time) => Some(*time),
        _ => last.ended,
    }
}

/// Records of ended builds: what the Jobs say, and what older statuses said of Jobs that are gone.
fn history(standing: &Standing<'_>) -> Vec<BuildRecord> {
    let mut records: BTreeMap<i32, BuildRecord> = standing
        .old
        .history
        .iter()
        .map(|record| (record.number, record.clone()))
        .collect();
    for (number, build) in standing.builds {
        let Some(last) = build.last() else { continue };
        if let Some(result) = result(standing, *number, last) {
            let time = ended(build);
            let known = records
                .get(number)
                .and_then(|record| record.completion_time.clone());
            records.insert(
                *number,
                BuildRecord {
                    number: *number,
                    inputs_hash: last.identity.inputs_hash.clone(),
                    image: match &last.progress {
                        Progress::Built(digest) => last
                            .identity
                            .destination
                            .rsplit_once(':')
                            .map(|(repository, _)| format!("{repository}@{digest}")),
                        _ => None,
                    },
                    result,
                    start_time: build.attempts.first().map(|first| Time(first.created)),
                    completion_time: known.or_else(|| Some(Time(time.unwrap_or(standing.now)))),
                },
            );
        }
    }
    let limit = usize::try_from(standing.history_limit).unwrap_or_default();
    records.into_values().rev().take(limit).collect()
}

/// How a build ended; none where it has not.
fn result(standing: &Standing<'_>, number: i32, last: &super::attempt::Attempt) -> Option<String> {
    let is_current = Some(number) == standing.current;
    if is_current {
        return match standing.phase {
            Phase::Ready(_) => Some("Succeeded".to_owned()),
            Phase::Failed(failure) => Some(format!("{:?}", failure.reason)),
            Phase::Cancelled(_) => Some("Cancelled".to_owned()),
            _ => None,
        };
    }
    Some(match &last.progress {
        Progress::Built(_) => match standing.verifications.get(&number) {
            Some((_, Verification::Failed(_))) => "RayMissing".to_owned(),
            _ => "Succeeded".to_owned(),
        },
        Progress::Failed { failure, .. } => format!("{:?}", failure.reason),
        Progress::Cancelled(_) => "Cancelled".to_owned(),
        _ => "Superseded".to_owned(),
    })
}

/// The three conditions.
fn statements(
    standing: &Standing<'_>,
    status: &ImageTemplateStatus,
) -> [(&'static str, bool, String, String); 3] {
    let (reason, message) = words(standing, status);
    let building = matches!(
        standing.phase,
        Phase::Building(_) | Phase::Retrying(..) | Phase::Waiting(_)
    );
    let failed = matches!(
        standing.phase,
        Phase::Failed(_) | Phase::Refused(_) | Phase::Cancelled(_)
    );
    let ready = status.image.is_some();
    let ready_message = match (ready, standing.phase) {
        (true, Phase::Ready(_)) | (false, _) => message.clone(),
        (true, _) => format!("the last good image stays in use; {message}"),
    };
    let other = |is: bool| if is { message.clone() } else { String::new() };
    [
        ("Ready", ready, reason.clone(), ready_message),
        ("Building", building, reason.clone(), other(building)),
        ("Failed", failed, reason, other(failed)),
    ]
}

fn words(standing: &Standing<'_>, status: &ImageTemplateStatus) -> (String, String) {
    let words = |reason: &str, message: &str| (reason.to_owned(), message.to_owned());
    match standing.phase {
        Phase::Refused(refusal) => (format!("{:?}", refusal.reason), refusal.message.clone()),
        Phase::Suspended => words("Suspended", "spec.suspend holds the build back"),
        Phase::Waiting(why) => words(SHARED_BUILD, why),
        Phase::Building(what) => words("Building", what),
        Phase::Retrying(failure, at) => {
            let next = format!(
                "next attempt at {at:.0}; {:?}: {}",
                failure.reason, failure.message
            );
            words(RETRYING, &next)
        }
        Phase::Ready(_) => words(
            "Built",
            &version_warning(&standing.template.spec.base_image, status.ray_version.as_deref())
                .unwrap_or_default(),
        ),
        Phase::Failed(failure) => (format!("{:?}", failure.reason), failure.message.clone()),
        Phase::Cancelled(number) => words(
            "Cancelled",
            &format!("build {number} was cancelled; change the spec or ask for a rebuild"),
        ),
    }
}

fn version_warning(base: &str, found: Option<&str>) -> Option<String> {
    let expected = base.parse().ok().and_then(|base| base_ray_version(&base))?;
    let found = found.filter(|found| **found != expected)?;
    Some(format!(
        "the image has Ray {found}, its base names {expected}: a package may have moved it"
    ))
}

/// An event to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    /// Whether somebody should look.
    pub(super) is_warning: bool,
    /// Machine-readable reason.
    pub(super) reason: String,
    /// Sentence for a person.
    pub(super) note: String,
}

/// What has turned between two statuses.
pub(super) fn notices(template: &ImageTemplate, new: &ImageTemplateStatus, phase: &Phase) -> Vec<Notice> {
    let old = template.status.clone().unwrap_or_default();
    let mut notices = Vec::new();
    let mut say = |is_warning: bool, reason: &str, note: String| {
        notices.push(Notice {
            is_warning,
            reason: reason.to_owned(),
            note,
        });
    };
    let key =
        |status: &ImageTemplateStatus| status.build.as_ref().map(|build| (build.number, build.attempts));
    if let (Some(build), true) = (&new.build, key(&old) != key(new)) {
        let reason = build.reason.as_deref().unwrap_or_default();
        say(
            false,
            "BuildStarted",
            format!(
                "build {}, attempt {} ({reason}): Job {}",
                build.number,
                build.attempts,
                build.job.as_deref().unwrap_or_default()
            ),
        );
    }
    if let (Some(image), true) = (&new.image, old.image != new.image) {
        say(false, "ImageReady", image.clone());
    }
    let failed = |status: &ImageTemplateStatus| {
        let list = status.conditions.as_deref().unwrap_or_default();
        conditions::find(list, "Failed")
            .filter(|it| it.status == "True")
            .map(|it| (it.reason.clone(), it.message.clone()))
    };
    if let (Some((reason, message)), true) = (failed(new), failed(&old) != failed(new)) {
        say(reason != "Cancelled", &reason, message);
    }
    if let (Phase::Retrying(failure, _), true) = (phase, old.failure != new.failure) {
        say(
            true,
            "BuildRetrying",
            format!("{:?}: {}", failure.reason, failure.message),
        );
    }
    if let (Phase::Ready(Some(image)), true) = (phase, old.image != new.image) {
        for note in surprises(template, image) {
            say(true, "ImageUnexpected", note);
        }
    }
    notices
}

/// What a built image has that its template did not say.
fn surprises(template: &ImageTemplate, image: &Image) -> Vec<String> {
    let spec = &template.spec;
    let unverified = image
        .unverified
        .as_ref()
        .map(|why| format!("the versions in {} are unknown: {why}", template.name_any()));
    version_warning(&spec.base_image, image.found.ray.as_deref())
        .into_iter()
        .chain(user_warning(spec, &image.found))
        .chain(unverified)
        .collect()
}

/// Where the image runs as another user than the spec says or its base's name suggests.
fn user_warning(spec: &ImageTemplateSpec, found: &Found) -> Option<String> {
    let user = found.user.as_deref()?;
    let guess = || spec.base_image.parse().ok().map(|base| default_user(&base));
    // A base that is not one of Ray's may run as whoever it likes.
    let named = |user: &&str| *user == "ray" || !spec.system_packages.is_empty();
    let expected = spec.user.as_deref().or_else(|| guess().filter(named))?;
    // `USER` also takes a number, and a group after a colon.
    let name = expected.split(':').next().unwrap_or_default();
    if name != user && found.uid.is_none_or(|uid| name != uid.to_string()) {
        return Some(format!(
            "the image runs as {user}, not as {expected}: set spec.user to the one that is meant"
        ));
    }
    // Packages of the system are installed as root, and who comes after it was guessed.
    let guessed_root = spec.user.is_none() && !spec.system_packages.is_empty() && user == "root";
    (guessed_root && found.has_ray_user).then(|| {
        "the image runs as root though it has a user ray: set spec.user to what the base image runs as"
            .to_owned()
    })
}
