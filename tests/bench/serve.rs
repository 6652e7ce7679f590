//! Serve health at scale: simulated pods with real sockets, one server behind all their addresses.
//!
//! Runs inside the local cluster's network namespace, where the addresses of kwok's pods answer. Prints one line a measurement: sweep, CPU, memory, sockets, time from fault to label, API writes.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Client, Resource, ResourceExt};
use ray_api::ray::v1::RayCluster;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::process::{Measured, metric, scrape};

const NAMESPACE: &str = "serve-bench";
const LABEL: &str = "ray.io/serve";
const CLUSTERS: usize = 20;
const PORT: u16 = 8000;
const METRICS: &str = "127.0.0.1:18080";
/// Length of one measurement: ten periods.
const WINDOW: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(600);

/// # Errors
/// No API server, or pods that never get an address or label.
pub(crate) async fn bench(operator: &Path, count: usize, nodes: usize) -> anyhow::Result<()> {
    let hanging = Arc::new(AtomicU32::new(0));
    serve_in_background(Arc::clone(&hanging))?;
    let client = Client::try_default().await?;
    create_fleet(&client, count, nodes).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let addresses = addresses(&pods, count).await?;

    let started = Instant::now();
    let operator = start(operator)?;
    wait_for_labels(&pods, "true", count).await?;
    println!(
        "{count} pods, start: all labelled after {:.1} s",
        started.elapsed().as_secs_f64()
    );
    tokio::time::sleep(Duration::from_secs(5)).await;

    for percent in [0, 10, 100] {
        let fault = Instant::now();
        hanging.store(percent, Ordering::SeqCst);
        let expected = addresses
            .iter()
            .filter(|address| hangs(**address, percent))
            .count();
        let mut label = String::new();
        if percent == 10 {
            wait_for_labels(&pods, "false", expected).await?;
            write!(
                label,
                ", fault → last of {expected} labels {:.1} s",
                fault.elapsed().as_secs_f64()
            )?;
        } else {
            tokio::time::sleep(Duration::from_secs(15)).await;
        }
        let figures = measure(&operator).await?;
        println!("{count} pods, {percent} % hang: {figures}{label}");
        hanging.store(0, Ordering::SeqCst);
        let healed = Instant::now();
        wait_for_labels(&pods, "true", count).await?;
        if expected > 0 {
            println!(
                "{count} pods, {percent} % healed: all labelled after {:.1} s",
                healed.elapsed().as_secs_f64()
            );
        }
    }
    Api::<Namespace>::all(client)
        .delete(NAMESPACE, &DeleteParams::default())
        .await?;
    Ok(())
}

