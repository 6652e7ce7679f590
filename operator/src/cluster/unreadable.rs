//! A RayCluster that is no RayCluster: `v1alpha1` takes any spec, so one may be stored that `v1` cannot be read from.
//! An event says so (the API server takes no status of it either), its pods stay, and it can be deleted.

use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};

use super::cleanup;
use super::context::Context;
use super::error::Error;
use super::pods::ClusterKey;
use super::report::warn;
use crate::guard::Guarded;

/// Reason of the event.
const REASON: &str = "InvalidRayClusterSpec";

/// Says why, once, and lets a deleted one go.
///
/// # Errors
/// When the finalizer cannot be taken away; the next pass tries again.
pub(super) async fn tell(ctx: &Context, guarded: &Guarded, why: &str) -> Result<Action, Error> {
    if guarded.meta().deletion_timestamp.is_some() {
        cleanup::release(ctx, guarded.meta()).await?;
        return Ok(Action::await_change());
    }
    let key = ClusterKey {
        namespace: guarded.namespace().unwrap_or_default(),
        name: guarded.name_any(),
    };
    let message = format!("it cannot be read: {why}; apply it as ray.io/v1, which says what is wrong where");
    let reference = guarded.object_ref(&());
    warn(
        ctx,
        &ctx.memories.of(&key),
        &reference,
        (REASON, "Validate"),
        &message,
    );
    Ok(Action::await_change())
}
