//! Completion by kubectl's protocol and by a shell's own: names of what is there, and never a word about what is wrong.

// Clippy lets tests panic, but not what they call.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
#![cfg(unix)]

mod fake;

use std::path::Path;
use std::time::{Duration, Instant};

use fake::{FakeServer, Run, cluster, list, ok, plugin, run, silence};
use serde_json::{Value, json};

/// Runs the plugin under the name by which kubectl asks it.
fn complete_with(kubeconfig: &Path, words: &[&str]) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let completer = folder.path().join("kubectl_complete-ray");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kubectl-ray"), &completer).unwrap();
    let mut command = std::process::Command::new(&completer);
    command
        .env("KUBECONFIG", kubeconfig)
        .env("HOME", "/no/such/home")
        .args(words);
    run(&mut command)
}

/// The candidates without their help, and the directive.
fn offered(server: &FakeServer, words: &[&str]) -> (Vec<String>, String) {
    let words = [&["--server", &server.url], words].concat();
    let run = complete_with(Path::new("/no/such/kubeconfig"), &words);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{words:?}");
    let mut lines: Vec<String> = run
        .stdout
        .lines()
        .map(|line| line.split('\t').next().unwrap_or_default().to_owned())
        .collect();
    let directive = lines.pop().unwrap();
    (lines, directive)
}

fn names(names: &[&str]) -> Value {
    let items: Vec<Value> = names
        .iter()
        .map(|name| json!({"metadata": {"name": name}}))
        .collect();
    metadata(&items)
}

fn metadata(items: &[Value]) -> Value {
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": items})
}

/// Two clusters of a group and a node each, templates, a job, an image and namespaces.
fn site() -> FakeServer {
    FakeServer::start(|asked, _| {
        let path = asked.uri.split('?').next().unwrap_or_default();
        let wants_metadata = asked
            .headers
            .get("accept")
            .is_some_and(|accept| accept.to_str().unwrap().contains("PartialObjectMetadata"));
        let node = |name: &str, cluster: &str| json!({"metadata": {"name": name, "labels": {"ray.io/cluster": cluster}}});
        ok(&match path.rsplit('/').next().unwrap_or_default() {
            "rayclusters" if wants_metadata => names(&["demo", "dev"]),
            "rayclusters" => {
                let mut other = cluster("dev", 1);
                other["spec"]["workerGroupSpecs"][0]["groupName"] = "cpu".into();
                list(&[cluster("demo", 1), other], None)
            }
            "pods" => metadata(&[node("demo-head", "demo"), node("dev-head", "dev")]),
            "rayjobs" => names(&["train"]),
            "imagetemplates" => names(&["torch"]),
            "computetemplates" => names(&["small"]),
            "clustercomputetemplates" => names(&["shared"]),
            "namespaces" => names(&["default", "ml"]),
            _ => names(&[]),
        })
    })
}

#[test]
fn names_come_from_the_cluster() {
    let server = site();
    for (words, expected) in [
        (&["get", "cluster", "d"][..], &["demo", "dev"][..]),
        (&["get", "cluster", "demo", "d"], &["dev"]),
        (&["get", "cluster", "-n", ""], &["default", "ml"]),
        (&["scale", "cluster", "demo", "-w", ""], &["w"]),
        (&["get", "workergroup", ""], &["w", "cpu"]),
        // The namespace is called as a cluster is, which names no cluster.
        (&["-n", "dev", "get", "workergroup", ""], &["w", "cpu"]),
        (&["log", "demo", "--node", ""], &["demo-head"]),
        (&["get", "node", ""], &["demo-head", "dev-head"]),
        (&["create", "cluster", "c", "--image-template", ""], &["torch"]),
        (
            &["create", "cluster", "c", "--compute-template", "s"],
            &["small", "shared"],
        ),
    ] {
        let (mut found, directive) = offered(&server, words);
        let mut expected = expected.to_vec();
        found.sort();
        expected.sort_unstable();
        assert_eq!(
            (found, directive.as_str()),
            (expected.iter().map(|n| (*n).to_owned()).collect(), ":4"),
            "{words:?}"
        );
    }
}

