//! Which references are looked up, and which keep the values they were given.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::group::{self, GroupKey, Reference, reference};
use super::overlay;
use super::path::{self, Path};
use super::record::{GroupRecord, Origin, Piece, Record, TemplateId};
use super::templates::{Needed, Resolution, Templates, flatten};
use super::{Denial, Request, gate, has_label};
use crate::meta::{annotation, label};

/// Where a group's values of one origin come from.
enum Source {
    /// No reference: what was filled for an earlier one is taken back.
    Nothing,
    /// The reference is the one that was expanded: its values stay.
    Pinned(Reference),
    /// There is no reference in the old object either, yet values are recorded: something pruned it.
    Kept,
    /// The cluster came before the webhook, with that reference and without its values, and may run.
    Unexpanded(Reference),
    /// New, changed, refreshed, or waiting for an image.
    Fresh(Reference),
}

impl Source {
    fn reference(&self) -> Option<&Reference> {
        match self {
            Self::Nothing | Self::Kept => None,
            Self::Pinned(reference) | Self::Unexpanded(reference) | Self::Fresh(reference) => Some(reference),
        }
    }
}

/// What a request means for each group: read from it once, whatever the templates are.
pub struct Decisions<'a> {
    pub(super) request: Request<'a>,
    /// By the old object, the only witness on update: who writes could write a record, too.
    recorded: Option<Record>,
    /// By the object itself, where that is another one.
    carried: Option<Record>,
    refreshed: bool,
    groups: Vec<Sources>,
}

/// Where a group's values come from.
struct Sources {
    key: GroupKey,
    compute: Source,
    image: Source,
}

impl Sources {
    fn each(&self) -> [(Origin, &Source); 2] {
        [(Origin::Compute, &self.compute), (Origin::Image, &self.image)]
    }
}

/// What to fill into one group, and what to say about it.
pub(super) struct Group {
    pub(super) key: GroupKey,
    pub(super) compute: Option<TemplateId>,
    pub(super) extends: Vec<TemplateId>,
    pub(super) image: Option<TemplateId>,
    pub(super) pieces: Vec<Piece>,
    pub(super) ray_version: Option<Piece>,
    pub(super) wait: Option<gate::Wait>,
    pub(super) warnings: Vec<String>,
    pub(super) denials: Vec<Denial>,
    /// A template was looked up, so that its user hears what became of it.
    pub(super) is_fresh: bool,
    pub(super) hosts_may_be_default: bool,
}

