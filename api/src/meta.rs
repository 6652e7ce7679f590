//! Label, annotation and finalizer keys, and the field managers: the words by which objects find each other.

/// Group of the RayCluster API, shared with KubeRay.
pub const RAY_GROUP: &str = "ray.io";
/// Group of our template kinds.
pub const TEMPLATES_GROUP: &str = "templates.ray.io";

/// The version of this build, as written into `ray.io/kuberay-version` and user agents.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Labels that KubeRay defines (raycluster-behaviour 2.2) and that we keep to the letter.
pub mod label {
    /// Name of the RayCluster that a pod, service or role belongs to.
    pub const CLUSTER: &str = "ray.io/cluster";
    /// `head`, `worker` or `redis-cleanup`.
    pub const NODE_TYPE: &str = "ray.io/node-type";
    /// Worker group name, or [`super::HEAD_GROUP`].
    pub const GROUP: &str = "ray.io/group";
    /// `<cluster>-head` or `<cluster>-worker`; the head Service selects on it.
    pub const IDENTIFIER: &str = "ray.io/identifier";
    /// `yes` on every Ray pod.
    pub const IS_RAY_NODE: &str = "ray.io/is-ray-node";
    /// Index of a replica in its worker group.
    pub const REPLICA_INDEX: &str = "ray.io/worker-group-replica-index";
    /// Name that the hosts of one multi-host replica share.
    pub const REPLICA_NAME: &str = "ray.io/worker-group-replica-name";
    /// Index of a host in its multi-host replica.
    pub const HOST_INDEX: &str = "ray.io/replica-host-index";
    /// `true` on the pods whose Serve proxy is healthy; the Serve Service selects on it.
    pub const SERVE: &str = "ray.io/serve";
    /// Kind that a RayCluster was made for: `RayJob` or `RayService`.
    pub const ORIGINATED_FROM_CRD: &str = "ray.io/originated-from-crd";
    /// Name of the object that a RayCluster was made for.
    pub const ORIGINATED_FROM_CR_NAME: &str = "ray.io/originated-from-cr-name";
    /// On the headless Service of multi-host worker groups.
    pub const HEADLESS_WORKER_SVC: &str = "ray.io/headless-worker-svc";
    /// Kubernetes' recommended application name; KubeRay's value is `kuberay`.
    pub const APP_NAME: &str = "app.kubernetes.io/name";
    /// Kubernetes' recommended creator label; KubeRay's value is `kuberay-operator`.
    pub const APP_CREATED_BY: &str = "app.kubernetes.io/created-by";
    /// On a RayCluster whose image is not there yet: the template controller lifts such gates.
    pub const GATED: &str = "templates.ray.io/gated";
    /// On the objects of an image build: the ImageTemplate's name where it fits a label, else its hash.
    pub const IMAGE_TEMPLATE: &str = "templates.ray.io/image-template";
    /// Kueue's queue label: Kueue then owns `spec.suspend`.
    pub const KUEUE_QUEUE: &str = "kueue.x-k8s.io/queue-name";
}

/// Value of [`label::GROUP`] on head pods.
pub const HEAD_GROUP: &str = "headgroup";
/// Value of [`label::NODE_TYPE`] on head pods.
pub const NODE_TYPE_HEAD: &str = "head";
/// Value of [`label::NODE_TYPE`] on worker pods.
pub const NODE_TYPE_WORKER: &str = "worker";
/// Value of [`label::NODE_TYPE`] on the Redis cleanup Job and its pod.
pub const NODE_TYPE_REDIS_CLEANUP: &str = "redis-cleanup";
/// KubeRay's value of [`label::APP_NAME`].
pub const APP_NAME: &str = "kuberay";
/// KubeRay's value of [`label::APP_CREATED_BY`].
pub const CREATED_BY: &str = "kuberay-operator";

