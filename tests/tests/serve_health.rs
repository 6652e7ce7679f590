//! Serve health on a real API server: pods with hand-written status, proxies that are this program.

mod serve;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use ray_api::ray::v1::RayCluster;
use ray_tests::eventually;
use serde_json::json;
use serve::{LABEL, Mode, Proxy, Site};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn the_label_follows_the_proxy_and_the_service_follows_the_label() -> anyhow::Result<()> {
    let site = Site::new("serve").await?;
    let cluster = site.serve_cluster("c").await?;
    let (head, mut worker) = (Proxy::start(&site).await?, Proxy::start(&site).await?);
    worker.kill().await;
    site.pod("head", &cluster, "head", head.port, &[]).await?;
    site.pod("worker", &cluster, "worker", worker.port, &[]).await?;
    let selector = || async {
        anyhow::Ok(
            site.api::<Service>()
                .get("c-serve-svc")
                .await?
                .spec
                .and_then(|spec| spec.selector),
        )
    };
    assert_eq!(selector().await?.map(|selector| selector.len()), Some(1));
    let _operator = site.operator(&[])?;

    site.label_becomes("head", Some("true")).await?;
    eventually("the service selects on the label", || async {
        let selector = selector().await?.unwrap_or_default();
        Ok((selector.get(LABEL).map(String::as_str) == Some("true") && selector.len() == 2).then_some(()))
    })
    .await?;
    site.condition_becomes("c", "ServeAvailable", "True", "PodsHealthy")
        .await?;
    assert_eq!(
        site.label("worker").await?,
        None,
        "a pod without a proxy gets no label"
    );

    worker.revive().await?;
    site.label_becomes("worker", Some("true")).await?;
    worker.set(Mode::Status(503));
    site.label_becomes("worker", Some("false")).await?;
    worker.set(Mode::Healthy);
    site.label_becomes("worker", Some("true")).await?;
    worker.kill().await;
    site.label_becomes("worker", Some("false")).await?;
    // The worker refuses, so it is not the prober that is at fault.
    head.set(Mode::Hang);
    site.label_becomes("head", Some("false")).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn nothing_is_written_while_nothing_changes() -> anyhow::Result<()> {
    let site = Site::new("serve").await?;
    let cluster = site.serve_cluster("c").await?;
    let proxy = Proxy::start(&site).await?;
    site.pod("head", &cluster, "head", proxy.port, &[]).await?;
    site.pod("worker", &cluster, "worker", 1025, &[]).await?;
    let _operator = site.operator(&[])?;
    site.condition_becomes("c", "ServeAvailable", "True", "PodsHealthy")
        .await?;
    let versions = || async {
        let list = ListParams::default();
        let pods = site
            .api::<Pod>()
            .list(&list)
            .await?
            .items
            .into_iter()
            .map(|pod| pod.resource_version());
        let clusters = site
            .api::<RayCluster>()
            .list(&list)
            .await?
            .items
            .into_iter()
            .map(|cluster| cluster.resource_version());
        let services = site
            .api::<Service>()
            .list(&list)
            .await?
            .items
            .into_iter()
            .map(|service| service.resource_version());
        anyhow::Ok(pods.chain(clusters).chain(services).collect::<Vec<_>>())
    };
    // The event and the selector may still be on their way.
    site.asked(&proxy, 10).await?;
    let before = versions().await?;
    site.asked(&proxy, 25).await?;
    assert_eq!(versions().await?, before);
    assert_eq!(proxy.connections(), 1, "the connection is kept open");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_pod_that_ends_or_is_deleted_leaves_at_once() -> anyhow::Result<()> {
    let site = Site::new("serve").await?;
    let cluster = site.serve_cluster("c").await?;
    let proxy = Proxy::start(&site).await?;
    for pod in ["ends", "deleted"] {
        site.pod(pod, &cluster, "worker", proxy.port, &[]).await?;
    }
    // No number of failures would be enough: only the pod's own end can be the reason.
    let _operator = site.operator(&["--serve-health-failure-threshold=1000000"])?;
    for pod in ["ends", "deleted"] {
        site.label_becomes(pod, Some("true")).await?;
    }
    site.pod_status("ends", json!({"phase": "Failed"})).await?;
    site.label_becomes("ends", Some("false")).await?;

    let finalizers = kube::api::Patch::Merge(json!({"metadata": {"finalizers": ["tests.ray.io/hold"]}}));
    site.api::<Pod>()
        .patch("deleted", &Default::default(), &finalizers)
        .await?;
    site.api::<Pod>()
        .delete("deleted", &DeleteParams::default())
        .await?;
    site.label_becomes("deleted", Some("false")).await?;
    let none = kube::api::Patch::Merge(json!({"metadata": {"finalizers": null}}));
    site.api::<Pod>()
        .patch("deleted", &Default::default(), &none)
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_restart_of_the_operator_keeps_labels_until_it_knows_better() -> anyhow::Result<()> {
    let site = Site::new("serve").await?;
    let cluster = site.serve_cluster("c").await?;
    let (well, ill) = (Proxy::start(&site).await?, Proxy::start(&site).await?);
    site.pod("well", &cluster, "head", well.port, &[]).await?;
    site.pod("ill", &cluster, "worker", ill.port, &[]).await?;
    let mut first = site.operator(&[])?;
    site.label_becomes("well", Some("true")).await?;
    site.label_becomes("ill", Some("true")).await?;
    first.kill()?;
    ill.set(Mode::Status(500));
    let before = site.api::<Pod>().get("well").await?.resource_version();

    let _second = site.operator(&["--serve-health-failure-threshold=5"])?;
    site.asked(&ill, 2).await?;
    assert_eq!(site.label("ill").await?.as_deref(), Some("true"));
    site.label_becomes("ill", Some("false")).await?;
    assert_eq!(site.api::<Pod>().get("well").await?.resource_version(), before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_restarted_operator_brings_back_a_pod_that_it_took_out() -> anyhow::Result<()> {
    let site = Site::new("serve").await?;
    let cluster = site.serve_cluster("c").await?;
    let proxy = Proxy::start(&site).await?;
    site.pod("head", &cluster, "head", proxy.port, &[]).await?;
    let mut first = site.operator(&[])?;
    site.label_becomes("head", Some("true")).await?;
    proxy.set(Mode::Status(503));
    site.label_becomes("head", Some("false")).await?;
    site.condition_becomes("c", "ServeAvailable", "False", "PodsUnhealthy")
        .await?;
    first.kill()?;
    let _second = site.operator(&[])?;
    proxy.set(Mode::Healthy);
    site.label_becomes("head", Some("true")).await?;
    site.condition_becomes("c", "ServeAvailable", "True", "PodsHealthy")
        .await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn what_is_not_ours_is_left_alone() -> anyhow::Result<()> {
    let site = Site::new("serve").await?;
    let enabled = json!({"ray.io/enable-serve-service": "true"});
    let ray_service = json!({"ray.io/originated-from-crd": "RayService"});
    let plain = site.ray_cluster("plain", json!({}), json!({})).await?;
    let of_service = site.ray_cluster("of-service", enabled, ray_service).await?;
    let ours = site.serve_cluster("ours").await?;
    let (foreign, own) = (Proxy::start(&site).await?, Proxy::start(&site).await?);
    site.pod("plain", &plain, "head", foreign.port, &[]).await?;
    site.pod(
        "of-service",
        &of_service,
        "head",
        foreign.port,
        &[("ray.io/originated-from-crd", "RayService"), (LABEL, "false")],
    )
    .await?;
    site.pod("impostor", &ours, "worker", foreign.port, &[]).await?;
    let orphan = kube::api::Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
    site.api::<Pod>()
        .patch("impostor", &Default::default(), &orphan)
        .await?;
    site.pod("ours", &ours, "head", own.port, &[]).await?;
    let _operator = site.operator(&[])?;
    site.label_becomes("ours", Some("true")).await?;
    site.asked(&own, 10).await?;
    assert_eq!(foreign.connections(), 0);
    assert_eq!(site.label("plain").await?, None);
    assert_eq!(site.label("of-service").await?.as_deref(), Some("false"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_label_from_the_pod_template_is_taken_off_until_the_proxy_answers() -> anyhow::Result<()> {
    let site = Site::new("serve").await?;
    let cluster = site.serve_cluster("c").await?;
    let mut proxy = Proxy::start(&site).await?;
    proxy.kill().await;
    site.pod("head", &cluster, "head", proxy.port, &[(LABEL, "true")])
        .await?;
    let _operator = site.operator(&[])?;
    site.label_becomes("head", None).await?;
    proxy.revive().await?;
    site.label_becomes("head", Some("true")).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn the_head_is_excluded_on_demand_and_then_not_asked() -> anyhow::Result<()> {
    let site = Site::new("serve").await?;
    let cluster = site.serve_cluster("c").await?;
    let (head, worker) = (Proxy::start(&site).await?, Proxy::start(&site).await?);
    site.pod("head", &cluster, "head", head.port, &[]).await?;
    site.pod("worker", &cluster, "worker", worker.port, &[]).await?;
    let _operator = site.operator(&[])?;
    site.label_becomes("head", Some("true")).await?;
    let clusters = site.api::<RayCluster>();
    let annotate = |value: serde_json::Value| {
        let patch = kube::api::Patch::Merge(
            json!({"metadata": {"annotations": {"ray.io/serve-exclude-head": value}}}),
        );
        let clusters = clusters.clone();
        async move { clusters.patch("c", &Default::default(), &patch).await.map(drop) }
    };
    annotate(json!("true")).await?;
    site.label_becomes("head", Some("false")).await?;
    let before = head.requests();
    site.asked(&worker, 10).await?;
    assert_eq!(head.requests(), before);
    annotate(json!(null)).await?;
    site.label_becomes("head", Some("true")).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn silence_everywhere_keeps_the_labels_and_is_a_condition() -> anyhow::Result<()> {
    let site = Site::new("serve").await?;
    let cluster = site.serve_cluster("c").await?;
    let proxy = Proxy::start(&site).await?;
    for pod in ["a", "b", "c"] {
        site.pod(pod, &cluster, "worker", proxy.port, &[]).await?;
    }
    let _operator = site.operator(&["--serve-health-timeout=300ms"])?;
    for pod in ["a", "b", "c"] {
        site.label_becomes(pod, Some("true")).await?;
    }
    proxy.set(Mode::Hang);
    site.condition_becomes("c", "ServeHealthUnknown", "True", "NoPodAnswers")
        .await?;
    site.asked(&proxy, 20).await?;
    for pod in ["a", "b", "c"] {
        assert_eq!(site.label(pod).await?.as_deref(), Some("true"));
    }
    proxy.set(Mode::Healthy);
    site.condition_becomes("c", "ServeHealthUnknown", "False", "PodsAnswer")
        .await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn conditions_and_events_say_what_is_wrong() -> anyhow::Result<()> {
    let site = Site::new("serve").await?;
    let cluster = site.serve_cluster("c").await?;
    let mut proxy = Proxy::start(&site).await?;
    proxy.kill().await;
    site.pod("head", &cluster, "head", proxy.port, &[]).await?;
    let _operator = site.operator(&[])?;
    // Serve's default host 127.0.0.1 looks like this from outside.
    site.condition_becomes("c", "ServeAvailable", "False", "NoProxy")
        .await?;
    proxy.revive().await?;
    site.label_becomes("head", Some("true")).await?;
    proxy.set(Mode::Status(500));
    site.label_becomes("head", Some("false")).await?;
    eventually("an event names the pod and why", || async {
        let events = site.api::<Event>().list(&ListParams::default()).await?;
        let told = events.items.iter().any(|event| {
            event.reason.as_deref() == Some("ServePodUnhealthy")
                && event
                    .note
                    .as_deref()
                    .is_some_and(|note| note.contains("head (HTTP status 500"))
                && event
                    .regarding
                    .as_ref()
                    .and_then(|regarding| regarding.kind.as_deref())
                    == Some("RayCluster")
        });
        Ok(told.then_some(()))
    })
    .await?;
    let bad =
        kube::api::Patch::Merge(json!({"metadata": {"annotations": {"ray.io/serve-health-port": "22"}}}));
    site.api::<RayCluster>()
        .patch("c", &Default::default(), &bad)
        .await?;
    site.condition_becomes("c", "ServeHealthUnknown", "True", "InvalidAnnotation")
        .await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn of_two_replicas_only_the_leader_probes_and_the_other_takes_over() -> anyhow::Result<()> {
    let site = Site::new("serve").await?;
    let cluster = site.serve_cluster("c").await?;
    let proxy = Proxy::start(&site).await?;
    site.pod("head", &cluster, "head", proxy.port, &[]).await?;
    let lease = ["--leader-election-namespace", &site.namespace];
    let mut first = site.operator(&lease)?;
    site.label_becomes("head", Some("true")).await?;
    let _second = site.operator(&lease)?;
    site.asked(&proxy, 15).await?;
    assert_eq!(proxy.connections(), 1, "one connection, so one prober");
    first.kill()?;
    proxy.set(Mode::Status(500));
    site.label_becomes("head", Some("false")).await
}
