//! A compute template as the list of values that it gives to a group.

use serde_json::{Map, Value, json};

use super::fill::RESOURCE_FLAGS;
use super::group::GroupKey;
use super::path::{Path, Segment};
use super::record::Piece;
use super::templates::Image;

/// Volume of `sharedMemory`; the cluster controller gives its own /dev/shm the same name.
const SHARED_MEMORY_VOLUME: &str = "shared-mem";
/// Where Ray's object store lives.
pub(super) const SHARED_MEMORY_MOUNT: &str = "/dev/shm";

/// Pod spec fields that are one value each.
const POD_SCALARS: [&str; 6] = [
    "affinity",
    "topologySpreadConstraints",
    "priorityClassName",
    "runtimeClassName",
    "schedulerName",
    "serviceAccountName",
];

/// Path of the Ray container's image.
pub(super) const IMAGE: &[Segment] = &[
    Segment::field("template"),
    Segment::field("spec"),
    Segment::field("containers"),
    Segment::First,
    Segment::field("image"),
];
/// Path of the Ray container.
pub(super) const CONTAINER: &[Segment] = match IMAGE {
    [container @ .., _image] => container,
    [] => IMAGE,
};

/// The values of a compute template for a group, and the fields that mean nothing there.
pub(super) fn compute(spec: &Value, key: &GroupKey) -> (Vec<Piece>, Vec<&'static str>) {
    let mut at = Overlay {
        spec,
        pieces: Vec::new(),
    };
    let pod = Path::of(&["template", "spec"]);
    let container = Path::from(CONTAINER);
    at.resources(&container.key("resources"));
    at.items("env", &container.key("env"), Some("name"));
    at.items("envFrom", &container.key("envFrom"), None);
    at.items("volumes", &pod.key("volumes"), Some("name"));
    at.items("volumeMounts", &container.key("volumeMounts"), Some("mountPath"));
    at.shared_memory(&pod, &container);
    for field in POD_SCALARS {
        if let Some(value) = spec.get(field) {
            at.push(pod.key(field), value.clone());
        }
    }
    at.entries("nodeSelector", &pod.key("nodeSelector"));
    at.items("tolerations", &pod.key("tolerations"), None);
    at.entries("labels", &Path::of(&["template", "metadata", "labels"]));
    at.entries("annotations", &Path::of(&["template", "metadata", "annotations"]));
    at.entries("rayStartParams", &Path::of(&["rayStartParams"]));
    at.ray_resources();
    let mut unused = Vec::new();
    if let Some(hosts) = spec.get("numOfHosts") {
        match key {
            GroupKey::Head => unused.push("numOfHosts"),
            GroupKey::Worker(_) => at.push(Path::of(&["numOfHosts"]), hosts.clone()),
        }
    }
    (at.pieces, unused)
}

/// The values of an image for a group.
pub(super) fn image(image: &str, facts: &Image) -> Vec<Piece> {
    let secrets = Path::of(&["template", "spec", "imagePullSecrets"]);
    let secret = |name: &String| Piece::image(secrets.item("name", name.clone()), json!({"name": name}));
    let image = Piece::image(IMAGE.into(), json!(image));
    std::iter::once(image)
        .chain(facts.run_pull_secrets.iter().map(secret))
        .collect()
}

/// The piece that makes the Ray container, first of all where any piece is inside it.
pub(super) fn with_container(mut pieces: Vec<Piece>, key: &GroupKey) -> Vec<Piece> {
    let inside = |piece: &Piece| piece.at.0.starts_with(CONTAINER) && piece.at.0 != CONTAINER;
    if let Some(position) = pieces.iter().position(|piece| piece.at.0 == CONTAINER) {
        let piece = pieces.remove(position);
        pieces.insert(0, piece);
    } else if let Some(first) = pieces.iter().find(|piece| inside(piece)) {
        let piece = Piece {
            from: first.from,
            ..Piece::compute(CONTAINER.into(), json!({"name": key.container_name()}))
        };
        pieces.insert(0, piece);
    }
    pieces
}

struct Overlay<'a> {
    spec: &'a Value,
    pieces: Vec<Piece>,
}

