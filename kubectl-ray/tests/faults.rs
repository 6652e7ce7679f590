//! What the plugin does when the way to the server, or the server, is not well.

mod fake;

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use fake::{FakeServer, answer, cluster, failure, list, ok, plugin, run, silence};
use serde_json::{Value, json};

#[test]
fn nobody_at_the_other_end_is_told_with_the_address() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let run = run(plugin().args(["--server", &address, "get", "cluster"]));
    assert_eq!(run.code, 1);
    assert!(
        run.stderr
            .contains(&format!("cannot reach the API server at {address}")),
        "{}",
        run.stderr
    );
}

#[test]
fn a_connection_that_breaks_is_told() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let run = run(plugin().args(["--server", &address, "get", "cluster"]));
    assert_eq!(run.code, 1);
    assert!(
        run.stderr.contains("cannot reach the API server"),
        "{}",
        run.stderr
    );
}

#[test]
fn an_overloaded_server_is_asked_again() {
    let server = FakeServer::start(|_, before| match before.len() {
        0 => failure(429, "TooManyRequests", "slow down"),
        _ => ok(&list(&[cluster("a", 1)], None)),
    });
    let run = server.run(&["get", "cluster", "-o", "name"]);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "raycluster.ray.io/a\n"),
        "{}",
        run.stderr
    );
}

#[test]
fn each_failure_of_the_server_has_its_exit_code_and_its_own_words() {
    let denial = "admission webhook \"mutate.templates.ray.io\" denied the request: spec.computeTemplate: no `a10`; did you mean `a100`?";
    for (code, reason, message, exit) in [
        (500, "InternalError", "etcd has no leader", 1),
        (401, "Unauthorized", "Unauthorized", 4),
        (
            403,
            "Forbidden",
            "rayclusters.ray.io is forbidden: User \"u\" cannot list",
            4,
        ),
        (404, "NotFound", "rayclusters.ray.io \"x\" not found", 3),
        (400, "BadRequest", denial, 4),
        (
            422,
            "Invalid",
            "RayCluster.ray.io \"x\" is invalid: metadata.name: at most 53",
            4,
        ),
    ] {
        let server = FakeServer::start(move |_, _| failure(code, reason, message));
        let run = server.run(&["get", "cluster"]);
        assert_eq!(run.code, exit, "{code}: {}", run.stderr);
        assert!(run.stderr.contains(message), "{code}: {}", run.stderr);
        assert_eq!(run.stdout, "");
    }
}

#[test]
fn warnings_of_the_server_are_shown_beside_the_result() {
    let server = FakeServer::start(|_, _| {
        let mut answer = ok(&list(&[cluster("a", 1)], None));
        answer
            .headers_mut()
            .append("warning", "299 - \"the base image floats\"".parse().unwrap());
        answer
    });
    let run = server.run(&["get", "cluster", "-o", "name"]);
    assert_eq!(run.stdout, "raycluster.ray.io/a\n");
    assert!(
        run.stderr.contains("Warning: the base image floats"),
        "{}",
        run.stderr
    );
}

#[test]
fn long_lists_come_in_chunks_and_an_expired_one_starts_again() {
    let server = FakeServer::start(|asked, before| {
        let expired = before
            .iter()
            .filter(|asked| asked.uri.contains("continue="))
            .count();
        match asked.uri.contains("continue=") {
            true if expired == 0 => failure(410, "Expired", "the list is too old"),
            _ if before.is_empty() => ok(&list(&[cluster("a", 1)], Some("more"))),
            _ => ok(&list(&[cluster("a", 1), cluster("b", 1)], None)),
        }
    });
    let run = server.run(&["get", "cluster", "-o", "name", "--chunk-size", "1"]);
    assert_eq!(
        run.stdout, "raycluster.ray.io/a\nraycluster.ray.io/b\n",
        "{}",
        run.stderr
    );
    assert!(server.asked()[0].uri.contains("limit=1"));
}

