//! Plain HTTP to the API server: what kube's typed client hides (warnings, tables, causes) is what these tests are about.

use std::path::Path;

use anyhow::{Context, Result, bail};
use kube::Client;
use kube::client::Body;
use ray_tests::{Cluster, eventually, repository};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// Path of the CRDs' API.
pub(crate) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A control plane with the CRDs of `manifests/crds/`, applied once for all tests, and a new namespace.
pub(crate) async fn control_plane() -> Result<(Client, String)> {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let cluster = Cluster::control_plane().await?;
    let install_all = async || {
        for crd in committed_crds()? {
            install(&cluster.client, &crd).await?;
        }
        anyhow::Ok(())
    };
    INSTALLED.get_or_try_init(install_all).await?;
    let namespace = cluster.namespace("crds").await?;
    Ok((cluster.client, namespace))
}

/// The CRDs as they are committed.
pub(crate) fn committed_crds() -> Result<Vec<Value>> {
    let mut crds = Vec::new();
    for file in std::fs::read_dir(repository().join("manifests/crds"))? {
        let file = file?.path();
        if file.file_name() != Some("kustomization.yaml".as_ref()) {
            crds.push(yaml(&file)?);
        }
    }
    Ok(crds)
}

/// The RayCluster CRD as it is committed.
pub(crate) fn ray_cluster_crd() -> Result<Value> {
    yaml(&repository().join("manifests/crds/rayclusters.ray.io.yaml"))
}

/// A YAML file of one document.
pub(crate) fn yaml(file: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(file)?;
    serde_saphyr::from_str(&text).with_context(|| file.display().to_string())
}

/// Applies a CRD and waits until it is served; it must be taken without a warning.
pub(crate) async fn install(client: &Client, crd: &Value) -> Result<()> {
    let name = crd["metadata"]["name"].as_str().context("a name")?;
    let path = format!("{CRDS}/{name}");
    let applied = apply(client, &path, "crds-test", crd).await?;
    applied.accepted()?;
    if !applied.warnings.is_empty() {
        bail!("{name} is taken with warnings: {:?}", applied.warnings);
    }
    eventually(&format!("{name} to be served"), || async {
        let crd = get(client, &path).await?.accepted()?;
        let conditions = crd["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let is_true = |type_: &str| {
            conditions
                .iter()
                .any(|c| c["type"] == type_ && c["status"] == "True")
        };
        Ok((is_true("Established") && is_true("NamesAccepted")).then_some(()))
    })
    .await
}

/// What the API server said.
#[derive(Debug)]
pub(crate) struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Object, table or `Status`.
    pub body: Value,
    /// Texts of the `Warning` headers.
    pub warnings: Vec<String>,
}

impl Answer {
    /// The body of a request that went well.
    pub(crate) fn accepted(&self) -> Result<Value> {
        if self.status >= 300 {
            bail!("{}: {}", self.status, self.body["message"]);
        }
        Ok(self.body.clone())
    }

    /// Fields and messages of the causes for which an object is invalid.
    pub(crate) fn causes(&self) -> Vec<(String, String)> {
        let causes = self.body["details"]["causes"].as_array();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        causes
            .into_iter()
            .flatten()
            .map(|cause| (text(&cause["field"]), text(&cause["message"])))
            .collect()
    }
}

/// GET.
pub(crate) async fn get(client: &Client, path: &str) -> Result<Answer> {
    send(client, "GET", path, "application/json", None).await
}

/// GET as `kubectl get` does.
pub(crate) async fn get_table(client: &Client, path: &str) -> Result<Answer> {
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let request = http_request("GET", path)
        .header("Accept", accept)
        .body(Body::empty())?;
    answer(client, request).await
}

/// POST.
pub(crate) async fn create(client: &Client, path: &str, object: &Value) -> Result<Answer> {
    send(client, "POST", path, "application/json", Some(object)).await
}

/// PUT.
pub(crate) async fn replace(client: &Client, path: &str, object: &Value) -> Result<Answer> {
    send(client, "PUT", path, "application/json", Some(object)).await
}

/// JSON merge patch, which client-side apply sends for custom resources.
pub(crate) async fn merge_patch(client: &Client, path: &str, patch: &Value) -> Result<Answer> {
    send(client, "PATCH", path, "application/merge-patch+json", Some(patch)).await
}

/// Server-side apply, forced, with strict field validation.
pub(crate) async fn apply(client: &Client, path: &str, manager: &str, object: &Value) -> Result<Answer> {
    let path = format!("{path}?fieldManager={manager}&force=true&fieldValidation=Strict");
    send(
        client,
        "PATCH",
        &path,
        "application/apply-patch+yaml",
        Some(object),
    )
    .await
}

async fn send(client: &Client, method: &str, path: &str, kind: &str, body: Option<&Value>) -> Result<Answer> {
    let body = body.map_or(Ok(Vec::new()), serde_json::to_vec)?;
    let request = http_request(method, path)
        .header("Content-Type", kind)
        .body(Body::from(body))?;
    answer(client, request).await
}

fn http_request(method: &str, path: &str) -> http::request::Builder {
    http::Request::builder().method(method).uri(path)
}

async fn answer(client: &Client, request: http::Request<Body>) -> Result<Answer> {
    let response = client.send(request).await?;
    let status = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings
        .map(|warning| String::from_utf8_lossy(warning.as_bytes()).into_owned())
        .collect();
    let bytes = response.into_body().collect_bytes().await?;
    let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)));
    Ok(Answer {
        status,
        body,
        warnings,
    })
}
