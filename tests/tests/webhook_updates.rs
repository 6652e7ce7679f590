//! Expanded clusters through their life on a real API server, by every way that people and tools write.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod admission;

use admission::{EXPANSION, Site, generation, manifest, templates, without_bookkeeping};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

const HEAD: &str = "/spec/headGroupSpec/template/spec";
const CPU: &str = "/spec/headGroupSpec/template/spec/containers/0/resources/limits/cpu";

async fn site(prefix: &str) -> anyhow::Result<Site> {
    let site = Site::new(prefix).await?;
    templates(&site).await?;
    Ok(site)
}

/// Client-side apply, as `kubectl apply` does it.
fn apply(site: &Site, object: &Value) -> anyhow::Result<()> {
    site.kubectl(&["apply"], object)?.success().map(drop)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_client_side_re_apply_changes_nothing() -> anyhow::Result<()> {
    let site = site("csa").await?;
    let manifest = manifest(&site, "c");
    apply(&site, &manifest)?;
    let first = site.get("c").await?;
    assert_eq!(first.pointer(CPU), Some(&json!("1")));
    assert_eq!(
        first.pointer("/spec/workerGroupSpecs/1/template/spec/containers/0/env"),
        Some(&json!([{"name": "OWN", "value": "1"}, {"name": "SIZE", "value": "big"}]))
    );
    assert_eq!(
        first.pointer("/spec/workerGroupSpecs/1/template/spec/containers/1"),
        Some(&json!({"name": "sidecar", "image": "busybox"}))
    );

    let diff = site.kubectl(&["diff"], &manifest)?;
    assert_eq!((diff.code, diff.stdout.as_str()), (0, ""), "{}", diff.stderr);
    apply(&site, &manifest)?;
    let second = site.get("c").await?;
    assert_eq!(generation(&second), generation(&first));
    assert_eq!(without_bookkeeping(&second), without_bookkeeping(&first));

    // What was read and is put back as it is: `kubectl get -o json | kubectl replace -f -`.
    let read = site
        .user
        .kubectl(&["get", "rayclusters.ray.io", "c", "-o", "json"])?
        .success()?;
    site.kubectl(&["replace"], &serde_json::from_str(&read)?)?
        .success()?;
    let replaced = site.get("c").await?;
    assert_eq!(generation(&replaced), generation(&first));
    assert_eq!(replaced["spec"], first["spec"]);
    site.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_server_side_re_apply_changes_nothing_and_a_dry_run_equals_live() -> anyhow::Result<()> {
    let site = site("ssa").await?;
    let manifest = manifest(&site, "c");
    let first = site.server_side_apply(&manifest, false).await?;
    let dry = site.server_side_apply(&manifest, true).await?;
    let live = site.get("c").await?;
    assert_eq!(without_bookkeeping(&dry), without_bookkeeping(&live));
    let second = site.server_side_apply(&manifest, false).await?;
    assert_eq!(generation(&second), generation(&first));
    let diff = site.kubectl(&["diff", "--server-side", "--field-manager=gitops"], &manifest)?;
    assert_eq!((diff.code, diff.stdout.as_str()), (0, ""), "{}", diff.stderr);
    site.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn references_change_come_and_go_by_every_way_of_writing() -> anyhow::Result<()> {
    let site = site("refs").await?;
    // name, how the changed manifest is written
    for way in ["apply", "server-side", "replace"] {
        let mut object = manifest(&site, way);
        let write = async |object: &Value| -> anyhow::Result<Value> {
            match way {
                "server-side" => drop(site.server_side_apply(object, false).await?),
                "replace" if site.get(way).await.is_ok() => {
                    drop(site.kubectl(&["replace"], object)?.success()?)
                }
                "replace" => drop(site.kubectl(&["create"], object)?.success()?),
                _ => apply(&site, object)?,
            }
            site.get(way).await
        };
        write(&object).await?;

        object["spec"]["headGroupSpec"]["computeTemplate"] = json!("big");
        let changed = write(&object).await?;
        assert_eq!(changed.pointer(CPU), Some(&json!("8")), "{way}");
        assert_eq!(
            changed.pointer("/spec/headGroupSpec/template/spec/containers/0/env/0/value"),
            Some(&json!("big")),
            "{way}"
        );

        object["spec"]["headGroupSpec"]
            .as_object_mut()
            .unwrap()
            .remove("computeTemplate");
        let removed = write(&object).await?;
        let image = json!({"containers": [{"name": "ray-head", "image": "reg/torch@sha256:one"}]});
        assert_eq!(removed.pointer(HEAD), Some(&image), "{way}");

        object["spec"]["workerGroupSpecs"].as_array_mut().unwrap().push(json!({"groupName": "c", "replicas": 1, "minReplicas": 0, "maxReplicas": 1, "computeTemplate": "small"}));
        let added = write(&object).await?;
        assert_eq!(
            added.pointer("/spec/workerGroupSpecs/2/template/spec/nodeSelector/pool"),
            Some(&json!("cpu")),
            "{way}"
        );

        object["spec"]["workerGroupSpecs"]
            .as_array_mut()
            .unwrap()
            .remove(0);
        let fewer = write(&object).await?;
        assert_eq!(
            fewer["spec"]["workerGroupSpecs"].as_array().map(Vec::len),
            Some(2),
            "{way}"
        );
        assert_eq!(
            fewer.pointer("/spec/workerGroupSpecs/0/groupName"),
            Some(&json!("b")),
            "{way}"
        );
        assert!(
            !fewer["metadata"]["annotations"][EXPANSION]
                .as_str()
                .unwrap()
                .contains("\"a\":"),
            "{way}"
        );
    }
    site.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_json_patch_changes_references_and_groups() -> anyhow::Result<()> {
    let site = site("json").await?;
    site.server_side_apply(&manifest(&site, "c"), false).await?;
    let path = "/spec/headGroupSpec/computeTemplate";
    let changed = site
        .json_patch("c", json!([{"op": "replace", "path": path, "value": "big"}]))
        .await?;
    assert_eq!(changed.pointer(CPU), Some(&json!("8")));
    let removed = site
        .json_patch("c", json!([{"op": "remove", "path": path}]))
        .await?;
    assert_eq!(removed.pointer(CPU), None);

    let group = json!({"groupName": "c", "replicas": 1, "minReplicas": 0, "maxReplicas": 1, "computeTemplate": "small"});
    let added = site
        .json_patch(
            "c",
            json!([{"op": "add", "path": "/spec/workerGroupSpecs/-", "value": group}]),
        )
        .await?;
    let container = &added["spec"]["workerGroupSpecs"][2]["template"]["spec"]["containers"][0];
    assert_eq!(container["resources"]["limits"]["cpu"], "1");
    assert_eq!(container["image"], "reg/torch@sha256:one");
    let fewer = site
        .json_patch(
            "c",
            json!([{"op": "remove", "path": "/spec/workerGroupSpecs/1"}, {"op": "remove", "path": "/spec/workerGroupSpecs/0"}]),
        )
        .await?;
    assert_eq!(
        fewer["spec"]["workerGroupSpecs"],
        json!([added["spec"]["workerGroupSpecs"][2]])
    );

    // A head without anything to run is not valid, and the cluster stays as it is.
    let emptied = site
        .json_patch("c", json!([{"op": "remove", "path": "/spec/imageTemplate"}]))
        .await;
    let error = emptied.unwrap_err().to_string();
    assert!(error.contains("spec.headGroupSpec"), "{error}");
    assert_eq!(site.get("c").await?["spec"], fewer["spec"]);
    site.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_hand_edit_of_a_filled_value_stays_and_is_the_users() -> anyhow::Result<()> {
    let site = site("edit").await?;
    let ray = json!({"name": "ray-head", "resources": {"limits": {"cpu": "3"}}});
    let own = json!({"spec": {"containers": [ray]}});
    for way in ["json-patch", "apply", "server-side", "another-manager", "replace"] {
        let mut object = manifest(&site, way);
        match way {
            "apply" | "replace" => apply(&site, &object)?,
            _ => drop(site.server_side_apply(&object, false).await?),
        }
        match way {
            "json-patch" => {
                let patch = json!([{"op": "replace", "path": CPU, "value": "3"}]);
                site.json_patch(way, patch).await?;
            }
            "replace" => {
                // The whole object, one value changed.
                let mut live = site.get(way).await?;
                *live.pointer_mut(CPU).unwrap() = json!("3");
                site.kubectl(&["replace"], &live)?.success()?;
            }
            "another-manager" => {
                let part = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": way},
                    "spec": {"headGroupSpec": {"template": own}}});
                let params = PatchParams::apply("another").force();
                site.rayclusters()
                    .patch(way, &params, &Patch::Apply(part))
                    .await?;
            }
            _ => {
                object["spec"]["headGroupSpec"]["template"] = own.clone();
                match way {
                    "apply" => apply(&site, &object)?,
                    _ => drop(site.server_side_apply(&object, false).await?),
                }
            }
        }
        let edited = site.get(way).await?;
        assert_eq!(edited.pointer(CPU), Some(&json!("3")), "{way}");
        let memory = "/spec/headGroupSpec/template/spec/containers/0/resources/limits/memory";
        assert_eq!(
            edited.pointer(memory),
            Some(&json!("2Gi")),
            "{way}: the rest stays filled"
        );
        // A later write by somebody else does not fill it again.
        let note = json!({"metadata": {"annotations": {"note": "by the way"}}});
        assert_eq!(
            site.merge_patch(way, note).await?.pointer(CPU),
            Some(&json!("3")),
            "{way}"
        );
        let removed = site
            .json_patch(
                way,
                json!([{"op": "remove", "path": "/spec/headGroupSpec/computeTemplate"}]),
            )
            .await?;
        // Who sends the whole object has written all that is in it.
        let left = match way {
            "replace" => json!({"limits": {"cpu": "3", "memory": "2Gi"}}),
            _ => json!({"limits": {"cpu": "3"}}),
        };
        assert_eq!(
            removed.pointer("/spec/headGroupSpec/template/spec/containers/0/resources"),
            Some(&left),
            "{way}"
        );
    }
    site.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn inlining_a_templates_values_in_one_apply_keeps_them() -> anyhow::Result<()> {
    let site = site("inline").await?;
    for way in ["apply", "server-side"] {
        let mut object = manifest(&site, way);
        let write = async |object: &Value| match way {
            "apply" => apply(&site, object),
            _ => site.server_side_apply(object, false).await.map(drop),
        };
        write(&object).await?;
        object["spec"]["headGroupSpec"] = json!({"template": {"spec": {"containers": [{"name": "ray-head", "resources": {"limits": {"cpu": "1"}}}],
            "tolerations": [{"key": "ray", "operator": "Exists"}]}}});
        write(&object).await?;
        let inlined = site.get(way).await?;
        assert_eq!(
            inlined.pointer("/spec/headGroupSpec/template/spec/containers/0/resources"),
            Some(&json!({"limits": {"cpu": "1"}})),
            "{way}"
        );
        assert_eq!(
            inlined.pointer("/spec/headGroupSpec/template/spec/tolerations"),
            Some(&json!([{"key": "ray", "operator": "Exists"}])),
            "{way}"
        );
        assert_eq!(
            inlined.pointer("/spec/headGroupSpec/template/spec/nodeSelector"),
            None,
            "{way}"
        );
    }
    site.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn pinned_clusters_follow_a_template_by_refresh_only_and_outlive_it() -> anyhow::Result<()> {
    let site = site("pin").await?;
    let manifest = manifest(&site, "c");
    apply(&site, &manifest)?;
    let first = site.get("c").await?;
    site.compute("small", json!({"resources": {"limits": {"cpu": "2"}}}))
        .await?;
    site.image("torch", Some("two")).await?;
    apply(&site, &manifest)?;
    assert_eq!(
        generation(&site.get("c").await?),
        generation(&first),
        "an edited template changes nothing"
    );

    let refreshed = site
        .merge_patch(
            "c",
            json!({"metadata": {"annotations": {"templates.ray.io/refresh": "1"}}}),
        )
        .await?;
    assert_eq!(refreshed.pointer(CPU), Some(&json!("2")));
    assert_eq!(
        refreshed.pointer("/spec/headGroupSpec/template/spec/containers/0/image"),
        Some(&json!("reg/torch@sha256:two"))
    );
    assert_eq!(
        refreshed.pointer("/spec/headGroupSpec/template/spec/nodeSelector"),
        None
    );

    for kind in ["ComputeTemplate", "ImageTemplate"] {
        let api = site.api("templates.ray.io/v1alpha1", kind);
        for template in api.list(&Default::default()).await? {
            api.delete(&template.metadata.name.unwrap(), &Default::default())
                .await?;
        }
    }
    apply(&site, &manifest)?;
    site.kubectl(&["replace"], &manifest)?.success()?;
    let replaced = site.get("c").await?;
    assert_eq!(
        replaced["spec"], refreshed["spec"],
        "deleted templates never deny or change a re-apply"
    );
    site.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_dropped_record_is_read_from_the_old_object() -> anyhow::Result<()> {
    let site = site("drop").await?;
    let before = site.server_side_apply(&manifest(&site, "c"), false).await?;
    let dropped = site
        .merge_patch("c", json!({"metadata": {"annotations": {EXPANSION: null}}}))
        .await?;
    assert_eq!(
        dropped["metadata"]["annotations"][EXPANSION],
        before["metadata"]["annotations"][EXPANSION]
    );
    assert_eq!(dropped["spec"], before["spec"]);
    site.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn the_autoscaler_and_a_re_apply_do_not_fight() -> anyhow::Result<()> {
    let site = site("scale").await?;
    let mut object = manifest(&site, "c");
    object["spec"]["enableInTreeAutoscaling"] = json!(true);
    for group in object["spec"]["workerGroupSpecs"].as_array_mut().unwrap() {
        group.as_object_mut().unwrap().remove("replicas");
    }
    apply(&site, &object)?;
    let patch = json!([{"op": "replace", "path": "/spec/workerGroupSpecs/1/replicas", "value": 3},
        {"op": "add", "path": "/spec/workerGroupSpecs/1/scaleStrategy", "value": {"workersToDelete": ["x"]}}]);
    let scaled = site.json_patch("c", patch).await?;
    apply(&site, &object)?;
    let reapplied = site.get("c").await?;
    assert_eq!(reapplied["spec"], scaled["spec"]);
    assert_eq!(generation(&reapplied), generation(&scaled));
    site.finish().await
}