impl<'a> Decisions<'a> {
    /// Reads a request.
    #[must_use]
    pub fn of(request: Request<'a>) -> Self {
        let witness = request.old_object.unwrap_or(request.object);
        let carries_another = Record::text(request.object) != Record::text(witness);
        let refresh = |object: &'a Value| {
            object
                .get("metadata")?
                .get("annotations")?
                .get(annotation::REFRESH)
        };
        let asked = refresh(request.object);
        let mut decisions = Self {
            request,
            recorded: Record::of(witness),
            carried: carries_another.then(|| Record::of(request.object)).flatten(),
            refreshed: asked.is_some() && request.old_object.is_some_and(|old| refresh(old) != asked),
            groups: Vec::new(),
        };
        let groups = group::keys(request.object).into_iter().map(|key| Sources {
            compute: decisions.source(&key, Origin::Compute),
            image: decisions.source(&key, Origin::Image),
            key,
        });
        decisions.groups = groups.collect();
        decisions
    }

    /// What the last expansion did.
    pub(super) fn recorded(&self) -> Option<&Record> {
        self.recorded.as_ref()
    }

    /// All that earlier expansions may have left in the object: a record of its own matters after a re-invocation,
    /// and for a stale copy that is put back.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.carried.iter().chain(&self.recorded)
    }

    /// Whether templates must be read from the API server, not from a cache: the cluster waits for an image, or its
    /// user asks for the newest.
    #[must_use]
    pub fn wants_live(&self) -> bool {
        let objects = [Some(self.request.object), self.request.old_object];
        let mut objects = objects.into_iter().flatten();
        self.refreshed || objects.any(|object| has_label(object, label::GATED))
    }

    fn recorded_group(&self, key: &GroupKey) -> Option<&GroupRecord> {
        self.recorded.as_ref().and_then(|record| record.group(key))
    }

    fn source(&self, key: &GroupKey, origin: Origin) -> Source {
        let recorded = self.recorded_group(key).and_then(|group| group.template(origin));
        match (reference(self.request.object, key, origin), recorded) {
            (None, None) => Source::Nothing,
            (None, Some(_)) => {
                let old = self.request.old_object;
                match old.and_then(|old| reference(old, key, origin)) {
                    Some(_) => Source::Nothing,
                    None => Source::Kept,
                }
            }
            (Some(reference), Some(id)) if self.is_settled(&reference, id) && !self.refreshed => {
                Source::Pinned(reference)
            }
            (Some(reference), None) if !self.refreshed && self.ran_without(key, origin, &reference) => {
                Source::Unexpanded(reference)
            }
            (Some(reference), _) => Source::Fresh(reference),
        }
    }

    /// Whether the group may have pods from a time at which that reference meant nothing.
    fn ran_without(&self, key: &GroupKey, origin: Origin, reference: &Reference) -> bool {
        let old = self.request.old_object;
        old.is_some_and(|old| group::get(old, key).is_some() && group::may_run(old))
            && self.had(key, origin, reference)
    }

    /// Whether that reference applied to the group before.
    fn had(&self, key: &GroupKey, origin: Origin, now: &Reference) -> bool {
        let old = self.request.old_object;
        old.and_then(|old| reference(old, key, origin))
            .is_some_and(|old| old.name == now.name)
    }

    /// Whether the recorded template is the one referred to, with its values taken.
    fn is_settled(&self, reference: &Reference, id: &TemplateId) -> bool {
        let near = id
            .namespace
            .as_deref()
            .is_none_or(|namespace| namespace == self.request.namespace);
        id.name == reference.name && near && !id.is_pending()
    }

    fn sources(&self) -> impl Iterator<Item = (&GroupKey, Origin, &Source)> {
        let groups = self.groups.iter();
        groups.flat_map(|group| group.each().map(|(origin, source)| (&group.key, origin, source)))
    }

    fn image_of(&self, reference: &Reference) -> Needed {
        Needed::Image {
            namespace: self.request.namespace.to_owned(),
            name: reference.name.clone(),
        }
    }

    /// What must be read before [`Decisions::expand`], beyond what `templates` has.
    ///
    /// Ask until it is empty: a template may extend another, which only reading it tells.
    #[must_use]
    pub fn needed(&self, templates: &Templates) -> Vec<Needed> {
        let needed = self.sources().filter_map(|(_, origin, source)| {
            let Source::Fresh(reference) = source else {
                return None;
            };
            match origin {
                Origin::Image => {
                    let needed = self.image_of(reference);
                    templates.image(&needed).is_none().then_some(needed)
                }
                Origin::Compute => match templates.resolve(self.request.namespace, &reference.name) {
                    Resolution::Needs(needed) => Some(needed),
                    _ => None,
                },
            }
        });
        in_order(needed.collect())
    }

    /// Templates that the request newly refers to (not those it had, nor the ancestors of any): what one must be
    /// allowed to use. By the references alone: a record's word is enough to keep values, but not for this.
    ///
    /// # Errors
    /// What must be read first to tell.
    pub fn added(&self, templates: &Templates) -> Result<Vec<Needed>, Vec<Needed>> {
        let namespace = self.request.namespace;
        let (mut added, mut unread) = (Vec::new(), Vec::new());
        for (key, origin, source) in self.sources() {
            let Some(reference) = source
                .reference()
                .filter(|reference| !self.had(key, origin, reference))
            else {
                continue;
            };
            if origin == Origin::Image {
                added.push(self.image_of(reference));
                continue;
            }
            match templates.look_up(Some(namespace), &reference.name) {
                Ok(Some(found)) => added.push(found.needed()),
                // What is not there yet may be there at the next refresh.
                Ok(None) => added.push(Needed::Compute {
                    namespace: namespace.to_owned(),
                    name: reference.name.clone(),
                }),
                Err(needed) => unread.push(needed),
            }
        }
        if unread.is_empty() {
            Ok(in_order(added))
        } else {
            Err(in_order(unread))
        }
    }

    /// What to fill into each group; `bare` is the object as the user wrote it.
    pub(super) fn groups(&self, templates: &Templates, bare: &Value) -> Vec<Group> {
        let decide = |sources| Decision::new(self, templates, sources).decide(sources, bare);
        self.groups.iter().map(decide).collect()
    }
}

fn in_order(mut needed: Vec<Needed>) -> Vec<Needed> {
    needed.sort();
    needed.dedup();
    needed
}

/// Decides one group.
struct Decision<'a> {
    all: &'a Decisions<'a>,
    templates: &'a Templates,
    recorded: Cow<'a, GroupRecord>,
    group: Group,
}

impl<'a> Decision<'a> {
    fn new(all: &'a Decisions<'a>, templates: &'a Templates, sources: &Sources) -> Self {
        let recorded = all
            .recorded_group(&sources.key)
            .map_or_else(|| Cow::Owned(GroupRecord::default()), Cow::Borrowed);
        let group = Group {
            key: sources.key.clone(),
            compute: None,
            extends: Vec::new(),
            image: None,
            pieces: Vec::new(),
            ray_version: None,
            wait: None,
            warnings: Vec::new(),
            denials: Vec::new(),
            is_fresh: false,
            hosts_may_be_default: sources
                .compute
                .reference()
                .is_none_or(|reference| reference.by_annotation),
        };
        Self {
            all,
            templates,
            recorded,
            group,
        }
    }

