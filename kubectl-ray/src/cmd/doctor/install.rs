//! CRDs, operator and webhook.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use ray_api::meta::{RAY_GROUP, TEMPLATES_GROUP};

use super::{Finding, Grade, certificates};
use crate::connection::Connection;

const INSTALL: &str = "install it with `kubectl apply --server-side -k manifests/`";

/// The kinds, the versions that are served, and whose RayCluster it is.
pub(super) async fn crds(connected: &Connection) -> Vec<Finding> {
    let api: Api<CustomResourceDefinition> = Api::all(connected.client.clone());
    let mut findings = Vec::new();
    for name in [
        "rayclusters.ray.io",
        "imagetemplates.templates.ray.io",
        "computetemplates.templates.ray.io",
        "clustercomputetemplates.templates.ray.io",
    ] {
        findings.push(match api.get_opt(name).await {
            Ok(Some(crd)) => crd_finding(name, &crd),
            Ok(None) => Finding::problem(name, "the CRD is not installed", INSTALL),
            Err(error) => Finding::of_error(name, error),
        });
    }
    findings
}

fn crd_finding(name: &str, crd: &CustomResourceDefinition) -> Finding {
    let conditions = crd
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default();
    if let Some(failed) = conditions
        .iter()
        .find(|c| c.type_ == "Established" && c.status != "True")
    {
        let message = failed.message.clone().unwrap_or_default();
        return Finding::problem(
            name,
            format!("the CRD is not established: {message}"),
            "look at `kubectl describe crd`",
        );
    }
    let served: Vec<&str> = crd
        .spec
        .versions
        .iter()
        .filter(|v| v.served)
        .map(|v| v.name.as_str())
        .collect();
    let served = format!("serves {}", served.join(", "));
    if crd.spec.group == RAY_GROUP && !knows_references(crd) {
        return Finding::warning(
            name,
            format!("{served}; KubeRay's CRD, which has no fields for template references"),
            "references go into annotations (the plugin does so by itself), or install this project's CRD",
        );
    }
    Finding::ok(name, served)
}

fn knows_references(crd: &CustomResourceDefinition) -> bool {
    crd.spec.versions.iter().any(|version| {
        let schema = version
            .schema
            .as_ref()
            .and_then(|schema| schema.open_api_v3_schema.as_ref());
        let spec = schema.and_then(|schema| schema.properties.as_ref()?.get("spec")?.properties.as_ref());
        spec.is_some_and(|fields| fields.contains_key("imageTemplate"))
    })
}

/// Operators and webhooks as Deployments.
pub(super) async fn servers(connected: &Connection) -> Vec<Finding> {
    let api: Api<Deployment> = Api::all(connected.client.clone());
    let selector = "app.kubernetes.io/name in (ray-operator,ray-webhook,kuberay-operator,kuberay)";
    let found = match api.list(&ListParams::default().labels(selector)).await {
        Ok(list) => list.items,
        Err(error) => return vec![Finding::of_error("operator", error)],
    };
    let is = |deployment: &&Deployment, wanted: &[&str]| {
        let labels = deployment.metadata.labels.as_ref();
        labels
            .and_then(|l| l.get("app.kubernetes.io/name"))
            .is_some_and(|name| wanted.contains(&name.as_str()))
    };
    let mut findings: Vec<Finding> = found.iter().map(deployment_finding).collect();
    let ours = found.iter().filter(|d| is(d, &["ray-operator"])).count();
    let theirs = found
        .iter()
        .filter(|d| is(d, &["kuberay-operator", "kuberay"]))
        .count();
    if ours + theirs == 0 {
        findings.push(Finding::problem(
            "operator",
            "no operator was found: Ray clusters stay as they are",
            INSTALL,
        ));
    }
    if ours > 0 && theirs > 0 {
        findings.push(Finding::warning(
            "operator",
            "KubeRay's operator runs beside this project's",
            "only one may run the cluster controller: start this one with --controllers=image,template,serve",
        ));
    }
    findings
}

