//! When an image is built, and the log of the build meanwhile.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{AsyncBufReadExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use ray_api::conditions;
use ray_api::meta::annotation;
use ray_api::template::v1alpha1::ImageTemplate;

use super::pod::statuses;
use super::{Stage, until};
use crate::connection::Connection;
use crate::error::{Failure, Result};
use crate::output;

const PERIOD: Duration = Duration::from_secs(1);
/// How long the rest of a log may take once the build is over.
const LAST_LINES: Duration = Duration::from_secs(3);

/// Waits until the newest inputs are built, and writes the build's log to stderr meanwhile.
pub(crate) async fn wait(connection: &Connection, name: &str, limit: Duration) -> Result<()> {
    let what = format!("ImageTemplate `{name}`");
    let probe = || async move { Ok(judge(&connection.api::<ImageTemplate>().get(name).await?)) };
    let mut log = std::pin::pin!(follow(connection, name, Target::Stderr));
    let mut ended = std::pin::pin!(until(&what, limit, probe));
    let result = tokio::select! {
        result = &mut ended => {
            // What the build said last is what matters when it failed.
            let _ = tokio::time::timeout(LAST_LINES, &mut log).await;
            result
        }
        // A log that cannot be read (no right to) does not end the wait.
        _ = &mut log => ended.await,
    };
    result?;
    let template = connection.api::<ImageTemplate>().get(name).await?;
    let image = template
        .status
        .and_then(|status| status.image)
        .unwrap_or_default();
    output::note(&format!(
        "{} {image}",
        output::paint(output::Colour::Green, "built:")
    ));
    Ok(())
}

/// Whether the newest inputs are built.
pub(crate) fn judge(template: &ImageTemplate) -> Stage {
    let status = template.status.clone().unwrap_or_default();
    let list = status.conditions.clone().unwrap_or_default();
    let wanted = template
        .metadata
        .annotations
        .as_ref()
        .and_then(|a| a.get(annotation::REBUILD));
    let seen = status.observed_generation >= template.metadata.generation;
    if !seen || (wanted.is_some() && wanted != status.rebuild.as_ref()) {
        return Stage::Waiting("no operator has looked at it yet".to_owned());
    }
    if let Some(building) = conditions::find(&list, "Building").filter(|c| c.status == "True") {
        return Stage::Waiting(or_reason(&building.message, &building.reason));
    }
    if let Some(failed) = conditions::find(&list, "Failed").filter(|c| c.status == "True") {
        let message = match &status.failure {
            Some(failure) => format!(
                "the image was not built: {:?}: {}",
                failure.reason, failure.message
            ),
            None => format!("the image was not built: {}: {}", failed.reason, failed.message),
        };
        let name = template.metadata.name.as_deref().unwrap_or_default();
        return Stage::Failed(Failure::failed(message).hint(format!("see `kubectl ray build log {name}`")));
    }
    if conditions::is_true(&list, "Ready") {
        return Stage::Done;
    }
    let ready = conditions::find(&list, "Ready");
    Stage::Waiting(ready.map_or_else(
        || "the build has not started".to_owned(),
        |ready| or_reason(&ready.message, &ready.reason),
    ))
}

fn or_reason(message: &str, reason: &str) -> String {
    if message.is_empty() {
        reason.to_owned()
    } else {
        message.to_owned()
    }
}

/// What the build printed last; nothing where it does not run, or its log may not be read.
pub(crate) async fn last_line(connection: &Connection, template: &ImageTemplate) -> Option<String> {
    let status = template.status.as_ref()?;
    if !conditions::is_true(status.conditions.as_deref()?, "Building") {
        return None;
    }
    let job = status.build.as_ref()?.job.as_deref()?;
    let read = async {
        let pods = pods_of(connection, job).await.ok()?;
        let pod = pods.last()?;
        let params = LogParams {
            container: Some(running_container(pod)?),
            tail_lines: Some(1),
            ..LogParams::default()
        };
        let name = pod.metadata.name.as_deref()?;
        visible(&connection.api::<Pod>().logs(name, &params).await.ok()?)
    };
    tokio::time::timeout(LAST_LINES, read).await.ok().flatten()
}

/// The last line as a terminal would show it: the last state of a progress bar, without colours.
fn visible(log: &str) -> Option<String> {
    let line = log.trim_end().rsplit(['\n', '\r']).next()?;
    let mut plain = String::new();
    for (index, part) in line.split("\x1b[").enumerate() {
        // Behind the start of an escape sequence its end is the first letter.
        let text = match part.find(|c: char| c.is_ascii_alphabetic()) {
            Some(end) if index > 0 => part.get(end + 1..).unwrap_or_default(),
            _ => part,
        };
        plain.extend(text.chars().filter(|c| !c.is_control()));
    }
    let plain = plain.trim();
    (!plain.is_empty()).then(|| plain.to_owned())
}

