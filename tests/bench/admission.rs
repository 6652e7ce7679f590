//! Admission: what an expansion takes over TLS, and what templates take of memory.
//!
//! The webhook reads templates from a real API server, and is called as that one calls it: one HTTP/2 connection, reviews of a
//! RayCluster with ten groups. Times count from when a call was due, so that a slow answer delays no measurement after it.
//! The same load of reviews that name no template is the baseline: TLS, HTTP and a noisy machine, without expansion.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use futures::{StreamExt, TryStreamExt, stream};
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2::SendRequest;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use ray_api::template::{ComputeTemplate, ImageTemplate};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::process::{Measured, metric, scrape};

const NAMESPACE: &str = "admission-bench";
const ADDRESS: &str = "127.0.0.1:19443";
const ADMIN: &str = "127.0.0.1:18081";
/// Calls a second.
const RATE: u32 = 500;
const WINDOW: Duration = Duration::from_secs(20);
const WARM_UP: Duration = Duration::from_secs(2);
const GROUPS: usize = 9;
const FEW: usize = 100;
const MANY: usize = 5000;
const PATIENCE: Duration = Duration::from_secs(120);

/// # Errors
/// No API server, or a webhook that does not answer as it should.
pub(crate) async fn bench(webhook: &Path) -> anyhow::Result<()> {
    let client = Client::try_default().await?;
    let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
    Api::<Namespace>::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await?;
    let folder = tempfile::tempdir()?;
    let authority = certificate(folder.path())?;
    create_image(&client).await?;

    let expanding = review(&cluster(true))?;
    let plain = review(&cluster(false))?;
    let mut idle = Vec::new();
    for (from, to) in [(0, FEW), (FEW, MANY)] {
        create_templates(&client, from..to).await?;
        let server = start(webhook, folder.path(), to).await?;
        idle.push(server.resident_kib()?);
        let resident = mib(server.resident_kib()?);
        let calls = connect(&authority).await?;
        load(&calls, &plain, WARM_UP).await?;
        load(&calls, &expanding, WARM_UP).await?;
        let baseline = load(&calls, &plain, WINDOW).await?;
        let cpu = server.cpu_seconds()?;
        let taken = load(&calls, &expanding, WINDOW).await?;
        let cpu = (server.cpu_seconds()? - cpu) / WINDOW.as_secs_f64();
        println!(
            "{to} templates: expansion of {} groups at {RATE}/s: p50 {:.2} ms, p99 {:.2} ms; without templates: p50 {:.2} ms, p99 {:.2} ms; {cpu:.2} core",
            GROUPS + 1,
            taken.p50,
            taken.p99,
            baseline.p50,
            baseline.p99,
        );
        println!(
            "{to} templates: {resident:.1} MiB idle, {:.1} MiB under load (peak {})",
            mib(server.resident_kib()?),
            server.peak_mib()?
        );
    }
    if let [few, many] = idle.as_slice() {
        #[allow(clippy::cast_precision_loss, reason = "thousands")]
        let thousands = (MANY - FEW) as f64 / 1000.0;
        println!(
            "each 1000 templates: {:.1} MiB",
            mib(many.saturating_sub(*few)) / thousands
        );
    }
    Api::<Namespace>::all(client)
        .delete(NAMESPACE, &DeleteParams::default())
        .await?;
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "memory of a process")]
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// A leaf for localhost in the folder's files, as cert-manager would bring it; its CA.
fn certificate(folder: &Path) -> anyhow::Result<rustls::RootCertStore> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "issuer");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let leaf = CertificateParams::new(["localhost".to_owned()])?.signed_by(&key, &authority)?;
    std::fs::write(folder.join("tls.crt"), leaf.pem())?;
    std::fs::write(folder.join("tls.key"), key.serialize_pem())?;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.der().clone())?;
    Ok(roots)
}

