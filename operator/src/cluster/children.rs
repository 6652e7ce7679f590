//! The objects around the pods: made, kept as the spec says, and removed where the spec no longer asks for them.

use std::collections::BTreeSet;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, Patch, Preconditions};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Client, Resource, ResourceExt};
use ray_api::meta::label;
use ray_api::names;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::build::{Children, Crd, Facts, children};
use super::context::Context;
use super::drift::correction;
use super::error::{Failure, RequestError};
use super::request::{merge, post, typed, within};

/// What became of the objects.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The head Service as it is.
    pub head_service: Option<Service>,
    /// Names of what was created, by the reason of the event about it.
    pub created: Vec<(&'static str, String)>,
    /// What was not brought about.
    pub failures: Vec<Failure>,
}

/// A kind of child: what events call it.
struct Kind {
    name: &'static str,
    created: &'static str,
    failed: &'static str,
}

const SERVICE: Kind = Kind {
    name: "Service",
    created: "CreatedService",
    failed: "FailedToCreateService",
};
const SERVICE_ACCOUNT: Kind = Kind {
    name: "ServiceAccount",
    created: "CreatedServiceAccount",
    failed: "FailedToCreateServiceAccount",
};
const ROLE: Kind = Kind {
    name: "Role",
    created: "CreatedRole",
    failed: "FailedToCreateRole",
};
const ROLE_BINDING: Kind = Kind {
    name: "RoleBinding",
    created: "CreatedRoleBinding",
    failed: "FailedToCreateRoleBinding",
};
const INGRESS: Kind = Kind {
    name: "Ingress",
    created: "CreatedIngress",
    failed: "FailedToCreateIngress",
};

/// Brings the objects about; one that fails stops no other.
pub(super) async fn execute(ctx: &Context, facts: &Facts<'_>) -> Outcome {
    let Children {
        services,
        service_account,
        role,
        role_binding,
        ingress,
    } = children(facts);
    let stores = &ctx.children;
    let mut work = Work {
        client: &ctx.client,
        facts,
        outcome: Outcome::default(),
    };
    let wanted: BTreeSet<String> = services.iter().map(ResourceExt::name_any).collect();
    for mut service in services {
        let name = service.name_any();
        if let Some(live) = find(&stores.services, facts.namespace, &name) {
            if is_outgrown(&service, &live) {
                // The next pass, which the deletion brings about, makes it anew.
                work.remove::<Service>(&stores.services, &name, &SERVICE).await;
                continue;
            }
            keep_what_is_fixed(&mut service, &live);
        }
        let live = work.ensure(&stores.services, service, &SERVICE).await;
        if name == facts.head_service {
            work.outcome.head_service = live;
        }
    }
    // A RayService's Serve Services are its controller's.
    if facts.crd != Crd::RayService {
        for name in [
            names::serve_service(facts.name),
            names::headless_service(facts.name),
        ] {
            if !wanted.contains(&name) {
                work.remove::<Service>(&stores.services, &name, &SERVICE).await;
            }
        }
    }
    if let Some(service_account) = service_account {
        work.ensure(&stores.service_accounts, service_account, &SERVICE_ACCOUNT)
            .await;
    }
    if let Some(role) = role {
        work.ensure(&stores.roles, role, &ROLE).await;
    }
    if let Some(binding) = role_binding {
        work.ensure(&stores.role_bindings, binding, &ROLE_BINDING).await;
    }
    match ingress {
        Some(ingress) => {
            work.ensure(&stores.ingresses, ingress, &INGRESS).await;
        }
        None => {
            let name = names::head_ingress(facts.name);
            work.remove::<Ingress>(&stores.ingresses, &name, &INGRESS).await;
        }
    }
    work.outcome
}

/// Creates the Secret with the token, where the cluster wants one of ours; one that is there stays. Nobody here may
/// read Secrets, so the attempt to create is the only way to look.
pub(super) async fn ensure_secret(client: &Client, facts: &Facts<'_>) -> Result<(), Failure> {
    let Some(secret) = super::build::auth_secret(facts, &rand::random()) else {
        return Ok(());
    };
    let api: Api<Secret> = Api::namespaced(client.clone(), facts.namespace);
    match within(api.create(&post(), &secret)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_already_exists() => Ok(()),
        Err(error) => {
            let what = format!("cannot create the Secret {}", secret.name_any());
            Err(Failure::new("FailedToCreateSecret", "Create", &what, &error))
        }
    }
}

/// One cluster's children being brought about.
struct Work<'a> {
    client: &'a Client,
    facts: &'a Facts<'a>,
    outcome: Outcome,
}

