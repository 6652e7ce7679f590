//! Every write of Serve health: rate-limited, retried, each the smallest that says what is meant.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use ray_api::meta::{label, manager};
use ray_api::ray::v1::RayCluster;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::announce::Announcement;
use super::condition::{self, Said};
use super::facts::{Label, ObjectKey};
use super::metrics::{Metrics, WriteLabels};
use super::queue::{Key, Queue};

/// Writes at the same time: enough for the rate at ordinary latencies, few beside what others send.
const CONCURRENCY: usize = 16;
/// Longest time for one write; it is repeated after.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What a write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// A pod's label.
    Label,
    /// A service's selector.
    Selector,
    /// A cluster's conditions.
    Conditions,
    /// An event about pods that entered.
    EventIn,
    /// An event about pods that left.
    EventOut,
}

/// Something to tell the API server.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Write {
    /// Sets the label `ray.io/serve` of a pod, or removes it.
    Label {
        /// The pod.
        pod: ObjectKey,
        /// The label's value.
        value: Option<Label>,
    },
    /// Adds `ray.io/serve: "true"` to a service's selector.
    Selector {
        /// The service.
        service: ObjectKey,
    },
    /// Says something in a RayCluster's conditions.
    Conditions {
        /// The RayCluster.
        cluster: ObjectKey,
        /// Its generation.
        generation: Option<i64>,
        /// What to say.
        said: Vec<Said>,
        /// The conditions of ours that are there.
        existing: Vec<Condition>,
    },
    /// Tells in an event about pods that moved.
    Event {
        /// Their RayCluster.
        cluster: ObjectKey,
        /// What to tell.
        announcement: Announcement,
    },
}

impl Write {
    /// What it is about.
    #[must_use]
    pub(super) fn key(&self) -> Key {
        match self {
            Self::Label { pod, .. } => (Kind::Label, pod.uid.clone()),
            Self::Selector { service } => (Kind::Selector, service.uid.clone()),
            Self::Conditions { cluster, .. } => (Kind::Conditions, cluster.uid.clone()),
            Self::Event {
                cluster,
                announcement,
            } => match announcement.to {
                Label::In => (Kind::EventIn, cluster.uid.clone()),
                Label::Out => (Kind::EventOut, cluster.uid.clone()),
            },
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Label { .. } => "label",
            Self::Selector { .. } => "selector",
            Self::Conditions { .. } => "conditions",
            Self::Event { .. } => "event",
        }
    }
}

/// How a write ended.
#[derive(Debug)]
enum End {
    Made,
    /// Its object is gone.
    Pointless,
    Failed(String),
}

/// Makes writes until `stop`; reports each that is made or pointless.
pub(super) async fn run(
    writer: Writer,
    per_second: u32,
    mut writes: mpsc::UnboundedReceiver<Write>,
    written: mpsc::UnboundedSender<Write>,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let mut queue = Queue::default();
    let mut running = JoinSet::new();
    let mut pace = tokio::time::interval(Duration::from_secs(1) / per_second.max(1));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let retry = queue.wake_at();
        let ready = queue.is_ready() || retry.is_some_and(|at| at <= Instant::now());
        tokio::select! {
            () = stop.cancelled() => return,
            Some(write) = writes.recv() => queue.push(write),
            _ = pace.tick(), if ready && running.len() < CONCURRENCY => {
                if let Some(write) = queue.pop(Instant::now()) {
                    let writer = writer.clone();
                    running.spawn(async move { (writer.make(&write).await, write) });
                }
            }
            () = sleep_until(retry), if !ready => {}
            Some(Ok((end, write))) = running.join_next() => {
                let result = if matches!(end, End::Failed(_)) { "error" } else { "ok" };
                metrics.writes.get_or_create(&WriteLabels { kind: write.name(), result }).inc();
                if let End::Failed(error) = end {
                    tracing::warn!(error, kind = write.name(), "Serve health cannot write; it tries again");
                    queue.failed(&write, Instant::now());
                } else {
                    queue.done(&write);
                    let _ = written.send(write);
                }
            }
        }
        metrics
            .pending_writes
            .set(i64::try_from(queue.len()).unwrap_or(i64::MAX));
    }
}

/// Sleeps until then, or for ever.
pub(super) async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Turns writes into requests.
#[derive(Clone)]
pub(super) struct Writer {
    client: Client,
    recorder: Recorder,
}

impl Writer {
    /// A writer whose events name `instance`.
    #[must_use]
    pub(super) fn new(client: Client, instance: String) -> Self {
        let reporter = Reporter {
            controller: "ray-serve-health".to_owned(),
            instance: Some(instance),
        };
        let recorder = Recorder::new(client.clone(), reporter);
        Self { client, recorder }
    }

    async fn make(&self, write: &Write) -> End {
        let result = match tokio::time::timeout(TIMEOUT, self.send(write)).await {
            Ok(result) => result,
            Err(_) => return End::Failed(format!("no answer within {TIMEOUT:?}")),
        };
        match result {
            Ok(()) => End::Made,
            // 409 means that the uid is another: the name belongs to a new object.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => End::Pointless,
            // An event is not worth a second request.
            Err(error) if matches!(write, Write::Event { .. }) => {
                tracing::warn!(%error, "an event of Serve health is lost");
                End::Pointless
            }
            Err(error) => End::Failed(error.to_string()),
        }
    }

