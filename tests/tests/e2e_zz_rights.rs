//! Runs last: after everything that the tests did, no request of ours was forbidden.

use std::collections::BTreeSet;

use ray_tests::{Cluster, audit};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn our_service_accounts_were_never_forbidden_anything() -> anyhow::Result<()> {
    let cluster = Cluster::node().await?;
    assert_eq!(audit::forbidden(&cluster)?, BTreeSet::new());
    Ok(())
}
