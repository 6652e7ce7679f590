//! What to do next, and where a template stands: a pure function of what is wanted, what there is, and the time.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use ray_api::image::{Reference, is_passing};
use ray_api::meta::annotation;
use ray_api::template::v1alpha1::{BuildFailure, FailureReason, ImageTemplate, ImageTemplateStatus};

use super::attempt::{Attempt, Found, Identity, Progress, StopReason, Verification, failure};
use super::observe::Observed;
use super::phase::{Action, Build, Image, Phase};
use super::share::{self, Elsewhere};
use super::status;
use super::wanted::{Refusal, Wanted, is_suspended};

/// Retries of a build that failed for a passing reason.
const BACKOFF_LIMIT: i32 = 2;
/// Builds that are kept.
const HISTORY_LIMIT: i32 = 5;
/// First wait before a retry; doubles with each.
const BACKOFF: Duration = Duration::from_secs(10);
/// First wait after a registry said "too many".
const RATE_LIMIT_BACKOFF: Duration = Duration::from_secs(300);
/// Longest wait.
const MAX_BACKOFF: Duration = Duration::from_secs(900);
/// How often a pod that does not run yet is looked at: events about it do not wake us.
const PENDING_PERIOD: Duration = Duration::from_secs(5);
/// How often a running build is looked at, should a watch have missed its end.
const RUNNING_PERIOD: Duration = Duration::from_secs(60);
/// How often a build of another template is looked at.
const SIBLING_PERIOD: Duration = Duration::from_secs(10);

/// What to do, what to say, when to look again.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// Writes, in order.
    pub(super) actions: Vec<Action>,
    /// Where the template stands after them.
    pub(super) phase: Phase,
    /// Its status after them.
    pub(super) status: ImageTemplateStatus,
    /// When to look again; on the next change where absent.
    pub(super) requeue: Option<Duration>,
}

/// Decides.
pub(super) fn plan(
    template: &ImageTemplate,
    wanted: Result<&Wanted, &Refusal>,
    observed: &Observed,
    verify: bool,
    now: Timestamp,
) -> Plan {
    let planner = Planner::new(template, observed, now);
    let builds = planner.builds();
    let built = wanted.is_ok_and(|wanted| planner.is_built(wanted));
    let current = wanted.ok().filter(|_| !built);
    let current = current.and_then(|wanted| planner.current(&builds, wanted));
    // What nobody waits for any more ends first: the new build needs the room, and may push to the same tag.
    let mut actions = planner.tidy(&builds, current);
    let (phase, current) = match (wanted, current) {
        (Err(refusal), _) => (Phase::Refused(refusal.clone()), None),
        (Ok(_), _) if built => (Phase::Ready(None), None),
        (Ok(wanted), Some(number)) => (
            planner.proceed(builds.get(&number), wanted, verify, &mut actions),
            Some(number),
        ),
        (Ok(wanted), None) => planner.begin(wanted, &mut actions),
    };
    planner.drop_orphans(&mut actions);
    let requeue = planner.requeue(&phase, &actions, builds.values().last());
    let status = planner.status(wanted.ok(), &phase, &actions, &builds, current);
    Plan {
        actions,
        phase,
        status,
        requeue,
    }
}

/// Whether a build goes on in that phase.
pub(super) fn goes_on(template: &ImageTemplate, phase: &Phase) -> bool {
    match phase {
        Phase::Building(_) => true,
        Phase::Retrying(..) => !is_suspended(template),
        _ => false,
    }
}

/// Status and phase where the API server refuses what a plan was to start: there is no Job that could tell of it.
pub(super) fn refused(
    template: &ImageTemplate,
    wanted: &Wanted,
    observed: &Observed,
    plan: &Plan,
    why: &str,
    now: Timestamp,
) -> Option<(ImageTemplateStatus, Phase)> {
    let starts = |action: &Action| matches!(action, Action::Start(_) | Action::Verify(_));
    if !plan.actions.iter().any(starts) {
        return None;
    }
    let message = format!("the build's Job is refused, and tried again later: {why}");
    let phase = Phase::Failed(failure(FailureReason::BuildFailed, message));
    let planner = Planner::new(template, observed, now);
    let status = planner.status(Some(wanted), &phase, &[], &planner.builds(), None);
    Some((status, phase))
}

