//! One health probe: a GET to the pod's own address, on a connection that is kept open for the next one.
//!
//! No proxy from the environment, no redirects, no credentials, at most [`MAX_BODY`] bytes of an answer's body.

use std::io;
use std::time::{Duration, Instant};

use http::header::{HOST, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout_at;

use super::machine::{Fault, Outcome};
use super::targets::Target;

/// Bytes of a body that are read; a longer one costs the connection, not the pod's health.
const MAX_BODY: usize = 64;
/// Size of a connection's read buffer: room for a response's head, small enough for 10,000 connections.
const READ_BUFFER: usize = 2048;
/// What a proxy's access log shows.
const AGENT: &str = concat!("ray-operator/", env!("CARGO_PKG_VERSION"), " (serve health)");

/// An open connection to a pod, polled only while a probe runs on it.
#[derive(Debug)]
pub(super) struct Connection {
    sender: http1::SendRequest<Empty<Bytes>>,
    driver: http1::Connection<TokioIo<TcpStream>, Empty<Bytes>>,
}

/// What a probe found, and the connection if it can be used again.
#[derive(Debug)]
pub(super) struct Answer {
    /// The verdict.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
    /// The connection for the next probe.
    pub kept: Option<Connection>,
}

/// Asks a pod's Serve proxy, within `limit`.
pub(super) async fn probe(target: &Target, kept: Option<Connection>, limit: Duration) -> Answer {
    let start = Instant::now();
    let (outcome, kept) = ask(target, kept, (start + limit).into()).await;
    let took = start.elapsed();
    let outcome = match outcome {
        // A timer that fires this late means that this process stood still: the pod may well have answered.
        Outcome::Failed(fault) if !fault.is_answer() && took > limit * 2 => Outcome::Inconclusive,
        outcome => outcome,
    };
    Answer { outcome, took, kept }
}

async fn ask(
    target: &Target,
    kept: Option<Connection>,
    deadline: tokio::time::Instant,
) -> (Outcome, Option<Connection>) {
    if let Some(mut connection) = kept {
        match timeout_at(deadline, connection.get(target)).await {
            Ok(Ok((status, reusable))) => return (verdict(status), reusable.then_some(connection)),
            Err(_) => return (Outcome::Failed(Fault::Timeout), None),
            // The pod closed it between two probes, which is its right: only a new connection tells.
            Ok(Err(_)) => {}
        }
    }
    let stream = match timeout_at(deadline, TcpStream::connect(target.address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return (cannot_connect(&error), None),
        Err(_) => return (Outcome::Failed(Fault::Unreachable), None),
    };
    let Ok(mut connection) = Connection::open(stream).await else {
        return (Outcome::Failed(Fault::Broken), None);
    };
    match timeout_at(deadline, connection.get(target)).await {
        Ok(Ok((status, reusable))) => (verdict(status), reusable.then_some(connection)),
        Ok(Err(_)) => (Outcome::Failed(Fault::Broken), None),
        Err(_) => (Outcome::Failed(Fault::Hung), None),
    }
}

fn verdict(status: StatusCode) -> Outcome {
    match status {
        StatusCode::OK => Outcome::Healthy,
        other => Outcome::Failed(Fault::Status(other.as_u16())),
    }
}

/// What a failed connect says. Anything not listed (no file descriptor, no local port) is this process's own trouble.
fn cannot_connect(error: &io::Error) -> Outcome {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable, NetworkDown,
        NetworkUnreachable, PermissionDenied, TimedOut,
    };
    match error.kind() {
        ConnectionRefused => Outcome::Failed(Fault::Refused),
        ConnectionReset | ConnectionAborted => Outcome::Failed(Fault::Broken),
        HostUnreachable | NetworkUnreachable | NetworkDown | PermissionDenied | TimedOut => {
            Outcome::Failed(Fault::Unreachable)
        }
        _ => {
            tracing::debug!(%error, "cannot open a connection for a health probe");
            Outcome::Inconclusive
        }
    }
}

impl Connection {
    async fn open(stream: TcpStream) -> Result<Self, hyper::Error> {
        // Both only save packets and sockets in TIME_WAIT: a probe works without them.
        let _ = stream.set_nodelay(true);
        let _ = stream.set_zero_linger();
        let (sender, driver) = http1::Builder::new()
            .read_buf_exact_size(Some(READ_BUFFER))
            .handshake(TokioIo::new(stream))
            .await?;
        Ok(Self { sender, driver })
    }

    /// One request and its answer's status; and whether the connection can take another.
    async fn get(
        &mut self,
        target: &Target,
    ) -> Result<(StatusCode, bool), Box<dyn std::error::Error + Send + Sync>> {
        let Self { sender, driver } = self;
        let request = Request::get(&*target.path)
            .header(HOST, target.address.to_string())
            .header(USER_AGENT, AGENT)
            .body(Empty::new())?;
        let exchange = async {
            sender.ready().await?;
            let response = sender.send_request(request).await?;
            let status = response.status();
            Ok((status, ends_soon(response.into_body()).await))
        };
        tokio::pin!(exchange);
        tokio::select! {
            biased;
            answer = &mut exchange => answer,
            // The connection ended; an answer that came before is still there to be read.
            _ = driver => exchange.await.map(|(status, _)| (status, false)),
        }
    }
}

/// Reads a body to its end, if that comes within [`MAX_BODY`] bytes.
async fn ends_soon(mut body: Incoming) -> bool {
    let mut left = MAX_BODY;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        let length = frame.data_ref().map_or(0, Bytes::len);
        if length > left {
            return false;
        }
        left -= length;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// A limit that healthy answers never meet, however slow the machine.
    const LONG: Duration = Duration::from_secs(30);
    /// A limit for tests that wait for it to pass.
    const SHORT: Duration = Duration::from_millis(300);

    /// A server that gives each request of a connection the next of `answers`, then closes it. Counts connections.
    async fn server(answers: &'static [&'static str]) -> (Target, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target {
            address: listener.local_addr().unwrap(),
            path: "/-/healthz".into(),
        };
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    for answer in answers {
                        let mut request = Vec::new();
                        while !request.ends_with(b"\r\n\r\n") {
                            request.push(stream.read_u8().await?);
                        }
                        let text = String::from_utf8_lossy(&request).to_lowercase();
                        assert!(
                            text.starts_with("get /-/healthz http/1.1\r\n")
                                && text.contains("\r\nhost: 127.0.0.1:")
                        );
                        assert!(!text.contains("authorization") && !text.contains("cookie"));
                        stream.write_all(answer.as_bytes()).await?;
                    }
                    io::Result::Ok(())
                });
            }
        });
        (target, connections)
    }

    const OK: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n7\r\nsuccess\r\n0\r\n\r\n";

    #[tokio::test]
    async fn a_connection_is_kept_for_the_next_probe() {
        let (target, connections) = server(&[OK, OK, OK, OK]).await;
        let mut kept = None;
        for _ in 0..3 {
            let answer = probe(&target, kept, LONG).await;
            assert_eq!(answer.outcome, Outcome::Healthy);
            kept = answer.kept;
            assert!(kept.is_some());
        }
        assert_eq!(connections.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_kept_connection_that_the_pod_closed_is_replaced_without_a_failure() {
        let (target, connections) = server(&[OK]).await;
        let first = probe(&target, None, LONG).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let second = probe(&target, first.kept, LONG).await;
        assert_eq!(second.outcome, Outcome::Healthy);
        assert_eq!(connections.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn only_status_200_is_healthy_and_a_redirect_is_not_followed() {
        let cases: [(&'static [&'static str], u16); 4] = [
            (
                &["HTTP/1.1 503 Service Unavailable\r\ncontent-length: 8\r\n\r\ndraining"],
                503,
            ),
            (&["HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"], 404),
            (
                &["HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n"],
                302,
            ),
            (&["HTTP/1.1 204 No Content\r\n\r\n"], 204),
        ];
        for (answers, status) in cases {
            let (target, connections) = server(answers).await;
            let answer = probe(&target, None, LONG).await;
            assert_eq!(answer.outcome, Outcome::Failed(Fault::Status(status)));
            assert_eq!(connections.load(Ordering::SeqCst), 1);
        }
    }

    #[tokio::test]
    async fn a_long_body_is_not_read_and_costs_only_the_connection() {
        let (target, _) = server(&["HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n0123456789012345678901234567890123456789012345678901234567890123456789"]).await;
        let answer = probe(&target, None, LONG).await;
        assert_eq!(answer.outcome, Outcome::Healthy);
        assert!(answer.kept.is_none());
    }

    #[tokio::test]
    async fn an_answer_that_closes_the_connection_counts() {
        let (target, _) = server(&["HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nsuccess"]).await;
        let answer = probe(&target, None, LONG).await;
        assert_eq!(answer.outcome, Outcome::Healthy);
    }

    #[tokio::test]
    async fn what_is_not_http_or_breaks_off_is_broken() {
        for answers in [&["220 mail ready\r\n"][..], &["HTTP/1.1 200"], &[""]] {
            let (target, _) = server(answers).await;
            assert_eq!(
                probe(&target, None, LONG).await.outcome,
                Outcome::Failed(Fault::Broken)
            );
        }
    }

    #[tokio::test]
    async fn nobody_listening_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target {
            address: listener.local_addr().unwrap(),
            path: "/".into(),
        };
        drop(listener);
        assert_eq!(
            probe(&target, None, LONG).await.outcome,
            Outcome::Failed(Fault::Refused)
        );
    }

    #[tokio::test]
    async fn silence_on_a_new_connection_is_told_from_silence_on_a_kept_one() {
        // The kernel takes the connection; nobody ever reads it, as with a stopped process.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target {
            address: silent.local_addr().unwrap(),
            path: "/".into(),
        };
        assert_eq!(
            probe(&target, None, SHORT).await.outcome,
            Outcome::Failed(Fault::Hung)
        );

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target {
            address: listener.local_addr().unwrap(),
            path: "/-/healthz".into(),
        };
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await?;
            let mut request = [0; 512];
            let _ = stream.read(&mut request).await?;
            stream.write_all(OK.as_bytes()).await?;
            std::future::pending::<io::Result<()>>().await
        });
        let first = probe(&target, None, LONG).await;
        let second = probe(&target, first.kept, SHORT).await;
        assert_eq!(second.outcome, Outcome::Failed(Fault::Timeout));
        assert!(second.kept.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_that_this_process_slept_through_says_nothing_about_the_pod() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target {
            address: silent.local_addr().unwrap(),
            path: "/".into(),
        };
        let limit = Duration::from_millis(20);
        let stall = async { std::thread::sleep(limit * 5) };
        let (answer, ()) = tokio::join!(probe(&target, None, limit), stall);
        assert_eq!(answer.outcome, Outcome::Inconclusive);
    }

    #[test]
    fn trouble_of_this_process_says_nothing_about_the_pod() {
        let too_many_files = io::Error::from_raw_os_error(24);
        assert_eq!(cannot_connect(&too_many_files), Outcome::Inconclusive);
        let no_route = io::Error::from(io::ErrorKind::HostUnreachable);
        assert_eq!(cannot_connect(&no_route), Outcome::Failed(Fault::Unreachable));
    }
}
