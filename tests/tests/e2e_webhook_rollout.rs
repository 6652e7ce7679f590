//! A new version of the webhook comes in while clusters are written, and no call fails.

use kube::api::Api;
use kube::core::{ApiResource, GroupVersionKind};
use ray_tests::{Cluster, Load, User};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn a_rolling_update_fails_no_call() -> anyhow::Result<()> {
    let cluster = Cluster::node().await?;
    let user = User::new(&cluster, "rollout").await?;
    user.compute_template("small", "1", "1Gi")?;
    let pods = user.webhook_pods()?;
    assert_eq!(pods.lines().count(), 2, "{pods}");

    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("ray.io", "v1", "RayCluster"));
    let clusters = Api::namespaced_with(cluster.client.clone(), &user.namespace, &resource);
    let probe = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "probe"},
        "spec": {"imageTemplate": "none", "headGroupSpec": {"computeTemplate": "small"}}});
    let load = Load::start(clusters, serde_json::from_value(probe)?);
    user.system(&["rollout", "restart", "deployment/ray-webhook"])?;
    user.system(&["rollout", "status", "deployment/ray-webhook", "--timeout=180s"])?;
    // The old pods go on answering for a while; their end is part of the update.
    for pod in pods.lines() {
        user.system(&["wait", "--for=delete", pod, "--timeout=120s"])?;
    }
    load.stop().await
}
