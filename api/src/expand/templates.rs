//! The templates that a caller has read, and what is still to read.
//!
//! Expansion does no I/O: callers loop over [`super::Decisions::needed`], read what it names, and put it in here.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::near;
use super::overlay;
use super::record::TemplateId;
use crate::conditions;
use crate::template::{ClusterComputeTemplate, ComputeTemplate, ImageTemplate};

/// Longest chain of `extends`, the template itself included.
pub const MAX_EXTENDS: usize = 8;

/// One object to read: a GET by kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needed {
    /// A ComputeTemplate.
    Compute {
        /// The RayCluster's namespace; no other is ever looked at.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A ClusterComputeTemplate.
    ClusterCompute {
        /// Its name.
        name: String,
    },
    /// An ImageTemplate.
    Image {
        /// The RayCluster's namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl Needed {
    /// Kind of the object.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Compute { .. } => "ComputeTemplate",
            Self::ClusterCompute { .. } => "ClusterComputeTemplate",
            Self::Image { .. } => "ImageTemplate",
        }
    }

    /// Name of the object.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Compute { name, .. } | Self::ClusterCompute { name } | Self::Image { name, .. } => name,
        }
    }

    /// Its namespace, unless it is cluster-wide.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Compute { namespace, .. } | Self::Image { namespace, .. } => Some(namespace),
            Self::ClusterCompute { .. } => None,
        }
    }

    fn id(&self, metadata: &ObjectMeta) -> TemplateId {
        TemplateId {
            uid: metadata.uid.clone(),
            generation: metadata.generation,
            ..self.pending_id()
        }
    }

    pub(super) fn pending_id(&self) -> TemplateId {
        TemplateId {
            kind: self.kind().to_owned(),
            namespace: self.namespace().map(str::to_owned),
            name: self.name().to_owned(),
            uid: None,
            generation: None,
        }
    }
}

impl fmt::Display for Needed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace() {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind(), self.name()),
            None => write!(f, "{} {}", self.kind(), self.name()),
        }
    }
}

/// What expansion wants to know of a compute template.
#[derive(Clone, Debug, PartialEq)]
pub struct Compute {
    pub(super) id: TemplateId,
    pub(super) spec: Value,
}

/// What expansion wants to know of an ImageTemplate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub(super) id: TemplateId,
    pub(super) image: Option<String>,
    pub(super) ray_version: Option<String>,
    pub(super) run_pull_secrets: Vec<String>,
    /// Why there is no image yet, for warnings.
    pub(super) state: String,
}

impl Compute {
    /// The GET that reads it.
    #[must_use]
    pub fn needed(&self) -> Needed {
        let name = self.id.name.clone();
        match self.id.namespace.clone() {
            Some(namespace) => Needed::Compute { namespace, name },
            None => Needed::ClusterCompute { name },
        }
    }
}

impl From<&ComputeTemplate> for Compute {
    fn from(template: &ComputeTemplate) -> Self {
        let metadata = &template.metadata;
        let needed = Needed::Compute {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        };
        let spec = serde_json::to_value(&template.spec).unwrap_or_default();
        Self {
            id: needed.id(metadata),
            spec,
        }
    }
}

impl From<&ClusterComputeTemplate> for Compute {
    fn from(template: &ClusterComputeTemplate) -> Self {
        let metadata = &template.metadata;
        let name = metadata.name.clone().unwrap_or_default();
        let spec = serde_json::to_value(&template.spec).unwrap_or_default();
        Self {
            id: Needed::ClusterCompute { name }.id(metadata),
            spec,
        }
    }
}

impl Image {
    /// Whether there is an image to use.
    #[must_use]
    pub fn is_built(&self) -> bool {
        self.image.is_some()
    }
}

impl From<&ImageTemplate> for Image {
    fn from(template: &ImageTemplate) -> Self {
        let metadata = &template.metadata;
        let needed = Needed::Image {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        };
        let status = template.status.clone().unwrap_or_default();
        let ready = status
            .conditions
            .as_deref()
            .and_then(|all| conditions::find(all, "Ready"));
        Self {
            id: needed.id(metadata),
            image: status.image,
            ray_version: status.ray_version,
            run_pull_secrets: template.spec.run_pull_secrets.clone(),
            state: match (status.failure, ready) {
                (Some(failure), _) => format!("its build failed: {}", failure.message),
                (None, Some(ready)) => format!("it is not ready: {}", ready.reason),
                (None, None) => "it has not been built yet".to_owned(),
            },
        }
    }
}

/// What a caller has read so far; absence is an answer too.
#[derive(Clone, Debug, Default)]
pub struct Templates {
    compute: BTreeMap<Needed, Option<Arc<Compute>>>,
    image: BTreeMap<Needed, Option<Arc<Image>>>,
    known: Vec<Needed>,
}

/// A compute template with its ancestors, as far as they are known.
pub(super) enum Resolution<'a> {
    /// The template first, then its parent, and so on.
    Found(Vec<&'a Compute>),
    /// This must be read first.
    Needs(Needed),
    /// No template of that name exists.
    Missing,
    /// `extends` names a template that does not exist.
    Orphan(String),
    /// `extends` leads in a circle, or too deep.
    Broken(String),
}

impl Templates {
    /// The answer to a need for a ComputeTemplate or ClusterComputeTemplate.
    pub fn insert_compute(&mut self, needed: Needed, found: Option<Compute>) {
        self.share_compute(needed, found.map(Arc::new));
    }

