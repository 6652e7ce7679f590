//! The plugin: `kubectl ray …`.
//!
//! ```text
//!   words ── cli ──► cmd/<verb> ──► build/       pure: flags and file → the object that is sent
//!                        │     ──► connection    kubectl's connection flags → kube client
//!                        │     ──► follow/       waiting that says what it waits for
//!                        │     ──► ray/          head pod, port-forward, Ray's Jobs API
//!                        └────► output           tables, json, yaml, name
//! ```
//!
//! Everything that a person reads about the cluster goes to stdout; progress, warnings and errors go to stderr.
//! An error carries its exit code and what to do next ([`error::Failure`]).

pub mod build;
pub mod cli;
mod cmd;
mod complete;
pub mod connection;
pub mod error;
mod expansion;
mod follow;
mod kinds;
mod output;
mod ray;
mod table;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;

use crate::error::{Exit, Failure};

/// Runs the plugin with `args`, the first of which is the program's own name.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    if args.first().is_some_and(is_completer) {
        return complete::kubectl_protocol(args);
    }
    complete::answer_shell();
    let cli = match cli::Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // A reader that has gone away is no failure of ours.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Done
            } as u8);
        }
    };
    match cmd::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report(&failure),
    }
}

fn report(failure: &Failure) -> ExitCode {
    if failure.is_broken_pipe() {
        return ExitCode::SUCCESS;
    }
    output::error(failure);
    ExitCode::from(failure.exit as u8)
}

fn is_completer(program: &OsString) -> bool {
    Path::new(program)
        .file_stem()
        .is_some_and(|name| name == "kubectl_complete-ray")
}
