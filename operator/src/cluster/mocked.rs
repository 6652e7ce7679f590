//! Passes against a mocked API server: which requests are made, and that none is when nothing has changed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use kube::client::Body;
use kube::runtime::reflector::store;
use kube::runtime::watcher::Event;
use prometheus_client::registry::Registry;
use ray_api::meta::REDIS_CLEANUP_FINALIZER;
use ray_api::ray::RayCluster;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::config::Config;
use super::context::{ChildStores, Context};
use super::events::Events;
use super::memory::Memories;
use super::metrics::Metrics;
use super::pods::{Feed, PodIndex};
use super::reconcile::reconcile;
use crate::guard::Guarded;

/// A request: verb and path, and the body.
type Seen = (String, Value);

/// An API server that notes what it is asked, echoes objects, and refuses pods whose name contains a word.
struct Server {
    seen: Arc<Mutex<Vec<Seen>>>,
    events: Arc<Mutex<Vec<Value>>>,
    ctx: Arc<Context>,
    services: kube::runtime::reflector::store::Writer<Service>,
    index: PodIndex,
}

impl Server {
    fn start(refused: &'static str) -> Self {
        let (mock, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let events = Arc::new(Mutex::new(Vec::new()));
        let (noted, told) = (Arc::clone(&seen), Arc::clone(&events));
        tokio::spawn(async move {
            while let Some((request, answer)) = handle.next_request().await {
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await.unwrap();
                let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                let path = parts.uri.path().to_owned();
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                let refuse = !refused.is_empty() && path.ends_with("/pods") && name.contains(refused);
                let mut echo = body.clone();
                if path.ends_with("/status") {
                    echo["spec"] = json!({"headGroupSpec": {}});
                }
                let (code, reply) = if refuse {
                    let message = format!("pods \"{name}\" is forbidden: exceeded quota: q");
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
                        "reason": "Forbidden", "message": message});
                    (StatusCode::FORBIDDEN, status)
                } else {
                    (StatusCode::OK, echo)
                };
                if path.contains("/events") {
                    told.lock().unwrap().push(body);
                } else {
                    noted
                        .lock()
                        .unwrap()
                        .push((format!("{} {path}", parts.method), body));
                }
                let reply = Body::from(serde_json::to_vec(&reply).unwrap());
                answer.send_response(Response::builder().status(code).body(reply).unwrap());
            }
        });
        let client = Client::new(mock, "n");
        let (reader, services) = store();
        let index = PodIndex::default();
        let ctx = Arc::new(Context {
            client: client.clone(),
            config: Config::for_tests(),
            pods: index.clone(),
            children: ChildStores {
                services: vec![reader],
                service_accounts: Vec::new(),
                roles: Vec::new(),
                role_bindings: Vec::new(),
                ingresses: Vec::new(),
            },
            memories: Memories::default(),
            events: Events::start(client, "test", CancellationToken::new()),
            metrics: Metrics::register(&mut Registry::default()),
            slots: Semaphore::new(4),
        });
        Self {
            seen,
            events,
            ctx,
            services,
            index,
        }
    }

    /// One pass; the requests that it made.
    async fn pass(&self, cluster: &Value) -> Vec<Seen> {
        let cluster: RayCluster = serde_json::from_value(cluster.clone()).unwrap();
        reconcile(Arc::new(Guarded(Ok(cluster))), Arc::clone(&self.ctx))
            .await
            .unwrap();
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    /// Reasons and notes of `count` events, and of those that come without being expected.
    async fn told(&self, count: usize) -> Vec<(String, String)> {
        for _ in 0..500 {
            if self.events.lock().unwrap().len() >= count {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        let events = std::mem::take(&mut *self.events.lock().unwrap());
        let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
        events
            .iter()
            .map(|event| (text(event, "reason"), text(event, "note")))
            .collect()
    }

    /// Lets the watches show what was created.
    fn show(&mut self, seen: &[Seen]) {
        let mut feed = Feed::new(self.index.clone(), None);
        for (request, object) in seen {
            if request.ends_with("/pods") {
                let mut pod = object.clone();
                pod["metadata"]["uid"] = json!(object["metadata"]["name"]);
                feed.handle(Event::Apply(serde_json::from_value(pod).unwrap()));
            } else if request.ends_with("/services") {
                let service = serde_json::from_value(object.clone()).unwrap();
                self.services.apply_watcher_event(&Event::Apply(service));
            }
        }
    }
}

fn cluster() -> Value {
    let template = json!({"spec": {"containers": [{"name": "ray", "image": "ray:1"}]}});
    let group = |name: &str| json!({"groupName": name, "replicas": 2, "minReplicas": 0, "maxReplicas": 9, "template": template});
    json!({
        "metadata": {"name": "c", "namespace": "n", "uid": "u", "generation": 1, "resourceVersion": "1"},
        "spec": {"headGroupSpec": {"template": template}, "workerGroupSpecs": [group("a"), group("b")]},
    })
}

fn count(seen: &[Seen], request: &str) -> usize {
    seen.iter().filter(|(made, _)| made == request).count()
}

const PODS: &str = "POST /api/v1/namespaces/n/pods";
const STATUS: &str = "PATCH /apis/ray.io/v1/namespaces/n/rayclusters/c/status";

#[tokio::test]
async fn a_settled_cluster_makes_no_request() {
    let mut server = Server::start("");
    let mut cluster = cluster();
    let first = server.pass(&cluster).await;
    assert_eq!(count(&first, "POST /api/v1/namespaces/n/services"), 1);
    assert_eq!(count(&first, PODS), 5);
    assert_eq!(first.len(), 6, "the status waits for more to say");

    let early = server.pass(&cluster).await;
    assert_eq!(
        count(&early, PODS),
        0,
        "what was created counts before the watch shows it"
    );
    server.show(&first);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let second = server.pass(&cluster).await;
    assert_eq!(second.len(), 1);
    assert_eq!(second[0].0, STATUS);
    assert_eq!(
        second[0].1["metadata"]["uid"], "u",
        "never another cluster of the same name"
    );

    cluster["status"] = second[0].1["status"].clone();
    cluster["metadata"]["resourceVersion"] = json!("2");
    assert!(server.pass(&cluster).await.is_empty());
}

#[tokio::test]
async fn one_groups_quota_stops_no_other_and_is_said_at_once() {
    let server = Server::start("c-a-worker");
    let seen = server.pass(&cluster()).await;
    let created = |part: &str| {
        let of_part =
            |(made, pod): &&Seen| made == PODS && pod["metadata"]["name"].as_str().unwrap().contains(part);
        seen.iter().filter(of_part).count()
    };
    assert_eq!(created("c-head"), 1);
    assert_eq!(created("c-a-worker"), 1, "one refusal tells enough");
    assert_eq!(created("c-b-worker"), 2);
    let status = &seen.iter().find(|(made, _)| made == STATUS).unwrap().1["status"];
    let conditions = status["conditions"].as_array().unwrap();
    let failure = conditions.iter().find(|c| c["type"] == "ReplicaFailure").unwrap();
    assert_eq!(failure["reason"], "FailedCreateWorkerPod");
    assert!(failure["message"].as_str().unwrap().contains("exceeded quota"));
    assert_eq!(failure["observedGeneration"], 1);
    let message = failure["message"].as_str().unwrap();
    assert!(
        message.ends_with(": pods \"c-a-worker-\" is forbidden: exceeded quota: q"),
        "the server's own sentence, the same at the next attempt: {message}"
    );
    let mut told = cluster();
    told["status"] = status.clone();
    let again = server.pass(&told).await;
    assert_eq!(count(&again, PODS), 0, "the group is held for a while");
    assert_eq!(count(&again, STATUS), 0, "and the failure stands as long");
}

#[tokio::test]
async fn a_broken_rule_is_a_condition_and_touches_no_pod() {
    let server = Server::start("");
    let mut cluster = cluster();
    cluster["spec"]["workerGroupSpecs"][0]["minReplicas"] = json!(10);
    let seen = server.pass(&cluster).await;
    assert_eq!(seen.len(), 1);
    let accepted = &seen[0].1["status"]["conditions"][0];
    assert_eq!(
        (&accepted["type"], &accepted["status"]),
        (&json!("Accepted"), &json!("False"))
    );
    assert!(
        accepted["message"]
            .as_str()
            .unwrap()
            .contains("workerGroupSpecs[0]"),
        "{accepted}"
    );
}

#[tokio::test]
async fn a_cluster_without_an_image_says_what_to_do_and_one_of_another_manager_is_left_alone() {
    let server = Server::start("");
    let mut bare = cluster();
    bare["spec"]["headGroupSpec"] = json!({"computeTemplate": "small"});
    let seen = server.pass(&bare).await;
    let accepted = &seen[0].1["status"]["conditions"][0];
    assert_eq!(accepted["reason"], "ImageMissing");
    assert!(
        accepted["message"]
            .as_str()
            .unwrap()
            .contains("kubectl ray render")
    );

    for manager in ["kueue.x-k8s.io/multikueue", ""] {
        let mut foreign = cluster();
        foreign["spec"]["managedBy"] = json!(manager);
        assert!(server.pass(&foreign).await.is_empty(), "{manager:?}");
        foreign["metadata"]["finalizers"] = json!([REDIS_CLEANUP_FINALIZER, "other/one"]);
        foreign["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let seen = server.pass(&foreign).await;
        assert_eq!(seen[0].1["metadata"]["finalizers"], json!(["other/one"]));
    }
}

#[tokio::test]
async fn a_pass_tells_what_it_did_in_one_event_a_reason() {
    let server = Server::start("");
    let mut big = cluster();
    big["spec"]["workerGroupSpecs"][0]["replicas"] = json!(5);
    server.pass(&big).await;
    let told = server.told(3).await;
    let reasons: Vec<_> = told.iter().map(|(reason, _)| reason.as_str()).collect();
    assert_eq!(reasons, ["CreatedService", "CreatedHeadPod", "CreatedWorkerPod"]);
    assert_eq!(told[0].1, "Created n/c-head-svc");
    assert!(
        told[1].1.starts_with("Created 1 head Pod(s) in n: c-head-"),
        "{told:?}"
    );
    assert!(
        told[2].1.starts_with("Created 7 worker Pod(s) in n: c-"),
        "{told:?}"
    );
    assert!(told[2].1.ends_with(" and 4 more"), "{told:?}");
}

#[tokio::test]
async fn a_warning_is_told_once_and_holds_nothing_up() {
    let server = Server::start("");
    let mut odd = cluster();
    odd["spec"]["enableInTreeAutoscaling"] = json!(true);
    odd["spec"]["autoscalerOptions"] = json!({"version": "v1"});
    odd["spec"]["workerGroupSpecs"][0]["template"]["spec"]["restartPolicy"] = json!("OnFailure");
    let seen = server.pass(&odd).await;
    assert_eq!(count(&seen, PODS), 5, "it runs all the same");
    server.pass(&odd).await;
    let told = server.told(1).await;
    let warnings: Vec<_> = told
        .iter()
        .filter(|(reason, _)| reason == "InvalidRayClusterSpec")
        .collect();
    assert_eq!(warnings.len(), 1, "{told:?}");
    assert!(
        warnings[0]
            .1
            .contains("workerGroupSpecs[0].template.spec.restartPolicy"),
        "{told:?}"
    );
}

#[tokio::test]
async fn the_token_is_made_before_pods_and_again_when_one_lacks_it() {
    const SECRETS: &str = "POST /api/v1/namespaces/n/secrets";
    let mut server = Server::start("");
    let mut cluster = cluster();
    cluster["spec"]["rayVersion"] = json!("2.60.0");
    cluster["spec"]["authOptions"] = json!({"mode": "token"});
    let first = server.pass(&cluster).await;
    let order: Vec<_> = first
        .iter()
        .map(|(made, _)| made.as_str())
        .filter(|made| [SECRETS, PODS].contains(made))
        .collect();
    assert_eq!((order[0], count(&first, SECRETS)), (SECRETS, 1));
    server.show(&first);
    assert_eq!(
        count(&server.pass(&cluster).await, SECRETS),
        0,
        "it was seen a moment ago"
    );

    let (_, mut stuck) = first.iter().find(|(made, _)| made == PODS).unwrap().clone();
    stuck["metadata"]["uid"] = stuck["metadata"]["name"].clone();
    stuck["status"] = json!({"phase": "Pending", "containerStatuses": [
        {"name": "ray", "state": {"waiting": {"reason": "CreateContainerConfigError", "message": "secret \"c\" not found"}}},
    ]});
    Feed::new(server.index.clone(), None).handle(Event::Apply(serde_json::from_value(stuck).unwrap()));
    assert_eq!(count(&server.pass(&cluster).await, SECRETS), 1);
}

/// Fact 29.
#[tokio::test]
async fn the_finalizer_is_written_before_any_pod_unless_the_cleanup_is_off() {
    const CLUSTER: &str = "PATCH /apis/ray.io/v1/namespaces/n/rayclusters/c";
    let mut cluster = cluster();
    cluster["spec"]["gcsFaultToleranceOptions"] = json!({"redisAddress": "redis:6379"});
    let server = Server::start("");
    let seen = server.pass(&cluster).await;
    assert_eq!(seen[0].0, CLUSTER);
    assert_eq!(
        seen[0].1["metadata"]["finalizers"],
        json!([REDIS_CLEANUP_FINALIZER])
    );
    assert_eq!(count(&seen, PODS), 5);
    let mut server = Server::start("");
    Arc::get_mut(&mut server.ctx).unwrap().config.args.redis_cleanup = false;
    assert_eq!(count(&server.pass(&cluster).await, CLUSTER), 0);
}

/// Fact 14.
#[tokio::test]
async fn a_head_that_is_refused_stops_no_worker_and_has_its_own_reason() {
    let server = Server::start("c-head-");
    let seen = server.pass(&cluster()).await;
    assert_eq!(count(&seen, PODS), 5, "one for the head, four workers");
    let (_, status) = seen.iter().find(|(made, _)| made == STATUS).unwrap();
    let conditions = status["status"]["conditions"].as_array().unwrap();
    let failure = conditions
        .iter()
        .find(|it| it["type"] == "ReplicaFailure")
        .unwrap();
    assert_eq!(failure["reason"], "FailedCreateHeadPod");
    let told = server.told(3).await;
    assert!(
        told.iter().any(|(reason, _)| reason == "FailedToCreateHeadPod"),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_cluster_that_cannot_be_read_is_told_so_and_can_be_deleted() {
    let server = Server::start("");
    let guarded = |deleted: bool| {
        let mut object = json!({
            "metadata": {"name": "c", "namespace": "n", "uid": "u", "generation": 3,
                "finalizers": [REDIS_CLEANUP_FINALIZER]},
            "spec": {"headGroupSpec": {}, "workerGroupSpecs": [{"groupName": "g", "numOfHosts": "two"}]},
        });
        if deleted {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let guarded: Guarded = serde_json::from_value(object).unwrap();
        assert!(guarded.0.is_err());
        Arc::new(guarded)
    };
    let seen = || std::mem::take(&mut *server.seen.lock().unwrap());
    for _ in 0..2 {
        reconcile(guarded(false), Arc::clone(&server.ctx)).await.unwrap();
    }
    assert!(seen().is_empty(), "its pods stay as they are");
    let told = server.told(1).await;
    assert_eq!((told.len(), told[0].0.as_str()), (1, "InvalidRayClusterSpec"));
    assert!(told[0].1.contains("two"), "{told:?}");

    reconcile(guarded(true), Arc::clone(&server.ctx)).await.unwrap();
    assert_eq!(seen()[0].1["metadata"]["finalizers"], json!([]));
}
