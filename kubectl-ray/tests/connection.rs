//! How the plugin comes to its server: kubeconfig files, credentials, flags, and how long it waits.

// Clippy lets tests panic, but not what they call.
#![allow(clippy::unwrap_used)]

mod fake;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fake::{FakeServer, Run, cluster, list, ok, plugin, run, silence, unfinished};
use serde_json::{Value, json};

/// A server with one cluster; each answer is a whole list.
fn server() -> FakeServer {
    FakeServer::start(|_, _| ok(&list(&[cluster("a", 1)], None)))
}

fn write(folder: &Path, name: &str, config: &Value) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

fn get_clusters(kubeconfig: &[&Path], words: &[&str]) -> Run {
    let mut command = plugin();
    command
        .env("KUBECONFIG", std::env::join_paths(kubeconfig).unwrap())
        .args(["get", "cluster", "-o", "name"])
        .args(words);
    run(&mut command)
}

fn header(server: &FakeServer, name: &str) -> Option<String> {
    let asked = server.asked();
    let value = asked.last()?.headers.get(name)?;
    Some(value.to_str().unwrap().to_owned())
}

#[test]
fn several_kubeconfigs_are_one_and_missing_ones_are_passed_over() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let contexts = json!({"current-context": "x", "contexts": [
        {"name": "x", "context": {"cluster": "nowhere", "user": "u"}},
        {"name": "y", "context": {"cluster": "here", "user": "u", "namespace": "team"}}]});
    let clusters = json!({"current-context": "other", "clusters": [{"name": "here", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": {"token": "from-file"}}]});
    let (first, second) = (
        write(folder.path(), "first", &contexts),
        write(folder.path(), "second", &clusters),
    );
    let missing = folder.path().join("missing");
    let files = [first.as_path(), missing.as_path(), second.as_path()];

    let found = get_clusters(&files, &["--context", "y"]);
    assert_eq!(
        (found.code, found.stdout.as_str()),
        (0, "raycluster.ray.io/a\n"),
        "{found:?}"
    );
    assert_eq!(
        header(&server, "authorization").as_deref(),
        Some("Bearer from-file")
    );
    assert!(server.asked()[0].uri.contains("/namespaces/team/"));
    // The first file's current context counts.
    let nowhere = get_clusters(&files, &[]);
    assert!(
        nowhere.code == 1 && nowhere.stderr.contains("no cluster `nowhere`"),
        "{nowhere:?}"
    );
    let none = get_clusters(&[&missing], &[]);
    assert!(
        none.stderr.contains("there is no kubeconfig") && none.stderr.contains("missing"),
        "{none:?}"
    );
}

#[cfg(unix)]
#[test]
fn a_credential_plugin_is_asked_and_its_failure_told() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let credential = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"token": "from-plugin"}});
    let kubeconfig = |name: &str, script: &str| {
        let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
            "command": "sh", "args": ["-c", script]});
        let config = json!({"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server.url}}], "users": [{"name": "u", "user": {"exec": exec}}]});
        write(folder.path(), name, &config)
    };
    let works = get_clusters(&[&kubeconfig("works", &format!("echo '{credential}'"))], &[]);
    assert_eq!(works.code, 0, "{works:?}");
    assert_eq!(
        header(&server, "authorization").as_deref(),
        Some("Bearer from-plugin")
    );

    let fails = get_clusters(&[&kubeconfig("fails", "echo log in first >&2; exit 7")], &[]);
    assert_eq!(fails.code, 4, "{fails:?}");
    assert!(
        fails.stderr.contains("log in first") && fails.stderr.contains("hint:"),
        "{fails:?}"
    );
}

#[test]
fn an_oidc_token_is_used_until_it_expires() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let get = |payload: &str| {
        let token = format!("eyJhbGciOiJub25lIn0.{payload}.x");
        let provider =
            json!({"name": "oidc", "config": {"id-token": token, "idp-issuer-url": "https://login.example"}});
        let config = json!({"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server.url}}],
            "users": [{"name": "u", "user": {"auth-provider": provider}}]});
        (
            token,
            get_clusters(&[&write(folder.path(), "config", &config)], &[]),
        )
    };
    // {"exp":4102444800}: the year 2100
    let (token, valid) = get("eyJleHAiOjQxMDI0NDQ4MDB9");
    assert_eq!(valid.code, 0, "{valid:?}");
    assert_eq!(header(&server, "authorization"), Some(format!("Bearer {token}")));
    // {"exp":946684800}: the year 2000, and no refresh token
    let (_, expired) = get("eyJleHAiOjk0NjY4NDgwMH0");
    assert_eq!(expired.code, 4, "{expired:?}");
    assert!(
        expired.stderr.contains("expired") && expired.stderr.contains("hint:"),
        "{expired:?}"
    );
}

#[test]
fn a_server_is_left_after_the_request_timeout_before_and_amid_its_answer() {
    for answer in [silence, unfinished] {
        let server = FakeServer::start(move |_, _| answer());
        let start = Instant::now();
        let late = server.run(&["get", "cluster", "--request-timeout", "300ms"]);
        assert_eq!(late.code, 5, "{late:?}");
        assert!(late.stderr.contains("--request-timeout"), "{late:?}");
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}

#[test]
fn names_are_asked_for_and_nothing_else() {
    let server = FakeServer::start(|asked, _| {
        let found = asked.uri.contains("metadata.name%3Db") || asked.uri.contains("metadata.name=b");
        ok(&list(
            &if found { vec![cluster("b", 1)] } else { Vec::new() },
            None,
        ))
    });
    let run = server.run(&["get", "cluster", "b", "nope", "-o", "name"]);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (3, "raycluster.ray.io/b\n"),
        "{run:?}"
    );
    assert!(run.stderr.contains("\"nope\" not found"), "{run:?}");
    assert!(
        server
            .asked()
            .iter()
            .all(|asked| asked.uri.contains("fieldSelector=metadata.name"))
    );
    let both = server.run(&["get", "cluster", "b", "-l", "x=y"]);
    assert_eq!(both.code, 2, "{both:?}");
}

#[test]
fn a_link_to_the_clouds_logs_needs_no_pods() {
    let server = server();
    let run = server.run(&["log", "demo", "--link", "gke"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(
        run.stdout
            .starts_with("https://console.cloud.google.com/logs/query;query="),
        "{run:?}"
    );
    assert!(
        run.stdout.contains("demo") && server.asked().is_empty(),
        "{run:?}"
    );
}
