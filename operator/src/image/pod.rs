//! Pods of builds: containers and volumes in the few shapes that they have, with the tightest rights each.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, EmptyDirVolumeSource, EnvVar, KeyToPath,
    PodSecurityContext, PodSpec, ResourceRequirements, SeccompProfile, SecretVolumeSource, SecurityContext,
    Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use ray_api::template::v1alpha1::ImageTemplateSpec;
use serde_json::json;

use super::args::ImageArgs;

/// Folder with the logins of the build; the Dockerfile names a file in it.
pub(super) const BUILD_LOGINS: &str = "/run/ray-image";
/// Folder with the login of the push.
pub(super) const PUSH_LOGINS: &str = "/run/ray-push";
/// Folder with the certificates of registries.
pub(super) const CERTIFICATES: &str = "/run/ray-certificates";
/// Where the helper image has this binary.
const BINARY: &str = "/usr/local/bin/ray-operator";
/// User of the helper steps.
const NON_ROOT: i64 = 65532;
/// What unpacking and running an image needs; the baseline Pod Security level allows all of them.
const CAPABILITIES: [&str; 6] = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETFCAP", "SETGID", "SETUID"];
/// Node label of a node's processor.
const ARCHITECTURE: &str = "kubernetes.io/arch";

/// Says in one JSON line what an image holds. Runs on every Python that ever had a Ray.
const VERIFY: &str = r#"python=$(command -v python3 || command -v python) || { echo "the image has no Python"; exit 3; }
exec "$python" -c '
import json, os, platform, pwd
import ray
try:
    user = pwd.getpwuid(os.getuid()).pw_name
except KeyError:
    user = str(os.getuid())
names = [entry.pw_name for entry in pwd.getpwall()]
found = {"ray": ray.__version__, "python": platform.python_version(), "user": user, "uid": os.getuid(),
         "has_ray_user": "ray" in names}
with open("/dev/termination-log", "w") as log:
    json.dump(found, log)
'"#;

/// Collects volumes.
#[derive(Default)]
pub(super) struct Builder {
    volumes: Vec<Volume>,
}

impl Builder {
    /// A folder that steps share; in memory where it holds a credential.
    pub(super) fn empty(&mut self, name: &str, in_memory: bool) {
        let source = EmptyDirVolumeSource {
            medium: in_memory.then(|| "Memory".to_owned()),
            size_limit: in_memory.then(|| Quantity("1Mi".to_owned())),
            ..EmptyDirVolumeSource::default()
        };
        self.volumes.push(Volume {
            name: name.to_owned(),
            empty_dir: Some(source),
            ..Volume::default()
        });
    }

    /// A volume with these keys of a ConfigMap.
    pub(super) fn config_map(&mut self, volume: &str, name: &str, keys: impl Iterator<Item = String>) {
        self.volumes.push(Volume {
            name: volume.to_owned(),
            config_map: Some(ConfigMapVolumeSource {
                name: name.to_owned(),
                items: Some(keys.map(|key| same_path(&key)).collect()),
                ..ConfigMapVolumeSource::default()
            }),
            ..Volume::default()
        });
    }

    /// A volume with one key of a Secret; returns its name, which is not the Secret's.
    pub(super) fn secret(&mut self, name: &str, key: &str) -> String {
        let volume = format!("secret-{}", self.volumes.len());
        self.volumes.push(Volume {
            name: volume.clone(),
            secret: Some(SecretVolumeSource {
                secret_name: Some(name.to_owned()),
                // No other key is ever readable.
                items: Some(vec![same_path(key)]),
                ..SecretVolumeSource::default()
            }),
            ..Volume::default()
        });
        volume
    }

