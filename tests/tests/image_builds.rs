//! The image controller against a real API server and Job controller. No kubelet runs the pods of builds here: the
//! tests say what one would say of them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod images;

use images::{DIGEST, Site};
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use ray_api::conditions;
use ray_api::template::v1alpha1::FailureReason;
use ray_tests::{Cluster, eventually};
use serde_json::json;

const REPOSITORY: &str = "--default-repository=reg.example/images";

async fn site(prefix: &str) -> anyhow::Result<Site> {
    Site::new(Cluster::control_plane().await?, prefix).await
}

fn emoji() -> serde_json::Value {
    json!({"baseImage": "rayproject/ray:2.50.0", "pipPackages": ["emoji==2.14.0"]})
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_build_becomes_a_pinned_image_and_is_verified() -> anyhow::Result<()> {
    let site = site("image").await?;
    let _operator = site.operator(&[REPOSITORY])?;
    site.create("emoji", emoji()).await?;
    let building = site.told("emoji", "Building", "True", "Building").await?;
    let job = building.build.and_then(|build| build.job).unwrap();
    let map: ConfigMap = Api::namespaced(site.cluster.client.clone(), &site.namespace)
        .get(&job)
        .await?;
    assert!(map.data.unwrap()["Dockerfile"].contains("FROM docker.io/rayproject/ray:2.50.0"));
    site.end_pod(&job, "Succeeded", &[("seal", 0, DIGEST)]).await?;
    let verify = format!("{job}-verify");
    let found = r#"{"ray": "2.50.0", "python": "3.12.1", "user": "ray", "has_ray_user": true}"#;
    site.end_pod(&verify, "Succeeded", &[("verify", 0, found)])
        .await?;
    let status = site.told("emoji", "Ready", "True", "Built").await?;
    assert_eq!(
        status.image,
        Some(format!("reg.example/images/{}/emoji@{DIGEST}", site.namespace))
    );
    assert_eq!(status.ray_version.as_deref(), Some("2.50.0"));
    assert_eq!(status.history.len(), 1);

    // Nothing turns any more, so nothing is written.
    let before = site.templates.get("emoji").await?.resource_version();
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(site.templates.get("emoji").await?.resource_version(), before);
    let events: Api<Event> = Api::namespaced(site.cluster.client.clone(), &site.namespace);
    let reasons = eventually("events tell the story", || async {
        let list = events
            .list(&ListParams::default().fields("involvedObject.name=emoji"))
            .await?;
        let reasons: Vec<_> = list.items.into_iter().filter_map(|event| event.reason).collect();
        Ok(reasons.contains(&"ImageReady".to_owned()).then_some(reasons))
    })
    .await?;
    assert!(reasons.contains(&"BuildStarted".to_owned()), "{reasons:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_failure_has_a_reason_and_an_edit_a_new_build() -> anyhow::Result<()> {
    let site = site("image").await?;
    let _operator = site.operator(&[REPOSITORY, "--verify-images=false"])?;
    site.create("emoji", emoji()).await?;
    let job = site
        .told("emoji", "Building", "True", "Building")
        .await?
        .build
        .and_then(|build| build.job)
        .unwrap();
    let log = "ERROR: Could not find a version that satisfies the requirement emoji==2.14.0\nhttps://me:hunter2@index.example\n\
        error building image: error building stage: failed to execute command: waiting for process to exit: exit status 1";
    site.end_pod(&job, "Failed", &[("build", 1, log)]).await?;
    let status = site.told("emoji", "Failed", "True", "PipPackageNotFound").await?;
    let failure = status.failure.unwrap();
    assert!(failure.message.contains("emoji==2.14.0"), "{failure:?}");
    assert!(!failure.log_tail.unwrap().contains("hunter2"));

    // An edit builds again; an edit during that build stops it.
    site.merge("emoji", json!({"spec": {"pipPackages": ["emoji"]}}))
        .await?;
    eventually("a second build", || async {
        Ok((site.builds().await?.len() == 2).then_some(()))
    })
    .await?;
    site.merge("emoji", json!({"spec": {"pipPackages": ["emoji>=2"]}}))
        .await?;
    let jobs = eventually("a third build, and the end of the second", || async {
        let jobs = site.builds().await?;
        let suspended: Vec<_> = jobs
            .iter()
            .map(|job| job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true))
            .collect();
        anyhow::ensure!(suspended == [false, true, false], "suspended: {suspended:?}");
        Ok(Some(jobs))
    })
    .await?;
    let third = jobs[2].name_any();
    site.end_pod(&third, "Succeeded", &[("seal", 0, DIGEST)]).await?;
    let status = site.told("emoji", "Ready", "True", "Built").await?;
    let results: Vec<_> = status
        .history
        .iter()
        .map(|record| record.result.as_str())
        .collect();
    assert_eq!(results, ["Succeeded", "Superseded", "PipPackageNotFound"]);
    assert_eq!(status.failure, None);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_killed_operator_builds_nothing_twice() -> anyhow::Result<()> {
    let site = site("image").await?;
    let flags = [REPOSITORY];
    let mut operator = site.operator(&flags)?;
    site.create("emoji", emoji()).await?;
    let job = site
        .told("emoji", "Building", "True", "Building")
        .await?
        .build
        .and_then(|build| build.job)
        .unwrap();
    // Killed while the build runs; it ends while nobody looks.
    operator.kill()?;
    site.end_pod(&job, "Succeeded", &[("seal", 0, DIGEST)]).await?;
    operator = site.operator(&flags)?;
    let verify = format!("{job}-verify");
    site.pod(&verify).await?;
    // Killed while the image is verified, and its status lost.
    operator.kill()?;
    site.end_pod(
        &verify,
        "Succeeded",
        &[("verify", 0, r#"{"ray": "2.50.0", "python": "3.12.1"}"#)],
    )
    .await?;
    site.templates
        .patch_status(
            "emoji",
            &PatchParams::default(),
            &Patch::Merge(json!({"status": null})),
        )
        .await?;
    operator = site.operator(&flags)?;
    let status = site.told("emoji", "Ready", "True", "Built").await?;
    assert_eq!(
        status.build.map(|build| (build.number, build.attempts)),
        Some((1, 1))
    );
    operator.kill()?;
    // And once more, with nothing left to do.
    let _operator = site.operator(&flags)?;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(site.builds().await?.len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn cancel_rebuild_suspend_and_the_policy() -> anyhow::Result<()> {
    let site = site("image").await?;
    let _operator = site.operator(&[
        REPOSITORY,
        "--verify-images=false",
        "--allow-custom-commands=false",
    ])?;
    site.create("emoji", emoji()).await?;
    site.told("emoji", "Building", "True", "Building").await?;
    site.merge(
        "emoji",
        json!({"metadata": {"annotations": {"templates.ray.io/cancel": "1"}}}),
    )
    .await?;
    site.told("emoji", "Failed", "True", "Cancelled").await?;
    site.merge(
        "emoji",
        json!({"metadata": {"annotations": {"templates.ray.io/rebuild": "again"}}}),
    )
    .await?;
    let status = site.told("emoji", "Building", "True", "Building").await?;
    let build = status.build.unwrap();
    assert_eq!((build.number, build.reason.as_deref()), (2, Some("Requested")));
    assert_eq!(status.rebuild.as_deref(), Some("again"));

    let mut held = emoji();
    held["suspend"] = json!(true);
    site.create("held", held).await?;
    site.told("held", "Ready", "False", "Suspended").await?;

    let mut denied = emoji();
    denied["customCommands"] = json!(["id"]);
    site.create("denied", denied).await?;
    let status = site.told("denied", "Failed", "True", "PolicyDenied").await?;
    assert_eq!(status.failure.unwrap().reason, FailureReason::PolicyDenied);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_restricted_namespace_says_so_at_once() -> anyhow::Result<()> {
    let site = site("image").await?;
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(site.cluster.client.clone());
    let label = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    namespaces
        .patch(&site.namespace, &PatchParams::default(), &Patch::Merge(label))
        .await?;
    let _operator = site.operator(&[REPOSITORY])?;
    site.create("emoji", emoji()).await?;
    let status = site
        .told("emoji", "Failed", "True", "PodSecurityRejected")
        .await?;
    assert!(status.failure.unwrap().message.contains("baseline"));

    // The level that builds need lets every step pass.
    let label = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    namespaces
        .patch(&site.namespace, &PatchParams::default(), &Patch::Merge(label))
        .await?;
    site.merge(
        "emoji",
        json!({"metadata": {"annotations": {"templates.ray.io/rebuild": "1"}}}),
    )
    .await?;
    let job = site
        .told("emoji", "Building", "True", "Building")
        .await?
        .build
        .and_then(|build| build.job)
        .unwrap();
    site.pod(&job).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_failed_build_is_tried_again_once_the_spec_says_what_was_missing() -> anyhow::Result<()> {
    let site = site("image").await?;
    let _operator = site.operator(&[REPOSITORY, "--verify-images=false"])?;
    site.create("emoji", emoji()).await?;
    let status = site.told("emoji", "Building", "True", "Building").await?;
    let job = status.build.and_then(|build| build.job).unwrap();
    let log = "Killed\nerror building image: error building stage: failed to execute command: waiting for process to exit: exit status 137";
    site.end_pod(&job, "Failed", &[("build", 137, log)]).await?;
    let status = site.told("emoji", "Failed", "True", "OutOfMemory").await?;
    assert!(
        status
            .failure
            .unwrap()
            .message
            .contains("spec.resources.limits.memory")
    );

    let more = json!({"spec": {"resources": {"limits": {"memory": "16Gi"}}}});
    site.merge("emoji", more).await?;
    let status = site.told("emoji", "Building", "True", "Building").await?;
    let build = status.build.unwrap();
    assert_eq!(
        (build.number, build.attempts, build.reason.as_deref()),
        (2, 1, Some("SpecChanged"))
    );
    site.end_pod(&build.job.unwrap(), "Succeeded", &[("seal", 0, DIGEST)])
        .await?;
    let status = site.told("emoji", "Ready", "True", "Built").await?;
    let results = status.history.iter().map(|record| record.result.as_str());
    assert_eq!(results.collect::<Vec<_>>(), ["Succeeded", "OutOfMemory"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn equal_inputs_for_one_repository_are_built_once() -> anyhow::Result<()> {
    let site = site("image").await?;
    let repository = format!("reg.example/images/{}/shared", site.namespace);
    let mut spec = emoji();
    spec["repository"] = json!(repository);
    let _operator = site.operator(&[REPOSITORY, "--verify-images=false"])?;
    // At the same moment, so that neither age nor status tells them apart.
    let names = ["one", "two", "three", "four", "five"];
    futures::future::try_join_all(names.map(|name| site.create(name, spec.clone()))).await?;
    let waiting = eventually("all but one wait", || async {
        let mut waiting = Vec::new();
        for name in names {
            let list = site.status(name).await?.conditions.unwrap_or_default();
            let reason = conditions::find(&list, "Building").map(|it| it.reason.clone());
            match reason.as_deref() {
                Some("SharedBuild") => waiting.push(name),
                Some("Building") => {}
                other => anyhow::bail!("{name}: {other:?}"),
            }
        }
        Ok((waiting.len() == names.len() - 1).then_some(waiting))
    })
    .await?;
    let builder = names.into_iter().find(|name| !waiting.contains(name)).unwrap();
    let status = site.told(builder, "Building", "True", "Building").await?;
    let job = status.build.and_then(|build| build.job).unwrap();
    // One that comes later waits too.
    site.create("late", spec).await?;
    site.told("late", "Building", "True", "SharedBuild").await?;
    site.end_pod(&job, "Succeeded", &[("seal", 0, DIGEST)]).await?;
    for name in names.into_iter().chain(["late"]) {
        let status = site.told(name, "Ready", "True", "Built").await?;
        assert_eq!(status.image, Some(format!("{repository}@{DIGEST}")), "{name}");
    }
    assert_eq!(site.builds().await?.len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn what_a_build_made_goes_with_its_template() -> anyhow::Result<()> {
    let site = site("image").await?;
    let _operator = site.operator(&[REPOSITORY])?;
    site.create("emoji", emoji()).await?;
    let status = site.told("emoji", "Building", "True", "Building").await?;
    let job = status.build.and_then(|build| build.job).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(site.cluster.client.clone(), &site.namespace);
    let uid = site.templates.get("emoji").await?.uid();
    let owners = [
        site.jobs.get(&job).await?.owner_references().to_vec(),
        maps.get(&job).await?.owner_references().to_vec(),
    ];
    for owner in owners {
        let [owner] = owner.as_slice() else {
            panic!("{owner:?}")
        };
        let named = (owner.kind.as_str(), owner.name.as_str(), Some(owner.uid.clone()));
        assert_eq!(named, ("ImageTemplate", "emoji", uid.clone()));
        assert_eq!(owner.controller, Some(true));
    }
    site.templates.delete("emoji", &DeleteParams::default()).await?;
    eventually("Job and ConfigMap go", || async {
        let gone = site.jobs.get_opt(&job).await?.is_none() && maps.get_opt(&job).await?.is_none();
        Ok(gone.then_some(()))
    })
    .await?;
    // Nor does the operator make them again.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(site.builds().await?.len(), 0);
    Ok(())
}
