//! Reads what belongs to a template: its Jobs with their pods, and the other templates of its namespace.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::core::ObjectMeta;
use kube::{Client, Resource, ResourceExt};
use ray_api::image::Policy;
use ray_api::meta::label;
use ray_api::template::v1alpha1::ImageTemplate;
use tokio::time::timeout;

use super::Error;
use super::attempt::{Attempt, Identity, Verification};
use super::build::{label_value, uid};
use super::progress::{self, Sight};
use super::share::{Begun, Sibling};
use super::wanted::{Wanted, wanted};

/// Longest time of a request.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// What there is.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// Attempts, oldest first.
    pub(super) attempts: Vec<Attempt>,
    /// Verifications by number of the build.
    pub(super) verifications: HashMap<i32, (String, Verification)>,
    /// ConfigMaps of attempts whose Jobs are gone.
    pub(super) orphans: Vec<String>,
    /// Other templates that want the same image at the same place.
    pub(super) siblings: Vec<Sibling>,
}

/// Reads everything of a template.
pub(super) async fn observe(
    client: &Client,
    template: &ImageTemplate,
    now: Timestamp,
) -> Result<Observed, Error> {
    let namespace = template.namespace().unwrap_or_default();
    let selector = format!("{}={}", label::IMAGE_TEMPLATE, label_value(&template.name_any()));
    let ours = ListParams::default().labels(&selector);
    let jobs: Api<Job> = Api::namespaced(client.clone(), &namespace);
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let reads = futures::future::try_join3(jobs.list(&ours), pods.list(&ours), maps.list_metadata(&ours));
    let (jobs, pods, maps) = timeout(REQUEST_TIMEOUT, reads)
        .await
        .map_err(|_| Error::TimedOut)??;

    let owner = uid(template);
    let owned = |meta: &ObjectMeta| controller(meta) == Some(owner.as_str());
    let jobs: Vec<_> = jobs.items.into_iter().filter(|job| owned(job.meta())).collect();
    let orphans = maps
        .items
        .iter()
        .filter(|map| owned(map.meta()))
        .map(ResourceExt::name_any);
    let orphans = orphans
        .filter(|name| jobs.iter().all(|job| job.name_any() != *name))
        .collect();
    let mut observed = Observed {
        orphans,
        ..Observed::default()
    };
    for job in &jobs {
        let Some(identity) = Identity::of(job) else {
            continue;
        };
        let pod = newest_pod(&pods.items, job);
        let events = events(client, &namespace, job, pod).await?;
        let sight = Sight {
            job,
            pod,
            events: &events,
            now,
        };
        if identity.verifies.is_some() {
            let state = progress::verification(sight);
            observed
                .verifications
                .insert(identity.number, (job.name_any(), state));
            continue;
        }
        let progress = progress::build(sight);
        observed.attempts.push(Attempt {
            job: job.name_any(),
            created: job.creation_timestamp().map_or(now, |time| time.0),
            ended: progress::end(job).map(|(time, _)| time),
            identity,
            progress,
        });
    }
    observed
        .attempts
        .sort_by_key(|attempt| (attempt.identity.number, attempt.identity.attempt));
    Ok(observed)
}

/// Uid of the object that controls another.
fn controller(meta: &ObjectMeta) -> Option<&str> {
    let references = meta.owner_references.iter().flatten();
    references
        .filter(|it| it.controller == Some(true))
        .map(|it| it.uid.as_str())
        .next()
}

/// The newest pod that the Job controls: a label alone anybody could write.
fn newest_pod<'a>(pods: &'a [Pod], job: &Job) -> Option<&'a Pod> {
    let controlled = pods
        .iter()
        .filter(|pod| controller(pod.meta()) == job.meta().uid.as_deref());
    controlled.max_by_key(|pod| pod.creation_timestamp().map(|time| time.0))
}

/// Events about a Job without a pod, or about a pod that does not run; others need none.
async fn events(client: &Client, namespace: &str, job: &Job, pod: Option<&Pod>) -> Result<Vec<Event>, Error> {
    let is_pending =
        |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending");
    let about = match pod {
        _ if progress::end(job).is_some() => None,
        Some(pod) if is_pending(pod) => pod.uid(),
        Some(_) => None,
        None => job.uid(),
    };
    let Some(about) = about else {
        return Ok(Vec::new());
    };
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let params = ListParams::default().fields(&format!("involvedObject.uid={about}"));
    let list = timeout(REQUEST_TIMEOUT, api.list(&params))
        .await
        .map_err(|_| Error::TimedOut)??;
    Ok(list.items)
}

/// Other templates of the namespace that want the same inputs at the same place.
pub(super) fn siblings(
    all: impl IntoIterator<Item = Arc<ImageTemplate>>,
    template: &ImageTemplate,
    own: &Wanted,
    policy: &Policy,
    begun: &Begun,
) -> Vec<Sibling> {
    all.into_iter()
        .filter(|other| other.namespace() == template.namespace() && uid(other) != uid(template))
        .filter(|other| {
            wanted(other, policy).is_ok_and(|theirs| {
                theirs.inputs_hash == own.inputs_hash
                    && theirs.target.destination() == own.target.destination()
            })
        })
        .map(|other| Sibling {
            has_begun: begun.has(&uid(&other), own),
            template: other,
        })
        .collect()
}
