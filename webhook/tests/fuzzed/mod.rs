//! What must hold for any bytes. The fuzzer (`fuzz/`) makes them up; `corpus.rs` replays those worth keeping.

use std::sync::OnceLock;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use k8s_openapi::ByteString;
use ray_api::expand::{Compute, Decisions, Templates, check_compute, strip};
use ray_api::image::{inputs_hash, render, warnings};
use ray_api::ray::RayCluster;
use ray_api::template::v1alpha1::ImageTemplateSpec;
use ray_api::template::{ComputeTemplate, ComputeTemplateSpec};
use ray_api::{image, validate};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tower::ServiceExt;

use crate::dockerfile_reader::read;
use crate::fake::{self, NAMESPACE};

const PATHS: [&str; 4] = [
    "/mutate-raycluster",
    "/validate-raycluster",
    "/validate-computetemplate",
    "/validate-imagetemplate",
];

/// A body that someone posts to every endpoint: each answers, and answers what an API server can use.
pub(crate) fn admission(body: &[u8]) {
    static SERVER: OnceLock<(Runtime, Router)> = OnceLock::new();
    let (runtime, router) = SERVER.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let _inside = runtime.enter();
        let webhooks = fake::webhooks(fake::client(None), &mut Default::default(), &Default::default());
        (runtime, webhooks.router())
    });
    for path in PATHS {
        let (status, answer) = runtime.block_on(async {
            let request = Request::post(path).header("content-type", "application/json");
            let request = request.body(Body::from(body.to_vec())).unwrap();
            let response = router.clone().oneshot(request).await.unwrap();
            let status = response.status();
            (status, to_bytes(response.into_body(), usize::MAX).await.unwrap())
        });
        match status {
            StatusCode::OK => check_answer(path, body, &answer),
            StatusCode::BAD_REQUEST => assert!(!answer.is_empty(), "{path}: a 400 says why"),
            other => panic!("{path}: {other}"),
        }
    }
}

fn check_answer(path: &str, body: &[u8], answer: &[u8]) {
    // What nobody reads of a body is skipped, whatever bytes it has.
    let Ok(asked) = serde_json::from_slice::<Value>(body) else {
        return;
    };
    let answer: Value = serde_json::from_slice(answer).unwrap();
    let response = &answer["response"];
    assert_eq!(response["uid"], asked["request"]["uid"], "{path}");
    if response["allowed"] == false {
        assert!(response["patch"].is_null(), "{path}: a denial changes nothing");
        assert!(
            response["status"]["code"]
                .as_u64()
                .is_some_and(|code| code >= 400),
            "{path}: {answer}"
        );
        assert!(
            response["status"]["message"]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{path}: {answer}"
        );
    } else if !response["patch"].is_null() {
        assert_eq!(path, PATHS[0], "only expansion changes objects");
        let patch: ByteString = serde_json::from_value(response["patch"].clone()).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch.0).unwrap();
        let mut object = asked["request"]["object"].clone();
        json_patch::patch(&mut object, &patch).expect("the patch fits the object that was sent");
    }
}

/// Text of a template: whatever passes validation can be expanded, taken back and rendered.
pub(crate) fn templates(text: &[u8]) {
    if let Ok(spec) = serde_json::from_slice::<ComputeTemplateSpec>(text) {
        let errors = validate::compute_template("t", &spec);
        if errors.is_empty() && check_compute(&spec).is_empty() && spec.extends.is_none() {
            expands(spec);
        }
    }
    if let Ok(spec) = serde_json::from_slice::<ImageTemplateSpec>(text) {
        let _ = warnings(&spec);
        if image::validate(&spec).is_empty() {
            renders(&spec);
        }
    }
}

fn expands(spec: ComputeTemplateSpec) {
    let mut template = ComputeTemplate::new("t", spec);
    template.metadata.namespace = Some(NAMESPACE.to_owned());
    template.metadata.uid = Some("u".to_owned());
    let template = Compute::from(&template);
    let pod = json!({"spec": {"containers": [{"name": "mine", "image": "i", "env": [{"name": "A", "value": "own"}]}]}});
    let cluster = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "c", "namespace": NAMESPACE},
        "spec": {"computeTemplate": "t", "headGroupSpec": {"template": pod},
            "workerGroupSpecs": [{"groupName": "w", "replicas": 1, "minReplicas": 0, "maxReplicas": 2, "template": pod}]}});
    let decisions = Decisions::of(ray_api::expand::Request {
        namespace: NAMESPACE,
        object: &cluster,
        old_object: None,
        dry_run: false,
        field_manager: None,
    });
    let mut templates = Templates::default();
    for needed in decisions.needed(&templates) {
        templates.insert_compute(needed, Some(template.clone()));
    }
    let expanded = decisions
        .expand(&templates)
        .expect("a valid template fits a plain cluster")
        .object;
    assert_eq!(strip(&expanded), cluster, "what was filled can be taken back");
    let typed = RayCluster::deserialize(&expanded).expect("the expanded cluster reads");
    assert_eq!(validate::cluster(&typed), [], "{expanded}");
}

fn renders(spec: &ImageTemplateSpec) {
    let context = render(spec).expect("a valid template renders");
    assert_eq!(inputs_hash(&context), inputs_hash(&render(spec).unwrap()));
    let instructions = read(&context.dockerfile);
    let names: Vec<_> = instructions
        .iter()
        .map(|instruction| instruction.name.as_str())
        .collect();
    assert_eq!(
        names.iter().filter(|name| **name == "FROM").count(),
        1,
        "{}",
        context.dockerfile
    );
    let variables = names.iter().filter(|name| **name == "ENV").count();
    assert!(
        variables <= spec.environment_variables.len() + 1,
        "{}",
        context.dockerfile
    );
}
