//! `kubectl ray refresh`: the webhook fills in the newest templates, and where there is none that is told.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod admission;

use admission::{Site, templates};
use kube::api::PostParams;
use ray_tests::eventually;
use serde_json::json;

const LIMIT: &str = "/spec/headGroupSpec/template/spec/containers/0/resources/limits/cpu";

async fn small(site: &Site, cpu: &str) -> anyhow::Result<()> {
    site.compute("small", json!({"resources": {"limits": {"cpu": cpu}}}))
        .await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn the_newest_templates_are_filled_in_and_pods_restarted_on_request() -> anyhow::Result<()> {
    let mut site = Site::new("refresh").await?;
    templates(&site).await?;
    let user = ray_tests::User::of(&site.cluster, &site.namespace);
    let refresh = |flags: &[&str]| user.ray(&[&["refresh", "cluster", "c"], flags].concat());
    let create = ["create", "cluster", "c", "--image-template", "torch"];
    site.user
        .ray(&[&create[..], &["--compute-template", "small"]].concat())?
        .success()?;
    assert_eq!(
        refresh(&[])?.success()?,
        "raycluster.ray.io/c has the newest templates already\n"
    );

    small(&site, "3").await?;
    let server = refresh(&["--dry-run=server"])?.success()?;
    assert!(
        server.contains("refreshed (server dry run): ComputeTemplate small: generation 1 → generation 2"),
        "{server}"
    );
    assert_eq!(site.get("c").await?.pointer(LIMIT), Some(&json!("1")));
    let pods = site.api("v1", "Pod");
    let pod = |name: &str, cluster: &str| {
        let labels = json!({"ray.io/cluster": cluster, "ray.io/node-type": "worker"});
        let body =
            json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "w", "image": "a:1"}]}});
        site.object("v1", "Pod", name, body)
    };
    for (name, cluster) in [("own", "c"), ("other", "d")] {
        eventually("the pod is there", || async {
            pods.create(&PostParams::default(), &pod(name, cluster)?).await?;
            Ok(Some(()))
        })
        .await?;
    }
    let refreshed = refresh(&["--restart"])?.success()?;
    assert_eq!(
        refreshed,
        "raycluster.ray.io/c refreshed: ComputeTemplate small: generation 1 → generation 2\n\
         raycluster.ray.io/c restarting: its pods were deleted\n"
    );
    assert_eq!(site.get("c").await?.pointer(LIMIT), Some(&json!("3")));
    assert!(pods.get_opt("own").await?.is_none());
    assert!(pods.get_opt("other").await?.is_some(), "another cluster's");

    site.image("torch", Some("two")).await?;
    let rebuilt = refresh(&[])?.success()?;
    assert!(
        rebuilt.contains("reg/torch@sha256:one → ") && rebuilt.contains("reg/torch@sha256:two"),
        "{rebuilt}"
    );

    pods.create(&PostParams::default(), &pod("again", "c")?).await?;
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let api = site.cluster_api("admissionregistration.k8s.io/v1", kind);
        api.delete(&site.namespace, &Default::default()).await?;
    }
    site.webhooks.clear();
    small(&site, "4").await?;
    let missed = eventually("no webhook is called", || async {
        let run = user.ray(&["refresh", "cluster", "c", "--restart"])?;
        Ok((!run.stderr.contains("failed calling webhook")).then_some(run))
    })
    .await?;
    assert_eq!(missed.code, 1, "{missed:?}");
    assert!(
        missed
            .stderr
            .contains("ComputeTemplate small: generation 2 → generation 3")
            && missed.stderr.contains("kubectl ray render"),
        "{missed:?}"
    );
    assert!(pods.get_opt("again").await?.is_some(), "nothing was restarted");
    assert_eq!(site.get("c").await?.pointer(LIMIT), Some(&json!("3")));
    Ok(())
}
