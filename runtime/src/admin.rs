//! The admin endpoints of a server: `/livez`, `/readyz`, `/metrics` (and KubeRay's `/healthz`).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

/// What must hold before a server takes traffic: named checks, all of them passed.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    checks: Arc<Mutex<BTreeMap<&'static str, bool>>>,
}

impl Readiness {
    /// Adds a check that has not passed yet, or changes whether it has.
    pub fn set(&self, check: &'static str, passed: bool) {
        self.checks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(check, passed);
    }

    /// Names of the checks that have not passed.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        checks
            .iter()
            .filter(|(_, passed)| !**passed)
            .map(|(name, _)| *name)
            .collect()
    }
}

/// State behind the admin endpoints.
#[derive(Clone)]
pub struct Admin {
    /// Decides `/readyz`.
    pub readiness: Readiness,
    /// Encoded by `/metrics`.
    pub registry: Arc<Registry>,
}

impl Admin {
    /// The endpoints.
    pub fn router(self) -> Router {
        Router::new()
            .route("/livez", get(|| async { "ok" }))
            .route("/healthz", get(|| async { "ok" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self)
    }

    /// Serves the endpoints until `shutdown`.
    ///
    /// # Errors
    /// When the address cannot be bound, or the listener breaks.
    pub async fn serve(self, address: SocketAddr, shutdown: CancellationToken) -> anyhow::Result<()> {
        let listener = tokio::net::TcpListener::bind(address)
            .await
            .map_err(|error| anyhow::anyhow!("cannot listen on {address} for health and metrics: {error}"))?;
        axum::serve(listener, self.router())
            .with_graceful_shutdown(shutdown.cancelled_owned())
            .await?;
        Ok(())
    }
}

async fn readyz(State(admin): State<Admin>) -> Response {
    let missing = admin.readiness.missing();
    if missing.is_empty() {
        return "ok".into_response();
    }
    (
        StatusCode::SERVICE_UNAVAILABLE,
        format!("waiting for: {}", missing.join(", ")),
    )
        .into_response()
}

async fn metrics(State(admin): State<Admin>) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &admin.registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_only_when_every_check_passed() {
        let readiness = Readiness::default();
        assert!(readiness.missing().is_empty());
        readiness.set("stores", false);
        readiness.set("certificate", true);
        assert_eq!(readiness.missing(), ["stores"]);
        readiness.set("stores", true);
        assert!(readiness.missing().is_empty());
    }
}
