//! Verbs against a server that says what it was asked: what they print, and what they ask for.

// Clippy lets tests panic, but not what they call.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod fake;

use fake::{FakeServer, cluster, compute_template, failure, list, named, ok, text};
use serde_json::{Value, json};

/// Cells of each line.
fn cells(table: &str) -> Vec<Vec<&str>> {
    table
        .lines()
        .map(|line| {
            line.split("   ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .collect()
        })
        .collect()
}

fn pod(name: &str, node_type: &str, extra: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", "uid": name, "labels": {"ray.io/cluster": "c", "ray.io/node-type": node_type,
            "ray.io/is-ray-node": "yes", "ray.io/group": "w", "ray.io/serve": "true"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "ray", "image": "a:1",
            "resources": {"requests": {"cpu": "500m", "memory": "2Gi"}}}]},
        "status": {"phase": "Running", "podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]}});
    json_patch::merge(&mut pod, extra);
    pod
}

#[test]
fn a_token_is_printed_bare_and_a_cluster_without_one_told() {
    let server = FakeServer::start(|asked, _| {
        let mut with_token = cluster("c", 1);
        with_token["spec"]["authOptions"] = json!({"mode": "token"});
        match named(asked) {
            "rayclusters/c" => ok(&with_token),
            "rayclusters/open" => ok(&cluster("open", 1)),
            // "s3cret"
            "secrets/c" => ok(&json!({"metadata": {"name": "c"}, "data": {"auth_token": "czNjcmV0"}})),
            _ => failure(404, "NotFound", "not there"),
        }
    });
    let token = server.run(&["get", "token", "c"]);
    assert_eq!((token.code, token.stdout.as_str()), (0, "s3cret"), "{token:?}");
    let open = server.run(&["get", "token", "open"]);
    assert_eq!(open.code, 1, "{open:?}");
    assert!(
        open.stderr.contains("has no token authentication")
            && open.stderr.contains("authOptions.mode: token"),
        "{open:?}"
    );
}

#[test]
fn endpoints_are_the_services_ports() {
    let server = FakeServer::start(|asked, _| {
        let service = |ports: &Value| ok(&json!({"metadata": {}, "spec": {"ports": ports}}));
        match named(asked) {
            "rayclusters/c" => ok(&cluster("c", 1)),
            "services/c-head-svc" => service(
                &json!([{"name": "client", "port": 10001}, {"name": "dashboard", "port": 8265}, {"name": "gcs-server", "port": 6379}]),
            ),
            "services/c-serve-svc" => service(&json!([{"name": "serve", "port": 8000}])),
            _ => failure(404, "NotFound", "not there"),
        }
    });
    let urls = server.run(&["get", "endpoints", "c", "-o", "name"]);
    assert_eq!(
        urls.stdout,
        "ray://c-head-svc.ml.svc:10001\nhttp://c-head-svc.ml.svc:8265\nc-head-svc.ml.svc:6379\nhttp://c-serve-svc.ml.svc:8000\n"
    );
    let table = server.run(&["get", "endpoints", "c"]);
    assert_eq!(
        cells(&table.stdout)[..2],
        [
            vec!["NAME", "SERVICE", "PORT", "URL INSIDE THE CLUSTER"],
            vec!["client", "c-head-svc", "10001", "ray://c-head-svc.ml.svc:10001"]
        ]
    );
}

