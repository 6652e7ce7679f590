//! RayClusters at scale on simulated nodes: an operator starts, all clusters get ready, then nothing happens.
//!
//! A peer's operator is measured in the same way before ours, each on a control plane of its own: what one leaves
//! behind would slow down the next. Without a peer its recorded figures are printed.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use ray_api::ray::v1::{ClusterState, RayCluster};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::audit::Audit;
use crate::contestant::Contestant;
use crate::process::Measured;

const NAMESPACE: &str = "cluster-bench";
const PATIENCE: Duration = Duration::from_secs(900);
/// From the last `ready` until nothing is written any more.
const SETTLE: Duration = Duration::from_secs(15);
const IDLE: Duration = Duration::from_secs(60);

/// How much there is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) clusters: usize,
    /// Workers of each cluster, in one group.
    pub(crate) workers: usize,
}

impl Load {
    /// KubeRay's figures on two cores, and what ours are to reach.
    fn recorded(self) -> Option<&'static str> {
        match (self.clusters, self.workers) {
            (400, 4) => Some(
                "KubeRay, recorded            45 – 50 s (10 workers and 1000 qps: 40 – 42 s), 10.7 – 11.8 CPU-s, 119 – 129 MiB, 2.9 – 5.4 status writes a cluster; idle 2 – 10 ms CPU/s\n\
                 to reach                     ≤ 0.9 × its best in the same run, ≤ 3.5 CPU-s, ≤ 40 MiB, ≤ 3 status writes a cluster; idle ≤ 1 ms CPU/s, no requests",
            ),
            (1, 1000) => Some(
                "KubeRay, recorded            17 s (10 workers and 1000 qps: 12 s), 1.9 – 2.3 CPU-s, 104 MiB\n\
                 to reach                     ≤ 0.6 × its default's time, ≤ 1 CPU-s, ≤ 10 status writes",
            ),
            _ => None,
        }
    }
}

const COMMON: [&str; 3] = [
    "--enable-leader-election=false",
    "--metrics-addr=127.0.0.1:18080",
    "--health-probe-bind-address=127.0.0.1:18082",
];

fn flags(contestant: Contestant) -> &'static [&'static str] {
    match contestant {
        Contestant::Ours => &["--log-level=warn"],
        Contestant::Peer => &[],
        Contestant::FastPeer => &["--reconcile-concurrency=10", "--qps=1000", "--burst=2000"],
    }
}

/// What one operator needed.
struct Figures {
    ready: f64,
    cpu_seconds: f64,
    peak_mib: u64,
    status_writes: f64,
    requests: f64,
    idle_cpu_millis: f64,
    idle_requests: BTreeMap<String, u64>,
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:.1} s, {:.2} CPU-s, peak {} MiB, {:.1} status writes and {:.1} requests a cluster; idle {:.2} ms CPU/s, {:?} in a minute",
            self.ready,
            self.cpu_seconds,
            self.peak_mib,
            self.status_writes,
            self.requests,
            self.idle_cpu_millis,
            self.idle_requests,
        )
    }
}

/// Measures one operator; ours beside what its peers took, which `times` keeps.
///
/// # Errors
/// No API server, an operator that does not start, or clusters that never get ready.
pub(crate) async fn bench(
    contestant: Contestant,
    operator: &Path,
    audit: &Path,
    load: Load,
    times: &Path,
) -> anyhow::Result<()> {
    let client = Client::try_default().await?;
    let name = contestant.name();
    create(&client, load).await?;
    let figures = measure(&client, contestant, operator, audit, load).await?;
    println!("{name:<28} {figures}");
    contestant.compare(figures.ready, times, load.recorded())
}

