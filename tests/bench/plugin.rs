//! The plugin as a process: how fast it starts, what a long list costs, how large it is.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, PostParams};
use ray_api::ray::v1::RayCluster;
use serde_json::json;

use crate::process::{cpu_seconds, peak_kib};

const NAMESPACE: &str = "plugin-bench";
const CLUSTERS: usize = 5000;
const STARTS: usize = 200;
/// Capacity of a pipe (pipe(7)).
const PIPE: usize = 65_536;
/// What KubeRay's plugin took on 2 cores (`version`), without the time that the API server took.
const KUBERAY: &str = "KubeRay's, recorded: 30 ms, 44 MiB";

/// # Errors
/// A program that cannot be started or fails, or no API server.
pub(crate) async fn bench(plugin: &Path, kubectl: &Path) -> anyhow::Result<()> {
    let version = ["version", "--client"];
    println!(
        "version --client: {:.1} ms, of which {:.1} ms start any program; {:.1} MiB resident ({KUBERAY})",
        median_start(plugin, &version)?,
        median_start(Path::new("/bin/true"), &[])?,
        peak_at_output(plugin, &version)?,
    );
    let size = std::fs::metadata(plugin)?.len();
    println!("binary: {:.1} MiB", mebibytes(size / 1024));

    let client = Client::try_default().await?;
    create_clusters(&client).await?;
    let list = ["-n", NAMESPACE, "get", "cluster"];
    println!("get cluster, {CLUSTERS} of them: {}", run(plugin, &list)?);
    let list = ["-n", NAMESPACE, "get", "rayclusters.ray.io"];
    println!("kubectl get rayclusters, the same: {}", run(kubectl, &list)?);
    Ok(())
}

fn mebibytes(kib: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "processes and files are small")]
    let kib = kib as f64;
    kib / 1024.0
}

/// Milliseconds from start to end, the median of many.
fn median_start(program: &Path, args: &[&str]) -> anyhow::Result<f64> {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let start = Instant::now();
        let status = Command::new(program).args(args).stdout(Stdio::null()).status()?;
        times.push(start.elapsed());
        ensure!(status.success(), "{} failed", program.display());
    }
    times.sort();
    let median = times.get(STARTS / 2).context("no runs")?;
    Ok(median.as_secs_f64() * 1000.0)
}

/// Peak memory in MiB of a program that prints and ends: its pipe is full, so it waits at the end of its work.
fn peak_at_output(program: &Path, args: &[&str]) -> anyhow::Result<f64> {
    let (reader, mut writer) = std::io::pipe()?;
    writer.write_all(&[0; PIPE])?;
    let mut child = Command::new(program).args(args).stdout(writer).spawn()?;
    std::thread::sleep(Duration::from_millis(500));
    let peak = peak_kib(child.id());
    drop(reader);
    child.wait()?;
    Ok(mebibytes(peak.context("it ended before it was looked at")?))
}

/// Runs a program to its end and looks at it meanwhile.
fn run(program: &Path, args: &[&str]) -> anyhow::Result<String> {
    let start = Instant::now();
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    let (mut peak, mut cpu) = (0, 0.0);
    let status = loop {
        // Once it has ended there is nothing to be read any more.
        peak = peak_kib(child.id()).unwrap_or(peak);
        cpu = cpu_seconds(child.id()).unwrap_or(cpu);
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    ensure!(status.success(), "{} {args:?} failed", program.display());
    Ok(format!(
        "{:.2} s, {cpu:.2} CPU-s, peak {:.1} MiB",
        start.elapsed().as_secs_f64(),
        mebibytes(peak)
    ))
}

/// Clusters of a head and a worker group, as people write them.
async fn create_clusters(client: &Client) -> anyhow::Result<()> {
    let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
    Api::<Namespace>::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await?;
    let api: Api<RayCluster> = Api::namespaced(client.clone(), NAMESPACE);
    stream::iter(0..CLUSTERS)
        .map(Ok)
        .try_for_each_concurrent(32, |index| {
            let api = api.clone();
            async move {
                let pod = |name: &str| {
                    let resources = json!({"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "4Gi"}});
                    json!({"spec": {"containers": [{"name": name, "image": "rayproject/ray:2.60.0", "resources": resources}]}})
                };
                let cluster: RayCluster = serde_json::from_value(json!({
                    "apiVersion": "ray.io/v1", "kind": "RayCluster",
                    "metadata": {"name": format!("cluster-{index}")},
                    "spec": {
                        "rayVersion": "2.60.0",
                        "headGroupSpec": {"rayStartParams": {}, "template": pod("ray-head")},
                        "workerGroupSpecs": [{"groupName": "w", "replicas": 1, "rayStartParams": {}, "template": pod("ray-worker")}],
                    },
                }))?;
                api.create(&PostParams::default(), &cluster).await?;
                anyhow::Ok(())
            }
        })
        .await
}
