//! The image controller: ImageTemplate → Job → registry → `status.image`.
//!
//! ```text
//!   wanted    spec + policy            → Dockerfile, hash, target     (pure, ray_api::image)
//!   observe   Jobs, pods, events       → attempts and how far each is (reads)
//!   plan      both, and the time       → actions, status              (pure)
//!   execute   actions                  → Jobs and ConfigMaps          (writes)
//!   status    what has turned          → status, events               (writes)
//! ```
//!
//! Jobs carry everything that the status says about builds, so a restart at any point loses and repeats nothing.

mod args;
mod attempt;
mod build;
mod credentials;
mod execute;
mod observe;
mod phase;
mod plan;
mod pod;
mod progress;
mod share;
mod status;
#[cfg(test)]
mod tests;
mod wanted;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::Api;
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Client, ResourceExt};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use ray_api::image::Policy;
use ray_api::meta::{annotation, label, manager};
use ray_api::template::v1alpha1::{ImageTemplate, ImageTemplateStatus};
use tokio_util::sync::CancellationToken;

pub use args::{BuilderFlavor, ImageArgs, RegistryCertificate};

use crate::shared::{Shared, lock};
use observe::Observed;
use phase::Phase;
use plan::Plan;
use share::Begun;
use wanted::{Refusal, Wanted};

/// Templates that are reconciled at the same time.
const CONCURRENCY: u16 = 16;
/// First and longest wait after a failed reconcile.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The API server said no, or nothing.
    #[error(transparent)]
    Kube(#[from] kube::Error),
    /// The API server did not answer in time.
    #[error("the API server did not answer in time")]
    TimedOut,
}

impl Error {
    /// What the API server says against the request itself; asked again unchanged, it says the same.
    fn refusal(&self) -> Option<&str> {
        match self {
            Self::Kube(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
                Some(&status.message)
            }
            _ => None,
        }
    }
}

/// Metrics of the image controller.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    ended: Family<Ended, Counter>,
}

/// How a build ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    result: String,
}

impl Metrics {
    /// Adds them to the registry.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "ray_image_builds",
            "Image builds that ended, by result",
            metrics.ended.clone(),
        );
        metrics
    }
}

/// What every reconcile gets.
struct Context {
    client: Client,
    recorder: Recorder,
    args: ImageArgs,
    policy: Policy,
    metrics: Metrics,
    templates: Store<ImageTemplate>,
    begun: Mutex<Begun>,
    failures: Mutex<HashMap<ObjectRef<ImageTemplate>, u32>>,
}

/// Runs until `shutdown`.
///
/// # Errors
/// Never by itself: what fails is tried again.
pub async fn run(
    shared: Shared,
    args: ImageArgs,
    metrics: Metrics,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let reporter = Reporter {
        controller: manager::IMAGE.into(),
        instance: Some(shared.instance.clone()),
    };
    let recorder = Recorder::new(shared.client.clone(), reporter);
    let templates = shared.scope.apis::<ImageTemplate>(&shared.client);
    let jobs = shared.scope.apis::<Job>(&shared.client);
    let pods = shared.scope.apis::<Pod>(&shared.client);
    let scopes = templates
        .into_iter()
        .zip(jobs)
        .zip(pods)
        .map(|((templates, jobs), pods)| {
            let controller = controller(templates, jobs, pods, shutdown.clone());
            let context = Context {
                client: shared.client.clone(),
                recorder: recorder.clone(),
                policy: args.policy.clone().into(),
                args: args.clone(),
                metrics: metrics.clone(),
                templates: controller.store(),
                begun: Mutex::default(),
                failures: Mutex::default(),
            };
            controller
                .run(reconcile, error_policy, Arc::new(context))
                .for_each(|result| async move {
                    if let Err(error) = result {
                        // Reconciles log their own errors; the rest are watches that start again, and objects that are gone.
                        tracing::debug!(%error, "image controller");
                    }
                })
        });
    futures::future::join_all(scopes).await;
    Ok(())
}