/// Templates of the size that people write: a dozen fields each, every fifth with a parent.
async fn create_templates(client: &Client, which: std::ops::Range<usize>) -> anyhow::Result<()> {
    let api: Api<ComputeTemplate> = Api::namespaced(client.clone(), NAMESPACE);
    stream::iter(which)
        .map(Ok)
        .try_for_each_concurrent(16, |index| {
            let api = api.clone();
            async move {
                let parent = (index % 5 == 4).then(|| format!("t-{}", index - 1));
                let template = serde_json::from_value(json!({
                    "metadata": {"name": format!("t-{index}"), "labels": {"team": "platform", "tier": "gpu"}},
                    "spec": {
                        "description": "eight CPUs and one accelerator, for training", "extends": parent,
                        "resources": {"limits": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"}, "requests": {"cpu": "4", "memory": "64Gi"}},
                        "nodeSelector": {"pool": "gpu", "zone": "a"},
                        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                        "env": [{"name": "NCCL_DEBUG", "value": "WARN"}, {"name": "OMP_NUM_THREADS", "value": "8"}],
                        "volumes": [{"name": "scratch", "emptyDir": {}}],
                        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                        "sharedMemory": "16Gi", "labels": {"tier": "gpu"}, "rayResources": {"accelerator": 1.0},
                    },
                }))?;
                api.create(&PostParams::default(), &template).await?;
                anyhow::Ok(())
            }
        })
        .await
}

async fn create_image(client: &Client) -> anyhow::Result<()> {
    let api: Api<ImageTemplate> = Api::namespaced(client.clone(), NAMESPACE);
    let template = serde_json::from_value(
        json!({"metadata": {"name": "torch"}, "spec": {"baseImage": "rayproject/ray:2.60.0"}}),
    )?;
    api.create(&PostParams::default(), &template).await?;
    let digest = format!("registry.example/torch@sha256:{}", "0".repeat(64));
    let status = json!({"status": {"image": digest, "rayVersion": "2.60.0"}});
    api.patch_status("torch", &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(())
}

/// The webhook with a full cache.
async fn start(webhook: &Path, folder: &Path, templates: usize) -> anyhow::Result<Measured> {
    let (certificate, key) = (folder.join("tls.crt"), folder.join("tls.key"));
    let server = Measured::start(
        webhook,
        &[
            format!("--bind-address={ADDRESS}"),
            format!("--admin-address={ADMIN}"),
            format!("--tls-cert-file={}", certificate.display()),
            format!("--tls-key-file={}", key.display()),
            "--log-level=warn".to_owned(),
        ],
    )?;
    let start = Instant::now();
    #[allow(clippy::cast_precision_loss, reason = "thousands")]
    let wanted = templates as f64;
    loop {
        let cached = scrape(ADMIN)
            .await
            .map(|text| metric(&text, "ray_webhook_store_size{kind=\"ComputeTemplate\"}"));
        if cached.is_ok_and(|cached| cached == wanted) {
            return Ok(server);
        }
        ensure!(
            start.elapsed() < PATIENCE,
            "the webhook did not cache {templates} templates"
        );
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Ten groups, with a template each or written out.
fn cluster(with_templates: bool) -> Value {
    let pod = json!({"spec": {"containers": [{"name": "ray", "image": "rayproject/ray:2.60.0"}]}});
    let template = |index: usize| with_templates.then(|| format!("t-{}", index * 9));
    let group = |index: usize| match template(index) {
        Some(name) => json!({"computeTemplate": name}),
        None => json!({"template": pod}),
    };
    let worker = |index: usize| {
        let mut worker = json!({"groupName": format!("workers-{index}"), "replicas": 4, "minReplicas": 0, "maxReplicas": 8});
        if let (Some(worker), Some(group)) = (worker.as_object_mut(), group(index).as_object()) {
            worker.extend(group.clone());
        }
        worker
    };
    let workers: Vec<_> = (1..=GROUPS).map(worker).collect();
    let image = with_templates.then_some("torch");
    let spec = json!({"imageTemplate": image, "headGroupSpec": group(0), "workerGroupSpecs": workers});
    json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "c", "namespace": NAMESPACE}, "spec": spec})
}

/// The review that an API server makes of a create.
fn review(cluster: &Value) -> anyhow::Result<Bytes> {
    let kind = json!({"group": "ray.io", "version": "v1", "kind": "RayCluster"});
    let resource = json!({"group": "ray.io", "version": "v1", "resource": "rayclusters"});
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "kind": kind, "resource": resource, "requestKind": kind,
        "requestResource": resource, "name": "c", "namespace": NAMESPACE, "operation": "CREATE", "dryRun": false,
        "userInfo": {"username": "jane", "groups": ["system:authenticated"]}, "object": cluster, "oldObject": null,
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions", "fieldManager": "kubectl"}}});
    Ok(serde_json::to_vec(&review)?.into())
}

type Calls = SendRequest<Full<Bytes>>;

/// One HTTP/2 connection, as the API server keeps it.
async fn connect(authority: &rustls::RootCertStore) -> anyhow::Result<Calls> {
    let mut config = rustls::ClientConfig::builder()
        .with_root_certificates(authority.clone())
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let socket = TcpStream::connect(ADDRESS).await?;
    socket.set_nodelay(true)?;
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    let stream = connector
        .connect(ServerName::try_from("localhost")?, socket)
        .await?;
    let io = hyper_util::rt::TokioIo::new(stream);
    let (calls, connection) = hyper::client::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new())
        .adaptive_window(true)
        .handshake(io)
        .await?;
    tokio::spawn(connection);
    Ok(calls)
}

/// Milliseconds.
struct Latencies {
    p50: f64,
    p99: f64,
}

/// Posts a review at the fixed rate.
async fn load(calls: &Calls, review: &Bytes, window: Duration) -> anyhow::Result<Latencies> {
    let period = Duration::from_secs(1) / RATE;
    let start = Instant::now();
    let mut running = Vec::new();
    for call in 0_u32.. {
        let due = period * call;
        if due >= window {
            break;
        }
        tokio::time::sleep(due.saturating_sub(start.elapsed())).await;
        let (mut calls, review) = (calls.clone(), review.clone());
        running.push(tokio::spawn(async move {
            ask(&mut calls, review).await?;
            anyhow::Ok(start.elapsed().saturating_sub(due))
        }));
    }
    let mut latencies = Vec::new();
    for answer in running {
        latencies.push(answer.await??);
    }
    latencies.sort_unstable();
    let at = |percent: usize| {
        let index = (latencies.len() * percent / 100).min(latencies.len().saturating_sub(1));
        latencies
            .get(index)
            .map_or(0.0, |latency| latency.as_secs_f64() * 1000.0)
    };
    Ok(Latencies {
        p50: at(50),
        p99: at(99),
    })
}

async fn ask(calls: &mut Calls, review: Bytes) -> anyhow::Result<()> {
    let request = Request::post(format!("https://{ADDRESS}/mutate-raycluster?timeout=5s"))
        .header("content-type", "application/json")
        .body(Full::new(review))?;
    let response = calls.send_request(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    let is_allowed = body.windows(14).any(|part| part == br#""allowed":true"#);
    ensure!(
        status == 200 && is_allowed,
        "{status}: {}",
        String::from_utf8_lossy(&body)
    );
    Ok(())
}
