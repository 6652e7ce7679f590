//! `doctor`: each thing that may be wrong has its grade, its fix, and its part in the exit code.

// Clippy lets tests panic, but not what they call.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod fake;

use std::collections::BTreeMap;

use fake::{FakeServer, failure, ok};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/";
const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/ray-system/endpointslices";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const IMAGES: &str = "/apis/templates.ray.io/v1alpha1/namespaces/ml/imagetemplates";
const SECRET: &str = "/api/v1/namespaces/ml/secrets/push";
const CLUSTERS: &str = "/apis/ray.io/v1/namespaces/ml/rayclusters";

/// Answers by path; what has none is not found, and what is null is forbidden.
type Site = BTreeMap<String, Value>;

fn items(items: &Value) -> Value {
    json!({"metadata": {}, "items": items})
}

fn crd(group: &str, fields: &Value) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}});
    json!({"metadata": {}, "spec": {"group": group, "names": {"kind": "K", "plural": "ks"}, "scope": "Namespaced",
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}})
}

fn deployment(name: &str, ready: i32) -> Value {
    json!({"metadata": {"name": name, "namespace": "ray-system", "labels": {"app.kubernetes.io/name": name}},
        "spec": {"replicas": 1, "selector": {}, "template": {}}, "status": {"readyReplicas": ready}})
}

/// A certificate that ends in that year.
fn certificate(year: i32) -> Vec<u8> {
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.not_before = rcgen::date_time_ymd(2000, 1, 1);
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().pem().into_bytes()
}

fn hook(bundle: Vec<u8>) -> Value {
    let service = json!({"name": "ray-webhook", "namespace": "ray-system"});
    json!({"metadata": {"name": "ray-webhook"}, "webhooks": [{
        "name": "mutate.templates.ray.io", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"service": service, "caBundle": ByteString(bundle)},
        "rules": [{"apiGroups": ["ray.io"], "apiVersions": ["v1"], "resources": ["rayclusters"], "operations": ["CREATE"]}]}]})
}

