//! Runs last: after everything that the tests did, no request of ours was forbidden.

use std::collections::BTreeSet;

use anyhow::Context;
use ray_tests::Cluster;
use serde_json::Value;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn our_service_accounts_were_never_forbidden_anything() -> anyhow::Result<()> {
    let cluster = Cluster::node().await?;
    let log = cluster.kubeconfig.with_file_name("audit.log");
    let text = std::fs::read_to_string(&log).with_context(|| format!("no audit log at {}", log.display()))?;
    let mut requests = 0;
    let mut forbidden = BTreeSet::new();
    for event in text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
    {
        let user = event["user"]["username"].as_str().unwrap_or_default();
        if !user.starts_with("system:serviceaccount:ray-system:") {
            continue;
        }
        requests += 1;
        if event["responseStatus"]["code"] == 403 {
            forbidden.insert(format!("{user} {} {}", event["verb"], event["requestURI"]));
        }
    }
    assert!(
        requests > 0,
        "the audit log knows nothing of our service accounts"
    );
    assert!(forbidden.is_empty(), "{forbidden:#?}");
    Ok(())
}
