//! Requests of the cluster controller: each with a time limit, one field manager, and answers decoded only as
//! far as they are used.

use std::future::Future;

use http::header::ACCEPT;
use http::{HeaderValue, Request};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Resource};
use ray_api::meta::manager;
use ray_api::ray::RayCluster;
use ray_api::ray::v1::RayClusterStatus;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::timeout;

use super::error::{RequestError, WRITE_TIMEOUT};

/// An answer's form: its metadata, or all of it from a server that cannot part them.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json";

/// Awaits an answer, but not for ever.
pub(super) async fn within<T>(
    answer: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, RequestError> {
    match timeout(WRITE_TIMEOUT, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(RequestError::Timeout),
    }
}

async fn send<T: DeserializeOwned>(
    client: &Client,
    request: Result<Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<T, RequestError> {
    let request = request.map_err(kube::Error::BuildRequest)?;
    within(client.request::<T>(request)).await
}

/// Sends what nobody reads the answer of: asked for metadata, the API server does not write out the whole object.
async fn send_only(
    client: &Client,
    request: Result<Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<(), RequestError> {
    let request = request.map(|mut request| {
        let form = HeaderValue::from_static(METADATA_ONLY);
        request.headers_mut().insert(ACCEPT, form);
        request
    });
    send::<IgnoredAny>(client, request).await.map(drop)
}

fn pods(namespace: &str) -> kube::core::Request {
    kube::core::Request::new(Pod::url_path(&(), Some(namespace)))
}

/// POSTs a pod; its environment may name a variable twice, which an apply would refuse.
pub(super) async fn create_pod(client: &Client, namespace: &str, pod: &Pod) -> Result<(), RequestError> {
    let request = pods(namespace).create(&post(), serde_json::to_vec(pod)?);
    send_only(client, request).await
}

/// Deletes that very pod, not a later one of its name.
pub(super) async fn delete_pod(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: &str,
    by_force: bool,
) -> Result<(), RequestError> {
    let params = DeleteParams {
        grace_period_seconds: by_force.then_some(0),
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    send_only(client, pods(namespace).delete(name, &params)).await
}

/// Writes annotations of a pod.
pub(super) async fn annotate_pod(
    client: &Client,
    namespace: &str,
    name: &str,
    annotations: Value,
) -> Result<(), RequestError> {
    let patch = serde_json::json!({"metadata": {"annotations": annotations}});
    let request = pods(namespace).patch(name, &merge(), &Patch::Merge(patch));
    send_only(client, request).await
}

/// What a written status answers with, as far as it is used.
#[derive(Debug, Deserialize)]
pub(super) struct Written {
    /// With the resourceVersion that the write made.
    pub metadata: Version,
    /// The status, with what other writers said.
    #[serde(default)]
    pub status: Option<RayClusterStatus>,
}

/// `metadata.resourceVersion`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Version {
    /// Its text.
    pub resource_version: Option<String>,
}

/// Applies the status of a RayCluster.
pub(super) async fn apply_status(
    client: &Client,
    namespace: &str,
    name: &str,
    patch: Value,
) -> Result<Written, RequestError> {
    let clusters = kube::core::Request::new(RayCluster::url_path(&(), Some(namespace)));
    let request = clusters.patch_subresource("status", name, &apply(), &Patch::Apply(patch));
    send(client, request).await
}

/// Parameters of a creation.
pub(super) fn post() -> PostParams {
    PostParams {
        field_manager: Some(manager::CLUSTER.to_owned()),
        ..PostParams::default()
    }
}

/// Parameters of a merge patch.
pub(super) fn merge() -> PatchParams {
    PatchParams {
        field_manager: Some(manager::CLUSTER.to_owned()),
        ..PatchParams::default()
    }
}

/// Parameters of a server-side apply; what we say of our own objects holds.
pub(super) fn apply() -> PatchParams {
    PatchParams::apply(manager::CLUSTER).force()
}

/// An object as a patch wants it: with its type.
pub(super) fn typed<K>(object: &K) -> Result<Value, RequestError>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let mut value = serde_json::to_value(object)?;
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".to_owned(), K::api_version(&()).into());
        map.insert("kind".to_owned(), K::kind(&()).into());
    }
    Ok(value)
}
