//! Templates of a namespace that want the same image at the same place: one builds it, the others take it. Pure.

use std::sync::Arc;

use kube::ResourceExt;
use ray_api::conditions;
use ray_api::image::Reference;
use ray_api::template::v1alpha1::ImageTemplate;

use super::attempt::Found;
use super::phase::Image;
use super::wanted::Wanted;

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
pub(super) fn elsewhere(
    template: &ImageTemplate,
    siblings: &[Arc<ImageTemplate>],
    wanted: &Wanted,
) -> Elsewhere {
    if let Some(image) = siblings.iter().find_map(|sibling| shared(sibling, wanted)) {
        return Elsewhere::Built(image);
    }
    siblings
        .iter()
        .find(|sibling| goes_first(sibling, template, wanted))
        .map_or(Elsewhere::Nothing, |sibling| {
            Elsewhere::Building(sibling.name_any())
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

/// The oldest builds; a failed or suspended one holds nobody up.
fn goes_first(sibling: &ImageTemplate, template: &ImageTemplate, wanted: &Wanted) -> bool {
    let age = |template: &ImageTemplate| (template.creation_timestamp().map(|time| time.0), template.uid());
    let status = sibling.status.as_ref();
    let given_up = status.is_some_and(|status| {
        let failed = conditions::is_true(status.conditions.as_deref().unwrap_or_default(), "Failed");
        failed
            && status
                .build
                .as_ref()
                .is_some_and(|build| build.inputs_hash == wanted.inputs_hash)
    });
    age(sibling) < age(template) && sibling.spec.suspend != Some(true) && !given_up
}
