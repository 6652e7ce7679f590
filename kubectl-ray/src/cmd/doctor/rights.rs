//! What the user may do here.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;

use super::Finding;
use crate::connection::Connection;

/// Group, resource, subresource, verb, and what it is for.
const NEEDED: [(&str, &str, &str, &str, &str); 9] = [
    ("ray.io", "rayclusters", "", "create", "create cluster"),
    ("ray.io", "rayclusters", "", "patch", "scale, refresh"),
    (
        "templates.ray.io",
        "imagetemplates",
        "",
        "create",
        "create image-template",
    ),
    (
        "templates.ray.io",
        "computetemplates",
        "",
        "create",
        "create compute-template",
    ),
    ("", "pods", "", "list", "get node, job, session, log"),
    ("", "pods", "", "delete", "refresh --restart"),
    ("", "pods", "portforward", "create", "job, session"),
    ("", "pods", "exec", "create", "log --file, log downloads"),
    ("", "pods", "log", "get", "log, build log"),
];

/// One finding for all rights: those that miss are named with the verbs that need them.
pub(super) async fn check(connected: &Connection) -> Vec<Finding> {
    let api: Api<SelfSubjectAccessReview> = Api::all(connected.client.clone());
    let mut missing = Vec::new();
    for (group, resource, subresource, verb, purpose) in NEEDED {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    namespace: Some(connected.namespace.clone()),
                    group: Some(group.to_owned()),
                    resource: Some(resource.to_owned()),
                    subresource: Some(subresource.to_owned()).filter(|s| !s.is_empty()),
                    verb: Some(verb.to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        match api.create(&PostParams::default(), &review).await {
            Ok(answer) if answer.status.as_ref().is_some_and(|status| status.allowed) => {}
            Ok(_) => {
                let what = if subresource.is_empty() {
                    resource.to_owned()
                } else {
                    format!("{resource}/{subresource}")
                };
                missing.push(format!("{verb} {what} (for {purpose})"));
            }
            Err(error) => return vec![Finding::of_error("your rights", error)],
        }
    }
    let namespace = &connected.namespace;
    vec![match missing.as_slice() {
        [] => Finding::ok("your rights", format!("all verbs work in namespace {namespace}")),
        missing => Finding::warning(
            "your rights",
            format!("in namespace {namespace} you may not {}", missing.join(", ")),
            "ask an administrator for the role `ray-user`, if these verbs are for you",
        ),
    }]
}
