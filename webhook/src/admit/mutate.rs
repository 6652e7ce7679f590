//! Expands a RayCluster's references.

use ray_api::expand::{added, expand, wants_live};

use super::{Allowed, Asked, Context, Refusal};
use crate::access;

/// The RayCluster with its templates filled in.
///
/// # Errors
/// When a template is missing, may not be used or cannot be read, or a field is wrong.
pub async fn mutate(context: &Context, asked: &Asked) -> Result<Allowed, Refusal> {
    let request = asked.as_expansion();
    let templates = context.templates.read_for(&request, wants_live(&request)).await?;
    if context.require_use {
        let user = &asked.request.user_info;
        let added = added(&request, &templates);
        let forbidden = access::first_forbidden(&context.client, user, &added)
            .await
            .map_err(Refusal::Access)?;
        if let Some(template) = forbidden {
            let user = user.username.clone().unwrap_or_default();
            return Err(Refusal::Forbidden {
                user,
                template: template.clone(),
            });
        }
    }
    let expanded = expand(&request, &templates).map_err(Refusal::Invalid)?;
    Ok(Allowed {
        object: Some(expanded.object),
        warnings: expanded.warnings,
    })
}
