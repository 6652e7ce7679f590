//! The image gate: a cluster whose image is not there yet is suspended, and resumed once it is.

use serde_json::{Value, json};

use super::path::{self, Path};
use super::record::{Filled, Piece, Record};
use super::{Denial, has_label};
use crate::meta::label;

/// A group that waits for its image.
#[derive(Clone, Debug)]
pub(super) struct Wait {
    /// It has no image at all, so its pods must not start; else it runs on with the one it had.
    pub(super) suspends: bool,
}

/// Sets or lifts the gate; `recorded` is what the last expansion did.
///
/// `object` carries the user's own `suspend` only. Lifting writes `false`, because KubeRay's operator
/// does not resume on absence. A queued cluster's `suspend` is Kueue's alone.
pub(super) fn apply(object: &mut Value, waits: &[Wait], recorded: Option<&Record>, cluster: &mut Filled) {
    let suspend = Path::of(&["spec", "suspend"]);
    let own = path::get(object, &suspend.0, &Value::Null).cloned();
    let recorded = recorded.and_then(|record| record.cluster.pieces.iter().find(|piece| piece.at == suspend));
    if !waits.is_empty() {
        let gated = Path::of(&["metadata", "labels", label::GATED]);
        fill(object, cluster, Piece::image(gated, json!("true")));
    }
    if has_label(object, label::KUEUE_QUEUE) {
        if let (Some(recorded), None) = (recorded, own) {
            path::insert(object, &suspend, recorded.value.clone());
        }
    } else if waits.iter().any(|wait| wait.suspends) {
        if own != Some(Value::Bool(true)) {
            fill(
                object,
                cluster,
                Piece {
                    was: own,
                    ..Piece::image(suspend, json!(true))
                },
            );
        }
    } else if recorded.is_some() && own.is_none() {
        fill(object, cluster, Piece::image(suspend, json!(false)));
    }
}

fn fill(object: &mut Value, cluster: &mut Filled, piece: Piece) {
    let created = path::insert(object, &piece.at, piece.value.clone());
    cluster.created.extend(created);
    cluster.pieces.push(piece);
}

/// Refuses to start a queued cluster whose image is not there: for the object as it will be stored.
#[must_use]
pub fn check(object: &Value) -> Option<Denial> {
    let started = object.pointer("/spec/suspend") != Some(&Value::Bool(true));
    let image_missing = super::group::keys(object).iter().any(|key| {
        super::group::get(object, key)
            .and_then(|group| path::get(group, super::overlay::IMAGE, &Value::Null))
            .is_none()
    });
    (has_label(object, label::GATED) && has_label(object, label::KUEUE_QUEUE) && started && image_missing)
        .then(|| Denial {
            field: "spec.suspend".to_owned(),
            message:
                "must be true while the image of an ImageTemplate is not built: a queued cluster is not \
                  suspended for it automatically; set it, or wait for the image"
                    .to_owned(),
        })
}
