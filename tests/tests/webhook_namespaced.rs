//! The namespaced install: operator and webhook under their own accounts, with rights in one namespace.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod admission;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use admission::{EXPANSION, Site, documents, find, free_port, kustomize, manifest, templates};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use ray_tests::{Process, audit, eventually, repository};
use serde_json::{Value, json};

const SYSTEM: &str = "ray-system";
/// What the install makes before anything runs.
const GROUND: [&str; 7] = [
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Secret",
];

async fn apply(site: &Site, object: &Value) -> anyhow::Result<()> {
    let (version, kind) = (
        object["apiVersion"].as_str().unwrap(),
        object["kind"].as_str().unwrap(),
    );
    let name = object["metadata"]["name"].as_str().unwrap();
    let api = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => site.api_in(namespace, version, kind),
        None => site.cluster_api(version, kind),
    };
    api.patch(name, &PatchParams::apply("tests").force(), &Patch::Apply(object))
        .await?;
    Ok(())
}

/// A kubeconfig for one of our service accounts.
async fn login(site: &Site, account: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let api: Api<ServiceAccount> = Api::namespaced(site.cluster.client.clone(), SYSTEM);
    let request = serde_json::from_value::<TokenRequest>(
        json!({"spec": {"audiences": [], "expirationSeconds": 3600}}),
    )?;
    let answer = api
        .create_token_request(account, &PostParams::default(), &request)
        .await?;
    let mut kubeconfig = serde_json::to_value(Kubeconfig::read_from(&site.cluster.kubeconfig)?)?;
    for user in kubeconfig["users"].as_array_mut().unwrap() {
        user["user"] = json!({"token": answer.status.clone().unwrap().token});
    }
    for context in kubeconfig["contexts"].as_array_mut().unwrap() {
        context["context"]["namespace"] = json!(SYSTEM);
    }
    let path = folder.join(account);
    std::fs::write(&path, kubeconfig.to_string())?;
    Ok(path)
}

/// Both servers, as the shipped Deployments start them but for addresses.
async fn start(site: &Site, webhook_port: u16) -> anyhow::Result<[Process; 2]> {
    let folder = tempfile::tempdir()?.keep();
    let bind = format!("0.0.0.0:{webhook_port}");
    let webhook = Process::start(
        "ray-webhook",
        &login(site, "ray-webhook", &folder).await?,
        &[
            "--bind-address",
            &bind,
            "--admin-address=127.0.0.1:0",
            "--namespace",
            SYSTEM,
            "--url-host",
            &site.host,
            "--watch-namespace",
            &site.namespace,
        ],
    )?;
    let operator = Process::start(
        "ray-operator",
        &login(site, "ray-operator", &folder).await?,
        &[
            "--watch-namespace",
            &site.namespace,
            "--metrics-addr=127.0.0.1:0",
            "--health-probe-bind-address=127.0.0.1:0",
            "--helper-image=helper",
            "--template-status-debounce=1",
        ],
    )?;
    Ok([webhook, operator])
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn operator_and_webhook_work_in_the_namespaces_they_were_given() -> anyhow::Result<()> {
    let site = Site::prepare("only", "ray.io").await?;
    let elsewhere = site.cluster.namespace("elsewhere").await?;
    let shipped = kustomize(&site, "resources: [manifests/samples/namespaced]\n")?;
    for object in shipped
        .iter()
        .filter(|object| GROUND.contains(&object["kind"].as_str().unwrap()))
    {
        apply(&site, object).await?;
    }
    for mut object in documents(&repository().join("manifests/namespaced/namespace/rolebindings.yaml"))? {
        object["metadata"]["namespace"] = json!(site.namespace);
        apply(&site, &object).await?;
    }
    let port = free_port()?;
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let mut configuration = find(&shipped, kind, "ray-webhook").unwrap().clone();
        site.point(&mut configuration, port)?;
        let both = json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In",
            "values": [site.namespace, elsewhere]}]});
        for webhook in configuration["webhooks"].as_array_mut().unwrap() {
            webhook["namespaceSelector"] = both.clone();
        }
        apply(&site, &configuration).await?;
    }
    let _servers = start(&site, port).await?;
    let outcome = works(&site, &elsewhere).await;
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let api = site.cluster_api("admissionregistration.k8s.io/v1", kind);
        api.delete("ray-webhook", &Default::default()).await?;
    }
    outcome?;
    assert_eq!(audit::forbidden(&site.cluster)?, BTreeSet::new());
    Ok(())
}

