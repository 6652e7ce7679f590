//! An attempt at a build: its Job's name and annotations, written and read in one place.
//!
//! Everything that the status says about builds can be read back from their Jobs, so that an operator that was killed
//! at any point goes on where it was.

use std::collections::BTreeMap;
use std::fmt::Write;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use ray_api::template::v1alpha1::{BuildFailure, FailureReason};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Annotation of a Job: its [`Identity`] as JSON.
const BUILD: &str = "templates.ray.io/build";
/// Annotation of a Job that was stopped: its [`Stopped`] as JSON.
pub(super) const STOPPED: &str = "templates.ray.io/stopped";
/// Hexadecimal digits of a name's hash.
const NAME_DIGITS: usize = 12;

/// What a Job is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Identity {
    /// Number of the build, from 1.
    pub(super) number: i32,
    /// Number of the attempt, from 1.
    pub(super) attempt: i32,
    /// Hash of its inputs.
    pub(super) inputs_hash: String,
    /// Where it pushes, with tag.
    pub(super) destination: String,
    /// Hash of what decides whether it can succeed, rather than what it makes.
    #[serde(default)]
    pub(super) settings: String,
    /// Why the build was started.
    pub(super) reason: String,
    /// Rebuild annotation that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rebuild: Option<String>,
    /// Digest that a verification looks at; absent on builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) verifies: Option<String>,
}

impl Identity {
    /// Name of its Job and ConfigMap: the same after every restart, without any text of a user.
    pub(super) fn job_name(&self, template_uid: &str) -> String {
        let mut hash = Sha256::new();
        for part in [
            template_uid,
            &self.number.to_string(),
            &self.inputs_hash,
            &self.destination,
        ] {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        let mut name = String::from("ray-image-");
        for byte in hash.finalize().iter().take(NAME_DIGITS / 2) {
            let _ = write!(name, "{byte:02x}");
        }
        let _ = write!(name, "-{}", self.attempt);
        if self.verifies.is_some() {
            name.push_str("-verify");
        }
        name
    }

    /// The annotations that carry it.
    pub(super) fn annotations(&self) -> BTreeMap<String, String> {
        let text = serde_json::to_string(self).unwrap_or_default();
        BTreeMap::from([(BUILD.to_owned(), text)])
    }

    /// Reads it from a Job; none where the Job is not one of ours.
    pub(super) fn of(job: &Job) -> Option<Self> {
        serde_json::from_str(job.annotations().get(BUILD)?).ok()
    }
}

/// Why the controller ended a Job that had not ended by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stopped {
    /// When.
    pub(super) time: Timestamp,
    /// Why.
    pub(super) why: StopReason,
}

/// Why a Job was stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum StopReason {
    /// By the cancel annotation.
    Cancelled,
    /// The template changed.
    Superseded,
    /// It could not go on.
    Failed(Box<BuildFailure>),
}

impl Stopped {
    /// Reads it from a Job.
    pub(super) fn of(job: &Job) -> Option<Self> {
        serde_json::from_str(job.annotations().get(STOPPED)?).ok()
    }
}

/// How far a build's Job has come.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Progress {
    /// Its pod does not run yet, and why.
    Pending(String),
    /// A container of its pod runs.
    Running(String),
    /// It pushed this digest.
    Built(String),
    /// It failed.
    Failed {
        /// Why.
        failure: BuildFailure,
        /// When.
        time: Timestamp,
        /// Whether its Job must still be stopped.
        stop: bool,
    },
    /// It was cancelled, at that time.
    Cancelled(Timestamp),
    /// It was superseded, at that time.
    Superseded(Timestamp),
}

impl Progress {
    /// Whether its Job may still do something.
    pub(super) fn is_active(&self) -> bool {
        matches!(
            self,
            Self::Pending(_) | Self::Running(_) | Self::Failed { stop: true, .. }
        )
    }
}

/// What a built image turned out to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Found {
    /// Version of Ray.
    #[serde(default)]
    pub(super) ray: Option<String>,
    /// Version of Python.
    #[serde(default)]
    pub(super) python: Option<String>,
    /// User that the image runs as.
    #[serde(default)]
    pub(super) user: Option<String>,
    /// That user's number.
    #[serde(default)]
    pub(super) uid: Option<u32>,
    /// Whether the image has a user `ray`.
    #[serde(default)]
    pub(super) has_ray_user: bool,
}

/// How far a verification has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verification {
    /// It has not ended.
    Running,
    /// It ran.
    Found(Found),
    /// The image does not run Ray, and why.
    Failed(String),
    /// Nothing could be learnt, and why.
    Unavailable(String),
}

/// An attempt and its Job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attempt {
    /// Name of the Job.
    pub(super) job: String,
    /// What it is for.
    pub(super) identity: Identity,
    /// When its Job was created.
    pub(super) created: Timestamp,
    /// When its Job ended, if it did.
    pub(super) ended: Option<Timestamp>,
    /// How far it has come.
    pub(super) progress: Progress,
}

/// A failure without a log.
pub(super) fn failure(reason: FailureReason, message: impl Into<String>) -> BuildFailure {
    BuildFailure {
        reason,
        message: message.into(),
        log_tail: None,
        exit_code: None,
    }
}
