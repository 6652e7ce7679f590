//! What a pass works with.

use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Client;
use kube::runtime::reflector::Store;
use tokio::sync::Semaphore;

use super::config::Config;
use super::events::Events;
use super::memory::Memories;
use super::metrics::Metrics;
use super::pods::PodIndex;

/// What a pass works with.
pub(super) struct Context {
    /// The Kubernetes client.
    pub client: Client,
    /// The settings.
    pub config: Config,
    /// Pods by cluster.
    pub pods: PodIndex,
    /// The objects around the pods.
    pub children: ChildStores,
    /// What is remembered between passes.
    pub memories: Memories,
    /// Where events go.
    pub events: Events,
    /// Counters.
    pub metrics: Metrics,
    /// Pods that are created or deleted at the same time.
    pub slots: Semaphore,
}

/// Objects that carry `ray.io/cluster`, as their watches show them.
pub(super) struct ChildStores {
    /// Services.
    pub services: Vec<Store<Service>>,
    /// ServiceAccounts.
    pub service_accounts: Vec<Store<ServiceAccount>>,
    /// Roles.
    pub roles: Vec<Store<Role>>,
    /// RoleBindings.
    pub role_bindings: Vec<Store<RoleBinding>>,
    /// Ingresses.
    pub ingresses: Vec<Store<Ingress>>,
}
