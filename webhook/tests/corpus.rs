//! Replays what the fuzzer found worth keeping (`fuzz/corpus`), with the fuzzer's own checks.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

#[path = "../../api/tests/dockerfile_reader/mod.rs"]
#[allow(dead_code, reason = "api's tests use all of it")]
mod dockerfile_reader;
mod fake;
mod fuzzed;

use std::path::Path;

fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
        .join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        // Shown when the check fails.
        println!("{}", path.display());
        check(&std::fs::read(path).unwrap());
        count += 1;
    }
    assert!(count > 10, "{} holds no corpus", folder.display());
}

#[test]
fn every_kept_review_is_answered() {
    replay("admission", fuzzed::admission);
}

#[test]
fn every_kept_template_expands_and_renders_or_is_refused() {
    replay("templates", fuzzed::templates);
}
