//! When a Ray cluster is ready, and what it waits for until then.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::ListParams;
use ray_api::conditions;
use ray_api::meta::{annotation, condition, label};
use ray_api::ray::v1::{ClusterState, RayCluster};
use ray_api::template::v1alpha1::ImageTemplate;

use super::{Stage, pod, until};
use crate::connection::Connection;
use crate::error::{Failure, Result};
use crate::output;

/// What a judgement is made from.
pub(crate) struct Observed {
    pub(crate) cluster: RayCluster,
    pub(crate) pods: Vec<Pod>,
    /// The ImageTemplates that a gated cluster names.
    pub(crate) images: Vec<Image>,
}

/// An image that is waited for.
pub(crate) struct Image {
    pub(crate) name: String,
    /// None where it does not exist.
    pub(crate) template: Option<ImageTemplate>,
    /// What its build printed last.
    pub(crate) last_line: Option<String>,
}

/// Waits until the cluster is ready.
pub(crate) async fn wait(connection: &Connection, name: &str, limit: Duration) -> Result<()> {
    let what = format!("RayCluster `{name}`");
    let done = until(&what, limit, || async move {
        Ok(judge(&observe(connection, name).await?))
    })
    .await;
    done.map_err(|failure| match failure.hint {
        Some(_) => failure,
        None => failure.hint(format!(
            "see `kubectl ray describe cluster {name} -n {}`",
            connection.namespace
        )),
    })?;
    output::note(&format!(
        "{} {what}",
        output::paint(output::Colour::Green, "ready:")
    ));
    Ok(())
}

/// Reads a cluster and what belongs to it.
pub(crate) async fn observe(connection: &Connection, name: &str) -> Result<Observed> {
    let cluster = connection.api::<RayCluster>().get(name).await?;
    let of_cluster = ListParams::default().labels(&format!("{}={name}", label::CLUSTER));
    let pods = connection.api::<Pod>().list(&of_cluster).await?.items;
    let mut images = Vec::new();
    if is_gated(&cluster) {
        let templates: Api<ImageTemplate> = connection.api();
        for name in image_templates(&cluster) {
            let template = templates.get_opt(&name).await?;
            let last_line = match &template {
                Some(template) => super::image::last_line(connection, template).await,
                None => None,
            };
            images.push(Image {
                name,
                template,
                last_line,
            });
        }
    }
    Ok(Observed {
        cluster,
        pods,
        images,
    })
}

/// Whether the cluster waits for an image.
pub(crate) fn is_gated(cluster: &RayCluster) -> bool {
    cluster
        .metadata
        .labels
        .as_ref()
        .is_some_and(|labels| labels.contains_key(label::GATED))
}

/// Names of the ImageTemplates that the cluster refers to, by field or by annotation.
pub(crate) fn image_templates(cluster: &RayCluster) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let spec = &cluster.spec;
    let annotated = |annotations: Option<&std::collections::BTreeMap<String, String>>| {
        annotations
            .and_then(|annotations| annotations.get(annotation::IMAGE_TEMPLATE))
            .cloned()
    };
    let of_template = |template: &Option<k8s_openapi::api::core::v1::PodTemplateSpec>| {
        annotated(
            template
                .as_ref()
                .and_then(|t| t.metadata.as_ref())
                .and_then(|m| m.annotations.as_ref()),
        )
    };
    let head = &spec.head_group_spec;
    names.extend(spec.image_template.clone());
    names.extend(annotated(cluster.metadata.annotations.as_ref()));
    names.extend(
        head.image_template
            .clone()
            .or_else(|| of_template(&head.template)),
    );
    for group in &spec.worker_group_specs {
        names.extend(
            group
                .image_template
                .clone()
                .or_else(|| of_template(&group.template)),
        );
    }
    names.sort();
    names.dedup();
    names
}

/// Whether the cluster is ready, will be, or cannot be.
pub(crate) fn judge(observed: &Observed) -> Stage {
    let cluster = &observed.cluster;
    if cluster.metadata.deletion_timestamp.is_some() {
        return Stage::Failed(Failure::failed("the RayCluster is being deleted"));
    }
    let status = cluster.status.clone().unwrap_or_default();
    let list = status.conditions.clone().unwrap_or_default();
    let current = cluster.metadata.generation.unwrap_or_default();
    if let Some(refused) = refused(&list, current) {
        return Stage::Failed(Failure::failed(format!(
            "the operator refuses the cluster: {}: {}",
            refused.reason, refused.message
        )));
    }
    if is_gated(cluster) {
        return judge_images(&observed.images);
    }
    if cluster.spec.suspend == Some(true) {
        return Stage::Waiting("suspended (spec.suspend is true)".to_owned());
    }
    let seen = status
        .observed_generation
        .is_some_and(|generation| generation >= current);
    // The state stays `ready` while a group grows or shrinks.
    let settled = status.ready_worker_replicas.unwrap_or_default()
        == status.desired_worker_replicas.unwrap_or_default();
    let ready = status.state == Some(ClusterState::Ready) && settled;
    if seen && ready && !conditions::is_true(&list, condition::SUSPENDED) {
        return Stage::Done;
    }
    Stage::Waiting(waiting_for(observed, &list, seen))
}

