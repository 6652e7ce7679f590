//! What the platform team allows. The webhook refuses what breaks it; the operator builds nothing that does.

use super::target::repository;
use super::validate::index_url;
use super::{DOCKER_HUB, Invalid, Reference, Repository};
use crate::template::v1alpha1::ImageTemplateSpec;

/// Stands for the template's namespace in an allowed repository.
const NAMESPACE: &str = "{namespace}";

/// The platform team's rules: flags of the same names on webhook and operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Images without a repository go below this, as `<default>/<namespace>/<name>`.
    pub default_repository: Option<String>,
    /// Secret, in the template's namespace, to push with where a template names none.
    pub default_push_secret: Option<String>,
    /// Prefixes that images may be pushed below; `{namespace}` stands for the template's namespace.
    ///
    /// Empty: `<default-repository>/{namespace}`, or anywhere where there is no default repository.
    pub allowed_repositories: Vec<String>,
    /// Prefixes of images to build on, each with or without a tag or digest. Empty: all.
    pub allowed_base_images: Vec<String>,
    /// Prefixes of package indexes. Empty: every one over https.
    pub allowed_indexes: Vec<String>,
    /// Whether `spec.customCommands` may be used.
    pub allow_custom_commands: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            default_repository: None,
            default_push_secret: None,
            allowed_repositories: Vec::new(),
            allowed_base_images: Vec::new(),
            allowed_indexes: Vec::new(),
            allow_custom_commands: true,
        }
    }
}

impl Policy {
    /// Every field of a template that breaks a rule. Fields that do not parse are [`super::validate`]'s to name.
    #[must_use]
    pub fn check(&self, namespace: &str, name: &str, spec: &ImageTemplateSpec) -> Vec<Invalid> {
        let mut denied = Vec::new();
        match (repository(self, namespace, name, spec), &spec.repository) {
            (Ok(own), Some(_)) => denied.extend(self.check_repository("spec.repository", &own, namespace)),
            // That there is no repository at all only the policy knows; one that does not parse is validate's.
            (Err(problem), None) => denied.push(problem),
            _ => {}
        }
        let cache = spec.cache.as_ref().filter(|cache| cache.enabled == Some(true));
        if let Some(Ok(repository)) = cache
            .and_then(|cache| cache.repository.as_deref())
            .map(str::parse)
        {
            denied.extend(self.check_repository("spec.cache.repository", &repository, namespace));
        }
        denied.extend(self.check_base(spec));
        denied.extend(self.check_indexes(spec));
        denied.extend(self.check_secrets(spec));
        if !self.allow_custom_commands && !spec.custom_commands.is_empty() {
            let message =
                "the platform team has switched custom commands off (--allow-custom-commands=false)";
            denied.push(Invalid::new("spec.customCommands", message));
        }
        denied
    }

    fn check_repository(&self, field: &str, repository: &Repository, namespace: &str) -> Option<Invalid> {
        let allowed: Vec<String> = match (&self.default_repository, self.allowed_repositories.is_empty()) {
            (Some(default), true) => vec![prefix(&format!("{}/{namespace}", default.trim_end_matches('/')))],
            (None, true) => return None,
            _ => self
                .allowed_repositories
                .iter()
                .map(|one| prefix(&one.replace(NAMESPACE, namespace)))
                .collect(),
        };
        let passes = allowed.iter().any(|prefix| repository.is_within(prefix));
        (!passes).then(|| {
            Invalid::new(
                field,
                format!("{repository} is not allowed: push below {}", allowed.join(" or ")),
            )
        })
    }

    fn check_base(&self, spec: &ImageTemplateSpec) -> Option<Invalid> {
        let base: Reference = spec.base_image.parse().ok()?;
        let passes = self.allowed_base_images.is_empty()
            || self
                .allowed_base_images
                .iter()
                .any(|pattern| matches_image(pattern, &base));
        (!passes).then(|| {
            let allowed = self.allowed_base_images.join(" or ");
            Invalid::new(
                "spec.baseImage",
                format!("{base} is not allowed: build on {allowed}"),
            )
        })
    }

    fn check_indexes(&self, spec: &ImageTemplateSpec) -> Vec<Invalid> {
        let Some(pip) = &spec.pip else {
            return Vec::new();
        };
        let first = pip
            .index_url
            .iter()
            .map(|url| ("spec.pip.indexUrl".to_owned(), url));
        let more = pip.extra_index_urls.iter().enumerate();
        first
            .chain(more.map(|(index, url)| (format!("spec.pip.extraIndexUrls[{index}]"), url)))
            .filter_map(|(field, text)| Some((field, index_url(text).ok()?)))
            .filter_map(|(field, url)| {
                let passes = if self.allowed_indexes.is_empty() {
                    url.scheme() == "https"
                } else {
                    self.allowed_indexes
                        .iter()
                        .any(|allowed| is_below(url.as_str(), allowed))
                };
                let allowed = match self.allowed_indexes.as_slice() {
                    [] => "an index over https".to_owned(),
                    allowed => allowed.join(" or "),
                };
                (!passes).then(|| Invalid::new(field, format!("{url} is not allowed: use {allowed}")))
            })
            .collect()
    }