struct Planner<'a> {
    template: &'a ImageTemplate,
    observed: &'a Observed,
    now: Timestamp,
    old: ImageTemplateStatus,
}

impl<'a> Planner<'a> {
    fn new(template: &'a ImageTemplate, observed: &'a Observed, now: Timestamp) -> Self {
        Self {
            template,
            observed,
            now,
            old: template.status.clone().unwrap_or_default(),
        }
    }

    /// The status after the actions; `current` is the number of the build of what is wanted.
    fn status(
        &self,
        wanted: Option<&Wanted>,
        phase: &Phase,
        actions: &[Action],
        builds: &BTreeMap<i32, Build<'a>>,
        current: Option<i32>,
    ) -> ImageTemplateStatus {
        status::after(&status::Standing {
            template: self.template,
            old: &self.old,
            wanted,
            phase,
            actions,
            builds,
            verifications: &self.observed.verifications,
            current,
            history_limit: self.history_limit(),
            now: self.now,
        })
    }

    fn builds(&self) -> BTreeMap<i32, Build<'a>> {
        let mut builds: BTreeMap<i32, Build<'a>> = BTreeMap::new();
        for attempt in &self.observed.attempts {
            let build = builds
                .entry(attempt.identity.number)
                .or_insert_with(|| Build { attempts: Vec::new() });
            build.attempts.push(attempt);
        }
        builds
    }

    /// Whether the status already names the wanted image.
    fn is_built(&self, wanted: &Wanted) -> bool {
        let pinned = self
            .old
            .digest
            .as_deref()
            .map(|digest| Reference::pinned(&wanted.target.repository, digest));
        self.old.inputs_hash.as_ref() == Some(&wanted.inputs_hash)
            && pinned.is_some()
            && self.old.image == pinned
            && self.old.tags.contains(&wanted.target.tag)
            && !self.asks_for_rebuild(wanted)
    }

    /// Whether the rebuild annotation has a value that was not acted on.
    fn asks_for_rebuild(&self, wanted: &Wanted) -> bool {
        wanted.rebuild.is_some() && wanted.rebuild != self.old.rebuild
    }

    /// The build of what is wanted: the newest one, or an older one that succeeded.
    fn current(&self, builds: &BTreeMap<i32, Build<'a>>, wanted: &Wanted) -> Option<i32> {
        let newest = builds.keys().next_back().copied();
        let asks = self.asks_for_rebuild(wanted);
        builds.iter().rev().find_map(|(number, build)| {
            let last = build.last()?;
            let identity = &last.identity;
            let answers = identity.inputs_hash == wanted.inputs_hash
                && identity.destination == wanted.target.destination()
                && (!asks || identity.rebuild == wanted.rebuild);
            let stands = match last.progress {
                Progress::Superseded(_) => false,
                Progress::Built(_) => true,
                Progress::Running(_) => Some(*number) == newest,
                // Without an image, or not even begun: over once the spec says what may be missing.
                Progress::Pending(_) | Progress::Failed { .. } | Progress::Cancelled(_) => {
                    Some(*number) == newest && identity.settings == wanted.settings
                }
            };
            (answers && stands).then_some(*number)
        })
    }

    /// Takes a build one step further.
    fn proceed(
        &self,
        build: Option<&Build<'a>>,
        wanted: &Wanted,
        verify: bool,
        actions: &mut Vec<Action>,
    ) -> Phase {
        let Some(last) = build.and_then(Build::last) else {
            return Phase::Building("starting".to_owned());
        };
        let number = last.identity.number;
        match &last.progress {
            Progress::Built(digest) => self.verified(last, digest, verify, actions),
            Progress::Cancelled(_) | Progress::Superseded(_) => Phase::Cancelled(number),
            _ if self.is_cancelled(number) => {
                if last.progress.is_active() {
                    actions.push(Action::Stop(last.job.clone(), StopReason::Cancelled));
                }
                Phase::Cancelled(number)
            }
            Progress::Pending(why) => Phase::Building(why.clone()),
            Progress::Running(step) => Phase::Building(describe(step, wanted)),
            Progress::Failed { failure, time, stop } => {
                if *stop {
                    actions.push(Action::Stop(
                        last.job.clone(),
                        StopReason::Failed(Box::new(failure.clone())),
                    ));
                }
                self.retried(last, failure, *time, actions)
            }
        }
    }

    fn verified(&self, last: &Attempt, digest: &str, verify: bool, actions: &mut Vec<Action>) -> Phase {
        let ready = |found, unverified| {
            Phase::Ready(Some(Image {
                digest: digest.to_owned(),
                found,
                unverified,
            }))
        };
        if !verify {
            return ready(Found::default(), None);
        }
        let number = last.identity.number;
        match self.observed.verifications.get(&number).map(|(_, state)| state) {
            None => {
                actions.push(Action::Verify(Identity {
                    verifies: Some(digest.to_owned()),
                    ..last.identity.clone()
                }));
                Phase::Building("the image is pushed; starting it once to read its versions".to_owned())
            }
            Some(Verification::Running) => {
                Phase::Building("starting the image once to read its versions".to_owned())
            }
            Some(Verification::Found(found)) => ready(found.clone(), None),
            Some(Verification::Unavailable(why)) => ready(Found::default(), Some(why.clone())),
            Some(Verification::Failed(why)) => {
                let message = format!("Ray does not start in the image: {why}");
                Phase::Failed(failure(FailureReason::RayMissing, message))
            }
        }
    }

    fn retried(
        &self,
        last: &Attempt,
        failure: &BuildFailure,
        time: Timestamp,
        actions: &mut Vec<Action>,
    ) -> Phase {
        let attempt = last.identity.attempt;
        let limit = self.template.spec.backoff_limit.unwrap_or(BACKOFF_LIMIT);
        if !is_passing(failure.reason) || attempt > limit {
            return Phase::Failed(failure.clone());
        }
        let at = time.checked_add(backoff(failure.reason, attempt)).unwrap_or(time);
        if is_suspended(self.template) || self.now < at {
            return Phase::Retrying(failure.clone(), at);
        }
        actions.push(Action::Start(Identity {
            attempt: attempt + 1,
            ..last.identity.clone()
        }));
        Phase::Building(format!("attempt {} after: {}", attempt + 1, failure.message))
    }

    /// Starts a build, unless somebody else's will do.
    fn begin(&self, wanted: &Wanted, actions: &mut Vec<Action>) -> (Phase, Option<i32>) {
        if is_suspended(self.template) {
            return (Phase::Suspended, None);
        }
        let asks = self.asks_for_rebuild(wanted);
        if !asks {
            match share::elsewhere(self.template, &self.observed.siblings, wanted) {
                Elsewhere::Built(image) => return (Phase::Ready(Some(image)), None),
                Elsewhere::Building(by) => {
                    return (
                        Phase::Waiting(format!("ImageTemplate {by} builds the same image")),
                        None,
                    );
                }
                Elsewhere::Nothing => {}
            }
        }
        let last = self
            .observed
            .attempts
            .iter()
            .map(|attempt| attempt.identity.number);
        let recorded = self
            .old
            .history
            .iter()
            .map(|record| record.number)
            .chain(self.old.build.iter().map(|b| b.number));
        let number = last.chain(recorded).max().unwrap_or_default() + 1;
        let reason = match (number, asks) {
            (1, _) => "Created",
            (_, true) => "Requested",
            (_, false) => "SpecChanged",
        };
        actions.push(Action::Start(Identity {
            number,
            attempt: 1,
            inputs_hash: wanted.inputs_hash.clone(),
            destination: wanted.target.destination(),
            settings: wanted.settings.clone(),
            reason: reason.to_owned(),
            rebuild: wanted.rebuild.clone(),
            verifies: None,
        }));
        (Phase::Building("starting".to_owned()), Some(number))
    }

    /// Stops what nobody waits for, and deletes what is older than the history.
    fn tidy(&self, builds: &BTreeMap<i32, Build<'a>>, current: Option<i32>) -> Vec<Action> {
        let mut actions = Vec::new();
        let others = || builds.iter().filter(|(number, _)| Some(**number) != current);
        for attempt in others()
            .flat_map(|(_, build)| &build.attempts)
            .filter(|attempt| attempt.progress.is_active())
        {
            actions.push(Action::Stop(attempt.job.clone(), StopReason::Superseded));
        }
        let keep = usize::try_from(self.history_limit()).unwrap_or_default().max(1);
        let kept: Vec<i32> = builds.keys().rev().take(keep).copied().collect();
        for (number, build) in others().filter(|(number, _)| !kept.contains(number)) {
            if build.attempts.iter().any(|attempt| attempt.progress.is_active()) {
                continue;
            }
            let verification = self.observed.verifications.get(number).map(|(job, _)| job);
            let jobs = build
                .attempts
                .iter()
                .map(|attempt| &attempt.job)
                .chain(verification);
            actions.extend(jobs.cloned().map(Action::Delete));
        }
        actions
    }

    /// Deletes ConfigMaps whose Jobs are gone, other than that of a Job which is about to be created.
    fn drop_orphans(&self, actions: &mut Vec<Action>) {
        let uid = self.template.uid().unwrap_or_default();
        let started: Vec<_> = actions
            .iter()
            .filter_map(|action| match action {
                Action::Start(identity) => Some(identity.job_name(&uid)),
                _ => None,
            })
            .collect();
        let orphans = self
            .observed
            .orphans
            .iter()
            .filter(|name| !started.contains(name));
        actions.extend(orphans.cloned().map(Action::DeleteConfigMap));
    }

    fn requeue(&self, phase: &Phase, actions: &[Action], newest: Option<&Build<'a>>) -> Option<Duration> {
        let pending = newest
            .and_then(Build::last)
            .is_none_or(|last| matches!(last.progress, Progress::Pending(_)));
        match phase {
            Phase::Waiting(_) => Some(SIBLING_PERIOD),
            Phase::Retrying(..) if is_suspended(self.template) => None,
            Phase::Retrying(_, at) => {
                let wait = at.duration_since(self.now).max(SignedDuration::from_secs(1));
                Duration::try_from(wait).ok()
            }
            Phase::Building(_) if pending || !actions.is_empty() => Some(PENDING_PERIOD),
            // A verification's pod may be stuck on an image that cannot be pulled.
            Phase::Building(_)
                if newest
                    .and_then(Build::last)
                    .is_some_and(|it| matches!(it.progress, Progress::Built(_))) =>
            {
                Some(PENDING_PERIOD)
            }
            Phase::Building(_) => Some(RUNNING_PERIOD),
            _ => None,
        }
    }

    fn is_cancelled(&self, number: i32) -> bool {
        self.template
            .annotations()
            .get(annotation::CANCEL)
            .is_some_and(|text| text.trim() == number.to_string())
    }

    fn history_limit(&self) -> i32 {
        self.template.spec.history_limit.unwrap_or(HISTORY_LIMIT)
    }
}

fn backoff(reason: FailureReason, attempt: i32) -> SignedDuration {
    let first = if reason == FailureReason::RateLimited {
        RATE_LIMIT_BACKOFF
    } else {
        BACKOFF
    };
    let doubled = first.saturating_mul(1 << attempt.clamp(1, 10).saturating_sub(1));
    SignedDuration::try_from(doubled.min(MAX_BACKOFF)).unwrap_or(SignedDuration::ZERO)
}

fn describe(step: &str, wanted: &Wanted) -> String {
    match step {
        "secrets" => "checking the Secrets".to_owned(),
        "context" => "preparing the files".to_owned(),
        "build" => "building".to_owned(),
        "seal" => "checking what was built".to_owned(),
        _ => format!("pushing to {}", wanted.target.destination()),
    }
}
