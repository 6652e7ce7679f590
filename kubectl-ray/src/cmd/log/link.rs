//! Links to where a cloud keeps the logs, which outlive the pods.

use std::fmt::Write as _;

use clap::ValueEnum;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::NodeType;

/// Who shows the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Viewer {
    /// Google's Cloud Logging.
    Gke,
}

/// The page with the logs of a Ray cluster's containers.
///
/// `kubernetes` is the cluster's name in the kubeconfig: where gcloud wrote it (`gke_PROJECT_LOCATION_NAME`),
/// it restricts the query and selects the project.
pub(super) fn query(
    viewer: Viewer,
    kubernetes: &str,
    namespace: &str,
    cluster: &str,
    nodes: NodeType,
) -> String {
    let Viewer::Gke = viewer;
    let mut query = String::from("resource.type=\"k8s_container\"\n");
    let parts: Vec<&str> = kubernetes.splitn(4, '_').collect();
    let mut project = String::new();
    if let ["gke", id, location, name] = parts.as_slice() {
        let _ = write!(
            query,
            "resource.labels.project_id=\"{id}\"\nresource.labels.location=\"{location}\"\n\
             resource.labels.cluster_name=\"{name}\"\n"
        );
        project = format!("?project={}", utf8_percent_encode(id, NON_ALPHANUMERIC));
    }
    let _ = write!(
        query,
        "resource.labels.namespace_name=\"{namespace}\"\nlabels.\"k8s-pod/ray_io/cluster\"=\"{cluster}\"\n"
    );
    let only = match nodes {
        NodeType::All => None,
        NodeType::Head => Some("head"),
        NodeType::Worker => Some("worker"),
    };
    if let Some(only) = only {
        let _ = writeln!(query, "labels.\"k8s-pod/ray_io/node-type\"=\"{only}\"");
    }
    let query = utf8_percent_encode(query.trim_end(), NON_ALPHANUMERIC);
    format!("https://console.cloud.google.com/logs/query;query={query}{project}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(kubernetes: &str, nodes: NodeType) -> String {
        let link = query(Viewer::Gke, kubernetes, "ml", "demo", nodes);
        percent_encoding::percent_decode_str(&link)
            .decode_utf8()
            .unwrap()
            .into_owned()
    }

    #[test]
    fn a_cluster_that_gcloud_named_restricts_the_query_to_it() {
        let link = decoded("gke_my-project_europe-west4_prod_1", NodeType::Head);
        assert_eq!(
            link,
            "https://console.cloud.google.com/logs/query;query=resource.type=\"k8s_container\"\n\
             resource.labels.project_id=\"my-project\"\nresource.labels.location=\"europe-west4\"\n\
             resource.labels.cluster_name=\"prod_1\"\nresource.labels.namespace_name=\"ml\"\n\
             labels.\"k8s-pod/ray_io/cluster\"=\"demo\"\nlabels.\"k8s-pod/ray_io/node-type\"=\"head\"?project=my-project"
        );
        assert!(!decoded("kind", NodeType::All).contains("project"));
    }
}
