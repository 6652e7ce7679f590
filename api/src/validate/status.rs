//! What the operator wrote (C24).

use super::{Class, Invalid};
use crate::conditions::is_true;
use crate::ray::RayCluster;

pub(super) fn check(cluster: &RayCluster, found: &mut Vec<Invalid>) {
    let conditions = cluster
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    let conditions = conditions.unwrap_or_default();
    if is_true(conditions, "RayClusterSuspending") && is_true(conditions, "RayClusterSuspended") {
        found.push(
            Invalid::new(
                "C24",
                "status.conditions",
                "RayClusterSuspending and RayClusterSuspended cannot both be True: set one of them to False",
            )
            .about(Class::Status),
        );
    }
}
