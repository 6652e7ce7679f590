//! What a template asks for, once everything that can be wrong with it has been said.

use std::time::Duration;

use kube::ResourceExt;
use ray_api::image::{self, BuildContext, Invalid, Policy, Target};
use ray_api::meta::annotation;
use ray_api::template::v1alpha1::{FailureReason, ImageTemplate, ImageTemplateSpec};
use serde_json::json;
use sha2::{Digest, Sha256};

/// An image that should exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Dockerfile and files.
    pub(super) context: BuildContext,
    /// Hash of them.
    pub(super) inputs_hash: String,
    /// Where it goes.
    pub(super) target: Target,
    /// Hash of what decides whether a build of it can succeed, rather than what it makes.
    pub(super) settings: String,
    /// Longest time of an attempt.
    pub(super) timeout: Duration,
    /// Value of the rebuild annotation.
    pub(super) rebuild: Option<String>,
}

/// Why nothing is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// `InvalidSpec` or `PolicyDenied`.
    pub(super) reason: FailureReason,
    /// Every field that is wrong.
    pub(super) message: String,
}

/// Renders a template under the platform team's policy.
pub(super) fn wanted(template: &ImageTemplate, policy: &Policy) -> Result<Wanted, Refusal> {
    let refuse = |reason| {
        move |invalid: Vec<Invalid>| Refusal {
            reason,
            message: invalid
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; "),
        }
    };
    let invalid = refuse(FailureReason::InvalidSpec);
    let (namespace, name) = (template.namespace().unwrap_or_default(), template.name_any());
    let problems = image::validate(&template.spec);
    if !problems.is_empty() {
        return Err(invalid(problems));
    }
    let denied = policy.check(&namespace, &name, &template.spec);
    if !denied.is_empty() {
        return Err(refuse(FailureReason::PolicyDenied)(denied));
    }
    let context = image::render(&template.spec).map_err(&invalid)?;
    let inputs_hash = image::inputs_hash(&context);
    let target = Target::resolve(policy, &namespace, &name, &template.spec, &inputs_hash)
        .map_err(|problem| invalid(vec![problem]))?;
    let timeout = image::timeout(&template.spec).map_err(|problem| invalid(vec![problem]))?;
    Ok(Wanted {
        settings: settings(&template.spec, &target),
        context,
        inputs_hash,
        target,
        timeout,
        rebuild: template.annotations().get(annotation::REBUILD).cloned(),
    })
}

/// Whether nothing new is to be begun.
pub(super) fn is_suspended(template: &ImageTemplate) -> bool {
    template.spec.suspend == Some(true)
}

/// What a build that failed may have lacked: a change of any of these is worth another build of the same inputs.
fn settings(spec: &ImageTemplateSpec, target: &Target) -> String {
    let settings = json!({
        "resources": spec.resources,
        "nodeSelector": spec.node_selector,
        "tolerations": spec.tolerations,
        "timeout": spec.timeout,
        "backoffLimit": spec.backoff_limit,
        "pushSecret": target.push_secret,
        "pullSecrets": spec.pull_secrets,
        "credentialsSecret": spec.pip.as_ref().and_then(|pip| pip.credentials_secret.as_ref()),
        "cache": spec.cache,
    });
    let hash = Sha256::digest(settings.to_string());
    hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
