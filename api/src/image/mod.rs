//! ImageTemplates, as far as no I/O is needed: from packages to a Dockerfile, from a failed build to a reason.
//!
//! ```text
//!   spec ── validate ─┬─ policy (what the platform team allows)
//!                     └─ render ─► BuildContext {Dockerfile, files} ─► inputs_hash
//!   ended container ── classify ─► BuildFailure {reason, message, logTail}
//! ```
//!
//! Webhook, operator and plugin call the same functions. No string of a user reaches the Dockerfile, a requirements
//! file or a command line as it was written: each is parsed and rendered again.

mod dockerfile;
mod failure;
mod packages;
mod policy;
mod reference;
mod requirement;
mod target;
mod validate;

use std::fmt;

pub use dockerfile::{
    BuildContext, CONTEXT_FOLDER, MAX_CONTEXT_BYTES, NETRC_PATH, default_user, inputs_hash, render,
};
pub use failure::{Ended, MAX_LOG_TAIL, classify, is_passing, log_tail, mask};
pub use packages::{conda_package, pip_package, system_package};
pub use policy::Policy;
pub use reference::{DOCKER_HUB, Reference, ReferenceError, Repository};
pub use target::{Target, base_ray_version};
pub use validate::{DEFAULT_TIMEOUT, netrc_hosts, timeout, validate, warnings};

/// A field that cannot be built as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Path of the field, as `spec.pipPackages[2]`.
    pub field: String,
    /// What is wrong, and what to write instead.
    pub message: String,
}

impl Invalid {
    /// A complaint about a field.
    pub fn new(field: impl Into<String>, message: impl fmt::Display) -> Self {
        Self {
            field: field.into(),
            message: message.to_string(),
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}
