//! The writes of the image controller.

use std::fmt::Debug;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Client, Resource, ResourceExt};
use ray_api::meta::manager;
use ray_api::template::v1alpha1::{ImageTemplate, ImageTemplateStatus};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::timeout;

use super::Error;
use super::args::ImageArgs;
use super::attempt::{Identity, STOPPED, StopReason, Stopped};
use super::build;
use super::observe::REQUEST_TIMEOUT;
use super::phase::Action;
use super::plan::Plan;
use super::status::Notice;
use super::wanted::Wanted;

/// Carries out a plan's actions, in order; the first failure ends it, and the next reconcile goes on from there.
pub(super) async fn execute(
    client: &Client,
    template: &ImageTemplate,
    wanted: Option<&Wanted>,
    plan: &Plan,
    args: &ImageArgs,
) -> Result<(), Error> {
    let namespace = template.namespace().unwrap_or_default();
    let jobs: Api<Job> = Api::namespaced(client.clone(), &namespace);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    for action in &plan.actions {
        match (action, wanted) {
            (Action::Start(identity), Some(wanted)) => {
                create(&maps, &build::config_map(template, wanted, identity, args)).await?;
                start(
                    &jobs,
                    &build::build_job(template, wanted, identity, args),
                    identity,
                )
                .await?;
            }
            (Action::Verify(identity), Some(wanted)) => {
                start(&jobs, &build::verify_job(template, wanted, identity), identity).await?;
            }
            // Nothing is started for a template that is refused.
            (Action::Start(_) | Action::Verify(_), None) => {}
            (Action::Stop(job, why), _) => stop(&jobs, job, why).await?,
            (Action::Delete(job), _) => {
                delete(&maps, job).await?;
                delete(&jobs, job).await?;
            }
            (Action::DeleteConfigMap(name), _) => delete(&maps, name).await?,
        }
    }
    Ok(())
}

async fn start(jobs: &Api<Job>, job: &Job, identity: &Identity) -> Result<(), Error> {
    create(jobs, job).await?;
    tracing::info!(
        job = job.name_any(),
        number = identity.number,
        attempt = identity.attempt,
        "job created"
    );
    Ok(())
}

/// Creates an object whose name says what it holds: one that is there already is the same.
async fn create<K>(api: &Api<K>, object: &K) -> Result<(), Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let params = PostParams {
        field_manager: Some(manager::IMAGE.to_owned()),
        ..PostParams::default()
    };
    match request(api.create(&params, object)).await {
        Err(Error::Kube(kube::Error::Api(status))) if status.is_already_exists() => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Suspends a Job, which ends its pod, and writes down why. The Job stays as the record of it.
async fn stop(jobs: &Api<Job>, name: &str, why: &StopReason) -> Result<(), Error> {
    let stopped = Stopped {
        time: k8s_openapi::jiff::Timestamp::now(),
        why: why.clone(),
    };
    let text = serde_json::to_string(&stopped).unwrap_or_default();
    let patch = json!({"metadata": {"annotations": {STOPPED: text}}, "spec": {"suspend": true}});
    let params = PatchParams {
        field_manager: Some(manager::IMAGE.to_owned()),
        ..PatchParams::default()
    };
    match request(jobs.patch(name, &params, &Patch::Merge(patch))).await {
        Err(Error::Kube(kube::Error::Api(status))) if status.is_not_found() => Ok(()),
        other => {
            tracing::info!(job = name, ?why, "job stopped");
            other.map(|_| ())
        }
    }
}

async fn delete<K>(api: &Api<K>, name: &str) -> Result<(), Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    match request(api.delete(name, &DeleteParams::background())).await {
        Err(Error::Kube(kube::Error::Api(status))) if status.is_not_found() => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Applies the status where it says something new; returns whether it did.
pub(super) async fn write_status(
    client: &Client,
    template: &ImageTemplate,
    status: &ImageTemplateStatus,
) -> Result<bool, Error> {
    if template.status.as_ref() == Some(status) {
        return Ok(false);
    }
    // `usedBy` is the template controller's: applying it would take it over.
    let own = ImageTemplateStatus {
        used_by: None,
        ..status.clone()
    };
    let name = template.name_any();
    let patch = json!({
        "apiVersion": ImageTemplate::api_version(&()),
        "kind": ImageTemplate::kind(&()),
        // The uid keeps a status from landing on a successor of the same name.
        "metadata": {"name": name, "uid": template.uid()},
        "status": own,
    });
    let api: Api<ImageTemplate> = Api::namespaced(client.clone(), &template.namespace().unwrap_or_default());
    request(api.patch_status(
        &name,
        &PatchParams::apply(manager::IMAGE).force(),
        &Patch::Apply(patch),
    ))
    .await?;
    Ok(true)
}

/// Publishes events; one that is lost is logged and missed by nobody's logic.
pub(super) async fn publish(recorder: &Recorder, template: &ImageTemplate, notices: Vec<Notice>) {
    let reference = template.object_ref(&());
    for notice in notices {
        tracing::info!(
            name = template.name_any(),
            reason = notice.reason,
            note = notice.note,
            "image"
        );
        let event = Event {
            type_: if notice.is_warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: notice.reason,
            // The API's limit is 1 KiB.
            note: Some(notice.note.chars().take(1000).collect()),
            action: "Build".to_owned(),
            secondary: None,
        };
        if let Err(error) = recorder.publish(&event, &reference).await {
            tracing::warn!(%error, "an event was lost");
        }
    }
}

async fn request<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    Ok(timeout(REQUEST_TIMEOUT, call)
        .await
        .map_err(|_| Error::TimedOut)??)
}