/// Annotations on RayClusters and their pods.
pub mod annotation {
    /// GCS fault tolerance, the old way: `true` switches it on.
    pub const FT_ENABLED: &str = "ray.io/ft-enabled";
    /// Redis key namespace of a fault tolerant cluster.
    pub const EXTERNAL_STORAGE_NAMESPACE: &str = "ray.io/external-storage-namespace";
    /// Seconds until a stuck Redis cleanup is given up.
    pub const GCS_FT_DELETION_TIMEOUT: &str = "ray.io/gcs-ft-deletion-timeout";
    /// `true`: the user's container command is left alone.
    pub const OVERWRITE_CONTAINER_CMD: &str = "ray.io/overwrite-container-cmd";
    /// `true`: the cluster gets `<cluster>-serve-svc`.
    pub const ENABLE_SERVE_SERVICE: &str = "ray.io/enable-serve-service";
    /// Port of the Serve service and its health check.
    pub const SERVE_HEALTH_PORT: &str = "ray.io/serve-health-port";
    /// Path of the Serve health check.
    pub const SERVE_HEALTH_PATH: &str = "ray.io/serve-health-path";
    /// `true`: the head never gets Serve traffic.
    pub const SERVE_EXCLUDE_HEAD: &str = "ray.io/serve-exclude-head";
    /// `true`: a provisioned cluster whose head is gone stays without one.
    pub const DISABLE_PROVISIONED_HEAD_RESTART: &str = "ray.io/disable-provisioned-head-restart";
    /// Hash of the spec that the head was made from (upgradeStrategy Recreate).
    pub const RECREATE_HASH: &str = "ray.io/upgrade-strategy-recreate-hash";
    /// Version of the operator that made the head.
    pub const OPERATOR_VERSION: &str = "ray.io/kuberay-version";
    /// Ingress class, the old way.
    pub const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";

    /// Reference to an ImageTemplate where the CRD has no field for it.
    pub const IMAGE_TEMPLATE: &str = "templates.ray.io/image-template";
    /// Reference to a (Cluster)ComputeTemplate where the CRD has no field for it.
    pub const COMPUTE_TEMPLATE: &str = "templates.ray.io/compute-template";
    /// What the expansion filled in, and from where (JSON).
    pub const EXPANSION: &str = "templates.ray.io/expansion";
    /// Any new value makes the webhook take the newest templates.
    pub const REFRESH: &str = "templates.ray.io/refresh";
    /// `Track`: follow template changes; absent or `Pin`: keep what was given.
    pub const UPDATE_POLICY: &str = "templates.ray.io/update-policy";
    /// Digest that the template controller names when it lifts an image gate.
    pub const GATE_LIFT: &str = "templates.ray.io/gate-lift";
    /// Any new value on an ImageTemplate builds it again.
    pub const REBUILD: &str = "templates.ray.io/rebuild";
    /// Build number to cancel, on an ImageTemplate.
    pub const CANCEL: &str = "templates.ray.io/cancel";
    /// What `kubectl apply` last sent.
    pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
}

/// Types of a RayCluster's conditions: the operator writes them, the plugin reads them.
pub mod condition {
    /// Pods are being deleted on request; goes on to its end even if the request is taken back.
    pub const SUSPENDING: &str = "RayClusterSuspending";
    /// All pods are gone on request.
    pub const SUSPENDED: &str = "RayClusterSuspended";
    /// All pods were ready once.
    pub const PROVISIONED: &str = "RayClusterProvisioned";
    /// The head is ready.
    pub const HEAD_POD_READY: &str = "HeadPodReady";
    /// True while pods cannot be created or deleted; False once that is over; absent before.
    pub const REPLICA_FAILURE: &str = "ReplicaFailure";
    /// False while the spec breaks a rule or lacks an image; absent otherwise.
    pub const ACCEPTED: &str = "Accepted";
    /// True while a Service, Ingress or RBAC object cannot be brought about; False once that is over; absent before.
    pub const OBJECT_FAILURE: &str = "ObjectFailure";
    /// True while the cluster asks for what this operator does not do; absent otherwise.
    pub const UNSUPPORTED_FEATURES: &str = "UnsupportedFeatures";
    /// True while nobody can say whether the pods serve.
    pub const SERVE_HEALTH_UNKNOWN: &str = "ServeHealthUnknown";
}

/// KubeRay's finalizer on clusters with Redis-backed fault tolerance.
pub const REDIS_CLEANUP_FINALIZER: &str = "ray.io/gcs-ft-redis-cleanup-finalizer";

/// Field managers of server-side apply: one for each writer, because apply removes what the same manager stops to mention.
pub mod manager {
    /// The cluster controller's status of a RayCluster.
    pub const CLUSTER: &str = "ray-operator/cluster";
    /// The image controller: Jobs, ConfigMaps and the ImageTemplate's status.
    pub const IMAGE: &str = "ray-operator/image";
    /// The template controller: gates, `usedBy`, `stale`.
    pub const TEMPLATE: &str = "ray-operator/template";
    /// The Serve health prober: the label, its service and its conditions.
    pub const SERVE: &str = "ray-operator/serve";
    /// The webhook's certificate Secret and `caBundle`.
    pub const WEBHOOK: &str = "ray-webhook";
    /// The plugin.
    pub const PLUGIN: &str = "kubectl-ray";
}

/// The value of `ray.io/kuberay-version`: ours, so that a return to KubeRay re-stamps heads instead of recreating them.
#[must_use]
pub fn operator_version() -> String {
    format!("kubectl-ray-{VERSION}")
}
