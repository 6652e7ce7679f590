//! The client: what the server says beside its answer, and errors that name the server.

use std::error::Error;
use std::time::Duration;

use http::{Response, header};
use kube::client::{AuthError, ClientBuilder};
use kube::{Client, Config};
use tower::{BoxError, util::MapErrLayer, util::MapResponseLayer};

use super::deadline::DeadlineLayer;
use crate::error::{Failure, Result};
use crate::output;

/// A client that gives each answer so much time; None and zero mean any.
pub(super) fn build(config: Config, patience: Option<Duration>) -> Result<Client> {
    let server = config.cluster_url.to_string();
    let builder = ClientBuilder::try_from(config)?
        .with_layer(&MapResponseLayer::new(print_warnings))
        .with_layer(&MapErrLayer::new(move |error| explain(error, &server)));
    Ok(match patience.filter(|limit| !limit.is_zero()) {
        Some(limit) => builder.with_layer(&DeadlineLayer::new(limit)).build(),
        None => builder.build(),
    })
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
    // Credentials that are fetched before each request, such as OIDC tokens, fail here.
    let error = match error.downcast::<AuthError>() {
        Ok(error) => return Box::new(Failure::from(*error)),
        Err(error) => error,
    };
    let why = with_causes(&*error);
    let hint = if why.contains("certificate") {
        "check --certificate-authority, --tls-server-name and the cluster's entry in your kubeconfig"
    } else {
        "check your network, --server and --kubeconfig (`kubectl cluster-info`)"
    };
    Box::new(Failure::failed(format!("cannot reach the API server at {server}: {why}")).hint(hint))
}

/// An error and what led to it: on its own the client says no more than "client error (Connect)".
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let said = next.to_string();
        // Some errors repeat their cause.
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_headers_are_unquoted() {
        assert_eq!(
            warning_text("299 - \"template \\\"a\\\" is old\""),
            Some("template \"a\" is old".to_owned())
        );
        assert_eq!(warning_text("nonsense"), None);
    }
}
