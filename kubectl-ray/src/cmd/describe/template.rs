use kube::Api;
use ray_api::template::v1alpha1::{
    ClusterComputeTemplate, ComputeTemplate, ComputeTemplateStatus, ImageTemplate, UsedBy,
};
use serde_json::Value;

use super::tree::Node;
use crate::connection::Connection;
use crate::error::Result;
use crate::follow::{Stage, image as follow_image};
use crate::output;

pub(super) async fn image(connected: &Connection, name: &str) -> Result<()> {
    let template = connected.api::<ImageTemplate>().get(name).await?;
    output::text(&image_tree(&template).render())
}

fn image_tree(template: &ImageTemplate) -> Node {
    let state = match follow_image::judge(template) {
        Stage::Done => "ready".to_owned(),
        Stage::Waiting(why) => format!("not ready: {why}"),
        Stage::Failed(failure) => format!("FAILED: {}", failure.message),
    };
    let metadata = &template.metadata;
    let mut root = Node::new(format!(
        "ImageTemplate {}/{}  {state}",
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default()
    ));
    let spec = &template.spec;
    let mut inputs = Node::new(format!("from {}", spec.base_image));
    inputs.field("pip", &spec.pip_packages.join(", "));
    inputs.field("conda", &spec.conda_packages.join(", "));
    inputs.field("system", &spec.system_packages.join(", "));
    let variables: Vec<_> = spec.environment_variables.keys().map(String::as_str).collect();
    inputs.field("environment", &variables.join(", "));
    spec.custom_commands
        .iter()
        .for_each(|command| inputs.field("command", command.lines().next().unwrap_or_default()));
    root.push(inputs);
    let status = template.status.clone().unwrap_or_default();
    if let Some(built) = &status.image {
        let mut node = Node::new(format!("image {built}"));
        node.field("tags", &status.tags.join(", "));
        node.field("Ray", status.ray_version.as_deref().unwrap_or_default());
        node.field("Python", status.python_version.as_deref().unwrap_or_default());
        root.push(node);
    }
    if let Some(failure) = &status.failure {
        let mut node = Node::new(format!("{:?}: {}", failure.reason, failure.message));
        failure
            .log_tail
            .iter()
            .flat_map(|tail| tail.lines())
            .for_each(|line| node.push(line));
        root.push(node);
    }
    let mut builds = Node::new("builds");
    for build in &status.history {
        builds.push(format!(
            "{}  {}  {}",
            build.number,
            build.result,
            build.image.as_deref().unwrap_or_default()
        ));
    }
    if !status.history.is_empty() {
        root.push(builds);
    }
    push_users(&mut root, status.used_by.as_ref());
    root
}

/// The template of the namespace goes before the one of all namespaces.
pub(super) async fn compute(connected: &Connection, name: &str) -> Result<()> {
    if let Some(template) = connected.api::<ComputeTemplate>().get_opt(name).await? {
        let title = format!("ComputeTemplate {}/{name}", connected.namespace);
        let spec = serde_json::to_value(&template.spec)?;
        return output::text(&compute_tree(&title, &spec, template.status.as_ref()).render());
    }
    let api: Api<ClusterComputeTemplate> = Api::all(connected.client.clone());
    let template = api.get(name).await?;
    let spec = serde_json::to_value(&template.spec)?;
    output::text(
        &compute_tree(
            &format!("ClusterComputeTemplate {name}"),
            &spec,
            template.status.as_ref(),
        )
        .render(),
    )
}

fn compute_tree(title: &str, spec: &Value, status: Option<&ComputeTemplateStatus>) -> Node {
    let conditions = status
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default();
    let broken = conditions
        .iter()
        .find(|c| c.type_ == "Ready" && c.status == "False");
    let state = broken
        .map(|c| format!("  NOT READY: {}: {}", c.reason, c.message))
        .unwrap_or_default();
    let mut root = Node::new(format!("{title}{state}"));
    push_value(&mut root, spec);
    if let Some(stale) = status.and_then(|status| status.stale).filter(|stale| *stale > 0) {
        root.push(format!(
            "{stale} clusters run on an older generation (`kubectl ray refresh cluster`)"
        ));
    }
    push_users(&mut root, status.and_then(|status| status.used_by.as_ref()));
    root
}

/// Fields as a tree; small values in one line.
fn push_value(node: &mut Node, value: &Value) {
    let Value::Object(fields) = value else { return };
    for (name, value) in fields {
        match value {
            Value::Object(_) => {
                let mut child = Node::new(name.clone());
                push_value(&mut child, value);
                node.push(child);
            }
            Value::String(text) => node.field(name, text),
            other => node.field(name, &other.to_string()),
        }
    }
}

fn push_users(root: &mut Node, used_by: Option<&UsedBy>) {
    let Some(used) = used_by.filter(|used| used.clusters > 0) else {
        return;
    };
    let more = used.clusters - i32::try_from(used.names.len()).unwrap_or(i32::MAX);
    let more = if more > 0 {
        format!(", and {more} more")
    } else {
        String::new()
    };
    root.push(format!(
        "used by {} clusters: {}{more}",
        used.clusters,
        used.names.join(", ")
    ));
}
