//! Log lines on this terminal, each behind the name of its node where there are several.

use futures::{AsyncBufReadExt as _, StreamExt as _, future};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{AttachParams, LogParams};
use tokio::io::AsyncBufReadExt as _;

use super::{LogArgs, SESSION, name_of, ray_container};
use crate::connection::Connection;
use crate::error::{Failure, Result};
use crate::output;

pub(super) async fn run(connected: &Connection, pods: &[Pod], args: &LogArgs) -> Result<()> {
    let several = pods.len() > 1;
    let streams = pods.iter().map(|pod| async move {
        let prefix = if several {
            format!("{} | ", name_of(pod))
        } else {
            String::new()
        };
        let shown = match &args.file {
            Some(file) => file_lines(connected, pod, file, args, &prefix).await,
            None => container_lines(connected, pod, args, &prefix).await,
        };
        shown.map_err(|failure| {
            if failure.is_broken_pipe() {
                failure
            } else {
                failure.context(name_of(pod))
            }
        })
    });
    if args.follow {
        // One node that ends, or cannot be read, does not end the others.
        return first_error(future::join_all(streams).await);
    }
    let mut results = Vec::new();
    for stream in streams {
        results.push(stream.await);
    }
    first_error(results)
}

fn first_error(results: Vec<Result<()>>) -> Result<()> {
    let mut failures: Vec<Failure> = results.into_iter().filter_map(Result::err).collect();
    if let Some(position) = failures.iter().position(Failure::is_broken_pipe) {
        return Err(failures.swap_remove(position));
    }
    let Some(first) = failures.pop() else {
        return Ok(());
    };
    failures.iter().for_each(output::error);
    Err(first)
}

async fn container_lines(connected: &Connection, pod: &Pod, args: &LogArgs, prefix: &str) -> Result<()> {
    let params = LogParams {
        container: ray_container(pod),
        follow: args.follow,
        previous: args.previous,
        tail_lines: args.tail,
        since_seconds: args
            .since
            .map(|since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX)),
        ..LogParams::default()
    };
    let mut lines = connected
        .api::<Pod>()
        .log_stream(&name_of(pod), &params)
        .await?
        .lines();
    while let Some(line) = lines.next().await {
        output::line(&format!("{prefix}{}", line?))?;
    }
    Ok(())
}

async fn file_lines(
    connected: &Connection,
    pod: &Pod,
    file: &str,
    args: &LogArgs,
    prefix: &str,
) -> Result<()> {
    let path = format!("{SESSION}/logs/{}", checked(file)?);
    let lines = args
        .tail
        .map_or_else(|| "+1".to_owned(), |lines| lines.to_string());
    let mut command = vec!["tail".to_owned(), "-n".to_owned(), lines];
    if args.follow {
        command.push("-F".to_owned());
    }
    command.push(path);
    let params = AttachParams {
        container: ray_container(pod),
        ..AttachParams::default()
    };
    let mut process = connected
        .api::<Pod>()
        .exec(&name_of(pod), command, &params)
        .await?;
    let status = process.take_status();
    let complaints = super::download::complaints(&mut process);
    if let Some(stdout) = process.stdout() {
        let mut lines = tokio::io::BufReader::new(stdout).lines();
        while let Some(line) = lines.next_line().await? {
            output::line(&format!("{prefix}{line}"))?;
        }
    }
    super::download::check(status, complaints).await
}

/// A name inside the log directory: no way leads out of it.
fn checked(file: &str) -> Result<&str> {
    let inside = !file.is_empty() && !file.starts_with('/') && file.split('/').all(|part| part != "..");
    if inside {
        Ok(file)
    } else {
        Err(Failure::usage(format!(
            "--file: `{file}` is no file of the log directory"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_stay_inside_the_log_directory() {
        assert!(checked("events/event_GCS.log").is_ok());
        for wrong in ["", "/etc/passwd", "../x", "a/../../b"] {
            assert!(checked(wrong).is_err(), "{wrong}");
        }
    }
}
