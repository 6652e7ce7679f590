//! Transcripts: help, usage errors and what would be sent. `TRYCMD=overwrite cargo test` rewrites them.

// Clippy lets tests panic, but not what they call.
#![allow(clippy::unwrap_used)]

use clap::{Command, CommandFactory as _};
use kubectl_ray::cli::Cli;

#[test]
fn transcripts_are_as_recorded() {
    trycmd::TestCases::new()
        .env("KUBECONFIG", "/no/such/kubeconfig")
        .env("HOME", "/no/such/home")
        .env("COLUMNS", "100")
        .case("tests/cli/*.trycmd");
}

#[test]
fn every_commands_help_is_recorded() {
    fn check(command: &Command, path: &str, recorded: &str) {
        for sub in command.get_subcommands() {
            let path = format!("{path} {}", sub.get_name());
            assert!(
                recorded.contains(&format!("$ {path} -h\n")),
                "help.trycmd lacks `$ {path} -h`"
            );
            check(sub, &path, recorded);
        }
    }
    let recorded = std::fs::read_to_string("tests/cli/help.trycmd").unwrap();
    check(&Cli::command(), "kubectl-ray", &recorded);
}
