//! Ray's token authentication (raycluster-behaviour 3.11).

use k8s_openapi::api::core::v1::{
    Container, PodSpec, ProjectedVolumeSource, ServiceAccountTokenProjection, Volume, VolumeMount,
    VolumeProjection,
};
use ray_api::names;
use ray_api::ray::v1::{AuthMode, RayCluster};

use super::env::{literal, push_absent, secret_key};

/// Key of the token in its Secret.
pub(super) const TOKEN_KEY: &str = "auth_token";
/// Volume and folder of the service account's token.
const TOKEN_VOLUME: &str = "ray-token";
const TOKEN_FOLDER: &str = "/var/run/secrets/ray.io/serviceaccount";

/// How the nodes of a cluster trust each other and their users.
///
/// An empty mode is off everywhere; KubeRay makes a Secret for it that nothing reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth<'a> {
    /// Everyone is let in.
    Off,
    /// A token that the operator makes, in a Secret of that name.
    OwnSecret(String),
    /// A token in a Secret of the user.
    UserSecret(&'a str),
    /// Kubernetes reviews tokens.
    Kubernetes,
}

impl<'a> Auth<'a> {
    /// What the cluster asks for.
    #[must_use]
    pub fn of(cluster: &'a RayCluster) -> Self {
        let Some(options) = cluster
            .spec
            .auth_options
            .as_ref()
            .filter(|options| options.mode == Some(AuthMode::Token))
        else {
            return Self::Off;
        };
        if options.enable_k8s_token_auth == Some(true) {
            return Self::Kubernetes;
        }
        match options.secret_name.as_deref() {
            Some(name) if !name.is_empty() => Self::UserSecret(name),
            _ => {
                let name = cluster.metadata.name.as_deref().unwrap_or_default();
                Self::OwnSecret(names::check_name(name))
            }
        }
    }

    /// Tells a container of the pod how to authenticate.
    pub fn add(&self, container: &mut Container) {
        let env = container.env.get_or_insert_default();
        let secret = match self {
            Self::Off => return,
            Self::OwnSecret(name) => name,
            Self::UserSecret(name) => *name,
            Self::Kubernetes => {
                push_absent(env, literal("RAY_AUTH_MODE", "token"));
                push_absent(env, literal("RAY_ENABLE_K8S_TOKEN_AUTH", "true"));
                let mounts = container.volume_mounts.get_or_insert_default();
                if mounts.iter().all(|mount| mount.mount_path != TOKEN_FOLDER) {
                    mounts.push(VolumeMount {
                        name: TOKEN_VOLUME.to_owned(),
                        mount_path: TOKEN_FOLDER.to_owned(),
                        read_only: Some(true),
                        ..VolumeMount::default()
                    });
                }
                return;
            }
        };
        push_absent(env, literal("RAY_AUTH_MODE", "token"));
        push_absent(env, secret_key("RAY_AUTH_TOKEN", secret, TOKEN_KEY));
    }

    /// Adds the volume that [`Auth::add`] mounts.
    pub fn add_volume(&self, spec: &mut PodSpec) {
        let volumes = spec.volumes.get_or_insert_default();
        if *self != Self::Kubernetes || volumes.iter().any(|volume| volume.name == TOKEN_VOLUME) {
            return;
        }
        volumes.push(Volume {
            name: TOKEN_VOLUME.to_owned(),
            projected: Some(ProjectedVolumeSource {
                sources: Some(vec![VolumeProjection {
                    service_account_token: Some(ServiceAccountTokenProjection {
                        path: "token".to_owned(),
                        ..ServiceAccountTokenProjection::default()
                    }),
                    ..VolumeProjection::default()
                }]),
                ..ProjectedVolumeSource::default()
            }),
            ..Volume::default()
        });
    }
}
