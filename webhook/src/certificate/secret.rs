//! A self-signed certificate in one named Secret, shared by all replicas.
//!
//! Whichever replica sees a step due takes it, by an update that carries the resourceVersion it read: of two
//! that try, one wins and the other reads again. (docs/adr/0005)

use std::time::Duration;

use anyhow::Context;
use axum_server::tls_rustls::RustlsConfig;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, PostParams};

use super::bundle::{Bundle, Pair};
use super::issue::issue;
use super::plan::{Step, Wanted, plan};
use super::publish::publish;
use super::{CHECK, Serving};
use crate::args::{Args, CertificateArgs};

/// Longest time until a replica serves what the Secret holds.
const POLL: Duration = Duration::from_secs(10);
/// While there is no certificate yet, or something is in the way of keeping it.
const RETRY: Duration = Duration::from_secs(1);

struct Keeper {
    client: Client,
    api: Api<Secret>,
    args: CertificateArgs,
    wanted: Wanted,
    serving: Serving,
    loaded: Option<(RustlsConfig, Pair)>,
}

/// Waits until the Secret holds a certificate, making one if need be, and keeps it current.
pub(super) async fn start(client: Client, args: &Args, serving: Serving) -> anyhow::Result<RustlsConfig> {
    let mut keeper = Keeper {
        api: Api::namespaced(client.clone(), &args.namespace),
        client,
        args: args.certificate.clone(),
        wanted: Wanted {
            names: names(args),
            pause: args.certificate.rotation_step,
        },
        serving,
        loaded: None,
    };
    let config = loop {
        if let Err(error) = keeper.turn().await {
            tracing::warn!(%error, "waiting for a certificate");
        }
        if let Some((config, _)) = &keeper.loaded {
            break config.clone();
        }
        let stopped = keeper
            .serving
            .shutdown
            .run_until_cancelled(tokio::time::sleep(RETRY))
            .await
            .is_none();
        anyhow::ensure!(!stopped, "told to stop before there was a certificate");
    };
    tokio::spawn(keeper.keep());
    Ok(config)
}

/// What the API server calls us.
fn names(args: &Args) -> Vec<String> {
    let (service, namespace) = (&args.certificate.service_name, &args.namespace);
    let service = ["", ".cluster.local"].map(|suffix| format!("{service}.{namespace}.svc{suffix}"));
    service
        .into_iter()
        .chain(args.certificate.url_host.clone())
        .collect()
}

impl Keeper {
    async fn keep(mut self) {
        let poll = (self.wanted.pause / 4).min(POLL);
        let shutdown = self.serving.shutdown.clone();
        let mut wait = RETRY;
        while shutdown
            .run_until_cancelled(tokio::time::sleep(wait))
            .await
            .is_some()
        {
            wait = match self.turn().await {
                Ok(()) => poll,
                Err(error) => {
                    tracing::warn!(%error, "cannot keep the certificate");
                    RETRY
                }
            };
        }
    }

    /// Reads the Secret and acts on it, until no step is due.
    async fn turn(&mut self) -> anyhow::Result<()> {
        loop {
            let mut secret = self.api.get(&self.args.secret_name).await.with_context(|| {
                format!(
                    "cannot read Secret {}, which must exist (it may be empty)",
                    self.args.secret_name
                )
            })?;
            let bundle = Bundle::of(&secret);
            self.load(&bundle).await?;
            // Before any further step: a certificate is served only after its CA is trusted.
            if !bundle.authorities.is_empty() {
                publish(&self.client, &self.args, &bundle.authorities).await?;
                self.serving.readiness.set(CHECK, true);
            }
            let now = Timestamp::now();
            let step = plan(&bundle, &self.wanted, now);
            if step == Step::Keep {
                return Ok(());
            }
            self.take(bundle, step, now)?.write_to(&mut secret);
            match self
                .api
                .replace(&self.args.secret_name, &PostParams::default(), &secret)
                .await
            {
                Ok(_) => tracing::info!(?step, "rotating the certificate"),
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                Err(error) => return Err(error).context("cannot write the certificate's Secret"),
            }
        }
    }

    /// The bundle after a step.
    fn take(&self, mut bundle: Bundle, step: Step, now: Timestamp) -> anyhow::Result<Bundle> {
        let issue = || issue(&self.wanted.names, now, self.args.certificate_lifetime);
        match step {
            Step::Keep => {}
            Step::Issue => {
                let issued = issue()?;
                bundle = Bundle {
                    current: Some(issued.pair),
                    next: None,
                    authorities: vec![issued.authority],
                    since: None,
                };
            }
            Step::Prepare => {
                let issued = issue()?;
                bundle.next = Some(issued.pair);
                bundle.authorities.insert(0, issued.authority);
            }
            Step::Promote => bundle.current = bundle.next.take(),
            Step::Retire => bundle.authorities.truncate(1),
        }
        bundle.since = Some(now);
        Ok(bundle)
    }

    async fn load(&mut self, bundle: &Bundle) -> anyhow::Result<()> {
        let Some(pair) = &bundle.current else {
            return Ok(());
        };
        match &mut self.loaded {
            Some((_, loaded)) if loaded == pair => {}
            Some((config, loaded)) => {
                self.serving
                    .reload(config, pair)
                    .await
                    .context("the Secret's certificate does not load")?;
                *loaded = pair.clone();
            }
            None => match self.serving.first(pair).await {
                Ok(config) => self.loaded = Some((config, pair.clone())),
                // Garbage is replaced by the step that follows.
                Err(error) => tracing::warn!(%error, "the Secret's certificate does not load"),
            },
        }
        Ok(())
    }
}
