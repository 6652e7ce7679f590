//! Caches of the template kinds, with a live GET where they have no answer or an old one will not do.
//!
//! They hold what expansion wants to know of a template, worked out once: an admission copies nothing.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Api;
use kube::runtime::reflector::{self, ObjectRef, Store, store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use ray_api::expand::{Compute, Decisions, Image, Needed, Templates};
use ray_api::template::{ClusterComputeTemplate, ComputeTemplate, ImageTemplate};
use ray_runtime::admin::Readiness;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use tokio_util::sync::CancellationToken;

use crate::metrics::{KindLabels, Metrics};

/// Longest time for one GET: well inside the API server's 5 s for the whole admission.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Between updates of the store size gauges.
const GAUGE_PERIOD: Duration = Duration::from_secs(15);

/// A kind of template, and what expansion wants to know of one.
trait Template: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static {
    type Known: Clone + Debug + Send + Sync + 'static;

    fn known(&self) -> Self::Known;
}

impl Template for ComputeTemplate {
    type Known = Compute;

    fn known(&self) -> Compute {
        self.into()
    }
}

impl Template for ClusterComputeTemplate {
    type Known = Compute;

    fn known(&self) -> Compute {
        self.into()
    }
}

impl Template for ImageTemplate {
    type Known = Image;

    fn known(&self) -> Image {
        self.into()
    }
}

/// A template as the caches hold it: its name, and what is known of it.
#[derive(Clone, Debug)]
struct Cached<K: Template> {
    metadata: ObjectMeta,
    known: Arc<K::Known>,
}

impl<'de, K: Template> Deserialize<'de> for Cached<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let template = K::deserialize(deserializer)?;
        let known = Arc::new(template.known());
        let metadata = ObjectMeta {
            name: template.meta().name.clone(),
            namespace: template.meta().namespace.clone(),
            uid: template.meta().uid.clone(),
            resource_version: template.meta().resource_version.clone(),
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, known })
    }
}

impl<K: Template> Resource for Cached<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind(_: &()) -> Cow<'_, str> {
        K::kind(&())
    }
    fn group(_: &()) -> Cow<'_, str> {
        K::group(&())
    }
    fn version(_: &()) -> Cow<'_, str> {
        K::version(&())
    }
    fn plural(_: &()) -> Cow<'_, str> {
        K::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The caches.
#[derive(Clone)]
pub struct TemplateReader {
    client: Client,
    namespaces: Vec<String>,
    compute: Vec<Store<Cached<ComputeTemplate>>>,
    cluster_compute: Store<Cached<ClusterComputeTemplate>>,
    image: Vec<Store<Cached<ImageTemplate>>>,
}

/// Why a template could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The API server refused or broke.
    #[error("cannot read {needed}: {source}")]
    Api {
        /// What was to be read.
        needed: Needed,
        /// Why not.
        source: kube::Error,
    },
    /// The API server is slow.
    #[error("cannot read {0}: no answer within {READ_TIMEOUT:?}")]
    Timeout(Needed),
}

impl TemplateReader {
    /// Starts the watches; `readiness` passes once all caches are filled.
    #[must_use]
    pub fn start(
        client: Client,
        namespaces: &[String],
        readiness: &Readiness,
        metrics: Metrics,
        shutdown: &CancellationToken,
    ) -> Self {
        let compute: Vec<_> = apis(&client, namespaces)
            .into_iter()
            .map(|api| watch(api, shutdown))
            .collect();
        let cluster_compute = watch(Api::all(client.clone()), shutdown);
        let image: Vec<_> = apis(&client, namespaces)
            .into_iter()
            .map(|api| watch(api, shutdown))
            .collect();
        let reader = Self {
            client,
            namespaces: namespaces.to_vec(),
            compute,
            cluster_compute,
            image,
        };
        readiness.set("template caches", false);
        let (waiting, readiness, shutdown) = (reader.clone(), readiness.clone(), shutdown.clone());
        tokio::spawn(async move {
            if waiting.wait_until_ready().await.is_ok() {
                readiness.set("template caches", true);
            }
            while !shutdown.is_cancelled() {
                waiting.measure(&metrics);
                tokio::time::sleep(GAUGE_PERIOD).await;
            }
        });
        reader
    }

    /// Whether templates of that namespace are to be read; empty for cluster-wide objects, which always are.
    #[must_use]
    pub fn watches(&self, namespace: &str) -> bool {
        self.namespaces.is_empty()
            || namespace.is_empty()
            || self.namespaces.iter().any(|watched| watched == namespace)
    }

    async fn wait_until_ready(&self) -> Result<(), reflector::store::WriterDropped> {
        for store in &self.compute {
            store.wait_until_ready().await?;
        }
        for store in &self.image {
            store.wait_until_ready().await?;
        }
        self.cluster_compute.wait_until_ready().await
    }

    fn measure(&self, metrics: &Metrics) {
        let sizes = [
            ("ComputeTemplate", self.compute.iter().map(Store::len).sum()),
            ("ClusterComputeTemplate", self.cluster_compute.len()),
            ("ImageTemplate", self.image.iter().map(Store::len).sum::<usize>()),
        ];
        for (kind, size) in sizes {
            let size = i64::try_from(size).unwrap_or(i64::MAX);
            metrics.store_size.get_or_create(&KindLabels { kind }).set(size);
        }
    }

