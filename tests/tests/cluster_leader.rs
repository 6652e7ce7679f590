//! Two operators and one Lease: never both at work, and no gap longer than needed when one stops.

mod cluster;

use cluster::life::{Life, ray_cluster};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use ray_tests::{Process, eventually};
use serde_json::json;

const LEASE: &str = "ray-operator-leader";
const AT_WORK: &str = "the cluster controller starts";

/// An operator that takes part in the election; `pod` is what its identity starts with.
fn candidate(life: &Life, pod: &str) -> anyhow::Result<Process> {
    let namespace = &life.namespace;
    Process::start_with(
        "ray-operator",
        &life.cluster.kubeconfig,
        &[
            "--controllers=cluster",
            &format!("--watch-namespace={namespace}"),
            &format!("--leader-election-namespace={namespace}"),
            "--metrics-addr=127.0.0.1:0",
            "--health-probe-bind-address=127.0.0.1:0",
            "--log-format=text",
        ],
        &[("POD_NAME", pod)],
    )
}

async fn holder(leases: &Api<Lease>) -> anyhow::Result<String> {
    let lease = leases.get_opt(LEASE).await?;
    Ok(lease
        .and_then(|lease| lease.spec?.holder_identity)
        .unwrap_or_default())
}

async fn until_holder(leases: &Api<Lease>, pod: &str) -> anyhow::Result<()> {
    eventually(&format!("{pod} holds the Lease"), || async {
        let holder = holder(leases).await?;
        anyhow::ensure!(holder.starts_with(&format!("{pod}_")), "the holder is {holder:?}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn an_operator_that_stops_hands_over_and_one_that_lost_the_lease_writes_nothing_more()
-> anyhow::Result<()> {
    let life = Life::new("leader").await?;
    let leases: Api<Lease> = life.api();
    let mut first = candidate(&life, "first")?;
    until_holder(&leases, "first").await?;
    let mut second = candidate(&life, "second")?;
    life.create(ray_cluster("c", 2)).await?;
    life.until_pods("c", 3).await?;
    eventually("the second one waits", || async {
        Ok(second.read_log()?.contains("waiting for the lease").then_some(()))
    })
    .await?;
    assert!(!second.read_log()?.contains(AT_WORK), "it only waits");

    first.terminate()?;
    let status = eventually_ended(&mut first).await?;
    assert!(status.success(), "{status}: {}", first.read_log()?);
    let now = holder(&leases).await?;
    assert!(
        !now.starts_with("first_"),
        "the Lease was let go, not left to expire: {now}"
    );
    until_holder(&leases, "second").await?;
    life.scale("c", 4).await?;
    life.until_pods("c", 5).await?;

    // Somebody takes the Lease although it is held: as after a pause that was longer than the Lease.
    let stolen = json!({"spec": {"holderIdentity": "thief"}});
    life.meddle::<Lease>(LEASE, stolen).await?;
    let status = eventually_ended(&mut second).await?;
    assert!(!status.success(), "a lost Lease is an error");
    life.scale("c", 6).await?;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(life.live("c").await?.len(), 5, "nobody is left to act");
    Ok(())
}

async fn eventually_ended(process: &mut Process) -> anyhow::Result<std::process::ExitStatus> {
    let process = std::cell::RefCell::new(process);
    eventually("the process ends", || async { process.borrow_mut().ended() }).await
}
