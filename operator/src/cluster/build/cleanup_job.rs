//! The Job that removes a deleted cluster's state from Redis (raycluster-behaviour 3.10).

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{PodTemplateSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use ray_api::meta::{APP_NAME, CREATED_BY, NODE_TYPE_REDIS_CLEANUP, label};
use ray_api::names;

use super::env::literal;
use super::facts::Facts;
use super::{head_pod, owned};

/// Seconds that the Job may take.
const DEADLINE: i64 = 300;

/// Asks Ray's own helper to delete the cluster's keys. A Redis that never saw the cluster has nothing to
/// delete, which is success: a cluster whose head never started must be deletable.
const SCRIPT: &str = r#"python - <<'EOF'
import os, sys
from urllib.parse import urlparse
from ray._private.gcs_utils import cleanup_redis_storage
address = os.environ["RAY_REDIS_ADDRESS"].split(",")[0]
redis = urlparse(address if "://" in address else "redis://" + address)
done = cleanup_redis_storage(
    host=redis.hostname,
    port=redis.port or 6379,
    username=os.environ.get("REDIS_USERNAME", redis.username or ""),
    password=os.environ.get("REDIS_PASSWORD", redis.password or ""),
    use_ssl=redis.scheme == "rediss",
    storage_namespace=os.environ["RAY_external_storage_namespace"],
)
sys.exit(0 if done else 1)
EOF"#;

/// Name of the Job.
#[must_use]
pub fn cleanup_job_name(cluster: &str) -> String {
    names::check_label(&format!("{cluster}-redis-cleanup"))
}

/// The Job: the head's pod, but with one container that only cleans up.
#[must_use]
pub fn cleanup_job(facts: &Facts<'_>) -> Job {
    let head = head_pod(facts);
    let mut labels = head.metadata.labels.unwrap_or_default();
    labels.insert(label::NODE_TYPE.to_owned(), NODE_TYPE_REDIS_CLEANUP.to_owned());
    let mut spec = head.spec.unwrap_or_default();
    spec.containers.truncate(1);
    spec.restart_policy = Some("Never".to_owned());
    for container in &mut spec.containers {
        container.liveness_probe = None;
        container.readiness_probe = None;
        container.startup_probe = None;
        container.lifecycle = None;
        container.command = Some(["/bin/bash", "-c", "--"].map(str::to_owned).to_vec());
        container.args = Some(vec![SCRIPT.to_owned()]);
        container.resources = Some(resources());
        let env = container.env.get_or_insert_default();
        env.push(literal("RAY_redis_db_connect_retries", "120"));
        env.push(literal("RAY_redis_db_connect_wait_milliseconds", "500"));
    }
    let job_labels = [
        (label::CLUSTER, facts.name),
        (label::NODE_TYPE, NODE_TYPE_REDIS_CLEANUP),
        (label::APP_NAME, APP_NAME),
        (label::APP_CREATED_BY, CREATED_BY),
    ];
    Job {
        metadata: owned(facts, cleanup_job_name(facts.name), &job_labels),
        spec: Some(JobSpec {
            backoff_limit: Some(0),
            active_deadline_seconds: Some(DEADLINE),
            template: PodTemplateSpec {
                metadata: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                    labels: Some(labels),
                    annotations: head.metadata.annotations,
                    ..Default::default()
                }),
                spec: Some(spec),
            },
            ..JobSpec::default()
        }),
        status: None,
    }
}

fn resources() -> ResourceRequirements {
    let amounts = [("cpu", "200m"), ("memory", "512Mi")]
        .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())));
    ResourceRequirements {
        requests: Some(amounts.clone().into()),
        limits: Some(amounts.into()),
        claims: None,
    }
}
