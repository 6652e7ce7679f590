//! What `create` sends, and what it makes of a server that knows less, or has no webhook.

// Clippy lets tests panic, but not what they call.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod fake;

use axum::body::Body;
use axum::http::Response;
use fake::{Asked, FakeServer, answer, cluster, compute_template, failure, image_template, named, ok};
use serde_json::{Value, json};

const CREATE: [&str; 7] = [
    "create",
    "cluster",
    "c",
    "--image-template",
    "torch",
    "--compute-template",
    "small",
];
const UNKNOWN_FIELD: &str = "RayCluster in version \"v1\" cannot be handled as a RayCluster: strict decoding error: unknown field \"spec.imageTemplate\"";

fn posts(server: &FakeServer) -> Vec<Asked> {
    let mut asked = server.asked();
    asked.retain(|asked| asked.method == "POST");
    asked
}

/// A server with both templates, which answers POSTs by their number.
fn site(post: impl Fn(usize, &Value) -> Response<Body> + Send + Sync + 'static) -> FakeServer {
    FakeServer::start(move |asked, before| match (asked.method.as_str(), named(asked)) {
        ("GET", "computetemplates/small") => ok(&compute_template("small")),
        ("GET", "imagetemplates/torch") => ok(&image_template("torch", true)),
        ("POST", _) => post(
            before.iter().filter(|asked| asked.method == "POST").count(),
            &asked.body,
        ),
        _ => failure(404, "NotFound", "not there"),
    })
}

#[test]
fn a_crd_without_reference_fields_gets_annotations() {
    // The first is what strict validation says; older API servers prune, and miss the pod templates.
    let required = "RayCluster.ray.io \"c\" is invalid: spec.headGroupSpec.template: Required value";
    for (code, reason, message) in [(400, "BadRequest", UNKNOWN_FIELD), (422, "Invalid", required)] {
        let server = site(move |number, body| match number {
            0 => failure(code, reason, message),
            _ => answer(201, body),
        });
        let run = server.run(&CREATE);
        assert_eq!(
            (run.code, run.stdout.as_str()),
            (0, "raycluster.ray.io/c created\n"),
            "{run:?}"
        );
        let sent = posts(&server);
        assert!(
            sent[0].uri.contains("fieldValidation=Strict")
                && sent[0].uri.contains("fieldManager=kubectl-ray")
        );
        assert_eq!(sent[0].body["spec"]["imageTemplate"], "torch");
        let second = &sent[1].body;
        let annotations = &second["metadata"]["annotations"];
        assert_eq!(annotations["templates.ray.io/image-template"], "torch");
        assert_eq!(annotations["templates.ray.io/compute-template"], "small");
        assert_eq!(second["spec"].get("imageTemplate"), None);
        assert!(second["spec"]["headGroupSpec"]["template"].is_object());
    }
}

#[test]
fn another_denial_is_not_taken_for_a_missing_field() {
    let server = site(|_, _| {
        failure(
            422,
            "Invalid",
            "spec.headGroupSpec.rayStartParams: Required value",
        )
    });
    assert_eq!(server.run(&CREATE).code, 4);
    assert_eq!(posts(&server).len(), 1);
}

