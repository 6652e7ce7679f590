//! What Kubernetes' own OpenAPI document says of the embedded types and k8s-openapi leaves out.
//!
//! Without the list keys, server-side apply replaces whole lists. `tests/tests/crds.rs` holds these
//! tables equal to the document that an API server publishes.

use serde_json::{Map, Value, json};

/// Pattern of `resource.Quantity`, as every CRD of Kubernetes' own tools has it.
pub(crate) const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Lists of objects with keys: (kind, field, keys).
const LIST_MAPS: &[(&str, &str, &[&str])] = &[
    ("Container", "env", &["name"]),
    ("Container", "ports", &["containerPort", "protocol"]),
    ("Container", "volumeDevices", &["devicePath"]),
    ("Container", "volumeMounts", &["mountPath"]),
    ("EphemeralContainer", "env", &["name"]),
    ("EphemeralContainer", "ports", &["containerPort", "protocol"]),
    ("EphemeralContainer", "volumeDevices", &["devicePath"]),
    ("EphemeralContainer", "volumeMounts", &["mountPath"]),
    ("PodSpec", "containers", &["name"]),
    ("PodSpec", "ephemeralContainers", &["name"]),
    ("PodSpec", "evictionResponders", &["name"]),
    ("PodSpec", "hostAliases", &["ip"]),
    ("PodSpec", "imagePullSecrets", &["name"]),
    ("PodSpec", "initContainers", &["name"]),
    ("PodSpec", "resourceClaims", &["name"]),
    ("PodSpec", "schedulingGates", &["name"]),
    (
        "PodSpec",
        "topologySpreadConstraints",
        &["topologyKey", "whenUnsatisfiable"],
    ),
    ("PodSpec", "volumes", &["name"]),
    ("ResourceRequirements", "claims", &["name"]),
    ("ServiceSpec", "ports", &["port", "protocol"]),
    ("ServiceStatus", "conditions", &["type"]),
];

/// Lists of distinct scalars: (kind, field).
const LIST_SETS: &[(&str, &str)] = &[
    ("ContainerRestartRuleOnExitCodes", "values"),
    ("VolumeMount", "bindMountOptions"),
];

/// Maps that are replaced as a whole: (kind, field).
const ATOMIC_MAPS: &[(&str, &str)] = &[("PodSpec", "nodeSelector"), ("ServiceSpec", "selector")];

/// Kinds that are replaced as a whole.
const ATOMIC_KINDS: &[&str] = &[
    "ConfigMapKeySelector",
    "EvictionResponder",
    "FileKeySelector",
    "LabelSelector",
    "LocalObjectReference",
    "NodeSelector",
    "NodeSelectorTerm",
    "ObjectFieldSelector",
    "ResourceFieldSelector",
    "SecretKeySelector",
    "TypedLocalObjectReference",
];

/// Defaults that keys of [`LIST_MAPS`] need, and references whose name may be left out: (kind, field, default).
const DEFAULTS: &[(&str, &str, &str)] = &[
    ("ConfigMapEnvSource", "name", ""),
    ("ConfigMapKeySelector", "name", ""),
    ("ConfigMapProjection", "name", ""),
    ("ConfigMapVolumeSource", "name", ""),
    ("ContainerPort", "protocol", "TCP"),
    ("LocalObjectReference", "name", ""),
    ("SecretEnvSource", "name", ""),
    ("SecretKeySelector", "name", ""),
    ("SecretProjection", "name", ""),
    ("ServicePort", "protocol", "TCP"),
];

/// Completes the definition of a Kubernetes type; leaves others alone.
pub(super) fn complete(name: &str, definition: &mut Map<String, Value>) {
    if !name.starts_with("io.k8s.") {
        return;
    }
    match name.rsplit('.').next().unwrap_or_default() {
        "Quantity" => *definition = quantity(),
        "IntOrString" => *definition = int_or_string(),
        "ObjectMeta" => *definition = embedded_metadata(),
        kind => {
            remove_descriptions(definition);
            merge_as_kubernetes(kind, definition);
            default_as_kubernetes(kind, definition);
        }
    }
}

fn merge_as_kubernetes(kind: &str, definition: &mut Map<String, Value>) {
    if ATOMIC_KINDS.contains(&kind) {
        definition.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
    }
    for (_, field, keys) in LIST_MAPS.iter().filter(|(of, ..)| *of == kind) {
        extend(definition, field, "x-kubernetes-list-type", json!("map"));
        extend(definition, field, "x-kubernetes-list-map-keys", json!(keys));
    }
    for (_, field) in LIST_SETS.iter().filter(|(of, _)| *of == kind) {
        extend(definition, field, "x-kubernetes-list-type", json!("set"));
    }
    for (_, field) in ATOMIC_MAPS.iter().filter(|(of, _)| *of == kind) {
        extend(definition, field, "x-kubernetes-map-type", json!("atomic"));
    }
}

fn default_as_kubernetes(kind: &str, definition: &mut Map<String, Value>) {
    for (_, field, default) in DEFAULTS.iter().filter(|(of, ..)| *of == kind) {
        extend(definition, field, "default", json!(default));
        not_required(definition, field);
    }
    match kind {
        // Required in k8s-openapi alone: its type has no Option there.
        "Service" => not_required(definition, "metadata"),
        // A template may make the container; a rule of the RayCluster says where one must be.
        "PodSpec" => not_required(definition, "containers"),
        _ => {}
    }
}

fn extend(definition: &mut Map<String, Value>, field: &str, key: &str, value: Value) {
    if let Some(Value::Object(properties)) = definition.get_mut("properties")
        && let Some(Value::Object(property)) = properties.get_mut(field)
    {
        property.insert(key.to_owned(), value);
    }
}

fn not_required(definition: &mut Map<String, Value>, field: &str) {
    if let Some(Value::Array(required)) = definition.get_mut("required") {
        required.retain(|name| name != field);
        if required.is_empty() {
            definition.remove("required");
        }
    }
}

/// Kubernetes documents its own types, and the CRD has to fit into a request.
fn remove_descriptions(definition: &mut Map<String, Value>) {
    definition.remove("description");
    let properties = definition.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flat_map(Map::values_mut) {
        if let Value::Object(property) = property {
            property.remove("description");
        }
    }
}

fn quantity() -> Map<String, Value> {
    let mut schema = int_or_string();
    schema.insert("pattern".to_owned(), json!(QUANTITY));
    schema
}

/// The API server takes the types from the extension.
fn int_or_string() -> Map<String, Value> {
    Map::from_iter([("x-kubernetes-int-or-string".to_owned(), json!(true))])
}

/// Metadata of a pod template or Service inside our objects: what KubeRay's CRD keeps of it, and the
/// `creationTimestamp: null` that Go tools write into every manifest.
fn embedded_metadata() -> Map<String, Value> {
    let strings = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    Map::from_iter([
        ("type".to_owned(), json!("object")),
        (
            "properties".to_owned(),
            json!({
                "annotations": strings,
                "creationTimestamp": { "type": "string", "format": "date-time", "nullable": true },
                "finalizers": { "type": "array", "items": { "type": "string" } },
                "labels": strings,
                "name": { "type": "string" },
                "namespace": { "type": "string" },
            }),
        ),
    ])
}
