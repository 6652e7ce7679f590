//! What every controller gets: the client, the scope, and a place for its metrics.

use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::NamespaceResourceScope;
use kube::api::Api;
use kube::{Client, Resource};

/// Namespaces that the operator looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope(pub Vec<String>);

impl Scope {
    /// Of the flag's values; an empty one, as manifests write it for all namespaces, says nothing.
    #[must_use]
    pub fn of(namespaces: &[String]) -> Self {
        let named = namespaces
            .iter()
            .map(|name| name.trim())
            .filter(|name| !name.is_empty());
        Self(named.map(str::to_owned).collect())
    }

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

/// Locks what outlives a panic under its lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::Scope;

    #[test]
    fn empty_names_are_all_namespaces() {
        let scope = |names: &[&str]| Scope::of(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(scope(&[""]), Scope::default());
        assert_eq!(
            scope(&["a", " b", ""]),
            Scope(vec!["a".to_owned(), "b".to_owned()])
        );
    }
}
