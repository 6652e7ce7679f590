//! Serve health at scale: simulated pods with real sockets, one server behind all their addresses.
//!
//! Runs inside the local cluster's network namespace, where the addresses of kwok's pods answer; `tests/bench/serve.sh`
//! starts it there. Prints one line a measurement: sweep, CPU, memory, sockets, time from fault to label, API writes.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
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

const NAMESPACE: &str = "serve-bench";
const LABEL: &str = "ray.io/serve";
const CLUSTERS: usize = 20;
const PORT: u16 = 8000;
const METRICS: &str = "127.0.0.1:18080";
/// Length of one measurement: ten periods.
const WINDOW: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(600);
/// Kernel's unit of CPU time in /proc.
const TICKS_PER_SECOND: f64 = 100.0;

fn main() -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let usage = "usage: bench-serve OPERATOR PODS NODES";
    let mut args = std::env::args().skip(1);
    let operator = PathBuf::from(args.next().context(usage)?);
    let pods: usize = args.next().context(usage)?.parse()?;
    let nodes: usize = args.next().context(usage)?.parse()?;
    let hanging = Arc::new(AtomicU32::new(0));
    serve_in_background(Arc::clone(&hanging))?;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(bench(&operator, pods, nodes, &hanging))
}

async fn bench(operator: &PathBuf, count: usize, nodes: usize, hanging: &AtomicU32) -> anyhow::Result<()> {
    let client = Client::try_default().await?;
    create_fleet(&client, count, nodes).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let addresses = addresses(&pods, count).await?;

    let started = Instant::now();
    let operator = Operator::start(operator)?;
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
        let figures = operator.measure().await?;
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

/// The operator with Serve health alone and default settings.
struct Operator(Child);

impl Operator {
    fn start(binary: &PathBuf) -> anyhow::Result<Self> {
        let metrics = format!("--metrics-addr={METRICS}");
        let flags = [
            "--controllers=serve",
            "--enable-leader-election=false",
            "--log-level=warn",
            "--health-probe-bind-address=127.0.0.1:0",
            &metrics,
        ];
        let child = Command::new(binary).args(flags).stdin(Stdio::null()).spawn();
        Ok(Self(
            child.with_context(|| format!("cannot start {}", binary.display()))?,
        ))
    }

    async fn measure(&self) -> anyhow::Result<String> {
        let writes_before = metric(&scrape().await?, "ray_serve_writes_total{");
        let probes_before = metric(&scrape().await?, "ray_serve_probes_total{");
        let (cpu_before, start) = (self.cpu_seconds()?, Instant::now());
        let (mut sweep, mut sockets) = (0_f64, 0);
        while start.elapsed() < WINDOW {
            sweep = sweep.max(metric(&scrape().await?, "ray_serve_sweep_duration_seconds "));
            sockets = sockets.max(std::fs::read_dir(format!("/proc/{}/fd", self.0.id()))?.count());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let seconds = start.elapsed().as_secs_f64();
        let after = scrape().await?;
        Ok(format!(
            "sweep {sweep:.2} s, {:.3} core, {} MiB, {sockets} open files, {:.0} probes/s, {} API writes",
            (self.cpu_seconds()? - cpu_before) / seconds,
            self.resident_mib()?,
            (metric(&after, "ray_serve_probes_total{") - probes_before) / seconds,
            metric(&after, "ray_serve_writes_total{") - writes_before,
        ))
    }

    fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let fields = stat.rsplit(')').next().unwrap_or_default();
        // utime and stime are the 12th and 13th after the name.
        let ticks: u64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<u64>().ok())
            .sum();
        #[allow(clippy::cast_precision_loss, reason = "ticks of a short run are small")]
        Ok(ticks as f64 / TICKS_PER_SECOND)
    }

    fn resident_mib(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .context("no VmRSS")?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib / 1024)
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn scrape() -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(METRICS).await?;
    stream
        .write_all(
            format!("GET /metrics HTTP/1.1\r\nhost: {METRICS}\r\nconnection: close\r\n\r\n").as_bytes(),
        )
        .await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

/// Sum of all series of a metric whose lines start so.
fn metric(text: &str, prefix: &str) -> f64 {
    let lines = text.lines().filter(|line| line.starts_with(prefix));
    lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
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
