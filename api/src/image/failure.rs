//! From the end of a container's log to a reason that a person can act on.
//!
//! The log was written by foreign code: it decides about the words in a status and about nothing else.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::template::v1alpha1::{BuildFailure, FailureReason};

/// Most bytes of log that a status keeps.
pub const MAX_LOG_TAIL: usize = 2048;
/// Most bytes of the explaining line.
const MAX_MESSAGE: usize = 512;
/// A process that was killed: 128 + SIGKILL.
const KILLED: i32 = 137;

/// A container of a build that ended badly.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended<'a> {
    /// Its exit code.
    pub exit_code: Option<i32>,
    /// Kubernetes' reason, as `Error` or `OOMKilled`.
    pub reason: &'a str,
    /// The end of its log.
    pub log: &'a str,
}

/// The reason of a failed `build` or `push` container, and the one line that explains it.
///
/// The executor exits with the code of the command that failed, so the code alone does not tell what happened; its
/// last `error …:` line tells the phase, and the lines before it the cause.
#[must_use]
pub fn classify(ended: &Ended<'_>) -> BuildFailure {
    let log = plain(ended.log);
    let (before, verdict) = verdict(&log);
    let lines: Vec<&str> = before
        .lines()
        .chain(verdict.lines())
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
        .collect();
    let (reason, message) = explain(ended, &lines);
    BuildFailure {
        reason,
        message: cut(&mask(&message), MAX_MESSAGE),
        log_tail: Some(log_tail(ended.log)).filter(|tail| !tail.is_empty()),
        exit_code: ended.exit_code,
    }
}

/// Whether a failure may pass by itself, so that the same build is worth another attempt.
///
/// Unknown failures count as passing: a retry costs minutes, a person's look costs more.
#[must_use]
pub fn is_passing(reason: FailureReason) -> bool {
    use FailureReason::{
        BuildFailed, BuilderImageUnavailable, RateLimited, RegistryUnreachable, SecretNotFound,
        StorageExhausted,
    };
    matches!(
        reason,
        BuildFailed
            | BuilderImageUnavailable
            | RateLimited
            | RegistryUnreachable
            | SecretNotFound
            | StorageExhausted
    )
}

fn explain(ended: &Ended<'_>, lines: &[&str]) -> (FailureReason, String) {
    let last_error = last(lines, |line| {
        line.starts_with("error ") || line.starts_with("Error: ")
    })
    .unwrap_or_default();
    if ended.reason == "OOMKilled" || ended.exit_code == Some(KILLED) {
        let step = lines
            .iter()
            .rev()
            .find_map(|line| line.split_once("] RUN "))
            .map_or("the build", |(_, step)| step);
        let message = format!("killed for lack of memory during: {step}; raise spec.resources.limits.memory");
        return (FailureReason::OutOfMemory, message);
    }
    let anywhere = [
        (FailureReason::StorageExhausted, &["no space left on device"][..]),
        (
            FailureReason::RateLimited,
            &["TOOMANYREQUESTS", "toomanyrequests", "429 Too Many Requests"],
        ),
    ];
    if let Some(found) = first_match(lines, &anywhere) {
        return found;
    }
    if last_error.contains("failed to execute command") {
        return command(lines).unwrap_or_else(|| (FailureReason::CommandFailed, last_output(lines)));
    }
    // Behind a mirror that has not got the image the executor asks docker.io, which such sites often cannot reach.
    let mirrored = |line: &&&str| {
        line.contains("from remapped registry") && NOT_FOUND.iter().any(|it| line.contains(it))
    };
    if let Some(line) = lines.iter().rev().find(mirrored) {
        return (FailureReason::BaseImageNotFound, (*line).to_owned());
    }
    let registry = [
        (
            FailureReason::RegistryTlsMismatch,
            &[
                "server gave HTTP response to HTTPS client",
                "x509:",
                "tls: ",
                "certificate",
            ][..],
        ),
        (FailureReason::RegistryUnreachable, UNREACHABLE),
    ];
    if let Some(found) = first_match(&[last_error], &registry) {
        return found;
    }
    let is_push = last_error.contains("push permission") || last_error.contains("pushing image");
    let refused = if is_push {
        FailureReason::PushUnauthorized
    } else {
        FailureReason::BaseImageNotFound
    };
    let answers: &[&str] = if is_push {
        REFUSED
    } else {
        &[REFUSED, NOT_FOUND].concat()
    };
    first_match(&[last_error], &[(refused, answers)]).unwrap_or_else(|| {
        let line = if last_error.is_empty() {
            last_output(lines)
        } else {
            last_error.to_owned()
        };
        (FailureReason::BuildFailed, line)
    })
}

/// What came before the executor's last word, and that: a command's output may end without a line end.
fn verdict(log: &str) -> (&str, &str) {
    let starts = VERDICTS.iter().filter_map(|verdict| log.rfind(verdict));
    log.split_at_checked(starts.max().unwrap_or(log.len()))
        .unwrap_or((log, ""))
}

/// How the executor begins the line with which it ends.
const VERDICTS: &[&str] = &[
    "error building image: ",
    "error checking push permissions",
    "error pushing image: ",
];
const UNREACHABLE: &[&str] = &[
    "connection refused",
    "no such host",
    "i/o timeout",
    "connection reset",
    "no route to host",
    "context deadline exceeded",
    "unexpected EOF",
    "500 Internal Server Error",
    "502 Bad Gateway",
    "503 Service Unavailable",
    "504 Gateway Timeout",
    "Temporary failure in name resolution",
];
const REFUSED: &[&str] = &["UNAUTHORIZED", "DENIED", "401 Unauthorized", "403 Forbidden"];
const NOT_FOUND: &[&str] = &[
    "MANIFEST_UNKNOWN",
    "NAME_UNKNOWN",
    "404 Not Found",
    "no child with platform",
];

