//! The command line: verbs and what they share. Each verb's own flags stand beside its code in `cmd`.

use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cmd;
use crate::connection::ConnectionArgs;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default())
    .placeholder(AnsiColor::Cyan.on_default());

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 denied, 5 timed out waiting.";

/// Run Ray on Kubernetes: clusters, images and hardware from templates, jobs and their logs.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-ray",
    bin_name = "kubectl ray",
    version,
    styles = STYLES,
    after_help = EXIT_CODES,
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// How to reach the API server.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a Ray cluster, a worker group, or a template.
    Create(cmd::create::CreateArgs),
    /// List Ray clusters, worker groups, nodes, templates and endpoints.
    #[command(visible_alias = "list")]
    Get(cmd::get::GetArgs),
    /// Show one object as a tree, with the reason of what is not ready at the top.
    Describe(cmd::describe::DescribeArgs),
    /// Show which field of a Ray cluster came from which template.
    Explain(cmd::explain::ExplainArgs),
    /// Change the replicas of a worker group.
    Scale(cmd::scale::ScaleArgs),
    /// Give a Ray cluster the newest versions of its templates.
    Refresh(cmd::refresh::RefreshArgs),
    /// Delete Ray clusters and templates.
    Delete(cmd::delete::DeleteArgs),
    /// Expand the template references of manifests without a webhook.
    Render(cmd::render::RenderArgs),
    /// Follow, cancel or repeat the build of an ImageTemplate.
    Build(cmd::build::BuildArgs),
    /// Submit and watch Ray jobs on a Ray cluster.
    Job(cmd::job::JobArgs),
    /// Forward the ports of a Ray cluster to this machine.
    Session(cmd::session::SessionArgs),
    /// Follow or download the logs of a Ray cluster.
    #[command(visible_alias = "logs")]
    Log(cmd::log::LogArgs),
    /// Check what is installed, reachable, expired or missing.
    Doctor(cmd::doctor::DoctorArgs),
    /// Print the versions of plugin, operator and CRDs.
    Version(cmd::version::VersionArgs),
    /// Print or install shell completion.
    Completion(cmd::completion::CompletionArgs),
}

/// Whether anything is changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// The change is made.
    #[default]
    None,
    /// The object is printed and nothing is sent.
    Client,
    /// The server checks the change and forgets it.
    Server,
}

/// `--dry-run`, as of kubectl.
#[derive(Clone, Copy, Debug, Args)]
pub struct DryRunArgs {
    /// Only say what would be done: `client` sends nothing, `server` has it checked by the server.
    #[arg(
        long,
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_value = "none",
        default_missing_value = "client",
        hide_possible_values = true,
        value_name = "none|client|server"
    )]
    pub dry_run: DryRun,
}

/// `--wait` and its patience.
#[derive(Clone, Copy, Debug, Args)]
pub struct WaitArgs {
    /// Wait until it is ready, and say what is being waited for.
    #[arg(long)]
    pub wait: bool,
    /// Longest time to wait, as `90s` or `30m`; 0 waits for ever.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
}

/// Parses Go's durations (`90s`, `1h30m`); a bare number is seconds, as in kubectl.
///
/// # Errors
/// When it is none.
pub fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<u32>() {
        return Ok(Duration::from_secs(seconds.into()));
    }
    let wrong = || format!("`{text}` is no duration such as 90s, 5m or 1h30m");
    ray_api::duration::parse(text).ok_or_else(wrong)
}

/// Parses `KEY=VALUE`.
///
/// # Errors
/// When there is no `=` or no key.
pub fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not KEY=VALUE")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_verb_takes_a_connection_flags_place() {
        fn check(command: &clap::Command, global: &[String]) {
            for sub in command.get_subcommands() {
                let taken = sub
                    .get_arguments()
                    .find(|arg| global.contains(&arg.get_id().to_string()));
                assert!(
                    taken.is_none(),
                    "{}: {:?}",
                    sub.get_name(),
                    taken.map(clap::Arg::get_id)
                );
                check(sub, global);
            }
        }
        // Clap would silently let the verb's own argument stand for the flag.
        let command = Cli::command();
        let global: Vec<_> = command
            .get_arguments()
            .map(|arg| arg.get_id().to_string())
            .collect();
        check(&command, &global);
    }

    #[test]
    fn durations_are_go_durations_or_seconds() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        for wrong in ["", "x", "-1s", "5 parsecs", "99999999999999999h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
