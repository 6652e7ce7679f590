//! What went wrong, as status, events and retries see it.

use std::time::Duration;

use super::memory::Setback;

/// Writes that the API server does not answer are given up: the next pass looks what became of them.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// An error of a request.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    /// The API server, or the way to it.
    #[error("{}", said(.0))]
    Kube(#[from] kube::Error),
    /// No answer.
    #[error("no answer from the API server within {WRITE_TIMEOUT:?}")]
    Timeout,
    /// An object could not be written down.
    #[error("cannot serialise the object: {0}")]
    Serialise(#[from] serde_json::Error),
    /// The name belongs to somebody else.
    #[error("{kind} {name} exists and is not owned by this RayCluster: rename or delete it")]
    NotOurs {
        /// Kind of the object.
        kind: &'static str,
        /// Its name.
        name: String,
    },
}

/// The API server's own sentence; the client's text repeats it among all fields of the answer.
fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}

impl RequestError {
    /// The API server's answer, where there was one.
    fn status(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Kube(kube::Error::Api(status)) => Some(status),
            _ => None,
        }
    }

    /// Whether the object is certainly not there because of this request.
    #[must_use]
    pub(super) fn is_refusal(&self) -> bool {
        self.status()
            .is_some_and(|status| (400..500).contains(&status.code) && status.code != 409)
    }

    /// Whether the name is taken, perhaps by an earlier attempt of ours.
    #[must_use]
    pub(super) fn is_already_exists(&self) -> bool {
        self.status().is_some_and(kube::core::Status::is_already_exists)
    }

    /// Whether the object is gone.
    #[must_use]
    pub(super) fn is_not_found(&self) -> bool {
        self.status().is_some_and(kube::core::Status::is_not_found)
    }

    /// Whether the object is another one by now, or was changed meanwhile.
    #[must_use]
    pub(super) fn is_conflict(&self) -> bool {
        self.status().is_some_and(kube::core::Status::is_conflict)
    }

    /// How its group is held back.
    #[must_use]
    pub(super) fn setback(&self) -> Setback {
        let quota = self
            .status()
            .is_some_and(|status| status.message.contains("exceeded quota"));
        if quota { Setback::Quota } else { Setback::Refused }
    }
}

/// Something that a pass could not do; the others go on.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// Reason of condition and event, KubeRay's words.
    pub reason: &'static str,
    /// What was tried: `Create`, `Delete`, `Update`.
    pub action: &'static str,
    /// What, and what the API server said.
    pub message: String,
}

impl Failure {
    /// Of a request about `what`.
    #[must_use]
    pub(super) fn new(reason: &'static str, action: &'static str, what: &str, error: &RequestError) -> Self {
        Self {
            reason,
            action,
            message: format!("{what}: {error}"),
        }
    }
}

/// Why a pass has to be repeated soon.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The status could not be written.
    #[error("cannot write the status: {0}")]
    Status(#[source] RequestError),
    /// The finalizer could not be written.
    #[error("cannot write the finalizer: {0}")]
    Finalizer(#[source] RequestError),
    /// Something was not done.
    #[error("{0}")]
    Incomplete(String),
}
