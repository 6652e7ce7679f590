//! What a person does with a Ray cluster that runs, on a real node with real Ray: jobs, logs, scaling, forwarded ports.
//! One cluster of a head and a worker for the whole file; the tests take turns, since some replace what others use.

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use ray_tests::{Cluster, PATIENCE, User, eventually};
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard};

const CLUSTER: &str = "shared";

static USER: Mutex<Option<User>> = Mutex::const_new(None);

/// The user whose cluster is ready, for one test at a time.
async fn shared() -> anyhow::Result<MutexGuard<'static, Option<User>>> {
    let mut shared = USER.lock().await;
    if shared.is_none() {
        let user = User::new(&Cluster::node().await?, "plugin").await?;
        user.compute_template("small", "200m", "2Gi")?;
        let create = ["create", "cluster", CLUSTER, "--compute-template", "small"];
        let group = ["--worker-group", "name=w,replicas=1", "--wait"];
        user.ray(&[&create[..], &group[..]].concat())?.success()?;
        *shared = Some(user);
    }
    let user = shared.as_ref().context("no user")?;
    // The test before may have replaced the head.
    let ready = "--for=jsonpath={.status.state}=ready";
    user.kubectl(&["wait", ready, "raycluster/shared", "--timeout=300s"])?
        .success()?;
    Ok(shared)
}

/// A command that goes on, with its lines as they come.
struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
    /// Lines that came while another was waited for: two streams have no order between them.
    passed: RefCell<Vec<String>>,
}

