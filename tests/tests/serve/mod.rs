//! RayClusters and pods with hand-written status, whose addresses are this machine's: real probes, no node.

// Each test program uses its part of this.
#![allow(dead_code, reason = "shared by several test programs")]

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Config, Resource, ResourceExt};
use ray_api::ray::v1::RayCluster;
use ray_tests::{Cluster, Process, eventually};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub(crate) const LABEL: &str = "ray.io/serve";
const THRESHOLD: &str = "--serve-health-failure-threshold";

/// A namespace on the control plane.
pub(crate) struct Site {
    pub cluster: Cluster,
    pub namespace: String,
    /// Address of this machine that the operator may take for a pod's: neither loopback nor link-local.
    pub address: IpAddr,
}

impl Site {
    pub(crate) async fn new(prefix: &str) -> anyhow::Result<Self> {
        let cluster = Cluster::control_plane().await?;
        let namespace = cluster.namespace(prefix).await?;
        let address = own_address(&cluster).await?;
        Ok(Self {
            cluster,
            namespace,
            address,
        })
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.cluster.client.clone(), &self.namespace)
    }

    /// The operator with Serve health alone and short times.
    pub(crate) fn operator(&self, flags: &[&str]) -> anyhow::Result<Process> {
        let mut args = vec![
            "--controllers=serve",
            "--watch-namespace",
            &self.namespace,
            "--log-format=text",
            "--metrics-addr=127.0.0.1:0",
            "--health-probe-bind-address=127.0.0.1:0",
            "--serve-health-period=200ms",
        ];
        if !flags.iter().any(|flag| flag.starts_with(THRESHOLD)) {
            args.push("--serve-health-failure-threshold=3");
        }
        args.extend(flags);
        Process::start("ray-operator", &self.cluster.kubeconfig, &args)
    }

    /// A RayCluster with a Serve service as KubeRay's operator makes it.
    pub(crate) async fn ray_cluster(
        &self,
        name: &str,
        annotations: Value,
        labels: Value,
    ) -> anyhow::Result<RayCluster> {
        let cluster: RayCluster = serde_json::from_value(json!({
            "apiVersion": "ray.io/v1", "kind": "RayCluster",
            "metadata": {"name": name, "annotations": annotations, "labels": labels},
            "spec": {"headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [{"name": "ray-head", "image": "ray"}]}}}},
        }))?;
        let cluster = self
            .api::<RayCluster>()
            .create(&PostParams::default(), &cluster)
            .await?;
        let service: Service = serde_json::from_value(json!({
            "metadata": {
                "name": format!("{name}-serve-svc"),
                "labels": {LABEL: format!("{name}-serve"), "ray.io/originated-from-cr-name": name, "ray.io/originated-from-crd": "RayCluster"},
                "ownerReferences": [cluster.controller_owner_ref(&())],
            },
            "spec": {"selector": {"ray.io/cluster": name}, "ports": [{"name": "serve", "port": 8000}]},
        }))?;
        self.api::<Service>()
            .create(&PostParams::default(), &service)
            .await?;
        Ok(cluster)
    }

    /// An annotated RayCluster.
    pub(crate) async fn serve_cluster(&self, name: &str) -> anyhow::Result<RayCluster> {
        self.ray_cluster(name, json!({"ray.io/enable-serve-service": "true"}), json!({}))
            .await
    }

    /// A running pod of the cluster whose Serve proxy is `port` of this machine.
    pub(crate) async fn pod(
        &self,
        name: &str,
        cluster: &RayCluster,
        node_type: &str,
        port: u16,
        labels: &[(&str, &str)],
    ) -> anyhow::Result<()> {
        let mut all = BTreeMap::from([
            ("ray.io/cluster".to_owned(), cluster.name_any()),
            ("ray.io/node-type".to_owned(), node_type.to_owned()),
        ]);
        all.extend(
            labels
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
        );
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": all, "ownerReferences": [cluster.controller_owner_ref(&())]},
            "spec": {
                // No scheduler takes it, so nobody but this test writes its status.
                "schedulerName": "none",
                "containers": [{"name": "ray", "image": "ray", "ports": [{"name": "serve", "containerPort": port}]}],
            },
        }))?;
        let pods = self.api::<Pod>();
        pods.create(&PostParams::default(), &pod).await?;
        self.pod_status(
            name,
            json!({"phase": "Running", "podIP": self.address, "podIPs": [{"ip": self.address}]}),
        )
        .await
    }

    pub(crate) async fn pod_status(&self, name: &str, status: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        self.api::<Pod>()
            .patch_status(name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    pub(crate) async fn label(&self, pod: &str) -> anyhow::Result<Option<String>> {
        Ok(self.api::<Pod>().get(pod).await?.labels().get(LABEL).cloned())
    }

    pub(crate) async fn label_becomes(&self, pod: &str, label: Option<&str>) -> anyhow::Result<()> {
        eventually(&format!("label {LABEL} of {pod} becomes {label:?}"), || async {
            Ok((self.label(pod).await?.as_deref() == label).then_some(()))
        })
        .await
    }

    /// Status and reason of a RayCluster's condition.
    pub(crate) async fn condition(
        &self,
        cluster: &str,
        type_: &str,
    ) -> anyhow::Result<Option<(String, String)>> {
        let cluster = self.api::<RayCluster>().get_status(cluster).await?;
        let conditions = cluster
            .status
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        let found = conditions.into_iter().find(|condition| condition.type_ == type_);
        Ok(found.map(|condition| (condition.status, condition.reason)))
    }

    pub(crate) async fn condition_becomes(
        &self,
        cluster: &str,
        type_: &str,
        status: &str,
        reason: &str,
    ) -> anyhow::Result<()> {
        eventually(
            &format!("condition {type_} of {cluster} becomes {status} ({reason})"),
            || async {
                let found = self.condition(cluster, type_).await?;
                Ok((found == Some((status.to_owned(), reason.to_owned()))).then_some(()))
            },
        )
        .await
    }

    /// Waits until the proxy was asked that many times more.
    pub(crate) async fn asked(&self, proxy: &Proxy, times: usize) -> anyhow::Result<()> {
        let goal = proxy.requests() + times;
        eventually("the proxy is asked", || async {
            Ok((proxy.requests() >= goal).then_some(()))
        })
        .await
    }
}

/// The address of this machine from which it reaches the API server.
async fn own_address(cluster: &Cluster) -> anyhow::Result<IpAddr> {
    let kubeconfig = kube::config::Kubeconfig::read_from(&cluster.kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    let host = config
        .cluster_url
        .host()
        .context("the kubeconfig names no host")?;
    let socket = UdpSocket::bind(if host.contains(':') { "[::]:0" } else { "0.0.0.0:0" })?;
    // Sends nothing: it only asks the kernel for a route.
    socket.connect((host, config.cluster_url.port_u16().unwrap_or(443)))?;
    Ok(socket.local_addr()?.ip())
}

/// How a proxy answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Healthy,
    Status(u16),
    /// Takes connections and requests, and never answers, as a stopped process.
    Hang,
}

/// A stand-in for a pod's Serve proxy.
pub(crate) struct Proxy {
    pub port: u16,
    address: SocketAddr,
    mode: Arc<Mutex<Mode>>,
    requests: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(site: &Site) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((site.address, 0)).await?;
        let address = listener.local_addr()?;
        let (mode, requests, connections) = (
            Arc::new(Mutex::new(Mode::Healthy)),
            Arc::default(),
            Arc::default(),
        );
        let task = tokio::spawn(accept(
            listener,
            Arc::clone(&mode),
            Arc::clone(&requests),
            Arc::clone(&connections),
        ));
        Ok(Self {
            port: address.port(),
            address,
            mode,
            requests,
            connections,
            task,
        })
    }

    pub(crate) fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap_or_else(PoisonError::into_inner) = mode;
    }

    /// Stops listening: connections are refused, open ones break.
    pub(crate) async fn kill(&mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }

    /// Listens on the same port again.
    pub(crate) async fn revive(&mut self) -> anyhow::Result<()> {
        let listener = TcpListener::bind(self.address).await?;
        self.set(Mode::Healthy);
        let (mode, requests, connections) = (
            Arc::clone(&self.mode),
            Arc::clone(&self.requests),
            Arc::clone(&self.connections),
        );
        self.task = tokio::spawn(accept(listener, mode, requests, connections));
        Ok(())
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn accept(
    listener: TcpListener,
    mode: Arc<Mutex<Mode>>,
    requests: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
) {
    // Dropped together with this future, which breaks the connections.
    let mut open = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.fetch_add(1, Ordering::SeqCst);
        open.spawn(answer(stream, Arc::clone(&mode), Arc::clone(&requests)));
    }
}

async fn answer(
    mut stream: TcpStream,
    mode: Arc<Mutex<Mode>>,
    requests: Arc<AtomicUsize>,
) -> std::io::Result<()> {
    let mut request = [0; 4096];
    while stream.read(&mut request).await? > 0 {
        requests.fetch_add(1, Ordering::SeqCst);
        let mode = *mode.lock().unwrap_or_else(PoisonError::into_inner);
        let (status, body) = match mode {
            Mode::Healthy => (200, "success"),
            Mode::Status(status) => (status, "draining"),
            Mode::Hang => continue,
        };
        let length = body.len();
        let text = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(text.as_bytes()).await?;
    }
    Ok(())
}
