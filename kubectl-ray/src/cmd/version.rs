//! `version`: what runs here, and what runs there.

use clap::Args;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::ListParams;
use serde::Serialize;

use crate::connection::{Connection, ConnectionArgs};
use crate::error::{Failure, Result};
use crate::output::{self, Format};

const SERVERS: &str = "app.kubernetes.io/name in (ray-operator,ray-webhook,kuberay-operator,kuberay)";

/// Flags of `version`.
#[derive(Debug, Args)]
pub struct VersionArgs {
    /// Only the plugin's own version; no cluster is asked.
    #[arg(long)]
    pub(crate) client: bool,
    /// Form of the output: json or yaml.
    #[arg(short, long, value_enum)]
    output: Option<Format>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Versions {
    plugin: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kubernetes: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    servers: Vec<Server>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    crds: Vec<Crd>,
}

#[derive(Serialize)]
struct Server {
    name: String,
    namespace: String,
    image: String,
    ready: String,
}

#[derive(Serialize)]
struct Crd {
    name: String,
    versions: Vec<String>,
}

/// Prints the plugin's version without a cluster.
pub(crate) fn client(args: &VersionArgs) -> Result<()> {
    print(args, &own())
}

fn own() -> Versions {
    Versions {
        plugin: ray_api::meta::VERSION,
        ..Versions::default()
    }
}

pub(crate) async fn run(connection: &ConnectionArgs, args: &VersionArgs) -> Result<()> {
    let connected = connection.connect().await?;
    let server = connected.client.apiserver_version().await?;
    let versions = Versions {
        kubernetes: Some(server.git_version),
        servers: servers(&connected).await?,
        crds: crds(&connected).await?,
        ..own()
    };
    print(args, &versions)
}

fn print(args: &VersionArgs, versions: &Versions) -> Result<()> {
    if let Some(format @ (Format::Json | Format::Yaml)) = args.output {
        return output::object(format, &serde_json::to_value(versions)?);
    }
    if args.output.is_some() {
        return Err(Failure::usage("version prints text, json or yaml"));
    }
    output::line(&format!("kubectl ray plugin version: {}", versions.plugin))?;
    if let Some(kubernetes) = &versions.kubernetes {
        output::line(&format!("Kubernetes version: {kubernetes}"))?;
        for server in &versions.servers {
            output::line(&format!(
                "{}: {} (namespace {}, {} ready)",
                server.name, server.image, server.namespace, server.ready
            ))?;
        }
        for crd in &versions.crds {
            output::line(&format!("{}: {}", crd.name, crd.versions.join(", ")))?;
        }
    }
    Ok(())
}

/// Operators and webhooks: in all namespaces where that may be read, else in ours.
async fn servers(connected: &Connection) -> Result<Vec<Server>> {
    let params = ListParams::default().labels(SERVERS);
    let everywhere: Api<Deployment> = Api::all(connected.client.clone());
    let found = match everywhere.list(&params).await {
        Err(kube::Error::Api(status)) if status.is_forbidden() => {
            output::warning(&format!(
                "you may not list Deployments of all namespaces: looking only into {}",
                connected.namespace
            ));
            match connected.api::<Deployment>().list(&params).await {
                Err(kube::Error::Api(status)) if status.is_forbidden() => {
                    output::warning("nor of this one: the operator's version is unknown");
                    return Ok(Vec::new());
                }
                other => other?,
            }
        }
        other => other?,
    };
    if found.items.is_empty() {
        output::warning("no operator was found (`kubectl ray doctor`)");
    }
    Ok(found.items.into_iter().map(server).collect())
}

/// The image reference stays whole: tags, digests and registry ports cannot be told apart by cutting.
fn server(deployment: Deployment) -> Server {
    let containers = deployment
        .spec
        .template
        .spec
        .map(|spec| spec.containers)
        .unwrap_or_default();
    let image = containers
        .into_iter()
        .next()
        .and_then(|container| container.image);
    let status = deployment.status.unwrap_or_default();
    Server {
        name: deployment.metadata.name.unwrap_or_default(),
        namespace: deployment.metadata.namespace.unwrap_or_default(),
        image: image.unwrap_or_else(|| "unknown".to_owned()),
        ready: format!(
            "{}/{}",
            status.ready_replicas.unwrap_or_default(),
            status.replicas.unwrap_or_default()
        ),
    }
}

async fn crds(connected: &Connection) -> Result<Vec<Crd>> {
    let api: Api<CustomResourceDefinition> = Api::all(connected.client.clone());
    let list = match api.list(&ListParams::default()).await {
        // Ordinary users may not read them; the rest is still of use.
        Err(kube::Error::Api(status)) if status.is_forbidden() => return Ok(Vec::new()),
        other => other?,
    };
    let ours = |group: &str| group == ray_api::meta::RAY_GROUP || group == ray_api::meta::TEMPLATES_GROUP;
    Ok(list
        .items
        .into_iter()
        .filter(|crd| ours(&crd.spec.group))
        .map(|crd| Crd {
            name: crd.metadata.name.unwrap_or_default(),
            versions: crd
                .spec
                .versions
                .into_iter()
                .filter(|v| v.served)
                .map(|v| v.name)
                .collect(),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_references_stay_whole() {
        for image in [
            "reg.local:5000/op@sha256:abc",
            "reg.local:5000/op",
            "op:v1@sha256:abc",
        ] {
            let deployment = serde_json::json!({"spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "o", "image": image}]}}}});
            assert_eq!(server(serde_json::from_value(deployment).unwrap()).image, image);
        }
    }
}
