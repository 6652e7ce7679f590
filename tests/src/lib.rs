//! What integration and end-to-end tests share: the cluster they run on, namespaces, our binaries as processes, waiting.
//!
//! Tests that need a control plane or a node are `#[ignore]`d, so that plain `cargo test` passes anywhere;
//! `make test` starts both, names them in `RAY_TESTS_CONTROL_PLANE` and `RAY_TESTS_NODE`, and runs everything.

pub mod audit;
mod load;
mod process;
pub mod recorded;
mod user;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

pub use load::Load;
pub use process::{Process, binary};
pub use user::{Output, User};

/// Longest time that a test waits for something; generous, because machines are shared.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A Kubernetes to test on.
#[derive(Clone)]
pub struct Cluster {
    /// Administrator's client.
    pub client: Client,
    /// Administrator's kubeconfig, for the processes that a test starts.
    pub kubeconfig: PathBuf,
}

impl Cluster {
    /// etcd, API server, controller manager and scheduler: no node runs a pod.
    ///
    /// # Errors
    /// When `RAY_TESTS_CONTROL_PLANE` names no kubeconfig that works.
    pub async fn control_plane() -> anyhow::Result<Self> {
        Self::from_env("RAY_TESTS_CONTROL_PLANE").await
    }

    /// A whole node with a registry and Ray's image.
    ///
    /// # Errors
    /// When `RAY_TESTS_NODE` names no kubeconfig that works.
    pub async fn node() -> anyhow::Result<Self> {
        Self::from_env("RAY_TESTS_NODE").await
    }

    async fn from_env(variable: &str) -> anyhow::Result<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let path = std::env::var(variable)
            .with_context(|| format!("{variable} is not set: run these tests with `make test`"))?;
        let kubeconfig = PathBuf::from(path);
        let config = Config::from_custom_kubeconfig(
            Kubeconfig::read_from(&kubeconfig)?,
            &KubeConfigOptions::default(),
        )
        .await?;
        Ok(Self {
            client: Client::try_from(config)?,
            kubeconfig,
        })
    }

    /// A new namespace whose name starts with `prefix`. It stays: the cluster goes as a whole.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn namespace(&self, prefix: &str) -> anyhow::Result<String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "{prefix}-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let namespace: Namespace = serde_json::from_value(serde_json::json!({"metadata": {"name": name}}))?;
        Api::<Namespace>::all(self.client.clone())
            .create(&PostParams::default(), &namespace)
            .await?;
        Ok(name)
    }
}

/// The root of the repository.
#[must_use]
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Polls until `probe` gives a value, or fails with `what` and the last error once patience ends.
///
/// # Errors
/// When [`PATIENCE`] ends.
pub async fn eventually<T, F, P>(what: &str, mut probe: P) -> anyhow::Result<T>
where
    P: FnMut() -> F,
    F: Future<Output = anyhow::Result<Option<T>>>,
{
    let start = Instant::now();
    loop {
        let last = match probe().await {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        if start.elapsed() > PATIENCE {
            anyhow::bail!("{what} did not happen within {PATIENCE:?}; last error: {last:?}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
