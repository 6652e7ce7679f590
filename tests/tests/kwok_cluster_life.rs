//! A RayCluster's life on simulated nodes: scaling, lost pods, suspension, and an operator that is killed in the
//! middle of its work.

mod cluster;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use cluster::life::{Life, ray_cluster};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use ray_tests::eventually;
use serde_json::json;

#[tokio::test]
#[ignore = "needs a control plane with simulated nodes: make test"]
async fn a_cluster_scales_heals_suspends_and_resumes() -> anyhow::Result<()> {
    let life = Life::with_nodes("life").await?;
    let _operator = life.operator()?;
    life.create(ray_cluster("c", 2)).await?;
    let first = life.until("c", "ready", 3).await?;

    life.scale("c", 4).await?;
    let grown = life.until("c", "ready", 5).await?;
    assert!(grown.is_superset(&first), "scaling up touches nobody");

    let lost = grown
        .iter()
        .find(|name| name.contains("-g-worker-"))
        .cloned()
        .unwrap_or_default();
    life.pods
        .delete(&lost, &DeleteParams::default().grace_period(0))
        .await?;
    let healed = eventually("the lost worker is replaced", || async {
        let live = life.live("c").await?;
        Ok((live.len() == 5 && !live.contains(&lost)).then_some(live))
    })
    .await?;
    assert_eq!(
        healed.intersection(&grown).count(),
        4,
        "only the lost pod is replaced"
    );
    life.until("c", "ready", 5).await?;

    life.patch("c", json!({"spec": {"suspend": true}})).await?;
    life.until("c", "suspended", 0).await?;
    // Taken away, not set to false: KubeRay would stay suspended.
    life.patch("c", json!({"spec": {"suspend": null}})).await?;
    life.until("c", "ready", 5).await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs a control plane with simulated nodes: make test"]
async fn a_recreation_makes_every_pod_anew_and_once() -> anyhow::Result<()> {
    let life = Life::with_nodes("recreate").await?;
    let _operator = life.operator()?;
    let mut object = ray_cluster("c", 2);
    object["spec"]["upgradeStrategy"] = json!({"type": "Recreate"});
    life.create(object).await?;
    let old = life.until("c", "ready", 3).await?;
    let head = json!({"template": {"spec": {"containers": [{"name": "ray-head", "image": "ray:2"}]}}});
    life.patch("c", json!({"spec": {"headGroupSpec": head}})).await?;
    let new = eventually("all pods are new", || async {
        let live = life.live("c").await?;
        anyhow::ensure!(live.len() == 3 && live.is_disjoint(&old), "{live:?}");
        Ok(Some(live))
    })
    .await?;
    life.until("c", "ready", 3).await?;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(life.live("c").await?, new, "no second round");
    Ok(())
}

#[tokio::test]
#[ignore = "needs a control plane with simulated nodes: make test"]
async fn a_multi_host_replica_lives_and_dies_as_a_whole() -> anyhow::Result<()> {
    let life = Life::with_nodes("slices").await?;
    let _operator = life.operator()?;
    let mut object = ray_cluster("c", 3);
    object["spec"]["workerGroupSpecs"][0]["numOfHosts"] = json!(4);
    life.create(object).await?;
    life.until("c", "ready", 13).await?;
    // Replica name → index and hosts.
    let slices = || async {
        let mut slices: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
        for pod in life.live_pods("c").await? {
            let label = |key: &str| {
                pod.labels()
                    .get(&format!("ray.io/{key}"))
                    .cloned()
                    .unwrap_or_default()
            };
            if label("node-type") == "worker" {
                let slice = slices.entry(label("worker-group-replica-name")).or_default();
                slice.0 = label("worker-group-replica-index");
                slice.1.insert(label("replica-host-index"));
            }
        }
        anyhow::Ok(slices)
    };
    let before = slices().await?;
    let indexes: BTreeSet<_> = before.values().map(|(index, _)| index.as_str()).collect();
    assert_eq!(indexes, BTreeSet::from(["0", "1", "2"]));
    assert!(before.values().all(|(_, hosts)| hosts.len() == 4), "{before:?}");

    let lost = life
        .live_pods("c")
        .await?
        .into_iter()
        .find(|pod| pod.name_any().contains("-worker-"));
    let lost = lost.context("no worker")?;
    let slice = lost
        .labels()
        .get("ray.io/worker-group-replica-name")
        .cloned()
        .unwrap_or_default();
    life.pods
        .delete(&lost.name_any(), &DeleteParams::default().grace_period(0))
        .await?;
    eventually("the whole replica is made anew", || async {
        let after = slices().await?;
        let is_whole = after.len() == 3 && after.values().all(|(_, hosts)| hosts.len() == 4);
        Ok((is_whole && !after.contains_key(&slice)).then_some(()))
    })
    .await?;
    life.until("c", "ready", 13).await?;
    Ok(())
}

/// `RAY_TESTS_KILLS` says how often; `make soak` sets it.
#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn an_operator_killed_in_the_middle_never_leaves_more_pods_than_wanted() -> anyhow::Result<()> {
    const WORKERS: usize = 200;
    let kills = std::env::var("RAY_TESTS_KILLS").map_or(Ok(3), |text| text.parse())?;
    let life = Life::new("kill").await?;
    life.create(ray_cluster("c", 200)).await?;
    for round in 1..=kills {
        let mut operator = life.operator()?;
        // Spread over the whole creation, the last one just before its end.
        let enough = WORKERS * round / (kills + 1);
        eventually("some pods are created", || async {
            Ok((life.live("c").await?.len() > enough).then_some(()))
        })
        .await?;
        operator.kill()?;
        let live = life.live("c").await?.len();
        anyhow::ensure!(live <= WORKERS + 1, "{live} pods after kill {round}");
    }
    let _operator = life.operator()?;
    eventually("all pods are created", || async {
        let live = life.live("c").await?.len();
        anyhow::ensure!(live <= WORKERS + 1, "{live} pods");
        Ok((live == WORKERS + 1).then_some(()))
    })
    .await?;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(life.live("c").await?.len(), WORKERS + 1, "no more follow");
    let all = life.pods.list(&ListParams::default()).await?.items.len();
    assert_eq!(all, WORKERS + 1, "and none had to be deleted");
    Ok(())
}
