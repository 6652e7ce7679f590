//! The image gate on a real API server, with the template controller that lifts it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod admission;

use admission::{EXPANSION, Site, generation, manifest, templates};
use ray_tests::{Process, eventually};
use serde_json::{Value, json};

const IMAGE: &str = "/spec/headGroupSpec/template/spec/containers/0/image";

fn operator(site: &Site, flags: &[&str]) -> anyhow::Result<Process> {
    let (metrics, health) = (free_address()?, free_address()?);
    let mut args = vec![
        "--controllers=template",
        "--enable-leader-election=false",
        "--log-format=text",
        "--watch-namespace",
        &site.namespace,
        "--metrics-addr",
        &metrics,
        "--health-probe-bind-address",
        &health,
        "--template-status-debounce=1",
    ];
    args.extend(flags);
    Process::start("ray-operator", &site.cluster.kubeconfig, &args)
}

fn free_address() -> anyhow::Result<String> {
    Ok(format!("127.0.0.1:{}", admission::free_port()?))
}

fn head_only(site: &Site, name: &str) -> Value {
    let mut object = manifest(site, name);
    object["spec"]["workerGroupSpecs"] = json!([]);
    object
}

fn condition(object: &Value) -> Option<(String, String)> {
    let conditions = object["status"]["conditions"].as_array()?;
    let ready = conditions.iter().find(|c| c["type"] == "ImageReady")?;
    Some((
        ready["status"].as_str()?.to_owned(),
        ready["reason"].as_str()?.to_owned(),
    ))
}

