//! A user of the plugin on a control plane with our CRDs, and without any of our servers.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test file uses its own part"
)]

use kube::Api;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use ray_tests::{Cluster, User, eventually, repository};

pub fn clusters(cluster: &Cluster, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("ray.io", "v1", "RayCluster"));
    Api::namespaced_with(cluster.client.clone(), namespace, &resource)
}

pub async fn set_up(prefix: &str) -> anyhow::Result<(Cluster, User)> {
    let cluster = Cluster::control_plane().await?;
    let user = User::new(&cluster, prefix).await?;
    let crds = repository().join("manifests/crds");
    user.kubectl(&[
        "apply",
        "--server-side",
        "--force-conflicts",
        "-k",
        &crds.to_string_lossy(),
    ])?
    .success()?;
    let established = [
        "wait",
        "--for=condition=established",
        "--timeout=60s",
        "crd",
        "--all",
    ];
    // It fails at once on a CRD that has no condition yet.
    eventually("the CRDs are established", || async {
        Ok((user.kubectl(&established)?.code == 0).then_some(()))
    })
    .await?;
    Ok((cluster, user))
}
