//! What a person can do who has the role `ray-user` in a namespace, and nothing else.

mod plugin;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use plugin::set_up;
use ray_tests::{Output, User, eventually, repository};
use serde_json::json;

/// Runs the plugin as the user that the role is bound to.
fn as_jane(user: &User, words: &[&str]) -> anyhow::Result<Output> {
    user.ray(&[&["--as", "jane"], words].concat())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn the_role_for_users_is_enough_for_the_verbs_of_users() -> anyhow::Result<()> {
    let (cluster, user) = set_up("rights").await?;
    let roles = repository().join("manifests/operator/roles.yaml");
    let apply = ["apply", "--server-side", "--force-conflicts", "-f"];
    user.kubectl(&[&apply[..], &[&roles.to_string_lossy()]].concat())?
        .success()?;
    let bind = [
        "create",
        "rolebinding",
        "jane",
        "--clusterrole=ray-user",
        "--user=jane",
    ];
    user.kubectl(&bind)?.success()?;
    user.compute_template("small", "1", "2Gi")?;
    eventually("the role is in force", || async {
        Ok((as_jane(&user, &["get", "cluster"])?.code == 0).then_some(()))
    })
    .await?;

    let image = [
        "create",
        "image-template",
        "torch",
        "--base-image",
        "rayproject/ray:2.60.0",
    ];
    as_jane(&user, &image)?.success()?;
    let create = [
        "create",
        "cluster",
        "c",
        "--image",
        "a:1",
        "--compute-template",
        "small",
    ];
    as_jane(&user, &[&create[..], &["--expand", "client"]].concat())?.success()?;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &user.namespace);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "c-head", "labels": {
            "ray.io/cluster": "c", "ray.io/node-type": "head", "ray.io/is-ray-node": "yes"}},
        "spec": {"containers": [{"name": "ray-head", "image": "a:1"}]}}))?;
    // The namespace's service account comes a moment after it.
    eventually("the pod is there", || async {
        pods.create(&PostParams::default(), &pod).await?;
        Ok(Some(()))
    })
    .await?;

    let verbs: [&[&str]; 13] = [
        &["create", "workergroup", "g", "-c", "c"],
        &["get", "cluster", "c", "-o", "wide"],
        &["get", "workergroup", "-c", "c"],
        &["get", "node", "c-head"],
        &["get", "image-template", "torch"],
        &["get", "compute-template", "small"],
        &["get", "endpoints", "c"],
        &["describe", "cluster", "c"],
        &["describe", "image-template", "torch"],
        &["explain", "cluster", "c"],
        &["scale", "cluster", "c", "-w", "g", "--replicas", "2"],
        &["refresh", "cluster", "c", "--restart"],
        &["build", "rebuild", "torch"],
    ];
    for verb in verbs {
        let done = as_jane(&user, verb)?;
        assert_eq!(done.code, 0, "{verb:?}: {done:?}");
    }
    assert!(pods.get_opt("c-head").await?.is_none(), "refresh --restart");

    let doctor = as_jane(&user, &["doctor"])?;
    let missing = format!(
        "in namespace {} you may not create computetemplates (for create compute-template)\n",
        user.namespace
    );
    assert!(doctor.stdout.contains(&missing), "{doctor:?}");
    let hardware = as_jane(&user, &["create", "compute-template", "big", "--cpu", "8"])?;
    assert_eq!(hardware.code, 4, "{hardware:?}");
    let all = ["auth", "can-i", "deletecollection", "pods", "--as=jane"];
    assert_eq!(user.kubectl(&all)?.stdout.trim(), "no");
    as_jane(&user, &["delete", "c", "it/torch", "--yes"])?.success()?;
    Ok(())
}
