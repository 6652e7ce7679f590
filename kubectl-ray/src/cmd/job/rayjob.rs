use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use crate::error::{Failure, Result};

/// Flags by which KubeRay's plugin makes a RayJob with a cluster of its own.
const OF_RAYJOBS: [&str; 15] = [
    "--filename",
    "--name",
    "--ray-version",
    "--image",
    "--head-cpu",
    "--head-memory",
    "--head-gpu",
    "--head-node-selectors",
    "--worker-replicas",
    "--worker-cpu",
    "--worker-memory",
    "--worker-gpu",
    "--worker-node-selectors",
    "--ttl-seconds-after-finished",
    "--dry-run",
];
/// Flags of the `ray` program that KubeRay's plugin starts; without it they mean nothing.
const OF_RAYS_CLI: [&str; 3] = ["--verify", "--log-style", "--log-color"];

/// KubeRay's flags that this verb knows only to say what to do instead: nobody but KubeRay's operator runs RayJobs.
#[derive(Debug)]
pub(super) struct RayJobFlags {
    given: Option<&'static str>,
}

impl RayJobFlags {
    /// Refuses what would need a RayJob, and says how to come to the same end.
    pub(super) fn refuse(&self) -> Result<()> {
        let Some(flag) = self.given else { return Ok(()) };
        Err(Failure::usage(format!(
            "{flag} is for a RayJob with a cluster of its own; `job submit` runs jobs on a Ray cluster that is there"
        ))
        .hint(
            "`kubectl ray create cluster NAME … --wait`, then `kubectl ray job submit NAME -- COMMAND`; \
             a RayJob manifest goes to KubeRay's operator, by `kubectl apply -f`",
        ))
    }
}

impl Args for RayJobFlags {
    fn augment_args(command: Command) -> Command {
        let known = OF_RAYJOBS.iter().chain(&OF_RAYS_CLI).map(|flag| {
            // The dashes keep these ids apart from those of the verb's own arguments.
            let arg = Arg::new(*flag)
                .long(flag.trim_start_matches('-'))
                .hide(true)
                .num_args(0..=1);
            if *flag == "--filename" {
                arg.short('f')
            } else {
                arg
            }
        });
        command.args(known)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for RayJobFlags {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let is_given = |flag: &&&str| matches.contains_id(flag);
        Ok(Self {
            given: OF_RAYJOBS.iter().find(is_given).copied(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> std::result::Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
