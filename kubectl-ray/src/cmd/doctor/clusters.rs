//! The clusters and images of the namespace: what they wait for, and Serve that nobody can reach.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::ListParams;
use ray_api::conditions;
use ray_api::meta::{annotation, condition};
use ray_api::ray::v1::RayCluster;
use ray_api::template::v1alpha1::ImageTemplate;

use super::{Finding, Grade};
use crate::connection::Connection;
use crate::follow::{Stage, image};
use crate::ray::{SERVE_PORT, dashboard::Dashboard};

pub(super) async fn check(connected: &Connection) -> Vec<Finding> {
    let mut findings = images(connected).await;
    findings.extend(serve(connected).await);
    findings
}

async fn images(connected: &Connection) -> Vec<Finding> {
    let api: Api<ImageTemplate> = connected.api();
    let Ok(list) = api.list(&ListParams::default()).await else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for template in &list.items {
        let name = template.metadata.name.as_deref().unwrap_or_default();
        let subject = format!("image template {name}");
        if let Stage::Failed(failure) = image::judge(template) {
            findings.push(Finding::problem(
                &subject,
                failure.message,
                &format!("`kubectl ray build log {name}`"),
            ));
        }
        let spec = &template.spec;
        let pulls = spec.pull_secrets.iter().chain(&spec.run_pull_secrets);
        for secret in spec.push_secret.iter().chain(pulls) {
            findings.extend(registry_secret(connected, &subject, secret).await);
        }
    }
    findings
}

/// The Secret's type is looked at, never its content.
async fn registry_secret(connected: &Connection, subject: &str, name: &str) -> Option<Finding> {
    const TYPE: &str = "kubernetes.io/dockerconfigjson";
    match connected.api::<Secret>().get_opt(name).await {
        Ok(Some(secret)) if secret.type_.as_deref() == Some(TYPE) => None,
        Ok(Some(_)) => Some(Finding::problem(
            subject,
            format!("Secret `{name}` is not of type {TYPE}"),
            "make it with `kubectl create secret docker-registry`",
        )),
        Ok(None) => Some(Finding::problem(
            subject,
            format!("Secret `{name}` does not exist"),
            "make it with `kubectl create secret docker-registry`",
        )),
        Err(error) => Some(Finding::of_error(subject, error)),
    }
}

async fn serve(connected: &Connection) -> Vec<Finding> {
    let api: Api<RayCluster> = connected.api();
    let list = match api.list(&ListParams::default()).await {
        Ok(list) => list.items,
        Err(error) => return vec![Finding::of_error("ray clusters", error)],
    };
    let mut findings = Vec::new();
    for cluster in &list {
        let annotations = cluster.metadata.annotations.clone().unwrap_or_default();
        if annotations
            .get(annotation::ENABLE_SERVE_SERVICE)
            .is_some_and(|value| value == "true")
        {
            findings.extend(serve_finding(connected, cluster).await);
        }
    }
    findings
}

/// Asks Ray where its Serve proxies listen: on 127.0.0.1 no pod of the Service ever answers.
async fn serve_finding(connected: &Connection, cluster: &RayCluster) -> Option<Finding> {
    let name = cluster.metadata.name.as_deref()?;
    let subject = format!("serve on {name}");
    let list = cluster
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default();
    if let Some(unknown) =
        conditions::find(&list, condition::SERVE_HEALTH_UNKNOWN).filter(|c| c.status == "True")
    {
        let fix = "the operator cannot reach the pods: look at network policies";
        return Some(Finding::warning(&subject, unknown.message.clone(), fix));
    }
    let dashboard = Dashboard::of_cluster(connected, name).await.ok()?;
    let details = dashboard
        .json::<serde_json::Value>(http::Method::GET, "/api/serve/applications/", None)
        .await;
    let details = match details {
        Ok(details) => details,
        Err(failure) => return Some(Finding::new(Grade::Unknown, &subject, failure.message)),
    };
    let host = details
        .pointer("/http_options/host")
        .and_then(serde_json::Value::as_str)?;
    let port = details
        .pointer("/http_options/port")
        .and_then(serde_json::Value::as_u64);
    let port = port.unwrap_or_else(|| SERVE_PORT.into());
    Some(match host {
        "127.0.0.1" | "localhost" | "::1" => Finding::problem(
            &subject,
            format!("Serve listens on {host}:{port} only, where no Service reaches it"),
            "start Serve with http_options host 0.0.0.0",
        ),
        _ => Finding::ok(&subject, format!("Serve listens on {host}:{port}")),
    })
}