/// The operator's refusal of this generation: a newer one it may not have looked at yet.
fn refused(conditions: &[Condition], current: i64) -> Option<&Condition> {
    conditions::find(conditions, condition::ACCEPTED)
        .filter(|accepted| accepted.status == "False")
        .filter(|accepted| accepted.observed_generation.is_none_or(|seen| seen >= current))
}

fn judge_images(images: &[Image]) -> Stage {
    for image in images {
        let name = &image.name;
        let Some(template) = &image.template else {
            return Stage::Waiting(format!("ImageTemplate `{name}` does not exist yet"));
        };
        match super::image::judge(template) {
            Stage::Done => {}
            Stage::Waiting(why) => {
                let line = image.last_line.as_ref().map(|line| format!(": {line}"));
                return Stage::Waiting(format!(
                    "ImageTemplate `{name}`: {why}{}",
                    line.unwrap_or_default()
                ));
            }
            Stage::Failed(failure) => {
                return Stage::Failed(failure.hint(format!("see `kubectl ray build log {name}`")));
            }
        }
    }
    Stage::Waiting("the image is ready; the cluster is about to start".to_owned())
}

/// Pods that cannot be created, else the first pod in trouble, the head before the workers.
fn waiting_for(observed: &Observed, list: &[Condition], seen: bool) -> String {
    if !seen && observed.pods.is_empty() {
        return "no operator has looked at it yet".to_owned();
    }
    let mut pods: Vec<&Pod> = observed.pods.iter().collect();
    pods.sort_by_key(|pod| (!pod::is_head(pod), pod.metadata.name.clone()));
    let troubled: Vec<_> = pods
        .iter()
        .filter_map(|pod| Some((*pod, pod::trouble(pod)?)))
        .collect();
    let ready = pods.len() - troubled.len();
    let progress = format!(
        "{ready} of {} pods are ready",
        desired_pods(&observed.cluster).max(pods.len())
    );
    let failure = conditions::find(list, condition::REPLICA_FAILURE).filter(|c| c.status == "True");
    if let Some(failure) = failure {
        return format!("{progress}; {}: {}", failure.reason, failure.message);
    }
    match troubled.first() {
        None if pods.is_empty() => "no pod yet".to_owned(),
        None => progress,
        Some((pod, why)) => {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            format!("{progress}; {name} {why}")
        }
    }
}

