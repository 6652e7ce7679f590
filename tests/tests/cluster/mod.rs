//! What the tests of the cluster controller share.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod life;

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use ray_tests::{Cluster, Process, eventually, repository};
use serde_json::{Value, json};

/// Applies our RayCluster CRD and waits until it is served.
pub(crate) async fn install_crd(cluster: &Cluster) -> anyhow::Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let text = std::fs::read_to_string(repository().join("manifests/crds/rayclusters.ray.io.yaml"))?;
    let crd: Value = serde_saphyr::from_str(&text)?;
    let name = "rayclusters.ray.io";
    api.patch(name, &PatchParams::apply("ray-tests").force(), &Patch::Apply(crd))
        .await?;
    eventually("the RayCluster CRD is served", || async {
        let crd = api.get(name).await?;
        let conditions = crd
            .status
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        let served = conditions
            .iter()
            .any(|c| c.type_ == "Established" && c.status == "True");
        Ok(served.then_some(()))
    })
    .await
}

/// A namespace whose name the test cannot choose, with its default ServiceAccount.
pub(crate) async fn fixed_namespace(cluster: &Cluster, name: &str) -> anyhow::Result<()> {
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(cluster.client.clone());
    let object = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    match namespaces.create(&PostParams::default(), &object).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(error) => return Err(error.into()),
    }
    default_account(cluster, name).await
}

/// Waits for the ServiceAccount without which no pod is admitted.
pub(crate) async fn default_account(cluster: &Cluster, namespace: &str) -> anyhow::Result<()> {
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
        Api::namespaced(cluster.client.clone(), namespace);
    eventually("the default ServiceAccount", || async {
        Ok(accounts.get_opt("default").await?)
    })
    .await
    .map(drop)
}

/// Creates an object unless it is there.
pub(crate) async fn create_if_absent(api: &Api<DynamicObject>, object: Value) -> anyhow::Result<()> {
    match api
        .create(&PostParams::default(), &serde_json::from_value(object)?)
        .await
    {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Deletes everything and waits until it is gone; finalizers of an operator that is no more are taken off.
pub(crate) async fn delete_all(api: &Api<DynamicObject>) -> anyhow::Result<()> {
    for object in api.list(&ListParams::default()).await? {
        let name = object.name_any();
        let free = json!({"metadata": {"finalizers": null}});
        api.patch(&name, &PatchParams::default(), &Patch::Merge(free))
            .await?;
        api.delete(&name, &DeleteParams::default()).await?;
    }
    eventually("everything is gone", || async {
        let left = api.list(&ListParams::default()).await?;
        Ok(left.items.is_empty().then_some(()))
    })
    .await
}

/// resourceVersion by name.
pub(crate) async fn versions(api: &Api<DynamicObject>) -> anyhow::Result<BTreeMap<String, Option<String>>> {
    let list = api.list(&ListParams::default()).await?;
    Ok(list
        .iter()
        .map(|object| (object.name_any(), object.resource_version()))
        .collect())
}

/// Starts the operator's cluster controller for one namespace.
pub(crate) fn operator(cluster: &Cluster, namespace: &str, more: &[&str]) -> anyhow::Result<Process> {
    let watch = format!("--watch-namespace={namespace}");
    let mut args = vec![
        "--controllers=cluster",
        &watch,
        "--enable-leader-election=false",
        "--metrics-addr=127.0.0.1:0",
        "--health-probe-bind-address=127.0.0.1:0",
        "--log-format=text",
    ];
    args.extend(more);
    Process::start("ray-operator", &cluster.kubeconfig, &args)
}
