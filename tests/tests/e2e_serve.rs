//! Real Serve on a real node: traffic through the Service's address, a new connection each, while proxies fail.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::ensure;
use ray_tests::{Cluster, User, eventually};

/// What the default settings promise: five failures, one every two seconds, and one timeout.
const DETECTION: f64 = 11.0;
/// Longer than a label's write and the service proxy behind it take, on a busy machine.
const FOLLOWS: f64 = 10.0;

/// Two pods with a Serve proxy, and a client that writes down when each request began and how it ended.
const MANIFEST: &str = r#"
apiVersion: ray.io/v1
kind: RayCluster
metadata:
  name: chat
  annotations: {ray.io/enable-serve-service: "true"}
spec:
  rayVersion: 2.60.0
  headGroupSpec:
    rayStartParams: {num-cpus: "1"}
    template: &template
      spec:
        containers:
        - name: ray
          image: rayproject/ray:2.60.0
          resources: {requests: {cpu: 200m, memory: 1Gi}, limits: {memory: 3Gi}}
  workerGroupSpecs:
  - {groupName: w, replicas: 1, minReplicas: 1, maxReplicas: 1, rayStartParams: {num-cpus: "1"}, template: *template }
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  containers:
  - name: client
    image: rayproject/ray:2.60.0
    command:
    - python
    - -uc
    - |
      import http.client, time
      while True:
          start = time.time()
          try:
              connection = http.client.HTTPConnection("chat-serve-svc", 8000, timeout=5)
              connection.request("GET", "/")
              result = "ok" if connection.getresponse().status == 200 else "bad"
              connection.close()
          except OSError:
              result = "bad"
          print(start, result)
          time.sleep(0.05)
"#;

/// An application with a replica on each node; `HOST` is where its proxies listen.
const APPLICATION: &str = r#"
import ray
from ray import serve

ray.init(address="auto")
serve.start(http_options={"host": "HOST"}, proxy_location="EveryNode")

@serve.deployment(num_replicas=2, max_replicas_per_node=1, ray_actor_options={"num_cpus": 0.1})
class Hello:
    def __call__(self):
        return "VERSION"

serve.run(Hello.bind(), name="hello", route_prefix="/")
"#;

struct Chat {
    user: User,
}

impl Chat {
    async fn start() -> anyhow::Result<Self> {
        let user = User::new(&Cluster::node().await?, "serve").await?;
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(&file, MANIFEST)?;
        let path: &Path = file.as_ref();
        user.kubectl(&["apply", "-f", &path.to_string_lossy()])?
            .success()?;
        eventually("the cluster is ready", || async {
            let state = user.kubectl(&["get", "raycluster", "chat", "-o", "jsonpath={.status.state}"])?;
            Ok((state.success()? == "ready").then_some(()))
        })
        .await?;
        Ok(Self { user })
    }

    fn pod(&self, node_type: &str) -> anyhow::Result<String> {
        let selector = format!("ray.io/cluster=chat,ray.io/node-type={node_type}");
        let names = "go-template={{range .items}}{{if not .metadata.deletionTimestamp}}{{.metadata.name}} {{end}}{{end}}";
        let pods = self
            .user
            .kubectl(&["get", "pods", "-l", &selector, "-o", names])?
            .success()?;
        Ok(pods.split_whitespace().next().unwrap_or_default().to_owned())
    }

    fn exec(&self, pod: &str, command: &[&str]) -> anyhow::Result<String> {
        self.user
            .kubectl(&[&["exec", pod, "--"], command].concat())?
            .success()
    }

    fn deploy(&self, host: &str, version: &str) -> anyhow::Result<()> {
        let application = APPLICATION.replace("HOST", host).replace("VERSION", version);
        self.exec(&self.pod("head")?, &["python", "-c", &application])?;
        Ok(())
    }

