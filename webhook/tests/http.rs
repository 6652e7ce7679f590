//! The endpoints without a cluster: hostile bodies, answers, and TLS.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod fake;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use k8s_openapi::ByteString;
use k8s_openapi::jiff::Timestamp;
use prometheus_client::registry::Registry;
use ray_runtime::admin::Readiness;
use ray_webhook::certificate::issue::{Issued, issue};
use ray_webhook::server::Webhooks;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tower::ServiceExt;

fn webhooks() -> Webhooks {
    fake::webhooks(
        fake::client(None),
        &mut Registry::default(),
        &Readiness::default(),
    )
}

async fn post(path: &str, body: impl Into<Body>) -> (StatusCode, Vec<u8>) {
    post_to(webhooks(), path, body).await
}

async fn post_to(webhooks: Webhooks, path: &str, body: impl Into<Body>) -> (StatusCode, Vec<u8>) {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(body.into())
        .unwrap();
    let response = webhooks.router().oneshot(request).await.unwrap();
    let status = response.status();
    (
        status,
        to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec(),
    )
}

async fn review(path: &str, request: Value) -> Value {
    let (status, body) = post(path, review_of(request).to_string()).await;
    assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
    serde_json::from_slice::<Value>(&body).unwrap()["response"].take()
}

fn review_of(request: Value) -> Value {
    let mut whole = json!({"uid": "1", "kind": {"group": "ray.io", "version": "v1", "kind": "RayCluster"},
        "resource": {"group": "ray.io", "version": "v1", "resource": "rayclusters"},
        "name": "c", "namespace": "ns", "operation": "CREATE", "userInfo": {"username": "me"}, "dryRun": false});
    whole
        .as_object_mut()
        .unwrap()
        .extend(request.as_object().unwrap().clone());
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": whole})
}

fn cluster(template: &str) -> Value {
    json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "c", "namespace": "ns"},
        "spec": {"unknown": {"kept": [1.5, null]}, "headGroupSpec": {"computeTemplate": template}}})
}

#[tokio::test]
async fn a_reference_is_answered_with_a_patch_that_touches_nothing_else() {
    let response = review("/mutate-raycluster", json!({"object": cluster("small")})).await;
    assert_eq!(response["allowed"], true);
    let patch: ByteString = serde_json::from_value(response["patch"].clone()).unwrap();
    let patch: Vec<Value> = serde_json::from_slice(&patch.0).unwrap();
    let paths: Vec<_> = patch
        .iter()
        .map(|op| format!("{} {}", op["op"].as_str().unwrap(), op["path"].as_str().unwrap()))
        .collect();
    assert_eq!(
        paths,
        ["add /metadata/annotations", "add /spec/headGroupSpec/template"]
    );
}

