//! The CRDs: in sync with the types, and KubeRay's fields with nothing missing.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use ray_api::crds;
use serde_json::{Value, json};

fn crd(name: &str) -> Value {
    let crd = crds::all()
        .into_iter()
        .find(|crd| crd.metadata.name.as_deref() == Some(name))
        .unwrap();
    serde_json::to_value(crd).unwrap()
}

/// Schema of the version at that index.
fn schema(name: &str, version: usize) -> Value {
    crd(name)["spec"]["versions"][version]["schema"]["openAPIV3Schema"].clone()
}

#[test]
fn generated_files_are_in_sync_with_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/crds");
    for crd in crds::all() {
        let file = folder.join(crds::file_name(&crd));
        let generated = serde_saphyr::to_string(&crd).unwrap();
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&file, &generated).unwrap();
        }
        let committed = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            committed == generated,
            "{} is old: run `make generate`",
            file.display()
        );
    }
}

#[test]
fn crds_fit_into_the_annotation_of_client_side_apply() {
    for crd in crds::all() {
        let size = serde_json::to_string(&crd).unwrap().len();
        assert!(size < 200_000, "{}: {size} bytes", crds::file_name(&crd));
    }
}

#[test]
fn fields_types_and_defaults_are_those_of_kuberay() {
    let mut ours = BTreeMap::new();
    let root = schema("rayclusters.ray.io", 0);
    for part in ["spec", "status"] {
        describe(part, &root["properties"][part], &mut ours);
    }
    let mut theirs = BTreeMap::new();
    for line in include_str!("fixtures/raycluster-fields.tsv").lines().skip(1) {
        let mut columns = line.split('\t');
        let path = columns.next().unwrap();
        theirs.insert(
            path.to_owned(),
            columns.map(str::to_owned).collect::<Vec<_>>().join("\t"),
        );
    }
    // The intended differences.
    for (path, field) in [
        // Absent must stay apart from 1, or a template could not fill it in.
        ("spec.workerGroupSpecs.numOfHosts", "int32"),
        // The words that KubeRay's code knows.
        ("status.state", "string\t\t,ready,suspended,failed"),
        ("spec.imageTemplate", "string"),
        ("spec.computeTemplate", "string"),
        ("spec.headGroupSpec.imageTemplate", "string"),
        ("spec.headGroupSpec.computeTemplate", "string"),
        ("spec.workerGroupSpecs.imageTemplate", "string"),
        ("spec.workerGroupSpecs.computeTemplate", "string"),
    ] {
        theirs.insert(path.to_owned(), field.to_owned());
    }
    let ours: BTreeSet<_> = ours.into_iter().collect();
    let theirs: BTreeSet<_> = theirs.into_iter().collect();
    assert_eq!(
        ours.difference(&theirs).collect::<Vec<_>>(),
        Vec::<&(String, String)>::new(),
        "not KubeRay's"
    );
    assert_eq!(
        theirs.difference(&ours).collect::<Vec<_>>(),
        Vec::<&(String, String)>::new(),
        "missing"
    );
}

/// Path, type, default and enum of each field below `schema` that is ours; Kubernetes' own types have no description.
fn describe(path: &str, schema: &Value, found: &mut BTreeMap<String, String>) {
    let items = &schema["items"];
    let properties = schema["properties"]
        .as_object()
        .or_else(|| items["properties"].as_object());
    for (name, field) in properties.into_iter().flatten() {
        let path = format!("{path}.{name}");
        let inner = field["properties"]
            .as_object()
            .or_else(|| field["items"]["properties"].as_object());
        let embedded =
            inner.is_some_and(|inner| inner.values().all(|field| field.get("description").is_none()));
        let kind = if embedded {
            "k8s".to_owned()
        } else {
            type_of(field)
        };
        let default = field.get("default").map(Value::to_string);
        let words = field["enum"].as_array().map(|words| {
            words
                .iter()
                .map(|word| word.as_str().unwrap())
                .collect::<Vec<_>>()
                .join(",")
        });
        let columns = [Some(kind), default, words];
        let last = columns.iter().rposition(Option::is_some).unwrap();
        let text: Vec<_> = columns[..=last]
            .iter()
            .map(|column| column.clone().unwrap_or_default())
            .collect();
        found.insert(path.clone(), text.join("\t"));
        if !embedded {
            describe(&path, field, found);
        }
    }
}

fn type_of(field: &Value) -> String {
    if field["x-kubernetes-int-or-string"] == json!(true) {
        "quantity".to_owned()
    } else if field.get("additionalProperties").is_some() {
        "map".to_owned()
    } else {
        let word = field.get("format").or_else(|| field.get("type")).unwrap();
        word.as_str().unwrap().to_owned()
    }
}

#[test]
fn required_are_only_what_no_template_can_fill_in() {
    let spec = &schema("rayclusters.ray.io", 0)["properties"]["spec"];
    assert_eq!(spec["required"], json!(["headGroupSpec"]));
    let groups = &spec["properties"]["workerGroupSpecs"];
    assert_eq!(groups["items"]["required"], json!(["groupName"]));
    assert_eq!(groups["x-kubernetes-list-map-keys"], json!(["groupName"]));
    assert_eq!(spec["properties"]["headGroupSpec"].get("required"), None);
}

#[test]
fn the_old_version_is_served_deprecated_and_whole() {
    let crd = crd("rayclusters.ray.io");
    let [v1, v1alpha1] = [&crd["spec"]["versions"][0], &crd["spec"]["versions"][1]];
    assert_eq!(
        (&v1["name"], &v1["storage"], &v1["served"]),
        (&json!("v1"), &json!(true), &json!(true))
    );
    assert_eq!(
        (
            &v1alpha1["name"],
            &v1alpha1["storage"],
            &v1alpha1["served"],
            &v1alpha1["deprecated"]
        ),
        (&json!("v1alpha1"), &json!(false), &json!(true), &json!(true))
    );
    assert_eq!(
        v1["additionalPrinterColumns"],
        v1alpha1["additionalPrinterColumns"]
    );
    assert_eq!(v1alpha1["subresources"], json!({"status": {}}));
    for part in ["spec", "status"] {
        let schema = &v1alpha1["schema"]["openAPIV3Schema"]["properties"][part];
        assert_eq!(schema["x-kubernetes-preserve-unknown-fields"], json!(true));
    }
}

#[test]
fn schemas_use_only_what_an_api_server_checks() {
    for crd in crds::all() {
        for version in crd.spec.versions {
            let schema = serde_json::to_value(version.schema.unwrap().open_api_v3_schema).unwrap();
            walk(&version.name, &schema);
        }
    }
}

fn walk(path: &str, schema: &Value) {
    let int_or_string = schema["x-kubernetes-int-or-string"] == json!(true);
    assert!(schema["type"].is_string() != int_or_string, "{path} has one type");
    if let Some(format) = schema.get("format") {
        let format = format.as_str().unwrap();
        assert!(
            ["int32", "int64", "double", "date-time", "byte"].contains(&format),
            "{path}: {format}"
        );
    }
    // A nullable field would keep the null of a Go tool; only timestamps are allowed to.
    let nullable = schema.get("nullable").is_some();
    assert!(
        !nullable || schema["format"] == json!("date-time"),
        "{path} is nullable"
    );
    for keyword in ["anyOf", "oneOf", "allOf", "not", "title", "$ref", "uniqueItems"] {
        assert!(schema.get(keyword).is_none(), "{path} has {keyword}");
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}.{name}"), property);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            walk(&format!("{path}[]"), &schema[inner]);
        }
    }
}
