//! The one context that flags and kubeconfig amount to.

use std::path::PathBuf;

use kube::config::{AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};

use super::ConnectionArgs;
use crate::error::{Failure, Result};

/// Where kubectl looks for its configuration.
pub(super) fn default_paths() -> Vec<PathBuf> {
    let listed = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let listed: Vec<PathBuf> = std::env::split_paths(&listed)
        .filter(|path| !path.as_os_str().is_empty())
        .collect();
    if !listed.is_empty() {
        return listed;
    }
    std::env::home_dir()
        .map(|home| home.join(".kube/config"))
        .into_iter()
        .collect()
}

impl ConnectionArgs {
    /// The kubeconfig that kubectl would read: `--kubeconfig`, else the files of `KUBECONFIG`, else
    /// `~/.kube/config`; of the last two those that exist. None where there is none.
    pub(crate) fn kubeconfig(&self) -> Result<Option<Kubeconfig>> {
        if let Some(path) = &self.kubeconfig {
            return Ok(Some(Kubeconfig::read_from(path)?));
        }
        let mut merged = None;
        for path in default_paths().iter().filter(|path| path.exists()) {
            let next = Kubeconfig::read_from(path)?;
            merged = Some(match merged {
                Some(first) => Kubeconfig::merge(first, next)?,
                None => next,
            });
        }
        // With --server no file is needed.
        Ok(merged.or_else(|| self.server.is_some().then(Kubeconfig::default)))
    }

    /// The name by which the kubeconfig calls the cluster that is talked to; None without a kubeconfig.
    pub(crate) fn cluster_name(&self) -> Result<Option<String>> {
        let Some(kubeconfig) = self.kubeconfig()? else {
            return Ok(None);
        };
        let of_context = || Ok(self.chosen_context(&kubeconfig)?.cluster);
        self.cluster.clone().map_or_else(of_context, Ok).map(Some)
    }

    /// A kubeconfig of exactly one context: the chosen one with the flags laid over it.
    pub(super) fn choose(&self, mut kubeconfig: Kubeconfig) -> Result<Kubeconfig> {
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
}