/// Why a `RUN` failed, from what the tool in it printed.
fn command(lines: &[&str]) -> Option<(FailureReason, String)> {
    let unreachable: &[&str] = &[
        // pip says "no version found" after it could not reach the index: the cause comes first.
        "Failed to establish a new connection",
        "Temporary failure resolving",
        "Could not connect to",
        "E: Failed to fetch",
        "CondaHTTPError",
        "Could not resolve host",
    ];
    let tools = [
        (FailureReason::RegistryUnreachable, unreachable),
        (
            FailureReason::PipPackageNotFound,
            &[
                "ERROR: Could not find a version that satisfies",
                "ERROR: No matching distribution found for",
            ],
        ),
        (
            FailureReason::SystemPackageNotFound,
            &["E: Unable to locate package", "has no installation candidate"],
        ),
        (
            FailureReason::CondaUnavailable,
            &["conda: not found", "conda: command not found", "exec: \"conda\""],
        ),
    ];
    first_match(lines, &tools).or_else(|| {
        let version = last(lines, |line| {
            line.starts_with("E: Version ") && line.ends_with("was not found")
        })?;
        Some((FailureReason::SystemPackageNotFound, version.to_owned()))
    })
}

/// The first rule one of whose needles is in a line; needles in the order of how well they explain.
fn first_match(lines: &[&str], rules: &[(FailureReason, &[&str])]) -> Option<(FailureReason, String)> {
    rules.iter().find_map(|(reason, needles)| {
        let line = needles
            .iter()
            .find_map(|needle| last(lines, |line| line.contains(needle)))?;
        Some((*reason, line.to_owned()))
    })
}

fn last<'a>(lines: &[&'a str], matches: impl Fn(&str) -> bool) -> Option<&'a str> {
    lines.iter().rev().copied().find(|line| matches(line))
}

/// The last line that the failed command itself wrote, rather than the executor.
fn last_output(lines: &[&str]) -> String {
    let executor = |line: &str| {
        line.starts_with("error building image:") || line.starts_with("INFO[") || line.starts_with("WARN[")
    };
    last(lines, |line| !executor(line))
        .or(lines.last().copied())
        .unwrap_or("it ended without a word")
        .to_owned()
}

/// The last [`MAX_LOG_TAIL`] bytes of a log: whole lines where there are any, no control characters, no credentials.
#[must_use]
pub fn log_tail(log: &str) -> String {
    // Masked before it is cut: half a credential is still one.
    let text = mask(&plain(log));
    let text = text.trim_end();
    let mut start = text.len().saturating_sub(MAX_LOG_TAIL);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    let tail = text.get(start..).unwrap_or_default();
    match tail.split_once('\n') {
        Some((_, whole)) if start > 0 => whole.to_owned(),
        _ => tail.to_owned(),
    }
}

/// Without colours and control characters, other than line ends and tabs.
fn plain(text: &str) -> String {
    static COLOUR: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("\x1b\\[[0-9;?]*[A-Za-z]").ok());
    let text = match COLOUR.as_ref() {
        Some(colour) => colour.replace_all(text, ""),
        None => text.into(),
    };
    text.chars()
        .filter(|c| matches!(c, '\n' | '\t') || !c.is_control())
        .collect()
}

/// Replaces what looks like a credential by `***`.
#[must_use]
pub fn mask(text: &str) -> String {
    static RULES: LazyLock<Vec<Regex>> = LazyLock::new(|| {
        [
            // user:password@ or token@ in a URL
            r"(?P<keep>[a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s@]+(?P<end>@)",
            // Authorization: Bearer …
            r"(?i)(?P<keep>\b(?:bearer|basic)\s+)[a-z0-9._~+/=-]{8,}(?P<end>)",
            // password=… "token": "…", and "auth": "…" of docker logins
            r#"(?i)(?P<keep>(?:password|passwd|secret|token|\bauth|api[_-]?key|access[_-]?key)["']?\s*[=:]\s*["']?)[^\s"'&,;]+(?P<end>)"#,
            // netrc, on one line or several; the log may begin in the middle of it
            r"(?im)(?P<keep>(?:\b(?:machine|login)\s+\S+\s+|^[ \t]*)password\s+)\S+(?P<end>)",
            // Tokens that name themselves: GitHub, GitLab, Hugging Face, PyPI, AWS, Slack, JWT
            r"(?P<keep>\b)(?:gh[pousr]_|github_pat_|glpat-|hf_|pypi-|AKIA|xox[abps]-|eyJ[A-Za-z0-9_-]+\.)[A-Za-z0-9_.-]{8,}(?P<end>)",
        ]
        .iter()
        .filter_map(|rule| Regex::new(rule).ok())
        .collect()
    });
    RULES.iter().fold(text.to_owned(), |text, rule| {
        rule.replace_all(&text, |found: &Captures<'_>| {
            let part = |name| found.name(name).map_or("", |part| part.as_str());
            format!("{}***{}", part("keep"), part("end"))
        })
        .into_owned()
    })
}

fn cut(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut end = limit;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", text.get(..end).unwrap_or_default())
}