fn desired_pods(cluster: &RayCluster) -> usize {
    let groups = cluster.spec.worker_group_specs.iter();
    let workers: usize = groups
        .map(|group| {
            let at_least_one = |n: Option<i32>| usize::try_from(n.unwrap_or(1)).unwrap_or(0).max(1);
            usize::try_from(group.replicas.unwrap_or(0)).unwrap_or(0) * at_least_one(group.num_of_hosts)
        })
        .sum();
    workers + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(cluster: serde_json::Value, pods: serde_json::Value) -> Observed {
        Observed {
            cluster: serde_json::from_value(cluster).unwrap(),
            pods: serde_json::from_value(pods).unwrap(),
            images: Vec::new(),
        }
    }

    fn cluster(status: serde_json::Value) -> serde_json::Value {
        serde_json::json!({
            "metadata": {"name": "a", "generation": 2},
            "spec": {"headGroupSpec": {}, "workerGroupSpecs": [{"groupName": "g", "replicas": 2}]},
            "status": status,
        })
    }

    fn waiting(stage: &Stage) -> &str {
        match stage {
            Stage::Waiting(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn ready_counts_only_for_the_newest_generation() {
        let old = cluster(serde_json::json!({"state": "ready", "observedGeneration": 1}));
        assert!(matches!(
            judge(&observed(old, serde_json::json!([]))),
            Stage::Waiting(_)
        ));
        let new = cluster(serde_json::json!({"state": "ready", "observedGeneration": 2}));
        assert!(matches!(
            judge(&observed(new, serde_json::json!([]))),
            Stage::Done
        ));
    }

    #[test]
    fn a_group_that_grows_or_shrinks_is_waited_for() {
        for (ready, done) in [(1, false), (2, true), (3, false)] {
            let status = serde_json::json!({"state": "ready", "observedGeneration": 2,
                "desiredWorkerReplicas": 2, "readyWorkerReplicas": ready});
            let stage = judge(&observed(cluster(status), serde_json::json!([])));
            assert_eq!(matches!(stage, Stage::Done), done, "{ready} ready");
        }
    }

    #[test]
    fn the_head_is_looked_at_first() {
        let pods = serde_json::json!([
            {"metadata": {"name": "w", "labels": {"ray.io/node-type": "worker"}}, "status": {"phase": "Pending"}},
            {"metadata": {"name": "h", "labels": {"ray.io/node-type": "head"}}, "status": {"phase": "Running"}},
        ]);
        let stage = judge(&observed(
            cluster(serde_json::json!({"observedGeneration": 2})),
            pods,
        ));
        assert_eq!(
            waiting(&stage),
            "0 of 3 pods are ready; h runs, but is not ready yet"
        );
    }

    fn condition(type_: &str, status: &str, reason: &str, message: &str) -> serde_json::Value {
        serde_json::json!({"type": type_, "status": status, "reason": reason, "message": message,
            "observedGeneration": 2, "lastTransitionTime": "2026-01-01T00:00:00Z"})
    }

    #[test]
    fn a_refused_cluster_is_a_failure_with_the_operators_words() {
        use ray_api::validate::Class;
        let classes = [Class::Metadata, Class::Spec, Class::Status].map(Class::reason);
        for reason in classes.into_iter().chain(["ImageMissing"]) {
            let refused = condition(condition::ACCEPTED, "False", reason, "two heads");
            let status = serde_json::json!({"observedGeneration": 2, "conditions": [refused]});
            let mut object = cluster(status);
            match judge(&observed(object.clone(), serde_json::json!([]))) {
                Stage::Failed(failure) => assert_eq!(
                    failure.message,
                    format!("the operator refuses the cluster: {reason}: two heads")
                ),
                other => panic!("{other:?}"),
            }
            // What was refused is not what stands there now.
            object["metadata"]["generation"] = 3.into();
            assert_eq!(
                waiting(&judge(&observed(object, serde_json::json!([])))),
                "no operator has looked at it yet"
            );
        }
    }

    #[test]
    fn pods_that_cannot_be_created_are_told_before_those_that_are_there() {
        let quota = "pods \"a-g-worker-x\" is forbidden: exceeded quota: gpus, requested: nvidia.com/gpu=1";
        let failure = condition(condition::REPLICA_FAILURE, "True", "FailedCreate", quota);
        let status = serde_json::json!({"observedGeneration": 2, "conditions": [failure]});
        let head = serde_json::json!([
            {"metadata": {"name": "h", "labels": {"ray.io/node-type": "head"}}, "status": {"phase": "Pending"}}]);
        for pods in [serde_json::json!([]), head] {
            assert_eq!(
                waiting(&judge(&observed(cluster(status.clone()), pods))),
                format!("0 of 3 pods are ready; FailedCreate: {quota}")
            );
        }
    }

    #[test]
    fn a_gated_cluster_waits_for_its_image_and_fails_with_it() {
        let mut gated = cluster(serde_json::json!({}));
        gated["metadata"]["labels"] = serde_json::json!({"templates.ray.io/gated": "true"});
        gated["spec"]["imageTemplate"] = "torch".into();
        let mut observed = observed(gated, serde_json::json!([]));
        assert_eq!(image_templates(&observed.cluster), ["torch"]);
        let image = |template: Option<serde_json::Value>, line: Option<&str>| Image {
            name: "torch".into(),
            template: template.map(|template| serde_json::from_value(template).unwrap()),
            last_line: line.map(str::to_owned),
        };
        observed.images = vec![image(None, None)];
        assert_eq!(
            waiting(&judge(&observed)),
            "ImageTemplate `torch` does not exist yet"
        );
        let template = |type_: &str, message: &str| {
            serde_json::json!({
                "metadata": {"name": "torch", "generation": 2}, "spec": {"baseImage": "b"},
                "status": {"observedGeneration": 2, "conditions": [condition(type_, "True", "R", message)]},
            })
        };
        let building = template("Building", "installing packages");
        observed.images = vec![image(Some(building), Some("Collecting torch==2.9.0"))];
        assert_eq!(
            waiting(&judge(&observed)),
            "ImageTemplate `torch`: installing packages: Collecting torch==2.9.0"
        );
        observed.images = vec![image(Some(template("Failed", "no nmpy")), None)];
        assert!(matches!(judge(&observed), Stage::Failed(_)));
    }
}