#[test]
fn objects_of_other_types_are_named_with_their_type() {
    let server = site();
    // No space behind a type: its name follows.
    let (types, directive) = offered(&server, &["session", "ra"]);
    assert_eq!(types, ["raycluster/", "rayjob/", "rayservice/"]);
    assert_eq!(directive, ":6");
    for (words, expected) in [
        (&["session", "rayjob/"][..], &["rayjob/train"][..]),
        (&["log", "d"], &["demo", "dev"]),
        (&["log", "imagetemplate/"], &[]),
        (&["delete", "it/t"], &["it/torch"]),
        (
            &["delete", "clustercomputetemplate/"],
            &["clustercomputetemplate/shared"],
        ),
    ] {
        assert_eq!(
            offered(&server, words),
            (
                expected.iter().map(|n| (*n).to_owned()).collect(),
                ":4".to_owned()
            ),
            "{words:?}"
        );
    }
}

#[test]
fn verbs_and_flags_come_with_their_help() {
    let run = complete_with(Path::new("/no/such/kubeconfig"), &["sca"]);
    assert!(run.stdout.starts_with("scale\tChange the replicas"), "{run:?}");
    let all = complete_with(Path::new("/no/such/kubeconfig"), &[""]);
    assert!(all.stdout.contains("create\t"), "{all:?}");
}

#[test]
fn the_kubeconfig_names_contexts_clusters_and_users() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    let config = json!({"contexts": [{"name": "staging", "context": {"cluster": "west"}}],
        "clusters": [{"name": "west", "cluster": {"server": "https://west.example"}}],
        "users": [{"name": "jane", "user": {}}]});
    std::fs::write(&path, config.to_string()).unwrap();
    for (flag, name) in [
        ("--context", "staging"),
        ("--cluster", "west"),
        ("--user", "jane"),
    ] {
        let run = complete_with(&path, &["get", "cluster", flag, ""]);
        assert_eq!(run.stdout, format!("{name}\n:4\n"), "{run:?}");
    }
}

#[test]
fn nothing_that_is_wrong_is_worth_a_word() {
    let nowhere = complete_with(Path::new("/no/such/kubeconfig"), &["get", "cluster", ""]);
    assert_eq!(
        (nowhere.code, nowhere.stdout.as_str(), nowhere.stderr.as_str()),
        (0, ":4\n", "")
    );
    // The shell waits no longer than completion itself does, whatever the server does.
    let silent = FakeServer::start(|_, _| silence());
    let start = Instant::now();
    assert_eq!(
        offered(&silent, &["get", "cluster", ""]),
        (Vec::new(), ":4".to_owned())
    );
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn each_shell_gets_its_script_and_its_candidates() {
    for (shell, part) in [
        ("bash", "complete -o nospace"),
        ("zsh", "#compdef kubectl-ray"),
        ("fish", "complete --keep-order --exclusive --command kubectl-ray"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let script = run(plugin().args(["completion", shell]));
        assert!(
            script.code == 0 && script.stdout.contains(part) && script.stdout.contains("COMPLETE"),
            "{shell}: {script:?}"
        );
    }
    let server = site();
    let line = [
        "--",
        "kubectl-ray",
        "--server",
        &server.url,
        "get",
        "cluster",
        "d",
    ];
    let fish = run(plugin().env("COMPLETE", "fish").args(line));
    assert_eq!(fish.stdout, "demo\ndev\n", "{fish:?}");
}

#[test]
fn install_leaves_what_kubectl_looks_for() {
    let folder = tempfile::tempdir().unwrap();
    let completer = folder.path().join("kubectl_complete-ray");
    // The second time replaces the first.
    for _ in 0..2 {
        let mut install = plugin();
        install
            .args(["completion", "install", "--dir"])
            .arg(folder.path());
        let installed = run(&mut install);
        assert_eq!(
            installed.stdout,
            format!("installed {}\n", completer.display()),
            "{installed:?}"
        );
        assert!(installed.stderr.contains("is not on your PATH"), "{installed:?}");
    }
    let mut command = std::process::Command::new(&completer);
    let answer = run(command.env("KUBECONFIG", "/no/such/kubeconfig").arg("expl"));
    assert!(answer.stdout.starts_with("explain\t"), "{answer:?}");
    let nowhere = run(plugin().args(["completion", "install", "--dir", "/no/such/folder"]));
    assert!(
        nowhere.code == 1 && nowhere.stderr.contains("--dir"),
        "{nowhere:?}"
    );
}
