//! Fills what is unset; what the user wrote always wins.

use serde_json::Value;

use super::Denial;
use super::overlay::{CONTAINER, object};
use super::path::{self, Path, Segment, contains};
use super::record::{Filled, Piece};

/// `ray start` flags that the group's `resources` would set too; KubeRay refuses both (rule C3).
pub(super) const RESOURCE_FLAGS: [&str; 4] = ["num-cpus", "num-gpus", "memory", "resources"];

const HOSTS: &[Segment] = &[Segment::field("numOfHosts")];

/// What became of the pieces of one group.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) filled: Filled,
    /// Names of the pieces that the user's own values beat.
    pub(super) overridden: Vec<String>,
    pub(super) warnings: Vec<String>,
    pub(super) denials: Vec<Denial>,
}

/// The group that is filled.
pub(super) struct Target {
    /// Its path as people write it.
    pub(super) field: String,
    /// `numOfHosts: 1` may be the schema's default: KubeRay's CRD has one, ours has not.
    pub(super) hosts_may_be_default: bool,
}

enum State {
    Unset,
    /// Holds a schema's default, which counts as unset.
    Default(Value),
    /// The user's value is the same.
    Same,
    /// The user's value wins.
    Overridden,
    /// As above, with something to say.
    Skipped(String),
    /// Both cannot be.
    Clash(String),
}

/// Fills `pieces` into `group`.
pub(super) fn fill(group: &mut Value, pieces: Vec<Piece>, target: &Target) -> Outcome {
    let mut outcome = Outcome::default();
    // All are judged by what the user wrote, before the first is filled.
    let states: Vec<_> = pieces
        .iter()
        .map(|piece| state(group, piece, &pieces, target))
        .collect();
    for (mut piece, state) in pieces.into_iter().zip(states) {
        piece.was = None;
        piece.overridden = !matches!(state, State::Unset | State::Default(_));
        match state {
            State::Unset => {}
            State::Default(default) => piece.was = Some(default),
            State::Same => {}
            State::Overridden => outcome.overridden.push(piece.at.leaf_name().to_owned()),
            State::Skipped(why) => outcome.warnings.push(format!("{}: {why}", target.field)),
            State::Clash(message) => {
                outcome.denials.push(Denial {
                    field: target.field.clone(),
                    message,
                });
            }
        }
        if !piece.overridden {
            let created = path::insert(group, &piece.at, piece.value.clone());
            outcome.filled.created.extend(created);
        }
        outcome.filled.pieces.push(piece);
    }
    outcome
}

fn state(group: &Value, piece: &Piece, pieces: &[Piece], target: &Target) -> State {
    let at = &piece.at;
    let current = path::get(group, &at.0, &piece.value).filter(|value| !is_blank(value));
    if let Some(list) = list_of(at, "volumes") {
        return volume_state(group, piece, pieces, list);
    }
    if let Some(name) = resource_name(at) {
        let resources =
            path::get(group, CONTAINER, &Value::Null).and_then(|container| container.get("resources"));
        let set = |list: &str| {
            resources
                .and_then(|resources| resources.get(list)?.get(name))
                .is_some_and(|quantity| !quantity.is_null())
        };
        return match current {
            Some(current) if *current == piece.value => State::Same,
            _ if set("requests") || set("limits") => State::Overridden,
            _ => State::Unset,
        };
    }
    if let Some(clash) = flag_state(group, at) {
        return clash;
    }
    match current {
        None => State::Unset,
        Some(_) if at.0 == CONTAINER => State::Same,
        Some(current) if contains(current, &piece.value) => State::Same,
        Some(current) if at.0 == HOSTS && target.hosts_may_be_default && current.as_i64() == Some(1) => {
            State::Default(current.clone())
        }
        Some(_) => State::Overridden,
    }
}

/// Empty texts, lists and objects ask for nothing.
fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// The item's name, if the path is an item of that pod-level list.
fn list_of<'a>(at: &'a Path, list: &str) -> Option<&'a str> {
    match at.0.as_slice() {
        [.., Segment::Key(field), Segment::Item(_, name)] if field == list => Some(name),
        _ => None,
    }
}

/// Name of the resource, if the path is one of the Ray container's requests or limits.
fn resource_name(at: &Path) -> Option<&str> {
    match at.0.strip_prefix(CONTAINER)? {
        [Segment::Key(resources), Segment::Key(list), Segment::Key(name)]
            if resources == "resources" && (list == "requests" || list == "limits") =>
        {
            Some(name)
        }
        _ => None,
    }
}

/// A volume comes with its mounts: useless where the user mounts something else at each of its places.
fn volume_state(group: &Value, piece: &Piece, pieces: &[Piece], name: &str) -> State {
    let is_mount = |at: &Path| matches!(at.0.strip_prefix(CONTAINER), Some([Segment::Key(list), ..]) if list == "volumeMounts");
    let places: Vec<_> = pieces
        .iter()
        .filter(|other| is_mount(&other.at))
        .filter(|mount| mount.value.get("name").and_then(Value::as_str) == Some(name))
        .collect();
    let taken = |mount: &&Piece| path::get(group, &mount.at.0, &Value::Null).is_some();
    let all_taken = !places.is_empty() && places.iter().all(taken);
    match path::get(group, &piece.at.0, &Value::Null) {
        Some(current) if contains(current, &piece.value) => State::Same,
        _ if all_taken => State::Overridden,
        None => State::Unset,
        Some(_) => State::Clash(format!(
            "volume {name} is the template's and another one of the cluster's own: rename the cluster's"
        )),
    }
}

/// A Ray resource is set in one place only: by a flag of `ray start`, or in the group's `resources`.
fn flag_state(group: &Value, at: &Path) -> Option<State> {
    let flags = object(group.get("rayStartParams"));
    let resources = object(group.get("resources")).filter(|resources| !resources.is_empty());
    match at.0.as_slice() {
        [Segment::Key(field), Segment::Key(name)] if field == "resources" => {
            let flag = RESOURCE_FLAGS
                .iter()
                .find(|flag| flags.is_some_and(|flags| flags.contains_key(**flag)))?;
            Some(State::Skipped(format!(
                "rayStartParams sets {flag}, so the template's Ray resource {name} is not used"
            )))
        }
        [Segment::Key(field), Segment::Key(flag)] if field == "rayStartParams" => {
            let clash = RESOURCE_FLAGS.contains(&&**flag) && resources.is_some();
            clash.then(|| {
                State::Skipped(format!(
                    "resources is set, so the template's `ray start` flag {flag} is not used"
                ))
            })
        }
        _ => None,
    }
}
