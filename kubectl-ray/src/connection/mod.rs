//! kubectl's connection flags, and the client that they lead to. Every verb connects through here.

mod client;
mod deadline;
mod kubeconfig;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::{HeaderValue, header};
use kube::config::KubeConfigOptions;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Config, Resource};

use crate::error::{Failure, Result};

/// kubectl's connection flags; accepted by every verb, before or behind it.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Connection options")]
pub struct ConnectionArgs {
    /// Namespace of this request.
    #[arg(short, long, global = true, value_name = "NAME", add = crate::complete::namespaces())]
    pub namespace: Option<String>,
    /// Context of the kubeconfig to use.
    #[arg(long, global = true, value_name = "NAME", add = crate::complete::contexts())]
    pub context: Option<String>,
    /// Path of the kubeconfig.
    #[arg(long, global = true, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    pub kubeconfig: Option<PathBuf>,
    /// Cluster of the kubeconfig to use.
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true, add = crate::complete::kubeconfig_clusters())]
    pub cluster: Option<String>,
    /// User of the kubeconfig to use.
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true, add = crate::complete::kubeconfig_users())]
    pub user: Option<String>,
    /// Address of the API server.
    #[arg(short, long, global = true, value_name = "URL", hide_short_help = true)]
    pub server: Option<String>,
    /// Bearer token to authenticate with.
    #[arg(long, global = true, value_name = "TOKEN", hide_short_help = true)]
    pub token: Option<String>,
    /// User name for basic authentication.
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub username: Option<String>,
    /// Password for basic authentication.
    #[arg(long, global = true, value_name = "PASSWORD", hide_short_help = true)]
    pub password: Option<String>,
    /// User to impersonate.
    #[arg(long = "as", global = true, value_name = "USER", hide_short_help = true)]
    pub as_user: Option<String>,
    /// Group to impersonate; may be repeated.
    #[arg(long, global = true, value_name = "GROUP", hide_short_help = true)]
    pub as_group: Vec<String>,
    /// UID to impersonate.
    #[arg(long, global = true, value_name = "UID", hide_short_help = true)]
    pub as_uid: Option<String>,
    /// File with the certificates of the API server's authority.
    #[arg(long, global = true, value_name = "PATH", hide_short_help = true)]
    pub certificate_authority: Option<PathBuf>,
    /// File with the client's certificate.
    #[arg(long, global = true, value_name = "PATH", hide_short_help = true)]
    pub client_certificate: Option<PathBuf>,
    /// File with the client's key.
    #[arg(long, global = true, value_name = "PATH", hide_short_help = true)]
    pub client_key: Option<PathBuf>,
    /// Do not check the API server's certificate.
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_short_help = true)]
    pub insecure_skip_tls_verify: Option<bool>,
    /// Name that the API server's certificate must have.
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub tls_server_name: Option<String>,
    /// Proxy to the API server.
    #[arg(long, global = true, value_name = "URL", hide_short_help = true)]
    pub proxy_url: Option<String>,
    /// Longest wait for one whole answer (of logs and watches: for its start), as `10s` or `2m`; 0 waits for ever.
    #[arg(long, global = true, value_name = "DURATION", value_parser = crate::cli::duration, hide_short_help = true)]
    pub request_timeout: Option<Duration>,
    /// Do not ask for compressed answers.
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL", hide_short_help = true)]
    pub disable_compression: Option<bool>,
    /// Accepted as kubectl's; nothing is cached.
    #[arg(long, global = true, value_name = "PATH", hide = true)]
    pub cache_dir: Option<PathBuf>,
}

/// A client and the namespace that names are looked up in.
#[derive(Clone)]
pub struct Connection {
    /// The client.
    pub client: Client,
    /// `--namespace`, else the context's, else `default`.
    pub namespace: String,
}

impl Connection {
    /// The objects of a kind in our namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

impl ConnectionArgs {
    /// Connects as kubectl would with the same flags.
    ///
    /// # Errors
    /// When the kubeconfig is unusable; nothing is sent yet.
    pub async fn connect(&self) -> Result<Connection> {
        // The only error is that a provider is there already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = self.config().await?;
        let namespace = self
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        Ok(Connection {
            client: client::build(config, self.request_timeout)?,
            namespace,
        })
    }

    /// The kube configuration of these flags.
    ///
    /// # Errors
    /// When the kubeconfig is unusable.
    pub async fn config(&self) -> Result<Config> {
        let mut config = match self.kubeconfig()? {
            Some(kubeconfig) => {
                let chosen = self.choose(kubeconfig)?;
                Config::from_custom_kubeconfig(chosen, &KubeConfigOptions::default()).await?
            }
            None => Config::incluster().map_err(|_| no_cluster())?,
        };
        let agent = format!("kubectl-ray/{}", ray_api::meta::VERSION);
        if let Ok(agent) = HeaderValue::from_str(&agent) {
            config.headers.push((header::USER_AGENT, agent));
        }
        Ok(config)
    }
}

fn no_cluster() -> Failure {
    let looked: Vec<_> = kubeconfig::default_paths()
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    Failure::failed(format!(
        "no cluster to talk to: there is no kubeconfig ({}), and this is not a pod",
        looked.join(", ")
    ))
    .hint("set KUBECONFIG, or pass --kubeconfig or --server")
}
