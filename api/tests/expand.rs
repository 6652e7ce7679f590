//! Expansion by example: each rule of the design on small clusters.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use ray_api::expand::{
    Compute, Denial, Expanded, Image, Needed, Record, Request, Templates, expand, references, strip,
};
use serde_json::{Value, json};

fn compute(namespace: Option<&str>, name: &str, spec: Value) -> (Needed, Compute) {
    let metadata =
        json!({"name": name, "namespace": namespace, "uid": format!("uid-{name}"), "generation": 1});
    match namespace {
        Some(namespace) => {
            let object = json!({"apiVersion": "templates.ray.io/v1alpha1", "kind": "ComputeTemplate", "metadata": metadata, "spec": spec});
            let template: ray_api::template::ComputeTemplate = serde_json::from_value(object).unwrap();
            let needed = Needed::Compute {
                namespace: namespace.into(),
                name: name.into(),
            };
            (needed, Compute::from(&template))
        }
        None => {
            let object = json!({"apiVersion": "templates.ray.io/v1alpha1", "kind": "ClusterComputeTemplate", "metadata": metadata, "spec": spec});
            let template: ray_api::template::ClusterComputeTemplate = serde_json::from_value(object).unwrap();
            (
                Needed::ClusterCompute { name: name.into() },
                Compute::from(&template),
            )
        }
    }
}

fn image(name: &str, digest: Option<&str>) -> (Needed, Image) {
    let status =
        digest.map(|digest| json!({"image": format!("reg/{name}@sha256:{digest}"), "rayVersion": "2.60.0"}));
    let object = json!({"apiVersion": "templates.ray.io/v1alpha1", "kind": "ImageTemplate",
        "metadata": {"name": name, "namespace": "team-a", "uid": format!("uid-{name}"), "generation": 1},
        "spec": {"baseImage": "rayproject/ray:2.60.0", "runPullSecrets": ["pull"]}, "status": status});
    let template: ray_api::template::ImageTemplate = serde_json::from_value(object).unwrap();
    (
        Needed::Image {
            namespace: "team-a".into(),
            name: name.into(),
        },
        Image::from(&template),
    )
}

/// A world of templates, read the way callers do.
#[derive(Default)]
struct World {
    compute: Vec<(Needed, Compute)>,
    image: Vec<(Needed, Image)>,
}

impl World {
    fn read(&self, request: &Request<'_>) -> Templates {
        let mut templates = Templates::default();
        templates.suggest_from(self.compute.iter().map(|(needed, _)| needed.clone()));
        templates.suggest_from(self.image.iter().map(|(needed, _)| needed.clone()));
        loop {
            let needed = references(request, &templates);
            if needed.is_empty() {
                return templates;
            }
            for needed in needed {
                if let Needed::Image { .. } = needed {
                    let found = self
                        .image
                        .iter()
                        .find(|(n, _)| *n == needed)
                        .map(|(_, found)| found.clone());
                    templates.insert_image(needed, found);
                } else {
                    let found = self
                        .compute
                        .iter()
                        .find(|(n, _)| *n == needed)
                        .map(|(_, found)| found.clone());
                    templates.insert_compute(needed, found);
                }
            }
        }
    }

    fn expand(&self, object: &Value, old: Option<&Value>) -> Result<Expanded, Vec<Denial>> {
        self.write(Request {
            namespace: "team-a",
            object,
            old_object: old,
            dry_run: false,
            field_manager: None,
        })
    }

    fn write(&self, request: Request<'_>) -> Result<Expanded, Vec<Denial>> {
        expand(&request, &self.read(&request))
    }
}

