//! `caBundle` of the webhook configurations: whom API servers trust.

use k8s_openapi::ByteString;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use ray_api::meta::manager;
use serde_json::{Value, json};

use crate::args::CertificateArgs;

const GROUP: &str = "admissionregistration.k8s.io";

/// Writes the CAs into every configuration that has others.
///
/// # Errors
/// When a configuration cannot be read or written, or does not exist.
pub(super) async fn publish(
    client: &Client,
    args: &CertificateArgs,
    authorities: &[String],
) -> anyhow::Result<()> {
    let bundle = serde_json::to_value(ByteString(authorities.concat().into_bytes()))?;
    let mutating = args
        .mutating_configuration
        .iter()
        .map(|name| ("MutatingWebhookConfiguration", name));
    let validating = args
        .validating_configuration
        .iter()
        .map(|name| ("ValidatingWebhookConfiguration", name));
    for (kind, name) in mutating.chain(validating) {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", kind));
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let configuration = api.get(name).await.map_err(|error| {
            anyhow::anyhow!("cannot read {kind} {name}, which must hold our caBundle: {error}")
        })?;
        if let Some(patch) = patch(kind, name, &configuration.data, &bundle) {
            let params = PatchParams::apply(manager::WEBHOOK).force();
            api.patch(name, &params, &Patch::Apply(patch))
                .await
                .map_err(|error| anyhow::anyhow!("cannot write caBundle of {kind} {name}: {error}"))?;
            tracing::info!(kind, name, authorities = authorities.len(), "published caBundle");
        }
    }
    Ok(())
}

/// Our part of a configuration, unless it is there already.
fn patch(kind: &str, name: &str, configuration: &Value, bundle: &Value) -> Option<Value> {
    let webhooks = configuration.get("webhooks")?.as_array()?;
    let stale = webhooks
        .iter()
        .any(|webhook| webhook.pointer("/clientConfig/caBundle") != Some(bundle));
    let ours =
        |webhook: &Value| Some(json!({"name": webhook.get("name")?, "clientConfig": {"caBundle": bundle}}));
    stale.then(|| {
        json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": name},
            "webhooks": webhooks.iter().filter_map(ours).collect::<Vec<_>>(),
        })
    })
}
