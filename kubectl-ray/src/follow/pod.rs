//! Why a pod is not ready, in one line.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use ray_api::meta::{NODE_TYPE_HEAD, label};

/// The label's value, or nothing.
pub(crate) fn label<'a>(pod: &'a Pod, key: &str) -> &'a str {
    let labels = pod.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(key))
        .map_or("", String::as_str)
}

/// Whether this is a head pod.
pub(crate) fn is_head(pod: &Pod) -> bool {
    label(pod, label::NODE_TYPE) == NODE_TYPE_HEAD
}

/// Whether the pod runs and is ready, and is not on its way out.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.is_some_and(|c| c.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
}

/// `Running`, `Pending`, `CrashLoopBackOff`, … as kubectl's STATUS column says.
pub(crate) fn phase(pod: &Pod) -> String {
    if pod.metadata.deletion_timestamp.is_some() {
        return "Terminating".to_owned();
    }
    let Some(status) = &pod.status else {
        return "Pending".to_owned();
    };
    let waiting =
        statuses(pod).find_map(|container| container.state.as_ref()?.waiting.as_ref()?.reason.clone());
    waiting
        .filter(|reason| reason != "PodInitializing")
        .or_else(|| status.reason.clone())
        .or_else(|| status.phase.clone())
        .unwrap_or_else(|| "Pending".to_owned())
}

/// Why the pod is not ready; None where it is.
pub(crate) fn trouble(pod: &Pod) -> Option<String> {
    if is_ready(pod) {
        return None;
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return Some("is being deleted".to_owned());
    }
    let status = pod.status.as_ref();
    Some(
        unschedulable(pod)
            .or_else(|| statuses(pod).find_map(container_trouble))
            .or_else(|| status.and_then(|s| with_message(s.reason.as_deref()?, s.message.as_deref())))
            .unwrap_or_else(|| plain_phase(pod)),
    )
}

/// The containers in the order in which they run.
pub(super) fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    let init = status.and_then(|s| s.init_container_statuses.as_ref());
    let main = status.and_then(|s| s.container_statuses.as_ref());
    init.into_iter().flatten().chain(main.into_iter().flatten())
}

fn unschedulable(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let scheduled = conditions
        .iter()
        .find(|c| c.type_ == "PodScheduled" && c.status == "False")?;
    with_message(scheduled.reason.as_deref()?, scheduled.message.as_deref())
}

fn container_trouble(container: &ContainerStatus) -> Option<String> {
    let state = container.state.as_ref()?;
    if let Some(waiting) = &state.waiting {
        let reason = waiting.reason.as_deref()?;
        if matches!(reason, "PodInitializing" | "ContainerCreating") {
            return None;
        }
        let last = container
            .last_state
            .as_ref()
            .and_then(|last| last.terminated.as_ref());
        let message = waiting.message.clone().or_else(|| {
            let ended = last?;
            Some(format!("exit code {}", ended.exit_code))
        });
        return with_message(reason, message.as_deref()).map(|text| format!("{}: {text}", container.name));
    }
    let ended = state.terminated.as_ref().filter(|ended| ended.exit_code != 0)?;
    let reason = ended.reason.as_deref().unwrap_or("Error");
    let message = ended
        .message
        .clone()
        .unwrap_or_else(|| format!("exit code {}", ended.exit_code));
    with_message(reason, Some(&message)).map(|text| format!("{}: {text}", container.name))
}

fn plain_phase(pod: &Pod) -> String {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let initializing = statuses(pod).any(|container| {
        let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
        waiting.and_then(|w| w.reason.as_deref()) == Some("PodInitializing")
    });
    match phase {
        Some("Running") => format!("runs, but is not ready yet{}", restarts(pod)),
        _ if initializing => "is initialising".to_owned(),
        Some("Pending") | None => "is being started".to_owned(),
        Some(other) => other.to_owned(),
    }
}

/// How often the container that is not ready began anew, and how it ended last.
fn restarts(pod: &Pod) -> String {
    let restarted = statuses(pod).find(|container| !container.ready && container.restart_count > 0);
    let Some(container) = restarted else {
        return String::new();
    };
    let times = match container.restart_count {
        1 => "once".to_owned(),
        many => format!("{many} times"),
    };
    let last = container
        .last_state
        .as_ref()
        .and_then(|last| last.terminated.as_ref());
    let ended = last.map(|ended| {
        let reason = ended.reason.as_deref().unwrap_or("Error");
        format!(", last ended by {reason} (exit code {})", ended.exit_code)
    });
    format!(
        "; {} was restarted {times}{}",
        container.name,
        ended.unwrap_or_default()
    )
}

fn with_message(reason: &str, message: Option<&str>) -> Option<String> {
    Some(
        match message.map(str::trim).filter(|message| !message.is_empty()) {
            Some(message) => format!("{reason}: {}", message.replace('\n', " ")),
            None => reason.to_owned(),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble_of(status: serde_json::Value) -> Option<String> {
        trouble(&serde_json::from_value(serde_json::json!({"status": status})).unwrap())
    }

    #[test]
    fn the_reason_comes_from_where_the_pod_is_stuck() {
        let text = |status| trouble_of(status).unwrap();
        let unschedulable = serde_json::json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: Insufficient cpu"}]});
        assert_eq!(text(unschedulable), "Unschedulable: 0/1 nodes: Insufficient cpu");
        let pull = serde_json::json!({"phase": "Pending", "containerStatuses": [{"name": "ray-head", "ready": false,
            "restartCount": 0, "image": "", "imageID": "",
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such tag"}}}]});
        assert_eq!(text(pull), "ray-head: ImagePullBackOff: no such tag");
        let crash = serde_json::json!({"phase": "Running", "containerStatuses": [{"name": "ray-head", "ready": false,
            "restartCount": 3, "image": "", "imageID": "",
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]});
        assert_eq!(text(crash), "ray-head: CrashLoopBackOff: exit code 137");
        assert_eq!(
            text(serde_json::json!({"phase": "Failed", "reason": "Evicted", "message": "disk"})),
            "Evicted: disk"
        );
        assert_eq!(
            text(serde_json::json!({"phase": "Running"})),
            "runs, but is not ready yet"
        );
        let restarted = serde_json::json!({"phase": "Running", "containerStatuses": [{"name": "ray-head", "ready": false,
            "restartCount": 2, "image": "", "imageID": "", "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]});
        assert_eq!(
            text(restarted),
            "runs, but is not ready yet; ray-head was restarted 2 times, last ended by OOMKilled (exit code 137)"
        );
    }

    #[test]
    fn a_ready_pod_is_no_trouble() {
        let ready =
            serde_json::json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        assert_eq!(trouble_of(ready), None);
    }
}
