//! HTTP to a cluster's dashboard, over the API server's port-forward: neither a Service nor a local port is needed.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use ray_api::ray::v1::RayCluster;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;

use super::{DASHBOARD_PORT, auth_token, head_pod, port};
use crate::connection::Connection;
use crate::error::{Exit, Failure, Result};

/// A dashboard whose head has just started may not listen yet.
pub(crate) const STARTUP: Duration = Duration::from_secs(60);
const ANSWER: Duration = Duration::from_secs(60);
/// A refusal comes with the end of the stream, or not at all.
const REFUSAL: Duration = Duration::from_millis(500);

/// A WebSocket to the dashboard.
pub(crate) type Socket = WebSocketStream<Box<dyn AnyStream>>;

/// Any byte stream.
pub(crate) trait AnyStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> AnyStream for T {}

enum Place {
    /// Whichever pod is the head at the time.
    Cluster(Connection, String),
    /// `host:port`, reached directly.
    Address(String),
}

/// A cluster's dashboard.
pub(crate) struct Dashboard {
    place: Place,
    headers: HeaderMap,
}

impl Dashboard {
    /// The dashboard of a RayCluster.
    pub(crate) async fn of_cluster(connection: &Connection, name: &str) -> Result<Self> {
        let cluster = connection.api::<RayCluster>().get(name).await?;
        let mut headers = HeaderMap::new();
        if let Some(token) = auth_token(connection, &cluster).await? {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| Failure::failed("the auth token of the cluster is no HTTP header"))?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        Ok(Self {
            place: Place::Cluster(connection.clone(), name.to_owned()),
            headers,
        })
    }

    /// The dashboard at `http://host:port`.
    pub(crate) fn at_address(address: &str) -> Result<Self> {
        let host = address
            .strip_prefix("http://")
            .unwrap_or(address)
            .trim_end_matches('/');
        if host.contains("://") || !host.contains(':') {
            return Err(Failure::usage(format!(
                "--address: `{address}` is not http://HOST:PORT"
            )));
        }
        Ok(Self {
            place: Place::Address(host.to_owned()),
            headers: HeaderMap::new(),
        })
    }

    /// Sends `headers` with each request.
    pub(crate) fn with_headers(mut self, headers: &[(HeaderName, HeaderValue)]) -> Self {
        self.headers.extend(headers.iter().cloned());
        self
    }

