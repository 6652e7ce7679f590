//! Where a value stands inside a group: JSON pointers whose list steps name items by key instead of by index.
//!
//! Text form, as the record stores it: `template/spec/containers/[0]/env/[name=A]`, `template/spec/tolerations/[]`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// A name in a path: most are known when we are compiled, and cost nothing then.
pub type Name = Cow<'static, str>;

/// One step down a JSON value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Segment {
    /// Field of an object.
    Key(Name),
    /// First item of a list: the Ray container, by Ray's own rule.
    First,
    /// Item of a list whose field `.0` is `.1`.
    Item(Name, Name),
    /// Item of an atomic list, known only by its value. Always the last step.
    Element,
}

/// Steps from a group (or the whole object) to a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<Segment>);

impl Segment {
    /// A field that is known when we are compiled.
    #[must_use]
    pub const fn field(name: &'static str) -> Self {
        Self::Key(Cow::Borrowed(name))
    }
}

impl From<&[Segment]> for Path {
    fn from(steps: &[Segment]) -> Self {
        Self(steps.to_vec())
    }
}

impl Path {
    /// A path of object fields only.
    #[must_use]
    pub fn of(keys: &[&'static str]) -> Self {
        Self(keys.iter().map(|key| Segment::field(key)).collect())
    }

    /// This path and one more step.
    #[must_use]
    pub fn then(&self, segment: Segment) -> Self {
        let mut steps = Vec::with_capacity(self.0.len() + 1);
        steps.extend_from_slice(&self.0);
        steps.push(segment);
        Self(steps)
    }

    /// This path and one more field.
    #[must_use]
    pub fn key(&self, key: impl Into<Name>) -> Self {
        self.then(Segment::Key(key.into()))
    }

    /// This path and the list item whose `key` is `value`.
    #[must_use]
    pub fn item(&self, key: impl Into<Name>, value: impl Into<Name>) -> Self {
        self.then(Segment::Item(key.into(), value.into()))
    }

    /// This path, then another.
    #[must_use]
    pub fn join(&self, rest: &Self) -> Self {
        Self(self.0.iter().chain(&rest.0).cloned().collect())
    }

    /// The path without its last step, and that step.
    #[must_use]
    pub fn split_last(&self) -> Option<(&[Segment], &Segment)> {
        self.0.split_last().map(|(last, parent)| (parent, last))
    }

    /// Name of the last field or item, for messages.
    #[must_use]
    pub fn leaf_name(&self) -> &str {
        let name = self.0.iter().rev().find_map(|segment| match segment {
            Segment::Key(name) | Segment::Item(_, name) => Some(&**name),
            Segment::First | Segment::Element => None,
        });
        name.unwrap_or_default()
    }

    /// The text form.
    fn text(&self) -> String {
        let mut text = String::with_capacity(64);
        for (index, segment) in self.0.iter().enumerate() {
            if index > 0 {
                text.push('/');
            }
            match segment {
                Segment::Key(key) => escape(&mut text, key),
                Segment::First => text.push_str("[0]"),
                Segment::Item(key, value) => {
                    text.extend(["[", key, "="]);
                    escape(&mut text, value);
                    text.push(']');
                }
                Segment::Element => text.push_str("[]"),
            }
        }
        text
    }
}

/// Position of the item that a list step names; `value` tells elements of atomic lists apart.
#[must_use]
pub fn position(list: &[Value], segment: &Segment, value: &Value) -> Option<usize> {
    match segment {
        Segment::First => (!list.is_empty()).then_some(0),
        Segment::Item(key, name) => list
            .iter()
            .position(|item| item.get(&**key).and_then(Value::as_str) == Some(name)),
        Segment::Element => list.iter().position(|item| contains(item, value)),
        Segment::Key(_) => None,
    }
}

/// The value there, unless absent or null.
#[must_use]
pub fn get<'a>(root: &'a Value, path: &[Segment], value: &Value) -> Option<&'a Value> {
    let found = path.iter().try_fold(root, |at, segment| match segment {
        Segment::Key(key) => at.get(&**key),
        list_step => {
            let list = at.as_array()?;
            list.get(position(list, list_step, value)?)
        }
    });
    found.filter(|found| !found.is_null())
}

