//! Whole passes against a mocked API server: which requests are made, and that none writes when nothing has changed.

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::store;
use ray_api::template::v1alpha1::ImageTemplate;
use serde_json::{Value, json};

use super::super::{Context, Error, Metrics, reconcile};
use super::{args, policy, template};

/// An API server that keeps Jobs, pods and ConfigMaps, takes statuses, and notes what it is asked to write.
#[derive(Default)]
struct World {
    jobs: Vec<Value>,
    pods: Vec<Value>,
    configmaps: Vec<Value>,
    status: Option<Value>,
    writes: Vec<String>,
    /// Whether lists are older than the Jobs.
    hides_jobs: bool,
    /// Answer to the next status, where it is a refusal.
    refuse_status: Option<StatusCode>,
    /// Answer to every Job, where it is a refusal.
    refuse_jobs: Option<StatusCode>,
}

impl World {
    fn answer(&mut self, method: &Method, path: &str, body: Value) -> (StatusCode, Value) {
        let resource = path.rsplit('/').next().unwrap_or_default();
        if resource == "events" {
            return (StatusCode::OK, json!({"metadata": {}, "items": []}));
        }
        if *method != Method::GET {
            self.writes.push(format!("{method} {resource}"));
        }
        if let (&Method::POST, "jobs", Some(code)) = (method, resource, self.refuse_jobs) {
            return (code, refusal(code));
        }
        let objects = match resource {
            "jobs" => &mut self.jobs,
            "pods" => &mut self.pods,
            "configmaps" => &mut self.configmaps,
            "status" => {
                return match self.refuse_status.take() {
                    Some(code) => (code, refusal(code)),
                    None => {
                        self.status = Some(body["status"].clone());
                        (
                            StatusCode::OK,
                            json!({"metadata": {"name": "emoji"}, "spec": {"baseImage": "b"}}),
                        )
                    }
                };
            }
            _ => return (StatusCode::NOT_FOUND, refusal(StatusCode::NOT_FOUND)),
        };
        if *method == Method::GET {
            let hidden = resource == "jobs" && self.hides_jobs;
            let items = if hidden { json!([]) } else { json!(objects) };
            return (StatusCode::OK, json!({"metadata": {}, "items": items}));
        }
        let name = |object: &Value| object["metadata"]["name"].clone();
        if objects.iter().any(|one| name(one) == name(&body)) {
            return (StatusCode::CONFLICT, refusal(StatusCode::CONFLICT));
        }
        let mut stored = body;
        stored["metadata"]["uid"] = name(&stored);
        stored["metadata"]["creationTimestamp"] = json!("2027-01-15T08:00:00Z");
        objects.push(stored.clone());
        (StatusCode::CREATED, stored)
    }
}

fn refusal(code: StatusCode) -> Value {
    let reason = if code == StatusCode::CONFLICT {
        "AlreadyExists"
    } else {
        "InternalError"
    };
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code.as_u16(), "reason": reason, "message": "m"})
}

struct Server {
    world: Arc<Mutex<World>>,
    context: Arc<Context>,
    template: Value,
}

