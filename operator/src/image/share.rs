//! Templates of a namespace that want the same image at the same place: one builds it, the others take it. Pure.

use std::collections::HashMap;
use std::sync::Arc;

use kube::ResourceExt;
use ray_api::conditions;
use ray_api::image::Reference;
use ray_api::template::v1alpha1::ImageTemplate;

use super::attempt::Found;
use super::phase::Image;
use super::wanted::{Wanted, is_suspended};

/// Reason of the conditions of a template that waits for another one's build.
pub(super) const SHARED_BUILD: &str = "SharedBuild";
/// Reason of the conditions of a template between two attempts.
pub(super) const RETRYING: &str = "Retrying";

/// Another template that wants the same image at the same place.
#[derive(Clone, Debug)]
pub(super) struct Sibling {
    /// As it was last seen.
    pub(super) template: Arc<ImageTemplate>,
    /// Whether this operator has begun its build, which what was seen may not tell yet.
    pub(super) has_begun: bool,
}

/// Builds that this operator has begun: inputs hash by uid of the template.
#[derive(Debug, Default)]
pub(super) struct Begun(HashMap<String, String>);

impl Begun {
    /// Takes down that a template's build goes on.
    pub(super) fn note(&mut self, uid: &str, wanted: &Wanted) {
        self.0.insert(uid.to_owned(), wanted.inputs_hash.clone());
    }

    /// Takes down that none does.
    pub(super) fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    /// Whether that template's build of these inputs has begun.
    pub(super) fn has(&self, uid: &str, wanted: &Wanted) -> bool {
        self.0.get(uid) == Some(&wanted.inputs_hash)
    }

    /// Forgets templates that are gone.
    pub(super) fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        self.0.retain(|uid, _| exists(uid));
    }
}

/// What the other templates have of a wanted image.
pub(super) enum Elsewhere {
    /// One of them has it.
    Built(Image),
    /// The one of that name is to build it.
    Building(String),
    /// None of them will do.
    Nothing,
}

/// Looks among the other templates that want the same.
pub(super) fn elsewhere(template: &ImageTemplate, siblings: &[Sibling], wanted: &Wanted) -> Elsewhere {
    let image = siblings
        .iter()
        .find_map(|sibling| shared(&sibling.template, wanted));
    if let Some(image) = image {
        return Elsewhere::Built(image);
    }
    siblings
        .iter()
        .find(|sibling| is_building(sibling) || goes_first(&sibling.template, template))
        .map_or(Elsewhere::Nothing, |sibling| {
            Elsewhere::Building(sibling.template.name_any())
        })
}

/// The image of a template that wants the same and has it.
fn shared(sibling: &ImageTemplate, wanted: &Wanted) -> Option<Image> {
    let status = sibling.status.as_ref()?;
    let digest = status.digest.as_ref()?;
    let same = status.inputs_hash.as_ref() == Some(&wanted.inputs_hash)
        && status.image.as_ref() == Some(&Reference::pinned(&wanted.target.repository, digest))
        && status.tags.contains(&wanted.target.tag);
    same.then(|| Image {
        digest: digest.clone(),
        found: Found {
            ray: status.ray_version.clone(),
            python: status.python_version.clone(),
            ..Found::default()
        },
        unverified: None,
    })
}

/// Whether a build of what is wanted goes on, of whatever age its template is.
fn is_building(sibling: &Sibling) -> bool {
    let template = &sibling.template;
    let told = said(template, "Building").is_some_and(|reason| match reason {
        SHARED_BUILD => false,
        // Suspended between two attempts, nothing goes on.
        RETRYING => !is_suspended(template),
        _ => true,
    });
    !is_going(template) && (told || sibling.has_begun)
}

/// Where none has begun, the oldest does; a failed, suspended or deleted one holds nobody up.
fn goes_first(sibling: &ImageTemplate, template: &ImageTemplate) -> bool {
    let age = |template: &ImageTemplate| (template.creation_timestamp().map(|time| time.0), template.uid());
    let idle = said(sibling, "Failed").is_some() || is_suspended(sibling) || is_going(sibling);
    age(sibling) < age(template) && !idle
}

/// The reason of a condition that is true of the template as it is written now.
fn said<'a>(template: &'a ImageTemplate, condition: &str) -> Option<&'a str> {
    let status = template.status.as_ref()?;
    let list = status.conditions.as_deref().unwrap_or_default();
    let found = conditions::find(list, condition).filter(|it| it.status == "True")?;
    (status.observed_generation == template.metadata.generation).then_some(found.reason.as_str())
}

/// Whether a template is being deleted: its build goes with it.
fn is_going(template: &ImageTemplate) -> bool {
    template.metadata.deletion_timestamp.is_some()
}
