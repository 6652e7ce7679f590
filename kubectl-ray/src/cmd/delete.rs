//! `delete`: in the order of the command line; every object is tried, and every error told.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::time::Duration;

use clap::Args;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject};

use crate::cli::{DryRun, DryRunArgs, duration};
use crate::connection::{Connection, ConnectionArgs};
use crate::error::{Exit, Failure, Result};
use crate::follow::{self, Stage};
use crate::kinds::Kind;
use crate::output;

/// Flags of `delete`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl ray delete demo
  kubectl ray delete imagetemplate/torch computetemplate/small --yes")]
pub struct DeleteArgs {
    /// Ray clusters by name, or any object as TYPE/NAME.
    #[arg(required = true, value_name = "CLUSTER | TYPE/NAME", add = crate::complete::targets(&Kind::ALL))]
    objects: Vec<String>,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
    /// An object that does not exist is no error.
    #[arg(long)]
    ignore_not_found: bool,
    /// Wait until the objects are gone.
    #[arg(long)]
    wait: bool,
    /// Longest time to wait; 0 waits for ever.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m")]
    timeout: Duration,
    #[command(flatten)]
    dry_run: DryRunArgs,
}

pub(crate) async fn run(connection: &ConnectionArgs, args: &DeleteArgs) -> Result<()> {
    let targets = args
        .objects
        .iter()
        .map(|word| parse(word))
        .collect::<Result<Vec<_>>>()?;
    if !args.yes && args.dry_run.dry_run == DryRun::None && !confirmed(&targets)? {
        return Err(Failure::failed("nothing was deleted"));
    }
    if args.dry_run.dry_run == DryRun::Client {
        return targets.iter().try_for_each(|(kind, name)| {
            output::line(&format!("{} deleted (dry run)", kind.object_name(name)))
        });
    }
    let connected = connection.connect().await?;
    let mut failures = Vec::new();
    for (kind, name) in &targets {
        if let Err(failure) = delete(&connected, *kind, name, args).await {
            failures.push(failure);
        }
    }
    first_of(failures)
}

/// Reports all failures but the last here; the first decides the exit code.
fn first_of(mut failures: Vec<Failure>) -> Result<()> {
    let Some(mut last) = failures.pop() else {
        return Ok(());
    };
    if let Some(first) = failures.first() {
        last.exit = first.exit;
    }
    failures.iter().for_each(output::error);
    Err(last)
}

async fn delete(connected: &Connection, kind: Kind, name: &str, args: &DeleteArgs) -> Result<()> {
    let resource = kind.resource();
    let api: Api<DynamicObject> = if kind.is_namespaced() {
        Api::namespaced_with(connected.client.clone(), &connected.namespace, &resource)
    } else {
        Api::all_with(connected.client.clone(), &resource)
    };
    let params = DeleteParams {
        dry_run: args.dry_run.dry_run == DryRun::Server,
        ..DeleteParams::default()
    };
    match api.delete(name, &params).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() && args.ignore_not_found => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    let object = kind.object_name(name);
    let dry = if params.dry_run { " (server dry run)" } else { "" };
    output::line(&format!("{object} deleted{dry}"))?;
    if args.wait && !params.dry_run {
        let api = &api;
        let gone = || async move {
            Ok(match api.get_opt(name).await? {
                None => Stage::Done,
                Some(left) => Stage::Waiting(finalizers(&left)),
            })
        };
        follow::until(&object, args.timeout, gone).await?;
    }
    Ok(())
}

fn finalizers(object: &DynamicObject) -> String {
    match object.metadata.finalizers.as_deref() {
        None | Some([]) => "is going".to_owned(),
        Some(finalizers) => format!("waits for its finalizers: {}", finalizers.join(", ")),
    }
}

fn parse(word: &str) -> Result<(Kind, String)> {
    let Some((kind, name)) = word.split_once('/') else {
        return Ok((Kind::RayCluster, word.to_owned()));
    };
    let known = Kind::parse(kind).ok_or_else(|| {
        Failure::usage(format!("`{kind}` is no type that this verb knows"))
            .hint(format!("the types are: {}", Kind::names()))
    })?;
    if name.is_empty() {
        return Err(Failure::usage(format!("`{word}` has no name")));
    }
    Ok((known, name.to_owned()))
}

/// Asks on a terminal; elsewhere nobody could answer.
fn confirmed(targets: &[(Kind, String)]) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::new(
            Exit::Usage,
            "deleting needs --yes where nobody can be asked",
        ));
    }
    for (kind, name) in targets {
        output::note(&format!("  {}", kind.object_name(name)));
    }
    // The question stands on stderr, without a newline.
    let mut stderr = std::io::stderr();
    write!(
        stderr,
        "Delete {}? [y/N] ",
        if targets.len() == 1 { "it" } else { "them" }
    )?;
    stderr.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_is_a_ray_cluster() {
        assert_eq!(parse("demo").unwrap(), (Kind::RayCluster, "demo".to_owned()));
        assert_eq!(
            parse("it/torch").unwrap(),
            (Kind::ImageTemplate, "torch".to_owned())
        );
        assert!(parse("pod/x").is_err() && parse("it/").is_err());
    }

    #[test]
    fn the_first_failure_decides_the_exit_code() {
        let failures = vec![Failure::not_found("a"), Failure::failed("b")];
        let last = first_of(failures).unwrap_err();
        assert_eq!((last.exit, last.message.as_str()), (Exit::NotFound, "b"));
        assert!(first_of(Vec::new()).is_ok());
    }
}