#[tokio::test]
async fn a_missing_template_is_an_invalid_field_and_a_warning_under_dry_run() {
    let response = review("/mutate-raycluster", json!({"object": cluster("smal")})).await;
    assert_eq!(response["allowed"], false);
    assert_eq!(response["status"]["code"], 422);
    let message = response["status"]["message"].as_str().unwrap();
    assert!(
        message.contains("spec.headGroupSpec.computeTemplate: ComputeTemplate ns/smal not found"),
        "{message}"
    );
    let response = review(
        "/mutate-raycluster",
        json!({"object": cluster("smal"), "dryRun": true}),
    )
    .await;
    assert_eq!(response["allowed"], true);
    assert_eq!(response["warnings"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn bodies_that_are_no_review_get_a_400_and_nothing_more() {
    let deep = "[".repeat(100_000);
    let bodies = [
        "",
        "null",
        "{}",
        "[1]",
        "\u{0}",
        "{\"request\": {}}",
        &deep,
        r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#,
    ];
    for path in [
        "/mutate-raycluster",
        "/validate-raycluster",
        "/validate-computetemplate",
        "/validate-imagetemplate",
    ] {
        for body in bodies {
            assert_eq!(
                post(path, body.to_owned()).await.0,
                StatusCode::BAD_REQUEST,
                "{path} {body:.40}"
            );
        }
        let no_object = review_of(json!({"operation": "DELETE", "oldObject": cluster("small")})).to_string();
        assert_eq!(post(path, no_object).await.0, StatusCode::BAD_REQUEST);
        let mut odd = cluster("small");
        odd["metadata"]["annotations"] = json!("x");
        for objects in [
            json!({"object": odd}),
            json!({"object": cluster("small"), "oldObject": odd, "operation": "UPDATE"}),
            json!({"object": cluster("small"), "oldObject": "x", "operation": "UPDATE"}),
        ] {
            let body = review_of(objects).to_string();
            assert_eq!(
                post(path, body.clone()).await.0,
                StatusCode::BAD_REQUEST,
                "{body}"
            );
        }
    }
    let huge = vec![b' '; 9 * 1024 * 1024];
    assert_eq!(
        post("/mutate-raycluster", huge).await.0,
        StatusCode::PAYLOAD_TOO_LARGE
    );
}

#[tokio::test]
async fn objects_of_strange_shapes_are_answered() {
    let shapes = [
        json!({}),
        json!({"spec": null}),
        json!({"spec": 1}),
        json!({"spec": {"headGroupSpec": []}}),
        json!({"spec": {"headGroupSpec": {"computeTemplate": "small", "template": {"spec": {"containers": {}}}}}}),
        json!({"spec": {"headGroupSpec": {"computeTemplate": "small", "template": "x"}, "workerGroupSpecs": [1, null, {"groupName": 2}]}}),
        json!({"metadata": {"annotations": {"templates.ray.io/expansion": "{\"head\":{\"pieces\":[{\"at\":\"[\",\"value\":1}]}}"}}}),
    ];
    for mut object in shapes {
        object["apiVersion"] = json!("ray.io/v1");
        object["kind"] = json!("RayCluster");
        if object.get("metadata").is_none() {
            object["metadata"] = json!({"name": "c"});
        }
        for path in ["/mutate-raycluster", "/validate-raycluster"] {
            let response = review(
                path,
                json!({"object": object, "oldObject": object, "operation": "UPDATE"}),
            )
            .await;
            assert!(response["allowed"].is_boolean(), "{object}");
        }
    }
}

#[tokio::test]
async fn a_circle_of_extends_is_refused_and_a_missing_parent_is_not() {
    let kind = json!({"group": "templates.ray.io", "version": "v1alpha1", "kind": "ComputeTemplate"});
    let template = |extends: &str| {
        json!({"apiVersion": "templates.ray.io/v1alpha1", "kind": "ComputeTemplate",
            "metadata": {"name": "t", "namespace": "ns"}, "spec": {"extends": extends}})
    };
    let response = review(
        "/validate-computetemplate",
        json!({"kind": kind, "object": template("t")}),
    )
    .await;
    assert_eq!(response["allowed"], false);
    let response = review(
        "/validate-computetemplate",
        json!({"kind": kind, "object": template("later")}),
    )
    .await;
    assert_eq!(response["allowed"], true);
    assert!(
        response["warnings"][0]
            .as_str()
            .unwrap()
            .contains("does not exist")
    );
}

#[tokio::test]
async fn ready_only_once_every_kind_of_template_is_cached() {
    let (all, some) = (Readiness::default(), Readiness::default());
    let _all = fake::webhooks(fake::client(None), &mut Registry::default(), &all);
    // Its list of images never ends.
    let _some = fake::webhooks(
        fake::client(Some("/imagetemplates")),
        &mut Registry::default(),
        &some,
    );
    assert_eq!(all.missing(), ["template caches"]);
    while !all.missing().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(some.missing(), ["template caches"]);
}

#[tokio::test]
async fn an_api_server_that_does_not_answer_is_named_before_the_callers_patience_ends() {
    let slow = fake::client(Some("/later"));
    let webhooks = fake::webhooks(slow, &mut Registry::default(), &Readiness::default());
    let body = review_of(json!({"object": cluster("later")})).to_string();
    // The API server waits for five seconds.
    let answer = tokio::time::timeout(
        Duration::from_secs(5),
        post_to(webhooks, "/mutate-raycluster", body),
    );
    let (status, body) = answer.await.unwrap();
    assert_eq!(status, StatusCode::OK);
    let review: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(review["response"]["status"]["code"], 503, "{review}");
    let message = review["response"]["status"]["message"].as_str().unwrap();
    assert!(
        message.contains("cannot read ComputeTemplate ns/later: no answer"),
        "{message}"
    );
}

#[tokio::test]
async fn a_body_that_never_ends_is_not_waited_for() {
    let endless = futures::stream::pending::<Result<Vec<u8>, std::convert::Infallible>>();
    let answer = tokio::time::timeout(
        Duration::from_secs(5),
        post("/mutate-raycluster", Body::from_stream(endless)),
    );
    assert_eq!(answer.await.unwrap().0, StatusCode::GATEWAY_TIMEOUT);
}

#[tokio::test]
async fn every_answer_is_counted_by_its_result() {
    let (mut registry, readiness) = (Registry::default(), Readiness::default());
    let webhooks = fake::webhooks(fake::client(None), &mut registry, &readiness);
    for body in [
        review_of(json!({"object": cluster("small")})).to_string(),
        review_of(json!({"object": cluster("smal")})).to_string(),
        "no review".to_owned(),
    ] {
        post_to(webhooks.clone(), "/mutate-raycluster", body).await;
    }
    let text = loop {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        // The gauges follow the caches.
        if text.contains("ray_webhook_store_size{kind=\"ComputeTemplate\"} 2") {
            break text;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    for line in [
        "ray_webhook_requests_total{webhook=\"mutate-raycluster\",result=\"allowed\"} 1",
        "ray_webhook_requests_total{webhook=\"mutate-raycluster\",result=\"denied\"} 1",
        "ray_webhook_requests_total{webhook=\"mutate-raycluster\",result=\"malformed\"} 1",
        "ray_webhook_duration_seconds_count{webhook=\"mutate-raycluster\"} 3",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is missing in\n{text}"
        );
    }
}

fn issued() -> Issued {
    issue(
        &["localhost".to_owned()],
        Timestamp::now(),
        Duration::from_secs(600),
    )
    .unwrap()
}

type Versions = &'static [&'static rustls::SupportedProtocolVersion];
static TLS12: [&rustls::SupportedProtocolVersion; 1] = [&rustls::version::TLS12];
static TLS13: [&rustls::SupportedProtocolVersion; 1] = [&rustls::version::TLS13];

fn connection(authority: &str, versions: Versions) -> anyhow::Result<rustls::ClientConnection> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
    let config = rustls::ClientConfig::builder_with_protocol_versions(versions)
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(rustls::ClientConnection::new(
        Arc::new(config),
        ServerName::try_from("localhost")?,
    )?)
}

/// A request over a new connection that trusts `authority` alone; the protocol that was agreed on.
fn call(address: SocketAddr, authority: &str, versions: Versions) -> anyhow::Result<rustls::ProtocolVersion> {
    let mut connection = connection(authority, versions)?;
    let mut socket = TcpStream::connect(address)?;
    let mut stream = rustls::Stream::new(&mut connection, &mut socket);
    stream.write_all(b"POST /mutate-raycluster HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    anyhow::ensure!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    connection
        .protocol_version()
        .ok_or_else(|| anyhow::anyhow!("no handshake"))
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_1_2_and_1_3_are_spoken_and_a_certificate_is_exchanged_under_load() {
    let (old, new) = (issued(), issued());
    let webhooks = webhooks();
    let tls = RustlsConfig::from_pem(old.pair.certificate.into(), old.pair.key.into())
        .await
        .unwrap();
    let handle = Handle::new();
    let server = tokio::spawn(webhooks.serve("127.0.0.1:0".parse().unwrap(), tls.clone(), handle.clone()));
    let address = handle.listening().await.unwrap();

    let ask = move |authority: String, versions: Versions| {
        tokio::task::spawn_blocking(move || call(address, &authority, versions))
    };
    let agreed = ask(old.authority.clone(), &TLS12).await.unwrap().unwrap();
    assert_eq!(agreed, rustls::ProtocolVersion::TLSv1_2);
    let agreed = ask(old.authority.clone(), &TLS13).await.unwrap().unwrap();
    assert_eq!(agreed, rustls::ProtocolVersion::TLSv1_3);

    // Callers trust both CAs meanwhile, as caBundle does.
    let (old_ca, new_ca) = (old.authority.clone(), new.authority.clone());
    let load = tokio::task::spawn_blocking(move || {
        (0..40).all(|_| {
            call(address, &old_ca, &TLS13)
                .or_else(|_| call(address, &new_ca, &TLS13))
                .is_ok()
        })
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    tls.reload_from_pem(new.pair.certificate.into(), new.pair.key.into())
        .await
        .unwrap();
    assert!(load.await.unwrap(), "a call failed");
    assert!(ask(new.authority, &TLS13).await.unwrap().is_ok());
    assert!(ask(old.authority, &TLS13).await.unwrap().is_err());
    handle.graceful_shutdown(Some(Duration::from_secs(1)));
    server.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_say_nothing_are_hung_up_on() {
    let issued = issued();
    let tls = RustlsConfig::from_pem(issued.pair.certificate.into(), issued.pair.key.into())
        .await
        .unwrap();
    let handle = Handle::new();
    tokio::spawn(webhooks().serve("127.0.0.1:0".parse().unwrap(), tls, handle.clone()));
    let address = handle.listening().await.unwrap();
    let silent = tokio::task::spawn_blocking(move || {
        let mut socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(Duration::from_secs(60)))?;
        socket.read(&mut [0; 1])
    });
    let half_a_request = tokio::task::spawn_blocking(move || {
        let mut connection = connection(&issued.authority, &TLS13).unwrap();
        let mut socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut stream = rustls::Stream::new(&mut connection, &mut socket);
        stream.write_all(b"POST /mutate-raycluster HT")?;
        stream.read_to_end(&mut Vec::new())
    });
    for ended in [silent.await.unwrap(), half_a_request.await.unwrap()] {
        // Reset or closed, but not waited for.
        let kind = ended.map_err(|error| error.kind());
        assert!(
            !matches!(
                kind,
                Err(std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
            ),
            "{kind:?}"
        );
    }
}
