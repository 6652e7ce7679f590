//! Replaces `$ref`s by what they refer to.

use std::collections::BTreeMap;

use schemars::Schema;
use serde_json::{Map, Value};

/// Definitions by name.
pub(super) type Definitions = BTreeMap<String, Map<String, Value>>;

/// Takes the definitions out of a root schema.
pub(super) fn take_definitions(root: &mut Schema) -> Definitions {
    match root.remove("$defs") {
        Some(Value::Object(definitions)) => definitions
            .into_iter()
            .filter_map(|(name, definition)| match definition {
                Value::Object(definition) => Some((name, definition)),
                _ => None,
            })
            .collect(),
        _ => Definitions::new(),
    }
}

/// The schema with every reference replaced. None of our types contains itself, so this ends.
pub(super) fn inline(root: Schema, definitions: &Definitions) -> Schema {
    let mut value = root.to_value();
    inline_value(&mut value, definitions);
    Schema::try_from(value).unwrap_or_default()
}

fn inline_value(value: &mut Value, definitions: &Definitions) {
    match value {
        Value::Object(object) => {
            if let Some(Value::String(reference)) = object.remove("$ref") {
                let name = reference.rsplit('/').next().unwrap_or_default();
                // What stands beside a reference (a field's description, default) beats the type's own.
                for (key, inherited) in definitions.get(name).into_iter().flatten() {
                    object.entry(key).or_insert_with(|| inherited.clone());
                }
            }
            object
                .values_mut()
                .for_each(|child| inline_value(child, definitions));
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|child| inline_value(child, definitions)),
        _ => {}
    }
}