/// Where the log goes.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    Stdout,
    Stderr,
}

/// Writes the log of the current build as it comes, container by container, until the build ends.
pub(crate) async fn follow(connection: &Connection, name: &str, target: Target) -> Result<()> {
    let mut shown = BTreeSet::new();
    loop {
        let template = connection.api::<ImageTemplate>().get(name).await?;
        let job = template
            .status
            .clone()
            .unwrap_or_default()
            .build
            .and_then(|build| build.job);
        if let Some(job) = job {
            for pod in pods_of(connection, &job).await? {
                show_pod(connection, &pod, &mut shown, target).await?;
            }
        }
        if matches!(judge(&template), Stage::Done | Stage::Failed(_)) {
            return Ok(());
        }
        tokio::time::sleep(PERIOD).await;
    }
}

async fn pods_of(connection: &Connection, job: &str) -> Result<Vec<Pod>> {
    let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
    let mut pods = connection.api::<Pod>().list(&of_job).await?.items;
    pods.sort_by_key(|pod| pod.metadata.creation_timestamp.clone().map(|time| time.0));
    Ok(pods)
}

/// Shows each container of the pod once, when it has started, to its end.
async fn show_pod(
    connection: &Connection,
    pod: &Pod,
    shown: &mut BTreeSet<(String, String)>,
    target: Target,
) -> Result<()> {
    let pod_name = pod.metadata.name.clone().unwrap_or_default();
    for container in started_containers(pod) {
        if !shown.insert((pod_name.clone(), container.clone())) {
            continue;
        }
        write(
            target,
            &output::paint(output::Colour::Cyan, &format!("==> {container}")),
        )?;
        let params = LogParams {
            container: Some(container),
            follow: true,
            ..LogParams::default()
        };
        let mut lines = connection
            .api::<Pod>()
            .log_stream(&pod_name, &params)
            .await?
            .lines();
        while let Some(line) = lines.next().await {
            write(target, &line?)?;
        }
    }
    Ok(())
}

fn write(target: Target, line: &str) -> Result<()> {
    match target {
        Target::Stdout => output::line(line),
        Target::Stderr => {
            output::note(line);
            Ok(())
        }
    }
}

/// Names of the containers that run or have run, in the order in which they do.
fn started_containers(pod: &Pod) -> Vec<String> {
    statuses(pod)
        .filter(|c| c.state.as_ref().is_some_and(|state| state.waiting.is_none()))
        .map(|c| c.name.clone())
        .collect()
}

fn running_container(pod: &Pod) -> Option<String> {
    statuses(pod)
        .find(|c| c.state.as_ref().is_some_and(|state| state.running.is_some()))
        .map(|c| c.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(status: serde_json::Value) -> ImageTemplate {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "t", "generation": 2, "annotations": {"templates.ray.io/rebuild": "7"}},
            "spec": {"baseImage": "b"}, "status": status,
        }))
        .unwrap()
    }

    fn condition(type_: &str) -> serde_json::Value {
        serde_json::json!([{"type": type_, "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}])
    }

    #[test]
    fn an_older_ready_does_not_count() {
        for (generation, rebuild) in [(1, "7"), (2, "6")] {
            let status = serde_json::json!({"observedGeneration": generation, "rebuild": rebuild, "conditions": condition("Ready")});
            assert!(matches!(judge(&template(status)), Stage::Waiting(_)));
        }
        let status =
            serde_json::json!({"observedGeneration": 2, "rebuild": "7", "conditions": condition("Ready")});
        assert!(matches!(judge(&template(status)), Stage::Done));
    }

    #[test]
    fn the_last_line_is_shown_as_a_terminal_would() {
        for (log, shown) in [
            ("Collecting numpy\nDownloading numpy\n", Some("Downloading numpy")),
            ("10%\r\x1b[1;36m 55% \x1b[0mof torch", Some("55% of torch")),
            ("\x1b[K\n", None),
            ("", None),
        ] {
            assert_eq!(visible(log).as_deref(), shown, "{log:?}");
        }
    }

    #[test]
    fn a_failure_tells_reason_and_line() {
        let status = serde_json::json!({"observedGeneration": 2, "rebuild": "7", "conditions": condition("Failed"),
            "failure": {"reason": "PipPackageNotFound", "message": "no nmpy"}});
        match judge(&template(status)) {
            Stage::Failed(failure) => assert!(failure.message.contains("PipPackageNotFound: no nmpy")),
            other => panic!("{other:?}"),
        }
    }
}
