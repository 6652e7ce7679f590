//! What the API server's audit log says of our service accounts.

use std::collections::BTreeSet;

use anyhow::Context;
use serde_json::Value;

use crate::Cluster;

const OURS: &str = "system:serviceaccount:ray-system:";

/// Every request of ours that was forbidden, as `user verb uri`.
///
/// # Errors
/// When there is no audit log, or it knows nothing of us.
pub fn forbidden(cluster: &Cluster) -> anyhow::Result<BTreeSet<String>> {
    let log = cluster.kubeconfig.with_file_name("audit.log");
    let text = std::fs::read_to_string(&log).with_context(|| format!("no audit log at {}", log.display()))?;
    let mut requests = 0;
    let mut forbidden = BTreeSet::new();
    for event in text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
    {
        let text = |at: &str| event.pointer(at).and_then(Value::as_str).unwrap_or_default();
        let user = text("/user/username");
        if !user.starts_with(OURS) {
            continue;
        }
        requests += 1;
        if event.pointer("/responseStatus/code").and_then(Value::as_u64) == Some(403) {
            forbidden.insert(format!("{user} {} {}", text("/verb"), text("/requestURI")));
        }
    }
    anyhow::ensure!(requests > 0, "{} knows nothing of {OURS}", log.display());
    Ok(forbidden)
}
