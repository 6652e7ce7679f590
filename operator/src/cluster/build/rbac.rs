//! What the autoscaler needs (raycluster-behaviour appendix A): read pods, patch the RayCluster, resize pods.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ray_api::meta::{APP_NAME, CREATED_BY, label};
use ray_api::names;

use super::facts::Facts;
use super::owned;

/// The head's ServiceAccount, unless the user named one.
pub(super) fn service_account(facts: &Facts<'_>) -> Option<ServiceAccount> {
    let spec = facts.head_template().and_then(|template| template.spec.as_ref());
    let named = spec
        .and_then(|spec| spec.service_account_name.as_deref())
        .is_some_and(|name| !name.is_empty());
    (!named).then(|| ServiceAccount {
        metadata: metadata(facts, facts.head_service_account()),
        ..ServiceAccount::default()
    })
}

/// What the autoscaler may do.
pub(super) fn role(facts: &Facts<'_>) -> Role {
    Role {
        metadata: metadata(facts, names::check_name(facts.name)),
        rules: Some(vec![
            rule("", "pods", &["get", "list", "watch", "patch"]),
            rule("", "pods/resize", &["patch"]),
            rule("ray.io", "rayclusters", &["get", "patch"]),
        ]),
    }
}

/// Gives the role to the head.
pub(super) fn role_binding(facts: &Facts<'_>) -> RoleBinding {
    let name = names::check_name(facts.name);
    RoleBinding {
        metadata: metadata(facts, name.clone()),
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "Role".to_owned(),
            name,
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: facts.head_service_account(),
            namespace: Some(facts.namespace.to_owned()),
            api_group: None,
        }]),
    }
}

fn metadata(facts: &Facts<'_>, name: String) -> ObjectMeta {
    let labels = [
        (label::CLUSTER, facts.name),
        (label::APP_NAME, APP_NAME),
        (label::APP_CREATED_BY, CREATED_BY),
    ];
    owned(facts, name, &labels)
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    }
}
