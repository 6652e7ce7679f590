use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::ListParams;
use ray_api::expand::Record;
use ray_api::meta::{condition, label};
use ray_api::ray::v1::{ClusterState, RayCluster};
use ray_api::template::v1alpha1::ImageTemplate;

use super::tree::Node;
use crate::connection::Connection;
use crate::error::Result;
use crate::follow::cluster::{Observed, image_templates, judge, observe};
use crate::follow::{Stage, image, pod};
use crate::output;

/// Conditions that tell something only when they are not false.
const TROUBLES: [&str; 6] = [
    condition::SUSPENDED,
    condition::SUSPENDING,
    condition::REPLICA_FAILURE,
    condition::OBJECT_FAILURE,
    condition::UNSUPPORTED_FEATURES,
    condition::SERVE_HEALTH_UNKNOWN,
];

/// The newest event by the uid of the object that it is about.
type LastEvents = BTreeMap<String, Event>;

pub(super) async fn run(connected: &Connection, name: &str) -> Result<()> {
    let observed = observe(connected, name).await?;
    let events = last_events(connected).await?;
    let mut images = Vec::new();
    let api: Api<ImageTemplate> = connected.api();
    for template in image_templates(&observed.cluster) {
        let found = api.get_opt(&template).await?;
        images.push((template, found));
    }
    output::text(&describe(&observed, &events, &images)?.render())
}

/// Without the right to read events the tree goes without.
async fn last_events(connected: &Connection) -> Result<LastEvents> {
    let list = match connected.api::<Event>().list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_forbidden() => return Ok(LastEvents::new()),
        other => other?,
    };
    let mut last = LastEvents::new();
    for event in list.items {
        let Some(uid) = event.involved_object.uid.clone() else {
            continue;
        };
        let newer = last.get(&uid).is_none_or(|known| time(known) <= time(&event));
        if newer {
            last.insert(uid, event);
        }
    }
    Ok(last)
}

fn time(event: &Event) -> Option<k8s_openapi::jiff::Timestamp> {
    let series = event
        .series
        .as_ref()
        .and_then(|series| series.last_observed_time.as_ref())
        .map(|time| time.0);
    let micro = event.event_time.as_ref().map(|time| time.0);
    series
        .or(event.last_timestamp.as_ref().map(|time| time.0))
        .or(micro)
}

fn describe(
    observed: &Observed,
    events: &LastEvents,
    images: &[(String, Option<ImageTemplate>)],
) -> Result<Node> {
    let cluster = &observed.cluster;
    let metadata = &cluster.metadata;
    let place = format!(
        "RayCluster {}/{}",
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default()
    );
    let mut root = Node::new(format!("{place}  {}", headline(observed)));
    conditions(&mut root, cluster);
    if let Some(event) = last_event(events, metadata.uid.as_deref()) {
        root.push(event);
    }
    for (name, template) in images {
        root.push(image_node(name, template.as_ref()));
    }
    let record = Record::of(&serde_json::to_value(cluster)?).unwrap_or_default();
    let computes = record.templates().filter(|id| id.kind != "ImageTemplate");
    let lines = computes.map(|id| {
        let generation = id
            .generation
            .map(|g| format!("  generation {g}"))
            .unwrap_or_default();
        format!("{} {}{generation}", id.kind, id.name)
    });
    // Groups may share a template.
    lines
        .collect::<BTreeSet<_>>()
        .into_iter()
        .for_each(|line| root.push(line));
    let mut head = Node::new("head");
    push_pods(
        &mut head,
        observed.pods.iter().filter(|pod| pod::is_head(pod)),
        events,
    );
    root.push(head);
    for group in &cluster.spec.worker_group_specs {
        let name = &group.group_name;
        let pods: Vec<&Pod> = observed
            .pods
            .iter()
            .filter(|p| !pod::is_head(p) && pod::label(p, label::GROUP) == name)
            .collect();
        let ready = pods.iter().filter(|pod| pod::is_ready(pod)).count();
        let wanted = group.replicas.unwrap_or_default() * group.num_of_hosts.unwrap_or(1).max(1);
        let mut node = Node::new(format!("worker group {name}  {ready}/{wanted} ready"));
        push_pods(&mut node, pods.into_iter(), events);
        root.push(node);
    }
    Ok(root)
}

/// The state, and why it is not `ready`.
fn headline(observed: &Observed) -> String {
    match judge(observed) {
        Stage::Done => ClusterState::Ready.as_str().to_owned(),
        Stage::Waiting(why) => format!("not ready: {why}"),
        Stage::Failed(failure) => format!("FAILED: {}", failure.message),
    }
}

fn conditions(root: &mut Node, cluster: &RayCluster) {
    let conditions = cluster
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let telling =
        |condition: &&Condition| condition.status != "False" || !TROUBLES.contains(&condition.type_.as_str());
    for condition in conditions.into_iter().flatten().filter(telling) {
        let message = if condition.message.is_empty() {
            String::new()
        } else {
            format!(": {}", condition.message)
        };
        root.push(format!(
            "{} {} ({}){message}",
            condition.type_, condition.status, condition.reason
        ));
    }
}

