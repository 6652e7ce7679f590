//! What a person sees who sits at a terminal.

// Clippy lets tests panic, but not what they call.
#![allow(clippy::unwrap_used)]
#![cfg(unix)]

mod fake;

use fake::{FakeServer, cluster, image_template, list, named, ok, on_a_terminal, text};
use serde_json::json;

const ESCAPE: char = '\u{1b}';

#[test]
fn colours_are_for_terminals_that_want_them() {
    let server = FakeServer::start(|_, _| ok(&list(&[cluster("a", 1)], None)));
    let words = ["get", "cluster", "nope"];
    let shown = on_a_terminal(&server, &words, &[]);
    assert!(shown.contains("not found") && shown.contains(ESCAPE), "{shown:?}");
    for plain in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let shown = on_a_terminal(&server, &words, &[plain]);
        assert!(
            shown.contains("not found") && !shown.contains(ESCAPE),
            "{shown:?}"
        );
    }
    assert!(!server.run(&words).stderr.contains(ESCAPE));
}

#[test]
fn a_log_and_a_line_that_is_rewritten_leave_each_other_whole() {
    let pod = json!({"metadata": {"name": "p"}, "status": {"containerStatuses": [{"name": "kaniko", "ready": true,
        "restartCount": 0, "image": "", "imageID": "", "state": {"running": {}}}]}});
    let server = FakeServer::start(move |asked, before| {
        let looks = before
            .iter()
            .filter(|asked| named(asked) == "imagetemplates/torch")
            .count();
        match named(asked) {
            "imagetemplates/torch" => ok(&image_template("torch", looks > 4)),
            "p/log" => text("Collecting torch\nInstalling torch\n"),
            _ => ok(&json!({"metadata": {}, "items": [pod]})),
        }
    });
    let shown = on_a_terminal(
        &server,
        &["build", "rebuild", "torch", "--wait"],
        &[("NO_COLOR", "1")],
    );
    assert!(
        shown.contains("ImageTemplate `torch`: building"),
        "no progress: {shown:?}"
    );
    // What is left of each row once the cursor has gone back and the row was erased.
    let erase = format!("\r{ESCAPE}[K");
    let rows: Vec<&str> = shown
        .split('\n')
        .filter_map(|row| row.trim_end_matches('\r').rsplit(&erase).next())
        .collect();
    let end = &rows[rows.len() - 5..];
    assert_eq!(
        end,
        [
            "==> kaniko",
            "Collecting torch",
            "Installing torch",
            "built: reg/torch@sha256:1",
            ""
        ],
        "{shown:?}"
    );
}