fn world() -> World {
    World {
        compute: vec![
            compute(
                Some("team-a"),
                "small",
                json!({
                    "resources": {"limits": {"cpu": "2", "memory": "4Gi"}, "requests": {"cpu": "1"}},
                    "nodeSelector": {"pool": "a"}, "env": [{"name": "A", "value": "1"}],
                    "tolerations": [{"key": "gpu", "operator": "Exists"}], "sharedMemory": "1Gi",
                    "volumes": [{"name": "scratch", "emptyDir": {}}],
                    "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                    "rayResources": {"fast": 2.0, "slot": 0.5}, "numOfHosts": 4,
                }),
            ),
            compute(
                None,
                "a100",
                json!({"extends": "gpu", "resources": {"limits": {"nvidia.com/gpu": "8"}}}),
            ),
            compute(
                None,
                "gpu",
                json!({"resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "8"}}, "runtimeClassName": "nvidia"}),
            ),
        ],
        image: vec![image("torch", Some("one")), image("slow", None)],
    }
}

fn cluster() -> Value {
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "train"},
        "spec": {
            "imageTemplate": "torch",
            "headGroupSpec": {"computeTemplate": "small"},
            "workerGroupSpecs": [{"groupName": "gpu", "replicas": 2, "computeTemplate": "a100"}],
        },
    })
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    *object.pointer_mut(pointer).unwrap() = value;
    object
}

/// What the template controller writes, and any other write that changes no value.
fn touch(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["annotations"]["templates.ray.io/gate-lift"] = json!("now");
    object
}

#[test]
fn eight_lines_become_a_full_cluster_and_back() {
    let expanded = world().expand(&cluster(), None).unwrap();
    let mut shown = expanded.object.clone();
    let record = shown["metadata"]["annotations"]["templates.ray.io/expansion"].take();
    shown["metadata"]["annotations"]["templates.ray.io/expansion"] =
        serde_json::from_str(record.as_str().unwrap()).unwrap();
    insta::assert_yaml_snapshot!(shown);
    assert_eq!(
        expanded.warnings,
        ["spec.headGroupSpec.computeTemplate: numOfHosts of the template means nothing in the head group"]
    );
    assert_eq!(strip(&expanded.object), cluster());
    assert_eq!(
        world().expand(&expanded.object, None).unwrap().object,
        expanded.object
    );
}

#[test]
fn what_the_user_wrote_wins_by_unit() {
    let own = json!({"spec": {
        "containers": [
            {"name": "mine", "resources": {"requests": {"cpu": "3"}}, "env": [{"name": "A", "value": "own"}, {"name": "B", "value": "2"}],
             "volumeMounts": [{"name": "x", "mountPath": "/dev/shm"}]},
            {"name": "sidecar", "image": "other"}],
        "volumes": [{"name": "x", "emptyDir": {}}], "nodeSelector": {"zone": "z"}}});
    let mut object = cluster();
    object["spec"]["headGroupSpec"]["template"] = own.clone();
    let expanded = world().expand(&object, None).unwrap();
    let spec = &expanded.object["spec"]["headGroupSpec"]["template"]["spec"];
    let ray = &spec["containers"][0];
    assert_eq!(
        ray["resources"],
        json!({"requests": {"cpu": "3"}, "limits": {"memory": "4Gi"}})
    );
    assert_eq!(
        ray["env"],
        json!([{"name": "A", "value": "own"}, {"name": "B", "value": "2"}])
    );
    assert_eq!(ray["image"], "reg/torch@sha256:one");
    assert_eq!(spec["containers"][1], own["spec"]["containers"][1]);
    assert_eq!(spec["nodeSelector"], json!({"zone": "z", "pool": "a"}));
    assert_eq!(
        spec["volumes"],
        json!([{"name": "x", "emptyDir": {}}, {"name": "scratch", "emptyDir": {}}])
    );
    assert!(
        expanded
            .warnings
            .iter()
            .any(|w| w.contains("cpu") && w.contains("/dev/shm")),
        "{:?}",
        expanded.warnings
    );
    assert_eq!(strip(&expanded.object), object);
}

#[test]
fn a_volume_of_that_name_for_something_else_is_denied() {
    let mut object = cluster();
    object["spec"]["headGroupSpec"]["template"] =
        json!({"spec": {"volumes": [{"name": "scratch", "hostPath": {"path": "/x"}}]}});
    let denials = world().expand(&object, None).unwrap_err();
    assert_eq!(denials.len(), 1);
    assert_eq!(denials[0].field, "spec.headGroupSpec");
    assert!(denials[0].message.contains("volume scratch"));
}

