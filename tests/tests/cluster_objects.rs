//! The objects around the pods on a real API server: they follow the spec, heal, and leave other writers alone.

#![allow(clippy::indexing_slicing, reason = "a test")]

mod cluster;

use std::collections::BTreeSet;
use std::time::Duration;

use cluster::life::{Life, group, ray_cluster};
use k8s_openapi::api::core::v1::{ResourceQuota, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use ray_api::ray::v1::RayCluster;
use ray_tests::eventually;
use serde_json::{Value, json};
use tokio::time::sleep;

/// A cluster that has every kind of object around its pods.
fn with_everything(name: &str) -> Value {
    let mut object = ray_cluster(name, 1);
    object["metadata"]["annotations"] = json!({"ray.io/enable-serve-service": "true", "team": "a"});
    object["spec"]["enableInTreeAutoscaling"] = json!(true);
    object["spec"]["headGroupSpec"]["enableIngress"] = json!(true);
    let mut slices = group("slices", 0);
    slices["numOfHosts"] = json!(2);
    object["spec"]["workerGroupSpecs"]
        .as_array_mut()
        .into_iter()
        .for_each(|groups| groups.push(slices.clone()));
    object
}

async fn services(life: &Life) -> anyhow::Result<BTreeSet<String>> {
    let list = life.api::<Service>().list(&ListParams::default()).await?;
    Ok(list.iter().map(ResourceExt::name_any).collect())
}

async fn until_services(life: &Life, names: &[&str]) -> anyhow::Result<()> {
    let wanted: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
    eventually(&format!("the Services are {names:?}"), || async {
        let there = services(life).await?;
        anyhow::ensure!(there == wanted, "{there:?}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn what_others_break_is_mended_and_what_they_add_stays() -> anyhow::Result<()> {
    let life = Life::new("mend").await?;
    let _operator = life.operator()?;
    life.create(with_everything("c")).await?;
    until_services(&life, &["c-head-svc", "c-serve-svc", "c-headless"]).await?;
    let (roles, bindings) = (life.api::<Role>(), life.api::<RoleBinding>());
    let (services, accounts) = (life.api::<Service>(), life.api::<ServiceAccount>());
    let rules = eventually("the Role", || async { Ok(roles.get_opt("c").await?) })
        .await?
        .rules;
    eventually("the RoleBinding", || async { Ok(bindings.get_opt("c").await?) }).await?;
    let ports = services.get("c-head-svc").await?.spec.and_then(|spec| spec.ports);

    life.meddle::<Role>(
        "c",
        json!({"rules": [], "metadata": {"labels": {"audited": "yes"}}}),
    )
    .await?;
    let meddling = json!({"metadata": {"annotations": {"mesh": "on"}}, "spec": {
        "selector": {"ray.io/cluster": "other"},
        "ports": [{"name": "odd", "port": 1}],
    }});
    life.meddle::<Service>("c-head-svc", meddling).await?;
    bindings.delete("c", &DeleteParams::default()).await?;
    accounts.delete("c", &DeleteParams::default()).await?;
    eventually("everything is mended", || async {
        let role = roles.get("c").await?;
        anyhow::ensure!(role.rules == rules, "{:?}", role.rules);
        anyhow::ensure!(role.labels().contains_key("audited"), "the label of another went");
        let service = services.get("c-head-svc").await?;
        anyhow::ensure!(
            service.annotations().contains_key("mesh"),
            "the annotation of another went"
        );
        let spec = service.spec.unwrap_or_default();
        anyhow::ensure!(spec.ports == ports, "{:?}", spec.ports);
        let selected = spec
            .selector
            .and_then(|selector| selector.get("ray.io/cluster").cloned());
        anyhow::ensure!(selected.as_deref() == Some("c"), "{selected:?}");
        let both = (bindings.get_opt("c").await?, accounts.get_opt("c").await?);
        Ok((both.0.is_some() && both.1.is_some()).then_some(()))
    })
    .await
}

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn services_follow_the_spec_and_go_when_it_asks_for_them_no_more() -> anyhow::Result<()> {
    let life = Life::new("follow").await?;
    let _operator = life.operator()?;
    let mut object = with_everything("c");
    object["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["ports"] =
        json!([{"name": "dashboard", "containerPort": 8265}, {"name": "serve", "containerPort": 8000}]);
    life.create(object.clone()).await?;
    until_services(&life, &["c-head-svc", "c-serve-svc", "c-headless"]).await?;

    let ports = |service: Service| -> Vec<(String, i32)> {
        let ports = service.spec.and_then(|spec| spec.ports).unwrap_or_default();
        let mut ports: Vec<_> = ports
            .into_iter()
            .map(|port| (port.name.unwrap_or_default(), port.port))
            .collect();
        ports.sort();
        ports
    };
    object["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["ports"] =
        json!([{"name": "dashboard", "containerPort": 8265}, {"name": "serve", "containerPort": 9000}]);
    life.patch(
        "c",
        json!({"spec": {"headGroupSpec": object["spec"]["headGroupSpec"]}}),
    )
    .await?;
    eventually("the Services have the new port", || async {
        let head = ports(life.api::<Service>().get("c-head-svc").await?);
        let serve = ports(life.api::<Service>().get("c-serve-svc").await?);
        let wanted = [("dashboard", 8265), ("metrics", 8080), ("serve", 9000)];
        let wanted: Vec<_> = wanted.map(|(name, port)| (name.to_owned(), port)).into();
        anyhow::ensure!(head == wanted, "{head:?}");
        anyhow::ensure!(serve == [("serve".to_owned(), 9000)], "{serve:?}");
        Ok(Some(()))
    })
    .await?;
    assert!(life.condition("c", "ObjectFailure").await?.is_none());

    life.patch(
        "c",
        json!({"metadata": {"annotations": {"ray.io/enable-serve-service": null}}, "spec": {"workerGroupSpecs": [group("g", 1)]}}),
    )
    .await?;
    until_services(&life, &["c-head-svc"]).await?;
    life.patch("c", json!({"spec": {"headGroupSpec": {"enableIngress": false}}}))
        .await?;
    let ingresses = life.api::<Ingress>();
    eventually("the Ingress goes", || async {
        Ok(ingresses.get_opt("c-head-ingress").await?.is_none().then_some(()))
    })
    .await
}

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn what_the_spec_says_no_more_goes_from_services_and_the_ingress() -> anyhow::Result<()> {
    let life = Life::new("remove").await?;
    let _operator = life.operator()?;
    let mut object = with_everything("c");
    let options = json!({"host": "a.example", "tls": [{"hosts": ["a.example"]}]});
    object["spec"]["headGroupSpec"]["ingressOptions"] = options;
    object["spec"]["headServiceAnnotations"] = json!({"team": "a"});
    life.create(object).await?;
    let (services, ingresses) = (life.api::<Service>(), life.api::<Ingress>());
    eventually("the Ingress", || async {
        Ok(ingresses.get_opt("c-head-ingress").await?)
    })
    .await?;
    // As an admission plugin that fills in a class does.
    let class = json!({"spec": {"ingressClassName": "nginx"}});
    life.meddle::<Ingress>("c-head-ingress", class).await?;
    let kind = |service: &Service| service.spec.as_ref().and_then(|spec| spec.type_.clone());
    let head = |head: Value| json!({"spec": {"headServiceAnnotations": null, "headGroupSpec": head}});

    // Headless before: Kubernetes gives it an address by making it anew.
    life.patch(
        "c",
        head(json!({"serviceType": "NodePort", "ingressOptions": null})),
    )
    .await?;
    eventually("the head Service has a node port", || async {
        let Some(service) = services.get_opt("c-head-svc").await? else {
            return Ok(None);
        };
        anyhow::ensure!(
            kind(&service).as_deref() == Some("NodePort"),
            "{:?}",
            kind(&service)
        );
        Ok(Some(()))
    })
    .await?;
    life.patch("c", head(json!({"serviceType": null}))).await?;
    eventually("both follow", || async {
        let ingress = ingresses.get("c-head-ingress").await?;
        let spec = ingress.spec.unwrap_or_default();
        let host = spec.rules.iter().flatten().find_map(|rule| rule.host.clone());
        anyhow::ensure!(host.is_none() && spec.tls.is_none(), "{host:?} {:?}", spec.tls);
        anyhow::ensure!(
            spec.ingress_class_name.as_deref() == Some("nginx"),
            "the class went"
        );
        let service = services.get("c-head-svc").await?;
        anyhow::ensure!(
            kind(&service).as_deref() == Some("ClusterIP"),
            "{:?}",
            kind(&service)
        );
        Ok((!service.annotations().contains_key("team")).then_some(()))
    })
    .await?;
    let failure = life.condition("c", "ObjectFailure").await?;
    anyhow::ensure!(
        failure.is_none_or(|it| it.status == "False"),
        "nothing was refused for good"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn what_v1alpha1_let_in_and_nobody_can_read_is_told_so_and_can_be_deleted() -> anyhow::Result<()> {
    let life = Life::new("unreadable").await?;
    let _operator = life.operator()?;
    let mut object = ray_cluster("c", 1);
    object["apiVersion"] = json!("ray.io/v1alpha1");
    object["metadata"]["finalizers"] = json!(["ray.io/gcs-ft-redis-cleanup-finalizer"]);
    object["spec"]["workerGroupSpecs"][0]["numOfHosts"] = json!("two");
    let kind = GroupVersionKind::gvk("ray.io", "v1alpha1", "RayCluster");
    let resource = ApiResource::from_gvk_with_plural(&kind, "rayclusters");
    let clusters: Api<DynamicObject> =
        Api::namespaced_with(life.cluster.client.clone(), &life.namespace, &resource);
    clusters
        .create(&PostParams::default(), &serde_json::from_value(object)?)
        .await?;
    eventually("the event", || async {
        let told = life.events("c").await?;
        let why = told.iter().find(|(reason, _)| reason == "InvalidRayClusterSpec");
        Ok(why.filter(|(_, note)| note.contains("two")).map(drop))
    })
    .await?;
    clusters.delete("c", &DeleteParams::default()).await?;
    eventually("it is gone", || async {
        Ok(clusters.get_opt("c").await?.is_none().then_some(()))
    })
    .await
}

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn a_failure_that_another_operator_wrote_is_over_and_statuses_go_on() -> anyhow::Result<()> {
    let life = Life::new("recover").await?;
    life.create(ray_cluster("c", 1)).await?;
    let failed = json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreateHeadPod", "message": "quota",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let clusters = life.api::<RayCluster>();
    let other = PatchParams {
        field_manager: Some("kuberay-operator".to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"status": {"conditions": [failed]}}));
    clusters.patch_status("c", &other, &patch).await?;
    let _operator = life.operator()?;
    eventually("the failure is over", || async {
        let failure = life.condition("c", "ReplicaFailure").await?;
        Ok(failure.is_some_and(|it| it.status == "False").then_some(()))
    })
    .await?;
    life.scale("c", 3).await?;
    eventually("the status speaks of three", || async {
        let status = clusters.get("c").await?.status.unwrap_or_default();
        Ok((status.desired_worker_replicas == Some(3)).then_some(()))
    })
    .await
}

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn an_ingress_controllers_annotations_cause_no_write_and_stay() -> anyhow::Result<()> {
    let life = Life::new("ingress").await?;
    let _operator = life.operator()?;
    life.create(with_everything("c")).await?;
    let name = "c-head-ingress";
    let ingresses = life.api::<Ingress>();
    eventually("the Ingress", || async { Ok(ingresses.get_opt(name).await?) }).await?;

    let annotated: Ingress = life
        .meddle(
            name,
            json!({"metadata": {"annotations": {"ingress-controller/checksum": "1"}}}),
        )
        .await?;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(
        ingresses.get(name).await?.resource_version(),
        annotated.resource_version()
    );

    life.patch(
        "c",
        json!({"metadata": {"annotations": {"team": null, "owner": "b"}}}),
    )
    .await?;
    eventually("the Ingress follows the cluster's annotations", || async {
        let ingress = ingresses.get(name).await?;
        let keys: Vec<_> = ingress.annotations().keys().map(String::as_str).collect();
        let wanted = [
            "ingress-controller/checksum",
            "owner",
            "ray.io/enable-serve-service",
        ];
        anyhow::ensure!(keys == wanted, "{keys:?}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn objects_of_others_under_our_names_are_left_alone_and_pods_made_all_the_same() -> anyhow::Result<()> {
    let life = Life::new("foreign").await?;
    let foreign: Ingress = serde_json::from_value(json!({
        "metadata": {"name": "c-head-ingress", "labels": {"ray.io/cluster": "c"}},
        "spec": {"defaultBackend": {"service": {"name": "mine", "port": {"number": 80}}}},
    }))?;
    let ingresses = life.api::<Ingress>();
    let mine = ingresses.create(&PostParams::default(), &foreign).await?;
    let _operator = life.operator()?;
    life.create(with_everything("c")).await?;
    life.until_pods("c", 2).await?;
    let failure = eventually("the condition", || life.condition("c", "ObjectFailure")).await?;
    assert!(
        failure.message.contains("c-head-ingress")
            && failure.message.contains("not owned by this RayCluster"),
        "{}",
        failure.message
    );
    assert_eq!(ingresses.get("c-head-ingress").await?, mine);
    // Pods were made although the Ingress could not be: and the event says so once.
    sleep(Duration::from_secs(3)).await;
    let events = life.events("c").await?;
    let told = events
        .iter()
        .filter(|(reason, _)| reason == "FailedToCreateIngress");
    assert_eq!(told.count(), 1, "{events:?}");
    Ok(())
}

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn a_deleted_token_comes_back_when_a_pod_needs_it() -> anyhow::Result<()> {
    let life = Life::new("token").await?;
    let _operator = life.operator()?;
    let mut object = ray_cluster("c", 1);
    object["spec"]["rayVersion"] = json!("2.60.0");
    object["spec"]["authOptions"] = json!({"mode": "token"});
    life.create(object).await?;
    life.until_pods("c", 2).await?;
    let secrets = life.api::<Secret>();
    secrets.get("c").await?;
    secrets.delete("c", &DeleteParams::default()).await?;
    life.scale("c", 2).await?;
    eventually("the Secret is back", || async { Ok(secrets.get_opt("c").await?) })
        .await
        .map(drop)
}

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn only_the_watched_namespaces_are_acted_in() -> anyhow::Result<()> {
    let (a, b, other) = (
        Life::new("watched").await?,
        Life::new("watched").await?,
        Life::new("unwatched").await?,
    );
    let both = format!("{},{}", a.namespace, b.namespace);
    let _operator = cluster::operator(&a.cluster, &both, &[])?;
    for life in [&other, &a, &b] {
        life.create(ray_cluster("c", 1)).await?;
    }
    a.until_pods("c", 2).await?;
    b.until_pods("c", 2).await?;
    assert!(other.live("c").await?.is_empty());
    assert!(other.clusters.get("c").await?.status.is_none());
    // Both are followed further, not only listed once.
    b.scale("c", 2).await?;
    b.until_pods("c", 3).await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs a control plane: make test"]
async fn a_quota_stops_one_group_and_no_other_and_heals_when_it_is_raised() -> anyhow::Result<()> {
    const GPU: &str = "example.com/gpu";
    let life = Life::new("quota").await?;
    let hard = |gpus: u32| json!({"spec": {"hard": {format!("requests.{GPU}"): gpus.to_string()}}});
    let quotas: Api<ResourceQuota> = life.api();
    let mut quota = hard(1);
    quota["metadata"] = json!({"name": "gpus"});
    quotas
        .create(&PostParams::default(), &serde_json::from_value(quota)?)
        .await?;
    eventually("the quota counts", || async {
        let quota = quotas.get("gpus").await?;
        Ok(quota.status.and_then(|status| status.hard))
    })
    .await?;
    let _operator = life.operator()?;
    for name in ["one", "two"] {
        let mut object = ray_cluster(name, 2);
        let mut gpus = group("gpus", 2);
        gpus["template"]["spec"]["containers"][0]["resources"] = json!({"limits": {GPU: "1"}});
        object["spec"]["workerGroupSpecs"] = json!([gpus, group("g", 2)]);
        life.create(object).await?;
    }
    let gpus = || async {
        let mut sum = 0;
        for name in ["one", "two"] {
            let mut groups = life.live_by_group(name).await?;
            sum += groups.remove("gpus").unwrap_or_default();
            let others: Vec<_> = groups.into_iter().collect();
            let wanted = [("g".to_owned(), 2), ("headgroup".to_owned(), 1)];
            anyhow::ensure!(others == wanted, "{name}: {others:?}");
        }
        anyhow::Ok(sum)
    };
    eventually("everything but three GPU workers", || async {
        Ok((gpus().await? == 1).then_some(()))
    })
    .await?;
    for name in ["one", "two"] {
        let failure = eventually("the failure is a condition", || {
            life.condition(name, "ReplicaFailure")
        })
        .await?;
        assert_eq!(
            (failure.status.as_str(), failure.reason.as_str()),
            ("True", "FailedCreateWorkerPod")
        );
        assert!(
            failure.message.contains("forbidden: exceeded quota"),
            "{}",
            failure.message
        );
    }
    sleep(Duration::from_secs(3)).await;
    for name in ["one", "two"] {
        let events = life.events(name).await?;
        let told = events
            .iter()
            .filter(|(reason, _)| reason == "FailedToCreateWorkerPod");
        assert_eq!(
            told.count(),
            1,
            "a quota is no reason to talk every second: {events:?}"
        );
    }

    life.meddle::<ResourceQuota>("gpus", hard(9)).await?;
    eventually("the group is completed without anybody's help", || async {
        Ok((gpus().await? == 4).then_some(()))
    })
    .await?;
    for name in ["one", "two"] {
        eventually("the failure is over", || async {
            let failure = life.condition(name, "ReplicaFailure").await?;
            Ok(failure
                .is_none_or(|failure| failure.status == "False")
                .then_some(()))
        })
        .await?;
    }
    Ok(())
}