fn slices(ready: bool) -> Value {
    items(
        &json!([{"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}]}]),
    )
}

fn secret(type_: &str) -> Value {
    json!({"metadata": {"name": "push"}, "type": type_})
}

/// Where nothing is wrong.
fn healthy() -> Site {
    let references = json!({"imageTemplate": {"type": "string"}});
    let image = json!({"metadata": {"name": "torch", "generation": 1}, "spec": {"baseImage": "b", "pushSecret": "push"},
        "status": {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True", "reason": "Built", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let mut site = Site::from([
        (
            "/version".to_owned(),
            json!({"major": "1", "minor": "37", "gitVersion": "v1.37.0", "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}),
        ),
        (format!("{CRDS}rayclusters.ray.io"), crd("ray.io", &references)),
        (
            DEPLOYMENTS.to_owned(),
            items(&json!([
                deployment("ray-operator", 1),
                deployment("ray-webhook", 1)
            ])),
        ),
        (MUTATING.to_owned(), items(&json!([hook(certificate(2999))]))),
        (VALIDATING.to_owned(), items(&json!([]))),
        (SLICES.to_owned(), slices(true)),
        (REVIEWS.to_owned(), json!([])),
        (IMAGES.to_owned(), items(&json!([image]))),
        (SECRET.to_owned(), secret("kubernetes.io/dockerconfigjson")),
        (CLUSTERS.to_owned(), items(&json!([]))),
    ]);
    for plural in ["imagetemplates", "computetemplates", "clustercomputetemplates"] {
        site.insert(
            format!("{CRDS}{plural}.templates.ray.io"),
            crd("templates.ray.io", &json!({})),
        );
    }
    site
}

/// Exit code and findings.
fn doctor(site: Site) -> (i32, Vec<Value>) {
    let server = FakeServer::start(move |asked, _| {
        let path = asked.uri.split('?').next().unwrap_or_default();
        if path == REVIEWS {
            let wanted = &asked.body["spec"]["resourceAttributes"];
            let right = json!([wanted["verb"], wanted["resource"]]);
            let missing = site[REVIEWS].as_array().unwrap().contains(&right);
            return ok(&json!({"metadata": {}, "spec": {}, "status": {"allowed": !missing}}));
        }
        match site.get(path) {
            None => failure(404, "NotFound", "not there"),
            Some(Value::Null) => failure(403, "Forbidden", "User \"u\" cannot list this"),
            Some(answer) => ok(answer),
        }
    });
    let run = server.run(&["doctor", "-o", "json"]);
    (
        run.code,
        serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}")),
    )
}

#[test]
fn a_healthy_site_has_nothing_to_mend() {
    let (code, findings) = doctor(healthy());
    let not_ok: Vec<_> = findings
        .iter()
        .filter(|finding| finding["grade"] != "ok")
        .collect();
    assert!(not_ok.is_empty() && code == 0, "{code}: {not_ok:?}");
    let subjects: Vec<_> = findings
        .iter()
        .map(|finding| finding["subject"].as_str().unwrap())
        .collect();
    for subject in [
        "api server",
        "rayclusters.ray.io",
        "ray-operator",
        "ray-webhook",
        "mutate.templates.ray.io",
        "your rights",
    ] {
        assert!(subjects.contains(&subject), "{subject} in {subjects:?}");
    }
}

/// What is changed, and the finding that it must give: subject, grade, part of message and fix.
struct Case {
    change: fn(&mut Site),
    subject: &'static str,
    grade: &'static str,
    message: &'static str,
    fix: &'static str,
}

#[test]
fn everything_that_is_wrong_is_graded_and_has_its_fix() {
    let cases = [
        Case {
            change: |site| drop(site.remove(&format!("{CRDS}imagetemplates.templates.ray.io"))),
            subject: "imagetemplates.templates.ray.io",
            grade: "PROBLEM",
            message: "the CRD is not installed",
            fix: "kubectl apply --server-side -k manifests/",
        },
        Case {
            change: |site| drop(site.insert(format!("{CRDS}rayclusters.ray.io"), crd("ray.io", &json!({})))),
            subject: "rayclusters.ray.io",
            grade: "warning",
            message: "KubeRay's CRD",
            fix: "references go into annotations",
        },
        Case {
            change: |site| drop(site.insert(DEPLOYMENTS.to_owned(), items(&json!([])))),
            subject: "operator",
            grade: "PROBLEM",
            message: "no operator was found",
            fix: "kubectl apply --server-side -k manifests/",
        },
        Case {
            change: |site| {
                let both = json!([deployment("ray-operator", 1), deployment("kuberay-operator", 1)]);
                site.insert(DEPLOYMENTS.to_owned(), items(&both));
            },
            subject: "operator",
            grade: "warning",
            message: "KubeRay's operator runs beside this project's",
            fix: "--controllers=image,template,serve",
        },
        Case {
            change: |site| {
                drop(site.insert(
                    DEPLOYMENTS.to_owned(),
                    items(&json!([deployment("ray-operator", 0)])),
                ))
            },
            subject: "ray-operator",
            grade: "PROBLEM",
            message: "0 of 1 pods are ready (namespace ray-system)",
            fix: "kubectl -n ray-system describe deployment ray-operator",
        },
        Case {
            change: |site| drop(site.insert(DEPLOYMENTS.to_owned(), Value::Null)),
            subject: "operator",
            grade: "unknown",
            message: "cannot list this",
            fix: "ask an administrator",
        },
        Case {
            change: |site| drop(site.insert(MUTATING.to_owned(), items(&json!([])))),
            subject: "webhook",
            grade: "PROBLEM",
            message: "no webhook expands template references",
            fix: "kubectl ray render",
        },
        Case {
            change: |site| drop(site.insert(MUTATING.to_owned(), items(&json!([hook(Vec::new())])))),
            subject: "mutate.templates.ray.io",
            grade: "PROBLEM",
            message: "its caBundle is empty",
            fix: "look at the logs of ray-webhook",
        },
        Case {
            change: |site| {
                drop(site.insert(MUTATING.to_owned(), items(&json!([hook(b"nonsense".to_vec())]))))
            },
            subject: "mutate.templates.ray.io",
            grade: "PROBLEM",
            message: "its caBundle cannot be read",
            fix: "restart ray-webhook",
        },
        Case {
            change: |site| drop(site.insert(MUTATING.to_owned(), items(&json!([hook(certificate(2001))])))),
            subject: "mutate.templates.ray.io",
            grade: "PROBLEM",
            message: "expired at 2001-01-01",
            fix: "renews it by itself",
        },
        Case {
            change: |site| drop(site.insert(SLICES.to_owned(), slices(false))),
            subject: "mutate.templates.ray.io",
            grade: "PROBLEM",
            message: "no pod answers for its Service ray-system/ray-webhook",
            fix: "look at the pods of ray-webhook",
        },
        Case {
            change: |site| drop(site.remove(SECRET)),
            subject: "image template torch",
            grade: "PROBLEM",
            message: "Secret `push` does not exist",
            fix: "kubectl create secret docker-registry",
        },
        Case {
            change: |site| drop(site.insert(SECRET.to_owned(), secret("Opaque"))),
            subject: "image template torch",
            grade: "PROBLEM",
            message: "Secret `push` is not of type kubernetes.io/dockerconfigjson",
            fix: "kubectl create secret docker-registry",
        },
        Case {
            change: |site| {
                drop(site.insert(
                    REVIEWS.to_owned(),
                    json!([["delete", "pods"], ["patch", "rayclusters"]]),
                ))
            },
            subject: "your rights",
            grade: "warning",
            message: "in namespace ml you may not patch rayclusters (for scale, refresh), delete pods (for refresh --restart)",
            fix: "ask an administrator for the role `ray-user`",
        },
    ];
    for case in cases {
        let mut site = healthy();
        (case.change)(&mut site);
        let (code, findings) = doctor(site);
        let text = |finding: &Value, field: &str| finding[field].as_str().unwrap_or_default().to_owned();
        let found = findings.iter().find(|finding| {
            finding["subject"] == case.subject && text(finding, "message").contains(case.message)
        });
        let found =
            found.unwrap_or_else(|| panic!("{}: {}: not among {findings:?}", case.subject, case.message));
        assert_eq!(found["grade"], case.grade, "{found}");
        assert!(text(found, "fix").contains(case.fix), "{found}");
        let others = findings
            .iter()
            .filter(|finding| finding["grade"] == "PROBLEM" && *finding != found);
        assert_eq!(others.count(), 0, "{}: {findings:?}", case.message);
        assert_eq!(code, i32::from(case.grade == "PROBLEM"), "{}", case.message);
    }
}