fn deployment_finding(deployment: &Deployment) -> Finding {
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    let namespace = deployment.metadata.namespace.as_deref().unwrap_or_default();
    let status = deployment.status.clone().unwrap_or_default();
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let ready = status.ready_replicas.unwrap_or_default();
    let message = format!("{ready} of {wanted} pods are ready (namespace {namespace})");
    let fix = format!("look at `kubectl -n {namespace} describe deployment {name}` and at the pods' logs");
    match ready {
        _ if wanted == 0 => Finding::warning(
            name,
            format!("scaled to 0 (namespace {namespace})"),
            "scale it up",
        ),
        0 => Finding::problem(name, message, &fix),
        _ if ready < wanted => Finding::warning(name, message, &fix),
        _ => Finding::ok(name, message),
    }
}

/// A webhook of some configuration that concerns our kinds.
struct Hook {
    name: String,
    client: WebhookClientConfig,
}

/// The webhooks: registered, with a valid certificate authority, and with somebody behind them.
pub(super) async fn webhooks(connected: &Connection) -> Vec<Finding> {
    let hooks = match hooks(connected).await {
        Ok(hooks) => hooks,
        Err(error) => return vec![Finding::of_error("webhook", error)],
    };
    if hooks.is_empty() {
        return vec![Finding::problem(
            "webhook",
            "no webhook expands template references",
            "install it, or expand on this side with `kubectl ray render`",
        )];
    }
    let mut findings = Vec::new();
    for hook in &hooks {
        findings.push(ca_finding(hook));
        findings.extend(endpoints_finding(connected, hook).await);
    }
    findings
}

/// The hooks of both kinds that concern us.
async fn hooks(connected: &Connection) -> kube::Result<Vec<Hook>> {
    let all = ListParams::default();
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(connected.client.clone());
    let mutating = mutating.list(&all).await?.items.into_iter();
    let mutating = mutating
        .flat_map(|configuration| configuration.webhooks.unwrap_or_default())
        .map(|hook| (hook.name, hook.client_config, hook.rules));
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(connected.client.clone());
    let validating = validating.list(&all).await?.items.into_iter();
    let validating = validating
        .flat_map(|configuration| configuration.webhooks.unwrap_or_default())
        .map(|hook| (hook.name, hook.client_config, hook.rules));
    Ok(mutating
        .chain(validating)
        .filter(|(_, _, rules)| concern_us(rules.as_deref().unwrap_or_default()))
        .map(|(name, client, _)| Hook { name, client })
        .collect())
}

fn concern_us(rules: &[RuleWithOperations]) -> bool {
    let mut groups = rules.iter().flat_map(|rule| rule.api_groups.iter().flatten());
    groups.any(|group| group == RAY_GROUP || group == TEMPLATES_GROUP)
}

fn ca_finding(hook: &Hook) -> Finding {
    let Some(bundle) = hook
        .client
        .ca_bundle
        .as_ref()
        .filter(|bundle| !bundle.0.is_empty())
    else {
        return Finding::problem(
            &hook.name,
            "its caBundle is empty: the API server does not trust it",
            "the webhook fills it at its start: look at the logs of ray-webhook",
        );
    };
    match certificates::last_expiry(&bundle.0) {
        Err(why) => Finding::problem(
            &hook.name,
            format!("its caBundle cannot be read: {why}"),
            "restart ray-webhook",
        ),
        Ok(expiry) => certificates::judge(&hook.name, expiry, Timestamp::now()),
    }
}

/// Whether any pod answers for the webhook's Service.
async fn endpoints_finding(connected: &Connection, hook: &Hook) -> Option<Finding> {
    let service = hook.client.service.as_ref()?;
    let api: Api<EndpointSlice> = Api::namespaced(connected.client.clone(), &service.namespace);
    let selector = format!("kubernetes.io/service-name={}", service.name);
    let slices = match api.list(&ListParams::default().labels(&selector)).await {
        Ok(list) => list.items,
        Err(error) => return Some(Finding::of_error(&hook.name, error)),
    };
    let ready = slices
        .iter()
        .flat_map(|slice| slice.endpoints.iter().flatten())
        .filter(|endpoint| endpoint.conditions.as_ref().and_then(|c| c.ready) != Some(false))
        .count();
    let place = format!("{}/{}", service.namespace, service.name);
    Some(match ready {
        0 => Finding::problem(
            &hook.name,
            format!("no pod answers for its Service {place}: clusters that name a template are refused"),
            "look at the pods of ray-webhook",
        ),
        count => Finding::new(
            Grade::Ok,
            &hook.name,
            format!("{count} pods answer for its Service {place}"),
        ),
    })
}