    /// What a build's commands can read must never be the credential that pushes everybody's images.
    fn check_secrets(&self, spec: &ImageTemplateSpec) -> Vec<Invalid> {
        let Some(default) = self.default_push_secret.as_deref() else {
            return Vec::new();
        };
        let pulls = spec.pull_secrets.iter().enumerate();
        let pulls = pulls.map(|(index, name)| (format!("spec.pullSecrets[{index}]"), name));
        let cache = spec.cache.iter().filter_map(|cache| cache.push_secret.as_ref());
        let pip = spec.pip.iter().filter_map(|pip| pip.credentials_secret.as_ref());
        pulls
            .chain(cache.map(|name| ("spec.cache.pushSecret".to_owned(), name)))
            .chain(pip.map(|name| ("spec.pip.credentialsSecret".to_owned(), name)))
            .filter(|(_, name)| *name == default)
            .map(|(field, name)| {
                Invalid::new(
                    field,
                    format!(
                        "{name} is the platform team's push secret: the build's commands could read it here"
                    ),
                )
            })
            .collect()
    }
}

/// A pattern with its registry, as [`Repository`] displays names: `rayproject` is `docker.io/rayproject`.
fn prefix(pattern: &str) -> String {
    let pattern = pattern.trim_end_matches('*').trim_end_matches('/');
    let first = pattern.split('/').next().unwrap_or_default();
    if first.contains(['.', ':']) || first == "localhost" {
        pattern.to_owned()
    } else {
        format!("{DOCKER_HUB}/{pattern}")
    }
}

fn matches_image(pattern: &str, image: &Reference) -> bool {
    let last = pattern.rsplit('/').next().unwrap_or_default();
    if !last.contains([':', '@']) || !pattern.contains('/') && pattern.contains(['.', ':']) {
        return pattern == "*" || image.repository.is_within(&prefix(pattern));
    }
    pattern.parse::<Reference>().is_ok_and(|exact| {
        exact.repository == image.repository
            && exact
                .digest
                .is_none_or(|digest| image.digest.as_deref() == Some(digest.as_str()))
            && exact
                .tag
                .is_none_or(|tag| image.tag.as_deref() == Some(tag.as_str()))
    })
}

fn is_below(url: &str, prefix: &str) -> bool {
    url.trim_end_matches('/')
        .strip_prefix(prefix.trim_end_matches('/'))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::v1alpha1::PipOptions;

    fn fields(policy: &Policy, spec: &ImageTemplateSpec) -> Vec<String> {
        policy
            .check("team-a", "torch", spec)
            .into_iter()
            .map(|denied| denied.field)
            .collect()
    }

    fn on(base: &str) -> ImageTemplateSpec {
        ImageTemplateSpec {
            base_image: base.to_owned(),
            repository: Some("reg.example/ray/team-a/torch".to_owned()),
            ..ImageTemplateSpec::default()
        }
    }

    #[test]
    fn a_namespace_pushes_below_itself_only() {
        let policy = Policy {
            default_repository: Some("reg.example/ray".to_owned()),
            ..Policy::default()
        };
        let mut spec = on("ray:1");
        assert!(fields(&policy, &spec).is_empty());
        for elsewhere in [
            "reg.example/ray/team-b/torch",
            "reg.example/ray/team-ab",
            "other.example/ray/team-a/x",
        ] {
            spec.repository = Some(elsewhere.to_owned());
            assert_eq!(fields(&policy, &spec), ["spec.repository"], "{elsewhere}");
        }
        let policy = Policy {
            allowed_repositories: vec!["other.example/{namespace}".to_owned()],
            ..policy
        };
        spec.repository = Some("other.example/team-a/x".to_owned());
        assert!(fields(&policy, &spec).is_empty());
        // The default itself is always allowed, or nobody could use it.
        spec.repository = None;
        assert!(fields(&policy, &spec).is_empty());
    }

    #[test]
    fn base_images_match_by_component_tag_or_digest() {
        let policy = |pattern: &str| Policy {
            allowed_base_images: vec![pattern.to_owned()],
            ..Policy::default()
        };
        for (pattern, base, passes) in [
            ("rayproject/ray", "rayproject/ray:2.9.0", true),
            ("rayproject/ray", "docker.io/rayproject/ray:2.9.0", true),
            ("rayproject/ray", "rayproject/ray-ml:2.9.0", false),
            ("rayproject/*", "rayproject/ray-ml:2.9.0", true),
            ("rayproject/ray:2.9.0", "rayproject/ray:2.9.1", false),
            ("rayproject/ray:2.9.0", "rayproject/ray:2.9.0", true),
            ("reg.example:5000", "reg.example:5000/a/b:1", true),
            ("reg.example", "reg.example.evil/a/b:1", false),
            ("*", "anything/at:all", true),
        ] {
            assert_eq!(
                fields(&policy(pattern), &on(base)).is_empty(),
                passes,
                "{pattern} and {base}"
            );
        }
    }

    #[test]
    fn indexes_commands_and_the_push_secret() {
        let policy = Policy {
            default_push_secret: Some("push".to_owned()),
            allow_custom_commands: false,
            ..Policy::default()
        };
        let spec = ImageTemplateSpec {
            pip: Some(PipOptions {
                index_url: Some("http://index.example/simple".to_owned()),
                ..PipOptions::default()
            }),
            custom_commands: vec!["id".to_owned()],
            pull_secrets: vec!["mine".to_owned(), "push".to_owned()],
            ..on("ray:1")
        };
        assert_eq!(
            fields(&policy, &spec),
            ["spec.pip.indexUrl", "spec.pullSecrets[1]", "spec.customCommands"]
        );
        let policy = Policy {
            allowed_indexes: vec!["http://index.example/".to_owned()],
            ..Policy::default()
        };
        assert!(fields(&policy, &spec).is_empty());
    }
}
