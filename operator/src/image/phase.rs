//! The words between plan, execute and status: what to do, where a template stands, what a build is.

use k8s_openapi::jiff::Timestamp;
use ray_api::template::v1alpha1::BuildFailure;

use super::attempt::{Attempt, Found, Identity, StopReason};
use super::wanted::Refusal;

/// A write to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Create the ConfigMap and Job of an attempt.
    Start(Identity),
    /// Create the Job that starts the image once.
    Verify(Identity),
    /// End a Job that has not ended, and keep it as the record of why.
    Stop(String, StopReason),
    /// Delete a Job and its ConfigMap.
    Delete(String),
    /// Delete a ConfigMap whose Job is gone.
    DeleteConfigMap(String),
}

/// Where a template stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Phase {
    /// It cannot be built as it is written.
    Refused(Refusal),
    /// It may not be built now.
    Suspended,
    /// Another template builds the same.
    Waiting(String),
    /// A build goes on.
    Building(String),
    /// A build failed and will be tried again at that time.
    Retrying(BuildFailure, Timestamp),
    /// The image is there.
    Ready(Option<Image>),
    /// The newest build failed for good.
    Failed(BuildFailure),
    /// The newest build was cancelled.
    Cancelled(i32),
}

/// An image that has just become the template's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Image {
    /// Its digest.
    pub(super) digest: String,
    /// What is in it.
    pub(super) found: Found,
    /// Why nothing is known of it, where nothing is.
    pub(super) unverified: Option<String>,
}

/// A build: attempts of one number.
#[derive(Clone, Debug)]
pub(super) struct Build<'a> {
    /// Its attempts, oldest first; never empty.
    pub(super) attempts: Vec<&'a Attempt>,
}

impl<'a> Build<'a> {
    pub(super) fn identity(&self) -> Option<&'a Identity> {
        self.last().map(|last| &last.identity)
    }

    pub(super) fn last(&self) -> Option<&'a Attempt> {
        self.attempts.last().copied()
    }
}
