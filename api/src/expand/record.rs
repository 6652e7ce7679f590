//! The record of an expansion: annotation `templates.ray.io/expansion`, a JSON text.
//!
//! ```text
//! { "head":    { "compute": {template}, "extends": [{template}], "image": {template}, "pieces": [...], "created": [...] },
//!   "workers": { "<groupName>": { as head } },
//!   "cluster": { "pieces": [...], "created": [...] } }      // spec.rayVersion, the image gate
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::group::GroupKey;
use super::path::Path;
use crate::meta::annotation;

/// What the expansion of a RayCluster filled in, and from where.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The head group.
    #[serde(default, skip_serializing_if = "GroupRecord::is_empty")]
    pub head: GroupRecord,
    /// Worker groups by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub workers: BTreeMap<String, GroupRecord>,
    /// Fields outside of any group; paths start at the object's root.
    #[serde(default, skip_serializing_if = "Filled::is_empty")]
    pub cluster: Filled,
}

/// What was filled into one group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupRecord {
    /// The ComputeTemplate or ClusterComputeTemplate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute: Option<TemplateId>,
    /// What that one extended, the parent first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extends: Vec<TemplateId>,
    /// The ImageTemplate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<TemplateId>,
    /// Values, with paths that start at the group.
    #[serde(flatten)]
    pub filled: Filled,
}

/// Values and the parents made for them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Filled {
    /// Each value that the templates give, in the order of filling.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pieces: Vec<Piece>,
    /// Objects and lists that were made to hold them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub created: Vec<Path>,
}

/// A template as it was when its values were taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateId {
    /// `ComputeTemplate`, `ClusterComputeTemplate` or `ImageTemplate`.
    pub kind: String,
    /// Absent for cluster-wide ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Absent while the template (or its image) is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Its generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
}

impl TemplateId {
    /// Whether its values are still to come.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.uid.is_none()
    }
}

/// One value that a template gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Piece {
    /// Where.
    pub at: Path,
    /// What.
    pub value: Value,
    /// What kind of template it comes from.
    #[serde(default, skip_serializing_if = "Origin::is_compute")]
    pub from: Origin,
    /// The default that it stands in place of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<Value>,
    /// The user has an own value there, so this one is not in use.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overridden: bool,
}

impl Piece {
    /// A value of a compute template.
    #[must_use]
    pub fn compute(at: Path, value: Value) -> Self {
        Self {
            at,
            value,
            from: Origin::Compute,
            was: None,
            overridden: false,
        }
    }

    /// A value of an image template.
    #[must_use]
    pub fn image(at: Path, value: Value) -> Self {
        Self {
            from: Origin::Image,
            ..Self::compute(at, value)
        }
    }
}

/// Kind of template that a value comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// ComputeTemplate or ClusterComputeTemplate.
    #[default]
    Compute,
    /// ImageTemplate.
    Image,
}

impl Origin {
    #[allow(clippy::trivially_copy_pass_by_ref)] // serde's skip_serializing_if passes a reference
    fn is_compute(&self) -> bool {
        *self == Self::Compute
    }
}

impl Filled {
    fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.created.is_empty()
    }
}

impl GroupRecord {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The template of that kind.
    #[must_use]
    pub fn template(&self, origin: Origin) -> Option<&TemplateId> {
        match origin {
            Origin::Compute => self.compute.as_ref(),
            Origin::Image => self.image.as_ref(),
        }
    }

    /// The values that the template of that kind gave.
    pub fn pieces_from(&self, origin: Origin) -> impl Iterator<Item = &Piece> {
        self.filled
            .pieces
            .iter()
            .filter(move |piece| piece.from == origin)
    }
}

impl Record {
    /// The record on an object, if there is a legible one.
    #[must_use]
    pub fn of(object: &Value) -> Option<Self> {
        serde_json::from_str(Self::text(object)?).ok()
    }

    /// The record as it stands on an object.
    pub(super) fn text(object: &Value) -> Option<&str> {
        let annotations = object.get("metadata")?.get("annotations")?;
        annotations.get(annotation::EXPANSION)?.as_str()
    }

    /// The record of a group.
    #[must_use]
    pub fn group(&self, key: &GroupKey) -> Option<&GroupRecord> {
        match key {
            GroupKey::Head => (!self.head.is_empty()).then_some(&self.head),
            GroupKey::Worker(name) => self.workers.get(name),
        }
    }

    /// All groups with a record, the head first.
    pub fn groups(&self) -> impl Iterator<Item = (GroupKey, &GroupRecord)> {
        let head = (!self.head.is_empty()).then_some((GroupKey::Head, &self.head));
        let workers = self.workers.iter();
        head.into_iter()
            .chain(workers.map(|(name, group)| (GroupKey::Worker(name.clone()), group)))
    }

    /// Whether nothing is recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups().next().is_none() && self.cluster.is_empty()
    }

    /// Every template that the cluster refers to: its values come from there, or it waits for them.
    pub fn templates(&self) -> impl Iterator<Item = &TemplateId> {
        self.groups()
            .flat_map(|(_, group)| group.compute.iter().chain(&group.image))
    }

    /// What those templates extended when their values were taken.
    pub fn ancestors(&self) -> impl Iterator<Item = &TemplateId> {
        self.groups().flat_map(|(_, group)| &group.extends)
    }

    pub(super) fn set_group(&mut self, key: &GroupKey, group: GroupRecord) {
        match key {
            GroupKey::Head => self.head = group,
            GroupKey::Worker(_) if group.is_empty() => {}
            GroupKey::Worker(name) => {
                self.workers.insert(name.clone(), group);
            }
        }
    }
}
