//! With KubeRay's kind of CRD: no fields for references, pruning, atomic groups, `numOfHosts` defaulting to 1.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod admission;

use admission::{Site, documents, established, generation, templates, without_bookkeeping};
use kube::api::{Patch, PatchParams};
use ray_tests::{Cluster, repository};
use serde_json::{Value, json};

/// Our CRD under another group, cut down to what KubeRay's has.
async fn stock_crd(group: &str, with_references: bool) -> anyhow::Result<()> {
    let cluster = Cluster::control_plane().await?;
    let mut definition = documents(&repository().join("manifests/crds/rayclusters.ray.io.yaml"))?.remove(0);
    definition["metadata"] = json!({"name": format!("rayclusters.{group}")});
    definition["spec"]["group"] = json!(group);
    let versions = definition["spec"]["versions"].as_array_mut().unwrap();
    versions.retain(|version| version["name"] == "v1");
    let spec = &mut versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    if !with_references {
        prune(spec);
        prune(&mut spec["properties"]["headGroupSpec"]);
        let groups = &mut spec["properties"]["workerGroupSpecs"];
        prune(&mut groups["items"]);
        groups["items"]["properties"]["numOfHosts"]["default"] = json!(1);
        groups
            .as_object_mut()
            .unwrap()
            .retain(|key, _| !key.starts_with("x-kubernetes-"));
    }
    let api: kube::Api<kube::api::DynamicObject> = kube::Api::all_with(
        cluster.client.clone(),
        &kube::core::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
        )),
    );
    let name = format!("rayclusters.{group}");
    api.patch(
        &name,
        &PatchParams::apply("tests").force(),
        &Patch::Apply(&definition),
    )
    .await?;
    established(&api, &name).await
}

fn prune(schema: &mut Value) {
    let schema = schema.as_object_mut().unwrap();
    schema.remove("x-kubernetes-validations");
    let properties = schema["properties"].as_object_mut().unwrap();
    properties.remove("computeTemplate");
    properties.remove("imageTemplate");
}

fn manifest(group: &str) -> Value {
    let group_template =
        |name: &str| json!({"metadata": {"annotations": {"templates.ray.io/compute-template": name}}});
    let mut head = group_template("small");
    head["spec"] = json!({"containers": [{"name": "ray-head"}]});
    let mut worker = group_template("hosts");
    worker["spec"] = json!({"containers": [{"name": "ray-worker"}]});
    json!({"apiVersion": format!("{group}/v1"), "kind": "RayCluster",
        "metadata": {"name": "c", "annotations": {"templates.ray.io/image-template": "torch"}},
        "spec": {"headGroupSpec": {"template": head},
            "workerGroupSpecs": [{"groupName": "w", "minReplicas": 0, "maxReplicas": 3, "template": worker}]}})
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn annotations_expand_and_re_applies_change_nothing() -> anyhow::Result<()> {
    let group = "stock.example.org";
    stock_crd(group, false).await?;
    let site = Site::with("stock", &[], group).await?;
    templates(&site).await?;
    site.compute("hosts", json!({"extends": "small", "numOfHosts": 4}))
        .await?;
    let resource = format!("rayclusters.{group}");
    for flags in [&["apply"][..], &["apply", "--server-side"]] {
        let object = manifest(group);
        site.kubectl(flags, &object)?.success()?;
        let first = site.get("c").await?;
        let worker = &first["spec"]["workerGroupSpecs"][0];
        assert_eq!(worker["numOfHosts"], 4, "the schema's default of 1 gives way");
        assert_eq!(
            worker["template"]["spec"]["containers"][0]["image"],
            "reg/torch@sha256:one"
        );
        assert_eq!(
            worker["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"],
            "1"
        );
        site.kubectl(flags, &object)?.success()?;
        let second = site.get("c").await?;
        assert_eq!(
            without_bookkeeping(&second),
            without_bookkeeping(&first),
            "{flags:?}"
        );
        assert_eq!(generation(&second), generation(&first), "{flags:?}");
        site.user.kubectl(&["delete", &resource, "c"])?.success()?;
    }
    site.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn putting_a_crd_without_the_fields_back_strips_nothing() -> anyhow::Result<()> {
    let group = "back.example.org";
    stock_crd(group, true).await?;
    let site = Site::with("back", &[], group).await?;
    templates(&site).await?;
    let mut object = admission::manifest(&site, "c");
    object["apiVersion"] = json!(format!("{group}/v1"));
    let before = site.server_side_apply(&object, false).await?;
    stock_crd(group, false).await?;
    ray_tests::eventually("the fields are pruned on read", || async {
        Ok(site.get("c").await?["spec"]["headGroupSpec"]
            .get("computeTemplate")
            .is_none()
            .then_some(()))
    })
    .await?;
    let after = site
        .merge_patch(
            "c",
            json!({"metadata": {"annotations": {"note": "written by anyone"}}}),
        )
        .await?;
    assert_eq!(
        after["spec"]["headGroupSpec"]["template"],
        before["spec"]["headGroupSpec"]["template"]
    );
    let head = |object: &Value| ray_api::expand::Record::of(object).unwrap_or_default().head;
    assert_eq!(head(&after), head(&before));
    site.finish().await
}