impl Server {
    fn start(template: &ImageTemplate) -> Self {
        let (mock, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let world = Arc::new(Mutex::new(World::default()));
        let kept = Arc::clone(&world);
        tokio::spawn(async move {
            while let Some((request, answer)) = handle.next_request().await {
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await.unwrap();
                let body = serde_json::from_slice(&bytes).unwrap_or_default();
                let (code, reply) = kept.lock().unwrap().answer(&parts.method, parts.uri.path(), body);
                let reply = Body::from(serde_json::to_vec(&reply).unwrap());
                answer.send_response(Response::builder().status(code).body(reply).unwrap());
            }
        });
        let client = Client::new(mock, "team");
        let args = args(&["--verify-images=false"]);
        let (templates, _) = store();
        let context = Arc::new(Context {
            recorder: Recorder::new(client.clone(), Reporter::from("test")),
            client,
            args,
            policy: policy(),
            metrics: Metrics::default(),
            templates,
            begun: Mutex::default(),
            failures: Mutex::default(),
        });
        Self {
            world,
            context,
            template: serde_json::to_value(template).unwrap(),
        }
    }

    /// One pass over the template with its stored status; what it wrote, in order.
    async fn pass(&mut self) -> Result<Vec<String>, Error> {
        if let Some(status) = &self.world.lock().unwrap().status {
            self.template["status"] = status.clone();
        }
        let template = Arc::new(serde_json::from_value(self.template.clone()).unwrap());
        reconcile(template, Arc::clone(&self.context)).await?;
        Ok(std::mem::take(&mut self.world.lock().unwrap().writes))
    }

    /// What Job controller and kubelet would say of a build that succeeded.
    fn succeed(&self) {
        let mut world = self.world.lock().unwrap();
        let job = world.jobs.last_mut().unwrap();
        job["status"] = json!({"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "2027-01-15T08:05:00Z"}]});
        let uid = job["metadata"]["uid"].clone();
        let digest = format!("sha256:{}", "0a".repeat(32));
        let seal = json!({"name": "seal", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 0, "message": digest}}});
        world.pods.push(json!({
            "metadata": {"name": "pod", "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid, "controller": true}]},
            "status": {"phase": "Succeeded", "initContainerStatuses": [seal]},
        }));
    }
}

#[tokio::test]
async fn a_build_takes_two_creations_and_nothing_is_written_where_nothing_has_changed() {
    let mut server = Server::start(&template(json!({})));
    let first = server.pass().await.unwrap();
    assert_eq!(first, ["POST configmaps", "POST jobs", "PATCH status"]);
    // `starting` becomes `waiting for a pod`; then nothing turns.
    assert_eq!(server.pass().await.unwrap(), ["PATCH status"]);
    assert_eq!(server.pass().await.unwrap(), [""; 0]);
    server.succeed();
    assert_eq!(server.pass().await.unwrap(), ["PATCH status"]);
    assert_eq!(server.pass().await.unwrap(), [""; 0]);
    let status = server.world.lock().unwrap().status.clone().unwrap();
    let image = status["image"].as_str().unwrap();
    assert!(
        image.starts_with("reg.example:5000/images/team/emoji@sha256:0a0a"),
        "{image}"
    );
}

#[tokio::test]
async fn a_status_that_was_refused_is_written_by_the_next_pass_and_nothing_is_created_again() {
    let mut server = Server::start(&template(json!({})));
    server.world.lock().unwrap().refuse_status = Some(StatusCode::INTERNAL_SERVER_ERROR);
    server.pass().await.unwrap_err();
    server.world.lock().unwrap().writes.clear();
    assert_eq!(server.pass().await.unwrap(), ["PATCH status"]);
}

#[tokio::test]
async fn a_job_that_is_refused_is_told_once_and_tried_again() {
    let mut server = Server::start(&template(json!({})));
    server.world.lock().unwrap().refuse_jobs = Some(StatusCode::UNPROCESSABLE_ENTITY);
    let writes = async |server: &mut Server| {
        server.pass().await.unwrap_err();
        std::mem::take(&mut server.world.lock().unwrap().writes)
    };
    assert_eq!(
        writes(&mut server).await,
        ["POST configmaps", "POST jobs", "PATCH status"]
    );
    let status = server.world.lock().unwrap().status.clone().unwrap();
    assert_eq!(status["failure"]["reason"], "BuildFailed");
    let message = status["failure"]["message"].as_str().unwrap();
    assert!(
        message.contains("refused") && message.ends_with(": m"),
        "{message}"
    );
    assert_eq!(status["build"], Value::Null, "no build has begun");
    assert_eq!(
        writes(&mut server).await,
        ["POST configmaps", "POST jobs"],
        "nothing new to tell"
    );
    server.world.lock().unwrap().refuse_jobs = None;
    server.pass().await.unwrap();
    let status = server.world.lock().unwrap().status.clone().unwrap();
    assert_eq!(
        (&status["build"]["number"], &status["failure"]),
        (&json!(1), &Value::Null)
    );
}

#[tokio::test]
async fn a_list_from_before_a_creation_makes_no_second_job() {
    let mut server = Server::start(&template(json!({})));
    server.pass().await.unwrap();
    // As after a change of the API server: neither the Job nor the status are to be seen.
    let mut world = std::mem::take(&mut *server.world.lock().unwrap());
    world.status = None;
    world.hides_jobs = true;
    *server.world.lock().unwrap() = world;
    server.template["status"] = Value::Null;
    let writes = server.pass().await.unwrap();
    assert!(writes.contains(&"POST jobs".to_owned()), "{writes:?}");
    server.world.lock().unwrap().hides_jobs = false;
    server.pass().await.unwrap();
    let world = server.world.lock().unwrap();
    assert_eq!(
        (
            world.jobs.len(),
            &world.status.as_ref().unwrap()["build"]["number"]
        ),
        (1, &json!(1))
    );
}
