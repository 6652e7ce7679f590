//! The webhook on an API server that exists in memory: a few templates, watches that never end.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::{Request, Response};
use futures::StreamExt;
use kube::Client;
use prometheus_client::registry::Registry;
use ray_runtime::admin::Readiness;
use ray_webhook::admit::Context;
use ray_webhook::metrics::Metrics;
use ray_webhook::server::Webhooks;
use ray_webhook::templates::TemplateReader;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Namespace of everything here.
pub(crate) const NAMESPACE: &str = "ns";

fn template(kind: &str, name: &str, rest: &Value) -> Value {
    let mut object = json!({"apiVersion": "templates.ray.io/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": format!("uid-{name}"), "generation": 3}});
    if let (Some(object), Some(rest)) = (object.as_object_mut(), rest.as_object()) {
        object.extend(rest.clone());
    }
    object
}

/// What the API server holds, by plural.
fn stored() -> [(&'static str, Vec<Value>); 3] {
    let limits = |cpu: &str| json!({"resources": {"limits": {"cpu": cpu}}});
    let built = json!({"image": "reg/torch@sha256:1", "rayVersion": "2.60.0"});
    let mut wide = template("ClusterComputeTemplate", "wide", &json!({"spec": limits("8")}));
    wide["metadata"]["namespace"].take();
    [
        (
            "computetemplates",
            vec![
                template("ComputeTemplate", "small", &json!({"spec": limits("1")})),
                template(
                    "ComputeTemplate",
                    "big",
                    &json!({"spec": {"extends": "small", "sharedMemory": "1Gi",
                    "volumes": [{"name": "scratch", "emptyDir": {}}], "volumeMounts": [{"name": "scratch", "mountPath": "/s"}],
                    "env": [{"name": "A", "value": "1"}], "tolerations": [{"operator": "Exists"}], "numOfHosts": 2}}),
                ),
            ],
        ),
        ("clustercomputetemplates", vec![wide]),
        (
            "imagetemplates",
            vec![
                template(
                    "ImageTemplate",
                    "torch",
                    &json!({"spec": {"baseImage": "b", "runPullSecrets": ["pull"]}, "status": built}),
                ),
                template("ImageTemplate", "slow", &json!({"spec": {"baseImage": "b"}})),
            ],
        ),
    ]
}

/// A client of that API server. Requests whose path ends with `slow_path` are never answered.
pub(crate) fn client(slow_path: Option<&'static str>) -> Client {
    let service = tower::service_fn(move |request: Request<kube::client::Body>| async move {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        if slow_path.is_some_and(|slow| path.ends_with(slow)) {
            futures::future::pending::<()>().await;
        }
        let response = if query.contains("watch=true") {
            Response::new(Body::from_stream(
                futures::stream::pending::<Result<Vec<u8>, Infallible>>().boxed(),
            ))
        } else {
            answer(path)
        };
        Ok::<_, Infallible>(response)
    });
    Client::new(service, "default")
}

fn answer(path: &str) -> Response<Body> {
    let last = path.rsplit('/').next().unwrap_or_default();
    for (plural, objects) in stored() {
        if last == plural {
            let list = json!({"metadata": {"resourceVersion": "1"}, "items": objects});
            return Response::new(Body::from(list.to_string()));
        }
        let found = objects
            .into_iter()
            .find(|object| object["metadata"]["name"] == last);
        if let Some(found) = found.filter(|_| path.contains(plural)) {
            return Response::new(Body::from(found.to_string()));
        }
    }
    let missing = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not found"});
    let mut response = Response::new(Body::from(missing.to_string()));
    *response.status_mut() = axum::http::StatusCode::NOT_FOUND;
    response
}

/// The webhook over that client; `registry` gets its metrics, `readiness` its caches.
pub(crate) fn webhooks(client: Client, registry: &mut Registry, readiness: &Readiness) -> Webhooks {
    ray_runtime::install_crypto();
    let metrics = Metrics::register(registry);
    let templates = TemplateReader::start(
        client.clone(),
        &[],
        readiness,
        metrics.clone(),
        &CancellationToken::new(),
    );
    let context = Context {
        client,
        templates,
        policy: Default::default(),
        require_use: false,
    };
    Webhooks { context, metrics }
}
