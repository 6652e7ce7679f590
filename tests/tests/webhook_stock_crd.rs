//! With KubeRay's kind of CRD: no fields for references, pruning, atomic groups, `numOfHosts` defaulting to 1.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod admission;

use admission::{Site, documents, established, generation, templates, without_bookkeeping};
use kube::api::{Patch, PatchParams, PostParams};
use ray_tests::{Cluster, repository};
use serde_json::{Value, json};

/// Our CRD under another group, cut down to what KubeRay's has.
fn definition(group: &str, with_references: bool) -> anyhow::Result<Value> {
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
    Ok(definition)
}

/// What a RayJob is to a RayCluster: the same spec, one level deeper.
fn job_definition(group: &str) -> anyhow::Result<Value> {
    let mut definition = definition(group, false)?;
    let names = json!({"kind": "RayJob", "plural": "rayjobs", "singular": "rayjob"});
    definition["metadata"] = json!({"name": format!("rayjobs.{group}")});
    definition["spec"]["names"] = names;
    let version = &mut definition["spec"]["versions"][0];
    let cluster = version["schema"]["openAPIV3Schema"]["properties"]["spec"].take();
    version["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {"spec": {"type": "object",
        "properties": {"entrypoint": {"type": "string"}, "rayClusterSpec": cluster}}}});
    version["additionalPrinterColumns"] = json!([]);
    Ok(definition)
}

async fn stock_crd(group: &str, with_references: bool) -> anyhow::Result<()> {
    install(definition(group, with_references)?).await
}

async fn install(definition: Value) -> anyhow::Result<()> {
    let cluster = Cluster::control_plane().await?;
    let api: kube::Api<kube::api::DynamicObject> = kube::Api::all_with(
        cluster.client.clone(),
        &kube::core::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
        )),
    );
    let name = definition["metadata"]["name"].as_str().unwrap();
    api.patch(
        name,
        &PatchParams::apply("tests").force(),
        &Patch::Apply(&definition),
    )
    .await?;
    established(&api, name).await
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
    site.kubectl(&["apply"], &object)?.success()?;
    let before = site.get("c").await?;
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

    // The committed manifest names fields that this CRD does not have, and whole groups without what was filled in.
    let strict = site.kubectl(&["apply"], &object)?;
    assert!(
        strict.code == 1 && strict.stderr.contains("unknown field"),
        "{}",
        strict.stderr
    );
    site.kubectl(&["apply", "--validate=warn"], &object)?.success()?;
    let applied = site.get("c").await?;
    for at in [
        "/spec/headGroupSpec",
        "/spec/workerGroupSpecs/0",
        "/spec/workerGroupSpecs/1",
    ] {
        let template = |object: &Value| object.pointer(at).unwrap()["template"].clone();
        assert_eq!(template(&applied), template(&before), "{at}");
    }
    site.finish().await
}

/// The child that KubeRay's RayJob controller makes: the job's spec, labels and annotations.
fn child(group: &str, job: &Value) -> Value {
    let metadata = &job["metadata"];
    json!({"apiVersion": format!("{group}/v1"), "kind": "RayCluster",
        "metadata": {"name": "job-x7f2q", "namespace": metadata["namespace"], "annotations": metadata["annotations"],
            "labels": {"ray.io/originated-from-crd": "RayJob", "ray.io/originated-from-cr-name": metadata["name"]},
            "ownerReferences": [{"apiVersion": job["apiVersion"], "kind": "RayJob", "name": metadata["name"],
                "uid": metadata["uid"], "controller": true, "blockOwnerDeletion": true}]},
        "spec": job["spec"]["rayClusterSpec"]})
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_rayjobs_pod_template_annotations_reach_its_child() -> anyhow::Result<()> {
    let group = "job.example.org";
    stock_crd(group, false).await?;
    install(job_definition(group)?).await?;
    let site = Site::with("job", &[], group).await?;
    templates(&site).await?;
    site.compute("hosts", json!({"extends": "small", "numOfHosts": 4}))
        .await?;
    let mut spec = manifest(group)["spec"].take();
    // Nothing on the job's own metadata: pod templates carry every reference.
    for template in ["/headGroupSpec/template", "/workerGroupSpecs/0/template"] {
        let annotations = &mut spec.pointer_mut(template).unwrap()["metadata"]["annotations"];
        annotations["templates.ray.io/image-template"] = json!("torch");
    }
    let job = json!({"apiVersion": format!("{group}/v1"), "kind": "RayJob",
        "metadata": {"name": "job", "namespace": site.namespace},
        "spec": {"entrypoint": "python main.py", "rayClusterSpec": spec}});
    site.kubectl(&["apply"], &job)?.success()?;
    let job = serde_json::to_value(site.api(&format!("{group}/v1"), "RayJob").get("job").await?)?;
    assert!(
        !job.to_string().contains("reg/torch"),
        "the job itself is nobody's to expand"
    );

    let child = child(group, &job);
    // Not by kubectl, which would note the schema's numOfHosts as asked for.
    let created = serde_json::from_value(child.clone())?;
    site.rayclusters()
        .create(&PostParams::default(), &created)
        .await?;
    let live = site.get("job-x7f2q").await?;
    for at in ["/spec/headGroupSpec", "/spec/workerGroupSpecs/0"] {
        let ray = &live.pointer(at).unwrap()["template"]["spec"]["containers"][0];
        assert_eq!(ray["image"], "reg/torch@sha256:one", "{at}");
        assert_eq!(ray["resources"]["limits"]["cpu"], "1", "{at}");
    }
    assert_eq!(live["spec"]["workerGroupSpecs"][0]["numOfHosts"], 4);
    assert_eq!(
        live["metadata"]["ownerReferences"],
        child["metadata"]["ownerReferences"]
    );
    let typed: ray_api::ray::RayCluster = serde_json::from_value(live)?;
    assert_eq!(ray_api::validate::cluster(&typed), [], "complete and valid");
    site.finish().await
}
