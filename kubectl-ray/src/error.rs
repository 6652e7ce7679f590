//! What went wrong, the exit code it means, and what to do next.

use std::fmt;
use std::io;

use kube::core::Status;

/// Result of everything that can fail in front of a person.
pub type Result<T> = std::result::Result<T, Failure>;

/// Exit codes; documented, so they never change their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// Failed.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// A named object does not exist.
    NotFound = 3,
    /// Denied by admission, validation or access control.
    Denied = 4,
    /// Waited for too long.
    TimedOut = 5,
}

/// An error in front of a person.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What is wrong, and where.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// Whether the same may succeed a moment later.
    pub(crate) retriable: bool,
    broken_pipe: bool,
}

impl Failure {
    /// A failure with this exit code.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            hint: None,
            retriable: false,
            broken_pipe: false,
        }
    }

    /// Something failed, without a code of its own.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// The command line is wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// A named object does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Exit::NotFound, message)
    }

    /// Waited for too long.
    pub fn timed_out(message: impl Into<String>) -> Self {
        Self::new(Exit::TimedOut, message)
    }

    /// Adds what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says what was being done.
    #[must_use]
    pub fn context(mut self, doing: impl fmt::Display) -> Self {
        self.message = format!("{doing}: {}", self.message);
        self
    }

    /// Whether the reader of our output has gone away, which is no failure.
    #[must_use]
    pub fn is_broken_pipe(&self) -> bool {
        self.broken_pipe
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self {
            broken_pipe: error.kind() == io::ErrorKind::BrokenPipe,
            ..Self::failed(error.to_string())
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        if let Some(kind) = error.io_error_kind() {
            return io::Error::from(kind).into();
        }
        Self::failed(format!("unexpected JSON: {error}"))
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => from_status(&status),
            kube::Error::Service(error) => match error.downcast::<Failure>() {
                Ok(failure) => *failure,
                Err(error) => Self::failed(error.to_string()),
            },
            kube::Error::Auth(error) => error.into(),
            kube::Error::InferKubeconfig(error) => error.into(),
            other => Self::failed(other.to_string()),
        }
    }
}

impl From<kube::client::AuthError> for Failure {
    fn from(error: kube::client::AuthError) -> Self {
        Self::new(Exit::Denied, format!("cannot get credentials: {error}")).hint(
            "log in again, or check the user's entry in your kubeconfig (`kubectl config view --minify`)",
        )
    }
}

impl From<kube::config::KubeconfigError> for Failure {
    fn from(error: kube::config::KubeconfigError) -> Self {
        Self::failed(format!("kubeconfig: {error}")).hint(
            "check KUBECONFIG, --kubeconfig, --context, --cluster and --user (`kubectl config get-contexts`)",
        )
    }
}

impl From<kube::runtime::watcher::Error> for Failure {
    fn from(error: kube::runtime::watcher::Error) -> Self {
        use kube::runtime::watcher::Error as Watch;
        match error {
            Watch::InitialListFailed(e) | Watch::WatchStartFailed(e) | Watch::WatchFailed(e) => e.into(),
            Watch::WatchError(status) => from_status(&status),
            other => Self::failed(other.to_string()),
        }
    }
}

/// How often a race that was lost to another writer is run again.
pub(crate) const RACES: u32 = 5;

/// All that the API server says when a `test` of a JSON patch fails: it drops the cause.
const FAILED_TEST: &str = "the server rejected our request due to an error in our request";

/// Whether somebody else wrote between our reading and our patch, so that reading again may help.
pub(crate) fn is_lost_race(status: &Status) -> bool {
    status.code == 409 || (status.code == 422 && status.message == FAILED_TEST)
}

/// The server's own words, never shortened; the reason decides the exit code.
fn from_status(status: &Status) -> Failure {
    let message = if status.message.is_empty() {
        format!("the server answered {} {}", status.code, status.reason)
    } else {
        status.message.clone()
    };
    let failure = Failure::new(exit_of(status), message);
    match hint_for(status) {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn exit_of(status: &Status) -> Exit {
    let denied_by_webhook = status.message.starts_with("admission webhook");
    match status.code {
        _ if denied_by_webhook => Exit::Denied,
        _ if is_lost_race(status) => Exit::Failed,
        401 | 403 | 422 => Exit::Denied,
        400 if status.reason != "BadRequest" || status.message.contains("strict decoding error") => {
            Exit::Denied
        }
        404 => Exit::NotFound,
        504 => Exit::TimedOut,
        _ => Exit::Failed,
    }
}

fn hint_for(status: &Status) -> Option<&'static str> {
    match status.code {
        _ if status.message.contains("failed calling webhook") => Some(
            "the webhook did not answer; objects that name no template do not need it (`kubectl ray doctor`)",
        ),
        401 => {
            Some("your credentials were refused or have expired: log in again, or check --user and --token")
        }
        403 if status.reason == "Forbidden" && status.message.contains("cannot ") => {
            Some("ask an administrator for this right (`kubectl auth can-i --list`)")
        }
        404 if names_no_object(status) => {
            Some("the API server does not know this kind: are the CRDs installed? (`kubectl ray doctor`)")
        }
        409 if status.reason == "AlreadyExists" => {
            Some("choose another name, or delete the existing one first")
        }
        _ if is_lost_race(status) => Some("others keep changing the object: try again"),
        429 => Some("the API server is overloaded: try again later"),
        500..=599 => Some("the API server has a problem: try again, or tell its administrator"),
        _ => None,
    }
}

/// An unknown kind gives 404 without the name of an object.
fn names_no_object(status: &Status) -> bool {
    status
        .details
        .as_ref()
        .is_none_or(|details| details.name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, reason: &str, message: &str) -> Failure {
        kube::Error::Api(Status::failure(message, reason).with_code(code).boxed()).into()
    }

    #[test]
    fn exit_codes_follow_the_servers_reason() {
        let denied = "admission webhook \"mutate.templates.ray.io\" denied the request: no template";
        for (code, reason, message, exit) in [
            (
                404,
                "NotFound",
                "rayclusters.ray.io \"x\" not found",
                Exit::NotFound,
            ),
            (403, "Forbidden", "User cannot list", Exit::Denied),
            (401, "Unauthorized", "Unauthorized", Exit::Denied),
            (422, "Invalid", "spec.x: Invalid value", Exit::Denied),
            (400, "", denied, Exit::Denied),
            (409, "AlreadyExists", "exists", Exit::Failed),
            (500, "InternalError", "failed calling webhook \"x\"", Exit::Failed),
            (504, "Timeout", "slow", Exit::TimedOut),
        ] {
            let failure = status(code, reason, message);
            assert_eq!(failure.exit, exit, "{code} {reason}");
            assert_eq!(failure.message, message);
        }
    }

    #[test]
    fn a_broken_pipe_is_no_failure() {
        assert!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)).is_broken_pipe());
        assert!(!Failure::failed("x").is_broken_pipe());
    }
}
