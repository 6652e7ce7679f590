//! An API server that answers as a test says, and remembers what it was asked.

// Clippy lets tests panic, but not what they call.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
// Each test file uses a part of this one.
#![allow(dead_code)]

use std::process::Command;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response, StatusCode};
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) uri: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

type Answer = dyn Fn(&Asked, &[Asked]) -> Response<Body> + Send + Sync;

#[derive(Clone)]
struct Shared {
    asked: Arc<Mutex<Vec<Asked>>>,
    answer: Arc<Answer>,
}

/// The server; it ends with the test's process.
pub(crate) struct FakeServer {
    pub(crate) url: String,
    shared: Shared,
}

/// What a run of the plugin left.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl FakeServer {
    /// Answers each request by `answer`, which also sees all that were asked before.
    pub(crate) fn start(answer: impl Fn(&Asked, &[Asked]) -> Response<Body> + Send + Sync + 'static) -> Self {
        let shared = Shared {
            asked: Arc::default(),
            answer: Arc::new(answer),
        };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(handle).with_state(shared.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                axum::serve(listener, router).await.unwrap();
            });
        });
        Self { url, shared }
    }

    /// All requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// The plugin with these words, to be run against this server.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = plugin();
        command
            .args(["--server", &self.url, "--token", "t", "--namespace", "ml"])
            .args(words);
        command
    }

    /// Runs the plugin to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Run {
        run(&mut self.command(words))
    }
}

/// The plugin without any kubeconfig of the machine.
pub(crate) fn plugin() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ray"));
    command
        .env("KUBECONFIG", "/no/such/kubeconfig")
        .env("HOME", "/no/such/home")
        .env_remove("COMPLETE");
    command
}

pub(crate) fn run(command: &mut Command) -> Run {
    let output = command.output().unwrap();
    Run {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

async fn handle(State(shared): State<Shared>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, 1 << 24).await.unwrap();
    let asked = Asked {
        method: parts.method.to_string(),
        uri: parts.uri.to_string(),
        headers: parts.headers,
        body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
    };
    let before = {
        let mut all = shared.asked.lock().unwrap();
        all.push(asked.clone());
        all[..all.len() - 1].to_vec()
    };
    let answer = (shared.answer)(&asked, &before);
    // A marker by which a test asks for a server that thinks for ever.
    if answer.headers().contains_key("x-never") {
        std::future::pending::<()>().await;
    }
    answer
}

pub(crate) fn ok(body: &Value) -> Response<Body> {
    answer(200, body)
}

pub(crate) fn answer(code: u16, body: &Value) -> Response<Body> {
    Response::builder()
        .status(StatusCode::from_u16(code).unwrap())
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap()
}

/// A failure as the API server words it.
pub(crate) fn failure(code: u16, reason: &str, message: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": reason, "message": message, "code": code, "details": {"name": "x"}});
    answer(code, &status)
}

/// A server that takes the request and says nothing.
pub(crate) fn silence() -> Response<Body> {
    Response::builder()
        .header("x-never", "1")
        .body(Body::empty())
        .unwrap()
}

/// A RayCluster with one worker group.
pub(crate) fn cluster(name: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster",
        "metadata": {"name": name, "namespace": "ml", "uid": name, "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"headGroupSpec": {}, "workerGroupSpecs": [{"groupName": "w", "replicas": replicas}]},
        "status": {"state": "ready", "desiredWorkerReplicas": replicas},
    })
}

/// A page of a list.
pub(crate) fn list(items: &[Value], more: Option<&str>) -> Value {
    json!({"apiVersion": "ray.io/v1", "kind": "RayClusterList", "items": items,
        "metadata": {"resourceVersion": "9", "continue": more}})
}

/// An answer that begins, and never ends.
pub(crate) fn unfinished() -> Response<Body> {
    let begun = stream::iter([Ok::<_, std::io::Error>("{\"items\": [")]);
    Response::builder()
        .header("content-type", "application/json")
        .body(Body::from_stream(begun.chain(stream::pending())))
        .unwrap()
}

/// What the words print on a terminal.
#[cfg(unix)]
pub(crate) fn on_a_terminal(server: &FakeServer, words: &[&str], variables: &[(&str, &str)]) -> String {
    let command = server.command(words);
    let quoted: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    // script(1) gives its child a terminal.
    let mut script = Command::new("script");
    script.args(["-qec", &quoted.join(" "), "/dev/null"]);
    script
        .env("KUBECONFIG", "/no/such/kubeconfig")
        .env("TERM", "xterm")
        .env_remove("NO_COLOR");
    script
        .envs(variables.iter().copied())
        .stdin(std::process::Stdio::null());
    run(&mut script).stdout
}

/// The object that a path names by plural and name, as `imagetemplates/torch`.
pub(crate) fn named(asked: &Asked) -> &str {
    let path = asked.uri.split('?').next().unwrap_or_default();
    let mut parts = path.rmatch_indices('/').skip(1);
    parts.next().map_or("", |(at, _)| &path[at + 1..])
}

/// A ComputeTemplate of 3 GiB.
pub(crate) fn compute_template(name: &str) -> Value {
    json!({"apiVersion": "templates.ray.io/v1alpha1", "kind": "ComputeTemplate",
        "metadata": {"name": name, "namespace": "ml", "uid": "u", "generation": 1},
        "spec": {"resources": {"limits": {"memory": "3Gi"}}}})
}

/// An ImageTemplate that is built, or is being built by a Job.
pub(crate) fn image_template(name: &str, built: bool) -> Value {
    let condition = |type_: &str| {
        json!([{"type": type_, "status": "True", "reason": "R", "message": "building",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}])
    };
    let status = if built {
        json!({"observedGeneration": 1, "image": format!("reg/{name}@sha256:1"), "conditions": condition("Ready")})
    } else {
        json!({"observedGeneration": 1, "build": {"number": 1, "inputsHash": "h", "job": format!("{name}-1")}, "conditions": condition("Building")})
    };
    json!({"apiVersion": "templates.ray.io/v1alpha1", "kind": "ImageTemplate",
        "metadata": {"name": name, "namespace": "ml", "uid": "i", "generation": 1},
        "spec": {"baseImage": "rayproject/ray:2.60.0"}, "status": status})
}

/// A log or another answer of plain text.
pub(crate) fn text(body: &'static str) -> Response<Body> {
    Response::new(Body::from(body))
}