async fn works(site: &Site, elsewhere: &str) -> anyhow::Result<()> {
    site.wait_for_answers().await?;
    templates(site).await?;
    let wide = format!("{}-wide", site.namespace);
    let wide_template = json!({"apiVersion": "templates.ray.io/v1alpha1", "kind": "ClusterComputeTemplate",
        "metadata": {"name": wide}, "spec": {"resources": {"limits": {"cpu": "2"}}}});
    apply(site, &wide_template).await?;
    let mut cluster = manifest(site, "c");
    cluster["metadata"]["annotations"] = json!({"ray.io/enable-serve-service": "true"});
    cluster["spec"]["enableInTreeAutoscaling"] = json!(true);
    cluster["spec"]["headGroupSpec"]["computeTemplate"] = json!(wide);
    let live = site.server_side_apply(&cluster, false).await?;
    assert_eq!(
        live.pointer("/spec/headGroupSpec/template/spec/containers/0/resources/limits/cpu"),
        Some(&json!("2"))
    );

    // cluster, Serve, image and template controllers, one trace of each.
    for (version, kind, selector) in [
        ("v1", "Pod", "ray.io/cluster=c,ray.io/node-type=head"),
        ("v1", "Service", "ray.io/cluster=c"),
        ("rbac.authorization.k8s.io/v1", "Role", "ray.io/cluster=c"),
        ("batch/v1", "Job", ""),
    ] {
        eventually(&format!("a {kind} is made"), || async {
            let list = site
                .api(version, kind)
                .list(&ListParams::default().labels(selector))
                .await?;
            Ok((!list.items.is_empty()).then_some(()))
        })
        .await?;
    }
    eventually("the Serve service is made", || async {
        Ok(site.api("v1", "Service").get_opt("c-serve-svc").await?)
    })
    .await?;
    let templates = site.cluster_api("templates.ray.io/v1alpha1", "ClusterComputeTemplate");
    eventually("users are counted", || async {
        Ok((templates.get_status(&wide).await?.data["status"]["usedBy"]["clusters"] == 1).then_some(()))
    })
    .await?;

    // Elsewhere the webhook says that it stands aside, and the operator sees nothing.
    let mut other = cluster.clone();
    other["metadata"]["namespace"] = json!(elsewhere);
    let applied = site.kubectl(&["-n", elsewhere, "create"], &other)?;
    assert!(
        applied.code == 0 && applied.stderr.contains("does not watch namespace"),
        "{} {}",
        applied.code,
        applied.stderr
    );
    let stored = site.api_in(elsewhere, "ray.io/v1", "RayCluster").get("c").await?;
    assert!(
        !stored
            .metadata
            .annotations
            .unwrap_or_default()
            .contains_key(EXPANSION)
    );
    for (account, verb, resource) in [
        ("ray-operator", "list", "pods"),
        ("ray-operator", "create", "jobs"),
        ("ray-webhook", "list", "imagetemplates.templates.ray.io"),
    ] {
        let user = format!("--as=system:serviceaccount:{SYSTEM}:{account}");
        let may = site
            .user
            .kubectl(&["-n", elsewhere, "auth", "can-i", verb, resource, &user])?;
        assert_eq!(
            may.stdout.trim(),
            "no",
            "{account} may {verb} {resource} in {elsewhere}"
        );
    }
    templates.delete(&wide, &Default::default()).await?;
    Ok(())
}
