//! Metrics: KubeRay's names for what its dashboards show, ours for the loop.

use std::sync::{Arc, OnceLock};

use kube::ResourceExt;
use kube::runtime::reflector::Store;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use ray_api::conditions::find;
use ray_api::meta::{condition, label};
use ray_api::ray::RayCluster;
use ray_runtime::metrics::registered;

use crate::guard::Guarded;

/// Clusters as the watch shows them.
pub(super) type ClusterStore = Store<Guarded>;

/// Metrics of the cluster controller.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Passes.
    pub passes: Counter,
    /// Passes that have to be repeated.
    pub failures: Counter,
    /// Seconds a pass.
    pub seconds: Histogram,
    /// Pods created.
    pub created: Counter,
    /// Pods deleted.
    pub deleted: Counter,
    /// Status writes.
    pub status_writes: Counter,
    clusters: Arc<OnceLock<Vec<ClusterStore>>>,
}

impl Metrics {
    /// Adds them to the registry.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let ours = registry.sub_registry_with_prefix("ray_operator_cluster");
        let seconds = Histogram::new([0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0]);
        let mut counter = |name: &str, help: &str| registered(ours, name, help, Counter::default());
        let metrics = Self {
            passes: counter("reconciliations", "Passes over a RayCluster"),
            failures: counter("reconciliation_failures", "Passes that have to be repeated"),
            created: counter("pods_created", "Ray pods created"),
            deleted: counter("pods_deleted", "Ray pods deleted"),
            status_writes: counter("status_writes", "RayCluster statuses written"),
            seconds: registered(ours, "reconciliation_seconds", "Time of a pass", seconds),
            clusters: Arc::default(),
        };
        registry.register_collector(Box::new(KubeRay(Arc::clone(&metrics.clusters))));
        metrics
    }

    /// Names the clusters that are shown.
    pub fn show(&self, clusters: Vec<ClusterStore>) {
        let _ = self.clusters.set(clusters);
    }
}

/// KubeRay's gauges, made from what the watch shows when somebody asks.
#[derive(Debug)]
struct KubeRay(Arc<OnceLock<Vec<ClusterStore>>>);

impl Collector for KubeRay {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(stores) = self.0.get() else { return Ok(()) };
        let clusters: Vec<_> = stores.iter().flat_map(Store::state).collect();
        let clusters: Vec<&RayCluster> = clusters
            .iter()
            .filter_map(|guard| guard.0.as_ref().ok())
            .collect();
        gauge(
            &mut encoder,
            "kuberay_cluster_info",
            "RayClusters",
            &clusters,
            |cluster| {
                let owner = cluster
                    .labels()
                    .get(label::ORIGINATED_FROM_CRD)
                    .map_or("None", String::as_str);
                Some((vec![("owner_kind", owner.to_owned())], 1.0))
            },
        )?;
        gauge(
            &mut encoder,
            "kuberay_cluster_condition_provisioned",
            "Whether all pods were ready once",
            &clusters,
            |cluster| {
                let provisioned = provisioned(cluster).is_some();
                Some((vec![("condition", provisioned.to_string())], 1.0))
            },
        )?;
        gauge(
            &mut encoder,
            "kuberay_cluster_provisioned_duration_seconds",
            "From creation until all pods were ready",
            &clusters,
            |cluster| Some((Vec::new(), provisioned(cluster)?)),
        )
    }
}

/// Seconds from creation until the cluster was provisioned, where it is.
fn provisioned(cluster: &RayCluster) -> Option<f64> {
    let conditions = cluster.status.as_ref()?.conditions.as_ref()?;
    let provisioned =
        find(conditions, condition::PROVISIONED).filter(|condition| condition.status == "True")?;
    let created = cluster.metadata.creation_timestamp.as_ref()?;
    Some(
        provisioned
            .last_transition_time
            .0
            .duration_since(created.0)
            .as_secs_f64(),
    )
}

type Sample = (Vec<(&'static str, String)>, f64);

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    clusters: &[&RayCluster],
    sample: impl Fn(&RayCluster) -> Option<Sample>,
) -> Result<(), std::fmt::Error> {
    let kind = ConstGauge::new(0.0);
    let mut metric = encoder.encode_descriptor(name, help, None, kind.metric_type())?;
    for cluster in clusters {
        let Some((more, value)) = sample(cluster) else {
            continue;
        };
        let mut labels = vec![
            ("name", cluster.name_any()),
            ("namespace", cluster.namespace().unwrap_or_default()),
            ("uid", cluster.uid().unwrap_or_default()),
        ];
        labels.extend(more);
        ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use kube::runtime::{reflector::store, watcher::Event};
    use serde_json::json;

    use super::*;

    #[test]
    fn kuberays_dashboards_find_their_gauges() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let (reader, mut writer) = store();
        let provisioned = json!({
            "type": "RayClusterProvisioned", "status": "True", "reason": "r", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:19Z",
        });
        let cluster: RayCluster = serde_json::from_value(json!({
            "metadata": {
                "name": "c", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"ray.io/originated-from-crd": "RayJob"},
            },
            "spec": {"headGroupSpec": {}},
            "status": {"conditions": [provisioned]},
        }))
        .unwrap();
        writer.apply_watcher_event(&Event::Apply(Guarded(Ok(cluster))));
        metrics.show(vec![reader]);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"kuberay_cluster_info{name="c",namespace="n",uid="u",owner_kind="RayJob"} 1.0"#,
            r#"kuberay_cluster_condition_provisioned{name="c",namespace="n",uid="u",condition="true"} 1.0"#,
            r#"kuberay_cluster_provisioned_duration_seconds{name="c",namespace="n",uid="u"} 19.0"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
