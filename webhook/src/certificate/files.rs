//! A certificate that others keep in mounted files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use axum_server::tls_rustls::RustlsConfig;

use super::bundle::Pair;
use super::{CHECK, Serving};

/// The kubelet takes up to a minute to bring a changed Secret; this adds little.
const POLL: Duration = Duration::from_secs(5);

/// Loads the files and goes on to load them when they change.
pub(super) async fn start(
    certificate: PathBuf,
    key: PathBuf,
    serving: Serving,
) -> anyhow::Result<RustlsConfig> {
    let mut loaded = read(&certificate, &key).await?;
    let config = serving
        .first(&loaded)
        .await
        .context("the mounted certificate does not load")?;
    serving.readiness.set(CHECK, true);
    let reloaded = config.clone();
    tokio::spawn(async move {
        while serving
            .shutdown
            .run_until_cancelled(tokio::time::sleep(POLL))
            .await
            .is_some()
        {
            // Halfway through a change the pair does not fit: the old one serves until it does.
            let found = match read(&certificate, &key).await {
                Ok(found) if found == loaded => continue,
                Ok(found) => found,
                Err(error) => {
                    tracing::warn!(%error, "keeping the certificate that is loaded");
                    continue;
                }
            };
            match serving.reload(&reloaded, &found).await {
                Ok(()) => loaded = found,
                Err(error) => tracing::warn!(%error, "keeping the certificate that is loaded"),
            }
        }
    });
    Ok(config)
}

async fn read(certificate: &Path, key: &Path) -> anyhow::Result<Pair> {
    let read = async |path: &Path| {
        let text = tokio::fs::read_to_string(path).await;
        text.with_context(|| format!("cannot read {}", path.display()))
    };
    Ok(Pair {
        certificate: read(certificate).await?,
        key: read(key).await?,
    })
}