impl Work<'_> {
    /// Creates the object, or patches what differs; the object as it is then, where it is there and ours.
    async fn ensure<K>(&mut self, stores: &[Store<K>], desired: K, kind: &Kind) -> Option<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        let name = desired.name_any();
        match self.try_ensure(stores, &desired, kind).await {
            Ok(live) => Some(live),
            Err(error) => {
                let what = format!("cannot bring about the {} {name}", kind.name);
                self.outcome
                    .failures
                    .push(Failure::new(kind.failed, "Create", &what, &error));
                // One that cannot be changed is there all the same.
                let live = find(stores, self.facts.namespace, &name)?;
                is_ours(live.meta(), self.facts.uid).then(|| K::clone(&live))
            }
        }
    }

    async fn try_ensure<K>(
        &mut self,
        stores: &[Store<K>],
        desired: &K,
        kind: &Kind,
    ) -> Result<K, RequestError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        let name = desired.name_any();
        let api: Api<K> = Api::namespaced(self.client.clone(), self.facts.namespace);
        let live = match find(stores, self.facts.namespace, &name) {
            Some(live) => K::clone(&live),
            // The watch shows labelled objects only, and lags: the API server knows.
            None => match within(api.create(&post(), desired)).await {
                Ok(created) => {
                    self.outcome.created.push((kind.created, name));
                    return Ok(created);
                }
                Err(error) if error.is_already_exists() => within(api.get(&name)).await?,
                Err(error) => return Err(error),
            },
        };
        if !is_ours(live.meta(), self.facts.uid) {
            return Err(RequestError::NotOurs {
                kind: kind.name,
                name,
            });
        }
        let value = typed(desired)?;
        let shown = serde_json::to_value(&live)?;
        let Some(patch) = correction(&shown, live.meta(), value) else {
            return Ok(live);
        };
        tracing::info!(
            namespace = self.facts.namespace,
            kind = kind.name,
            name,
            "is brought to what the spec asks for"
        );
        within(api.patch(&name, &merge(), &Patch::Merge(patch))).await
    }

    /// Deletes an object of ours that the spec does not ask for any more.
    async fn remove<K>(&mut self, stores: &[Store<K>], name: &str, kind: &Kind)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let Some(live) = find(stores, self.facts.namespace, name) else {
            return;
        };
        if !is_ours(live.meta(), self.facts.uid) || live.meta().deletion_timestamp.is_some() {
            return;
        }
        let api: Api<K> = Api::namespaced(self.client.clone(), self.facts.namespace);
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: live.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match within(api.delete(name, &params)).await {
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                let what = format!("cannot delete the {} {name}", kind.name);
                self.outcome
                    .failures
                    .push(Failure::new(kind.failed, "Delete", &what, &error));
            }
        }
    }
}

fn find<K>(stores: &[Store<K>], namespace: &str, name: &str) -> Option<std::sync::Arc<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let key = ObjectRef::new(name).within(namespace);
    stores.iter().find_map(|store| store.get(&key))
}

fn is_ours(metadata: &ObjectMeta, uid: &str) -> bool {
    let owners: BTreeSet<&str> = metadata
        .owner_references
        .iter()
        .flatten()
        .filter(|owner| owner.controller == Some(true))
        .map(|owner| owner.uid.as_str())
        .collect();
    owners.contains(uid)
}

/// Whether a headless Service is asked to be of a type that needs an address, which Kubernetes gives at creation only.
fn is_outgrown(desired: &Service, live: &Service) -> bool {
    let (Some(desired), Some(live)) = (desired.spec.as_ref(), live.spec.as_ref()) else {
        return false;
    };
    let needs_address = matches!(desired.type_.as_deref(), Some("NodePort" | "LoadBalancer"));
    needs_address && live.cluster_ip.as_deref() == Some("None")
}

/// A Service's address never changes, and the Serve controller narrows the selector of the Serve Service.
fn keep_what_is_fixed(desired: &mut Service, live: &Service) {
    let (Some(desired), Some(live)) = (desired.spec.as_mut(), live.spec.as_ref()) else {
        return;
    };
    // Without it, a type that the spec no longer names would stay.
    if desired.type_.is_none() && live.type_.is_some() {
        desired.type_ = Some("ClusterIP".to_owned());
    }
    let is_headless = |ip: Option<&String>| ip.is_some_and(|ip| ip == "None");
    if is_headless(desired.cluster_ip.as_ref()) != is_headless(live.cluster_ip.as_ref()) {
        desired.cluster_ip.clone_from(&live.cluster_ip);
        desired.publish_not_ready_addresses = live.publish_not_ready_addresses;
    }
    let narrowed = live
        .selector
        .as_ref()
        .and_then(|selector| selector.get(label::SERVE));
    if let (Some(value), Some(selector)) = (narrowed, desired.selector.as_mut()) {
        selector.insert(label::SERVE.to_owned(), value.clone());
    }
}
