//! Clusters that were there before the webhook.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod admission;

use admission::{Site, generation, manifest, templates};
use serde_json::json;

const CPU: &str = "/spec/headGroupSpec/template/spec/containers/0/resources/limits/cpu";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_running_cluster_from_before_the_webhook_is_left_alone_until_it_asks() -> anyhow::Result<()> {
    let mut site = Site::prepare("before", "ray.io").await?;
    templates(&site).await?;
    let mut running = manifest(&site, "running");
    running["spec"]["headGroupSpec"]["template"] =
        json!({"spec": {"containers": [{"name": "ray-head", "image": "own:1"}]}});
    for group in running["spec"]["workerGroupSpecs"].as_array_mut().unwrap() {
        group["template"] = json!({"spec": {"containers": [{"name": "ray-worker", "image": "own:1"}]}});
    }
    site.kubectl(&["apply"], &running)?.success()?;
    site.kubectl(&["apply"], &manifest(&site, "stuck"))?.success()?;
    let before = site.get("running").await?;

    let port = admission::free_port()?;
    site.start_webhook(port, &[])?;
    site.configure(port).await?;
    site.wait_for_answers().await?;
    let annotate = |name: &str, note: &str| {
        let command = ["annotate", "rayclusters.ray.io", name, note];
        site.user.kubectl(&command)
    };
    let noted = annotate("running", "note=1")?;
    assert_eq!(noted.code, 0, "{}", noted.stderr);
    let warning = "Warning: spec.headGroupSpec.computeTemplate: the cluster runs without what small gives";
    assert!(noted.stderr.contains(warning), "{}", noted.stderr);
    let now = site.get("running").await?;
    assert_eq!(
        (generation(&now), &now["spec"]),
        (generation(&before), &before["spec"])
    );
    annotate("running", "templates.ray.io/refresh=1")?.success()?;
    assert_eq!(site.get("running").await?.pointer(CPU), Some(&json!("1")));

    // One that names no image cannot have run.
    annotate("stuck", "note=1")?.success()?;
    assert_eq!(site.get("stuck").await?.pointer(CPU), Some(&json!("1")));
    site.finish().await
}