    /// Waits until the pods with that node type that are not being deleted carry the label.
    async fn label_becomes(&self, node_type: &str, value: &str) -> anyhow::Result<()> {
        eventually(&format!("the {node_type}'s label becomes {value:?}"), || async {
            let pod = self.pod(node_type)?;
            ensure!(!pod.is_empty(), "there is no {node_type}");
            let label = "jsonpath={.metadata.labels.ray\\.io/serve}";
            let found = self.user.kubectl(&["get", "pod", &pod, "-o", label])?.success()?;
            Ok((found == value).then_some(()))
        })
        .await
    }

    async fn reason_becomes(&self, reason: &str) -> anyhow::Result<()> {
        let path = "jsonpath={.status.conditions[?(@.type==\"ServeAvailable\")].reason}";
        eventually(&format!("ServeAvailable says {reason}"), || async {
            let found = self
                .user
                .kubectl(&["get", "raycluster", "chat", "-o", path])?
                .success()?;
            Ok((found == reason).then_some(()))
        })
        .await
    }

    /// Holds that no request fails that begins after the detection time and what the service takes to follow.
    async fn no_request_fails(&self, what: &str) -> anyhow::Result<()> {
        let from = seconds_now() + DETECTION + FOLLOWS;
        let requests = eventually("a hundred requests were made", || async {
            let log = self
                .user
                .kubectl(&["logs", "client", "--since=120s"])?
                .success()?;
            let requests: Vec<(f64, String)> = log
                .lines()
                .filter_map(parse)
                .filter(|(at, _)| *at >= from)
                .collect();
            Ok((requests.len() >= 100).then_some(requests))
        })
        .await?;
        let bad = requests.iter().filter(|(_, result)| result != "ok").count();
        ensure!(bad == 0, "{what}: {bad} of {} requests failed", requests.len());
        Ok(())
    }
}

fn parse(line: &str) -> Option<(f64, String)> {
    let (at, result) = line.split_once(' ')?;
    Some((at.parse().ok()?, result.to_owned()))
}

fn seconds_now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn only_pods_with_a_healthy_proxy_get_traffic() -> anyhow::Result<()> {
    let chat = Chat::start().await?;

    // Serve's default host: nothing outside the pods can reach it, and a condition and the doctor say so.
    chat.deploy("127.0.0.1", "one")?;
    chat.reason_becomes("NoProxy").await?;
    let doctor = chat.user.ray(&["doctor"])?;
    let told = format!("{}{}", doctor.stdout, doctor.stderr);
    ensure!(told.contains("127.0.0.1"), "the doctor names the address: {told}");
    chat.exec(&chat.pod("head")?, &["serve", "shutdown", "-y"])?;

    chat.deploy("0.0.0.0", "one")?;
    for node_type in ["head", "worker"] {
        chat.label_becomes(node_type, "true").await?;
    }
    chat.reason_becomes("PodsHealthy").await?;
    chat.no_request_fails("two healthy pods").await?;

    let worker = chat.pod("worker")?;
    chat.exec(&worker, &["pkill", "-STOP", "-f", "ProxyActor"])?;
    chat.label_becomes("worker", "false").await?;
    chat.no_request_fails("the worker's proxy hangs").await?;
    chat.exec(&worker, &["pkill", "-CONT", "-f", "ProxyActor"])?;
    chat.label_becomes("worker", "true").await?;
    chat.no_request_fails("it came back").await?;

    // Ray starts a new proxy soon: the label goes and comes back, or the new one is there before the threshold.
    chat.exec(&worker, &["pkill", "-KILL", "-f", "ProxyActor"])?;
    chat.label_becomes("worker", "true").await?;
    chat.no_request_fails("the worker's proxy was replaced").await?;

    chat.user
        .kubectl(&["delete", "pod", &worker, "--wait=false"])?
        .success()?;
    chat.no_request_fails("the worker was deleted").await?;
    chat.label_becomes("worker", "true").await?;

    chat.deploy("0.0.0.0", "two")?;
    chat.no_request_fails("the application was deployed anew").await?;

    chat.exec(&chat.pod("head")?, &["serve", "shutdown", "-y"])?;
    for node_type in ["head", "worker"] {
        chat.label_becomes(node_type, "false").await?;
    }
    chat.user.kubectl(&["delete", "raycluster", "chat"])?.success()?;
    Ok(())
}