async fn measure(
    client: &Client,
    contestant: Contestant,
    operator: &Path,
    audit: &Path,
    load: Load,
) -> anyhow::Result<Figures> {
    let agent = operator.file_name().unwrap_or_default().to_string_lossy();
    let audit = Audit::new(audit, &agent);
    let before = audit.mark()?;
    let args: Vec<&str> = COMMON.iter().chain(flags(contestant)).copied().collect();
    let started = Instant::now();
    let process = Measured::start(operator, &args)?;
    timeout(PATIENCE, all_ready(client, load.clusters))
        .await
        .context("not all clusters got ready")??;
    let (ready, cpu_seconds) = (started.elapsed().as_secs_f64(), process.cpu_seconds()?);
    sleep(SETTLE).await;
    let requests = audit.since(before)?;
    let peak_mib = process.peak_mib()?;

    let (mark, cpu) = (audit.mark()?, process.cpu_seconds()?);
    sleep(IDLE).await;
    let idle = process.cpu_seconds()? - cpu;
    #[allow(clippy::cast_precision_loss, reason = "counts of a short run are small")]
    let a_cluster = |requests: u64| requests as f64 / load.clusters as f64;
    Ok(Figures {
        ready,
        cpu_seconds,
        peak_mib,
        status_writes: a_cluster(status_writes(&requests)),
        requests: a_cluster(requests.values().sum()),
        idle_cpu_millis: idle * 1000.0 / IDLE.as_secs_f64(),
        idle_requests: audit.since(mark)?,
    })
}

fn status_writes(requests: &BTreeMap<String, u64>) -> u64 {
    let of_status = requests
        .iter()
        .filter(|(request, _)| request.ends_with("rayclusters/status") && !request.starts_with("get"));
    of_status.map(|(_, count)| count).sum()
}

/// Follows the clusters until every one is `ready`.
async fn all_ready(client: &Client, count: usize) -> anyhow::Result<()> {
    let api: Api<RayCluster> = Api::namespaced(client.clone(), NAMESPACE);
    let mut clusters = std::pin::pin!(watcher(api, watcher::Config::default()).applied_objects());
    let mut ready = HashSet::new();
    while let Some(cluster) = clusters.try_next().await? {
        let state = cluster.status.as_ref().and_then(|status| status.state);
        if state == Some(ClusterState::Ready) {
            ready.insert(cluster.name_any());
        }
        if ready.len() == count {
            return Ok(());
        }
    }
    anyhow::bail!("the watch of RayClusters ended")
}

/// The clusters, which no operator has seen yet.
async fn create(client: &Client, load: Load) -> anyhow::Result<()> {
    let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
    Api::<Namespace>::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    while accounts.get_opt("default").await?.is_none() {
        sleep(Duration::from_millis(100)).await;
    }
    let api: Api<RayCluster> = Api::namespaced(client.clone(), NAMESPACE);
    stream::iter((0..load.clusters).map(|index| {
        let (api, object) = (api.clone(), cluster(index, load.workers));
        async move {
            api.create(&PostParams::default(), &serde_json::from_value(object)?)
                .await?;
            anyhow::Ok(())
        }
    }))
    .buffer_unordered(16)
    .try_collect::<Vec<()>>()
    .await
    .map(drop)
}

fn cluster(index: usize, workers: usize) -> serde_json::Value {
    let template = |name: &str| {
        json!({"spec": {"containers": [{
            "name": name, "image": "rayproject/ray:2.60.0",
            "resources": {"limits": {"cpu": "1", "memory": "2Gi"}, "requests": {"cpu": "1", "memory": "2Gi"}},
        }]}})
    };
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster",
        "metadata": {"name": format!("c-{index}")},
        "spec": {
            "rayVersion": "2.60.0",
            "headGroupSpec": {"rayStartParams": {}, "template": template("ray-head")},
            "workerGroupSpecs": [{
                // KubeRay makes no worker at all without it on a CRD that has no default.
                "groupName": "workers", "numOfHosts": 1, "replicas": workers, "minReplicas": workers, "maxReplicas": workers,
                "rayStartParams": {}, "template": template("ray-worker"),
            }],
        },
    })
}