impl Running {
    /// Lines of stdout and stderr, both.
    fn start(mut command: Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (sender, lines) = mpsc::channel();
        let stdout = child.stdout.take().context("no stdout")?;
        let stderr = child.stderr.take().context("no stderr")?;
        let streams: [Box<dyn std::io::Read + Send>; 2] = [Box::new(stdout), Box::new(stderr)];
        for stream in streams {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        let passed = RefCell::default();
        Ok(Self { child, lines, passed })
    }

    /// The first line that has `part` in it and was not answered before.
    fn line(&self, part: &str) -> anyhow::Result<String> {
        let mut passed = self.passed.borrow_mut();
        if let Some(known) = passed.iter().position(|line| line.contains(part)) {
            return Ok(passed.remove(known));
        }
        loop {
            let line = self
                .lines
                .recv_timeout(PATIENCE)
                .map_err(|_| anyhow::anyhow!("no line with `{part}` came; there were {passed:?}"))?;
            if line.contains(part) {
                return Ok(line);
            }
            passed.push(line);
        }
    }

    fn interrupt(&self) -> anyhow::Result<()> {
        let killed = Command::new("kill")
            .args(["-INT", &self.child.id().to_string()])
            .status()?;
        ensure!(killed.success(), "cannot interrupt");
        Ok(())
    }

    /// Exit code, and the lines that were not looked at.
    fn end(mut self) -> anyhow::Result<(Option<i32>, String)> {
        let code = self.child.wait()?.code();
        let mut rest = self.passed.take();
        rest.extend(self.lines.iter());
        Ok((code, rest.join("\n")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ray's own lines come before those of the job.
fn last_line(log: &str) -> &str {
    log.lines().last().unwrap_or_default()
}

/// The job of this id as `job list` tells it.
fn job(user: &User, id: &str) -> anyhow::Result<Value> {
    let list = user.ray(&["job", "list", CLUSTER, "-o", "json"])?.success()?;
    let jobs: Vec<Value> = serde_json::from_str(&list)?;
    let found = jobs.into_iter().find(|job| job["submission_id"] == id);
    found.with_context(|| format!("no job {id} in {list}"))
}

const LISTING: &str = r#"
import os, pathlib
print("files:", sorted(str(p) for p in pathlib.Path(".").rglob("*") if p.is_file()))
print("greeting:", os.environ["GREETING"])
"#;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn a_job_takes_its_files_and_environment_along() -> anyhow::Result<()> {
    let shared = shared().await?;
    let user = shared.as_ref().context("no user")?;
    let folder = tempfile::tempdir()?;
    for (name, content) in [
        ("main.py", LISTING),
        ("lib/part.py", ""),
        (".rayignore", "secrets/\n"),
        ("secrets/key", "x"),
        ("data.bin", "x"),
    ] {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        std::fs::write(path, content)?;
    }
    let directory = folder.path().to_string_lossy().into_owned();
    let env = r#"{"excludes": ["data.bin"], "env_vars": {"GREETING": "hello"}}"#;
    let submit = [
        "job",
        "submit",
        CLUSTER,
        "--working-dir",
        &directory,
        "--runtime-env-json",
        env,
    ];
    let printed = user
        .ray(&[&submit[..], &["--", "python", "main.py"]].concat())?
        .success()?;
    assert!(
        printed.contains("files: ['.rayignore', 'lib/part.py', 'main.py']")
            && printed.contains("greeting: hello"),
        "{printed}"
    );

    // A hole of a file: nothing is read, let alone sent.
    std::fs::File::create(folder.path().join("huge"))?.set_len(101 << 20)?;
    let refused = user.ray(&[
        "job",
        "submit",
        CLUSTER,
        "--working-dir",
        &directory,
        "--",
        "true",
    ])?;
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("huge (101.0 MiB)"), "{refused:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn the_command_ends_as_the_job_does() -> anyhow::Result<()> {
    let shared = shared().await?;
    let user = shared.as_ref().context("no user")?;
    let submit = |id: &str, code: &str| {
        user.ray(&[
            "job",
            "submit",
            CLUSTER,
            "--submission-id",
            id,
            "--",
            "python",
            "-c",
            code,
        ])
    };
    let done = submit("well", "print('all is well')")?;
    assert_eq!(
        (done.code, last_line(&done.stdout)),
        (0, "all is well"),
        "{done:?}"
    );
    let failed = submit("badly", "print('so far'); raise SystemExit(3)")?;
    assert_eq!(
        (failed.code, last_line(&failed.stdout)),
        (1, "so far"),
        "{failed:?}"
    );
    assert!(
        failed.stderr.contains("job badly failed") && failed.stderr.contains("exit code 3"),
        "{failed:?}"
    );
    let twice = submit("well", "print('again')")?;
    assert_eq!(twice.code, 1, "{twice:?}");
    assert!(twice.stderr.contains("already"), "{twice:?}");

    assert_eq!(job(user, "well")?["status"], "SUCCEEDED");
    let table = user.ray(&["job", "list", CLUSTER])?.success()?;
    let row = table
        .lines()
        .find(|line| line.starts_with("badly"))
        .context("no row")?;
    assert!(row.contains("FAILED"), "{table}");
    let log = user.ray(&["job", "logs", CLUSTER, "well"])?.success()?;
    assert_eq!(last_line(&log), "all is well", "{log}");
    assert_eq!(user.ray(&["job", "logs", CLUSTER, "badly", "-f"])?.code, 1);
    let unknown = user.ray(&["job", "logs", CLUSTER, "nope"])?;
    assert_eq!(unknown.code, 3, "{unknown:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn a_job_is_followed_while_it_runs_and_stopped() -> anyhow::Result<()> {
    let shared = shared().await?;
    let user = shared.as_ref().context("no user")?;
    let endless = "import time; print('begun', flush=True); time.sleep(600)";
    let submit = [
        "job",
        "submit",
        CLUSTER,
        "--submission-id",
        "endless",
        "--",
        "python",
        "-c",
        endless,
    ];
    let follower = Running::start(user.ray_command(&submit))?;
    follower.line("begun")?;
    assert_eq!(job(user, "endless")?["status"], "RUNNING");

    // Who no longer follows does not end the job.
    let other = Running::start(user.ray_command(&["job", "logs", CLUSTER, "endless", "-f"]))?;
    other.line("begun")?;
    other.interrupt()?;
    other.end()?;
    assert_eq!(job(user, "endless")?["status"], "RUNNING");

    let line = ["--", "kubectl-ray", "job", "stop", CLUSTER, "end"];
    eventually("a Tab completes the job's id", || async {
        let offered = user.ray_command(&line).env("COMPLETE", "fish").output()?;
        Ok((offered.stdout == b"endless\n").then_some(()))
    })
    .await?;
    let stopped = user.ray(&["job", "stop", CLUSTER, "endless"])?.success()?;
    assert_eq!(stopped, "job/endless stopped\n");
    assert_eq!(job(user, "endless")?["status"], "STOPPED");
    let (code, rest) = follower.end()?;
    assert_eq!(code, Some(1));
    assert!(rest.contains("job endless stopped"), "{rest}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn logs_are_followed_by_node_and_process_and_brought_home() -> anyhow::Result<()> {
    let shared = shared().await?;
    let user = shared.as_ref().context("no user")?;
    let nodes = user
        .ray(&["get", "node", "-c", CLUSTER, "-o", "name"])?
        .success()?;
    let nodes: Vec<&str> = nodes
        .lines()
        .filter_map(|line| line.strip_prefix("pod/"))
        .collect();
    let head = *nodes
        .iter()
        .find(|node| node.contains("-head-"))
        .context("no head")?;
    let worker = *nodes
        .iter()
        .find(|node| node.contains("-worker-"))
        .context("no worker")?;

    let follower = Running::start(user.ray_command(&["log", CLUSTER, "-f"]))?;
    let first = follower.line("Ray runtime started")?;
    assert!(
        nodes.iter().any(|node| first.starts_with(&format!("{node} | "))),
        "{first}"
    );
    drop(follower);

    let process = Running::start(user.ray_command(&[
        "log",
        CLUSTER,
        "-f",
        "--node",
        head,
        "--file",
        "gcs_server.out",
    ]))?;
    process.line("gcs_server")?;
    drop(process);
    let listed = user
        .ray(&["log", CLUSTER, "--list", "--node-type", "worker"])?
        .success()?;
    assert!(
        listed.contains(worker) && listed.contains("  raylet.out"),
        "{listed}"
    );
    assert!(
        !listed.contains("gcs_server.out"),
        "the GCS runs on the head alone: {listed}"
    );
    let one = user
        .ray(&[
            "log",
            CLUSTER,
            "--node",
            worker,
            "--file",
            "raylet.out",
            "--tail",
            "1",
        ])?
        .success()?;
    assert_eq!(one.lines().count(), 1, "{one}");
    let unknown = user.ray(&["log", CLUSTER, "--node", "nope"])?;
    assert!(unknown.code == 3 && unknown.stderr.contains(head), "{unknown:?}");

    let folder = tempfile::tempdir()?;
    let directory = folder.path().to_string_lossy().into_owned();
    user.ray(&["log", CLUSTER, "--out-dir", &directory])?.success()?;
    for (node, file) in [
        (head, "gcs_server.out"),
        (worker, "raylet.out"),
        (worker, "stdout.log"),
    ] {
        let file = folder.path().join(node).join(file);
        assert!(std::fs::metadata(&file)?.len() > 0, "{}", file.display());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn scaling_waits_for_the_workers() -> anyhow::Result<()> {
    let shared = shared().await?;
    let user = shared.as_ref().context("no user")?;
    let scale = |replicas| {
        user.ray(&["scale", "cluster", CLUSTER, "--replicas", replicas, "--wait"])?
            .success()
    };
    scale("2")?;
    let group = user
        .ray(&["get", "workergroup", "w", "-c", CLUSTER, "--no-headers"])?
        .success()?;
    assert_eq!(group.split_whitespace().nth(3), Some("2/2"), "{group}");
    scale("1")?;
    let group = user
        .ray(&["get", "workergroup", "w", "-c", CLUSTER, "--no-headers"])?
        .success()?;
    assert_eq!(group.split_whitespace().nth(3), Some("1/1"), "{group}");
    Ok(())
}

/// Status line and body of `GET /api/version`, through a forwarded port.
fn version_at(address: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"GET /api/version HTTP/1.1\r\nhost: ray\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn a_session_finds_free_ports_and_the_next_head() -> anyhow::Result<()> {
    let shared = shared().await?;
    let user = shared.as_ref().context("no user")?;
    // Where this fails somebody else has the port, which does as well.
    let _taken = TcpListener::bind("127.0.0.1:8265");
    let session = Running::start(user.ray_command(&["session", CLUSTER]))?;
    session.line("local port 8265 is in use: dashboard gets another one")?;
    let dashboard = session.line("dashboard ")?;
    let address = dashboard
        .split("http://")
        .nth(1)
        .context("no address")?
        .trim()
        .to_owned();
    assert!(version_at(&address)?.contains("ray_version"));

    // Nobody serves yet, and that is said.
    let serve = session.line("serve ")?;
    let serve = serve
        .split("http://")
        .nth(1)
        .context("no address")?
        .trim()
        .to_owned();
    assert!(version_at(&serve).is_err());
    session.line("nothing listens on port 8000")?;

    let heads = "ray.io/node-type=head";
    user.kubectl(&["delete", "pod", "-l", heads, "--grace-period=1", "--wait=false"])?
        .success()?;
    session.line("connected: head pod")?;
    eventually("an answer of the new head", || async {
        Ok(version_at(&address).ok())
    })
    .await?;
    session.interrupt()?;
    let (code, rest) = session.end()?;
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.contains("session ended"), "{rest}");

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn what_is_not_ready_says_why() -> anyhow::Result<()> {
    let user = User::new(&Cluster::node().await?, "waiting").await?;
    let create = |name: &str, words: &[&str]| {
        let start = [
            "create",
            "cluster",
            name,
            "--worker-replicas",
            "0",
            "--head-memory",
            "1Gi",
            "--head-cpu",
        ];
        user.ray(&[&start[..], words].concat())
    };
    let image = create(
        "unpullable",
        &[
            "100m",
            "--image",
            "rayproject/ray:no-such-tag",
            "--wait",
            "--timeout",
            "60s",
        ],
    )?;
    assert_eq!(image.code, 5, "{image:?}");
    assert!(
        image.stderr.contains("ray-head: ") && image.stderr.contains("no-such-tag"),
        "the pod's own reason: {image:?}"
    );
    create("unschedulable", &["900"])?.success()?;
    create("gated", &["100m", "--image-template", "later"])?.success()?;
    for (name, reason) in [
        ("unpullable", "no-such-tag"),
        ("unschedulable", "Insufficient cpu"),
        ("gated", "ImageTemplate `later` does not exist"),
    ] {
        let described = eventually(name, || async {
            let tree = user.ray(&["describe", "cluster", name])?.success()?;
            let first = tree.lines().next().unwrap_or_default();
            Ok(first.contains(reason).then_some(tree))
        })
        .await?;
        assert!(
            described.starts_with(&format!("RayCluster {}/{name}  not ready: ", user.namespace)),
            "{described}"
        );
    }
    Ok(())
}
