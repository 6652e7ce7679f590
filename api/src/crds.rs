//! The CustomResourceDefinitions, generated from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, CustomResourceValidation, JSONSchemaProps,
};
use kube::CustomResourceExt;
use schemars::JsonSchema;
use serde_json::json;

use crate::ray::v1::{RayCluster, RayClusterSpec, RayClusterStatus};
use crate::schema;
use crate::template::v1alpha1::{
    ClusterComputeTemplate, ClusterComputeTemplateSpec, ComputeTemplate, ComputeTemplateSpec,
    ComputeTemplateStatus, ImageTemplate, ImageTemplateSpec, ImageTemplateStatus,
};

/// Every CRD of the project.
#[must_use]
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![
        ray_cluster(),
        definition::<ImageTemplate, ImageTemplateSpec, ImageTemplateStatus>(),
        definition::<ComputeTemplate, ComputeTemplateSpec, ComputeTemplateStatus>(),
        definition::<ClusterComputeTemplate, ClusterComputeTemplateSpec, ComputeTemplateStatus>(),
    ]
}

/// Name of the file in `manifests/crds/` that holds the definition.
#[must_use]
pub fn file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}.yaml", crd.metadata.name.as_deref().unwrap_or_default())
}

/// `ray.io/v1` stored, `v1alpha1` served: the API server refuses an update of KubeRay's CRD that drops a
/// version which was ever stored.
fn ray_cluster() -> CustomResourceDefinition {
    let mut crd = definition::<RayCluster, RayClusterSpec, RayClusterStatus>();
    let old = crd.spec.versions.first().map(v1alpha1);
    crd.spec.versions.extend(old);
    crd
}

/// The old version keeps whatever it is given: a write through it loses nothing.
fn v1alpha1(v1: &CustomResourceDefinitionVersion) -> CustomResourceDefinitionVersion {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    CustomResourceDefinitionVersion {
        name: "v1alpha1".to_owned(),
        storage: false,
        deprecated: Some(true),
        deprecation_warning: Some("ray.io/v1alpha1 RayCluster is deprecated; use ray.io/v1".to_owned()),
        schema: Some(CustomResourceValidation {
            open_api_v3_schema: Some(props(json!({
                "description": "The old version of a RayCluster: the same fields, unchecked.",
                "type": "object",
                "properties": {"spec": anything, "status": anything},
            }))),
        }),
        ..v1.clone()
    }
}

/// The derived definition, with our schema of spec and status in place of kube's.
fn definition<K, Spec, Status>() -> CustomResourceDefinition
where
    K: CustomResourceExt,
    Spec: JsonSchema,
    Status: JsonSchema,
{
    let mut crd = K::crd();
    let root = crd
        .spec
        .versions
        .first_mut()
        .and_then(|version| version.schema.as_mut())
        .and_then(|schema| schema.open_api_v3_schema.as_mut());
    if let Some(root) = root {
        root.title = None;
        let properties = root.properties.get_or_insert_default();
        // The only field of an object's metadata that a rule may name is its name.
        properties.insert(
            "metadata".to_owned(),
            props(json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}})),
        );
        properties.insert("spec".to_owned(), props(schema::of::<Spec>().to_value()));
        properties.insert("status".to_owned(), props(schema::of::<Status>().to_value()));
    }
    crd
}

#[expect(
    clippy::expect_used,
    reason = "the types are fixed when this is compiled, and tests/crds.rs calls it for each of them"
)]
fn props(schema: serde_json::Value) -> JSONSchemaProps {
    serde_json::from_value(schema).expect("a structural schema")
}