impl Overlay<'_> {
    fn push(&mut self, at: Path, value: Value) {
        self.pieces.push(Piece::compute(at, value));
    }

    fn entries(&mut self, field: &str, at: &Path) {
        for (key, value) in self
            .spec
            .get(field)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            self.push(at.key(key.clone()), value.clone());
        }
    }

    fn items(&mut self, field: &str, at: &Path, key: Option<&'static str>) {
        for item in self
            .spec
            .get(field)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let name = key.and_then(|key| Some((key, item.get(key)?.as_str()?)));
            let at = match name {
                Some((key, name)) => at.item(key, name.to_owned()),
                None => at.then(Segment::Element),
            };
            self.push(at, item.clone());
        }
    }

    fn resources(&mut self, at: &Path) {
        let Some(resources) = self.spec.get("resources") else {
            return;
        };
        for list in ["requests", "limits"] {
            let at = at.key(list);
            for (name, quantity) in resources
                .get(list)
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
            {
                self.push(at.key(name.clone()), quantity.clone());
            }
        }
        if let Some(claims) = resources.get("claims") {
            self.push(at.key("claims"), claims.clone());
        }
    }

    fn shared_memory(&mut self, pod: &Path, container: &Path) {
        let Some(size) = self.spec.get("sharedMemory") else {
            return;
        };
        let volume =
            json!({"name": SHARED_MEMORY_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": size}});
        let mount = json!({"name": SHARED_MEMORY_VOLUME, "mountPath": SHARED_MEMORY_MOUNT});
        self.push(pod.key("volumes").item("name", SHARED_MEMORY_VOLUME), volume);
        self.push(
            container
                .key("volumeMounts")
                .item("mountPath", SHARED_MEMORY_MOUNT),
            mount,
        );
    }

    /// Into the group's `resources`, from which the operator makes Ray's flags.
    fn ray_resources(&mut self) {
        let resources = self.spec.get("rayResources").and_then(Value::as_object);
        for (name, amount) in resources.into_iter().flatten() {
            if let Some(amount) = amount.as_f64() {
                // Rust prints the shortest decimal that reads back: a valid quantity.
                self.push(
                    Path::of(&["resources"]).key(name.clone()),
                    json!(amount.to_string()),
                );
            }
        }
    }
}

/// A parent's spec with a child's on top, by the same units as filling: names, keys, items, wholes.
pub(super) fn inherit(parent: Value, child: &Value) -> Value {
    let (Value::Object(mut result), Some(child)) = (parent, child.as_object()) else {
        return child.clone();
    };
    give_way(&mut result, child);
    for (field, value) in child {
        let inherited = result.remove(field);
        let merged = match (field.as_str(), inherited) {
            ("resources", Some(parent)) => inherit_resources(parent, value),
            ("nodeSelector" | "labels" | "annotations" | "rayStartParams" | "rayResources", Some(parent)) => {
                inherit_entries(parent, value)
            }
            ("env" | "volumes", Some(parent)) => inherit_items(parent, value, "name"),
            ("volumeMounts", Some(parent)) => inherit_items(parent, value, "mountPath"),
            ("tolerations" | "envFrom", Some(Value::Array(parent))) => {
                let mut items = parent;
                let new = value.as_array().into_iter().flatten();
                let new: Vec<_> = new.filter(|item| !items.contains(item)).cloned().collect();
                items.extend(new);
                Value::Array(items)
            }
            _ => value.clone(),
        };
        result.insert(field.clone(), merged);
    }
    // A child without `extends` of its own would otherwise seem to have its parent's.
    if !child.contains_key("extends") {
        result.remove("extends");
    }
    Value::Object(result)
}

/// Takes from a parent what its child says in the other of two ways; both together would clash (see `check`).
fn give_way(parent: &mut Map<String, Value>, child: &Map<String, Value>) {
    let is_flag = |flag: &str| RESOURCE_FLAGS.contains(&flag);
    let flags = object(child.get("rayStartParams"));
    if flags.is_some_and(|flags| flags.keys().any(|flag| is_flag(flag))) {
        parent.remove("rayResources");
    }
    if object(child.get("rayResources")).is_some_and(|resources| !resources.is_empty())
        && let Some(Value::Object(flags)) = parent.get_mut("rayStartParams")
    {
        flags.retain(|flag, _| !is_flag(flag));
    }
    let is_shared_memory = |mount: &Value| mount.get("mountPath") == Some(&json!(SHARED_MEMORY_MOUNT));
    let mounts = child.get("volumeMounts").and_then(Value::as_array);
    if mounts.is_some_and(|mounts| mounts.iter().any(is_shared_memory)) {
        parent.remove("sharedMemory");
    }
    if child.contains_key("sharedMemory")
        && let Some(Value::Array(mounts)) = parent.get_mut("volumeMounts")
    {
        mounts.retain(|mount| !is_shared_memory(mount));
    }
}

/// A resource name that the child sets in requests or limits takes nothing from the parent.
fn inherit_resources(parent: Value, child: &Value) -> Value {
    let lists = ["requests", "limits"];
    let own = |name: &String| {
        lists
            .iter()
            .any(|list| child.get(list).is_some_and(|l| l.get(name).is_some()))
    };
    let Value::Object(mut result) = parent else {
        return child.clone();
    };
    for list in lists {
        if let Some(Value::Object(quantities)) = result.get_mut(list) {
            quantities.retain(|name, _| !own(name));
        }
    }
    for (field, value) in child.as_object().into_iter().flatten() {
        let inherited = result.remove(field);
        let merged = inherited.map_or_else(|| value.clone(), |parent| inherit_entries(parent, value));
        result.insert(field.clone(), merged);
    }
    Value::Object(result)
}

fn inherit_entries(parent: Value, child: &Value) -> Value {
    match (parent, child) {
        (Value::Object(mut entries), Value::Object(child)) => {
            entries.extend(child.clone());
            Value::Object(entries)
        }
        _ => child.clone(),
    }
}

fn inherit_items(parent: Value, child: &Value, key: &str) -> Value {
    let (Value::Array(mut items), Some(child)) = (parent, child.as_array()) else {
        return child.clone();
    };
    for item in child {
        let same = |other: &&mut Value| other.get(key) == item.get(key);
        match items.iter_mut().find(same) {
            Some(inherited) => *inherited = item.clone(),
            None => items.push(item.clone()),
        }
    }
    Value::Array(items)
}

/// The keys of an object, for rules over its fields.
pub(super) fn object(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}
