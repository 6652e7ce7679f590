//! What goes wrong around a RayCluster on simulated nodes, and what comes of it.

mod cluster;

use cluster::life::{Life, group, ray_cluster};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use ray_tests::eventually;
use serde_json::json;

/// Writes a pod's readiness, as a kubelet does after a probe.
async fn probe(life: &Life, name: &str, ready: bool) -> anyhow::Result<()> {
    let status = if ready { "True" } else { "False" };
    let patch = json!({"status": {"conditions": [
        {"type": "Ready", "status": status, "reason": if ready { "" } else { "ContainersNotReady" }, "lastTransitionTime": null},
    ]}});
    life.pods
        .patch_status(name, &PatchParams::default(), &Patch::Strategic(patch))
        .await?;
    Ok(())
}

async fn pod_of(life: &Life, part: &str) -> anyhow::Result<Pod> {
    let pods = life.live_pods("c").await?;
    let of_part = |pod: &&Pod| {
        pod.labels()
            .get("ray.io/node-type")
            .is_some_and(|kind| kind == part)
    };
    pods.iter()
        .find(of_part)
        .cloned()
        .ok_or_else(|| anyhow::anyhow!("no {part}"))
}

#[tokio::test]
#[ignore = "needs a control plane with simulated nodes: make test"]
async fn ready_is_taken_back_when_a_pod_is_lost_and_provisioned_is_not() -> anyhow::Result<()> {
    let life = Life::with_nodes("regress").await?;
    let _operator = life.operator()?;
    life.create(ray_cluster("c", 2)).await?;
    life.until("c", "ready", 3).await?;
    for part in ["worker", "head"] {
        let name = pod_of(&life, part).await?.name_any();
        probe(&life, &name, false).await?;
        life.until("c", "", 3).await?;
        let status = |type_: &'static str| async {
            let condition = life.condition("c", type_).await?;
            anyhow::Ok(condition.map(|condition| condition.status).unwrap_or_default())
        };
        assert_eq!(status("RayClusterProvisioned").await?, "True");
        let head_ready = if part == "head" { "False" } else { "True" };
        eventually("the head's condition follows", || async {
            Ok((status("HeadPodReady").await? == head_ready).then_some(()))
        })
        .await?;
        probe(&life, &name, true).await?;
        life.until("c", "ready", 3).await?;
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs a control plane with simulated nodes: make test"]
async fn pods_that_are_stuck_on_a_lost_node_are_replaced() -> anyhow::Result<()> {
    let life = Life::with_nodes("lost").await?;
    // A node whose kubelet never answers: nobody ends the pods that are deleted on it.
    let node = format!("lost-{}", life.namespace);
    let nodes: Api<Node> = Api::all(life.cluster.client.clone());
    let object = json!({"metadata": {"name": node, "labels": {"kubernetes.io/hostname": node}}});
    nodes
        .create(&PostParams::default(), &serde_json::from_value(object)?)
        .await?;
    let room = json!({"status": {"allocatable": {"cpu": "9", "memory": "9Gi", "pods": "99"}, "capacity": {"cpu": "9", "memory": "9Gi", "pods": "99"}}});
    nodes
        .patch_status(&node, &PatchParams::default(), &Patch::Merge(room))
        .await?;
    let on_it = json!({
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "ray", "image": "ray:1"}],
    });
    let mut object = ray_cluster("c", 1);
    for part in [
        "/spec/headGroupSpec/template/spec",
        "/spec/workerGroupSpecs/0/template/spec",
    ] {
        if let Some(spec) = object.pointer_mut(part) {
            *spec = on_it.clone();
        }
    }
    let _operator = life.operator()?;
    life.create(object).await?;
    eventually("the pods are bound to the lost node", || async {
        let pods = life.live_pods("c").await?;
        let bound = pods
            .iter()
            .filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
        Ok((bound.count() == 2).then_some(()))
    })
    .await?;
    let (head, worker) = (pod_of(&life, "head").await?, pod_of(&life, "worker").await?);
    // As the node controller evicts them.
    for pod in [&head, &worker] {
        life.pods
            .delete(&pod.name_any(), &DeleteParams::default())
            .await?;
    }
    let successor = eventually("a worker takes the place at once", || async {
        Ok(pod_of(&life, "worker").await.ok())
    })
    .await?;
    assert_ne!(successor.uid(), worker.uid());
    let stuck = life.pods.get_opt(&worker.name_any()).await?;
    assert!(stuck.is_some(), "nobody waited for the old one");
    // A second head beside one that may still run would be worse than none, so this one is given up first.
    let successor = eventually("a head takes the place once the old one is given up", || async {
        Ok(pod_of(&life, "head").await.ok())
    })
    .await?;
    assert_ne!(successor.uid(), head.uid());
    assert!(life.pods.get_opt(&head.name_any()).await?.is_none());
    nodes.delete(&node, &DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs a control plane with simulated nodes: make test"]
async fn the_state_in_redis_is_cleaned_up_before_a_cluster_goes() -> anyhow::Result<()> {
    const FINALIZER: &str = "ray.io/gcs-ft-redis-cleanup-finalizer";
    let life = Life::with_nodes("redis").await?;
    let _operator = life.operator()?;
    let mut object = ray_cluster("c", 1);
    object["spec"]["gcsFaultToleranceOptions"] = json!({"redisAddress": "redis:6379"});
    life.create(object).await?;
    life.until("c", "ready", 2).await?;
    assert_eq!(life.clusters.get("c").await?.finalizers(), [FINALIZER]);
    life.clusters.delete("c", &DeleteParams::default()).await?;
    eventually("the cluster is gone", || async {
        Ok(life.clusters.get_opt("c").await?.is_none().then_some(()))
    })
    .await?;
    let events = life.events("c").await?;
    let said = |reason: &str| events.iter().filter(|(said, _)| said == reason).count();
    assert_eq!(said("CreatedRedisCleanupJob"), 1, "{events:?}");
    assert_eq!(
        said("ForceDeletedStuckCluster") + said("RedisCleanupFailed"),
        0,
        "{events:?}"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs a control plane with simulated nodes: make test"]
async fn pods_of_a_removed_group_go_and_do_not_keep_the_cluster_from_ready() -> anyhow::Result<()> {
    let life = Life::with_nodes("removed").await?;
    let _operator = life.operator()?;
    let mut object = ray_cluster("c", 1);
    object["spec"]["workerGroupSpecs"] = json!([group("g", 1), group("old", 2)]);
    life.create(object).await?;
    life.until("c", "ready", 4).await?;
    life.scale("c", 1).await?;
    life.until("c", "ready", 2).await?;
    let groups = life.live_by_group("c").await?;
    assert!(!groups.contains_key("old"), "{groups:?}");
    Ok(())
}
