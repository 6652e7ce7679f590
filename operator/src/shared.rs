//! What every controller gets: the client, the scope, and a place for its metrics.

use k8s_openapi::NamespaceResourceScope;
use kube::api::Api;
use kube::{Client, Resource};

/// Namespaces that the operator looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope(pub Vec<String>);

impl Scope {
    /// One Api for all namespaces, or one for each that is watched.
    pub fn apis<K>(&self, client: &Client) -> Vec<Api<K>>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        if self.0.is_empty() {
            return vec![Api::all(client.clone())];
        }
        self.0
            .iter()
            .map(|namespace| Api::namespaced(client.clone(), namespace))
            .collect()
    }
}

/// What every controller gets.
#[derive(Clone)]
pub struct Shared {
    /// The Kubernetes client.
    pub client: Client,
    /// Namespaces to look at.
    pub scope: Scope,
    /// Name of this process in events and the Lease.
    pub instance: String,
}
