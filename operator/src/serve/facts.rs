//! What Serve health needs to know of API objects, and no more: 10,000 pods fit into a few megabytes.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ManagedFieldsEntry, ObjectMeta};
use kube::ResourceExt;
use ray_api::meta::{NODE_TYPE_HEAD, RAY_GROUP, annotation, label, manager};
use ray_api::ray::v1::RayCluster;

use super::condition;
use super::targets::Settings;

/// Uid of an object; cheap to clone.
pub(super) type Uid = Arc<str>;

/// Where an object is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ObjectKey {
    /// Its uid: a name may be reused, a uid never.
    pub uid: Uid,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl ObjectKey {
    fn of(meta: &ObjectMeta) -> Option<Self> {
        Some(Self {
            uid: meta.uid.as_deref()?.into(),
            namespace: meta.namespace.as_deref()?.into(),
            name: meta.name.as_deref()?.into(),
        })
    }
}

/// A RayCluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClusterFacts {
    /// Which one.
    pub key: ObjectKey,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// How to probe its pods; None where it has no Serve service of ours.
    pub settings: Option<Result<Settings, String>>,
    /// The conditions that Serve health wrote.
    pub conditions: Vec<Condition>,
}

impl ClusterFacts {
    /// The facts of a cluster; None where it has no uid, which the API server never sends.
    #[must_use]
    pub(super) fn of(cluster: &RayCluster) -> Option<Self> {
        let annotations = cluster.annotations();
        let enabled = annotations
            .get(annotation::ENABLE_SERVE_SERVICE)
            .is_some_and(|value| value == "true")
            && !of_ray_service(&cluster.metadata)
            && cluster.metadata.deletion_timestamp.is_none();
        let head = cluster.spec.head_group_spec.template.as_ref();
        let head_port = head
            .and_then(|template| template.spec.as_ref())
            .and_then(serve_port);
        let conditions = cluster
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_ref());
        Some(Self {
            key: ObjectKey::of(&cluster.metadata)?,
            generation: cluster.metadata.generation,
            settings: enabled.then(|| Settings::parse(annotations, head_port)),
            conditions: conditions
                .into_iter()
                .flatten()
                .filter(|found| condition::TYPES.contains(&found.type_.as_str()))
                .cloned()
                .collect(),
        })
    }
}

/// A Ray pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodFacts {
    /// Which one.
    pub key: ObjectKey,
    /// Uid of the RayCluster that controls it.
    pub owner: Uid,
    /// Whether it is a head.
    pub head: bool,
    /// Phase Running, and not being deleted.
    pub running: bool,
    /// Its own address.
    pub ip: Option<IpAddr>,
    /// Shares the node's network.
    pub host_network: bool,
    /// The Ray container's port named `serve`.
    pub serve_port: Option<i32>,
    /// Value of the label `ray.io/serve`.
    pub label: Option<Label>,
    /// Whether Serve health wrote that label. One from a pod template says nothing about health.
    pub label_is_ours: bool,
}

/// Value of the label `ray.io/serve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Label {
    /// `true`: the Serve service selects the pod.
    In,
    /// Anything else.
    Out,
}

impl PodFacts {
    /// The facts of a pod; None where no RayCluster controls it, or RayService's controller writes its label.
    #[must_use]
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        if of_ray_service(&pod.metadata) {
            return None;
        }
        let labels = pod.labels();
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        Some(Self {
            key: ObjectKey::of(&pod.metadata)?,
            owner: controlling_cluster(&pod.metadata)?,
            head: labels
                .get(label::NODE_TYPE)
                .is_some_and(|kind| kind == NODE_TYPE_HEAD),
            running: phase == Some("Running") && pod.metadata.deletion_timestamp.is_none(),
            ip: status.and_then(|status| status.pod_ip.as_deref()?.parse().ok()),
            host_network: pod
                .spec
                .as_ref()
                .is_some_and(|spec| spec.host_network == Some(true)),
            serve_port: pod.spec.as_ref().and_then(serve_port),
            label: labels.get(label::SERVE).map(|value| match value.as_str() {
                "true" => Label::In,
                _ => Label::Out,
            }),
            label_is_ours: pod.managed_fields().iter().any(owns_label),
        })
    }
}

/// A Serve service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceFacts {
    /// Which one.
    pub key: ObjectKey,
    /// Uid of the RayCluster that controls it.
    pub owner: Uid,
    /// Selects on `ray.io/cluster`, and not yet on `ray.io/serve`.
    pub lacks_selector: bool,
}

impl ServiceFacts {
    /// The facts of a service; None where no RayCluster controls it.
    #[must_use]
    pub(super) fn of(service: &Service) -> Option<Self> {
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        Some(Self {
            key: ObjectKey::of(&service.metadata)?,
            owner: controlling_cluster(&service.metadata)?,
            lacks_selector: selector.is_some_and(|selector| {
                selector.contains_key(label::CLUSTER) && !selector.contains_key(label::SERVE)
            }),
        })
    }
}

fn of_ray_service(meta: &ObjectMeta) -> bool {
    let labels = meta.labels.as_ref();
    labels
        .and_then(|labels| labels.get(label::ORIGINATED_FROM_CRD))
        .is_some_and(|kind| kind == "RayService")
}

fn controlling_cluster(meta: &ObjectMeta) -> Option<Uid> {
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
    let group = owner.api_version.split('/').next();
    (owner.kind == "RayCluster" && group == Some(RAY_GROUP)).then(|| owner.uid.as_str().into())
}

