//! Whether a person (or their tool) asked for a value: told by managedFields and the last-applied configuration.
//!
//! The API server computes managedFields before mutating admission, so what the webhook adds has no owner there.

use serde_json::Value;

use super::group::GroupKey;
use super::path::{self, Path, Segment};
use crate::meta::annotation;

/// Maps of a pod spec that server-side apply takes as a whole.
const ATOMIC_MAPS: [&str; 1] = ["nodeSelector"];

/// What a request says about who asked for which field.
#[derive(Clone, Debug, Default)]
pub(super) struct Ownership<'a> {
    managers: Vec<Manager<'a>>,
    last_applied: Option<Value>,
}

#[derive(Clone, Debug)]
struct Manager<'a> {
    /// `fieldsV1`: steps as `f:field`, `k:{"name":"a"}`, `v:value`; a leaf is an empty object.
    fields: &'a Value,
    /// Its request is an apply.
    applies: bool,
    /// This request is its.
    current: bool,
}

impl<'a> Ownership<'a> {
    /// Reads the bookkeeping on the object of a request made by `field_manager`.
    pub(super) fn of(object: &'a Value, field_manager: Option<&str>) -> Self {
        let metadata = object.get("metadata");
        let entries = metadata.and_then(|m| m.get("managedFields")?.as_array());
        let managers = entries.into_iter().flatten().filter_map(|entry| {
            let name = entry.get("manager").and_then(Value::as_str);
            Some(Manager {
                fields: entry.get("fieldsV1")?,
                applies: entry.get("operation").and_then(Value::as_str) == Some("Apply"),
                current: name.is_some() && name == field_manager,
            })
        });
        let last_applied = metadata
            .and_then(|m| m.get("annotations")?.get(annotation::LAST_APPLIED)?.as_str())
            .and_then(|text| serde_json::from_str(text).ok());
        Self {
            managers: managers.collect(),
            last_applied,
        }
    }

    /// Whether there is any bookkeeping: objects rendered without a server have none.
    pub(super) fn is_known(&self) -> bool {
        !self.managers.is_empty() || self.last_applied.is_some()
    }

    /// What the last `kubectl apply` sent, if the object carries it.
    pub(super) fn last_applied(&self) -> Option<&Value> {
        self.last_applied.as_ref()
    }

    /// Whether someone asked for this very field or list item.
    pub(super) fn owns(&self, path: &Path, value: &Value) -> bool {
        let claimed = |manager: &Manager<'_>| manager.claim(&path.0, value) != Claim::None;
        self.managers.iter().any(claimed) || self.applied(path, value)
    }

    /// Whether someone asked for any leaf of `value` at `path`.
    pub(super) fn owns_any_leaf(&self, path: &Path, value: &Value) -> bool {
        match value {
            Value::Object(fields)
                if !fields.is_empty()
                    && path
                        .split_last()
                        .is_none_or(|(_, last)| *last != Segment::Element) =>
            {
                fields
                    .iter()
                    .any(|(key, value)| self.owns_any_leaf(&path.key(key.clone()), value))
            }
            _ => self.owns(path, value),
        }
    }

    /// Whether the last `kubectl apply` sent a value there; for list items, one like `value`.
    fn applied(&self, path: &Path, value: &Value) -> bool {
        self.last_applied
            .as_ref()
            .is_some_and(|applied| path::get(applied, &path.0, value).is_some())
    }

    /// Whether a server-side applier asked for this field by name; what a schema fills into an atomic list does not count.
    pub(super) fn applies(&self, path: &Path) -> bool {
        let appliers = self.managers.iter().filter(|manager| manager.applies);
        appliers
            .into_iter()
            .any(|manager| manager.claim(&path.0, &Value::Null) == Claim::Field)
    }
}

/// What a manager has to do with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    None,
    /// It set this very field.
    Field,
    /// It sends the atomic list or map that the field is in.
    Whole,
}

impl Manager<'_> {
    fn claim(&self, path: &[Segment], value: &Value) -> Claim {
        let mut at = self.fields;
        let mut parent = "";
        for segment in path {
            let Some(fields) = at.as_object() else {
                return Claim::None;
            };
            if fields.is_empty() {
                // An atomic list or map has no entries for its parts: who applies it now sends all of it.
                // An empty object that someone applied looks the same, but nothing in it is theirs.
                let atomic = !matches!(segment, Segment::Key(_)) || ATOMIC_MAPS.contains(&parent);
                let sent = atomic && self.applies && self.current;
                return if sent { Claim::Whole } else { Claim::None };
            }
            parent = match segment {
                Segment::Key(key) => key,
                _ => "",
            };
            let next = match segment {
                Segment::Key(key) => fields.get(&format!("f:{key}")),
                Segment::Item(key, name) => keyed(fields, key, name),
                Segment::First => None,
                Segment::Element => fields
                    .iter()
                    .find(|(step, _)| step.strip_prefix("v:").and_then(parse).as_ref() == Some(value))
                    .map(|(_, next)| next),
            };
            match next {
                Some(next) => at = next,
                None => return Claim::None,
            }
        }
        Claim::Field
    }
}

fn keyed<'a>(fields: &'a serde_json::Map<String, Value>, key: &str, name: &str) -> Option<&'a Value> {
    let named = |step: &String| {
        let keys = step.strip_prefix("k:").and_then(parse);
        keys.is_some_and(|keys| keys.get(key).and_then(Value::as_str) == Some(name))
    };
    fields.iter().find(|(step, _)| named(step)).map(|(_, next)| next)
}

fn parse(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

/// The path from the object's root, with the Ray container by its name, as managedFields have it.
pub(super) fn absolute(key: Option<&GroupKey>, group: &Value, path: &Path) -> Path {
    let mut absolute = key.map(GroupKey::path).unwrap_or_default();
    for (depth, segment) in path.0.iter().enumerate() {
        let named = match segment {
            Segment::First => path::get(group, path.0.get(..=depth).unwrap_or_default(), &Value::Null)
                .and_then(|item| item.get("name")?.as_str())
                .map(|name| Segment::Item("name".into(), name.to_owned().into())),
            _ => None,
        };
        absolute.0.push(named.unwrap_or_else(|| segment.clone()));
    }
    absolute
}
