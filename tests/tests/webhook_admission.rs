//! What the webhook refuses, forgives and leaves alone, on a real API server.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod admission;

use admission::{EXPANSION, Site, manifest, templates};
use kube::api::{DynamicObject, PostParams};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_missing_template_is_denied_with_field_namespace_and_near_names() -> anyhow::Result<()> {
    let site = Site::new("near").await?;
    site.compute("a100", json!({})).await?;
    let mut object = manifest(&site, "c");
    object["spec"]["headGroupSpec"]["computeTemplate"] = json!("a10");
    object["spec"]["workerGroupSpecs"] = json!([]);
    let denied = site.kubectl(&["apply"], &object)?;
    assert_eq!(denied.code, 1);
    let wanted = format!(
        "spec.headGroupSpec.computeTemplate: ComputeTemplate {}/a10 not found",
        site.namespace
    );
    assert!(
        denied.stderr.contains(&wanted) && denied.stderr.contains("did you mean `a100`?"),
        "{}",
        denied.stderr
    );
    site.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_first_commit_of_template_and_cluster_passes_every_dry_run_and_then_applies() -> anyhow::Result<()>
{
    let site = Site::new("first").await?;
    let template = json!({"apiVersion": "templates.ray.io/v1alpha1", "kind": "ComputeTemplate",
        "metadata": {"name": "small"}, "spec": {"resources": {"limits": {"cpu": "1"}}}});
    let mut cluster = manifest(&site, "c");
    cluster["spec"]["workerGroupSpecs"] = json!([]);
    let both = json!({"apiVersion": "v1", "kind": "List", "items": [template, cluster]});
    for dry_run in [
        &["apply", "--dry-run=server"][..],
        &["apply", "--server-side", "--dry-run=server"],
    ] {
        site.kubectl(dry_run, &both)?.success()?;
    }
    assert!(site.get("c").await.is_err(), "a dry run stores nothing");
    site.kubectl(&["apply"], &both)?.success()?;
    let live = site.get("c").await?;
    assert_eq!(live["spec"]["suspend"], true, "the image is not there yet");
    assert_eq!(
        live.pointer("/spec/headGroupSpec/template/spec/containers/0/resources/limits/cpu"),
        Some(&json!("1"))
    );
    site.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn without_the_webhook_only_clusters_with_templates_stand_still() -> anyhow::Result<()> {
    let mut site = Site::new("down").await?;
    templates(&site).await?;
    site.server_side_apply(&manifest(&site, "c"), false).await?;
    site.merge_patch("c", json!({"metadata": {"finalizers": ["test.ray.io/hold"]}}))
        .await?;
    site.webhooks.clear();

    let plain = json!({"headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray-head", "image": "x"}]}}}});
    site.rayclusters()
        .create(&PostParams::default(), &site.raycluster("plain", plain)?)
        .await?;
    let patch = json!([{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 2},
        {"op": "add", "path": "/spec/workerGroupSpecs/0/scaleStrategy", "value": {"workersToDelete": ["x"]}}]);
    site.json_patch("c", patch).await?;
    site.merge_patch("c", json!({"metadata": {"labels": {"a": "b"}}}))
        .await?;

    let new: DynamicObject = serde_json::from_value(manifest(&site, "new"))?;
    let error = site
        .rayclusters()
        .create(&PostParams::default(), &new)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("failed calling webhook"), "{error}");
    let edit = site
        .merge_patch(
            "c",
            json!({"spec": {"headGroupSpec": {"computeTemplate": "big"}}}),
        )
        .await;
    assert!(edit.unwrap_err().to_string().contains("failed calling webhook"));

    site.rayclusters().delete("c", &Default::default()).await?;
    site.merge_patch("c", json!({"metadata": {"finalizers": null}}))
        .await?;
    assert!(site.get("c").await.is_err());
    site.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn surprises_are_warned_of_once_and_denied_never() -> anyhow::Result<()> {
    let site = Site::new("warn").await?;
    let floating = json!({"apiVersion": "templates.ray.io/v1alpha1", "kind": "ImageTemplate", "metadata": {"name": "floating"},
        "spec": {"baseImage": "rayproject/ray:latest", "repository": format!("reg.local/{}/i", site.namespace)}});
    let created = site.kubectl(&["create"], &floating)?;
    assert_eq!(created.code, 0, "{}", created.stderr);
    assert!(
        created.stderr.contains("Warning: spec.baseImage:"),
        "{}",
        created.stderr
    );

    site.compute(
        "hosts",
        json!({"numOfHosts": 2, "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}),
    )
    .await?;
    let own = json!({"spec": {"containers": [{"name": "ray-head", "image": "x", "resources": {"limits": {"cpu": "7"}}}]}});
    let spec = json!({"headGroupSpec": {"computeTemplate": "hosts", "template": own}});
    let object = serde_json::to_value(site.raycluster("c", spec)?)?;
    let applied = site.kubectl(&["apply"], &object)?;
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    for warning in [
        "Warning: spec.headGroupSpec: the cluster's own values are used in place of the template's: ",
        "Warning: spec.headGroupSpec.computeTemplate: numOfHosts of the template means nothing in the head group",
    ] {
        assert!(
            applied.stderr.contains(warning),
            "{warning} is missing in {}",
            applied.stderr
        );
    }
    let again = site.kubectl(&["apply"], &object)?;
    assert_eq!(
        (again.code, again.stderr.as_str()),
        (0, ""),
        "said once is enough"
    );
    site.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn the_verb_use_is_asked_for_references_that_a_request_adds() -> anyhow::Result<()> {
    let site = Site::with("use", &["--require-use"], "ray.io").await?;
    templates(&site).await?;
    let rules = json!([{"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["*"]},
        {"apiGroups": ["templates.ray.io"], "resources": ["computetemplates", "imagetemplates"], "resourceNames": ["small", "torch"], "verbs": ["use"]}]);
    let role = site.object(
        "rbac.authorization.k8s.io/v1",
        "Role",
        "jane",
        json!({"rules": rules}),
    )?;
    site.api("rbac.authorization.k8s.io/v1", "Role")
        .create(&PostParams::default(), &role)
        .await?;
    let binding = json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "jane"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]});
    let binding = site.object("rbac.authorization.k8s.io/v1", "RoleBinding", "jane", binding)?;
    site.api("rbac.authorization.k8s.io/v1", "RoleBinding")
        .create(&PostParams::default(), &binding)
        .await?;

    let as_jane = ["apply", "--server-side", "--as=jane"];
    let mut object = manifest(&site, "c");
    let denied = site.kubectl(&as_jane, &object)?;
    let wanted = format!("jane may not use ComputeTemplate {}/big", site.namespace);
    assert!(
        denied.code == 1 && denied.stderr.contains(&wanted),
        "{}",
        denied.stderr
    );
    object["spec"]["workerGroupSpecs"].as_array_mut().unwrap().pop();
    site.kubectl(&as_jane, &object)?.success()?;

    // What an administrator gave a cluster, its user may keep and refresh.
    site.merge_patch(
        "c",
        json!({"spec": {"headGroupSpec": {"computeTemplate": "big"}}}),
    )
    .await?;
    site.user
        .kubectl(&[
            "annotate",
            "rayclusters.ray.io",
            "c",
            "templates.ray.io/refresh=1",
            "--as=jane",
        ])?
        .success()?;

    // A record that comes with a request is the user's word for what was filled in, not for what is allowed.
    let mut forged = site.get("c").await?;
    let record = forged["metadata"]["annotations"][EXPANSION].take();
    forged["metadata"] = json!({"name": "forged", "annotations": {EXPANSION: record}});
    let denied = site.kubectl(&["create", "--as=jane"], &forged)?;
    assert!(
        denied.code == 1 && denied.stderr.contains(&wanted),
        "{}",
        denied.stderr
    );
    // Every kind has the verb.
    site.image("other", Some("one")).await?;
    let shared = format!("{}-shared", site.namespace);
    site.cluster_compute(&shared, json!({"resources": {"limits": {"cpu": "1"}}}))
        .await?;
    for (field, name, wanted) in [
        (
            "imageTemplate",
            "other",
            format!("ImageTemplate {}/other", site.namespace),
        ),
        (
            "computeTemplate",
            &shared,
            format!("ClusterComputeTemplate {shared}"),
        ),
    ] {
        let mut object = object.clone();
        object["metadata"]["name"] = json!("kinds");
        object["spec"]["headGroupSpec"][field] = json!(name);
        let denied = site.kubectl(&as_jane, &object)?;
        assert!(
            denied.code == 1 && denied.stderr.contains(&format!("jane may not use {wanted}")),
            "{}",
            denied.stderr
        );
    }
    site.delete_cluster_compute(&[&shared]).await?;
    site.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_v1alpha1_cluster_is_expanded_too() -> anyhow::Result<()> {
    let site = Site::new("old").await?;
    templates(&site).await?;
    let mut object = manifest(&site, "c");
    object["apiVersion"] = json!("ray.io/v1alpha1");
    site.kubectl(&["create"], &object)?.success()?;
    assert!(site.get("c").await?["metadata"]["annotations"][EXPANSION].is_string());
    site.finish().await
}
