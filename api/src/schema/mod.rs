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
pub(crate) mod rules;
mod structural;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

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