#[test]
fn wide_tables_have_more_columns() {
    let server = FakeServer::start(|asked, _| {
        let mut one = cluster("c", 2);
        one["spec"]["imageTemplate"] = "torch".into();
        one["status"]["head"] = json!({"podName": "c-head"});
        if asked.uri.contains("rayclusters") {
            return ok(&list(&[one], None));
        }
        let sick = json!({"metadata": {"labels": {"ray.io/serve": "false"}},
            "status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        ok(
            &json!({"metadata": {}, "items": [pod("c-head", "head", &json!({})), pod("c-w", "worker", &sick)]}),
        )
    });
    let narrow = server.run(&["get", "cluster"]);
    assert!(!narrow.stdout.contains("SERVE"), "{narrow:?}");
    let wide = server.run(&["get", "cluster", "-o", "wide"]);
    let lines = cells(&wide.stdout);
    assert_eq!(lines[0][10..], ["SERVE", "IMAGE TEMPLATE", "HEAD POD", "REASON"]);
    assert_eq!(lines[1][10..], ["1/2", "torch", "c-head", "<none>"]);

    let nodes = server.run(&["get", "node", "-o", "wide"]);
    let lines = cells(&nodes.stdout);
    assert_eq!(lines[0][10..], ["IP", "NODE", "IMAGE", "REASON"]);
    assert_eq!(lines[1][..6], ["c-head", "Running", "500m", "0", "0", "2Gi"]);
    assert_eq!(
        lines[2][10..],
        ["10.0.0.7", "n1", "a:1", "runs, but is not ready yet"]
    );
}

#[test]
fn amounts_are_sorted_by_what_they_are_worth() {
    let server = FakeServer::start(|asked, _| {
        let sized = |name: &str, cpus: &str, memory: &str| {
            let mut one = cluster(name, 1);
            one["status"]["desiredCPU"] = cpus.into();
            one["status"]["desiredMemory"] = memory.into();
            one
        };
        let template = |name: &str, memory: &str| {
            let mut one = compute_template(name);
            one["spec"]["resources"]["limits"]["memory"] = memory.into();
            one
        };
        let path = asked.uri.split('?').next().unwrap_or_default();
        match path.rsplit('/').next().unwrap_or_default() {
            "rayclusters" => ok(&list(
                &[
                    sized("a", "10", "900Mi"),
                    sized("b", "9", "2Gi"),
                    sized("c", "1500m", "1Ti"),
                ],
                None,
            )),
            "computetemplates" => ok(&list(
                &[template("x", "1Ti"), template("y", "900Mi"), template("z", "2Gi")],
                None,
            )),
            _ => ok(&list(&[], None)),
        }
    });
    for (words, order) in [
        (&["cluster", "--sort-by", "cpus"], ["c", "b", "a"]),
        (&["cluster", "--sort-by", "memory"], ["a", "b", "c"]),
        (&["compute-template", "--sort-by", "memory"], ["y", "z", "x"]),
    ] {
        let run = server.run(&[&["get"], &words[..], &["--no-headers"]].concat());
        let names: Vec<_> = cells(&run.stdout).into_iter().map(|row| row[0]).collect();
        assert_eq!(names, order, "{words:?}: {run:?}");
    }
}

#[test]
fn a_compute_template_is_described_with_its_users() {
    let server = FakeServer::start(|asked, _| {
        let mut template = compute_template("small");
        template["spec"]["extends"] = "base".into();
        template["status"] = json!({"stale": 1, "usedBy": {"clusters": 12, "names": ["a", "b"]}, "conditions": [{"type": "Ready",
            "status": "False", "reason": "ExtendsNotFound", "message": "no `base`", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        match named(asked) {
            "computetemplates/small" => ok(&template),
            "clustercomputetemplates/shared" => {
                ok(&json!({"metadata": {"name": "shared"}, "spec": {"sharedMemory": "1Gi"}}))
            }
            _ => failure(404, "NotFound", "not there"),
        }
    });
    let own = server.run(&["describe", "compute-template", "small"]);
    assert_eq!(
        own.stdout,
        "ComputeTemplate ml/small  NOT READY: ExtendsNotFound: no `base`\n\
         ├─ extends: base\n\
         ├─ resources\n\
         │  └─ limits\n\
         │     └─ memory: 3Gi\n\
         ├─ 1 clusters run on an older generation (`kubectl ray refresh cluster`)\n\
         └─ used by 12 clusters: a, b, and 10 more\n",
        "{own:?}"
    );
    let shared = server.run(&["describe", "compute-template", "shared"]);
    assert_eq!(
        shared.stdout, "ClusterComputeTemplate shared\n└─ sharedMemory: 1Gi\n",
        "{shared:?}"
    );
    assert_eq!(server.run(&["describe", "compute-template", "nope"]).code, 3);
}

#[test]
fn the_versions_are_told_as_far_as_rights_reach() {
    let version = json!({"major": "1", "minor": "37", "gitVersion": "v1.37.0", "gitCommit": "", "gitTreeState": "", "buildDate": "",
        "goVersion": "", "compiler": "", "platform": ""});
    let image = "reg.local:5000/ray-operator@sha256:abc";
    let operator = json!({"metadata": {"name": "ray-operator", "namespace": "ray-system"}, "spec": {"selector": {},
        "template": {"spec": {"containers": [{"name": "o", "image": image}]}}}, "status": {"replicas": 1, "readyReplicas": 1}});
    let crd = json!({"metadata": {"name": "rayclusters.ray.io"}, "spec": {"group": "ray.io", "names": {"kind": "RayCluster", "plural": "rayclusters"},
        "scope": "Namespaced", "versions": [{"name": "v1", "served": true, "storage": true}, {"name": "v1alpha1", "served": false, "storage": false}]}});
    let answers = move |rights: bool| {
        let (version, operator, crd) = (version.clone(), operator.clone(), crd.clone());
        FakeServer::start(
            move |asked, _| match asked.uri.split('?').next().unwrap_or_default() {
                "/version" => ok(&version),
                _ if !rights => failure(403, "Forbidden", "you cannot"),
                path if path.ends_with("/deployments") => ok(&list(std::slice::from_ref(&operator), None)),
                _ => ok(&list(std::slice::from_ref(&crd), None)),
            },
        )
    };
    let all = answers(true).run(&["version"]);
    assert_eq!(all.code, 0, "{all:?}");
    assert!(all.stdout.contains("Kubernetes version: v1.37.0\n"), "{all:?}");
    assert!(
        all.stdout.ends_with(&format!(
            "ray-operator: {image} (namespace ray-system, 1/1 ready)\nrayclusters.ray.io: v1\n"
        )),
        "{all:?}"
    );
    let little = answers(false).run(&["version"]);
    assert_eq!(little.code, 0, "{little:?}");
    assert!(little.stderr.contains("looking only into ml"), "{little:?}");
    assert!(
        little.stderr.contains("the operator's version is unknown"),
        "{little:?}"
    );
    assert!(
        little.stdout.ends_with("Kubernetes version: v1.37.0\n"),
        "{little:?}"
    );
}

#[test]
fn past_logs_are_asked_for_as_the_flags_say() {
    let server = FakeServer::start(|asked, _| match asked.uri.contains("/log?") {
        true => text("one\ntwo\n"),
        false => ok(
            &json!({"metadata": {}, "items": [pod("c-head", "head", &json!({})), pod("c-w", "worker", &json!({}))]}),
        ),
    });
    let shown = server.run(&["log", "c", "--previous", "--since", "5m", "--tail", "2"]);
    assert_eq!(
        shown.stdout, "c-head | one\nc-head | two\nc-w | one\nc-w | two\n",
        "{shown:?}"
    );
    let asked = server.asked();
    let log = asked
        .iter()
        .find(|asked| asked.uri.contains("/pods/c-w/log"))
        .unwrap();
    for part in [
        "previous=true",
        "sinceSeconds=300",
        "tailLines=2",
        "container=ray",
    ] {
        assert!(log.uri.contains(part), "{part} in {}", log.uri);
    }
    let both = server.run(&["log", "c", "--previous", "-f"]);
    assert_eq!(both.code, 2, "{both:?}");
}

#[test]
fn what_a_container_printed_is_downloaded_up_to_the_limit() {
    let server = FakeServer::start(|asked, _| match asked.uri.contains("/log?") {
        true => axum::http::Response::new(axum::body::Body::from(vec![b'x'; 2 << 20])),
        false => ok(&json!({"metadata": {}, "items": [pod("c-head", "head", &json!({}))]})),
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let run = server.run(&["log", "c", "--out-dir", path, "--max-size", "1"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("--max-size"), "{run:?}");
    let saved = std::fs::metadata(folder.path().join("c-head/stdout.log")).unwrap();
    assert!(saved.len() <= 1 << 20, "{}", saved.len());
}

#[test]
fn dry_runs_of_a_change_say_it_and_send_nothing() {
    let server = FakeServer::start(|_, _| {
        let mut one = cluster("c", 1);
        let record = json!({"head": {"compute": {"kind": "ComputeTemplate", "name": "small", "uid": "u", "generation": 1}}});
        one["metadata"]["annotations"] = json!({"templates.ray.io/expansion": record.to_string()});
        ok(&one)
    });
    for (words, said) in [
        (
            &["scale", "cluster", "c", "--replicas", "4"][..],
            "raycluster.ray.io/c scaled: worker group w: replicas 1 → 4 (dry run)\n",
        ),
        (
            &["refresh", "cluster", "c"],
            "raycluster.ray.io/c refreshed (dry run)\n",
        ),
        (
            &["create", "workergroup", "g", "-c", "c", "-o", "name"],
            "raycluster.ray.io/c\n",
        ),
    ] {
        let run = server.run(&[words, &["--dry-run"]].concat());
        assert_eq!((run.code, run.stdout.as_str()), (0, said), "{run:?}");
    }
    let shown = server.run(&["create", "workergroup", "g", "-c", "c", "--dry-run", "-o", "json"]);
    let object: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(object["spec"]["workerGroupSpecs"][1]["groupName"], "g");
    assert!(server.asked().iter().all(|asked| asked.method == "GET"));
}
