//! With no webhook answering, plain clusters are created as ever; those that name a template fail at once and say why.

use std::time::Duration;

use ray_tests::{Cluster, User, eventually};

const PLAIN: &str = r#"
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: plain}
spec:
  headGroupSpec:
    template: {spec: {containers: [{name: ray-head, image: "rayproject/ray:2.60.0"}]}}
"#;

const TEMPLATED: &str = r#"
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: templated}
spec:
  imageTemplate: emoji
  headGroupSpec: {computeTemplate: small}
"#;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn only_clusters_with_templates_need_the_webhook() -> anyhow::Result<()> {
    let cluster = Cluster::node().await?;
    let user = User::new(&cluster, "down").await?;
    let scale = |replicas: &str| user.system(&["scale", "deployment/ray-webhook", "--replicas", replicas]);
    scale("0")?;
    let outcome = without_webhook(&user).await;
    scale("2")?;
    user.system(&["rollout", "status", "deployment/ray-webhook", "--timeout=180s"])?;
    outcome
}

async fn without_webhook(user: &User) -> anyhow::Result<()> {
    eventually("the webhook's pods are gone", || async {
        Ok(user.webhook_pods()?.trim().is_empty().then_some(()))
    })
    .await?;
    // Endpoints follow the pods within a moment.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let folder = tempfile::tempdir()?;
    let apply = |name: &str, yaml: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, yaml)?;
        user.kubectl(&["create", "-f", &path.to_string_lossy()])
    };
    apply("plain.yaml", PLAIN)?.success()?;
    let refused = apply("templated.yaml", TEMPLATED)?;
    assert_ne!(refused.code, 0);
    assert!(
        refused.stderr.contains("ray.io"),
        "the error names the webhook: {}",
        refused.stderr
    );
    user.kubectl(&["label", "raycluster", "plain", "team=a"])?
        .success()?;
    user.kubectl(&["delete", "raycluster", "plain"])?.success()?;
    Ok(())
}
