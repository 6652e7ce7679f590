//! Ray's autoscaler and its two versions (C6, C7, C14 to C18).

use super::Invalid;
use super::auth::{at_least, version_will_come};
use super::group::Group;
use crate::ray::v1::AutoscalerVersion;
use crate::ray::{RayCluster, RayVersion};

/// Switches version 2 on without `autoscalerOptions`.
const V2_VARIABLE: &str = "RAY_enable_autoscaler_v2";
/// Set by the operator.
const START_COMMAND: &str = "KUBERAY_GEN_AUTOSCALER_START_CMD";
/// Oldest Ray whose autoscaler knows priorities.
const FIRST_PRIORITY: RayVersion = RayVersion::new(2, 56, 0);

pub(super) fn check(cluster: &RayCluster, found: &mut Vec<Invalid>) {
    check_options(cluster, found);
    check_groups(cluster, found);
    let head = Group::head(cluster);
    let version = version(cluster);
    if cluster.spec.enable_in_tree_autoscaling != Some(true) {
        if asks_for_v2(&head) {
            found.push(head.invalid(
                "C15",
                "template.spec.containers[0].env",
                format!("{V2_VARIABLE} needs enableInTreeAutoscaling: true"),
            ));
        }
        return;
    }
    if version.is_some() && head.env(V2_VARIABLE).is_some() {
        found.push(Invalid::new(
            "C16",
            "spec.autoscalerOptions.version",
            format!(
                "says the same thing twice with the head's environment variable {V2_VARIABLE}: keep version"
            ),
        ));
    }
    if version == Some(AutoscalerVersion::V2) {
        for group in std::iter::once(head).chain(Group::workers(cluster)) {
            if !never_restarts(&group) {
                found.push(group.invalid(
                    "C17",
                    "template.spec.restartPolicy",
                    "must be Never, or absent: version v2 of the autoscaler replaces pods and never restarts them",
                ));
            }
        }
    }
}

fn check_options(cluster: &RayCluster, found: &mut Vec<Invalid>) {
    let Some(options) = &cluster.spec.autoscaler_options else {
        return;
    };
    if options.idle_timeout_seconds.is_some_and(|seconds| seconds < 0) {
        found.push(Invalid::new(
            "C18",
            "spec.autoscalerOptions.idleTimeoutSeconds",
            "is below 0: write 0 or more",
        ));
    }
    if options.env.iter().any(|variable| variable.name == START_COMMAND) {
        found.push(Invalid::new(
            "C18",
            "spec.autoscalerOptions.env",
            format!("{START_COMMAND} is set by the operator: remove it"),
        ));
    }
}

fn check_groups(cluster: &RayCluster, found: &mut Vec<Invalid>) {
    let has_v2 = version(cluster) == Some(AutoscalerVersion::V2) || asks_for_v2(&Group::head(cluster));
    let autoscaling = cluster.spec.enable_in_tree_autoscaling == Some(true);
    for (group, spec) in Group::workers(cluster).zip(&cluster.spec.worker_group_specs) {
        if let Some(seconds) = spec.idle_timeout_seconds {
            if seconds < 0 {
                found.push(group.invalid("C6", "idleTimeoutSeconds", "is below 0: write 0 or more"));
            } else if !has_v2 {
                found.push(group.invalid(
                    "C6",
                    "idleTimeoutSeconds",
                    "needs autoscalerOptions.version: v2; for all groups set autoscalerOptions.idleTimeoutSeconds",
                ));
            }
        }
        if spec.priority.is_some_and(|priority| priority != 0) {
            if !has_v2 {
                found.push(group.invalid("C7", "priority", "needs autoscalerOptions.version: v2"));
            } else if !at_least(cluster, FIRST_PRIORITY) && !version_will_come(cluster) {
                found.push(group.invalid(
                    "C7",
                    "priority",
                    format!("needs Ray {FIRST_PRIORITY} or newer: set rayVersion to that of the image"),
                ));
            }
        }
        if autoscaling && spec.suspend == Some(true) {
            found.push(group.invalid(
                "C14",
                "suspend",
                "excludes enableInTreeAutoscaling: set the group's maxReplicas to 0 instead",
            ));
        }
    }
}

pub(super) fn version(cluster: &RayCluster) -> Option<AutoscalerVersion> {
    cluster.spec.autoscaler_options.as_ref()?.version
}

fn asks_for_v2(head: &Group<'_>) -> bool {
    head.env(V2_VARIABLE)
        .is_some_and(|variable| matches!(variable.value.as_deref(), Some("1" | "true")))
}

pub(super) fn never_restarts(group: &Group<'_>) -> bool {
    let policy = group.pod().and_then(|pod| pod.restart_policy.as_deref());
    matches!(policy, None | Some("" | "Never"))
}
