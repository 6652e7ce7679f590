//! Recorded runs of the real executor, each with the reason and the line that a person should see.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use ray_api::image::{Ended, MAX_LOG_TAIL, classify, is_passing, log_tail, mask};
use ray_api::template::v1alpha1::{BuildFailure, FailureReason};

/// What Kubernetes keeps of a log as termination message.
const TERMINATION_MESSAGE: usize = 2048;

/// Classifies a recorded run from what a pod's status would hold of it.
fn recorded(case: &str) -> BuildFailure {
    let path = format!(
        "{}/tests/fixtures/kaniko-runs/{case}.log",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(path).unwrap();
    let head = text.lines().find(|line| line.starts_with("# exitCode")).unwrap();
    let words: Vec<_> = head.split_whitespace().collect();
    let (_, log) = text.split_once("# log:\n").unwrap();
    let mut start = log.len().saturating_sub(TERMINATION_MESSAGE);
    while !log.is_char_boundary(start) {
        start += 1;
    }
    classify(&Ended {
        exit_code: words[2].parse().ok(),
        reason: words[4],
        log: &log[start..],
    })
}

#[test]
fn recorded_runs_have_their_reasons() {
    use FailureReason::*;
    for (case, reason, line) in [
        (
            "apt-no-such-package",
            SystemPackageNotFound,
            "E: Unable to locate package no-such-package-zz",
        ),
        (
            "base-image-not-found",
            BaseImageNotFound,
            "MANIFEST_UNKNOWN: manifest unknown; map[Tag:0.0.1]",
        ),
        (
            "base-registry-unreachable",
            RegistryUnreachable,
            "dial tcp registry:5999: connect: connection refused",
        ),
        ("conda-missing", CondaUnavailable, "/bin/sh: 1: conda: not found"),
        (
            "dockerfile-syntax",
            BuildFailed,
            "dockerfile parse error on line 2",
        ),
        ("oom", OutOfMemory, "python3 -c \"x=b'a'*(3<<30)\""),
        (
            "pip-no-such-version",
            PipPackageNotFound,
            "ERROR: Could not find a version that satisfies the requirement emoji==999.0",
        ),
        (
            "push-unauthorized",
            PushUnauthorized,
            "UNAUTHORIZED: authentication required",
        ),
        (
            "tls-mismatch",
            RegistryTlsMismatch,
            "http: server gave HTTP response to HTTPS client",
        ),
    ] {
        let failure = recorded(case);
        assert_eq!(failure.reason, reason, "{case}: {failure:?}");
        assert!(failure.message.contains(line), "{case}: {}", failure.message);
        assert!(!failure.message.contains('\n'));
        assert!(
            failure
                .log_tail
                .as_ref()
                .is_some_and(|tail| tail.len() <= MAX_LOG_TAIL)
        );
    }
}

fn reason(exit_code: i32, log: &str) -> (FailureReason, String) {
    let failure = classify(&Ended {
        exit_code: Some(exit_code),
        reason: "Error",
        log,
    });
    (failure.reason, failure.message)
}

#[test]
fn causes_that_tools_hide_are_found() {
    use FailureReason::*;
    let run = "error building image: error building stage: failed to execute command: waiting for process to exit: exit status";
    for (log, expected, line) in [
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError': Failed to establish a new connection: [Errno -3]\nERROR: Could not find a version that satisfies the requirement x (from versions: none)\nERROR: No matching distribution found for x",
            RegistryUnreachable,
            "Failed to establish",
        ),
        (
            "E: Version '9' for 'git' was not found",
            SystemPackageNotFound,
            "E: Version '9'",
        ),
        (
            "OSError: [Errno 28] No space left on device\nx: no space left on device",
            StorageExhausted,
            "no space",
        ),
        ("some tool: it broke", CommandFailed, "some tool: it broke"),
    ] {
        let (reason, message) = reason(1, &format!("{log}\n{run} 1\n"));
        assert_eq!(reason, expected, "{log}");
        assert!(message.contains(line), "{message}");
        // A command that does not end its last line has the executor's word glued to it.
        let (glued, message) = self::reason(1, &format!("{log}{run} 1\n"));
        assert_eq!(glued, expected, "{log}");
        assert!(!message.contains("error building image"), "{message}");
    }
    let (reason, message) = reason(
        137,
        &format!("\x1b[36mINFO\x1b[0m[0026] RUN pip install x\nKilled\n{run} 137\n"),
    );
    assert_eq!(reason, OutOfMemory);
    assert!(message.contains("pip install x"), "{message}");
    let limited = "error building image: GET https://index.docker.io/v2/: TOOMANYREQUESTS: You have reached your pull rate limit";
    assert_eq!(self::reason(1, limited).0, RateLimited);
    assert_eq!(self::reason(1, "").0, BuildFailed);
    let mirrored = "WARN[0003] Failed to retrieve image x from remapped registry mirror: GET http://mirror/v2/x/manifests/1: MANIFEST_UNKNOWN: manifest unknown\nerror building image: Get \"https://index.docker.io/v2/\": dial tcp: no such host";
    let (reason, message) = self::reason(1, mirrored);
    assert_eq!(reason, BaseImageNotFound);
    assert!(message.contains("MANIFEST_UNKNOWN"), "{message}");
}

