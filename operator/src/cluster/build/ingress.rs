//! The Ingress to the dashboard (raycluster-behaviour 4.13).

use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressBackend, IngressRule, IngressServiceBackend,
    IngressSpec, ServiceBackendPort,
};
use ray_api::meta::{APP_NAME, CREATED_BY, NODE_TYPE_HEAD, annotation, label};
use ray_api::names;

use super::facts::Facts;
use super::pod::identifier;
use super::{owned, service};

/// The Ingress, where the head asks for it.
pub(super) fn ingress(facts: &Facts<'_>) -> Option<Ingress> {
    let head = &facts.spec.head_group_spec;
    if head.enable_ingress != Some(true) {
        return None;
    }
    let options = head.ingress_options.clone().unwrap_or_default();
    let path = HTTPIngressPath {
        path: Some(options.path.unwrap_or_else(|| "/".to_owned())),
        path_type: options.path_type.unwrap_or_else(|| "Prefix".to_owned()),
        backend: IngressBackend {
            service: Some(IngressServiceBackend {
                name: facts.head_service.clone(),
                port: Some(ServiceBackendPort {
                    number: Some(service::dashboard_port(facts)),
                    name: None,
                }),
            }),
            resource: None,
        },
    };
    // The cluster's annotations configure the ingress controller; what kubectl or we keep on the cluster does not.
    let mut annotations = facts.cluster.metadata.annotations.clone().unwrap_or_default();
    let class = annotations.remove(annotation::INGRESS_CLASS);
    annotations.retain(|key, _| key != annotation::LAST_APPLIED && !key.starts_with("templates.ray.io/"));
    let labels = [
        (label::CLUSTER, facts.name),
        (label::IDENTIFIER, &identifier(facts, NODE_TYPE_HEAD)),
        (label::APP_NAME, APP_NAME),
        (label::APP_CREATED_BY, CREATED_BY),
    ];
    let mut metadata = owned(facts, names::head_ingress(facts.name), &labels);
    metadata.annotations = Some(annotations).filter(|annotations| !annotations.is_empty());
    Some(Ingress {
        metadata,
        spec: Some(IngressSpec {
            ingress_class_name: class,
            rules: Some(vec![IngressRule {
                host: options.host.filter(|host| !host.is_empty()),
                http: Some(HTTPIngressRuleValue { paths: vec![path] }),
            }]),
            tls: Some(options.tls).filter(|tls| !tls.is_empty()),
            ..IngressSpec::default()
        }),
        status: None,
    })
}
