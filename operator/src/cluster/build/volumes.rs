//! Shared memory and the log folder (raycluster-behaviour 3.7).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, PodSpec, Volume, VolumeMount};

/// Ray's object store lives in shared memory; Docker's default of 64 MiB is far too small.
pub(super) fn add_shared_memory(spec: &mut PodSpec, params: &BTreeMap<String, String>) {
    let Some(ray) = spec.containers.first_mut() else {
        return;
    };
    if is_mounted(ray, "/dev/shm") || params.contains_key("plasma-directory") {
        return;
    }
    let resources = ray.resources.as_ref();
    let limit = resources.and_then(|resources| resources.limits.as_ref()?.get("memory"));
    let request = resources.and_then(|resources| resources.requests.as_ref()?.get("memory"));
    let size_limit = limit.or(request).cloned();
    mount(ray, "shared-mem", "/dev/shm");
    let source = EmptyDirVolumeSource {
        medium: Some("Memory".to_owned()),
        size_limit,
        ..EmptyDirVolumeSource::default()
    };
    add_empty_dir(spec, "shared-mem", source);
}

/// The autoscaler reads the head's logs and writes its own beside them.
pub(super) fn share_logs(spec: &mut PodSpec, containers: &[&str]) {
    let mut mounted = false;
    for (index, container) in spec.containers.iter_mut().enumerate() {
        let wants = index == 0 || containers.contains(&container.name.as_str());
        if wants && !is_mounted(container, "/tmp/ray") {
            mount(container, "ray-logs", "/tmp/ray");
            mounted = true;
        }
    }
    if mounted {
        add_empty_dir(spec, "ray-logs", EmptyDirVolumeSource::default());
    }
}

/// Adds a volume unless the user has one of that name.
fn add_empty_dir(spec: &mut PodSpec, name: &str, source: EmptyDirVolumeSource) {
    let volumes = spec.volumes.get_or_insert_default();
    if volumes.iter().all(|volume| volume.name != name) {
        volumes.push(Volume {
            name: name.to_owned(),
            empty_dir: Some(source),
            ..Volume::default()
        });
    }
}

fn is_mounted(container: &Container, path: &str) -> bool {
    container
        .volume_mounts
        .iter()
        .flatten()
        .any(|mount| mount.mount_path == path)
}

fn mount(container: &mut Container, name: &str, path: &str) {
    container.volume_mounts.get_or_insert_default().push(VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        ..VolumeMount::default()
    });
}