#[test]
fn a_missing_template_is_denied_with_near_names() {
    let object = with(
        cluster(),
        "/spec/workerGroupSpecs/0/computeTemplate",
        json!("a10"),
    );
    let denials = world().expand(&object, None).unwrap_err();
    assert_eq!(
        denials[0].to_string(),
        "spec.workerGroupSpecs[0].computeTemplate: ComputeTemplate team-a/a10 not found, and no \
         ClusterComputeTemplate of that name; did you mean `a100`?"
    );
    let request = Request {
        namespace: "team-a",
        object: &object,
        old_object: None,
        dry_run: true,
        field_manager: None,
    };
    let expanded = world().write(request).unwrap();
    assert!(expanded.warnings.iter().any(|w| w.contains("a10 not found")));
    assert!(
        expanded
            .object
            .pointer("/spec/headGroupSpec/template/spec/containers/0")
            .is_some()
    );
}

#[test]
fn re_applying_bare_groups_keeps_the_values_of_a_deleted_template() {
    let old = world().expand(&cluster(), None).unwrap().object;
    let mut bare = old.clone();
    bare["spec"]["workerGroupSpecs"] = cluster()["spec"]["workerGroupSpecs"].clone();
    let nothing = World::default();
    assert_eq!(nothing.expand(&bare, Some(&old)).unwrap().object, old);
    // kubectl replace: neither values nor record.
    assert_eq!(nothing.expand(&cluster(), Some(&old)).unwrap().object, old);
}

#[test]
fn an_edited_template_reaches_pinned_clusters_by_refresh_only() {
    let old = world().expand(&cluster(), None).unwrap().object;
    let mut world = world();
    world.compute[0] = compute(
        Some("team-a"),
        "small",
        json!({"resources": {"limits": {"cpu": "16"}}}),
    );
    world.image[0] = image("torch", Some("two"));
    assert_eq!(world.expand(&touch(&old), Some(&old)).unwrap().object, old);

    let mut refresh = old.clone();
    refresh["metadata"]["annotations"]["templates.ray.io/refresh"] = json!("1");
    let expanded = world.expand(&refresh, Some(&old)).unwrap();
    let head = &expanded.object["spec"]["headGroupSpec"]["template"]["spec"];
    assert_eq!(
        head["containers"][0]["resources"],
        json!({"limits": {"cpu": "16"}})
    );
    assert_eq!(head["containers"][0]["image"], "reg/torch@sha256:two");
    assert_eq!(head.get("nodeSelector"), None);
    assert!(
        expanded
            .warnings
            .iter()
            .any(|w| w.contains("new workers would run another Ray")),
        "{:?}",
        expanded.warnings
    );
    // The annotation stays; it is not a new value the next time.
    assert_eq!(
        World::default()
            .expand(&touch(&expanded.object), Some(&expanded.object))
            .unwrap()
            .object,
        expanded.object
    );
}

#[test]
fn a_removed_reference_is_taken_back_and_a_pruned_one_is_not() {
    let old = world().expand(&cluster(), None).unwrap().object;
    let mut removed = old.clone();
    removed["spec"]["headGroupSpec"]
        .as_object_mut()
        .unwrap()
        .remove("computeTemplate");
    let expanded = world().expand(&removed, Some(&old)).unwrap();
    let head = &expanded.object["spec"]["headGroupSpec"]["template"]["spec"];
    assert_eq!(
        head,
        &json!({"containers": [{"name": "ray-head", "image": "reg/torch@sha256:one"}], "imagePullSecrets": [{"name": "pull"}]})
    );

    // KubeRay's CRD prunes the fields even on read.
    let mut pruned = old.clone();
    for path in ["/spec", "/spec/headGroupSpec", "/spec/workerGroupSpecs/0"] {
        let fields = pruned.pointer_mut(path).unwrap().as_object_mut().unwrap();
        fields.remove("computeTemplate");
        fields.remove("imageTemplate");
    }
    let kept = world().expand(&touch(&pruned), Some(&pruned)).unwrap();
    assert_eq!(kept.object, pruned);
    assert!(kept.warnings.iter().any(|w| w.contains("stays")));
}