    /// The same, of a template that a cache holds.
    pub fn share_compute(&mut self, needed: Needed, found: Option<Arc<Compute>>) {
        self.compute.insert(needed, found);
    }

    /// The answer to a need for an ImageTemplate.
    pub fn insert_image(&mut self, needed: Needed, found: Option<Image>) {
        self.share_image(needed, found.map(Arc::new));
    }

    /// The same, of a template that a cache holds.
    pub fn share_image(&mut self, needed: Needed, found: Option<Arc<Image>>) {
        self.image.insert(needed, found);
    }

    /// Names of templates that exist, for "did you mean".
    pub fn suggest_from(&mut self, known: impl IntoIterator<Item = Needed>) {
        self.known.extend(known);
    }

    /// Sentence that offers names like `needed`'s, or nothing.
    pub(super) fn did_you_mean(&self, needed: &Needed) -> String {
        let candidates = self.known.iter().filter(|known| match (needed, known) {
            (Needed::Image { namespace, .. }, Needed::Image { namespace: other, .. }) => namespace == other,
            (Needed::Compute { namespace, .. }, Needed::Compute { namespace: other, .. }) => {
                namespace == other
            }
            (Needed::Compute { .. }, Needed::ClusterCompute { .. }) => true,
            _ => false,
        });
        let near = near::names(needed.name(), candidates.map(Needed::name));
        match near.as_slice() {
            [] => String::new(),
            near => format!("; did you mean `{}`?", near.join("` or `")),
        }
    }

    /// None until [`Templates::insert_image`] had the answer.
    pub(super) fn image(&self, needed: &Needed) -> Option<Option<&Image>> {
        self.image.get(needed).map(Option::as_deref)
    }

    /// Follows `extends` from a reference in `namespace`; the namespace is looked at before the whole cluster.
    pub(super) fn resolve(&self, namespace: &str, name: &str) -> Resolution<'_> {
        let first = match self.look_up(Some(namespace), name) {
            Ok(Some(found)) => found,
            Ok(None) => return Resolution::Missing,
            Err(needed) => return Resolution::Needs(needed),
        };
        self.ancestors(first)
    }

    /// Follows `extends` from a template.
    pub(super) fn ancestors<'a>(&'a self, first: &'a Compute) -> Resolution<'a> {
        let mut chain = vec![first];
        let mut child = first;
        while let Some(parent) = child.spec.get("extends").and_then(Value::as_str) {
            let child_name = &child.id.name;
            let next = match self.look_up(child.id.namespace.as_deref(), parent) {
                Ok(Some(found)) => found,
                Ok(None) => {
                    return Resolution::Orphan(format!(
                        "{child_name} extends {parent}, which does not exist"
                    ));
                }
                Err(needed) => return Resolution::Needs(needed),
            };
            if chain
                .iter()
                .any(|seen| seen.id.kind == next.id.kind && seen.id.name == next.id.name)
            {
                return Resolution::Broken(format!("{child_name} extends {parent}, which leads back to it"));
            }
            if chain.len() == MAX_EXTENDS {
                return Resolution::Broken(format!(
                    "the chain of `extends` is deeper than {MAX_EXTENDS} at {child_name}"
                ));
            }
            chain.push(next);
            child = next;
        }
        Resolution::Found(chain)
    }

    /// A template by name, or what must be read to tell. Cluster-wide templates see only cluster-wide ones.
    pub(super) fn look_up(&self, namespace: Option<&str>, name: &str) -> Result<Option<&Compute>, Needed> {
        if let Some(namespace) = namespace {
            let needed = Needed::Compute {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            };
            match self.compute.get(&needed) {
                None => return Err(needed),
                Some(Some(found)) => return Ok(Some(found)),
                Some(None) => {}
            }
        }
        let needed = Needed::ClusterCompute {
            name: name.to_owned(),
        };
        self.compute.get(&needed).map(Option::as_deref).ok_or(needed)
    }
}

/// Whether a compute template's `extends` holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extends {
    /// It does, or there is none.
    Sound,
    /// This must be read to tell.
    Needs(Needed),
    /// An ancestor does not exist (yet): a condition of the template, no reason to refuse it.
    Orphan(String),
    /// A circle, or too deep: refused.
    Broken(String),
}

/// Checks the chain of `extends` above a template.
#[must_use]
pub fn check_extends(template: &Compute, templates: &Templates) -> Extends {
    match templates.ancestors(template) {
        Resolution::Found(_) => Extends::Sound,
        Resolution::Needs(needed) => Extends::Needs(needed),
        Resolution::Missing => Extends::Orphan("it does not exist".to_owned()),
        Resolution::Orphan(why) => Extends::Orphan(why),
        Resolution::Broken(why) => Extends::Broken(why),
    }
}

/// One spec from a chain: a child's value beats its parents', by the units that expansion fills.
pub(super) fn flatten<'a>(chain: &[&'a Compute]) -> Cow<'a, Value> {
    let inherit = |parent: Cow<'a, Value>, child: &&Compute| {
        Cow::Owned(overlay::inherit(parent.into_owned(), &child.spec))
    };
    let mut chain = chain.iter().rev();
    let root = chain
        .next()
        .map_or_else(Cow::default, |root| Cow::Borrowed(&root.spec));
    chain.fold(root, inherit)
}
