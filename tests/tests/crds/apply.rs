//! Objects as people and tools send them: nulls, defaults, server-side apply, both versions, tables.

use anyhow::Result;
use serde_json::{Value, json};

use super::server::{self, Answer};

/// A RayCluster with one group.
pub(crate) fn cluster(name: &str) -> Value {
    json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name},
        "spec": {
            "headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray-head", "image": "ray"}]}}},
            "workerGroupSpecs": [group("g")],
        },
    })
}

/// A worker group.
pub(crate) fn group(name: &str) -> Value {
    json!({"groupName": name, "template": {"spec": {"containers": [{"name": "ray-worker", "image": "ray"}]}}})
}

fn path(namespace: &str, version: &str) -> String {
    format!("/apis/ray.io/{version}/namespaces/{namespace}/rayclusters")
}

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn columns_are_those_of_kuberay_in_both_versions() -> Result<()> {
    let (client, namespace) = server::control_plane().await?;
    let columns = |table: Value| -> Vec<(String, String, i64)> {
        let columns = table["columnDefinitions"].as_array().unwrap().clone();
        let of = |column: &Value| {
            (
                column["name"].as_str().unwrap().to_owned(),
                column["type"].as_str().unwrap().to_owned(),
                column["priority"].as_i64().unwrap(),
            )
        };
        columns.iter().skip(1).map(of).collect()
    };
    let expected: Vec<_> = [
        ("desired workers", "integer", 0),
        ("available workers", "integer", 0),
        ("cpus", "string", 0),
        ("memory", "string", 0),
        ("gpus", "string", 0),
        ("tpus", "string", 1),
        ("status", "string", 0),
        ("age", "date", 0),
        ("head pod IP", "string", 1),
        ("head service IP", "string", 1),
    ]
    .map(|(name, kind, priority)| (name.to_owned(), kind.to_owned(), priority))
    .into();
    for version in ["v1", "v1alpha1"] {
        let table = server::get_table(&client, &path(&namespace, version)).await?;
        assert_eq!(columns(table.accepted()?), expected, "{version}");
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn nulls_of_go_tools_are_taken_and_dropped() -> Result<()> {
    let (client, namespace) = server::control_plane().await?;
    let mut object = cluster("nulls");
    object["metadata"]["creationTimestamp"] = Value::Null;
    object["status"] = Value::Null;
    let head = &mut object["spec"]["headGroupSpec"];
    head["rayStartParams"] = Value::Null;
    head["template"]["metadata"] = json!({"creationTimestamp": null, "labels": {"a": "b"}});
    head["template"]["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": 1, "memory": null}});
    object["spec"]["workerGroupSpecs"][0]["replicas"] = Value::Null;
    object["spec"]["workerGroupSpecs"][0]["template"]["metadata"] = Value::Null;
    let path = path(&namespace, "v1");

    let created = server::create(&client, &format!("{path}?fieldValidation=Strict"), &object).await?;
    let stored = created.accepted()?;
    assert_eq!(created.warnings, Vec::<String>::new());
    let head = &stored["spec"]["headGroupSpec"];
    assert_eq!(head.get("rayStartParams"), None);
    assert_eq!(head["template"]["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(
        head["template"]["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": 1}})
    );
    let group = &stored["spec"]["workerGroupSpecs"][0];
    assert_eq!(group["replicas"], 0);
    assert_eq!(group["maxReplicas"], i32::MAX);

    // Server-side apply, as Flux does it, of a manifest that Go's YAML wrote.
    let mut object = cluster("nulls-applied");
    object["metadata"]["creationTimestamp"] = Value::Null;
    object["spec"]["headGroupSpec"]["template"]["metadata"] = json!({"creationTimestamp": null});
    let applied = server::apply(&client, &format!("{path}/nulls-applied"), "flux", &object).await?;
    applied.accepted()?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn server_side_apply_merges_lists_by_their_keys() -> Result<()> {
    let (client, namespace) = server::control_plane().await?;
    let object = format!("{}/merged", path(&namespace, "v1"));
    let mut first = cluster("merged");
    first["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "A", "value": "1"}]);
    first["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["ports"] =
        json!([{"containerPort": 6379, "name": "gcs"}]);
    server::apply(&client, &object, "first", &first)
        .await?
        .accepted()?;

    // Another manager scales the group that it did not make, and adds a group, a variable and a port. (The order of an
    // applied list counts, so it names the groups in theirs.)
    let second = json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "spec": {
            "headGroupSpec": {"template": {"spec": {"containers": [{
                "name": "ray-head",
                "env": [{"name": "B", "value": "2"}],
                "ports": [{"containerPort": 6379, "protocol": "UDP"}],
            }]}}},
            "workerGroupSpecs": [{"groupName": "g", "replicas": 3}, group("other")],
        },
    });
    let merged = server::apply(&client, &object, "second", &second)
        .await?
        .accepted()?;
    let groups = merged["spec"]["workerGroupSpecs"].as_array().unwrap();
    assert_eq!(groups.len(), 2);
    assert_eq!(
        (&groups[0]["groupName"], &groups[0]["replicas"]),
        (&json!("g"), &json!(3))
    );
    assert_eq!(
        groups[0]["template"],
        first["spec"]["workerGroupSpecs"][0]["template"]
    );
    let ray = &merged["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0];
    assert_eq!(ray["image"], "ray");
    assert_eq!(
        ray["env"],
        json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}])
    );
    assert_eq!(ray["ports"][0]["protocol"], "TCP");
    assert_eq!(ray["ports"].as_array().unwrap().len(), 2);

    // The first manager applies again: what the second one added stays, and nothing changes.
    let again = server::apply(&client, &object, "first", &first)
        .await?
        .accepted()?;
    assert_eq!(
        again["metadata"]["resourceVersion"],
        merged["metadata"]["resourceVersion"]
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn the_old_version_keeps_every_field_and_says_that_it_is_old() -> Result<()> {
    let (client, namespace) = server::control_plane().await?;
    let mut object = cluster("old");
    object["apiVersion"] = json!("ray.io/v1alpha1");
    object["spec"]["suspend"] = json!(true);
    object["spec"]["workerGroupSpecs"][0]["numOfHosts"] = json!(2);
    let created = server::create(&client, &path(&namespace, "v1alpha1"), &object).await?;
    created.accepted()?;
    assert!(is_deprecated(&created), "{:?}", created.warnings);
    let read = server::get(&client, &format!("{}/old", path(&namespace, "v1"))).await?;
    assert_eq!(read.warnings, Vec::<String>::new());
    let read = read.accepted()?;
    assert_eq!(read["spec"]["suspend"], true);
    assert_eq!(read["spec"]["workerGroupSpecs"][0]["numOfHosts"], 2);
    assert_eq!(read["spec"]["workerGroupSpecs"][0]["minReplicas"], 0);
    Ok(())
}

fn is_deprecated(answer: &Answer) -> bool {
    answer
        .warnings
        .iter()
        .any(|warning| warning.contains("use ray.io/v1"))
}