#[test]
fn a_value_that_the_user_changed_stays_when_the_reference_goes() {
    let old = world().expand(&cluster(), None).unwrap().object;
    let cpu = "/spec/headGroupSpec/template/spec/containers/0/resources/limits/cpu";
    let edited = world()
        .expand(&with(old.clone(), cpu, json!("7")), Some(&old))
        .unwrap()
        .object;
    assert_eq!(edited.pointer(cpu), Some(&json!("7")));
    let mut removed = edited.clone();
    removed["spec"]["headGroupSpec"]
        .as_object_mut()
        .unwrap()
        .remove("computeTemplate");
    let expanded = world().expand(&removed, Some(&edited)).unwrap().object;
    assert_eq!(
        expanded.pointer("/spec/headGroupSpec/template/spec/containers/0/resources"),
        Some(&json!({"limits": {"cpu": "7"}}))
    );
    // And a re-apply that drops the edit gets the given value again, not none.
    let reapplied = world().expand(&cluster(), Some(&edited)).unwrap().object;
    assert_eq!(reapplied.pointer(cpu), Some(&json!("2")));
}

#[test]
fn values_that_the_manifest_names_now_are_the_users() {
    let old = world().expand(&cluster(), None).unwrap().object;
    let mut inlined = old.clone();
    let head = inlined["spec"]["headGroupSpec"].as_object_mut().unwrap();
    head.remove("computeTemplate");
    inlined["metadata"]["managedFields"] = json!([{"manager": "me", "operation": "Apply", "fieldsV1":
        {"f:spec": {"f:headGroupSpec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"ray-head\"}":
            {".": {}, "f:name": {}, "f:resources": {"f:limits": {"f:cpu": {}}}}}}}}}}}]);
    let expanded = world().expand(&inlined, Some(&old)).unwrap().object;
    assert_eq!(
        expanded.pointer("/spec/headGroupSpec/template/spec/containers/0/resources"),
        Some(&json!({"limits": {"cpu": "2"}}))
    );
}

