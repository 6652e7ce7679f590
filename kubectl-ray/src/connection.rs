//! kubectl's connection flags, and the client that they lead to. Every verb connects through here.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::{HeaderValue, Response, header};
use kube::client::ClientBuilder;
use kube::config::{
    AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Config, Resource};
use tower::{BoxError, timeout::TimeoutLayer, util::MapErrLayer, util::MapResponseLayer};

use crate::error::{Exit, Failure, Result};
use crate::output;

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
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub cluster: Option<String>,
    /// User of the kubeconfig to use.
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
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
    /// Longest wait for an answer to one request, as `10s` or `2m`; 0 waits for ever.
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
            client: self.client(config)?,
            namespace,
        })
    }

    /// The kube configuration of these flags.
    ///
    /// # Errors
    /// When the kubeconfig is unusable.
    pub async fn config(&self) -> Result<Config> {
        let kubeconfig = match &self.kubeconfig {
            Some(path) => Some(Kubeconfig::read_from(path)?),
            None => self.default_kubeconfig()?,
        };
        let mut config = match kubeconfig {
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

    /// `KUBECONFIG` (any number of files) or `~/.kube/config`; None inside a pod without either.
    fn default_kubeconfig(&self) -> Result<Option<Kubeconfig>> {
        match Kubeconfig::read() {
            Ok(kubeconfig) => Ok(Some(kubeconfig)),
            Err(kube::config::KubeconfigError::ReadConfig(error, _))
                if error.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(self.server.is_some().then(Kubeconfig::default))
            }
            Err(kube::config::KubeconfigError::FindPath) => {
                Ok(self.server.is_some().then(Kubeconfig::default))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A kubeconfig of exactly one context: the chosen one with the flags laid over it.
    fn choose(&self, mut kubeconfig: Kubeconfig) -> Result<Kubeconfig> {
        let context = self.chosen_context(&kubeconfig)?;
        let cluster_name = self.cluster.clone().unwrap_or_else(|| context.cluster.clone());
        let user_name = self.user.clone().or_else(|| context.user.clone());
        let named = kubeconfig.clusters.iter().position(|c| c.name == cluster_name);
        let mut cluster = named.and_then(|at| kubeconfig.clusters.swap_remove(at).cluster);
        if cluster.is_none() && (self.server.is_none() || self.cluster.is_some()) {
            return Err(
                Failure::failed(format!("kubeconfig: there is no cluster `{cluster_name}`"))
                    .hint("`kubectl config get-clusters` lists them"),
            );
        }
        let named = kubeconfig
            .auth_infos
            .iter()
            .position(|u| Some(&u.name) == user_name.as_ref());
        let mut user = named.and_then(|at| kubeconfig.auth_infos.swap_remove(at).auth_info);
        if user.is_none() && self.user.is_some() {
            return Err(Failure::failed(format!(
                "kubeconfig: there is no user `{}`",
                user_name.unwrap_or_default()
            ))
            .hint("`kubectl config get-users` lists them"));
        }
        self.overlay_cluster(cluster.get_or_insert_default());
        self.overlay_user(user.get_or_insert_default())?;
        let name = "kubectl-ray".to_owned();
        Ok(Kubeconfig {
            current_context: Some(name.clone()),
            contexts: vec![NamedContext {
                name: name.clone(),
                context: Some(Context {
                    cluster: name.clone(),
                    user: Some(name.clone()),
                    ..context
                }),
                ..NamedContext::default()
            }],
            clusters: vec![NamedCluster {
                name: name.clone(),
                cluster,
                ..NamedCluster::default()
            }],
            auth_infos: vec![NamedAuthInfo {
                name,
                auth_info: user,
                ..NamedAuthInfo::default()
            }],
            ..Kubeconfig::default()
        })
    }

    fn chosen_context(&self, kubeconfig: &Kubeconfig) -> Result<Context> {
        let Some(name) = self.context.as_ref().or(kubeconfig.current_context.as_ref()) else {
            return if self.server.is_some() || self.cluster.is_some() {
                Ok(Context::default())
            } else {
                Err(Failure::failed("kubeconfig: no context is selected")
                    .hint("select one with `kubectl config use-context NAME` or --context"))
            };
        };
        kubeconfig
            .contexts
            .iter()
            .find(|context| &context.name == name)
            .and_then(|context| context.context.clone())
            .ok_or_else(|| {
                Failure::failed(format!("kubeconfig: there is no context `{name}`"))
                    .hint("`kubectl config get-contexts` lists them")
            })
    }

    fn overlay_cluster(&self, cluster: &mut Cluster) {
        if self.server.is_some() {
            cluster.server.clone_from(&self.server);
        }
        if let Some(path) = &self.certificate_authority {
            cluster.certificate_authority = Some(path.display().to_string());
            cluster.certificate_authority_data = None;
        }
        if let Some(insecure) = self.insecure_skip_tls_verify {
            cluster.insecure_skip_tls_verify = Some(insecure);
            if insecure {
                cluster.certificate_authority = None;
                cluster.certificate_authority_data = None;
            }
        }
        if self.tls_server_name.is_some() {
            cluster.tls_server_name.clone_from(&self.tls_server_name);
        }
        if self.proxy_url.is_some() {
            cluster.proxy_url.clone_from(&self.proxy_url);
        }
        if self.disable_compression.is_some() {
            cluster.disable_compression = self.disable_compression;
        }
    }

    /// Credentials given by flag replace those of the kubeconfig; they are never mixed.
    fn overlay_user(&self, user: &mut AuthInfo) -> Result<()> {
        let by_flag = self.token.is_some() || self.username.is_some() || self.client_certificate.is_some();
        if by_flag {
            let given = serde_json::json!({
                "token": self.token, "username": self.username, "password": self.password,
                "client-certificate": self.client_certificate, "client-key": self.client_key,
            });
            *user = AuthInfo {
                impersonate: user.impersonate.take(),
                impersonate_groups: user.impersonate_groups.take(),
                impersonate_uid: user.impersonate_uid.take(),
                impersonate_user_extra: user.impersonate_user_extra.take(),
                ..serde_json::from_value(given)?
            };
        }
        if self.as_user.is_some() {
            user.impersonate.clone_from(&self.as_user);
        }
        if !self.as_group.is_empty() {
            user.impersonate_groups = Some(self.as_group.clone());
        }
        if self.as_uid.is_some() {
            user.impersonate_uid.clone_from(&self.as_uid);
        }
        Ok(())
    }

    fn client(&self, config: Config) -> Result<Client> {
        let server = config.cluster_url.to_string();
        let patience = self.request_timeout.filter(|limit| !limit.is_zero());
        let builder = ClientBuilder::try_from(config)?
            .with_layer(&MapResponseLayer::new(print_warnings))
            .with_layer(&MapErrLayer::new(move |error| explain(error, &server)));
        Ok(match patience {
            // Only the wait for the answer's head is limited: logs and forwarded ports may go on.
            Some(limit) => builder
                .with_layer(&TimeoutLayer::new(limit))
                .with_layer(&MapErrLayer::new(move |error| explain_timeout(error, limit)))
                .build(),
            None => builder.build(),
        })
    }
}

fn no_cluster() -> Failure {
    Failure::failed("no cluster to talk to: there is no kubeconfig, and this is not a pod")
        .hint("set KUBECONFIG, or pass --kubeconfig or --server")
}

/// The API server's `Warning` headers, as kubectl prints them.
fn print_warnings<B>(response: Response<B>) -> Response<B> {
    for warning in response.headers().get_all(header::WARNING) {
        if let Some(text) = warning.to_str().ok().and_then(warning_text) {
            output::warning(&text);
        }
    }
    response
}

/// `299 - "text"` → `text` (RFC 7234 5.5).
fn warning_text(header: &str) -> Option<String> {
    let quoted = header.splitn(3, ' ').nth(2)?.trim();
    let inner = quoted.strip_prefix('"')?;
    let end = inner.rfind('"')?;
    Some(inner.get(..end)?.replace("\\\"", "\"").replace("\\\\", "\\"))
}

/// Says which server could not be reached; the client's own errors pass.
fn explain(error: BoxError, server: &str) -> BoxError {
    if error.is::<kube::Error>() || error.is::<Failure>() {
        return error;
    }
    let failure = Failure::failed(format!("cannot reach the API server at {server}: {error}"))
        .hint("check your network, --server and --kubeconfig (`kubectl cluster-info`)");
    Box::new(failure)
}

fn explain_timeout(error: BoxError, limit: Duration) -> BoxError {
    if !error.is::<tower::timeout::error::Elapsed>() {
        return error;
    }
    let text = format!("the API server did not answer within {limit:?}");
    Box::new(Failure::new(Exit::TimedOut, text).hint("allow more time with --request-timeout"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_CONTEXTS: &str = "
apiVersion: v1
kind: Config
current-context: a
contexts:
- {name: a, context: {cluster: a, user: a, namespace: team-a}}
- {name: b, context: {cluster: b, user: b}}
clusters:
- {name: a, cluster: {server: 'https://a.example:6443', insecure-skip-tls-verify: true}}
- {name: b, cluster: {server: 'https://b.example:6443', insecure-skip-tls-verify: true}}
users:
- {name: a, user: {client-certificate: /a.crt, client-key: /a.key}}
- {name: b, user: {token: secret-b}}
";

    fn chosen(args: &ConnectionArgs) -> Result<(Cluster, AuthInfo, Context)> {
        let mut config = args.choose(Kubeconfig::from_yaml(TWO_CONTEXTS).unwrap())?;
        Ok((
            config.clusters.remove(0).cluster.unwrap(),
            config.auth_infos.remove(0).auth_info.unwrap(),
            config.contexts.remove(0).context.unwrap(),
        ))
    }

    #[test]
    fn context_cluster_and_user_are_chosen_apart() {
        let (cluster, user, context) = chosen(&ConnectionArgs::default()).unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://a.example:6443"));
        assert_eq!(user.client_key.as_deref(), Some("/a.key"));
        assert_eq!(context.namespace.as_deref(), Some("team-a"));

        let args = ConnectionArgs {
            cluster: Some("b".into()),
            ..ConnectionArgs::default()
        };
        let (cluster, user, _) = chosen(&args).unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://b.example:6443"));
        assert_eq!(user.client_key.as_deref(), Some("/a.key"));
    }

    #[test]
    fn a_token_by_flag_replaces_the_certificate_and_keeps_impersonation() {
        let args = ConnectionArgs {
            token: Some("t".into()),
            as_user: Some("jane".into()),
            as_group: vec!["x".into(), "y".into()],
            as_uid: Some("7".into()),
            ..ConnectionArgs::default()
        };
        let (_, user, _) = chosen(&args).unwrap();
        assert!(user.client_certificate.is_none() && user.token.is_some());
        assert_eq!(user.impersonate.as_deref(), Some("jane"));
        assert_eq!(user.impersonate_groups.unwrap(), ["x", "y"]);
        assert_eq!(user.impersonate_uid.as_deref(), Some("7"));
    }

    #[test]
    fn unknown_names_are_told() {
        let args = ConnectionArgs {
            context: Some("c".into()),
            ..ConnectionArgs::default()
        };
        assert!(chosen(&args).unwrap_err().message.contains("no context `c`"));
        let args = ConnectionArgs {
            user: Some("c".into()),
            ..ConnectionArgs::default()
        };
        assert!(chosen(&args).unwrap_err().message.contains("no user `c`"));
    }

    #[test]
    fn warning_headers_are_unquoted() {
        assert_eq!(
            warning_text("299 - \"template \\\"a\\\" is old\""),
            Some("template \"a\" is old".to_owned())
        );
        assert_eq!(warning_text("nonsense"), None);
    }
}
