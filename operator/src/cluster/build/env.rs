//! The Ray container's environment (raycluster-behaviour 3.4): its order matters, and some names repeat on
//! purpose, since the kubelet lets the last one win.

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, SecretKeySelector};
use ray_api::meta::{label, operator_version};

use super::facts::{Crd, Facts};

/// A variable with a literal value.
pub(super) fn literal(name: &str, value: impl Into<String>) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.into()),
        value_from: None,
    }
}

/// A variable that reads a field of its pod.
pub(super) fn field(name: &str, path: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: path.to_owned(),
                api_version: None,
            }),
            ..EnvVarSource::default()
        }),
    }
}

/// A variable that reads a key of a Secret.
pub(super) fn secret_key(name: &str, secret: &str, key: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name: secret.to_owned(),
                key: key.to_owned(),
                optional: None,
            }),
            ..EnvVarSource::default()
        }),
    }
}

/// A variable that reads a label of its pod.
pub(super) fn pod_label(name: &str, label: &str) -> EnvVar {
    field(name, &format!("metadata.labels['{label}']"))
}

/// Whether the user (or an earlier step) set that variable.
pub(super) fn has(env: &[EnvVar], name: &str) -> bool {
    env.iter().any(|variable| variable.name == name)
}

/// Adds a variable unless its name is taken.
pub(super) fn push_absent(env: &mut Vec<EnvVar>, variable: EnvVar) {
    if !has(env, &variable.name) {
        env.push(variable);
    }
}

/// Where workers and init containers find the head.
pub(super) fn head_address(facts: &Facts<'_>) -> [EnvVar; 2] {
    let short = facts.fqdn.split('.').next().unwrap_or_default();
    [literal("FQ_RAY_IP", facts.fqdn.clone()), literal("RAY_IP", short)]
}

/// Adds what every Ray container gets, after the variables of single features.
pub(super) fn add_common(env: &mut Vec<EnvVar>, facts: &Facts<'_>, is_head: bool, start_command: &str) {
    if !is_head {
        env.extend(head_address(facts));
    }
    env.push(pod_label("RAY_CLUSTER_NAME", label::CLUSTER));
    env.push(field("RAY_CLUSTER_NAMESPACE", "metadata.namespace"));
    env.push(field("RAY_CLOUD_INSTANCE_ID", "metadata.name"));
    env.push(pod_label("RAY_NODE_TYPE_NAME", label::GROUP));
    env.push(literal("KUBERAY_GEN_RAY_START_CMD", start_command));
    push_absent(env, literal("RAY_PORT", facts.gcs_port));
    if facts.crd == Crd::RayService {
        // A RayService would rather fail a request than wait for a head that is gone.
        push_absent(env, literal("RAY_timeout_ms_task_wait_for_death_info", "0"));
        push_absent(env, literal("RAY_gcs_server_request_timeout_seconds", "5"));
        push_absent(env, literal("RAY_SERVE_KV_TIMEOUT_S", "5"));
    }
    let host = if is_head { "127.0.0.1" } else { &facts.fqdn };
    push_absent(env, literal("RAY_ADDRESS", format!("{host}:{}", facts.gcs_port)));
    push_absent(env, literal("RAY_USAGE_STATS_KUBERAY_IN_USE", "1"));
    if is_head {
        let tags = format!(
            "kuberay_version={};kuberay_crd={}",
            operator_version(),
            facts.crd.as_str()
        );
        env.push(literal("RAY_USAGE_STATS_EXTRA_TAGS", tags));
    }
    push_absent(env, literal("RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "1"));
}