/// The value there, to change.
pub fn get_mut<'a>(root: &'a mut Value, path: &[Segment], value: &Value) -> Option<&'a mut Value> {
    path.iter().try_fold(root, |at, segment| match segment {
        Segment::Key(key) => at.get_mut(&**key),
        list_step => {
            let list = at.as_array_mut()?;
            let index = position(list, list_step, value)?;
            list.get_mut(index)
        }
    })
}

/// Puts `value` there; parents that were missing are made and their paths returned, outermost first.
pub fn insert(root: &mut Value, path: &Path, value: Value) -> Vec<Path> {
    let mut created = Vec::new();
    let mut at = root;
    for (depth, segment) in path.0.iter().enumerate() {
        let empty = match segment {
            Segment::Key(_) => Value::Object(Map::new()),
            _ => Value::Array(Vec::new()),
        };
        if at.is_null() {
            *at = empty;
            created.push(Path(path.0.iter().take(depth).cloned().collect()));
        }
        at = match (at, segment) {
            (Value::Object(fields), Segment::Key(key)) => {
                if !fields.contains_key(&**key) {
                    fields.insert(key.to_string(), Value::Null);
                }
                match fields.get_mut(&**key) {
                    Some(field) => field,
                    None => return created,
                }
            }
            (Value::Array(list), step) => {
                let index = position(list, step, &value).unwrap_or_else(|| {
                    list.push(Value::Null);
                    list.len() - 1
                });
                match list.get_mut(index) {
                    Some(item) => item,
                    None => return created,
                }
            }
            _ => return created,
        };
    }
    *at = value;
    created
}

/// Whether `whole` has everything that `part` has: fields of objects, lists item by item.
///
/// Extra fields do not count: the API server adds defaults inside values that others wrote.
#[must_use]
pub fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(key, value)| whole.get(key).is_some_and(|w| contains(w, value))),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(w, p)| contains(w, p))
        }
        _ => whole == part,
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// JSON pointer's escapes, and one for a bracket, which starts a list step here.
fn escape(text: &mut String, key: &str) {
    for char in key.chars() {
        match char {
            '~' => text.push_str("~0"),
            '/' => text.push_str("~1"),
            '[' => text.push_str("~2"),
            plain => text.push(plain),
        }
    }
}

fn unescape(key: &str) -> Name {
    let plain = key.replace("~2", "[").replace("~1", "/").replace("~0", "~");
    Name::Owned(plain)
}

impl FromStr for Path {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let segments = text.split('/').map(|step| {
            let Some(list_step) = step.strip_prefix('[') else {
                return Ok(Segment::Key(unescape(step)));
            };
            match list_step.strip_suffix(']') {
                Some("0") => Ok(Segment::First),
                Some("") => Ok(Segment::Element),
                Some(item) => item
                    .split_once('=')
                    .map(|(key, value)| Segment::Item(key.to_owned().into(), unescape(value)))
                    .ok_or_else(|| format!("{step:?} in path {text:?} names no key")),
                None => Err(format!("{step:?} in path {text:?} has no closing bracket")),
            }
        });
        segments.collect::<Result<Vec<_>, _>>().map(Self)
    }
}

impl Serialize for Path {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for Path {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_form_survives_hostile_keys() {
        let path = Path::of(&["a/b", "c~d", "[e"])
            .then(Segment::First)
            .item("name", "x=]/~[")
            .then(Segment::Element);
        assert_eq!(path.to_string().parse(), Ok(path));
    }

    #[test]
    fn insert_reports_the_parents_that_it_made() {
        let mut root = json!({"kept": 1});
        let path = Path::of(&["template", "spec", "containers"]).then(Segment::First);
        let created = insert(&mut root, &path, json!({"name": "ray-head"}));
        assert_eq!(
            root,
            json!({"kept": 1, "template": {"spec": {"containers": [{"name": "ray-head"}]}}})
        );
        let created: Vec<_> = created.iter().map(Path::to_string).collect();
        assert_eq!(created, ["template", "template/spec", "template/spec/containers"]);
    }

    #[test]
    fn contains_ignores_extra_fields_but_not_extra_items() {
        assert!(contains(
            &json!({"a": {"b": 1, "default": 2}}),
            &json!({"a": {"b": 1}})
        ));
        assert!(!contains(&json!([1, 2]), &json!([1])));
    }
}
