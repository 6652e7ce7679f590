//! A registry that wants a login, on a real node: to push to, to build on, and for Ray pods to pull from.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod images;

use images::{LOGIN, PRIVATE, Site, tiny};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use ray_api::ray::RayCluster;
use ray_api::template::v1alpha1::FailureReason;
use ray_tests::{Cluster, eventually};
use serde_json::{Value, json};

async fn site(prefix: &str) -> anyhow::Result<Site> {
    Site::new(Cluster::node().await?, prefix).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn a_registry_with_a_login_takes_images_and_gives_them_to_ray_pods() -> anyhow::Result<()> {
    let site = site("private").await?;
    site.login("push", PRIVATE, LOGIN).await?;
    let repository = |name: &str| format!("{PRIVATE}/{}/{name}", site.namespace);
    let spec = |name: &str, pull: Value| {
        tiny(json!({
            "repository": repository(name), "pushSecret": "push", "runPullSecrets": pull,
            "environmentVariables": {"NAME": name},
        }))
    };
    site.create("open", spec("open", json!(["push"]))).await?;
    site.create("shut", spec("shut", json!([]))).await?;
    let image = site.built("open").await?;
    assert!(
        image.starts_with(&format!("{}@sha256:", repository("open"))),
        "{image}"
    );
    site.built("shut").await?;

    // The cluster pulls with what the template says, and cannot without.
    let clusters: Api<RayCluster> = Api::namespaced(site.cluster.client.clone(), &site.namespace);
    for name in ["open", "shut"] {
        let ray = json!({
            // The verification has left the image on the node.
            "name": "ray-head", "imagePullPolicy": "Always", "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        });
        let head = json!({"rayStartParams": {}, "template": {"spec": {"containers": [ray]}}});
        let cluster =
            json!({"metadata": {"name": name}, "spec": {"imageTemplate": name, "headGroupSpec": head}});
        clusters
            .create(&PostParams::default(), &serde_json::from_value(cluster)?)
            .await?;
    }
    for (name, pulled) in [("open", true), ("shut", false)] {
        let head = ListParams::default().labels(&format!("ray.io/cluster={name},ray.io/node-type=head"));
        eventually(&format!("the head of {name} is pulled: {pulled}"), || async {
            let pod = site.pods.list(&head).await?.items.into_iter().next();
            let status = pod.and_then(|pod| pod.status?.container_statuses?.into_iter().next());
            let Some(state) = status.and_then(|status| status.state) else {
                return Ok(None);
            };
            let waiting = state.waiting.and_then(|waiting| waiting.reason);
            Ok(match waiting.as_deref() {
                Some("ErrImagePull" | "ImagePullBackOff") => {
                    anyhow::ensure!(!pulled, "it could not be pulled");
                    Some(())
                }
                None | Some("CrashLoopBackOff") => {
                    anyhow::ensure!(pulled, "it was pulled");
                    Some(())
                }
                _ => None,
            })
        })
        .await?;
        clusters.delete(name, &DeleteParams::default()).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn a_private_base_is_pulled_with_its_secret() -> anyhow::Result<()> {
    let site = site("base").await?;
    site.login("push", PRIVATE, LOGIN).await?;
    let repository = |name: &str| format!("{PRIVATE}/{}/{name}", site.namespace);
    let spec = |name: &str, more: Value| {
        let mut spec = tiny(json!({
            "repository": repository(name), "pushSecret": "push", "runPullSecrets": ["push"],
            "customCommands": [format!("echo {name} >> /home/ray/names")],
        }));
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        spec
    };
    site.create("base", spec("base", json!({}))).await?;
    let base = site.built("base").await?;
    // The login for the push alone is not shown to the build.
    let shut = spec("shut", json!({"baseImage": base, "backoffLimit": 0}));
    let open = spec("open", json!({"baseImage": base, "pullSecrets": ["push"]}));
    site.create("shut", shut).await?;
    site.create("open", open).await?;
    site.built("open").await?;
    let log = site.log("open", "build").await?;
    assert!(!log.contains(LOGIN.1), "{log}");
    let failure = site.ended("shut").await?.failure.unwrap();
    assert_eq!(failure.reason, FailureReason::BaseImageNotFound, "{failure:?}");

    // What was missing is what its message asks for, and naming it is enough.
    site.merge("shut", json!({"spec": {"pullSecrets": ["push"]}}))
        .await?;
    eventually("another build", || async {
        let build = site.status("shut").await?.build;
        Ok(build.is_some_and(|build| build.number == 2).then_some(()))
    })
    .await?;
    site.built("shut").await?;
    Ok(())
}
