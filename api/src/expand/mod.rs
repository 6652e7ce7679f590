//! Expansion: a RayCluster that names templates becomes a full one, and back.
//!
//! ```text
//!   Decisions::of(request)         what it asks for, read once
//!     .needed(templates)           -> what to read      the caller reads it, until nothing is left
//!     .expand(templates)           -> object, warnings  or denials
//!   strip(object)                  -> what the user wrote
//!
//!   group      references of a group: field before annotation, group before cluster
//!   decide     which references are looked up, and which keep the values they were given
//!   overlay    a template as a list of pieces: values with their places
//!   fill       pieces into a group, where nothing is set
//!   take_back  recorded pieces out of an object, unless someone asked for them since
//!   gate       holds a cluster until its image is there
//!   scale      what the autoscaler owns
//!   record     annotation templates.ray.io/expansion: what was filled, from where
//! ```
//!
//! Every expansion takes back what the last one filled and fills again, so that only the user's part of
//! the object and the templates decide. Works on raw JSON: fields that we do not know pass through.

mod check;
mod decide;
mod fill;
mod gate;
pub mod group;
mod near;
mod overlay;
mod ownership;
pub mod path;
mod record;
mod scale;
mod take_back;
mod templates;

use std::fmt;

use serde_json::Value;

pub use check::check_compute;
pub use decide::Decisions;
pub use gate::check as check_gate;
pub use group::{GroupKey, Reference, reference};
pub use record::{Filled, GroupRecord, Origin, Piece, Record, TemplateId};
pub use scale::{SCALE_FIELDS, only_scale_changed};
pub use templates::{Compute, Extends, Image, MAX_EXTENDS, Needed, Templates, check_extends};

use crate::meta::annotation;
use ownership::Ownership;

/// A write of a RayCluster, as admission sees it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The namespace, which the object of a create may lack.
    pub namespace: &'a str,
    /// The RayCluster to be.
    pub object: &'a Value,
    /// The RayCluster as it is; None on create.
    pub old_object: Option<&'a Value>,
    /// Nothing will be stored: templates that do not exist yet are forgiven.
    pub dry_run: bool,
    /// Field manager of the request, if known.
    pub field_manager: Option<&'a str>,
}

/// A full RayCluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Expanded {
    /// The object, with its record.
    pub object: Value,
    /// Sentences for the user.
    pub warnings: Vec<String>,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Path of the field at fault, as `spec.workerGroupSpecs[0].computeTemplate`.
    pub field: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl Decisions<'_> {
    /// Fills templates into the RayCluster (design section 3, rules 1 to 7).
    ///
    /// # Errors
    /// Every reason why the request must be refused.
    pub fn expand(&self, templates: &Templates) -> Result<Expanded, Vec<Denial>> {
        let request = &self.request;
        if let Some(old) = request.old_object
            && only_scale_changed(request.object, old)
        {
            return Ok(Expanded {
                object: request.object.clone(),
                warnings: Vec::new(),
            });
        }
        let ownership = Ownership::of(request.object, request.field_manager);
        let mut object = self.bare(&ownership);
        if let Some(old) = request.old_object {
            scale::keep_autoscaled(&mut object, old, &ownership);
        }
        let mut expansion = Expansion::default();
        for group in self.groups(templates, &object) {
            expansion.fill_group(&mut object, group, &ownership);
        }
        if !expansion.denials.is_empty() {
            return Err(expansion.denials);
        }
        expansion.fill_ray_version(&mut object);
        expansion.warn_of_mixed_images(self, &object);
        let record = &mut expansion.record.cluster;
        gate::apply(&mut object, &expansion.waits, self.recorded(), record);
        write_record(&mut object, expansion.record);
        Ok(Expanded {
            object,
            warnings: expansion.warnings,
        })
    }

    /// What the user asked for: the object without what earlier expansions filled.
    fn bare(&self, ownership: &Ownership<'_>) -> Value {
        let mut object = self.request.object.clone();
        let remove = |object: &mut Value, key: &str| {
            let annotations = object.pointer_mut("/metadata/annotations");
            annotations
                .and_then(Value::as_object_mut)
                .and_then(|annotations| annotations.remove(key))
        };
        // A touch has done its work once it is here.
        remove(&mut object, annotation::GATE_LIFT);
        for record in self.records() {
            take_back::take_back(&mut object, record, ownership);
        }
        // One that does not read.
        remove(&mut object, annotation::EXPANSION);
        object
    }
}

