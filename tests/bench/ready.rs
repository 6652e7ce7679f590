//! `kubectl apply` → `ready` on a real node with real Ray: how long, and where the time goes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ContainerStatus, Namespace, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use ray_api::ray::v1::{ClusterState, RayCluster};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::contestant::Contestant;

const PATIENCE: Duration = Duration::from_secs(180);
const RECORDED: &str = "KubeRay, recorded in the same place: 19 s (readiness after 10 s, init container every 5 s). To reach: ≤ 12 s";

/// Steps in the order in which they are expected, and what each is about.
const STEPS: [(&str, &str); 9] = [
    ("head made", "admission; the operator creates the pods"),
    ("head scheduled", "scheduler"),
    ("head started", "kubelet: sandbox, image, container"),
    ("worker waits", "kubelet: the same for wait-gcs-ready"),
    (
        "GCS answers",
        "head's Ray starts; wait-gcs-ready asks every second, then one `ray health-check`",
    ),
    ("worker started", "kubelet: container after its init container"),
    (
        "head ready",
        "head's agent starts; readiness probe: after 1 s, every 2 s",
    ),
    (
        "worker ready",
        "worker's Ray starts; readiness probe: after 1 s, every 2 s",
    ),
    ("cluster ready", "the operator sees it and writes the status"),
];

/// Creates a cluster of one head and one worker `rounds` times, one after the other, and prints each split and the best
/// time; ours beside its peer's, which `times` keeps.
///
/// # Errors
/// A cluster that does not get ready.
pub(crate) async fn bench(contestant: Contestant, rounds: usize, times: &Path) -> anyhow::Result<()> {
    let client = Client::try_default().await?;
    let mut best = f64::INFINITY;
    for round in 0..rounds {
        let seen = one(&client, &format!("ready-bench-{round}")).await?;
        let total = seen.get("cluster ready").copied().unwrap_or(f64::INFINITY);
        best = best.min(total);
        println!("round {}: {total:.1} s", round + 1);
        let mut steps: Vec<_> = STEPS
            .iter()
            .filter_map(|(step, about)| Some((seen.get(step)?, step, about)))
            .collect();
        steps.sort_by(|a, b| a.0.total_cmp(b.0));
        let mut before = 0.0;
        for (time, step, about) in steps {
            println!("  {time:>5.1} s (+{:.1})  {step:<18} {about}", time - before);
            before = *time;
        }
    }
    println!("{}, best of {rounds}: {best:.1} s", contestant.name());
    contestant.compare(best, times, Some(RECORDED))
}

/// Seconds from the request until each step was seen.
async fn one(client: &Client, namespace: &str) -> anyhow::Result<BTreeMap<&'static str, f64>> {
    let object = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.create(&PostParams::default(), &object).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    while accounts.get_opt("default").await?.is_none() {
        sleep(Duration::from_millis(100)).await;
    }
    let clusters: Api<RayCluster> = Api::namespaced(client.clone(), namespace);
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut pods = watcher(pods, watcher::Config::default())
        .applied_objects()
        .boxed();
    let mut states = watcher(clusters.clone(), watcher::Config::default())
        .applied_objects()
        .boxed();

    let start = Instant::now();
    clusters.create(&PostParams::default(), &cluster()?).await?;
    let mut times = BTreeMap::new();
    let follow = async {
        loop {
            tokio::select! {
                Some(pod) = pods.next() => {
                    for step in steps(&pod?) {
                        times.entry(step).or_insert_with(|| start.elapsed().as_secs_f64());
                    }
                }
                Some(cluster) = states.next() => {
                    let state = cluster?.status.and_then(|status| status.state);
                    if state == Some(ClusterState::Ready) {
                        times.insert("cluster ready", start.elapsed().as_secs_f64());
                        return anyhow::Ok(());
                    }
                }
            }
        }
    };
    timeout(PATIENCE, follow)
        .await
        .context("the cluster did not get ready")??;
    namespaces.delete(namespace, &DeleteParams::default()).await?;
    while namespaces.get_opt(namespace).await?.is_some() {
        sleep(Duration::from_secs(1)).await;
    }
    Ok(times)
}

/// What has happened to a pod so far.
fn steps(pod: &Pod) -> Vec<&'static str> {
    let status = pod.status.clone().unwrap_or_default();
    let is = |type_: &str| {
        let conditions = status.conditions.iter().flatten();
        conditions
            .into_iter()
            .any(|condition| condition.type_ == type_ && condition.status == "True")
    };
    let running = |containers: &Option<Vec<ContainerStatus>>| {
        let first = containers.iter().flatten().next();
        first
            .and_then(|container| container.state.as_ref())
            .is_some_and(|state| state.running.is_some())
    };
    let is_head = pod
        .labels()
        .get("ray.io/node-type")
        .is_some_and(|part| part == "head");
    let steps: &[(&'static str, bool)] = if is_head {
        &[
            ("head made", true),
            ("head scheduled", is("PodScheduled")),
            ("head started", running(&status.container_statuses)),
            ("head ready", is("Ready")),
        ]
    } else {
        &[
            ("worker waits", running(&status.init_container_statuses)),
            ("GCS answers", is("Initialized")),
            ("worker started", running(&status.container_statuses)),
            ("worker ready", is("Ready")),
        ]
    };
    steps.iter().filter(|step| step.1).map(|step| step.0).collect()
}

fn cluster() -> anyhow::Result<RayCluster> {
    let template = |name: &str| {
        json!({"spec": {"containers": [{
            "name": name, "image": "rayproject/ray:2.60.0",
            "resources": {"limits": {"cpu": "1", "memory": "2Gi"}, "requests": {"cpu": "200m", "memory": "1Gi"}},
        }]}})
    };
    Ok(serde_json::from_value(json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "c"},
        "spec": {
            "rayVersion": "2.60.0",
            "headGroupSpec": {"rayStartParams": {}, "template": template("ray-head")},
            // KubeRay makes no worker at all without `numOfHosts` on a CRD that has no default.
            "workerGroupSpecs": [{"groupName": "g", "numOfHosts": 1, "replicas": 1, "minReplicas": 1, "maxReplicas": 1,
                "rayStartParams": {}, "template": template("ray-worker")}],
        },
    }))?)
}