    async fn send(&self, write: &Write) -> kube::Result<()> {
        match write {
            Write::Label { pod, value } => {
                let value = value.map(|value| match value {
                    Label::In => "true",
                    Label::Out => "false",
                });
                let patch = json!({"metadata": {"uid": &*pod.uid, "labels": {label::SERVE: value}}});
                let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
                let merge = Patch::Merge(&patch);
                pods.patch_metadata(&pod.name, &params(), &merge).await.map(drop)
            }
            Write::Selector { service } => {
                let patch = json!({
                    "metadata": {"uid": &*service.uid},
                    "spec": {"selector": {label::SERVE: "true"}},
                });
                let services: Api<Service> = Api::namespaced(self.client.clone(), &service.namespace);
                services
                    .patch(&service.name, &params(), &Patch::Merge(&patch))
                    .await
                    .map(drop)
            }
            Write::Conditions {
                cluster,
                generation,
                said,
                existing,
            } => {
                let now = Time(Timestamp::now());
                let patch = json!({
                    "apiVersion": RayCluster::api_version(&()),
                    "kind": RayCluster::kind(&()),
                    "metadata": {"uid": &*cluster.uid},
                    "status": {"conditions": condition::updated(said, existing, *generation, &now)},
                });
                let clusters: Api<RayCluster> = Api::namespaced(self.client.clone(), &cluster.namespace);
                clusters
                    .patch_status(&cluster.name, &params().force(), &Patch::Apply(&patch))
                    .await
                    .map(drop)
            }
            Write::Event {
                cluster,
                announcement,
            } => {
                let event = Event {
                    type_: match announcement.to {
                        Label::In => EventType::Normal,
                        Label::Out => EventType::Warning,
                    },
                    reason: announcement.reason().to_owned(),
                    note: Some(announcement.note.clone()),
                    action: "Probe".to_owned(),
                    secondary: Some(reference(
                        &announcement.pod,
                        Pod::api_version(&()),
                        Pod::kind(&()),
                    )),
                };
                let about = reference(cluster, RayCluster::api_version(&()), RayCluster::kind(&()));
                self.recorder.publish(&event, &about).await
            }
        }
    }
}

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(manager::SERVE.to_owned()),
        ..PatchParams::default()
    }
}

fn reference(
    key: &ObjectKey,
    api_version: std::borrow::Cow<'_, str>,
    kind: std::borrow::Cow<'_, str>,
) -> ObjectReference {
    ObjectReference {
        api_version: Some(api_version.into_owned()),
        kind: Some(kind.into_owned()),
        namespace: Some(key.namespace.to_string()),
        name: Some(key.name.to_string()),
        uid: Some(key.uid.to_string()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use http::{Request, Response};
    use kube::client::Body;
    use prometheus_client::registry::Registry;
    use tokio::time::Instant;

    const RATE: u32 = 100;

    fn flip(index: usize) -> Write {
        Write::Label {
            pod: ObjectKey {
                uid: format!("uid-{index}").into(),
                namespace: "ns".into(),
                name: format!("pod-{index}").into(),
            },
            value: Some(Label::Out),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn thousands_of_flips_at_once_take_no_more_than_their_share_of_calls() {
        let (mock, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let (requests, mut asked) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some((request, answer)) = server.next_request().await {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                requests
                    .send((Instant::now(), parts.uri.path().to_owned(), body))
                    .unwrap();
                answer.send_response(Response::new(Body::from(br#"{"metadata":{}}"#.to_vec())));
            }
        });
        let writer = Writer::new(Client::new(mock, "default"), "test".to_owned());
        let (writes, inbox) = mpsc::unbounded_channel();
        let (written, mut made) = mpsc::unbounded_channel();
        let metrics = Metrics::register(&mut Registry::default());
        let stop = CancellationToken::new();
        let started = Instant::now();
        tokio::spawn(run(writer, RATE, inbox, written, metrics, stop.clone()));
        for index in 0..2000 {
            writes.send(flip(index)).unwrap();
        }

        let mut calls = Vec::new();
        while calls.len() < 2000 {
            calls.push(asked.recv().await.unwrap());
            made.recv().await.unwrap();
        }
        stop.cancel();
        for (due, (at, path, body)) in (0..)
            .map(|index| Duration::from_secs(1) / RATE * index)
            .zip(&calls)
        {
            assert!(at.duration_since(started) >= due, "{path} came too early");
            let body: serde_json::Value = serde_json::from_slice(body).unwrap();
            assert_eq!(
                body["metadata"]["labels"],
                json!({"ray.io/serve": "false"}),
                "{path}"
            );
        }
        let last = calls.last().unwrap().0.duration_since(started);
        assert!(last <= Duration::from_secs(21), "the limit is used: {last:?}");
    }
}
