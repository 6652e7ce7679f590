//! `wait-gcs-ready`: holds a worker until the head answers (raycluster-behaviour 3.6).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::command::shell;
use super::facts::Facts;

/// Name of the init container; one of the user's of that name takes its place.
pub(super) const NAME: &str = "wait-gcs-ready";

/// Seconds for which the health check's output is hidden: until then the head is just starting.
const QUIET: u32 = 120;

/// The init container for workers like this Ray container, before anything was added to it.
pub(super) fn container(ray: &Container, facts: &Facts<'_>) -> Container {
    Container {
        name: NAME.to_owned(),
        image: ray.image.clone(),
        image_pull_policy: ray.image_pull_policy.clone(),
        security_context: ray.security_context.clone(),
        command: Some(shell(facts)),
        args: Some(vec![script(facts)]),
        env: ray.env.clone(),
        volume_mounts: ray.volume_mounts.clone(),
        resources: Some(resources(ray.resources.as_ref(), facts)),
        ..Container::default()
    }
}

/// Asks every second. A port that does not open costs nothing; only then is the slow health check worth it.
fn script(facts: &Facts<'_>) -> String {
    let (host, port, address) = (&facts.fqdn, facts.gcs_port, facts.gcs_address());
    format!(
        r#"SECONDS=0; said=0
until timeout 2 bash -c "</dev/tcp/{host}/{port}" 2>/dev/null && check=$(ray health-check --address {address} 2>&1); do
  if (( SECONDS >= said )); then
    said=$((SECONDS + 10))
    echo "waiting for the head's GCS at {address} for $SECONDS s"
    if (( SECONDS > {QUIET} )); then echo "$check"; fi
  fi
  sleep 1
done
echo "the head's GCS at {address} answers""#
    )
}

/// The Ray container's own CPU and memory, which cost the pod nothing since init containers run before it;
/// where it names none, the operator's defaults. Never GPUs or other devices.
fn resources(ray: Option<&ResourceRequirements>, facts: &Facts<'_>) -> ResourceRequirements {
    let args = &facts.config.args;
    let pick = |list: Option<&BTreeMap<String, Quantity>>, name: &str| list?.get(name).cloned();
    let limits = ray.and_then(|ray| ray.limits.as_ref());
    let requests = ray.and_then(|ray| ray.requests.as_ref());
    let mut result = ResourceRequirements::default();
    for (name, request, limit) in [
        ("cpu", &args.init_container_cpu, &args.init_container_cpu_limit),
        (
            "memory",
            &args.init_container_memory,
            &args.init_container_memory_limit,
        ),
    ] {
        let (request, limit) = match (pick(requests, name), pick(limits, name)) {
            (None, None) => (Some(Quantity(request.clone())), Some(Quantity(limit.clone()))),
            // A request without a limit may use what the node has, and so may the check.
            own => own,
        };
        if let Some(request) = request {
            result
                .requests
                .get_or_insert_default()
                .insert(name.to_owned(), request);
        }
        if let Some(limit) = limit {
            result
                .limits
                .get_or_insert_default()
                .insert(name.to_owned(), limit);
        }
    }
    result
}
