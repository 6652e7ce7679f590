//! What a test needs before it has a webhook: CRDs, ports, the shipped manifests.

use std::net::TcpListener;
use std::path::Path;

use anyhow::Context;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use ray_tests::{Cluster, eventually, repository};
use serde_json::Value;

use super::Site;

/// What `kubectl kustomize` makes of an overlay of the shipped manifests, its paths relative to them.
pub fn kustomize(site: &Site, overlay: &str) -> anyhow::Result<Vec<Value>> {
    // kustomize takes relative paths only.
    let folder = repository().join(".local/overlays").join(&site.namespace);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(
        folder.join("kustomization.yaml"),
        overlay.replace("manifests/", "../../../manifests/"),
    )?;
    let built = site
        .user
        .kubectl(&["kustomize", &folder.to_string_lossy()])?
        .success()?;
    Ok(serde_saphyr::from_multiple(&built)?)
}

/// The object of that kind and name.
pub fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    objects
        .iter()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
}

pub fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("0.0.0.0:0")?.local_addr()?.port())
}

/// Applies the CRDs; concurrent tests apply the same.
pub async fn install_crds(cluster: &Cluster) -> anyhow::Result<()> {
    let api: Api<DynamicObject> = Api::all_with(
        cluster.client.clone(),
        &resource("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    );
    for entry in std::fs::read_dir(repository().join("manifests/crds"))? {
        for definition in documents(&entry?.path())?
            .into_iter()
            .filter(|d| d["kind"] == "CustomResourceDefinition")
        {
            let name = definition["metadata"]["name"]
                .as_str()
                .context("no name")?
                .to_owned();
            api.patch(
                &name,
                &PatchParams::apply("tests").force(),
                &Patch::Apply(&definition),
            )
            .await?;
            established(&api, &name).await?;
        }
    }
    Ok(())
}

pub async fn established(api: &Api<DynamicObject>, name: &str) -> anyhow::Result<()> {
    eventually("the CRD is established", || async {
        let definition = api.get(name).await?;
        let conditions = definition.data["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let done = conditions
            .iter()
            .any(|c| c["type"] == "Established" && c["status"] == "True");
        Ok(done.then_some(()))
    })
    .await
}

pub fn documents(path: &Path) -> anyhow::Result<Vec<Value>> {
    let text = std::fs::read_to_string(path)?;
    serde_saphyr::from_multiple(&text).with_context(|| format!("{} does not parse", path.display()))
}

/// Address of this machine as the API server, in its own network, sees it.
pub(super) fn host_address(kubeconfig: &Path) -> anyhow::Result<String> {
    let path = kubeconfig.parent().unwrap_or(Path::new(".")).join("env");
    let Ok(env) = std::fs::read_to_string(&path) else {
        return Ok("127.0.0.1".into());
    };
    let address = env.lines().find_map(|line| line.strip_prefix("HOST_ADDRESS="));
    address
        .map(str::to_owned)
        .with_context(|| format!("no HOST_ADDRESS in {}", path.display()))
}

pub(super) fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

pub(super) fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