fn controller(
    templates: Api<ImageTemplate>,
    jobs: Api<Job>,
    pods: Api<Pod>,
    shutdown: CancellationToken,
) -> Controller<ImageTemplate> {
    let ours = || ray_runtime::watch::config().labels(label::IMAGE_TEMPLATE);
    Controller::new(templates, ray_runtime::watch::config())
        .with_config(Config::default().concurrency(CONCURRENCY))
        .owns(jobs, ours())
        .watches(pods, ours(), |pod| {
            let name = pod.annotations().get(annotation::IMAGE_TEMPLATE)?;
            Some(ObjectRef::new(name).within(&pod.namespace()?))
        })
        .graceful_shutdown_on(shutdown.cancelled_owned())
}

async fn reconcile(template: Arc<ImageTemplate>, context: Arc<Context>) -> Result<Action, Error> {
    if template.metadata.deletion_timestamp.is_some() {
        // Owner references take everything along.
        return Ok(Action::await_change());
    }
    let now = Timestamp::now();
    let wanted = wanted::wanted(&template, &context.policy);
    let mut observed = observe::observe(&context.client, &template, now).await?;
    let plan = decide(&template, wanted.as_ref(), &mut observed, &context, now);
    let done = execute::execute(
        &context.client,
        &template,
        wanted.as_ref().ok(),
        &plan,
        &context.args,
    )
    .await;
    if let (Err(error), Ok(wanted)) = (&done, &wanted)
        && let Some(why) = error.refusal()
    {
        lock(&context.begun).forget(&build::uid(&template));
        if let Some((status, phase)) = plan::refused(&template, wanted, &observed, &plan, why, now) {
            tell(&context, &template, &status, &phase).await?;
        }
    }
    done?;
    tell(&context, &template, &plan.status, &plan.phase).await?;
    lock(&context.failures).remove(&ObjectRef::from_obj(&*template));
    Ok(plan.requeue.map_or_else(Action::await_change, Action::requeue))
}

/// Plans beside the templates that want the same. One at a time: of two that come at the same moment one begins.
fn decide(
    template: &ImageTemplate,
    wanted: Result<&Wanted, &Refusal>,
    observed: &mut Observed,
    context: &Context,
    now: Timestamp,
) -> Plan {
    let mut begun = lock(&context.begun);
    let all = context.templates.state();
    begun.retain(|uid| all.iter().any(|one| one.metadata.uid.as_deref() == Some(uid)));
    if let Ok(wanted) = wanted {
        observed.siblings = observe::siblings(all, template, wanted, &context.policy, &begun);
    }
    let plan = plan::plan(template, wanted, observed, context.args.verify_images, now);
    match wanted {
        Ok(wanted) if plan::goes_on(template, &plan.phase) => begun.note(&build::uid(template), wanted),
        _ => begun.forget(&build::uid(template)),
    }
    plan
}

/// Writes and publishes what is new.
async fn tell(
    context: &Context,
    template: &ImageTemplate,
    status: &ImageTemplateStatus,
    phase: &Phase,
) -> Result<(), Error> {
    if execute::write_status(&context.client, template, status).await? {
        count(&context.metrics, template, &status.history);
        let notices = status::notices(template, status, phase);
        execute::publish(&context.recorder, template, notices).await;
    }
    Ok(())
}

/// Counts builds that ended since the last status.
fn count(metrics: &Metrics, template: &ImageTemplate, history: &[ray_api::template::v1alpha1::BuildRecord]) {
    let known = template
        .status
        .as_ref()
        .map(|status| status.history.as_slice())
        .unwrap_or_default();
    for record in history
        .iter()
        .filter(|record| known.iter().all(|old| old.number != record.number))
    {
        metrics
            .ended
            .get_or_create(&Ended {
                result: record.result.clone(),
            })
            .inc();
    }
}

fn error_policy(template: Arc<ImageTemplate>, error: &Error, context: Arc<Context>) -> Action {
    let mut failures = lock(&context.failures);
    let count = failures.entry(ObjectRef::from_obj(&*template)).or_default();
    let wait = BACKOFF.0.saturating_mul(1 << (*count).min(10)).min(BACKOFF.1);
    *count += 1;
    let (namespace, name) = (template.namespace().unwrap_or_default(), template.name_any());
    tracing::warn!(namespace, name, %error, ?wait, "the image template could not be reconciled");
    Action::requeue(wait)
}