    fn decide(mut self, sources: &Sources, bare: &Value) -> Group {
        for (origin, source) in sources.each() {
            match (source, origin) {
                (Source::Nothing, _) => {}
                (Source::Pinned(_), _) => self.keep(origin),
                (Source::Kept, _) => {
                    self.keep(origin);
                    let warning = format!(
                        "{}: the template reference is gone, maybe pruned by another RayCluster CRD; what it filled in stays",
                        group::group_field(bare, &self.group.key)
                    );
                    self.group.warnings.push(warning);
                }
                (Source::Unexpanded(reference), _) => {
                    let warning = format!(
                        "{}: the cluster runs without what {} gives, and that is not changed by the way: \
                         `kubectl ray refresh cluster`, or a new value of templates.ray.io/refresh, fills it in",
                        reference.field, reference.name
                    );
                    self.group.warnings.push(warning);
                }
                (Source::Fresh(reference), Origin::Compute) => self.look_up_compute(reference),
                (Source::Fresh(reference), Origin::Image) => self.look_up_image(reference, bare),
            }
        }
        self.group
    }

    /// The recorded template and its values.
    fn keep(&mut self, origin: Origin) {
        let template = self.recorded.template(origin).cloned();
        match origin {
            Origin::Compute => {
                self.group.compute = template;
                self.group.extends.clone_from(&self.recorded.extends);
            }
            Origin::Image => self.group.image = template,
        }
        self.keep_values(origin);
    }

    fn keep_values(&mut self, origin: Origin) {
        self.group
            .pieces
            .extend(self.recorded.pieces_from(origin).cloned());
        if origin == Origin::Image {
            let recorded = self.all.recorded.as_ref();
            let mut pieces = recorded.into_iter().flat_map(|record| &record.cluster.pieces);
            self.group.ray_version = pieces.find(|piece| piece.at == ray_version()).cloned();
        }
    }

    fn look_up_compute(&mut self, reference: &Reference) {
        let namespace = self.all.request.namespace;
        let needed = Needed::Compute {
            namespace: namespace.to_owned(),
            name: reference.name.clone(),
        };
        let problem = match self.templates.resolve(namespace, &reference.name) {
            Resolution::Found(chain) => {
                let spec = flatten(&chain);
                let (pieces, unused) = overlay::compute(&spec, &self.group.key);
                self.group.pieces.extend(pieces);
                let mut ids = chain.iter().map(|found| found.id.clone());
                self.group.compute = ids.next();
                self.group.extends = ids.collect();
                self.group.is_fresh = true;
                for field in unused {
                    let warning = format!(
                        "{}: {field} of the template means nothing in {}",
                        reference.field, self.group.key
                    );
                    self.group.warnings.push(warning);
                }
                return;
            }
            Resolution::Orphan(why) | Resolution::Broken(why) => format!("{needed} cannot be used: {why}"),
            Resolution::Missing | Resolution::Needs(_) => format!(
                "{needed} not found, and no ClusterComputeTemplate of that name{}",
                self.templates.did_you_mean(&needed)
            ),
        };
        if !self.all.request.dry_run {
            self.group.denials.push(Denial {
                field: reference.field.clone(),
                message: problem,
            });
            return;
        }
        self.group.warnings.push(format!(
            "{}: {problem}; nothing is filled in from it in this dry run",
            reference.field
        ));
        if self
            .recorded
            .compute
            .as_ref()
            .is_some_and(|id| self.all.is_settled(reference, id))
        {
            self.keep(Origin::Compute);
        }
    }

    fn look_up_image(&mut self, reference: &Reference, bare: &Value) {
        let needed = self.all.image_of(reference);
        let found = self.templates.image(&needed).flatten();
        if let Some((facts, image)) = found.and_then(|facts| Some((facts, facts.image.as_ref()?))) {
            self.group.pieces.extend(overlay::image(image, facts));
            self.group.image = Some(facts.id.clone());
            self.group.is_fresh = true;
            let version = facts.ray_version.as_ref();
            self.group.ray_version = version.map(|version| Piece::image(ray_version(), json!(version)));
            return;
        }
        let why = found.map_or_else(
            || format!("it does not exist{}", self.templates.did_you_mean(&needed)),
            |facts| facts.state.clone(),
        );
        let field = &reference.field;
        if self
            .recorded
            .image
            .as_ref()
            .is_some_and(|id| self.all.is_settled(reference, id))
        {
            self.group.warnings.push(format!(
                "{field}: {needed} has no new image, the cluster keeps the one it has: {why}"
            ));
            self.keep(Origin::Image);
            return;
        }
        self.group.image = Some(needed.pending_id());
        let own = group::get(bare, &self.group.key)
            .and_then(|group| path::get(group, overlay::IMAGE, &Value::Null));
        if own.is_some() {
            self.group.warnings.push(format!(
                "{field}: {needed} is not used, because the group sets its own image"
            ));
            return;
        }
        // Never stop a running cluster for an image to come.
        let runs = self
            .recorded
            .pieces_from(Origin::Image)
            .any(|piece| piece.at.0 == overlay::IMAGE && !piece.overridden);
        let meanwhile = if runs {
            "runs on with the image it has"
        } else {
            "is suspended"
        };
        self.group.warnings.push(format!(
            "{field}: the cluster {meanwhile} until {needed} has an image; {why}"
        ));
        self.group.wait = Some(gate::Wait { suspends: !runs });
        if runs {
            self.keep_values(Origin::Image);
        }
    }
}

fn ray_version() -> Path {
    Path::of(&["spec", "rayVersion"])
}
