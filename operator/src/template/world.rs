//! What the watches have seen.

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::core::{ObjectMeta, PartialObjectMeta};
use kube::runtime::watcher::Event;
use ray_api::expand::{GroupRecord, Origin, Record, TemplateId, path::Path};
use ray_api::meta::{annotation, label};
use ray_api::ray::RayCluster;
use ray_api::template::{ClusterComputeTemplate, ComputeTemplate, ImageTemplate};

/// Namespace (empty for cluster-wide objects) and name.
pub type Key = (String, String);

/// A RayCluster with a record of its expansion, as its metadata tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cluster {
    /// For owner references and events.
    pub uid: String,
    /// Its generation.
    pub generation: Option<i64>,
    /// Its labels say that it waits for an image.
    pub gated: bool,
    /// It follows its templates.
    pub tracks: bool,
    /// Templates that its values come from, or that it waits for; sorted.
    pub templates: Vec<Used>,
    /// Images that ImageTemplates gave it, by their names.
    pub images: Vec<(String, String)>,
}

/// A template as a cluster uses it.
#[derive(Clone, Debug, PartialEq)]
pub struct Used {
    /// The template as it was when its values were taken.
    pub id: TemplateId,
    /// What it extended then.
    pub extends: Vec<TemplateId>,
}

/// All that this controller decides from.
#[derive(Default)]
pub struct World {
    /// RayClusters with templates.
    pub clusters: Cache<Cluster>,
    /// ComputeTemplates.
    pub compute: Cache<ComputeTemplate>,
    /// ClusterComputeTemplates.
    pub cluster_compute: Cache<ClusterComputeTemplate>,
    /// ImageTemplates.
    pub images: Cache<ImageTemplate>,
}

/// Something that a watch saw, in the namespace that it watches (None: all).
#[allow(clippy::large_enum_variant)] // lives for one call; a box for each event would cost more
pub enum Change {
    /// Of RayClusters.
    Cluster(Option<String>, Event<PartialObjectMeta<RayCluster>>),
    /// Of ComputeTemplates.
    Compute(Option<String>, Event<ComputeTemplate>),
    /// Of ClusterComputeTemplates.
    ClusterCompute(Event<ClusterComputeTemplate>),
    /// Of ImageTemplates.
    Image(Option<String>, Event<ImageTemplate>),
}

/// Objects of one kind.
pub struct Cache<T> {
    objects: BTreeMap<Key, T>,
    /// What a listing has brought so far, by the namespace that is listed.
    listing: BTreeMap<Option<String>, BTreeMap<Key, T>>,
    listed: bool,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            listing: BTreeMap::new(),
            listed: false,
        }
    }
}

impl<T> Cache<T> {
    /// All objects, by namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &T)> {
        self.objects.iter()
    }

    /// The object of that name.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<&T> {
        self.objects.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// Adds or changes an object.
    pub fn insert(&mut self, key: Key, object: T) {
        self.objects.insert(key, object);
    }

    /// Takes over an event; `keep` turns the object into what is cached, or into nothing.
    fn apply<K: ResourceExt>(
        &mut self,
        scope: Option<String>,
        event: Event<K>,
        keep: impl Fn(K) -> Option<T>,
    ) {
        let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
        match event {
            Event::Init => {
                self.listing.insert(scope, BTreeMap::new());
            }
            Event::InitApply(object) => {
                let key = key(&object);
                if let Some(object) = keep(object) {
                    self.listing.entry(scope).or_default().insert(key, object);
                }
            }
            Event::InitDone => {
                let listed = self.listing.remove(&scope).unwrap_or_default();
                self.objects
                    .retain(|(namespace, _), _| scope.as_ref().is_some_and(|scope| scope != namespace));
                self.objects.extend(listed);
                self.listed = true;
            }
            Event::Apply(object) => {
                let key = key(&object);
                match keep(object) {
                    Some(object) => self.objects.insert(key, object),
                    None => self.objects.remove(&key),
                };
            }
            Event::Delete(object) => {
                self.objects.remove(&key(&object));
            }
        }
    }
}

impl World {
    /// Whether every kind has been listed: before, absence means nothing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.clusters.listed && self.compute.listed && self.cluster_compute.listed && self.images.listed
    }

    /// Takes over what a watch saw.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Cluster(scope, event) => self.clusters.apply(scope, event, |c| cluster(&c.metadata)),
            Change::Compute(scope, event) => self.compute.apply(scope, event, Some),
            Change::ClusterCompute(event) => self.cluster_compute.apply(None, event, Some),
            Change::Image(scope, event) => self.images.apply(scope, event, Some),
        }
    }
}

/// None for a RayCluster without templates.
fn cluster(metadata: &ObjectMeta) -> Option<Cluster> {
    let annotations = metadata.annotations.as_ref()?;
    let record: Record = serde_json::from_str(annotations.get(annotation::EXPANSION)?).ok()?;
    let of_group = |(_, group): (_, &GroupRecord)| {
        let compute = group.compute.clone().map(|id| Used {
            id,
            extends: group.extends.clone(),
        });
        let image = group.image.clone().map(|id| Used {
            id,
            extends: Vec::new(),
        });
        compute.into_iter().chain(image)
    };
    let mut templates: Vec<_> = record.groups().flat_map(of_group).collect();
    templates.sort_by(|a, b| (&a.id.kind, &a.id.name).cmp(&(&b.id.kind, &b.id.name)));
    templates.dedup();
    let being_deleted = metadata.deletion_timestamp.is_some();
    Some(Cluster {
        uid: metadata.uid.clone().unwrap_or_default(),
        generation: metadata.generation,
        gated: !being_deleted
            && metadata
                .labels
                .as_ref()
                .is_some_and(|labels| labels.contains_key(label::GATED)),
        tracks: !being_deleted
            && annotations
                .get(annotation::UPDATE_POLICY)
                .is_some_and(|policy| policy == "Track"),
        templates,
        images: images(&record),
    })
}

fn images(record: &Record) -> Vec<(String, String)> {
    let mut images: Vec<_> = record
        .groups()
        .filter_map(|(_, group)| {
            let id = group.image.as_ref().filter(|id| !id.is_pending())?;
            let image = group
                .pieces_from(Origin::Image)
                .find(|piece| is_image(&piece.at))?;
            Some((id.name.clone(), image.value.as_str()?.to_owned()))
        })
        .collect();
    images.sort();
    images.dedup();
    images
}

fn is_image(at: &Path) -> bool {
    at.leaf_name() == "image"
}
