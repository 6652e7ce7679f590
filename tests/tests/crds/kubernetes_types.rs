//! The embedded Kubernetes types, compared with what the API server publishes about its own.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::server;

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn embedded_types_are_those_of_the_api_server() -> Result<()> {
    let (client, _) = server::control_plane().await?;
    let document = server::get(&client, "/openapi/v3/api/v1").await?.accepted()?;
    let crd = server::ray_cluster_crd()?;
    let root = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    let head = &root["headGroupSpec"]["properties"];
    let mut compared = Comparison {
        schemas: &document["components"]["schemas"],
        differences: Vec::new(),
        fields: 0,
    };
    for (path, ours, kind) in [
        ("template", &head["template"], "PodTemplateSpec"),
        ("headService", &head["headService"], "Service"),
        (
            "valueFrom",
            &root["gcsFaultToleranceOptions"]["properties"]["redisPassword"]["properties"]["valueFrom"],
            "EnvVarSource",
        ),
    ] {
        let theirs = json!({"$ref": format!("#/components/schemas/io.k8s.api.core.v1.{kind}")});
        compared.compare(path, ours, &theirs);
    }
    assert_eq!(compared.differences, Vec::<String>::new());
    assert!(
        compared.fields > 500,
        "only {} fields were compared",
        compared.fields
    );
    Ok(())
}

struct Comparison<'a> {
    schemas: &'a Value,
    differences: Vec<String>,
    fields: usize,
}

impl Comparison<'_> {
    fn compare(&mut self, path: &str, ours: &Value, theirs: &Value) {
        self.fields += 1;
        let theirs = self.resolved(theirs);
        let kind = theirs["$kind"].as_str().unwrap_or_default();
        if kind.ends_with(".ObjectMeta") {
            return; // Cut down on purpose: embedded metadata holds what a template can hold.
        }
        if kind.ends_with(".Quantity") || kind.ends_with(".IntOrString") {
            self.equal(
                path,
                "int-or-string",
                &ours["x-kubernetes-int-or-string"],
                &json!(true),
            );
            return;
        }
        for keyword in ["type", "format"] {
            self.equal(path, keyword, &ours[keyword], &theirs[keyword]);
        }
        for keyword in [
            "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-map-type",
        ] {
            // Lists without a type are atomic in a CRD.
            let atomic_list = keyword == "x-kubernetes-list-type" && theirs[keyword] == "atomic";
            let expected = if atomic_list {
                &Value::Null
            } else {
                &theirs[keyword]
            };
            self.equal(path, keyword, &ours[keyword], expected);
        }
        if !path.ends_with("template.spec") {
            // A ComputeTemplate or ImageTemplate can make the container.
            self.equal(
                path,
                "required",
                &sorted(&ours["required"]),
                &sorted(&theirs["required"]),
            );
        }
        let (ours_fields, theirs_fields) = (properties(ours), properties(&theirs));
        let names = |fields: &Map<String, Value>| json!(fields.keys().collect::<Vec<_>>());
        self.equal(path, "fields", &names(&ours_fields), &names(&theirs_fields));
        for (name, field) in &theirs_fields {
            if let Some(ours) = ours_fields.get(name) {
                self.compare(&format!("{path}.{name}"), ours, field);
            }
        }
        for inner in ["items", "additionalProperties"] {
            if theirs[inner].is_object() {
                self.compare(&format!("{path}[]"), &ours[inner], &theirs[inner]);
            }
        }
    }

    /// What a reference refers to, with the keywords that stand beside it; `$kind` names it.
    fn resolved(&self, schema: &Value) -> Value {
        let reference = schema["$ref"]
            .as_str()
            .or_else(|| schema["allOf"][0]["$ref"].as_str());
        let Some(name) = reference.and_then(|reference| reference.rsplit('/').next()) else {
            return schema.clone();
        };
        let mut resolved = self.schemas[name].clone();
        for (key, value) in schema.as_object().into_iter().flatten() {
            if key != "allOf" && key != "$ref" {
                resolved[key] = value.clone();
            }
        }
        resolved["$kind"] = json!(name);
        resolved
    }

    fn equal(&mut self, path: &str, what: &str, ours: &Value, theirs: &Value) {
        if ours != theirs {
            self.differences
                .push(format!("{path}: {what}: ours {ours}, Kubernetes' {theirs}"));
        }
    }
}

fn properties(schema: &Value) -> Map<String, Value> {
    schema["properties"].as_object().cloned().unwrap_or_default()
}

fn sorted(list: &Value) -> Value {
    let mut words: Vec<_> = list
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    words.sort_unstable();
    json!(words)
}
