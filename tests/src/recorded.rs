//! The yardstick of drop-in compatibility: what KubeRay made of the inputs in `fixtures/recorded`, and every
//! difference that is intended (docs/compatibility.md has the same list with its reasons).

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::{Map, Value, json};

use crate::{Cluster, repository};

/// Kinds of the recorded objects, as `(plural, group, version, kind)`; in the order in which KubeRay makes them: pods need
/// their accounts.
pub const KINDS: [(&str, &str, &str, &str); 7] = [
    ("serviceaccounts", "", "v1", "ServiceAccount"),
    ("roles", "rbac.authorization.k8s.io", "v1", "Role"),
    ("rolebindings", "rbac.authorization.k8s.io", "v1", "RoleBinding"),
    ("ingresses", "networking.k8s.io", "v1", "Ingress"),
    ("secrets", "", "v1", "Secret"),
    ("services", "", "v1", "Service"),
    ("pods", "", "v1", "Pod"),
];

/// Objects of a kind in a namespace.
#[must_use]
pub fn api(cluster: &Cluster, namespace: &str, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(cluster.client.clone(), namespace, &resource)
}

/// What the API server fills in, or the recorder took out, by kind of field: `(field, value)`.
const FILLED_IN: [(&str, &str); 20] = [
    ("apiVersion", r#""v1""#),
    ("clusterIP", r#""ALLOCATED""#),
    ("dnsPolicy", r#""ClusterFirst""#),
    ("externalTrafficPolicy", r#""Cluster""#),
    ("failureThreshold", "3"),
    ("imagePullPolicy", r#""IfNotPresent""#),
    ("internalTrafficPolicy", r#""Cluster""#),
    ("ipFamilies", r#"["IPv4"]"#),
    ("ipFamilyPolicy", r#""SingleStack""#),
    ("periodSeconds", "10"),
    ("protocol", r#""TCP""#),
    ("resources", "{}"),
    ("restartPolicy", r#""Always""#),
    ("scheme", r#""HTTP""#),
    ("serviceAccountName", r#""default""#),
    ("sessionAffinity", r#""None""#),
    ("successThreshold", "1"),
    ("timeoutSeconds", "1"),
    ("type", r#""ClusterIP""#),
    ("volumeMounts", "[]"),
];

/// A recorded cluster: what was applied, and what became of it.
pub struct Case {
    /// File name without suffix.
    pub name: String,
    /// The RayCluster.
    pub input: Value,
    /// Objects by kind, status and finalizers; see the recorder's description in `fixtures/recorded`.
    pub output: Value,
}

/// All recorded cases, by name.
///
/// # Errors
/// When the fixtures cannot be read.
pub fn cases() -> anyhow::Result<Vec<Case>> {
    let folder = repository().join("tests/fixtures/recorded");
    let read = |path: PathBuf| -> anyhow::Result<Value> {
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(serde_json::from_str(&text)?)
    };
    let mut names: Vec<String> = std::fs::read_dir(folder.join("inputs"))?
        .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    names
        .into_iter()
        .map(|name| {
            Ok(Case {
                input: read(folder.join(format!("inputs/{name}.json")))?,
                output: read(folder.join(format!("outputs/{name}.json")))?,
                name,
            })
        })
        .collect()
}

/// Rewrites what KubeRay made into what we intend: the differences, and no other.
pub fn intend(output: &mut Value, version: &str) {
    let text = output.to_string();
    // Our own version, so that a head tells whose hash it carries.
    let text = text
        .replace("kuberay_version=nightly", &format!("kuberay_version={version}"))
        .replace(
            r#"kuberay-version":"nightly""#,
            &format!(r#"kuberay-version":"{version}""#),
        )
        // A probe's own time limit fits into timeoutSeconds.
        .replace("-T 10 -q", "-T 2 -q");
    *output = serde_json::from_str(&text).unwrap_or_default();
    for pod in list_mut(output, "pods") {
        let ray = pod.pointer("/spec/containers/0/resources").cloned();
        for container in list_at_mut(pod, "/spec/containers") {
            if let Some(probe) = container
                .get_mut("readinessProbe")
                .filter(|probe| is_kuberays(probe))
            {
                // Ready seconds earlier, with the same 50 s of tolerance.
                probe["initialDelaySeconds"] = json!(1);
                probe["periodSeconds"] = json!(2);
                probe["failureThreshold"] = json!(25);
            }
        }
        for container in list_at_mut(pod, "/spec/initContainers") {
            if container["name"] == "wait-gcs-ready" {
                // The Ray container's own CPU and memory, else a limit that the check fits into.
                container["resources"] = wait_resources(ray.as_ref());
            }
        }
    }
    for ingress in list_mut(output, "ingresses") {
        if let Some(metadata) = ingress.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("annotations");
        }
    }
    for service in list_mut(output, "services") {
        // Every Service is found by the cluster's label.
        if let Some(name) = service
            .pointer("/metadata/labels/ray.io~1headless-worker-svc")
            .cloned()
        {
            let labels = service
                .pointer_mut("/metadata/labels")
                .and_then(Value::as_object_mut);
            labels.map(|labels| labels.insert("ray.io/cluster".to_owned(), name));
        }
    }
}

/// Brings one object into the recorder's form; `filled_in` also drops what the API server defaults.
pub fn normalise(object: &mut Value, filled_in: bool) {
    let Some(map) = object.as_object_mut() else { return };
    map.retain(|key, _| !matches!(key.as_str(), "apiVersion" | "kind" | "status"));
    if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| {
            [
                "name",
                "generateName",
                "labels",
                "annotations",
                "finalizers",
                "ownerReferences",
            ]
            .contains(&key.as_str())
        });
    }
    for owner in list_at_mut(object, "/metadata/ownerReferences") {
        remove(owner, "uid");
    }
    if let Some(hash) = object.pointer_mut("/metadata/annotations/ray.io~1upgrade-strategy-recreate-hash") {
        *hash = json!("HASH");
    }
    for path in [
        "/metadata/name",
        "/metadata/labels/ray.io~1worker-group-replica-name",
    ] {
        if let Some(Value::String(name)) = object.pointer_mut(path) {
            *name = without_suffix(name);
        }
    }
    for container in ["/spec/containers", "/spec/initContainers"] {
        for container in list_at_mut(object, container) {
            normalise_container(container);
        }
    }
    drop_placement(object);
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("clusterIPs");
        if let Some(ip) = spec.get_mut("clusterIP").filter(|ip| *ip != "None") {
            *ip = json!("ALLOCATED");
        }
    }
    for port in list_at_mut(object, "/spec/ports") {
        remove(port, "nodePort");
    }
    // KubeRay appends its ports to the user's in the random order of a Go map.
    if let Some(Value::Array(ports)) = object.pointer_mut("/spec/ports") {
        for port in ports.iter_mut().filter(|port| port["targetPort"] == port["port"]) {
            remove(port, "targetPort");
        }
        ports.sort_by_key(|port| port["name"].as_str().unwrap_or_default().to_owned());
    }
    *object = serde_json::from_str(&with_known_uids(&object.to_string())).unwrap_or_default();
    if filled_in {
        drop_filled_in(object);
    }
}

/// Paths at which two documents differ, with both values. Lists of named things are matched by name, and
/// their order counts.
#[must_use]
pub fn differences(expected: &Value, actual: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk("", expected, actual, &mut found);
    found
}

fn walk(path: &str, expected: &Value, actual: &Value, found: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let null = Value::Null;
                let (a, b) = (a.get(key).unwrap_or(&null), b.get(key).unwrap_or(&null));
                walk(&format!("{path}.{key}"), a, b, found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                let name = a["name"]
                    .as_str()
                    .map_or_else(|| index.to_string(), str::to_owned);
                walk(&format!("{path}[{name}]"), a, b, found);
            }
        }
        _ if expected == actual => {}
        _ => found.push(format!("{path}\n    KubeRay: {expected}\n    ours:    {actual}")),
    }
}

/// Removes what admission and the scheduler add to every pod.
fn drop_placement(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let same_account = spec.get("serviceAccount") == spec.get("serviceAccountName");
    spec.retain(|key, value| match key.as_str() {
        "nodeName" => false,
        "serviceAccount" => !same_account,
        "enableServiceLinks" => *value != true,
        "preemptionPolicy" => value != "PreemptLowerPriority",
        "priority" => *value != 0,
        "schedulerName" => value != "default-scheduler",
        "securityContext" => *value != json!({}),
        "terminationGracePeriodSeconds" => *value != 30,
        _ => true,
    });
    if let Some(Value::Array(tolerations)) = spec.get_mut("tolerations") {
        tolerations.retain(|toleration| {
            let key = toleration["key"].as_str().unwrap_or_default();
            !key.starts_with("node.kubernetes.io/")
        });
    }
    if let Some(Value::Array(volumes)) = spec.get_mut("volumes") {
        volumes.retain(|volume| !is_token(volume));
    }
}

/// Whether a volume or mount is the service account's, which admission adds.
fn is_token(volume: &Value) -> bool {
    volume["name"]
        .as_str()
        .is_some_and(|name| name.starts_with("kube-api-access"))
}

fn normalise_container(container: &mut Value) {
    if let Some(Value::Array(mounts)) = container.get_mut("volumeMounts") {
        mounts.retain(|mount| !is_token(mount));
    }
    if let Some(container) = container.as_object_mut() {
        container.retain(|key, value| match key.as_str() {
            "terminationMessagePath" => value != "/dev/termination-log",
            "terminationMessagePolicy" => value != "File",
            _ => true,
        });
    }
    if container["name"] == "wait-gcs-ready" {
        // Two scripts of one purpose: what counts is whom they ask.
        let text = container
            .pointer("/args/0")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let address = text.split("--address ").nth(1).unwrap_or_default();
        let end = |c: char| c.is_whitespace() || c == ';';
        let address = address.split(end).next().unwrap_or_default();
        container["args"] = json!([format!("wait for {address}")]);
    }
}

/// `wait-gcs-ready` beside a Ray container with these resources.
fn wait_resources(ray: Option<&Value>) -> Value {
    let mut resources = Map::new();
    for (name, request, limit) in [("cpu", "200m", "1"), ("memory", "256Mi", "512Mi")] {
        let of = |kind: &str| {
            ray.and_then(|ray| ray.pointer(&format!("/{kind}/{name}")))
                .cloned()
        };
        let (requested, limited) = match (of("requests"), of("limits")) {
            (None, None) => (Some(json!(request)), Some(json!(limit))),
            own => own,
        };
        for (kind, amount) in [("requests", requested), ("limits", limited)] {
            if let Some(amount) = amount {
                resources.entry(kind).or_insert_with(|| json!({}))[name] = amount;
            }
        }
    }
    Value::Object(resources)
}

fn is_kuberays(probe: &Value) -> bool {
    probe["initialDelaySeconds"] == 10 && probe["periodSeconds"] == 5 && probe["failureThreshold"] == 10
}

/// Removes, everywhere, what the API server adds by itself.
fn drop_filled_in(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, value| {
                let text = value.to_string();
                !FILLED_IN.contains(&(key.as_str(), text.as_str()))
                    && !value.as_array().is_some_and(Vec::is_empty)
            });
            map.values_mut().for_each(drop_filled_in);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_filled_in),
        _ => {}
    }
}

/// Replaces uids, which differ from run to run.
fn with_known_uids(text: &str) -> String {
    let is_uid = |part: &str| {
        part.len() == 36
            && part.char_indices().all(|(at, c)| match at {
                8 | 13 | 18 | 23 => c == '-',
                _ => c.is_ascii_hexdigit(),
            })
    };
    text.split('"')
        .map(|part| if is_uid(part) { "UID" } else { part })
        .collect::<Vec<_>>()
        .join("\"")
}

/// `x-abcde` → `x-XXXXX`.
#[must_use]
pub fn without_suffix(name: &str) -> String {
    match name.rsplit_once('-') {
        Some((rest, suffix))
            if suffix.len() == 5
                && suffix
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'X') =>
        {
            format!("{rest}-XXXXX")
        }
        _ => name.to_owned(),
    }
}

/// The objects of a kind, sorted by what does not depend on chance.
#[must_use]
pub fn sorted(objects: Vec<Value>) -> Vec<Value> {
    let keyed: BTreeMap<String, Value> = objects
        .into_iter()
        .enumerate()
        .map(|(index, object)| {
            let name = object.pointer("/metadata/name").and_then(Value::as_str);
            let labels = object.pointer("/metadata/labels").map(Value::to_string);
            let key = format!(
                "{} {} {index:04}",
                name.unwrap_or_default(),
                labels.unwrap_or_default()
            );
            (key, object)
        })
        .collect();
    keyed.into_values().collect()
}

fn list_mut<'a>(value: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    value
        .get_mut(key)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

fn list_at_mut<'a>(value: &'a mut Value, pointer: &str) -> impl Iterator<Item = &'a mut Value> {
    value
        .pointer_mut(pointer)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

fn remove(value: &mut Value, key: &str) {
    if let Some(map) = value.as_object_mut() {
        map.remove(key);
    }
}