#[test]
fn expansion_on_this_side_also_reaches_a_crd_without_reference_fields() {
    let server = site(|number, body| match number {
        0 => failure(400, "BadRequest", UNKNOWN_FIELD),
        _ => answer(201, body),
    });
    let run = server.run(&[&CREATE[..], &["--expand", "client"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let sent = &posts(&server)[1].body;
    assert_eq!(sent["spec"].get("imageTemplate"), None);
    for group in ["/spec/headGroupSpec", "/spec/workerGroupSpecs/0"] {
        let ray = sent
            .pointer(&format!("{group}/template/spec/containers/0"))
            .unwrap();
        assert_eq!(ray["image"], "reg/torch@sha256:1", "{group}");
        assert_eq!(ray["resources"]["limits"]["memory"], "3Gi", "{group}");
    }
    let record = ray_api::expand::Record::of(sent).unwrap();
    let mut templates: Vec<_> = record.templates().map(|id| id.name.as_str()).collect();
    templates.sort_unstable();
    assert_eq!(templates, ["small", "small", "torch", "torch"]);
}

#[test]
fn a_cluster_that_nobody_would_start_later_waits_for_its_image_first() {
    let server = FakeServer::start(|asked, before| {
        let created = before.iter().any(|asked| asked.method == "POST");
        let looks = before
            .iter()
            .filter(|asked| named(asked) == "imagetemplates/torch")
            .count();
        match (asked.method.as_str(), named(asked)) {
            ("POST", _) => answer(201, &asked.body),
            ("GET", "computetemplates/small") => ok(&compute_template("small")),
            // The first run looks once; the second sees the end of the build.
            ("GET", "imagetemplates/torch") => ok(&image_template("torch", looks > 2)),
            ("GET", "rayclusters/c") if created => {
                let mut ready = cluster("c", 0);
                ready["metadata"]["generation"] = 1.into();
                ready["status"]["observedGeneration"] = 1.into();
                ok(&ready)
            }
            _ => ok(&json!({"metadata": {}, "items": []})),
        }
    });
    let words = [&CREATE[..], &["--expand", "client"]].concat();
    let refused = server.run(&words);
    assert_eq!(refused.code, 1, "{refused:?}");
    for part in [
        "Warning: spec.imageTemplate:",
        "the image of ImageTemplate torch is not built",
        "--wait",
    ] {
        assert!(refused.stderr.contains(part), "{part}: {refused:?}");
    }
    assert_eq!(posts(&server).len(), 0);

    let waited = server.run(&[&words[..], &["--wait"]].concat());
    assert_eq!(waited.code, 0, "{waited:?}");
    let sent = &posts(&server)[0].body;
    assert_eq!(
        sent.pointer("/spec/headGroupSpec/template/spec/containers/0/image"),
        Some(&json!("reg/torch@sha256:1"))
    );
    assert_eq!(sent["spec"].get("suspend"), None);
}

#[test]
fn every_flag_of_a_worker_group_reaches_the_group() {
    let server = FakeServer::start(|asked, _| match asked.method.as_str() {
        "GET" => ok(&cluster("c", 1)),
        _ => ok(&cluster("c", 2)),
    });
    let added = |words: &[&str]| {
        let before = server.asked().len();
        let run = server.run(&[&["create", "workergroup", "g", "-c", "c"], words].concat());
        assert_eq!(run.code, 0, "{run:?}");
        let asked = server.asked().split_off(before);
        let patch = &asked.iter().find(|asked| asked.method == "PATCH").unwrap().body;
        assert_eq!(
            patch[0],
            json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"})
        );
        assert_eq!(patch[1]["path"], "/spec/workerGroupSpecs/-");
        patch[1]["value"].clone()
    };
    let tpu = added(&[
        "--image",
        "mine:1",
        "--worker-tpu",
        "4",
        "--num-of-hosts",
        "2",
        "--worker-node-selectors",
        "cloud.google.com/gke-tpu-accelerator=tpu-v5,cloud.google.com/gke-tpu-topology=2x2",
        "--worker-ray-start-params",
        "num-cpus=0",
        "--worker-replicas",
        "2",
        "--worker-min-replicas",
        "0",
        "--worker-max-replicas",
        "4",
    ]);
    assert_eq!(
        tpu,
        json!({"groupName": "g", "replicas": 2, "minReplicas": 0, "maxReplicas": 4, "numOfHosts": 2,
            "rayStartParams": {"num-cpus": "0"},
            "template": {"spec": {
                "containers": [{"name": "ray-worker", "image": "mine:1", "resources": {
                    "requests": {"cpu": "2", "memory": "4Gi", "google.com/tpu": "4"},
                    "limits": {"memory": "4Gi", "google.com/tpu": "4"}}}],
                "nodeSelector": {"cloud.google.com/gke-tpu-accelerator": "tpu-v5", "cloud.google.com/gke-tpu-topology": "2x2"}}}})
    );
    let templated = added(&["--compute-template", "a100", "--image-template", "torch"]);
    assert_eq!(templated["computeTemplate"], "a100");
    assert_eq!(templated["imageTemplate"], "torch");
    let versioned = added(&[
        "--ray-version",
        "2.52.0",
        "--worker-cpu",
        "7",
        "--worker-gpu",
        "1",
    ]);
    let ray = &versioned["template"]["spec"]["containers"][0];
    assert_eq!(ray["image"], "rayproject/ray:2.52.0");
    assert_eq!(ray["resources"]["requests"]["cpu"], "7");
    assert_eq!(ray["resources"]["limits"]["nvidia.com/gpu"], "1");
}
