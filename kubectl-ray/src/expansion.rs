//! Expansion on this side: the webhook's own code, with templates from files first and the cluster second.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::ListParams;
use ray_api::expand::{Compute, Decisions, Expanded, Image, Needed, Request, Templates};
use ray_api::template::v1alpha1::{ClusterComputeTemplate, ComputeTemplate, ImageTemplate};
use serde_json::Value;

use crate::connection::Connection;
use crate::error::{Exit, Failure, Result};

/// Names that "did you mean" chooses from.
const SUGGESTIONS: u32 = 500;

/// Where templates are looked up.
pub(crate) struct Source<'a> {
    /// Template manifests from files.
    pub(crate) manifests: &'a [Value],
    /// The cluster; None where it must not be asked.
    pub(crate) connection: Option<&'a Connection>,
    /// Namespace of manifests that name none.
    pub(crate) namespace: &'a str,
}

/// Fills the templates into a RayCluster, as the webhook would on create, or on an update of `old_object`.
///
/// # Errors
/// With the webhook's words where it would deny; when a template cannot be read.
pub(crate) async fn fill(
    source: &Source<'_>,
    object: &Value,
    old_object: Option<&Value>,
) -> Result<Expanded> {
    let decisions = Decisions::of(Request {
        namespace: source.namespace,
        object,
        old_object,
        dry_run: false,
        field_manager: Some(ray_api::meta::manager::PLUGIN),
    });
    let mut templates = Templates::default();
    loop {
        let needed = decisions.needed(&templates);
        if needed.is_empty() {
            break;
        }
        for need in needed {
            read(source, need, &mut templates).await?;
        }
    }
    decisions.expand(&templates).map_err(|denials| {
        let texts: Vec<_> = denials.iter().map(ToString::to_string).collect();
        Failure::new(Exit::Denied, texts.join("\n"))
    })
}

async fn read(source: &Source<'_>, need: Needed, templates: &mut Templates) -> Result<()> {
    let client = source.connection.map(|connection| connection.client.clone());
    match need.clone() {
        Needed::Compute { namespace, name } => {
            let mut found: Option<ComputeTemplate> = in_files(source, &need)?;
            if let (None, Some(client)) = (&found, client) {
                let api: Api<ComputeTemplate> = Api::namespaced(client, &namespace);
                found = api.get_opt(&name).await?;
                if found.is_none() {
                    let names = names(&api).await;
                    let known = |name| Needed::Compute {
                        namespace: namespace.clone(),
                        name,
                    };
                    templates.suggest_from(names.into_iter().map(known));
                }
            }
            templates.insert_compute(need, found.as_ref().map(Compute::from));
        }
        Needed::ClusterCompute { name } => {
            let mut found: Option<ClusterComputeTemplate> = in_files(source, &need)?;
            if let (None, Some(client)) = (&found, client) {
                let api: Api<ClusterComputeTemplate> = Api::all(client);
                found = api.get_opt(&name).await?;
                if found.is_none() {
                    let names = names(&api).await;
                    templates.suggest_from(names.into_iter().map(|name| Needed::ClusterCompute { name }));
                }
            }
            templates.insert_compute(need, found.as_ref().map(Compute::from));
        }
        Needed::Image { namespace, name } => {
            // The cluster first: only there is a status with an image.
            let mut found: Option<ImageTemplate> = None;
            if let Some(client) = client {
                let api: Api<ImageTemplate> = Api::namespaced(client, &namespace);
                found = api.get_opt(&name).await?;
                if found.is_none() {
                    let names = names(&api).await;
                    let known = |name| Needed::Image {
                        namespace: namespace.clone(),
                        name,
                    };
                    templates.suggest_from(names.into_iter().map(known));
                }
            }
            if found.is_none() {
                found = in_files(source, &need)?;
            }
            templates.insert_image(need, found.as_ref().map(Image::from));
        }
    }
    Ok(())
}

/// The manifest of that kind and name, if a file has it.
fn in_files<T>(source: &Source<'_>, need: &Needed) -> Result<Option<T>>
where
    T: serde::de::DeserializeOwned + kube::Resource,
{
    let matching = source.manifests.iter().find(|manifest| {
        let field = |pointer| manifest.pointer(pointer).and_then(Value::as_str);
        let namespace = field("/metadata/namespace").unwrap_or(source.namespace);
        field("/kind") == Some(need.kind())
            && field("/metadata/name") == Some(need.name())
            && need.namespace().is_none_or(|wanted| wanted == namespace)
    });
    let Some(manifest) = matching else { return Ok(None) };
    let mut parsed: T = serde_json::from_value(manifest.clone())
        .map_err(|error| Failure::usage(format!("{} `{}`: {error}", need.kind(), need.name())))?;
    let metadata: &mut ObjectMeta = parsed.meta_mut();
    metadata.namespace = need.namespace().map(str::to_owned);
    Ok(Some(parsed))
}

/// Names for suggestions; without the right to list there are none.
async fn names<K>(api: &Api<K>) -> Vec<String>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let listed = api.list_metadata(&ListParams::default().limit(SUGGESTIONS)).await;
    listed
        .map(|list| list.items.iter().map(kube::ResourceExt::name_any).collect())
        .unwrap_or_default()
}
