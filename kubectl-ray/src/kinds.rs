//! The kinds that verbs act on, and the words by which people call them.

use kube::api::ApiResource;
use kube::core::GroupVersionKind;

/// A kind with its API resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    RayCluster,
    RayJob,
    RayService,
    ImageTemplate,
    ComputeTemplate,
    ClusterComputeTemplate,
}

impl Kind {
    /// Those that run on a Ray cluster, or are one.
    pub(crate) const WITH_CLUSTER: [Self; 3] = [Self::RayCluster, Self::RayJob, Self::RayService];

    /// Every kind.
    pub(crate) const ALL: [Self; 6] = [
        Self::RayCluster,
        Self::RayJob,
        Self::RayService,
        Self::ImageTemplate,
        Self::ComputeTemplate,
        Self::ClusterComputeTemplate,
    ];

    /// The kind that a word means: singular, plural, short name or with its group.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        let word = word.to_lowercase();
        let name = word.split('.').next().unwrap_or_default();
        let singular = name.strip_suffix('s').unwrap_or(name).replace('-', "");
        Self::ALL
            .into_iter()
            .find(|kind| kind.words().contains(&singular.as_str()))
    }

    /// All words, for help and errors.
    pub(crate) fn names() -> String {
        let names: Vec<_> = Self::ALL.into_iter().map(Self::singular).collect();
        names.join(", ")
    }

    fn words(self) -> &'static [&'static str] {
        match self {
            Self::RayCluster => &["raycluster", "cluster"],
            Self::RayJob => &["rayjob", "job"],
            Self::RayService => &["rayservice", "service"],
            Self::ImageTemplate => &["imagetemplate", "it"],
            Self::ComputeTemplate => &["computetemplate", "ct"],
            Self::ClusterComputeTemplate => &["clustercomputetemplate", "cct"],
        }
    }

    /// Lower-case singular, as in `raycluster`.
    pub(crate) fn singular(self) -> &'static str {
        self.words().first().copied().unwrap_or_default()
    }

    /// CamelCase name.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::RayCluster => "RayCluster",
            Self::RayJob => "RayJob",
            Self::RayService => "RayService",
            Self::ImageTemplate => "ImageTemplate",
            Self::ComputeTemplate => "ComputeTemplate",
            Self::ClusterComputeTemplate => "ClusterComputeTemplate",
        }
    }

    /// Whether objects live in a namespace.
    pub(crate) fn is_namespaced(self) -> bool {
        self != Self::ClusterComputeTemplate
    }

    /// Group, version and plural.
    pub(crate) fn resource(self) -> ApiResource {
        let (group, version) = match self {
            Self::RayCluster | Self::RayJob | Self::RayService => (ray_api::meta::RAY_GROUP, "v1"),
            _ => (ray_api::meta::TEMPLATES_GROUP, "v1alpha1"),
        };
        let plural = format!("{}s", self.singular());
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, self.kind()), &plural)
    }

    /// `raycluster.ray.io/demo`, as kubectl names objects.
    pub(crate) fn object_name(self, name: &str) -> String {
        format!("{}.{}/{name}", self.singular(), self.resource().group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_people_find_their_kind() {
        for (word, kind) in [
            ("cluster", Kind::RayCluster),
            ("rayclusters.ray.io", Kind::RayCluster),
            ("image-template", Kind::ImageTemplate),
            ("it", Kind::ImageTemplate),
            ("ComputeTemplates", Kind::ComputeTemplate),
            ("cct", Kind::ClusterComputeTemplate),
        ] {
            assert_eq!(Kind::parse(word), Some(kind), "{word}");
        }
        assert_eq!(Kind::parse("pod"), None);
        assert_eq!(Kind::RayCluster.object_name("a"), "raycluster.ray.io/a");
    }
}
