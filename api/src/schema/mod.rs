//! Structural OpenAPI schemas from the Rust types, as an API server wants them in a CRD.
//!
//! ```text
//!   schemars: type -> schema with named definitions
//!   kubernetes: adds to io.k8s.* definitions what k8s-openapi leaves out (list keys, quantities, …)
//!   inline:     definitions into the places that refer to them (a CRD has no $ref)
//!   structural: one type for each field, no nulls, no unions
//! ```

mod inline;
mod kubernetes;
mod patterns;
pub(crate) mod rules;
mod structural;

use kube::core::Rule;
pub(crate) use kubernetes::QUANTITY;
pub(crate) use patterns::{IMAGE_REFERENCE, LABEL_VALUE, OBJECT_NAME, REPOSITORY, TAG, USER};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

/// The values of a map: strings that match a pattern, at most that many characters each.
pub(crate) fn strings(pattern: &str, max_length: u32) -> Value {
    json!({ "type": "string", "pattern": pattern, "maxLength": max_length })
}

/// The values of a map: amounts.
pub(crate) fn at_least_zero() -> Value {
    json!({ "type": "number", "format": "double", "minimum": 0 })
}

/// Gives each item of a list a rule.
pub(crate) fn each(rule: Rule) -> impl FnMut(&mut Schema) {
    move |list| {
        if let Some(Value::Object(item)) = list.get_mut("items") {
            item.insert("x-kubernetes-validations".to_owned(), json!([rule]));
        }
    }
}

/// The structural schema of `T`, without `$ref`.
pub(crate) fn of<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.meta_schema = None);
    let mut root = settings.into_generator().into_root_schema_for::<T>();
    let mut definitions = inline::take_definitions(&mut root);
    for (name, definition) in &mut definitions {
        kubernetes::complete(name, definition);
    }
    let mut schema = inline::inline(root, &definitions);
    structural::restructure(&mut schema);
    schema
}
