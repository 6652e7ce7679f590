//! JSON schema to what an API server calls a structural schema.

use kube::core::schema::StructuralSchemaRewriter;
use schemars::Schema;
use schemars::transform::{ReplaceConstValue, Transform, transform_subschemas};
use serde_json::{Map, Value, json};

/// Absent instead of null, then kube's own rewriting of enums.
pub(super) fn restructure(schema: &mut Schema) {
    AbsentNotNull.transform(schema);
    ReplaceConstValue::default().transform(schema);
    StructuralSchemaRewriter.transform(schema);
}

/// An `Option` is a field that may be absent. The API server drops a null from a field that is not nullable
/// and applies the default, as Go's types do; in a nullable field it would store the null.
struct AbsentNotNull;

impl Transform for AbsentNotNull {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        if let Some(object) = schema.as_object_mut() {
            object.remove("title");
            if object.get("default") == Some(&Value::Null) {
                object.remove("default");
            }
            one_type(object);
            one_schema(object);
        }
    }
}

/// `type: [string, "null"]` is `type: string`.
fn one_type(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = schema.get("type")
        && let [one, null] = types.as_slice()
        && null == "null"
    {
        let one = one.clone();
        schema.insert("type".to_owned(), one);
    }
}

/// `anyOf: [X, {type: "null"}]` is `X`; what stands beside it (a description) goes first.
fn one_schema(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(options)) = schema.get("anyOf")
        && let [Value::Object(one), null] = options.as_slice()
        && *null == json!({ "type": "null" })
    {
        let one = one.clone();
        schema.remove("anyOf");
        for (key, value) in one {
            schema.entry(key).or_insert(value);
        }
    }
}
