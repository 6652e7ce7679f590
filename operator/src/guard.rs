//! A RayCluster as the watch delivers it: one that is malformed blinds no watch, and what nobody here reads is
//! skipped, not stored.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource;
use ray_api::meta::annotation;
use ray_api::ray::RayCluster;
use ray_api::ray::v1::{RayClusterSpec, RayClusterStatus};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A RayCluster, or why it could not be read.
#[derive(Clone, Debug)]
pub struct Guarded(pub Result<RayCluster, Unreadable>);

/// An object that is no RayCluster.
#[derive(Clone, Debug)]
pub struct Unreadable {
    metadata: ObjectMeta,
    /// What is wrong, and where.
    pub why: String,
}

impl Resource for Guarded {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        RayCluster::kind(&())
    }
    fn group(_: &()) -> Cow<'_, str> {
        RayCluster::group(&())
    }
    fn version(_: &()) -> Cow<'_, str> {
        RayCluster::version(&())
    }
    fn plural(_: &()) -> Cow<'_, str> {
        RayCluster::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(cluster) => &cluster.metadata,
            Err(unreadable) => &unreadable.metadata,
        }
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(cluster) => &mut cluster.metadata,
            Err(unreadable) => &mut unreadable.metadata,
        }
    }
}

impl<'de> Deserialize<'de> for Guarded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The text is read twice only where the first time fails.
        let text = Box::<RawValue>::deserialize(deserializer)?;
        match serde_json::from_str::<Wire>(text.get()) {
            Ok(wire) => Ok(Self(Ok(wire.into()))),
            Err(error) => {
                let named: Named = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
                Ok(Self(Err(Unreadable {
                    metadata: named.metadata.into(),
                    why: error.to_string(),
                })))
            }
        }
    }
}

#[derive(Deserialize)]
struct Named {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Wire {
    metadata: Metadata,
    spec: RayClusterSpec,
    status: Option<RayClusterStatus>,
}

/// Metadata without `managedFields`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    labels: Option<std::collections::BTreeMap<String, String>>,
    annotations: Option<std::collections::BTreeMap<String, String>>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<OwnerReference>>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
}

impl From<Metadata> for ObjectMeta {
    fn from(metadata: Metadata) -> Self {
        let mut annotations = metadata.annotations;
        if let Some(annotations) = &mut annotations {
            // Repeats the whole object.
            annotations.remove(annotation::LAST_APPLIED);
        }
        Self {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            generation: metadata.generation,
            labels: metadata.labels,
            annotations,
            finalizers: metadata.finalizers,
            owner_references: metadata.owner_references,
            creation_timestamp: metadata.creation_timestamp,
            deletion_timestamp: metadata.deletion_timestamp,
            ..Self::default()
        }
    }
}

impl From<Wire> for RayCluster {
    fn from(wire: Wire) -> Self {
        Self {
            metadata: wire.metadata.into(),
            spec: wire.spec,
            status: wire.status,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a watch has it.
    #[derive(Deserialize)]
    #[serde(tag = "type", content = "object")]
    enum Event {
        #[serde(rename = "ADDED")]
        Added(Guarded),
    }

    fn read(object: &str) -> Guarded {
        let text = format!(r#"{{"type": "ADDED", "object": {object}}}"#);
        let Event::Added(guarded) = serde_json::from_str(&text).unwrap();
        guarded
    }

    #[test]
    fn a_cluster_is_read_without_what_nobody_reads() {
        let guarded = read(
            r#"{"apiVersion": "ray.io/v1", "metadata": {"name": "c", "generation": 2, "managedFields": [{"manager": "m"}],
                "annotations": {"a": "b", "kubectl.kubernetes.io/last-applied-configuration": "{}"}},
                "spec": {"headGroupSpec": {}}, "status": {"observedGeneration": 1}}"#,
        );
        let cluster = guarded.0.as_ref().unwrap();
        assert_eq!(cluster.metadata.generation, Some(2));
        assert_eq!(cluster.metadata.managed_fields, None);
        assert_eq!(cluster.metadata.annotations.as_ref().unwrap().len(), 1);
        assert_eq!(cluster.status.as_ref().unwrap().observed_generation, Some(1));
    }

    #[test]
    fn what_is_no_cluster_still_has_a_name_and_a_reason() {
        let guarded = read(r#"{"metadata": {"name": "c"}, "spec": {"headGroupSpec": 7}}"#);
        assert_eq!(guarded.meta().name.as_deref(), Some("c"));
        let Err(unreadable) = &guarded.0 else { panic!() };
        assert!(unreadable.why.contains('7'), "{}", unreadable.why);
    }
}
