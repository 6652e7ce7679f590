//! This crate decides; it does no I/O. What it depends on shows that.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::Command;

#[test]
fn no_runtime_and_no_client_is_pulled_in() {
    let tree = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "--edges=normal",
            "--prefix=none",
            "--package=ray-api",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).unwrap();
    assert!(tree.contains("kube-derive"), "the tree is there: {tree}");
    for line in tree.lines() {
        let name = line.split(' ').next().unwrap();
        for banned in [
            "tokio",
            "hyper",
            "kube-client",
            "kube-runtime",
            "reqwest",
            "mio",
            "rustls",
        ] {
            assert_ne!(name, banned, "ray-api depends on {line}");
        }
    }
}