#[test]
fn the_autoscalers_patch_and_a_re_apply_both_keep_its_replicas() {
    let mut object = cluster();
    object["spec"]["enableInTreeAutoscaling"] = json!(true);
    object["spec"]["workerGroupSpecs"][0]
        .as_object_mut()
        .unwrap()
        .remove("replicas");
    let old = world().expand(&object, None).unwrap().object;
    let mut scaled = old.clone();
    scaled["spec"]["workerGroupSpecs"][0]["replicas"] = json!(3);
    assert_eq!(
        World::default().expand(&scaled, Some(&old)).unwrap().object,
        scaled
    );
    let down = with(scaled.clone(), "/spec/workerGroupSpecs/0/replicas", json!(0));
    assert_eq!(
        World::default().expand(&down, Some(&scaled)).unwrap().object,
        down
    );

    let mut reapply = scaled.clone();
    reapply["spec"]["workerGroupSpecs"] = object["spec"]["workerGroupSpecs"].clone();
    reapply["spec"]["workerGroupSpecs"][0]["replicas"] = json!(0); // the CRD's default
    assert_eq!(
        World::default().expand(&reapply, Some(&scaled)).unwrap().object,
        scaled
    );
    reapply["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] =
        json!(json!({"spec": {"workerGroupSpecs": [{"groupName": "gpu", "replicas": 0}]}}).to_string());
    let expanded = World::default().expand(&reapply, Some(&scaled)).unwrap().object;
    assert_eq!(expanded["spec"]["workerGroupSpecs"][0]["replicas"], 0);
}

#[test]
fn an_image_that_is_not_there_gates_the_cluster_until_it_is() {
    let object = with(cluster(), "/spec/imageTemplate", json!("slow"));
    let gated = world().expand(&object, None).unwrap();
    assert_eq!(gated.object["spec"]["suspend"], true);
    assert_eq!(
        gated.object["metadata"]["labels"]["templates.ray.io/gated"],
        "true"
    );
    assert_eq!(strip(&gated.object), object);
    assert!(
        gated
            .warnings
            .iter()
            .any(|w| w.contains("is suspended until ImageTemplate team-a/slow has an image"))
    );
    // Again and again, as re-applies do.
    assert_eq!(
        world().expand(&object, Some(&gated.object)).unwrap().object,
        gated.object
    );

    let mut world = world();
    world.image[1] = image("slow", Some("new"));
    let mut touched = gated.object.clone();
    touched["metadata"]["annotations"]["templates.ray.io/gate-lift"] = json!("sha256:new");
    let lifted = world.expand(&touched, Some(&gated.object)).unwrap().object;
    assert_eq!(lifted["spec"]["suspend"], false);
    assert_eq!(lifted.pointer("/metadata/labels"), None);
    assert_eq!(
        lifted.pointer("/metadata/annotations/templates.ray.io~1gate-lift"),
        None
    );
    assert_eq!(
        lifted.pointer("/spec/headGroupSpec/template/spec/containers/0/image"),
        Some(&json!("reg/slow@sha256:new"))
    );
    assert_eq!(lifted["spec"]["rayVersion"], "2.60.0");
    assert_eq!(strip(&lifted), object);
    assert_eq!(
        World::default().expand(&object, Some(&lifted)).unwrap().object,
        lifted
    );
}

#[test]
fn a_users_own_suspend_is_never_lifted() {
    let mut object = with(cluster(), "/spec/imageTemplate", json!("slow"));
    object["spec"]["suspend"] = json!(true);
    let gated = world().expand(&object, None).unwrap().object;
    let mut world = world();
    world.image[1] = image("slow", Some("new"));
    let lifted = world.expand(&touch(&gated), Some(&gated)).unwrap().object;
    assert_eq!(lifted["spec"]["suspend"], true);
    assert_eq!(lifted.pointer("/metadata/labels"), None);
}

#[test]
fn a_suspend_that_the_user_asks_for_during_the_gate_is_kept() {
    let object = with(cluster(), "/spec/imageTemplate", json!("slow"));
    let mut gated = world().expand(&object, None).unwrap().object;
    gated["metadata"]["managedFields"] =
        json!([{"manager": "me", "operation": "Apply", "fieldsV1": {"f:spec": {"f:suspend": {}}}}]);
    let mut world = world();
    world.image[1] = image("slow", Some("new"));
    assert_eq!(
        world.expand(&touch(&gated), Some(&gated)).unwrap().object["spec"]["suspend"],
        true
    );
}

#[test]
fn an_explicit_false_is_gated_and_comes_back() {
    let mut object = with(cluster(), "/spec/imageTemplate", json!("slow"));
    object["spec"]["suspend"] = json!(false);
    let gated = world().expand(&object, None).unwrap().object;
    assert_eq!(gated["spec"]["suspend"], true);
    assert_eq!(strip(&gated), object);
    let mut world = world();
    world.image[1] = image("slow", Some("new"));
    let lifted = world.expand(&touch(&gated), Some(&gated)).unwrap().object;
    assert_eq!(lifted["spec"]["suspend"], false);
}

#[test]
fn a_queued_cluster_is_left_to_kueue() {
    let mut object = with(cluster(), "/spec/imageTemplate", json!("slow"));
    object["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "q"});
    let gated = world().expand(&object, None).unwrap().object;
    assert_eq!(gated.pointer("/spec/suspend"), None);
    let denial = ray_api::expand::check_gate(&gated).unwrap();
    assert_eq!(denial.field, "spec.suspend");
    let mut suspended = gated.clone();
    suspended["spec"]["suspend"] = json!(true);
    assert_eq!(ray_api::expand::check_gate(&suspended), None);
    let mut world = world();
    world.image[1] = image("slow", Some("new"));
    assert_eq!(
        world.expand(&touch(&suspended), Some(&suspended)).unwrap().object["spec"]["suspend"],
        true
    );
}

#[test]
fn a_running_cluster_is_never_suspended_for_an_image_to_come() {
    let old = world().expand(&cluster(), None).unwrap().object;
    let changed = with(old.clone(), "/spec/imageTemplate", json!("slow"));
    let waiting = world().expand(&changed, Some(&old)).unwrap().object;
    assert_eq!(waiting.pointer("/spec/suspend"), None);
    assert_eq!(waiting["metadata"]["labels"]["templates.ray.io/gated"], "true");
    assert_eq!(
        waiting.pointer("/spec/headGroupSpec/template/spec/containers/0/image"),
        Some(&json!("reg/torch@sha256:one"))
    );
    let mut world = world();
    world.image[1] = image("slow", Some("new"));
    let filled = world.expand(&touch(&waiting), Some(&waiting)).unwrap().object;
    assert_eq!(
        filled.pointer("/spec/headGroupSpec/template/spec/containers/0/image"),
        Some(&json!("reg/slow@sha256:new"))
    );
}

#[test]
fn annotations_stand_in_for_fields_and_kuberays_default_host_count_gives_way() {
    let object = json!({"metadata": {"name": "c", "annotations": {"templates.ray.io/image-template": "torch"}}, "spec": {
        "headGroupSpec": {"template": {"metadata": {"annotations": {"templates.ray.io/compute-template": "a100"}}}},
        "workerGroupSpecs": [{"groupName": "w", "numOfHosts": 1, "template": {"metadata": {"annotations": {"templates.ray.io/compute-template": "small"}}}}]}});
    let expanded = world().expand(&object, None).unwrap().object;
    assert_eq!(expanded["spec"]["workerGroupSpecs"][0]["numOfHosts"], 4);
    assert_eq!(
        expanded.pointer("/spec/headGroupSpec/template/spec/runtimeClassName"),
        Some(&json!("nvidia"))
    );
    assert_eq!(strip(&expanded), object);
    assert_eq!(
        World::default().expand(&object, Some(&expanded)).unwrap().object,
        expanded
    );
}

#[test]
fn ray_resources_give_way_to_flags_that_set_them() {
    let mut object = cluster();
    object["spec"]["headGroupSpec"]["rayStartParams"] = json!({"num-cpus": "0"});
    let expanded = world().expand(&object, None).unwrap();
    assert_eq!(expanded.object["spec"]["headGroupSpec"].get("resources"), None);
    assert!(
        expanded
            .warnings
            .iter()
            .any(|w| w.contains("rayStartParams sets num-cpus"))
    );
    let record = Record::of(&expanded.object).unwrap();
    assert_eq!(record.head.compute.unwrap().uid.as_deref(), Some("uid-small"));
}

#[test]
fn circles_and_depth_of_extends_are_named() {
    let mut world = world();
    world
        .compute
        .push(compute(Some("team-a"), "x", json!({"extends": "y"})));
    world
        .compute
        .push(compute(Some("team-a"), "y", json!({"extends": "x"})));
    let object = with(cluster(), "/spec/headGroupSpec/computeTemplate", json!("x"));
    let denials = world.expand(&object, None).unwrap_err();
    assert!(
        denials[0].message.contains("y extends x, which leads back to it"),
        "{}",
        denials[0].message
    );
}

#[test]
fn an_unknown_or_broken_record_is_ignored() {
    let mut object = cluster();
    object["metadata"]["annotations"] = json!({"templates.ray.io/expansion": "not json"});
    let expanded = world().expand(&object, None).unwrap().object;
    assert!(Record::of(&expanded).is_some());
}

#[test]
fn an_empty_group_that_someone_applied_owns_nothing_in_it() {
    let old = world().expand(&cluster(), None).unwrap().object;
    let mut removed = old.clone();
    removed["spec"]["headGroupSpec"]
        .as_object_mut()
        .unwrap()
        .remove("computeTemplate");
    removed["metadata"]["managedFields"] =
        json!([{"manager": "me", "operation": "Apply", "fieldsV1": {"f:spec": {"f:headGroupSpec": {}}}}]);
    let request = Request {
        namespace: "team-a",
        object: &removed,
        old_object: Some(&old),
        dry_run: false,
        field_manager: Some("me"),
    };
    let expanded = world().write(request).unwrap().object;
    assert_eq!(
        expanded.pointer("/spec/headGroupSpec/template/spec/containers/0"),
        Some(&json!({"name": "ray-head", "image": "reg/torch@sha256:one"}))
    );
}

#[test]
fn a_schemas_defaults_in_an_atomic_list_are_nobodys_wish() {
    let object = json!({"metadata": {"name": "c", "managedFields": [{"manager": "me", "operation": "Apply",
            "fieldsV1": {"f:spec": {"f:headGroupSpec": {}, "f:workerGroupSpecs": {}}}}]},
        "spec": {"headGroupSpec": {}, "workerGroupSpecs": [{"groupName": "w", "numOfHosts": 1,
            "template": {"metadata": {"annotations": {"templates.ray.io/compute-template": "small"}}}}]}});
    let request = Request {
        namespace: "team-a",
        object: &object,
        old_object: None,
        dry_run: false,
        field_manager: Some("me"),
    };
    let expanded = world().write(request).unwrap().object;
    assert_eq!(expanded["spec"]["workerGroupSpecs"][0]["numOfHosts"], 4);
}
