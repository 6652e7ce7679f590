//! One admission question: what is asked, what is answered, and what both share.

mod mutate;
mod template;
mod validate;

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview};
use ray_api::expand::{Denial, Needed};
use ray_api::image::{Invalid, Policy};
use serde::Deserialize;
use serde_json::Value;

pub use mutate::mutate;
pub use template::{validate_compute, validate_image};
pub use validate::validate;

use crate::templates::{ReadError, TemplateReader};

/// What every question may use.
#[derive(Clone)]
pub struct Context {
    /// For reviews of access.
    pub client: Client,
    /// The templates.
    pub templates: TemplateReader,
    /// Rules for image templates.
    pub policy: Policy,
    /// Users need the verb `use` on templates.
    pub require_use: bool,
}

/// A positive answer.
#[derive(Debug, Default)]
pub struct Allowed {
    /// The object in place of the one that was sent.
    pub object: Option<Value>,
    /// Sentences for the user.
    pub warnings: Vec<String>,
}

impl Allowed {
    /// For a namespace that is not among `--watch-namespace`: there we may not read what we would have to.
    #[must_use]
    pub fn unwatched(namespace: &str) -> Self {
        let warning =
            format!("kubectl-ray does not watch namespace {namespace}: nothing is filled in or checked");
        Self {
            object: None,
            warnings: vec![warning],
        }
    }
}

/// A negative answer.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Fields are wrong.
    #[error("{}", Lines(.0))]
    Invalid(Vec<Denial>),
    /// The user lacks a right.
    #[error("{user} may not use {template}: ask for the verb `use` on it")]
    Forbidden {
        /// The user's name.
        user: String,
        /// The template.
        template: Needed,
    },
    /// The API server could not be asked. Trying again helps.
    #[error("{0}")]
    Read(#[from] ReadError),
    /// As above, for access reviews.
    #[error("cannot review access to templates: {0}")]
    Access(#[source] kube::Error),
}

impl Refusal {
    /// HTTP status code and reason, as the API server would give for its own checks.
    fn status(&self) -> (u16, &'static str) {
        match self {
            Self::Invalid(_) => (422, "Invalid"),
            Self::Forbidden { .. } => (403, "Forbidden"),
            Self::Read(_) | Self::Access(_) => (503, "ServiceUnavailable"),
        }
    }

    /// Value of the metrics' `result`.
    #[must_use]
    pub fn result(&self) -> &'static str {
        match self {
            Self::Invalid(_) | Self::Forbidden { .. } => "denied",
            Self::Read(_) | Self::Access(_) => "error",
        }
    }
}

struct Lines<'a>(&'a [Denial]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, denial) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{denial}")?;
        }
        Ok(())
    }
}

/// A request, its objects as raw JSON: fields that we do not know must pass through.
pub struct Asked {
    /// Who asks for what; the objects are taken out.
    pub request: AdmissionRequest<DynamicObject>,
    /// The object to be.
    pub object: Value,
    /// The object as it is.
    pub old_object: Option<Value>,
}

impl Asked {
    /// Reads a review, as an API server posts it.
    ///
    /// # Errors
    /// When it is none, or carries no object: the configurations ask for creates and updates only.
    pub fn read(body: &[u8]) -> Result<Self, String> {
        let no_review = |error: serde_json::Error| format!("not an AdmissionReview: {error}");
        let mut review: Value = serde_json::from_slice(body).map_err(no_review)?;
        let mut take = |pointer: &str| review.pointer_mut(pointer).map(Value::take);
        let object = take("/request/object").unwrap_or_default();
        let old_object = take("/request/oldObject").filter(|old| !old.is_null());
        let review: AdmissionReview<DynamicObject> = serde_json::from_value(review).map_err(no_review)?;
        let request = review
            .try_into()
            .map_err(|error| format!("not an AdmissionReview with a request: {error}"))?;
        // A patch is for the object as it was sent: without metadata it would find nothing to change there.
        if object.is_null() || metadata(&object).map_err(no_review)? == ObjectMeta::default() {
            return Err("the request cannot be judged: it has no object, or one without metadata".to_owned());
        }
        if let Some(old) = &old_object {
            metadata(old).map_err(no_review)?;
        }
        Ok(Self {
            request,
            object,
            old_object,
        })
    }

    /// The object's namespace, empty for cluster-wide kinds.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.request.namespace.as_deref().unwrap_or_default()
    }

    /// What `ray-api` calls a request.
    fn as_expansion(&self) -> ray_api::expand::Request<'_> {
        let options = self.request.options.as_ref();
        ray_api::expand::Request {
            namespace: self.namespace(),
            object: &self.object,
            old_object: self.old_object.as_ref(),
            dry_run: self.request.dry_run,
            field_manager: options.and_then(|options| options.0.get("fieldManager")?.as_str()),
        }
    }
}

/// An object's metadata, which expansion takes to be well-formed.
fn metadata(object: &Value) -> serde_json::Result<ObjectMeta> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default)]
        metadata: ObjectMeta,
    }
    Named::deserialize(object).map(|named| named.metadata)
}

/// The answer to a request, as the API server wants it.
///
/// # Errors
/// When the patch cannot be written, which its types rule out.
pub fn respond(asked: &Asked, answer: &Result<Allowed, Refusal>) -> Result<AdmissionResponse, String> {
    let response = AdmissionResponse::from(&asked.request);
    match answer {
        Ok(Allowed { object, warnings }) => {
            let patch = object
                .as_ref()
                .map(|object| json_patch::diff(&asked.object, object));
            let mut response = match patch.filter(|patch| !patch.0.is_empty()) {
                Some(patch) => response.with_patch(patch).map_err(|error| error.to_string())?,
                None => response,
            };
            response.warnings = (!warnings.is_empty()).then(|| warnings.clone());
            Ok(response)
        }
        Err(refusal) => {
            let mut response = response.deny(refusal);
            let (code, reason) = refusal.status();
            response.result.code = code;
            response.result.reason = reason.to_owned();
            Ok(response)
        }
    }
}

/// Refuses what is wrong now and was not before: an old fault must not block a cluster's other changes.
fn refuse_new(new: Vec<Denial>, old: &[Denial]) -> Result<(), Refusal> {
    let new: Vec<_> = new.into_iter().filter(|denial| !old.contains(denial)).collect();
    if new.is_empty() {
        Ok(())
    } else {
        Err(Refusal::Invalid(new))
    }
}

fn denial(invalid: Invalid) -> Denial {
    Denial {
        field: invalid.field,
        message: invalid.message,
    }
}
