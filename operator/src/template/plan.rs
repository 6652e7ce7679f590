//! What follows from the world. Pure.

use std::collections::BTreeMap;

use ray_api::conditions;
use ray_api::expand::{Compute, Extends, Needed, TemplateId, Templates, check_extends};
use ray_api::template::ImageTemplate;
use ray_api::template::v1alpha1::UsedBy;

use super::world::{Cluster, Key, Used, World};

/// Users that a template's status names.
const NAMED_USERS: usize = 10;
const COMPUTE: &str = "ComputeTemplate";
const CLUSTER_COMPUTE: &str = "ClusterComputeTemplate";
const IMAGE: &str = "ImageTemplate";

/// What a gated cluster is told, and whether the webhook can lift its gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// The RayCluster.
    pub cluster: Key,
    /// Status of its condition `ImageReady`.
    pub ready: bool,
    /// Reason of the condition.
    pub reason: String,
    /// Message of the condition.
    pub message: String,
    /// Digest that has come since, to name in the touch.
    pub lift: Option<String>,
}

/// What every gated cluster waits for.
#[must_use]
pub fn gates(world: &World) -> Vec<Gate> {
    let gated = world.clusters.iter().filter(|(_, cluster)| cluster.gated);
    gated
        .filter_map(|(key, cluster)| gate(world, key, cluster))
        .collect()
}

fn gate(world: &World, key: &Key, cluster: &Cluster) -> Option<Gate> {
    let ids = cluster.templates.iter().map(|used| &used.id);
    let pending = ids.filter(|id| id.kind == IMAGE && id.is_pending());
    let pending: Vec<_> = pending
        .map(|id| (id, world.images.get(&key.0, &id.name)))
        .collect();
    let there = |template: Option<&ImageTemplate>| template.and_then(|t| t.status.as_ref()?.image.clone());
    let lift = pending
        .iter()
        .find_map(|(_, template)| there(*template))
        .map(|image| digest(&image).to_owned());
    let missing = pending.iter().find(|(_, template)| there(*template).is_none());
    let (ready, reason, message) = match missing {
        Some((id, template)) => {
            let (reason, message) = why_not(id, *template);
            (false, reason, message)
        }
        None => {
            let names: Vec<_> = pending.iter().map(|(id, _)| id.name.as_str()).collect();
            // Labelled by hand: nothing is waited for, and nothing can be lifted.
            names.first()?;
            (
                true,
                "ImageBuilt".to_owned(),
                format!("the image of {} is there", names.join(", ")),
            )
        }
    };
    Some(Gate {
        cluster: key.clone(),
        ready,
        reason,
        message,
        lift,
    })
}

fn why_not(id: &TemplateId, template: Option<&ImageTemplate>) -> (String, String) {
    let name = &id.name;
    let Some(template) = template else {
        return (
            "ImageTemplateNotFound".to_owned(),
            format!("ImageTemplate {name} does not exist: create it"),
        );
    };
    let status = template.status.clone().unwrap_or_default();
    if let Some(failure) = status.failure {
        let reason = serde_json::to_value(failure.reason)
            .ok()
            .and_then(|v| v.as_str().map(str::to_owned));
        let message = format!("the build of ImageTemplate {name} failed: {}", failure.message);
        return (reason.unwrap_or_else(|| "BuildFailed".to_owned()), message);
    }
    let all = status.conditions.unwrap_or_default();
    let building = conditions::is_true(&all, "Building");
    let what = if building {
        "is being built"
    } else {
        "has not been built yet"
    };
    ("ImageNotBuilt".to_owned(), format!("ImageTemplate {name} {what}"))
}

fn digest(image: &str) -> &str {
    image.split_once('@').map_or(image, |(_, digest)| digest)
}

/// Clusters with the policy `Track` whose templates have changed since.
#[must_use]
pub fn refreshes(world: &World) -> Vec<Key> {
    let tracking = world
        .clusters
        .iter()
        .filter(|(_, cluster)| cluster.tracks && !cluster.gated);
    let outdated = tracking.filter(|(key, cluster)| {
        cluster
            .templates
            .iter()
            .any(|used| is_outdated(world, &key.0, used))
            || has_old_image(world, &key.0, cluster)
    });
    outdated.map(|(key, _)| key.clone()).collect()
}

