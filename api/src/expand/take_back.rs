//! Takes the recorded values out of an object again, which leaves what the user asked for.

use serde_json::{Map, Value};

use super::group::{self, GroupKey};
use super::overlay::CONTAINER;
use super::ownership::{Ownership, absolute};
use super::path::{self, Path, Segment, contains};
use super::record::{Filled, Piece, Record};
use crate::meta::annotation;

/// Removes every value of `record` that is still as recorded and that nobody has asked for since.
pub(super) fn take_back(object: &mut Value, record: &Record, ownership: &Ownership<'_>) {
    for (key, recorded) in record.groups() {
        if let Some(group) = group::get_mut(object, &key) {
            Taker {
                key: Some(&key),
                ownership,
            }
            .take_all(group, &recorded.filled);
        }
    }
    let annotations = object
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut);
    if let Some(annotations) = annotations {
        annotations.remove(annotation::EXPANSION);
    }
    Taker { key: None, ownership }.take_all(object, &record.cluster);
}

struct Taker<'a> {
    key: Option<&'a GroupKey>,
    ownership: &'a Ownership<'a>,
}

/// What is left of a value without what was recorded.
enum Rest {
    /// Nothing that anyone asked for.
    Nothing,
    /// Fields that someone added.
    Some(Value),
    /// All of it: the value is not ours any more.
    All,
}

impl Taker<'_> {
    fn take_all(&self, root: &mut Value, filled: &Filled) {
        // The Ray container goes last: it must be bare to be taken.
        let ours = || filled.pieces.iter().rev().filter(|piece| !piece.overridden);
        for piece in ours().filter(|piece| piece.at.0 != CONTAINER) {
            self.take(root, piece);
        }
        self.drop_empty(root, &filled.created);
        for piece in ours().filter(|piece| piece.at.0 == CONTAINER) {
            self.take(root, piece);
        }
        self.drop_empty(root, &filled.created);
    }

    fn drop_empty(&self, root: &mut Value, created: &[Path]) {
        for created in created.iter().rev() {
            self.drop_if_empty(root, created);
        }
    }

    fn take(&self, root: &mut Value, piece: &Piece) {
        let Some(current) = path::get(root, &piece.at.0, &piece.value) else {
            return;
        };
        let rest = self.rest(root, current, piece);
        let Some((parent, last)) = piece.at.split_last() else {
            return;
        };
        let Some(parent) = path::get_mut(root, parent, &Value::Null) else {
            return;
        };
        match (parent, last, rest) {
            (_, _, Rest::All) => {}
            (Value::Object(fields), Segment::Key(key), Rest::Nothing) => match &piece.was {
                Some(default) => {
                    fields.insert(key.to_string(), default.clone());
                }
                None => {
                    fields.remove(&**key);
                }
            },
            (Value::Object(fields), Segment::Key(key), Rest::Some(rest)) => {
                fields.insert(key.to_string(), rest);
            }
            (Value::Array(list), step, Rest::Nothing) => {
                if let Some(index) = path::position(list, step, &piece.value) {
                    list.remove(index);
                }
            }
            // A list item is one thing: with something of the user's in it, it is the user's.
            _ => {}
        }
    }

    fn rest(&self, root: &Value, current: &Value, piece: &Piece) -> Rest {
        if !contains(current, &piece.value) {
            return Rest::All;
        }
        if piece.at.0 == CONTAINER {
            // Holds other pieces, and what anyone else put in.
            return if *current == piece.value {
                Rest::Nothing
            } else {
                Rest::All
            };
        }
        let at = absolute(self.key, root, &piece.at);
        let asked = match &piece.was {
            // Whoever had the default there owns the field since then, whatever its value is now.
            Some(_) => self.asked_for(&at, &piece.value),
            None => self.ownership.owns_any_leaf(&at, &piece.value),
        };
        if asked {
            return Rest::All;
        }
        match self.additions(&at, current, &piece.value) {
            None => Rest::Nothing,
            Some(rest) => Rest::Some(rest),
        }
    }

    /// Whether the last `kubectl apply` sent this very value.
    fn asked_for(&self, at: &Path, value: &Value) -> bool {
        let applied = self.ownership.last_applied();
        applied.and_then(|applied| path::get(applied, &at.0, value)) == Some(value)
    }

    /// Fields of `current` that are not recorded and that someone owns; those without owner are defaults.
    fn additions(&self, at: &Path, current: &Value, recorded: &Value) -> Option<Value> {
        let (Value::Object(current), Value::Object(recorded)) = (current, recorded) else {
            return None;
        };
        let mut rest = Map::new();
        for (key, value) in current {
            let at = at.key(key.clone());
            let added = match recorded.get(key) {
                Some(recorded) => self.additions(&at, value, recorded),
                None => {
                    let asked = !self.ownership.is_known() || self.ownership.owns_any_leaf(&at, value);
                    asked.then(|| value.clone())
                }
            };
            if let Some(added) = added {
                rest.insert(key.clone(), added);
            }
        }
        (!rest.is_empty()).then_some(Value::Object(rest))
    }

    fn drop_if_empty(&self, root: &mut Value, created: &Path) {
        let empty = match path::get(root, &created.0, &Value::Null) {
            Some(Value::Object(fields)) => fields.is_empty(),
            Some(Value::Array(items)) => items.is_empty(),
            _ => false,
        };
        if !empty
            || self
                .ownership
                .owns(&absolute(self.key, root, created), &Value::Null)
        {
            return;
        }
        let Some((parent, Segment::Key(key))) = created.split_last() else {
            return;
        };
        if let Some(Value::Object(fields)) = path::get_mut(root, parent, &Value::Null) {
            fields.remove(&**key);
        }
    }
}
