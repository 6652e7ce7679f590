//! The watches behind the world.

use futures::stream::{BoxStream, SelectAll, StreamExt};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use ray_api::meta::annotation;
use ray_api::ray::RayCluster;
use ray_api::template::{ClusterComputeTemplate, ComputeTemplate, ImageTemplate};

use super::world::Change;
use crate::shared::Shared;

/// Every change of templates, and of RayClusters' metadata. Watches start again by themselves.
pub(super) fn watch(shared: &Shared) -> SelectAll<BoxStream<'static, Change>> {
    let mut all = SelectAll::new();
    let scopes = if shared.scope.0.is_empty() {
        vec![None]
    } else {
        shared.scope.0.iter().cloned().map(Some).collect()
    };
    for scope in scopes {
        let clusters = api::<PartialObjectMeta<RayCluster>>(shared, scope.as_deref());
        all.push(changes(clusters, trim_cluster, scope.clone(), Change::Cluster));
        all.push(changes(
            api::<ComputeTemplate>(shared, scope.as_deref()),
            trim,
            scope.clone(),
            Change::Compute,
        ));
        all.push(changes(
            api::<ImageTemplate>(shared, scope.as_deref()),
            trim,
            scope,
            Change::Image,
        ));
    }
    let cluster_wide: Api<ClusterComputeTemplate> = Api::all(shared.client.clone());
    all.push(changes(cluster_wide, trim, None, |_, event| {
        Change::ClusterCompute(event)
    }));
    all
}

fn api<K>(shared: &Shared, scope: Option<&str>) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    match scope {
        Some(namespace) => Api::namespaced(shared.client.clone(), namespace),
        None => Api::all(shared.client.clone()),
    }
}

fn changes<K, C>(
    api: Api<K>,
    trim: fn(&mut K),
    scope: Option<String>,
    change: C,
) -> BoxStream<'static, Change>
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + 'static,
    C: Fn(Option<String>, watcher::Event<K>) -> Change + Send + 'static,
{
    watcher(api, ray_runtime::watch::config())
        .default_backoff()
        .modify(trim)
        .filter_map(move |event| {
            let change = match event {
                Ok(event) => Some(change(scope.clone(), event)),
                Err(error) => {
                    tracing::warn!(%error, "watch of templates and their users");
                    None
                }
            };
            futures::future::ready(change)
        })
        .boxed()
}

fn trim<K: ResourceExt>(object: &mut K) {
    object.managed_fields_mut().clear();
    object.annotations_mut().remove(annotation::LAST_APPLIED);
}

fn trim_cluster(cluster: &mut PartialObjectMeta<RayCluster>) {
    trim(cluster);
}