    pub(super) fn finish(self, steps: Vec<Container>, main: Container, spec: &ImageTemplateSpec) -> PodSpec {
        let mut node_selector: BTreeMap<_, _> = spec.node_selector.clone();
        // Nothing here emulates: an image for arm64 is built, and verified, on arm64.
        if let Some(architecture) = spec
            .platform
            .as_deref()
            .and_then(|platform| platform.split('/').nth(1))
        {
            node_selector
                .entry(ARCHITECTURE.to_owned())
                .or_insert_with(|| architecture.to_owned());
        }
        PodSpec {
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            restart_policy: Some("Never".to_owned()),
            // A build has nothing to save when it is told to end.
            termination_grace_period_seconds: Some(5),
            security_context: Some(PodSecurityContext {
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    localhost_profile: None,
                }),
                ..PodSecurityContext::default()
            }),
            init_containers: (!steps.is_empty()).then_some(steps),
            containers: vec![main],
            volumes: (!self.volumes.is_empty()).then_some(self.volumes),
            node_selector: (!node_selector.is_empty()).then_some(node_selector),
            tolerations: (!spec.tolerations.is_empty()).then(|| spec.tolerations.clone()),
            ..PodSpec::default()
        }
    }
}

/// A key of a volume as the file of its name.
fn same_path(key: &str) -> KeyToPath {
    KeyToPath {
        key: key.to_owned(),
        path: key.to_owned(),
        ..KeyToPath::default()
    }
}

/// A container that is being put together.
pub(super) struct Step(Container);

impl Step {
    pub(super) fn mount(mut self, volume: &str, path: &str, read_only: bool) -> Self {
        self.0.volume_mounts.get_or_insert_default().push(VolumeMount {
            name: volume.to_owned(),
            mount_path: path.to_owned(),
            read_only: read_only.then_some(true),
            ..VolumeMount::default()
        });
        self
    }

    pub(super) fn env(mut self, name: &str, value: &str) -> Self {
        self.0.env.get_or_insert_default().push(EnvVar {
            name: name.to_owned(),
            value: Some(value.to_owned()),
            value_from: None,
        });
        self
    }

    /// Gives it what unpacking an image and running commands in it needs.
    pub(super) fn with_capabilities(mut self) -> Self {
        let context = self.0.security_context.get_or_insert_default();
        context.capabilities = Some(Capabilities {
            drop: Some(vec!["ALL".to_owned()]),
            add: Some(CAPABILITIES.map(str::to_owned).to_vec()),
        });
        self
    }

    /// Root without a capability: the executor is root, and what it writes may be for its owner alone.
    pub(super) fn with_root_user(mut self) -> Self {
        let context = self.0.security_context.get_or_insert_default();
        context.run_as_non_root = None;
        context.run_as_user = Some(0);
        context.run_as_group = Some(0);
        self
    }

    pub(super) fn into_container(self) -> Container {
        self.0
    }
}

/// A step of our own image: non-root on a read-only root.
pub(super) fn helper(step: &str, args: &ImageArgs, arguments: &[&str]) -> Step {
    let fixed = ["helper", step].into_iter();
    let mut container = container(step, &args.helper_image, small_resources());
    container.command = Some(vec![BINARY.to_owned()]);
    container.args = Some(
        fixed
            .chain(arguments.iter().copied())
            .map(str::to_owned)
            .collect(),
    );
    let context = container.security_context.get_or_insert_default();
    context.run_as_non_root = Some(true);
    context.run_as_user = Some(NON_ROOT);
    context.run_as_group = Some(NON_ROOT);
    context.read_only_root_filesystem = Some(true);
    Step(container)
}

/// A step of the executor, which is root in its container.
pub(super) fn executor(
    step: &str,
    args: &ImageArgs,
    arguments: Vec<String>,
    resources: ResourceRequirements,
) -> Step {
    let mut container = container(step, &args.builder_image, resources);
    container.args = Some(arguments);
    Step(container)
}

/// The container that starts a built image as its own user.
pub(super) fn verifier(image: &str) -> Container {
    let resources = json!({"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}});
    let mut container = container(
        "verify",
        image,
        serde_json::from_value(resources).unwrap_or_default(),
    );
    container.command = Some(vec!["/bin/sh".to_owned(), "-c".to_owned(), VERIFY.to_owned()]);
    container
}

pub(super) fn small_resources() -> ResourceRequirements {
    let resources = json!({"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}});
    serde_json::from_value(resources).unwrap_or_default()
}

fn container(name: &str, image: &str, resources: ResourceRequirements) -> Container {
    Container {
        name: name.to_owned(),
        image: Some(image.to_owned()),
        resources: Some(resources),
        // What failed is said by the last lines of the log, without a right to read logs.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                add: None,
            }),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}
