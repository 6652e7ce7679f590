//! `kubectl ray render` and the webhook are one expansion.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod admission;

use std::io::Write;

use admission::{EXPANSION, Site, manifest, templates, without_bookkeeping};
use kube::api::PostParams;
use ray_tests::eventually;
use serde_json::{Value, json};

/// What `kubectl ray render` makes of a manifest.
fn render(site: &Site, object: &Value) -> anyhow::Result<Value> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(object.to_string().as_bytes())?;
    let path = file.path().to_string_lossy().into_owned();
    let printed = site.user.ray(&["render", "-o", "json", "-f", &path])?.success()?;
    Ok(serde_json::from_str(&printed)?)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_rendered_cluster_is_stored_byte_for_byte_as_the_webhooks() -> anyhow::Result<()> {
    let mut site = Site::new("render").await?;
    templates(&site).await?;
    let written = manifest(&site, "c");
    let rendered = render(&site, &written)?;

    let stored = async |site: &Site, object: &Value| -> anyhow::Result<Value> {
        let object = serde_json::from_value(object.clone())?;
        site.rayclusters().create(&PostParams::default(), &object).await?;
        let live = without_bookkeeping(&site.get("c").await?);
        site.rayclusters().delete("c", &Default::default()).await?;
        eventually("the cluster is gone", || async {
            Ok(site.get("c").await.is_err().then_some(()))
        })
        .await?;
        Ok(live)
    };
    let expanded = stored(&site, &written).await?;
    assert_eq!(
        expanded.pointer("/spec/headGroupSpec/template/spec/containers/0/image"),
        Some(&json!("reg/torch@sha256:one"))
    );
    // What a manifest names is its writer's: the webhook fills nothing and changes nothing.
    assert_eq!(
        stored(&site, &rendered).await?["spec"],
        expanded["spec"],
        "through the webhook"
    );
    assert_eq!(
        rendered["metadata"]["annotations"][EXPANSION],
        expanded["metadata"]["annotations"][EXPANSION]
    );

    // A site without webhooks.
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let api = site.cluster_api("admissionregistration.k8s.io/v1", kind);
        api.delete(&site.namespace, &Default::default()).await?;
    }
    site.webhooks.clear();
    let without = eventually("no webhook is called", || async {
        stored(&site, &rendered).await.map(Some)
    })
    .await?;
    assert_eq!(without.to_string(), expanded.to_string(), "without a webhook");
    Ok(())
}