/// Whether values were taken from an older template, or older ancestors of it, than there are now.
fn is_outdated(world: &World, namespace: &str, used: &Used) -> bool {
    std::iter::once(&used.id)
        .chain(&used.extends)
        .any(|id| has_newer(world, namespace, id))
}

/// Whether the template of that name is another than it was. A deleted one is no newer.
fn has_newer(world: &World, namespace: &str, id: &TemplateId) -> bool {
    let metadata = match id.kind.as_str() {
        COMPUTE => world.compute.get(namespace, &id.name).map(|t| &t.metadata),
        CLUSTER_COMPUTE => world.cluster_compute.get("", &id.name).map(|t| &t.metadata),
        // An image's spec may change long before its image does.
        _ => None,
    };
    let changed = |m: &kube::core::ObjectMeta| m.uid != id.uid || m.generation > id.generation;
    !id.is_pending() && metadata.is_some_and(changed)
}

fn has_old_image(world: &World, namespace: &str, cluster: &Cluster) -> bool {
    cluster.images.iter().any(|(template, image)| {
        let newest = world
            .images
            .get(namespace, template)
            .and_then(|t| t.status.as_ref()?.image.as_ref());
        newest.is_some_and(|newest| newest != image)
    })
}

/// What a template's status should say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Clusters that refer to it.
    pub used_by: UsedBy,
    /// Those with values of an older generation of it or of what it extends. None for images.
    pub stale: Option<i32>,
    /// False and why, where `extends` is broken.
    pub sound: Option<Result<(), (&'static str, String)>>,
    /// Generation that was judged.
    pub generation: Option<i64>,
}

