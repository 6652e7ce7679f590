//! Where an image goes, and what its base says about the Ray inside.

use super::policy::Policy;
use super::{Invalid, Reference, Repository};
use crate::template::v1alpha1::ImageTemplateSpec;

/// Where a build is pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Repository, without tag.
    pub repository: Repository,
    /// Tag.
    pub tag: String,
    /// Secret to push with.
    pub push_secret: Option<String>,
}

impl Target {
    /// The target that a template names, completed by the platform team's defaults and the hash of its inputs.
    ///
    /// # Errors
    /// When neither names a repository, or the name does not parse.
    pub fn resolve(
        policy: &Policy,
        namespace: &str,
        name: &str,
        spec: &ImageTemplateSpec,
        inputs_hash: &str,
    ) -> Result<Self, Invalid> {
        Ok(Self {
            repository: repository(policy, namespace, name, spec)?,
            tag: spec.tag.clone().unwrap_or_else(|| inputs_hash.to_owned()),
            push_secret: spec
                .push_secret
                .clone()
                .or_else(|| policy.default_push_secret.clone()),
        })
    }

    /// The name to push under.
    #[must_use]
    pub fn destination(&self) -> String {
        format!("{}:{}", self.repository, self.tag)
    }
}

/// The repository of a template.
pub(super) fn repository(
    policy: &Policy,
    namespace: &str,
    name: &str,
    spec: &ImageTemplateSpec,
) -> Result<Repository, Invalid> {
    let invalid = |error| Invalid::new("spec.repository", error);
    match (&spec.repository, &policy.default_repository) {
        (Some(own), _) => own.parse().map_err(invalid),
        (None, Some(default)) => default
            .parse::<Repository>()
            .and_then(|repository| repository.join(&[namespace, name]))
            .map_err(invalid),
        (None, None) => Err(Invalid::new(
            "spec.repository",
            "say where to push, as registry.example/team/name: the platform team has set no --default-repository",
        )),
    }
}

/// The Ray version that an image of the Ray project carries in its tag, as `2.50.0` in `rayproject/ray:2.50.0-py312`.
#[must_use]
pub fn base_ray_version(base: &Reference) -> Option<String> {
    if super::default_user(base) != "ray" {
        return None;
    }
    let tag = base.tag.as_deref()?;
    let version = tag.split('-').next()?;
    let numbers: Vec<_> = version.split('.').collect();
    let all_numbers = numbers
        .iter()
        .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    (numbers.len() == 3 && all_numbers).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_scientist_needs_no_registry() {
        let policy = Policy {
            default_repository: Some("reg.example:5000/ray".to_owned()),
            default_push_secret: Some("push".to_owned()),
            ..Policy::default()
        };
        let spec = ImageTemplateSpec::default();
        let target = Target::resolve(&policy, "team-a", "torch2.9-gpu", &spec, "abc").unwrap();
        assert_eq!(
            target.destination(),
            "reg.example:5000/ray/team-a/torch2.9-gpu:abc"
        );
        assert_eq!(target.push_secret.as_deref(), Some("push"));
        let error = Target::resolve(&Policy::default(), "a", "b", &spec, "abc").unwrap_err();
        assert_eq!(error.field, "spec.repository");
    }

    #[test]
    fn the_tag_of_a_ray_image_names_its_ray() {
        for (image, version) in [
            ("rayproject/ray:2.50.0-py312-gpu", Some("2.50.0")),
            ("rayproject/ray-ml:2.9.0", Some("2.9.0")),
            ("rayproject/ray:nightly", None),
            ("python:3.12.1", None),
        ] {
            assert_eq!(
                base_ray_version(&image.parse().unwrap()).as_deref(),
                version,
                "{image}"
            );
        }
    }
}