#[test]
fn a_watch_survives_its_end_and_an_expired_version_and_repeats_nothing() {
    let change = |object: Value| json!({"type": "MODIFIED", "object": object});
    let newer = |replicas: i32, version: &str| {
        let mut object = cluster("a", replicas);
        object["metadata"]["resourceVersion"] = version.into();
        object
    };
    let server = FakeServer::start(move |asked, before| {
        let watches = before
            .iter()
            .filter(|asked| asked.uri.contains("watch=true"))
            .count();
        if !asked.uri.contains("watch=true") {
            // The list after the 410 shows what the watch has shown already, and one change more.
            let relisted = watches > 0;
            return ok(&list(
                &[if relisted { newer(3, "12") } else { newer(1, "7") }],
                None,
            ));
        }
        match watches {
            // Two events, and the connection ends.
            0 => answer(200, &change(newer(2, "8"))),
            1 => answer(
                200,
                &json!({"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}}),
            ),
            _ => silence(),
        }
    });
    let mut child = server
        .command(&["get", "cluster", "-w", "--no-headers"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let desired: Vec<String> = lines
        .take(3)
        .map(|line| line.unwrap().split_whitespace().nth(1).unwrap().to_owned())
        .collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(desired, ["1", "2", "3"]);
}

/// All that the API server says when a `test` of a JSON patch fails.
const LOST_RACE: &str = "the server rejected our request due to an error in our request";

#[test]
fn a_group_that_moved_under_a_scale_is_found_again() {
    let server = FakeServer::start(|asked, before| match (asked.method.as_str(), before.len()) {
        ("GET", _) => ok(&cluster("c", 1)),
        (_, 1) => failure(422, "Invalid", LOST_RACE),
        _ => ok(&cluster("c", 4)),
    });
    let run = server.run(&["scale", "cluster", "c", "-w", "w", "--replicas", "4"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(
        run.stdout,
        "raycluster.ray.io/c scaled: worker group w: replicas 1 → 4\n"
    );
    let patch = &server.asked()[3].body;
    assert_eq!(
        patch[0],
        json!({"op": "test", "path": "/spec/workerGroupSpecs/0/groupName", "value": "w"})
    );
    assert_eq!(
        patch[1],
        json!({"op": "add", "path": "/spec/workerGroupSpecs/0/replicas", "value": 4})
    );
}

#[test]
fn a_race_that_is_lost_again_and_again_ends_with_the_servers_own_words() {
    for (code, reason, message) in [
        (422, "Invalid", LOST_RACE),
        (409, "Conflict", "Operation cannot be fulfilled"),
    ] {
        let server = FakeServer::start(move |asked, _| match asked.method.as_str() {
            "GET" => ok(&cluster("c", 1)),
            _ => failure(code, reason, message),
        });
        for words in [
            &["scale", "cluster", "c", "--replicas", "4"][..],
            &["create", "workergroup", "more", "-c", "c"],
        ] {
            let run = server.run(words);
            assert_eq!(run.code, 1, "{run:?}");
            assert!(
                run.stderr.contains(message) && run.stderr.contains("try again"),
                "{run:?}"
            );
        }
    }
}

#[test]
fn a_denial_that_mentions_a_test_is_told_at_once() {
    let denial = "rayclusters.ray.io \"c\" is forbidden: User \"u\" cannot patch resource \"rayclusters\" in API group \"ray.io\" in the namespace \"test\"";
    let invalid = "RayCluster.ray.io \"c\" is invalid: the test operation on image:latest failed";
    for (code, reason, message) in [(403, "Forbidden", denial), (422, "Invalid", invalid)] {
        let server = FakeServer::start(move |asked, _| match asked.method.as_str() {
            "GET" => ok(&cluster("c", 1)),
            _ => failure(code, reason, message),
        });
        for words in [
            &["scale", "cluster", "c", "--replicas", "4"][..],
            &["create", "workergroup", "more", "-c", "c"],
        ] {
            let before = server.asked().len();
            let run = server.run(words);
            assert_eq!(run.code, 4, "{run:?}");
            assert!(run.stderr.contains(message), "{run:?}");
            let asked = server.asked().split_off(before);
            let patches = asked.iter().filter(|asked| asked.method == "PATCH").count();
            assert_eq!(patches, 1, "{words:?}");
        }
    }
}

#[test]
fn an_existing_cluster_is_never_overwritten() {
    let server =
        FakeServer::start(|_, _| failure(409, "AlreadyExists", "rayclusters.ray.io \"c\" already exists"));
    let run = server.run(&["create", "cluster", "c"]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("already exists"));
    let asked = server.asked();
    assert_eq!((asked.len(), asked[0].method.as_str()), (1, "POST"));
}

#[test]
fn every_verb_speaks_as_the_flags_say() {
    let verbs: [&[&str]; 16] = [
        &["create", "cluster", "c"],
        &["create", "workergroup", "g", "-c", "c"],
        &["create", "image-template", "i", "--base-image", "b"],
        &["create", "compute-template", "t"],
        &["get", "cluster"],
        &["get", "workergroup"],
        &["get", "node"],
        &["describe", "cluster", "c"],
        &["explain", "cluster", "c"],
        &["scale", "cluster", "c", "--replicas", "1"],
        &["refresh", "cluster", "c"],
        &["delete", "c", "--yes"],
        &["build", "log", "i"],
        &["job", "list", "c"],
        &["session", "c"],
        &["log", "c"],
    ];
    let server = FakeServer::start(|_, _| failure(404, "NotFound", "not there"));
    for verb in verbs {
        let before = server.asked().len();
        let mut words = vec![
            "--as",
            "jane",
            "--as-group",
            "a",
            "--as-group",
            "b",
            "--as-uid",
            "7",
        ];
        words.extend(verb);
        let run = server.run(&words);
        assert_eq!(run.code, 3, "{verb:?}: {}", run.stderr);
        let asked = &server.asked()[before];
        let header = |name: &str| asked.headers.get(name).map(|value| value.to_str().unwrap());
        assert_eq!(header("impersonate-user"), Some("jane"), "{verb:?}");
        assert_eq!(header("impersonate-uid"), Some("7"), "{verb:?}");
        assert_eq!(
            asked.headers.get_all("impersonate-group").iter().count(),
            2,
            "{verb:?}"
        );
        assert_eq!(header("authorization"), Some("Bearer t"), "{verb:?}");
        assert!(
            header("user-agent").unwrap().starts_with("kubectl-ray/"),
            "{verb:?}"
        );
        assert!(asked.uri.contains("/namespaces/ml/"), "{verb:?}: {}", asked.uri);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let items: Vec<Value> = (0..2000)
        .map(|number| cluster(&format!("c{number}"), 1))
        .collect();
    let server = FakeServer::start(move |_, _| ok(&list(&items, None)));
    let mut child = server
        .command(&["get", "cluster"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), output.stderr.as_slice()),
        (Some(0), &b""[..])
    );
}