async fn lifted(site: &Site, name: &str) -> anyhow::Result<Value> {
    eventually("the gate is lifted", || async {
        let object = site.get(name).await?;
        Ok((object["spec"]["suspend"] == false).then_some(object))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_cluster_that_came_first_starts_when_its_image_is_there() -> anyhow::Result<()> {
    let site = Site::new("gate").await?;
    templates(&site).await?;
    let _operator = operator(&site, &[])?;
    let mut object = head_only(&site, "c");
    object["spec"]["imageTemplate"] = json!("later");
    site.kubectl(&["apply"], &object)?.success()?;
    let gated = site.get("c").await?;
    assert_eq!(gated["spec"]["suspend"], true);
    assert_eq!(gated["metadata"]["labels"]["templates.ray.io/gated"], "true");
    eventually("the cluster says what it waits for", || async {
        let told = condition(&site.get("c").await?);
        Ok((told == Some(("False".into(), "ImageTemplateNotFound".into()))).then_some(()))
    })
    .await?;

    site.image("later", None).await?;
    let api = site.api("templates.ray.io/v1alpha1", "ImageTemplate");
    let failure =
        json!({"status": {"failure": {"reason": "PipPackageNotFound", "message": "no such package: nope"}}});
    api.patch_status("later", &Default::default(), &kube::api::Patch::Merge(failure))
        .await?;
    eventually("the cluster says why its image failed", || async {
        let told = condition(&site.get("c").await?);
        Ok((told == Some(("False".into(), "PipPackageNotFound".into()))).then_some(()))
    })
    .await?;

    site.image("later", Some("new")).await?;
    let started = lifted(&site, "c").await?;
    assert_eq!(started.pointer(IMAGE), Some(&json!("reg/later@sha256:new")));
    assert_eq!(
        started["metadata"]["labels"]["templates.ray.io/gated"],
        Value::Null
    );
    assert_eq!(
        started["metadata"]["annotations"]["templates.ray.io/gate-lift"],
        Value::Null
    );
    assert_eq!(condition(&started), Some(("True".into(), "ImageBuilt".into())));
    site.kubectl(&["apply"], &object)?.success()?;
    assert_eq!(
        generation(&site.get("c").await?),
        generation(&started),
        "a re-apply changes nothing"
    );

    site.image("later", Some("newer")).await?;
    site.kubectl(&["apply"], &object)?.success()?;
    assert_eq!(
        site.get("c").await?.pointer(IMAGE),
        Some(&json!("reg/later@sha256:new")),
        "pinned"
    );
    site.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn cluster_and_image_race_without_a_stuck_gate() -> anyhow::Result<()> {
    let rounds = std::env::var("RAY_TESTS_RACES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(20);
    let site = Site::new("race").await?;
    templates(&site).await?;
    let _operator = operator(&site, &[])?;
    for round in 0..rounds {
        let name = format!("r{round}");
        let mut object = head_only(&site, &name);
        object["spec"]["imageTemplate"] = json!(name);
        // In every second round there is no template to find either.
        if round % 2 == 0 {
            site.image(&name, None).await?;
        }
        let create = site.server_side_apply(&object, false);
        let build = site.image(&name, Some("built"));
        let (created, built) = tokio::join!(create, build);
        created?;
        built?;
        eventually("the image is filled and nothing is suspended", || async {
            let object = site.get(&name).await?;
            let there = object.pointer(IMAGE) == Some(&json!(format!("reg/{name}@sha256:built")));
            Ok((there && object["spec"]["suspend"] != true).then_some(()))
        })
        .await?;
    }
    site.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_suspend_of_the_users_own_is_never_lifted() -> anyhow::Result<()> {
    let site = Site::new("own").await?;
    templates(&site).await?;
    let _operator = operator(&site, &[])?;
    // Theirs from the start; asked for while the gate was down; owned by Kueue.
    let mut own = head_only(&site, "own");
    own["spec"]["imageTemplate"] = json!("later");
    let mut during = own.clone();
    during["metadata"]["name"] = json!("during");
    let mut queued = own.clone();
    queued["metadata"]["name"] = json!("queued");
    queued["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "q"});
    own["spec"]["suspend"] = json!(true);
    site.server_side_apply(&own, false).await?;
    site.server_side_apply(&during, false).await?;
    during["spec"]["suspend"] = json!(true);
    site.server_side_apply(&during, false).await?;
    let denied = site
        .server_side_apply(&queued, false)
        .await
        .unwrap_err()
        .to_string();
    assert!(denied.contains("spec.suspend"), "{denied}");
    queued["spec"]["suspend"] = json!(true);
    site.server_side_apply(&queued, false).await?;

    site.image("later", Some("new")).await?;
    for name in ["own", "during", "queued"] {
        let filled = eventually("the image is filled", || async {
            let object = site.get(name).await?;
            Ok(object.pointer(IMAGE).is_some().then_some(object))
        })
        .await?;
        assert_eq!(filled["spec"]["suspend"], true, "{name}");
        assert_eq!(
            filled["metadata"]["labels"]["templates.ray.io/gated"],
            Value::Null,
            "{name}"
        );
    }
    // Kueue admits it.
    site.merge_patch("queued", json!({"spec": {"suspend": false}}))
        .await?;
    site.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn templates_count_their_users_and_those_that_track_follow() -> anyhow::Result<()> {
    let site = Site::new("track").await?;
    templates(&site).await?;
    let _operator = operator(&site, &[])?;
    site.server_side_apply(&manifest(&site, "pinned"), false).await?;
    let mut tracking = manifest(&site, "tracking");
    tracking["metadata"]["annotations"] = json!({"templates.ray.io/update-policy": "Track"});
    site.server_side_apply(&tracking, false).await?;
    site.compute("orphan", json!({"extends": "nobody"})).await?;

    let status = async |kind: &str, name: &str| -> anyhow::Result<Value> {
        Ok(site
            .api("templates.ray.io/v1alpha1", kind)
            .get_status(name)
            .await?
            .data["status"]
            .clone())
    };
    eventually("users are counted", || async {
        let both = json!({"clusters": 2, "names": ["pinned", "tracking"]});
        let counted = status("ComputeTemplate", "big").await?["usedBy"] == both
            && status("ImageTemplate", "torch").await?["usedBy"] == both;
        let orphan = status("ComputeTemplate", "orphan").await?;
        let told = orphan["conditions"][0]["reason"] == "ExtendsNotFound"
            && orphan["conditions"][0]["status"] == "False";
        Ok((counted && told).then_some(()))
    })
    .await?;

    let before = site.get("pinned").await?;
    site.compute("small", json!({"resources": {"limits": {"cpu": "2"}}}))
        .await?;
    eventually("the tracking cluster follows", || async {
        let cpu = site
            .get("tracking")
            .await?
            .pointer("/spec/headGroupSpec/template/spec/containers/0/resources/limits/cpu")
            .cloned();
        Ok((cpu == Some(json!("2"))).then_some(()))
    })
    .await?;
    assert_eq!(
        site.get("pinned").await?["metadata"]["annotations"][EXPANSION],
        before["metadata"]["annotations"][EXPANSION]
    );
    eventually(
        "the pinned one is stale, also where the edited template is a parent",
        || async {
            let both = json!({"clusters": 2, "names": ["pinned", "tracking"]});
            let (small, big) = (
                status("ComputeTemplate", "small").await?,
                status("ComputeTemplate", "big").await?,
            );
            let stale = small["stale"] == 1 && big["stale"] == 1;
            Ok((stale && small["usedBy"] == both && big["usedBy"] == both).then_some(()))
        },
    )
    .await?;
    let api = site.api("templates.ray.io/v1alpha1", "ImageTemplate");
    api.delete("torch", &Default::default()).await?;
    site.image("torch", None).await?;
    eventually("a template that came back knows its users", || async {
        Ok((status("ImageTemplate", "torch").await?["usedBy"]["clusters"] == 2).then_some(()))
    })
    .await?;
    site.api("templates.ray.io/v1alpha1", "ComputeTemplate")
        .delete("orphan", &Default::default())
        .await?;
    site.finish().await
}
