//! The admission endpoints over TLS.

use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::post;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use axum_server::{Handle, Server};
use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use kube::core::admission::AdmissionResponse;
use serde_json::Value;
use tower_http::timeout::TimeoutLayer;

use crate::admit::{self, Allowed, Asked, Context, Refusal};
use crate::metrics::{AdmissionLabels, Metrics, WebhookLabels};

/// A review holds two objects, each at most what etcd takes (1.5 MiB), and their escapes.
const BODY_LIMIT: usize = 8 * 1024 * 1024;
/// Less than the 5 s that the API server waits, so that the caller reads our reason.
const ANSWER_WITHIN: Duration = Duration::from_millis(4500);
/// A client that says nothing for this long is none.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests in flight are done by then.
const DRAIN: Duration = Duration::from_secs(10);

/// State behind the endpoints.
#[derive(Clone)]
pub struct Webhooks {
    /// What answers need.
    pub context: Context,
    /// What is counted.
    pub metrics: Metrics,
}

impl Webhooks {
    /// The endpoints: paths as in the webhook configurations.
    pub fn router(self) -> Router {
        Router::new()
            .route("/mutate-raycluster", post(mutate))
            .route("/validate-raycluster", post(validate))
            .route("/validate-computetemplate", post(validate_compute))
            .route("/validate-imagetemplate", post(validate_image))
            .layer(DefaultBodyLimit::max(BODY_LIMIT))
            .layer(TimeoutLayer::with_status_code(
                StatusCode::GATEWAY_TIMEOUT,
                ANSWER_WITHIN,
            ))
            .with_state(self)
    }

    /// Serves until `handle` is told to shut down.
    ///
    /// # Errors
    /// When the address cannot be bound, or the listener breaks.
    pub async fn serve(
        self,
        address: SocketAddr,
        tls: RustlsConfig,
        handle: Handle<SocketAddr>,
    ) -> anyhow::Result<()> {
        let acceptor = RustlsAcceptor::new(tls).handshake_timeout(HANDSHAKE_TIMEOUT);
        Server::bind(address)
            .acceptor(acceptor)
            .handle(handle)
            .first_request_timeout(HANDSHAKE_TIMEOUT)
            .serve(self.router().into_make_service())
            .await
            .map_err(|error| anyhow::anyhow!("cannot serve admission on {address}: {error}"))
    }

    /// Reads the review, asks `judge`, writes the review.
    async fn answer<F, J>(self, webhook: &'static str, body: Bytes, judge: J) -> Response
    where
        J: FnOnce(Context, Asked) -> F,
        F: Future<Output = (Asked, Result<Allowed, Refusal>)>,
    {
        let start = Instant::now();
        let (response, result) = match Asked::read(&body) {
            Ok(asked) => {
                let (asked, answer) = if self.context.templates.watches(asked.namespace()) {
                    judge(self.context, asked).await
                } else {
                    let answer = Ok(Allowed::unwatched(asked.namespace()));
                    (asked, answer)
                };
                (
                    write(webhook, &asked, &answer),
                    answer.as_ref().map_or_else(Refusal::result, |_| "allowed"),
                )
            }
            // What is no review, or has no object to judge, is not answered as one.
            Err(why) => (
                (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
                "malformed",
            ),
        };
        self.metrics
            .requests
            .get_or_create(&AdmissionLabels { webhook, result })
            .inc();
        let duration = self.metrics.duration.get_or_create(&WebhookLabels { webhook });
        duration.observe(start.elapsed().as_secs_f64());
        response
    }
}

/// Stops taking connections and ends once requests in flight are done.
pub fn drain(handle: &Handle<SocketAddr>) {
    handle.graceful_shutdown(Some(DRAIN));
}

async fn mutate(State(webhooks): State<Webhooks>, body: Bytes) -> Response {
    let judge = |context: Context, asked: Asked| async move {
        let answer = admit::mutate(&context, &asked).await;
        (asked, answer)
    };
    webhooks.answer("mutate-raycluster", body, judge).await
}

async fn validate(State(webhooks): State<Webhooks>, body: Bytes) -> Response {
    let judge = |_: Context, asked: Asked| async move {
        let answer = admit::validate(&asked);
        (asked, answer)
    };
    webhooks.answer("validate-raycluster", body, judge).await
}

async fn validate_compute(State(webhooks): State<Webhooks>, body: Bytes) -> Response {
    let judge = |context: Context, asked: Asked| async move {
        let answer = admit::validate_compute(&context, &asked).await;
        (asked, answer)
    };
    webhooks.answer("validate-computetemplate", body, judge).await
}

async fn validate_image(State(webhooks): State<Webhooks>, body: Bytes) -> Response {
    let judge = |context: Context, asked: Asked| async move {
        let answer = admit::validate_image(&context, &asked);
        (asked, answer)
    };
    webhooks.answer("validate-imagetemplate", body, judge).await
}

fn write(webhook: &str, asked: &Asked, answer: &Result<Allowed, Refusal>) -> Response {
    let request = &asked.request;
    let namespace = request.namespace.as_deref().unwrap_or_default();
    if let Err(refusal) = answer {
        tracing::info!(webhook, namespace, name = request.name, dry_run = request.dry_run, %refusal, "refused");
    }
    match admit::respond(asked, answer).and_then(review) {
        Ok(review) => Json(review).into_response(),
        Err(error) => {
            tracing::error!(webhook, namespace, name = request.name, error, "cannot answer");
            (StatusCode::INTERNAL_SERVER_ERROR, error).into_response()
        }
    }
}

/// The patch travels as base64, Go's way: kube writes a number for each byte, which is read too, at thrice the size.
fn review(mut response: AdmissionResponse) -> Result<Value, String> {
    let patch = response.patch.take();
    let mut review = serde_json::to_value(response.into_review()).map_err(|error| error.to_string())?;
    if let (Some(patch), Some(response)) = (patch, review.get_mut("response").and_then(Value::as_object_mut))
    {
        response.insert("patch".to_owned(), BASE64.encode(patch).into());
    }
    Ok(review)
}
