//! Writes against a mocked API server: as many as the limit lets, and none where nothing has changed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use kube::runtime::watcher::Event;
use prometheus_client::registry::Registry;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Metrics;
use super::execute::Executor;
use super::world::{Change, World};
use crate::shared::{Scope, Shared};

/// Verb and path of a request, and its body.
type Seen = (String, Value);

/// An API server that notes writes, has RayClusters without a status, and refuses what the word is in.
fn server(refused: &'static str) -> (Client, Arc<Mutex<Vec<Seen>>>) {
    let (mock, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Some((request, answer)) = handle.next_request().await {
            let (parts, body) = request.into_parts();
            let bytes = body.collect_bytes().await.unwrap();
            let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            let path = parts.uri.path();
            let name = path.rsplit('/').next().unwrap_or_default();
            let (code, reply) = if !refused.is_empty() && path.contains(refused) {
                let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "code": 500, "reason": "InternalError", "message": "m"});
                (StatusCode::INTERNAL_SERVER_ERROR, status)
            } else if path.contains("/events") {
                (StatusCode::CREATED, body.clone())
            } else {
                let object = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster",
                    "metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"headGroupSpec": {}}});
                (StatusCode::OK, object)
            };
            if !path.contains("/events") {
                noted
                    .lock()
                    .unwrap()
                    .push((format!("{} {name}", parts.method), body));
            }
            let reply = Body::from(serde_json::to_vec(&reply).unwrap());
            answer.send_response(Response::builder().status(code).body(reply).unwrap());
        }
    });
    (Client::new(mock, "ns"), seen)
}

fn executor(client: Client, max_refreshes: u32) -> Executor {
    let shared = Shared {
        client,
        scope: Scope::default(),
        instance: "test".to_owned(),
    };
    Executor::new(
        &shared,
        max_refreshes,
        Metrics::register(&mut Registry::default()),
    )
}

fn listed<T: DeserializeOwned>(objects: &[Value]) -> Vec<Event<T>> {
    let objects = objects
        .iter()
        .map(|object| Event::InitApply(serde_json::from_value(object.clone()).unwrap()));
    std::iter::once(Event::Init)
        .chain(objects)
        .chain([Event::InitDone])
        .collect()
}

/// A world in which everything has been listed once.
fn world(clusters: &[Value], compute: &[Value]) -> World {
    let mut world = World::default();
    let changes = listed(clusters).into_iter().map(|it| Change::Cluster(None, it));
    changes.for_each(|change| world.apply(change));
    let changes = listed(compute).into_iter().map(|it| Change::Compute(None, it));
    changes.for_each(|change| world.apply(change));
    listed(&[])
        .into_iter()
        .for_each(|it| world.apply(Change::ClusterCompute(it)));
    listed(&[])
        .into_iter()
        .for_each(|it| world.apply(Change::Image(None, it)));
    world
}

/// A RayCluster that took its values from that generation of the template.
fn tracking(name: &str, generation: i64) -> Value {
    let small = json!({"kind": "ComputeTemplate", "namespace": "ns", "name": "small", "uid": "u", "generation": generation});
    let record = json!({"head": {"compute": small}}).to_string();
    json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name, "namespace": "ns", "uid": name,
        "annotations": {"templates.ray.io/expansion": record, "templates.ray.io/update-policy": "Track"}}})
}

/// One that waits for an image that nobody builds.
fn gated(name: &str) -> Value {
    let torch = json!({"kind": "ImageTemplate", "namespace": "ns", "name": "torch"});
    let record = json!({"head": {"image": torch}}).to_string();
    json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name, "namespace": "ns", "uid": name,
        "labels": {"templates.ray.io/gated": "true"}, "annotations": {"templates.ray.io/expansion": record}}})
}

fn small(generation: i64, status: &Value) -> Value {
    json!({"apiVersion": "templates.ray.io/v1alpha1", "kind": "ComputeTemplate", "spec": {}, "status": status,
        "metadata": {"name": "small", "namespace": "ns", "uid": "u", "generation": generation}})
}