/// The object without anything that expansion filled in.
#[must_use]
pub fn strip(object: &Value) -> Value {
    let mut bare = object.clone();
    if let Some(record) = Record::of(object) {
        let ownership = Ownership::of(object, None);
        take_back::take_back(&mut bare, &record, &ownership);
    }
    bare
}

/// What has been gathered so far.
#[derive(Default)]
struct Expansion {
    record: Record,
    ray_version: Option<Piece>,
    waits: Vec<gate::Wait>,
    warnings: Vec<String>,
    denials: Vec<Denial>,
}

impl Expansion {
    fn fill_group(&mut self, object: &mut Value, group: decide::Group, ownership: &Ownership<'_>) {
        self.warnings.extend(group.warnings);
        self.denials.extend(group.denials);
        self.waits.extend(group.wait);
        self.ray_version = self.ray_version.take().or(group.ray_version);
        let target = fill::Target {
            field: group::group_field(object, &group.key),
            hosts_may_be_default: group.hosts_may_be_default
                && !scale::is_named(&group.key, "numOfHosts", ownership),
        };
        let Some(value) = group::get_mut(object, &group.key) else {
            return;
        };
        let pieces = overlay::with_container(group.pieces, &group.key);
        let outcome = fill::fill(value, pieces, &target);
        self.denials.extend(outcome.denials);
        if group.is_fresh {
            self.warnings.extend(outcome.warnings);
            if !outcome.overridden.is_empty() {
                self.warnings.push(format!(
                    "{}: the cluster's own values are used in place of the template's: {}",
                    target.field,
                    outcome.overridden.join(", ")
                ));
            }
        }
        let record = GroupRecord {
            compute: group.compute,
            extends: group.extends,
            image: group.image,
            filled: outcome.filled,
        };
        self.record.set_group(&group.key, record);
    }

    fn fill_ray_version(&mut self, object: &mut Value) {
        let Some(piece) = self.ray_version.take() else {
            return;
        };
        let target = fill::Target {
            field: "spec".to_owned(),
            hosts_may_be_default: false,
        };
        let outcome = fill::fill(object, vec![piece], &target);
        self.record.cluster = outcome.filled;
    }

    fn warn_of_mixed_images(&mut self, decisions: &Decisions<'_>, object: &Value) {
        let recreated = object
            .pointer("/spec/upgradeStrategy/type")
            .and_then(Value::as_str)
            == Some("Recreate");
        let suspended = object.pointer("/spec/suspend") == Some(&Value::Bool(true));
        let Some(recorded) = decisions
            .recorded()
            .filter(|_| decisions.request.old_object.is_some())
        else {
            return;
        };
        let image = |record: Option<&GroupRecord>| {
            record.and_then(|group| {
                group
                    .filled
                    .pieces
                    .iter()
                    .find(|piece| piece.at.0 == overlay::IMAGE)
                    .map(|p| p.value.clone())
            })
        };
        let changed = |(key, group): (GroupKey, &GroupRecord)| {
            let before = image(recorded.group(&key));
            before.is_some() && image(Some(group)) != before
        };
        if !recreated && !suspended && self.record.groups().any(changed) {
            self.warnings.push(
                "the image changes but running pods stay: new workers would run another Ray than the head; \
                 restart with `kubectl ray refresh cluster --restart`"
                    .to_owned(),
            );
        }
    }
}

fn write_record(object: &mut Value, mut record: Record) {
    if record.is_empty() {
        return;
    }
    let annotations = path::Path::of(&["metadata", "annotations"]);
    if path::get(object, &annotations.0, &Value::Null).is_none() {
        record.cluster.created.push(annotations.clone());
    }
    let text = serde_json::to_string(&record).unwrap_or_default();
    path::insert(
        object,
        &annotations.key(annotation::EXPANSION),
        Value::String(text),
    );
}

fn has_label(object: &Value, key: &str) -> bool {
    object
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(key))
        .is_some()
}
