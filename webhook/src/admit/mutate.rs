//! Expands a RayCluster's references.

use ray_api::expand::{Decisions, Templates};

use super::{Allowed, Asked, Context, Refusal};
use crate::access;

/// The RayCluster with its templates filled in.
///
/// # Errors
/// When a template is missing, may not be used or cannot be read, or a field is wrong.
pub async fn mutate(context: &Context, asked: &Asked) -> Result<Allowed, Refusal> {
    let decisions = Decisions::of(asked.as_expansion());
    let live = decisions.wants_live();
    let templates = context.templates.read_for(&decisions, live).await?;
    // First, so that a name that is mistyped is said to be that.
    let expanded = decisions.expand(&templates).map_err(Refusal::Invalid)?;
    if context.require_use {
        require_use(context, asked, &decisions, templates).await?;
    }
    Ok(Allowed {
        object: Some(expanded.object),
        warnings: expanded.warnings,
    })
}

/// Refuses what newly refers to a template that the user may not use.
async fn require_use(
    context: &Context,
    asked: &Asked,
    decisions: &Decisions<'_>,
    mut templates: Templates,
) -> Result<(), Refusal> {
    let live = decisions.wants_live();
    let added = loop {
        match decisions.added(&templates) {
            Ok(added) => break added,
            Err(unread) => {
                for needed in unread {
                    context.templates.read_into(&mut templates, needed, live).await?;
                }
            }
        }
    };
    let user = &asked.request.user_info;
    let forbidden = access::first_forbidden(&context.client, user, &added)
        .await
        .map_err(Refusal::Access)?;
    match forbidden {
        None => Ok(()),
        Some(template) => Err(Refusal::Forbidden {
            user: user.username.clone().unwrap_or_default(),
            template: template.clone(),
        }),
    }
}