/// Kind, namespace and name.
pub type StatusKey = (&'static str, Key);

/// The status of every template.
#[must_use]
pub fn statuses(world: &World) -> BTreeMap<StatusKey, Status> {
    let mut all = BTreeMap::new();
    for (key, template) in world.compute.iter() {
        let sound = soundness(world, &Compute::from(template));
        let status = Status {
            generation: template.metadata.generation,
            ..compute_status(sound)
        };
        all.insert((COMPUTE, key.clone()), status);
    }
    for (key, template) in world.cluster_compute.iter() {
        let sound = soundness(world, &Compute::from(template));
        let status = Status {
            generation: template.metadata.generation,
            ..compute_status(sound)
        };
        all.insert((CLUSTER_COMPUTE, key.clone()), status);
    }
    for (key, _) in world.images.iter() {
        all.insert((IMAGE, key.clone()), Status::default());
    }
    for (key, cluster) in world.clusters.iter() {
        // Groups may use one template, at several generations.
        let same = |a: &Used, b: &Used| (&a.id.kind, &a.id.name) == (&b.id.kind, &b.id.name);
        for used in cluster.templates.chunk_by(same) {
            count(&mut all, world, key, used);
        }
    }
    all
}

fn compute_status(sound: Result<(), (&'static str, String)>) -> Status {
    Status {
        stale: Some(0),
        sound: Some(sound),
        ..Status::default()
    }
}

/// Counts one cluster for one template.
fn count(all: &mut BTreeMap<StatusKey, Status>, world: &World, cluster: &Key, used: &[Used]) {
    let (namespace, name) = cluster;
    let Some(Used { id, .. }) = used.first() else {
        return;
    };
    let (kind, owner, shown) = match id.kind.as_str() {
        COMPUTE => (COMPUTE, namespace.clone(), name.clone()),
        IMAGE => (IMAGE, namespace.clone(), name.clone()),
        _ => (CLUSTER_COMPUTE, String::new(), format!("{namespace}/{name}")),
    };
    let Some(status) = all.get_mut(&(kind, (owner, id.name.clone()))) else {
        return;
    };
    status.used_by.clusters += 1;
    if status.used_by.names.len() < NAMED_USERS {
        status.used_by.names.push(shown);
    }
    if let Some(stale) = &mut status.stale
        && used.iter().any(|used| is_outdated(world, namespace, used))
    {
        *stale += 1;
    }
}

/// Whether `extends` holds, in words of a condition.
fn soundness(world: &World, template: &Compute) -> Result<(), (&'static str, String)> {
    let mut templates = Templates::default();
    loop {
        match check_extends(template, &templates) {
            Extends::Sound => return Ok(()),
            Extends::Orphan(why) => return Err(("ExtendsNotFound", why)),
            Extends::Broken(why) => return Err(("ExtendsBroken", why)),
            Extends::Needs(needed) => {
                let found = match &needed {
                    Needed::Compute { namespace, name } => {
                        world.compute.get(namespace, name).map(Compute::from)
                    }
                    Needed::ClusterCompute { name } => world.cluster_compute.get("", name).map(Compute::from),
                    Needed::Image { .. } => None,
                };
                templates.insert_compute(needed, found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::PartialObjectMeta;
    use kube::runtime::watcher::Event;
    use ray_api::ray::RayCluster;
    use serde_json::{Value, json};

    use super::super::world::Change;
    use super::*;

    fn world(clusters: &[Value], compute: &[Value], images: &[Value]) -> World {
        let mut world = World::default();
        for cluster in clusters {
            let meta: PartialObjectMeta<RayCluster> = serde_json::from_value(cluster.clone()).unwrap();
            world.apply(Change::Cluster(None, Event::Apply(meta)));
        }
        for template in compute {
            world.apply(Change::Compute(
                None,
                Event::Apply(serde_json::from_value(template.clone()).unwrap()),
            ));
        }
        for template in images {
            world.apply(Change::Image(
                None,
                Event::Apply(serde_json::from_value(template.clone()).unwrap()),
            ));
        }
        world
    }

    fn cluster(name: &str, labels: Value, record: Value, policy: &str) -> Value {
        json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {
            "name": name, "namespace": "ns", "uid": name, "labels": labels,
            "annotations": {"templates.ray.io/expansion": record.to_string(), "templates.ray.io/update-policy": policy}}})
    }

    fn compute(generation: i64, extends: Option<&str>) -> Value {
        json!({"apiVersion": "templates.ray.io/v1alpha1", "kind": "ComputeTemplate",
            "metadata": {"name": "small", "namespace": "ns", "uid": "u", "generation": generation}, "spec": {"extends": extends}})
    }

    fn image(status: Value) -> Value {
        json!({"apiVersion": "templates.ray.io/v1alpha1", "kind": "ImageTemplate",
            "metadata": {"name": "torch", "namespace": "ns", "uid": "i", "generation": 1}, "spec": {"baseImage": "b"}, "status": status})
    }

    fn waiting() -> Value {
        let record =
            json!({"head": {"image": {"kind": "ImageTemplate", "namespace": "ns", "name": "torch"}}});
        cluster("c", json!({"templates.ray.io/gated": "true"}), record, "")
    }

    fn filled(generation: i64, image: &str, policy: &str) -> Value {
        let small = json!({"kind": "ComputeTemplate", "namespace": "ns", "name": "small", "uid": "u", "generation": generation});
        let torch =
            json!({"kind": "ImageTemplate", "namespace": "ns", "name": "torch", "uid": "i", "generation": 1});
        let pieces = json!([{"at": "template/spec/containers/[0]/image", "value": image, "from": "image"}]);
        cluster(
            "c",
            json!({}),
            json!({"head": {"compute": small, "image": torch, "pieces": pieces}}),
            policy,
        )
    }

    #[test]
    fn a_gate_lifts_when_the_image_is_there_and_says_why_until_then() {
        let told = |images: &[Value]| {
            let gate = gates(&world(&[waiting()], &[], images)).remove(0);
            (gate.ready, gate.reason, gate.lift)
        };
        assert_eq!(told(&[]), (false, "ImageTemplateNotFound".into(), None));
        assert_eq!(told(&[image(json!({}))]), (false, "ImageNotBuilt".into(), None));
        let failure = json!({"failure": {"reason": "OutOfMemory", "message": "killed"}});
        assert_eq!(told(&[image(failure)]), (false, "OutOfMemory".into(), None));
        let there = image(json!({"image": "r/torch@sha256:1"}));
        assert_eq!(
            told(&[there]),
            (true, "ImageBuilt".into(), Some("sha256:1".into()))
        );
    }

    #[test]
    fn a_label_by_hand_lifts_nothing() {
        let mut by_hand = filled(1, "r@sha256:1", "");
        by_hand["metadata"]["labels"] = json!({"templates.ray.io/gated": "true"});
        assert_eq!(
            gates(&world(&[by_hand], &[], &[image(json!({"image": "r@sha256:1"}))])),
            []
        );
    }

    #[test]
    fn only_clusters_that_track_are_refreshed_and_only_for_something_newer() {
        let refreshed = |cluster: Value, generation, image_now: &str| {
            let images = [image(json!({"image": image_now}))];
            !refreshes(&world(&[cluster], &[compute(generation, None)], &images)).is_empty()
        };
        assert!(!refreshed(filled(1, "r@sha256:1", "Track"), 1, "r@sha256:1"));
        assert!(refreshed(filled(1, "r@sha256:1", "Track"), 2, "r@sha256:1"));
        assert!(refreshed(filled(1, "r@sha256:1", "Track"), 1, "r@sha256:2"));
        assert!(!refreshed(filled(1, "r@sha256:1", "Pin"), 2, "r@sha256:2"));
        assert!(
            refreshes(&world(&[filled(1, "r@sha256:1", "Track")], &[], &[])).is_empty(),
            "deleted templates"
        );
    }

    #[test]
    fn users_are_counted_with_those_that_are_stale() {
        let world = world(
            &[filled(1, "r@sha256:1", "")],
            &[compute(2, Some("nobody"))],
            &[image(json!({}))],
        );
        let all = statuses(&world);
        let small = &all[&("ComputeTemplate", ("ns".to_owned(), "small".to_owned()))];
        assert_eq!((small.used_by.clusters, small.stale), (1, Some(1)));
        assert_eq!(small.used_by.names, ["c"]);
        assert_eq!(
            small.sound.as_ref().unwrap().as_ref().unwrap_err().0,
            "ExtendsNotFound"
        );
        let torch = &all[&("ImageTemplate", ("ns".to_owned(), "torch".to_owned()))];
        assert_eq!((torch.used_by.clusters, torch.stale), (1, None));
    }

    #[test]
    fn an_edited_ancestor_makes_its_heirs_users_stale() {
        let big = |generation: i64| json!({"kind": "ComputeTemplate", "namespace": "ns", "name": "big", "uid": "b", "generation": generation});
        let small = json!({"kind": "ComputeTemplate", "namespace": "ns", "name": "small", "uid": "u", "generation": 1});
        let group = |generation| json!({"compute": big(generation), "extends": [small]});
        let record = json!({"head": group(5), "workers": {"w": group(5)}});
        let mut template = compute(5, Some("small"));
        template["metadata"]["name"] = json!("big");
        template["metadata"]["uid"] = json!("b");
        let seen = |record: &Value, parent: i64| {
            let tracking = cluster("c", json!({}), record.clone(), "Track");
            let world = world(&[tracking], &[template.clone(), compute(parent, None)], &[]);
            let all = statuses(&world);
            let status = |name: &str| {
                let status = &all[&("ComputeTemplate", ("ns".to_owned(), name.to_owned()))];
                (status.used_by.clusters, status.stale)
            };
            (status("big"), status("small"), refreshes(&world).len())
        };
        assert_eq!(seen(&record, 1), ((1, Some(0)), (0, Some(0)), 0));
        assert_eq!(seen(&record, 2), ((1, Some(1)), (0, Some(0)), 1));
        // One of two groups is behind: one cluster, stale.
        let record = json!({"head": group(5), "workers": {"w": group(4)}});
        assert_eq!(seen(&record, 1), ((1, Some(1)), (0, Some(0)), 1));
    }

    #[test]
    fn a_listing_replaces_what_was_known() {
        let mut world = world(&[filled(1, "r@sha256:1", "")], &[], &[]);
        world.apply(Change::Cluster(None, Event::Init));
        assert_eq!(world.clusters.iter().count(), 1, "until the listing is whole");
        world.apply(Change::Cluster(None, Event::InitDone));
        assert_eq!(world.clusters.iter().count(), 0);
    }
}