    async fn connect(&self) -> Result<Forwarded> {
        match &self.place {
            Place::Address(address) => {
                let stream = TcpStream::connect(address).await;
                let stream = stream.map_err(|error| unreachable(&format!("{address}: {error}")))?;
                Ok(Forwarded {
                    stream: Box::new(stream),
                    refused: Box::pin(std::future::ready(None)),
                })
            }
            Place::Cluster(connection, cluster) => {
                let head = head_pod(connection, cluster).await?;
                let port = port(&head, "dashboard", DASHBOARD_PORT);
                open(connection, &head, port).await
            }
        }
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        kind: &str,
    ) -> Result<(StatusCode, Bytes)> {
        let Forwarded { stream, refused } = self.connect().await?;
        let (mut sender, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| unreachable(&error.to_string()))?;
        let driver = tokio::spawn(driver);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "ray");
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        if let Some(headers) = request.headers_mut() {
            headers.extend(self.headers.clone());
        }
        let request = request
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| Failure::failed(error.to_string()))?;
        let exchange = async {
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            Ok::<_, hyper::Error>((status, answer.into_body().collect().await?.to_bytes()))
        };
        let answer = tokio::time::timeout(ANSWER, exchange).await;
        driver.abort();
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(unreachable(
                &refusal(refused).await.unwrap_or_else(|| error.to_string()),
            )),
            Err(_) => Err(Failure::timed_out(format!(
                "Ray's dashboard did not answer {path} within {ANSWER:?}"
            ))),
        }
    }

    /// Sends JSON (or nothing) and reads JSON; an error of Ray comes with Ray's own words.
    pub(crate) async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Result<T> {
        let body = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        let (status, answer) = self.send(method, path, body, "application/json").await?;
        if !status.is_success() {
            return Err(refused(status, &answer));
        }
        serde_json::from_slice(&answer)
            .map_err(|error| Failure::failed(format!("Ray's answer to {path}: {error}")))
    }

    /// Waits until the dashboard answers; gives the version of Ray.
    pub(crate) async fn ray_version(&self) -> Result<String> {
        let start = tokio::time::Instant::now();
        loop {
            match self
                .json::<serde_json::Value>(Method::GET, "/api/version", None)
                .await
            {
                Ok(version) => {
                    let ray = version.get("ray_version").and_then(serde_json::Value::as_str);
                    return Ok(ray.unwrap_or("unknown").to_owned());
                }
                Err(failure)
                    if failure.exit == Exit::Failed && failure.retriable && start.elapsed() < STARTUP =>
                {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Opens a WebSocket.
    pub(crate) async fn websocket(&self, path: &str) -> Result<Socket> {
        use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
        let stream = self.connect().await?.stream;
        let mut request = format!("ws://ray{path}")
            .into_client_request()
            .map_err(|error| unreachable(&error.to_string()))?;
        request.headers_mut().extend(self.headers.clone());
        let (socket, _) = tokio_tungstenite::client_async(request, stream)
            .await
            .map_err(|error| unreachable(&error.to_string()))?;
        Ok(socket)
    }
}

/// A stream to a port of a pod, and what the node says where it cannot be reached.
pub(crate) struct Forwarded {
    pub(crate) stream: Box<dyn AnyStream>,
    refused: Pin<Box<dyn Future<Output = Option<String>> + Send>>,
}

impl Forwarded {
    /// The stream, and the node's refusal once the stream has ended.
    pub(crate) fn split(self) -> (Box<dyn AnyStream>, impl Future<Output = Option<String>>) {
        (self.stream, refusal(self.refused))
    }
}

/// Opens a stream to a port of a pod. Nobody listening shows as an end of the stream at the first byte.
pub(crate) async fn open(connection: &Connection, pod: &Pod, port: u16) -> Result<Forwarded> {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let mut forwarder = connection.api::<Pod>().portforward(&name, &[port]).await?;
    let stream = forwarder.take_stream(port);
    let said = forwarder.take_error(port);
    let refused = async move {
        let said = said?.await?;
        Some(if said.contains("connection refused") {
            format!("nothing listens on port {port} of pod {name}")
        } else {
            said
        })
    };
    match stream {
        Some(stream) => Ok(Forwarded {
            stream: Box::new(stream),
            refused: Box::pin(refused),
        }),
        None => Err(Failure::failed(format!(
            "port {port} of the pod could not be forwarded"
        ))),
    }
}

/// What the node said, if it does so at once.
async fn refusal(refused: impl Future<Output = Option<String>>) -> Option<String> {
    tokio::time::timeout(REFUSAL, refused).await.ok().flatten()
}

fn unreachable(why: &str) -> Failure {
    let mut failure = Failure::failed(format!("cannot reach Ray's dashboard: {why}"))
        .hint("is the dashboard running on the head? (`kubectl ray log CLUSTER -f --node-type head`)");
    failure.retriable = true;
    failure
}

/// Ray answers errors with a JSON object, a traceback, or plain text.
fn refused(status: StatusCode, body: &[u8]) -> Failure {
    let text = String::from_utf8_lossy(body);
    let json: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let said = json.as_ref().and_then(|json| {
        let told = ["msg", "message", "error", "detail"]
            .iter()
            .find_map(|key| json.get(key)?.as_str());
        told.map(str::to_owned)
    });
    let said = said.unwrap_or_else(|| last_line(&text));
    let exit = match status {
        StatusCode::NOT_FOUND => Exit::NotFound,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Exit::Denied,
        _ => Exit::Failed,
    };
    let mut failure = Failure::new(exit, format!("Ray answered {status}: {said}"));
    failure.retriable = status.is_server_error() && said.contains("try again later");
    failure
}

/// Of a traceback the last line says what happened; Ray puts a full stop behind some, on a line of its own.
fn last_line(text: &str) -> String {
    let says_something = |line: &&str| line.contains(char::is_alphanumeric);
    let mut lines = text.lines().map(str::trim).filter(says_something);
    let last = lines.next_back().unwrap_or("(no text)");
    last.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rays_errors_are_told_in_its_words() {
        let traceback = "Traceback (most recent call last):\n  File x\nValueError: Job 1 already exists\n.";
        let failure = refused(StatusCode::INTERNAL_SERVER_ERROR, traceback.as_bytes());
        assert!(
            failure.message.ends_with("ValueError: Job 1 already exists"),
            "{failure}"
        );
        let busy = "No available agent to submit job, please try again later.";
        assert!(refused(StatusCode::INTERNAL_SERVER_ERROR, busy.as_bytes()).retriable);
        let failure = refused(StatusCode::NOT_FOUND, b"Job 7 does not exist");
        assert_eq!(
            (failure.exit, failure.message.ends_with("Job 7 does not exist")),
            (Exit::NotFound, true)
        );
    }

    #[test]
    fn addresses_are_http_with_a_port() {
        assert!(Dashboard::at_address("http://127.0.0.1:8265/").is_ok());
        for wrong in ["https://x:1", "localhost"] {
            assert!(Dashboard::at_address(wrong).is_err(), "{wrong}");
        }
    }
}