fn serve_port(spec: &PodSpec) -> Option<i32> {
    let ray: &Container = spec.containers.first()?;
    let ports = ray.ports.as_deref().unwrap_or_default();
    let serve = ports.iter().find(|port| port.name.as_deref() == Some("serve"))?;
    Some(serve.container_port)
}

fn owns_label(entry: &ManagedFieldsEntry) -> bool {
    let path = format!("/f:metadata/f:labels/f:{}", label::SERVE.replace('/', "~1"));
    entry.manager.as_deref() == Some(manager::SERVE)
        && entry
            .fields_v1
            .as_ref()
            .is_some_and(|fields| fields.0.pointer(&path).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(change: impl FnOnce(&mut serde_json::Value)) -> Option<PodFacts> {
        let mut pod = json!({
            "metadata": {
                "name": "c-worker-x", "namespace": "ns", "uid": "p1",
                "labels": {"ray.io/cluster": "c", "ray.io/node-type": "worker"},
                "ownerReferences": [{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "c", "uid": "c1", "controller": true}],
            },
            "spec": {"containers": [
                {"name": "ray-worker", "ports": [{"name": "serve", "containerPort": 9000}]},
                {"name": "sidecar", "ports": [{"name": "serve", "containerPort": 1}]},
            ]},
            "status": {"phase": "Running", "podIP": "10.0.0.7"},
        });
        change(&mut pod);
        PodFacts::of(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn a_pod_is_read_with_its_controller_address_and_port() {
        let facts = pod(|_| {}).unwrap();
        assert_eq!(&*facts.owner, "c1");
        assert_eq!(facts.ip, Some("10.0.0.7".parse().unwrap()));
        assert_eq!(facts.serve_port, Some(9000));
        assert!(facts.running && !facts.head && !facts.host_network);
        assert_eq!(facts.label, None);
    }

    #[test]
    fn only_pods_that_a_ray_cluster_controls_count() {
        let orphan = pod(|pod| pod["metadata"]["ownerReferences"] = json!([]));
        assert_eq!(orphan, None);
        let not_controlled = pod(|pod| pod["metadata"]["ownerReferences"][0]["controller"] = json!(false));
        assert_eq!(not_controlled, None);
        let other_kind = pod(|pod| pod["metadata"]["ownerReferences"][0]["apiVersion"] = json!("evil.io/v1"));
        assert_eq!(other_kind, None);
        let ray_service =
            pod(|pod| pod["metadata"]["labels"][label::ORIGINATED_FROM_CRD] = json!("RayService"));
        assert_eq!(ray_service, None);
    }

    #[test]
    fn a_pod_that_ends_or_goes_does_not_run() {
        assert!(
            !pod(|pod| pod["status"]["phase"] = json!("Failed"))
                .unwrap()
                .running
        );
        let deleted = pod(|pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
        assert!(!deleted.unwrap().running);
    }

    #[test]
    fn a_label_is_ours_only_if_our_field_manager_owns_it() {
        let labelled = |by: &str| {
            pod(|pod| {
                pod["metadata"]["labels"][label::SERVE] = json!("true");
                pod["metadata"]["managedFields"] = json!([{
                    "manager": by, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:metadata": {"f:labels": {"f:ray.io/serve": {}}}},
                }]);
            })
            .unwrap()
        };
        assert_eq!(labelled(manager::SERVE).label, Some(Label::In));
        assert!(labelled(manager::SERVE).label_is_ours);
        assert!(!labelled("kuberay-operator").label_is_ours);
    }

    #[test]
    fn a_cluster_without_the_annotation_or_of_a_ray_service_is_left_alone() {
        let cluster = |annotations: serde_json::Value, labels: serde_json::Value| {
            let cluster = json!({
                "apiVersion": "ray.io/v1", "kind": "RayCluster",
                "metadata": {"name": "c", "namespace": "ns", "uid": "c1", "annotations": annotations, "labels": labels},
                "spec": {"headGroupSpec": {}},
            });
            ClusterFacts::of(&serde_json::from_value(cluster).unwrap())
                .unwrap()
                .settings
        };
        let enabled = json!({"ray.io/enable-serve-service": "true"});
        assert!(cluster(enabled.clone(), json!({})).unwrap().is_ok());
        assert_eq!(cluster(json!({}), json!({})), None);
        assert_eq!(
            cluster(json!({"ray.io/enable-serve-service": "True"}), json!({})),
            None
        );
        assert_eq!(
            cluster(enabled, json!({"ray.io/originated-from-crd": "RayService"})),
            None
        );
    }

    #[test]
    fn a_service_lacks_the_selector_until_it_selects_on_the_label() {
        let service = |selector: serde_json::Value| {
            let service = json!({
                "metadata": {"name": "c-serve-svc", "namespace": "ns", "uid": "s1",
                    "ownerReferences": [{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "c", "uid": "c1", "controller": true}]},
                "spec": {"selector": selector},
            });
            ServiceFacts::of(&serde_json::from_value(service).unwrap())
                .unwrap()
                .lacks_selector
        };
        assert!(service(json!({"ray.io/cluster": "c"})));
        assert!(!service(json!({"ray.io/cluster": "c", "ray.io/serve": "true"})));
        assert!(!service(json!({"app": "somebody's own"})));
    }
}
