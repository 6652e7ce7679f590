//! The API server's answer to the table that `api/tests/rules.rs` holds the Rust rules to.

use anyhow::Result;
use kube::Client;
use ray_tests::repository;
use serde_json::{Value, json};

use super::apply::{cluster, group};
use super::server;

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn each_case_is_judged_as_the_table_says() -> Result<()> {
    let (client, namespace) = server::control_plane().await?;
    let cases = server::yaml(&repository().join("api/tests/fixtures/rules.yaml"))?;
    for case in cases.as_array().unwrap() {
        for kind in kinds(case) {
            judged(&client, &namespace, case, kind).await?;
        }
    }
    Ok(())
}

/// As in `api/tests/rules.rs`: cluster-wide templates are held to the rules of the others.
fn kinds(case: &Value) -> Vec<&str> {
    match case["kind"].as_str().unwrap_or("RayCluster") {
        "ComputeTemplate" => vec!["ComputeTemplate", "ClusterComputeTemplate"],
        kind => vec![kind],
    }
}

async fn judged(client: &Client, namespace: &str, case: &Value, kind: &str) -> Result<()> {
    let name = case["name"].as_str().unwrap();
    let mut object = base(kind);
    json_patch::merge(&mut object, &case["patch"]);
    restore_nulls(&mut object, &case["patch"]);
    let path = match kind {
        "RayCluster" => format!("/apis/ray.io/v1/namespaces/{namespace}/rayclusters"),
        "ClusterComputeTemplate" => "/apis/templates.ray.io/v1alpha1/clustercomputetemplates".to_owned(),
        _ => format!(
            "/apis/templates.ray.io/v1alpha1/namespaces/{namespace}/{}s",
            kind.to_lowercase()
        ),
    };
    let answer = server::create(client, &format!("{path}?dryRun=All"), &object).await?;
    if matches!(case["by"].as_str().unwrap(), "both" | "crd") {
        let field = case
            .get("crdField")
            .or_else(|| case.get("field"))
            .unwrap()
            .as_str()
            .unwrap();
        assert_eq!(answer.status, 422, "{kind}: {name}: {}", answer.body);
        let causes = answer.causes();
        assert!(
            causes
                .iter()
                .any(|(found, message)| found == field && message.len() > 20),
            "{kind}: {name}: no cause at {field} in {causes:?}"
        );
    } else {
        assert_eq!(answer.status, 201, "{kind}: {name}: {}", answer.body);
    }
    Ok(())
}

/// The same objects as in `api/tests/rules.rs`.
fn base(kind: &str) -> Value {
    if kind == "RayCluster" {
        return cluster("base-case");
    }
    let mut object = json!({
        "apiVersion": "templates.ray.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": "base-case"},
        "spec": {},
    });
    if kind == "ImageTemplate" {
        object["spec"]["baseImage"] = json!("rayproject/ray:2.60.0");
    }
    object
}

/// A merge patch removes what is null, but inside lists nulls are values.
fn restore_nulls(object: &mut Value, patch: &Value) {
    if let Some(groups) = patch["spec"].get("workerGroupSpecs") {
        object["spec"]["workerGroupSpecs"] = groups.clone();
    }
}

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn the_manager_and_the_backend_cannot_be_changed() -> Result<()> {
    let (client, namespace) = server::control_plane().await?;
    let path = format!("/apis/ray.io/v1/namespaces/{namespace}/rayclusters");
    let mut object = cluster("set-once");
    object["spec"]["managedBy"] = json!("ray.io/kuberay-operator");
    object["spec"]["gcsFaultToleranceOptions"] = json!({"backend": "redis", "redisAddress": "redis:6379"});
    server::create(&client, &path, &object).await?.accepted()?;
    for (field, patch) in [
        (
            "spec.managedBy",
            json!({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}),
        ),
        (
            "spec.gcsFaultToleranceOptions.backend",
            json!({"spec": {"gcsFaultToleranceOptions": {"backend": "rocksdb"}}}),
        ),
    ] {
        let answer = server::merge_patch(&client, &format!("{path}/set-once"), &patch).await?;
        assert_eq!(answer.status, 422, "{field}");
        let causes = answer.causes();
        assert!(
            causes
                .iter()
                .any(|(at, said)| at == field && said.contains("cannot be changed once it is set")),
            "{causes:?}"
        );
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn a_new_group_of_a_known_name_is_denied_on_update_too() -> Result<()> {
    let (client, namespace) = server::control_plane().await?;
    let path = format!("/apis/ray.io/v1/namespaces/{namespace}/rayclusters");
    server::create(&client, &path, &cluster("unique"))
        .await?
        .accepted()?;
    let patch = json!({"spec": {"workerGroupSpecs": [group("g"), group("g")]}});
    let answer = server::merge_patch(&client, &format!("{path}/unique"), &patch).await?;
    assert_eq!(answer.status, 422);
    assert_eq!(answer.causes()[0].0, "spec.workerGroupSpecs[1]");
    Ok(())
}