fn image_node(name: &str, template: Option<&ImageTemplate>) -> Node {
    let Some(template) = template else {
        return Node::new(format!("ImageTemplate {name}  does not exist"));
    };
    let state = match image::judge(template) {
        Stage::Done => "ready".to_owned(),
        Stage::Waiting(why) => why,
        Stage::Failed(failure) => failure.message,
    };
    let mut node = Node::new(format!("ImageTemplate {name}  {state}"));
    let built = template
        .status
        .as_ref()
        .and_then(|status| status.image.as_deref());
    node.field("image", built.unwrap_or_default());
    node
}

fn push_pods<'a>(node: &mut Node, pods: impl Iterator<Item = &'a Pod>, events: &LastEvents) {
    for pod in pods {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let why = pod::trouble(pod)
            .map(|why| format!(": {why}"))
            .unwrap_or_default();
        let mut line = Node::new(format!("{name}  {}{why}", pod::phase(pod)));
        if let Some(event) = last_event(events, pod.metadata.uid.as_deref()) {
            line.push(event);
        }
        node.push(line);
    }
}

fn last_event(events: &LastEvents, uid: Option<&str>) -> Option<String> {
    let event = events.get(uid?)?;
    let ago = time(event).map(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time);
    let ago = ago
        .map(|time| format!(", {} ago", crate::cmd::get::age(Some(&time)).text()))
        .unwrap_or_default();
    let message = event.message.as_deref().unwrap_or_default().replace('\n', " ");
    Some(format!(
        "last event: {}: {message}{ago}",
        event.reason.as_deref().unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_refusal_stands_at_the_top() {
        let refused = json!({"type": condition::ACCEPTED, "status": "False", "reason": "InvalidRayClusterSpec",
            "message": "spec.workerGroupSpecs[0].maxReplicas: must be at least minReplicas", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let observed = Observed {
            cluster: serde_json::from_value(json!({
                "metadata": {"name": "demo", "namespace": "ml", "generation": 1}, "spec": {"headGroupSpec": {}},
                "status": {"observedGeneration": 1, "conditions": [refused]}}))
            .unwrap(),
            pods: Vec::new(),
            images: Vec::new(),
        };
        let tree = describe(&observed, &LastEvents::new(), &[]).unwrap().render();
        let top = tree.lines().next().unwrap();
        assert_eq!(
            top,
            "RayCluster ml/demo  FAILED: the operator refuses the cluster: InvalidRayClusterSpec: \
             spec.workerGroupSpecs[0].maxReplicas: must be at least minReplicas"
        );
    }

    #[test]
    fn the_tree_shows_the_reason_first_and_each_pod_under_its_group() {
        let observed = Observed {
            cluster: serde_json::from_value(json!({
                "metadata": {"name": "demo", "namespace": "ml", "generation": 1},
                "spec": {"headGroupSpec": {}, "workerGroupSpecs": [{"groupName": "gpu", "replicas": 1}]},
                "status": {"observedGeneration": 1, "conditions": [
                    {"type": "HeadPodReady", "status": "True", "reason": "HeadPodRunningAndReady", "message": "",
                     "lastTransitionTime": "2026-01-01T00:00:00Z"},
                    {"type": "RayClusterSuspended", "status": "False", "reason": "RayClusterSuspended", "message": "",
                     "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            }))
            .unwrap(),
            pods: serde_json::from_value(json!([
                {"metadata": {"name": "demo-head-x", "uid": "1", "labels": {"ray.io/node-type": "head"}},
                 "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
                {"metadata": {"name": "demo-gpu-y", "uid": "2", "labels": {"ray.io/node-type": "worker", "ray.io/group": "gpu"}},
                 "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
                    "reason": "Unschedulable", "message": "no GPU"}]}},
            ]))
            .unwrap(),
            images: Vec::new(),
        };
        let event: Event = serde_json::from_value(json!({
            "metadata": {}, "involvedObject": {"uid": "2"}, "reason": "FailedScheduling", "message": "0/1 nodes"}))
        .unwrap();
        let tree = describe(&observed, &[("2".to_owned(), event)].into(), &[])
            .unwrap()
            .render();
        insta::assert_snapshot!(tree, @r#"
    RayCluster ml/demo  not ready: 1 of 2 pods are ready; demo-gpu-y Unschedulable: no GPU
    ├─ HeadPodReady True (HeadPodRunningAndReady)
    ├─ head
    │  └─ demo-head-x  Running
    └─ worker group gpu  0/1 ready
       └─ demo-gpu-y  Pending: Unschedulable: no GPU
          └─ last event: FailedScheduling: 0/1 nodes
"#);
    }
}
