//! A running Ray cluster: its head, the dashboard behind the API server's port-forward, and Ray's Jobs API.

pub(crate) mod dashboard;
pub(crate) mod jobs;
pub(crate) mod package;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::ListParams;
use ray_api::meta::{NODE_TYPE_HEAD, label};
use ray_api::names;
use ray_api::ray::v1::{AuthMode, RayCluster};

use crate::connection::Connection;
use crate::error::{Failure, Result};
use crate::follow::pod;

/// Ports that Ray listens on where the head names no other.
pub(crate) const DASHBOARD_PORT: u16 = 8265;
pub(crate) const CLIENT_PORT: u16 = 10001;
pub(crate) const SERVE_PORT: u16 = 8000;

/// Key of the token in the auth Secret.
const TOKEN_KEY: &str = "auth_token";

/// The head pod, if it can be talked to.
///
/// # Errors
/// When there is no such cluster, or its head does not run; the reason of the pod is told.
pub(crate) async fn head_pod(connection: &Connection, cluster: &str) -> Result<Pod> {
    let heads = format!(
        "{}={cluster},{}={NODE_TYPE_HEAD}",
        label::CLUSTER,
        label::NODE_TYPE
    );
    let pods = connection
        .api::<Pod>()
        .list(&ListParams::default().labels(&heads))
        .await?
        .items;
    let running = pods.iter().find(|pod| is_running(pod));
    if let Some(head) = running {
        return Ok(head.clone());
    }
    // Tells a missing cluster from one without a head.
    connection.api::<RayCluster>().get(cluster).await?;
    let why = match pods.first() {
        Some(pod) => format!(
            "its head {} {}",
            pod.metadata.name.as_deref().unwrap_or_default(),
            pod::trouble(pod).unwrap_or_else(|| "is going away".to_owned())
        ),
        None => "it has no head pod yet".to_owned(),
    };
    Err(
        Failure::failed(format!("RayCluster `{cluster}` cannot be reached: {why}")).hint(format!(
            "see `kubectl ray describe cluster {cluster} -n {}`",
            connection.namespace
        )),
    )
}

fn is_running(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
}

/// The port of the Ray container called `name`, else `default`.
pub(crate) fn port(pod: &Pod, name: &str, default: u16) -> u16 {
    let containers = pod
        .spec
        .as_ref()
        .map(|spec| spec.containers.as_slice())
        .unwrap_or_default();
    let ports = containers.first().and_then(|container| container.ports.as_ref());
    let named = ports.and_then(|ports| ports.iter().find(|port| port.name.as_deref() == Some(name)));
    named
        .and_then(|port| u16::try_from(port.container_port).ok())
        .unwrap_or(default)
}

/// The token of a cluster with token authentication; None for others.
///
/// # Errors
/// When the Secret is not there or may not be read.
pub(crate) async fn auth_token(connection: &Connection, cluster: &RayCluster) -> Result<Option<String>> {
    let Some(options) = cluster
        .spec
        .auth_options
        .as_ref()
        .filter(|o| o.mode == Some(AuthMode::Token))
    else {
        return Ok(None);
    };
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let secret_name = options
        .secret_name
        .clone()
        .unwrap_or_else(|| names::check_name(name));
    let secret = connection.api::<Secret>().get(&secret_name).await?;
    let token = secret.data.and_then(|mut data| data.remove(TOKEN_KEY));
    let token = token.and_then(|bytes| String::from_utf8(bytes.0).ok());
    let missing = || Failure::failed(format!("Secret `{secret_name}` has no key `{TOKEN_KEY}`"));
    token.map(Some).ok_or_else(missing)
}
