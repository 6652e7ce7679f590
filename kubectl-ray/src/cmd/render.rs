//! `render`: expansion without a webhook, for GitOps pipelines and sites that have none.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use ray_api::meta::{RAY_GROUP, TEMPLATES_GROUP};
use serde_json::Value;

use crate::connection::ConnectionArgs;
use crate::error::{Failure, Result};
use crate::expansion::{self, Source};
use crate::output::{self, Format};

/// Flags of `render`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl ray render -f cluster.yaml | kubectl apply -f -
  kubectl ray render -f manifests/ --offline > rendered.yaml")]
pub struct RenderArgs {
    /// Manifests: files, directories, or `-` for stdin; may be repeated.
    #[arg(short, long = "filename", required = true, value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    filename: Vec<PathBuf>,
    /// Ask no cluster: all templates must be among the manifests.
    #[arg(long)]
    offline: bool,
    /// Form of the output: yaml or json.
    #[arg(short, long, value_enum, default_value = "yaml")]
    output: Format,
}

pub(crate) async fn run(connection: &ConnectionArgs, args: &RenderArgs) -> Result<()> {
    let manifests = read(&args.filename)?;
    let connected = if args.offline {
        None
    } else {
        Some(connection.connect().await?)
    };
    let default = connected.as_ref().map(|connected| connected.namespace.as_str());
    let default = default.or(connection.namespace.as_deref()).unwrap_or("default");
    let mut rendered = Vec::new();
    for manifest in &manifests {
        if !is_kind(manifest, RAY_GROUP, "RayCluster") {
            rendered.push(manifest.clone());
            continue;
        }
        let namespace = manifest
            .pointer("/metadata/namespace")
            .and_then(Value::as_str)
            .unwrap_or(default);
        let source = Source {
            manifests: &manifests,
            connection: connected.as_ref(),
            namespace,
        };
        let name = manifest
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let expanded = expansion::fill(&source, manifest, None)
            .await
            .map_err(|failure| failure.context(format!("RayCluster `{name}`")))?;
        expanded
            .warnings
            .iter()
            .for_each(|warning| output::warning(&format!("{name}: {warning}")));
        rendered.push(expanded.object);
    }
    // Templates were only looked up; the site that runs the result may not know their kinds.
    rendered.retain(|manifest| !is_group(manifest, TEMPLATES_GROUP));
    match args.output {
        Format::Yaml => {
            let documents = rendered.iter().map(output::yaml).collect::<Result<Vec<_>>>()?;
            output::text(&documents.join("---\n"))
        }
        Format::Json => output::objects(Format::Json, &rendered),
        _ => Err(Failure::usage("render prints yaml or json")),
    }
}

fn is_group(manifest: &Value, group: &str) -> bool {
    let version = manifest
        .get("apiVersion")
        .and_then(Value::as_str)
        .unwrap_or_default();
    version.split_once('/').is_some_and(|(g, _)| g == group)
}

fn is_kind(manifest: &Value, group: &str, kind: &str) -> bool {
    is_group(manifest, group) && manifest.get("kind").and_then(Value::as_str) == Some(kind)
}

fn read(paths: &[PathBuf]) -> Result<Vec<Value>> {
    let mut manifests = Vec::new();
    for path in paths {
        for file in files(path)? {
            let text = text(&file)?;
            let shown = file.display();
            let documents = documents(&text).map_err(|error| Failure::usage(format!("{shown}: {error}")))?;
            manifests.extend(documents);
        }
    }
    Ok(manifests)
}

/// A directory means the manifests in it, in the order of their names.
fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let is_manifest = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("yaml" | "yml" | "json"))
    };
    let entries = std::fs::read_dir(path).map_err(|error| cannot_read(path, &error))?;
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<Vec<_>>>()?
        .into_iter()
        .filter(is_manifest)
        .collect();
    files.sort();
    Ok(files)
}

fn text(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(path).map_err(|error| cannot_read(path, &error))
}

fn cannot_read(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("cannot read {}: {error}", path.display()))
}

/// The documents of a YAML stream; the items of a List count one by one.
fn documents(text: &str) -> std::result::Result<Vec<Value>, String> {
    let parsed: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| error.to_string())?;
    let mut manifests = Vec::new();
    for document in parsed {
        match document.get("items").cloned() {
            Some(Value::Array(items)) => manifests.extend(items),
            _ if document.is_null() => {}
            _ => manifests.push(document),
        }
    }
    Ok(manifests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_and_a_list_are_the_same_manifests() {
        let stream = documents("kind: A\n---\n---\nkind: B\n").unwrap();
        let list = documents("kind: List\nitems: [{kind: A}, {kind: B}]\n").unwrap();
        assert_eq!(stream, list);
    }
}
