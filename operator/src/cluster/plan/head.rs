//! The one head (raycluster-behaviour 4.3 f).

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;
use ray_api::meta::annotation;

use super::{Create, Delete, Plan, Situation, Why, condition, has_condition};
use crate::cluster::build::{Facts, annotation_is_true};
use crate::cluster::pods::{NodeType, PodView};

/// A head that outlives its deletion for this long is on a node that does not answer.
pub const OVERDUE: SignedDuration = SignedDuration::from_secs(60);

/// Plans the head; false when the workers have to wait too.
pub(super) fn plan(facts: &Facts<'_>, situation: &Situation<'_>, plan: &mut Plan) -> bool {
    let (going, heads): (Vec<_>, Vec<_>) = situation
        .pods
        .iter()
        .filter(|pod| pod.node_type == NodeType::Head)
        .cloned()
        .partition(|pod| pod.is_terminating());
    match heads.as_slice() {
        [] => replace(facts, &going, situation, plan),
        [head] => {
            if head.has_ended() {
                plan.delete_each(&heads, Why::Ended);
            }
            true
        }
        several => {
            let names: Vec<_> = several.iter().map(|pod| pod.name.as_str()).collect();
            let message = format!(
                "there are {} head pods ({}): delete all but one",
                several.len(),
                names.join(", ")
            );
            plan.problem = Some(("SeveralHeadPods", message));
            true
        }
    }
}

/// Creates a head once every predecessor is gone, or given up.
fn replace(facts: &Facts<'_>, going: &[Arc<PodView>], situation: &Situation<'_>, plan: &mut Plan) -> bool {
    let stays_without = annotation_is_true(
        facts.cluster.metadata.annotations.as_ref(),
        annotation::DISABLE_PROVISIONED_HEAD_RESTART,
    );
    if stays_without && has_condition(facts.cluster, condition::PROVISIONED) {
        return false;
    }
    for head in going {
        let overdue = head.deletion.map_or(OVERDUE, |deletion| {
            deletion.duration_since(situation.now) + OVERDUE
        });
        if overdue.is_positive() {
            plan.look_again_in(overdue.unsigned_abs());
        } else if !head.deleted_by_force {
            plan.delete.push(Delete {
                pod: Arc::clone(head),
                why: Why::Stuck,
            });
            plan.look_again_in(Duration::from_secs(1));
        } else {
            continue;
        }
        // Workers start meanwhile: they wait for the head by themselves.
        return true;
    }
    if !plan.is_held(None, situation) {
        plan.create.push(Create::Head);
    }
    true
}
