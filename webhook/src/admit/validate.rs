//! Validates a RayCluster as it will be stored, after all mutation.

use ray_api::expand::{Denial, check_gate};
use ray_api::ray::RayCluster;
use ray_api::validate::{cluster, new_errors, warnings};
use serde::Deserialize;
use serde_json::Value;

use super::{Allowed, Asked, Refusal, refuse_new};

/// Refuses a RayCluster that the cluster controller could not run.
///
/// # Errors
/// When a field is wrong that was not wrong before.
pub fn validate(asked: &Asked) -> Result<Allowed, Refusal> {
    let gate = |object: &Value| check_gate(object).into_iter().collect::<Vec<_>>();
    let old_gate = asked.old_object.as_ref().map(gate).unwrap_or_default();
    refuse_new(gate(&asked.object), &old_gate)?;

    let new = match RayCluster::deserialize(&asked.object) {
        Ok(new) => new,
        // The CRD's schema has the last word on shapes; another one than ours may allow more.
        Err(error) => {
            let warnings = vec![format!(
                "the cluster is not checked by kubectl-ray's rules, since it does not read: {error}"
            )];
            return Ok(Allowed {
                object: None,
                warnings,
            });
        }
    };
    let old = asked
        .old_object
        .as_ref()
        .and_then(|old| RayCluster::deserialize(old).ok());
    let errors = match &old {
        Some(old) => new_errors(old, &new),
        None => cluster(&new),
    };
    if !errors.is_empty() {
        let denial = |error: ray_api::validate::Invalid| Denial {
            field: error.field,
            message: error.message,
        };
        return Err(Refusal::Invalid(errors.into_iter().map(denial).collect()));
    }
    let changed = old.is_none_or(|old| old.spec != new.spec);
    let warnings = if changed {
        warnings(&new).iter().map(ToString::to_string).collect()
    } else {
        Vec::new()
    };
    Ok(Allowed {
        object: None,
        warnings,
    })
}