    /// Everything that these decisions need; `live` reads past the caches.
    ///
    /// # Errors
    /// When the API server cannot be asked.
    pub async fn read_for(&self, decisions: &Decisions<'_>, live: bool) -> Result<Templates, ReadError> {
        let mut templates = Templates::default();
        loop {
            let needed = decisions.needed(&templates);
            if needed.is_empty() {
                return Ok(templates);
            }
            for needed in needed {
                self.read_into(&mut templates, needed, live).await?;
            }
        }
    }

    /// Reads one template into `templates`, and names like it where it does not exist.
    ///
    /// # Errors
    /// When the API server cannot be asked.
    pub async fn read_into(
        &self,
        templates: &mut Templates,
        needed: Needed,
        live: bool,
    ) -> Result<(), ReadError> {
        let found = match &needed {
            Needed::Compute { namespace, .. } => {
                let api = Api::namespaced(self.client.clone(), namespace);
                let found = self.read(&self.compute, api, &needed, live).await?;
                let exists = found.is_some();
                templates.share_compute(needed.clone(), found);
                exists
            }
            Needed::ClusterCompute { .. } => {
                let stores = std::slice::from_ref(&self.cluster_compute);
                let found = self
                    .read(stores, Api::all(self.client.clone()), &needed, live)
                    .await?;
                let exists = found.is_some();
                templates.share_compute(needed.clone(), found);
                exists
            }
            Needed::Image { namespace, .. } => {
                let api = Api::namespaced(self.client.clone(), namespace);
                let mut found = self.read(&self.image, api.clone(), &needed, live).await?;
                // An image that the cache has not seen yet would gate the cluster for nothing.
                if !live && found.as_deref().is_some_and(|image| !image.is_built()) {
                    found = self.read(&self.image, api, &needed, true).await?;
                }
                let exists = found.is_some();
                templates.share_image(needed.clone(), found);
                exists
            }
        };
        if !found {
            templates.suggest_from(self.names_like(&needed));
        }
        Ok(())
    }

    async fn read<K: Template>(
        &self,
        stores: &[Store<Cached<K>>],
        api: Api<K>,
        needed: &Needed,
        live: bool,
    ) -> Result<Option<Arc<K::Known>>, ReadError> {
        let mut reference = ObjectRef::<Cached<K>>::new(needed.name());
        reference.namespace = needed.namespace().map(str::to_owned);
        if !live && let Some(found) = stores.iter().find_map(|store| store.get(&reference)) {
            return Ok(Some(Arc::clone(&found.known)));
        }
        match tokio::time::timeout(READ_TIMEOUT, api.get_opt(needed.name())).await {
            Ok(Ok(found)) => Ok(found.map(|template| Arc::new(template.known()))),
            Ok(Err(source)) => Err(ReadError::Api {
                needed: needed.clone(),
                source,
            }),
            Err(_) => Err(ReadError::Timeout(needed.clone())),
        }
    }

    /// Names of the templates that could have been meant.
    fn names_like(&self, needed: &Needed) -> Vec<Needed> {
        match needed {
            Needed::Compute { namespace, .. } => {
                let named = |name| Needed::Compute {
                    namespace: namespace.clone(),
                    name,
                };
                self.compute
                    .iter()
                    .flat_map(|store| names(store, Some(namespace)))
                    .map(named)
                    .collect()
            }
            Needed::ClusterCompute { .. } => {
                let named = |name| Needed::ClusterCompute { name };
                names(&self.cluster_compute, None)
                    .into_iter()
                    .map(named)
                    .collect()
            }
            Needed::Image { namespace, .. } => {
                let named = |name| Needed::Image {
                    namespace: namespace.clone(),
                    name,
                };
                self.image
                    .iter()
                    .flat_map(|store| names(store, Some(namespace)))
                    .map(named)
                    .collect()
            }
        }
    }
}

fn names<K>(store: &Store<K>, namespace: Option<&String>) -> Vec<String>
where
    K: Resource<DynamicType = ()> + Clone,
{
    let state = store.state();
    let near = state
        .iter()
        .filter(|template| template.namespace().as_ref() == namespace);
    near.map(|template| template.name_any()).collect()
}

fn apis<K>(client: &Client, namespaces: &[String]) -> Vec<Api<K>>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    if namespaces.is_empty() {
        return vec![Api::all(client.clone())];
    }
    namespaces
        .iter()
        .map(|namespace| Api::namespaced(client.clone(), namespace))
        .collect()
}

/// A cache that a watch keeps.
fn watch<K: Template>(api: Api<Cached<K>>, shutdown: &CancellationToken) -> Store<Cached<K>> {
    let (reader, writer) = store();
    let events = watcher(api, ray_runtime::watch::config())
        .default_backoff()
        .reflect(writer)
        .take_until(shutdown.clone().cancelled_owned());
    tokio::spawn(
        events
            .inspect_err(|error| tracing::warn!(%error, "watch of templates"))
            .for_each(|_| async {}),
    );
    reader
}
