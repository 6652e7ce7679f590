//! What would make a compute template clash with itself once it is filled in; [`crate::validate`] has the other rules.

use super::Denial;
use super::fill::RESOURCE_FLAGS;
use super::overlay::SHARED_MEMORY_MOUNT;
use crate::template::ComputeTemplateSpec;

/// Everything in a spec that could not be filled in together. `extends` is [`super::check_extends`]'s.
#[must_use]
pub fn check_compute(spec: &ComputeTemplateSpec) -> Vec<Denial> {
    let mut denials = Vec::new();
    for (index, mount) in spec.volume_mounts.iter().enumerate() {
        // A parent may bring the volume.
        if spec.extends.is_none() && !spec.volumes.iter().any(|volume| volume.name == mount.name) {
            denials.push(Denial {
                field: format!("spec.volumeMounts[{index}].name"),
                message: format!("no volume {:?} in spec.volumes: add it", mount.name),
            });
        }
        if spec.shared_memory.is_some() && mount.mount_path == SHARED_MEMORY_MOUNT {
            denials.push(Denial {
                field: format!("spec.volumeMounts[{index}].mountPath"),
                message: "spec.sharedMemory is mounted there: keep one of them".to_owned(),
            });
        }
    }
    let flag = RESOURCE_FLAGS
        .iter()
        .find(|flag| spec.ray_start_params.contains_key(**flag));
    if let (Some(flag), false) = (flag, spec.ray_resources.is_empty()) {
        denials.push(Denial {
            field: format!("spec.rayStartParams[{flag}]"),
            message: "spec.rayResources sets Ray's resources: keep one of them".to_owned(),
        });
    }
    denials
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(spec: serde_json::Value) -> Vec<String> {
        let spec = serde_json::from_value(spec).unwrap();
        check_compute(&spec)
            .into_iter()
            .map(|denial| denial.field)
            .collect()
    }

    #[test]
    fn mounts_have_a_volume_and_a_place_of_their_own() {
        let spec = json!({"sharedMemory": "1Gi", "volumes": [{"name": "a"}],
            "volumeMounts": [{"name": "b", "mountPath": "/x"}, {"name": "a", "mountPath": "/dev/shm"}]});
        assert_eq!(
            fields(spec),
            ["spec.volumeMounts[0].name", "spec.volumeMounts[1].mountPath"]
        );
        let child = json!({"extends": "parent", "volumeMounts": [{"name": "b", "mountPath": "/x"}]});
        assert!(fields(child).is_empty());
    }

    #[test]
    fn ray_resources_are_set_in_one_place() {
        let spec = json!({"rayResources": {"slot": 1.0}, "rayStartParams": {"num-cpus": "0"}});
        assert_eq!(fields(spec), ["spec.rayStartParams[num-cpus]"]);
    }
}