fn taken(seen: &Mutex<Vec<Seen>>) -> Vec<String> {
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    seen.into_iter().map(|(request, _)| request).collect()
}

#[tokio::test(start_paused = true)]
async fn as_many_clusters_are_refreshed_in_a_minute_as_the_limit_says() {
    let (client, seen) = server("");
    let mut executor = executor(client, 2);
    let names = ["a", "b", "c", "d", "e"];
    let all: Vec<_> = names.iter().map(|name| tracking(name, 1)).collect();
    let mut world = world(&all, &[small(2, &Value::Null)]);
    executor.refreshes(&world).await;
    assert_eq!(taken(&seen), ["PATCH a", "PATCH b"]);
    // The webhook has answered, and the watch brings it: two are up to date, three are left.
    for name in ["a", "b"] {
        let now = serde_json::from_value(tracking(name, 2)).unwrap();
        world.apply(Change::Cluster(None, Event::Apply(now)));
    }
    for _ in 0..10 {
        executor.refreshes(&world).await;
        tokio::time::advance(Duration::from_secs(5)).await;
    }
    assert_eq!(taken(&seen), [""; 0], "the minute is not over");
    tokio::time::advance(Duration::from_secs(11)).await;
    executor.refreshes(&world).await;
    assert_eq!(taken(&seen), ["PATCH c", "PATCH d"]);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_changes_nothing_is_asked_for_ever_more_rarely() {
    let (client, seen) = server("");
    let mut executor = executor(client, 1000);
    let world = world(&[tracking("a", 1)], &[small(2, &Value::Null)]);
    // Once every second for ten minutes, and the cluster stays as it is.
    for _ in 0..600 {
        executor.refreshes(&world).await;
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let asked = taken(&seen).len();
    assert!((8..=12).contains(&asked), "{asked} requests");
}

#[tokio::test]
async fn a_gated_cluster_is_told_once_what_it_waits_for() {
    let (client, seen) = server("");
    let mut executor = executor(client, 10);
    let world = world(&[gated("c")], &[]);
    executor.gates(&world).await;
    assert_eq!(taken(&seen), ["GET c", "PATCH status"]);
    executor.gates(&world).await;
    assert_eq!(taken(&seen), [""; 0]);

    // What could not be said is said again.
    let (client, seen) = server("/status");
    let mut executor = self::executor(client, 10);
    for _ in 0..2 {
        executor.gates(&world).await;
        assert_eq!(taken(&seen), ["GET c", "PATCH status"]);
    }
}

#[tokio::test]
async fn a_status_is_written_once_and_owed_until_it_is() {
    let (client, seen) = server("");
    let mut executor = executor(client, 10);
    let clusters = [tracking("a", 1), tracking("b", 1)];
    executor
        .statuses(&world(&clusters, &[small(2, &Value::Null)]))
        .await;
    let written = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(written.len(), 1);
    let status = &written[0].1["status"];
    assert_eq!(status["usedBy"], json!({"clusters": 2, "names": ["a", "b"]}));
    assert_eq!(
        (&status["stale"], &status["observedGeneration"]),
        (&json!(2), &json!(2))
    );
    assert!(!executor.owes_statuses());
    executor.statuses(&world(&clusters, &[small(2, status)])).await;
    assert_eq!(taken(&seen), [""; 0]);

    let (client, seen) = server("/computetemplates");
    let mut executor = self::executor(client, 10);
    executor
        .statuses(&world(&clusters, &[small(2, &Value::Null)]))
        .await;
    assert_eq!(taken(&seen), ["PATCH status"]);
    assert!(executor.owes_statuses());
}

#[tokio::test]
async fn nothing_is_written_before_every_kind_has_been_listed() {
    let (client, seen) = server("");
    let mut executor = executor(client, 10);
    let mut half = World::default();
    for event in listed(&[tracking("a", 1), gated("c")]) {
        half.apply(Change::Cluster(None, event));
    }
    executor.gates(&half).await;
    executor.refreshes(&half).await;
    executor.statuses(&half).await;
    assert_eq!(taken(&seen), [""; 0]);
}
