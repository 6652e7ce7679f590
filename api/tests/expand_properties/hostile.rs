//! Objects that are no RayClusters.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Any JSON that uses the words of RayClusters in wrong places.
pub(crate) fn hostile() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "metadata",
        "annotations",
        "labels",
        "spec",
        "headGroupSpec",
        "workerGroupSpecs",
        "groupName",
        "template",
        "containers",
        "name",
        "resources",
        "limits",
        "env",
        "volumes",
        "computeTemplate",
        "imageTemplate",
        "suspend",
        "rayStartParams",
        "templates.ray.io/gated",
        "templates.ray.io/refresh",
        "managedFields",
        "fieldsV1",
        "f:spec",
        "k:{\"name\":\"a\"}",
    ]);
    let record = prop::sample::select(vec![
        "{}",
        "[",
        r#"{"head":{"pieces":[{"at":"spec/[0]/[a=b]/[]","value":null}],"created":["","[]"]}}"#,
        r#"{"cluster":{"pieces":[{"at":"","value":{}},{"at":"spec","value":{},"was":[]}],"created":["metadata"]}}"#,
        r#"{"workers":{"t0":{"compute":{"kind":"x","name":"t0"},"pieces":[{"at":"template","value":{"spec":{}}}]}}}"#,
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        Just(json!("t0")),
        Just(json!("i")),
        record.clone().prop_map(Value::from)
    ];
    let body = leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(words.clone().prop_map(str::to_owned), inner, 0..6).prop_map(|map| json!(map))
        ]
    });
    (body.clone(), body, option::of(record)).prop_map(|(spec, metadata, record)| {
        let mut object = json!({"metadata": metadata, "spec": spec});
        if let Some(record) = record {
            object["metadata"] = json!({"annotations": {"templates.ray.io/expansion": record}});
        }
        object
    })
}