#[test]
fn credentials_never_reach_a_status() {
    for (text, kept) in [
        (
            "Looking in indexes: https://me:hunter2secret@index.example/simple",
            "https://***@index.example/simple",
        ),
        (
            "git clone https://hunter2secret@git.example/x",
            "https://***@git.example/x",
        ),
        ("Authorization: Bearer hunter2secret.abc", "Bearer ***"),
        ("PASSWORD=hunter2secret next", "PASSWORD=*** next"),
        (r#"{"token": "hunter2secret"}"#, r#"{"token": "***"}"#),
        (
            r#"{"auths": {"reg.example": {"auth": "hunter2secret=="}}}"#,
            r#"{"reg.example": {"auth": "***"}}"#,
        ),
        (
            "machine index.example login me password hunter2secret",
            "login me password ***",
        ),
        ("login me\n  password hunter2secret\n", "password ***\n"),
        ("password hunter2secret", "password ***"),
        ("using ghp_hunter2secret0000", "using ***"),
    ] {
        let masked = mask(text);
        assert!(!masked.contains("hunter2secret"), "{masked}");
        assert!(masked.contains(kept), "{masked}");
    }
    for harmless in [
        "failed to authorize: no such host",
        "password authentication failed for x",
    ] {
        let masked = mask(&format!("error: {harmless}"));
        assert!(masked.ends_with(harmless), "{masked}");
    }
    // Cut after it is masked: the cut must not leave half a credential unrecognised.
    let log = format!("https://me:{}@index.example\nend\n", "s".repeat(MAX_LOG_TAIL));
    assert!(!log_tail(&log).contains("ss"), "{}", log_tail(&log));
}

#[test]
fn a_log_tail_is_whole_lines_without_control_characters() {
    let log: String = (0..1000)
        .map(|n| format!("line {n} \x1b[31mred\x1b[0m\x07\n"))
        .collect();
    let tail = log_tail(&log);
    assert!(tail.len() <= MAX_LOG_TAIL && tail.ends_with("line 999 red"));
    assert!(
        tail.lines()
            .all(|line| line.starts_with("line ") && line.ends_with(" red")),
        "{tail}"
    );
}

#[test]
fn every_reason_has_its_row_in_the_documentation() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/images.md")).unwrap();
    let schema = serde_json::to_value(schemars::schema_for!(FailureReason)).unwrap();
    let reasons: Vec<FailureReason> = serde_json::from_value(schema["enum"].clone()).unwrap();
    assert!(reasons.len() > 10);
    for reason in reasons {
        let start = format!("| `{reason:?}` |");
        let row = page
            .lines()
            .find(|line| line.starts_with(&start))
            .unwrap_or_default();
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 6, "{reason:?} has no row of four cells: {row:?}");
        assert_eq!(cells[4] == "yes", is_passing(reason), "tried again: {row}");
    }
}