/// Clusters with the annotation, and their running pods: a bound pod needs no scheduler, kwok plays the kubelet.
async fn create_fleet(client: &Client, count: usize, nodes: usize) -> anyhow::Result<()> {
    let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
    Api::<Namespace>::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await?;
    let mut clusters = Vec::new();
    for index in 0..CLUSTERS {
        let cluster: RayCluster = serde_json::from_value(json!({
            "apiVersion": "ray.io/v1", "kind": "RayCluster",
            "metadata": {"name": format!("c-{index}"), "annotations": {"ray.io/enable-serve-service": "true"}},
            "spec": {"headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [{"name": "ray-head", "image": "ray"}]}}}},
        }))?;
        let api: Api<RayCluster> = Api::namespaced(client.clone(), NAMESPACE);
        clusters.push(api.create(&PostParams::default(), &cluster).await?);
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    stream::iter(0..count)
        .map(Ok)
        .try_for_each_concurrent(32, |index| {
            let cluster = clusters.get(index % CLUSTERS);
            let pods = pods.clone();
            async move {
                let cluster = cluster.context("no clusters")?;
                let pod: Pod = serde_json::from_value(json!({
                    "metadata": {
                        "name": format!("p-{index}"),
                        "labels": {"ray.io/cluster": cluster.name_any(), "ray.io/node-type": "worker"},
                        "ownerReferences": [cluster.controller_owner_ref(&())],
                    },
                    "spec": {
                        "nodeName": format!("kwok-{}", index % nodes),
                        "tolerations": [{"operator": "Exists"}],
                        "containers": [{"name": "ray", "image": "ray"}],
                    },
                }))?;
                pods.create(&PostParams::default(), &pod).await?;
                anyhow::Ok(())
            }
        })
        .await
}

async fn addresses(pods: &Api<Pod>, count: usize) -> anyhow::Result<Vec<IpAddr>> {
    let start = Instant::now();
    loop {
        let mut addresses = Vec::new();
        let mut page = ListParams::default().limit(500);
        loop {
            let list = pods.list(&page).await?;
            let running = list
                .items
                .iter()
                .filter_map(|pod| pod.status.as_ref()?.pod_ip.as_ref()?.parse::<IpAddr>().ok());
            addresses.extend(running);
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => break,
            }
        }
        if addresses.len() == count {
            return Ok(addresses);
        }
        ensure!(
            start.elapsed() < PATIENCE,
            "{} of {count} pods have an address",
            addresses.len()
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn wait_for_labels(pods: &Api<Pod>, value: &str, count: usize) -> anyhow::Result<()> {
    let start = Instant::now();
    let selected = ListParams::default().labels(&format!("{LABEL}={value}"));
    loop {
        let list: kube::core::ObjectList<PartialObjectMeta<Pod>> = pods.list_metadata(&selected).await?;
        if list.items.len() == count {
            return Ok(());
        }
        ensure!(
            start.elapsed() < PATIENCE,
            "{} of {count} pods are labelled {value}",
            list.items.len()
        );
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Serve health alone, with default settings.
fn start(operator: &Path) -> anyhow::Result<Measured> {
    let metrics = format!("--metrics-addr={METRICS}");
    let flags = [
        "--controllers=serve",
        "--enable-leader-election=false",
        "--log-level=warn",
        "--health-probe-bind-address=127.0.0.1:0",
        &metrics,
    ];
    Measured::start(operator, &flags)
}

async fn measure(operator: &Measured) -> anyhow::Result<String> {
    let before = scrape(METRICS).await?;
    let (cpu_before, start) = (operator.cpu_seconds()?, Instant::now());
    let (mut sweep, mut sockets) = (0_f64, 0);
    while start.elapsed() < WINDOW {
        sweep = sweep.max(metric(
            &scrape(METRICS).await?,
            "ray_serve_sweep_duration_seconds ",
        ));
        sockets = sockets.max(operator.open_files()?);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let seconds = start.elapsed().as_secs_f64();
    let after = scrape(METRICS).await?;
    let growth = |prefix| metric(&after, prefix) - metric(&before, prefix);
    Ok(format!(
        "sweep {sweep:.2} s, {:.3} core, {} MiB (peak {}), {sockets} open files, {:.0} probes/s, {} API writes",
        (operator.cpu_seconds()? - cpu_before) / seconds,
        operator.resident_mib()?,
        operator.peak_mib()?,
        growth("ray_serve_probes_total{") / seconds,
        growth("ray_serve_writes_total{"),
    ))
}

/// Whether the pod at that address is among the hanging ones: always the same for a percentage, and spread over clusters.
fn hangs(address: IpAddr, percent: u32) -> bool {
    let mut hasher = DefaultHasher::new();
    address.hash(&mut hasher);
    hasher.finish() % 100 < u64::from(percent)
}

/// One server for the addresses of all pods, on a thread of its own.
fn serve_in_background(hanging: Arc<AtomicU32>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    std::thread::spawn(move || runtime.block_on(accept(hanging)));
    Ok(())
}

async fn accept(hanging: Arc<AtomicU32>) -> std::io::Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(answer(stream, Arc::clone(&hanging)));
    }
}

async fn answer(mut stream: TcpStream, hanging: Arc<AtomicU32>) -> std::io::Result<()> {
    let address = stream.local_addr()?.ip();
    let mut request = [0; 512];
    while stream.read(&mut request).await? > 0 {
        if !hangs(address, hanging.load(Ordering::SeqCst)) {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n7\r\nsuccess\r\n0\r\n\r\n")
                .await?;
        }
    }
    Ok(())
}
