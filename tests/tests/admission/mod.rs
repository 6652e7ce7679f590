//! A webhook of this test's own: processes that the API server reaches by URL, for the test's namespace alone.

#![allow(
    dead_code,
    unused_imports,
    missing_docs,
    unreachable_pub,
    reason = "each test file uses its own part"
)]

mod install;

use std::io::Write;

use anyhow::Context;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use ray_tests::{Cluster, Output, Process, User, eventually, repository};
use serde_json::{Value, json};

pub use install::{documents, established, find, free_port, install_crds, kustomize};
use install::{host_address, merge, resource};

const TEMPLATES: &str = "templates.ray.io/v1alpha1";
pub const EXPANSION: &str = "templates.ray.io/expansion";

pub struct Site {
    pub cluster: Cluster,
    pub user: User,
    pub namespace: String,
    pub webhooks: Vec<Process>,
    pub ports: Vec<u16>,
    /// Where each webhook serves health and metrics.
    pub admins: Vec<String>,
    /// This machine, as the API server sees it.
    pub host: String,
    group: String,
}

impl Site {
    /// A namespace, CRDs, and a webhook that answers.
    pub async fn new(prefix: &str) -> anyhow::Result<Self> {
        Self::with(prefix, &[], "ray.io").await
    }

    /// As `new`, with flags, for RayClusters of an API group.
    pub async fn with(prefix: &str, flags: &[&str], group: &str) -> anyhow::Result<Self> {
        let mut site = Self::prepare(prefix, group).await?;
        let port = free_port()?;
        site.start_webhook(port, flags)?;
        site.configure(port).await?;
        site.wait_for_answers().await?;
        Ok(site)
    }

    /// All but webhook and configurations.
    pub async fn prepare(prefix: &str, group: &str) -> anyhow::Result<Self> {
        let cluster = Cluster::control_plane().await?;
        install_crds(&cluster).await?;
        let user = User::new(&cluster, prefix).await?;
        let namespace = user.namespace.clone();
        let host = host_address(&cluster.kubeconfig)?;
        let site = Self {
            cluster,
            user,
            namespace,
            webhooks: Vec::new(),
            ports: Vec::new(),
            admins: Vec::new(),
            host,
            group: group.into(),
        };
        site.api("v1", "Secret")
            .create(
                &PostParams::default(),
                &site.object("v1", "Secret", "certificate", json!({}))?,
            )
            .await?;
        Ok(site)
    }

    pub fn start_webhook(&mut self, port: u16, flags: &[&str]) -> anyhow::Result<()> {
        let (bind, admin) = (format!("0.0.0.0:{port}"), format!("127.0.0.1:{}", free_port()?));
        let mut args = vec![
            "--bind-address",
            &bind,
            "--admin-address",
            &admin,
            "--namespace",
            &self.namespace,
            "--url-host",
            &self.host,
            "--secret-name",
            "certificate",
            "--log-format",
            "text",
            "--mutating-configuration",
            &self.namespace,
            "--validating-configuration",
            &self.namespace,
        ];
        args.extend(flags);
        self.webhooks
            .push(Process::start("ray-webhook", &self.cluster.kubeconfig, &args)?);
        self.ports.push(port);
        self.admins.push(admin);
        Ok(())
    }

    /// The shipped configurations, for this namespace, by URL.
    pub async fn configure(&self, port: u16) -> anyhow::Result<()> {
        for mut configuration in documents(&repository().join("manifests/webhook/configurations.yaml"))? {
            configuration["metadata"]["name"] = json!(self.namespace);
            self.point(&mut configuration, port)?;
            let kind = configuration["kind"].as_str().context("no kind")?;
            let api = self.cluster_api("admissionregistration.k8s.io/v1", kind);
            api.create(&PostParams::default(), &serde_json::from_value(configuration)?)
                .await?;
        }
        Ok(())
    }

    /// Makes a configuration call this test's webhook, for this test's objects.
    pub fn point(&self, configuration: &mut Value, port: u16) -> anyhow::Result<()> {
        for webhook in configuration["webhooks"].as_array_mut().context("no webhooks")? {
            let path = webhook["clientConfig"]["service"]["path"]
                .as_str()
                .context("no path")?
                .to_owned();
            webhook["clientConfig"] = json!({"url": format!("https://{}:{port}{path}", self.host)});
            let rule = &mut webhook["rules"][0];
            if rule["apiGroups"][0] == "ray.io" {
                rule["apiGroups"] = json!([self.group]);
            }
            if rule["scope"] == "Cluster" {
                // Cluster-wide objects belong to the test that names them so.
                let ours = json!({"name": "ours", "expression": format!("object.metadata.name.startsWith('{}')", self.namespace)});
                webhook["matchConditions"]
                    .as_array_mut()
                    .context("no conditions")?
                    .push(ours);
            } else {
                webhook["namespaceSelector"] =
                    json!({"matchLabels": {"kubernetes.io/metadata.name": self.namespace}});
            }
        }
        Ok(())
    }

    /// Until the API server has seen the configurations and their caBundle.
    pub async fn wait_for_answers(&self) -> anyhow::Result<()> {
        let template = json!({"metadata": {"annotations": {"templates.ray.io/image-template": "none"}},
            "spec": {"containers": [{"name": "ray-head"}]}});
        let probe = self.raycluster("probe", json!({"headGroupSpec": {"template": template}}))?;
        eventually("the webhook answers", || async {
            let params = PostParams {
                dry_run: true,
                ..PostParams::default()
            };
            let answer = self.rayclusters().create(&params, &probe).await?;
            Ok((answer.data["spec"]["suspend"] == true).then_some(()))
        })
        .await
    }

    pub fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(
            self.cluster.client.clone(),
            &self.namespace,
            &resource(api_version, kind),
        )
    }

    /// Objects of a namespace that is not the test's.
    pub fn api_in(&self, namespace: &str, api_version: &str, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(
            self.cluster.client.clone(),
            namespace,
            &resource(api_version, kind),
        )
    }

    pub fn cluster_api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        Api::all_with(self.cluster.client.clone(), &resource(api_version, kind))
    }

    pub fn rayclusters(&self) -> Api<DynamicObject> {
        self.api(&format!("{}/v1", self.group), "RayCluster")
    }

    pub fn object(
        &self,
        api_version: &str,
        kind: &str,
        name: &str,
        body: Value,
    ) -> anyhow::Result<DynamicObject> {
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": self.namespace}});
        merge(&mut object, body);
        Ok(serde_json::from_value(object)?)
    }

    pub fn raycluster(&self, name: &str, spec: Value) -> anyhow::Result<DynamicObject> {
        self.object(
            &format!("{}/v1", self.group),
            "RayCluster",
            name,
            json!({"spec": spec}),
        )
    }

    /// Creates or replaces the spec of a ComputeTemplate.
    pub async fn compute(&self, name: &str, spec: Value) -> anyhow::Result<()> {
        let api = self.api(TEMPLATES, "ComputeTemplate");
        self.apply_template(&api, "ComputeTemplate", name, spec).await
    }

    /// Creates or replaces the spec of a ClusterComputeTemplate, whose name begins with the namespace's.
    pub async fn cluster_compute(&self, name: &str, spec: Value) -> anyhow::Result<()> {
        let api = self.cluster_api(TEMPLATES, "ClusterComputeTemplate");
        self.apply_template(&api, "ClusterComputeTemplate", name, spec)
            .await
    }

    async fn apply_template(
        &self,
        api: &Api<DynamicObject>,
        kind: &str,
        name: &str,
        spec: Value,
    ) -> anyhow::Result<()> {
        let object = json!({"apiVersion": TEMPLATES, "kind": kind, "metadata": {"name": name}, "spec": spec});
        let params = PatchParams::apply("platform").force();
        api.patch(name, &params, &Patch::Apply(object)).await?;
        Ok(())
    }

    /// They are in no namespace, so nothing else takes them away.
    pub async fn delete_cluster_compute(&self, names: &[&str]) -> anyhow::Result<()> {
        let api = self.cluster_api(TEMPLATES, "ClusterComputeTemplate");
        for name in names {
            api.delete(name, &Default::default()).await?;
        }
        Ok(())
    }

    /// Creates an ImageTemplate, and says that it was built if there is a digest.
    pub async fn image(&self, name: &str, digest: Option<&str>) -> anyhow::Result<()> {
        let api = self.api("templates.ray.io/v1alpha1", "ImageTemplate");
        let spec = json!({"spec": {"baseImage": "rayproject/ray:2.60.0", "repository": format!("reg.local/{}/{name}", self.namespace)}});
        let object = self.object("templates.ray.io/v1alpha1", "ImageTemplate", name, spec)?;
        api.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(object))
            .await?;
        if let Some(digest) = digest {
            let status =
                json!({"status": {"image": format!("reg/{name}@sha256:{digest}"), "rayVersion": "2.60.0"}});
            api.patch_status(name, &PatchParams::default(), &Patch::Merge(status))
                .await?;
        }
        Ok(())
    }

    pub async fn get(&self, name: &str) -> anyhow::Result<Value> {
        Ok(serde_json::to_value(self.rayclusters().get(name).await?)?)
    }

    /// `kubectl COMMAND -f -` and what it printed.
    pub fn kubectl(&self, command: &[&str], object: &Value) -> anyhow::Result<Output> {
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(object.to_string().as_bytes())?;
        let path = file.path().to_string_lossy().into_owned();
        let mut args = command.to_vec();
        args.extend(["-f", &path]);
        self.user.kubectl(&args)
    }

    pub async fn server_side_apply(&self, object: &Value, dry_run: bool) -> anyhow::Result<Value> {
        let name = object["metadata"]["name"].as_str().context("no name")?;
        let params = PatchParams {
            dry_run,
            ..PatchParams::apply("gitops")
        };
        Ok(serde_json::to_value(
            self.rayclusters()
                .patch(name, &params, &Patch::Apply(object))
                .await?,
        )?)
    }

    /// A JSON patch, as the autoscaler sends it.
    pub async fn json_patch(&self, name: &str, patch: Value) -> anyhow::Result<Value> {
        let patch: json_patch::Patch = serde_json::from_value(patch)?;
        let done = self
            .rayclusters()
            .patch(name, &PatchParams::default(), &Patch::<Value>::Json(patch))
            .await?;
        Ok(serde_json::to_value(done)?)
    }

    pub async fn merge_patch(&self, name: &str, patch: Value) -> anyhow::Result<Value> {
        let done = self
            .rayclusters()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(serde_json::to_value(done)?)
    }

    /// Removes what is not in the namespace.
    pub async fn finish(self) -> anyhow::Result<()> {
        for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
            let api = self.cluster_api("admissionregistration.k8s.io/v1", kind);
            api.delete(&self.namespace, &Default::default()).await?;
        }
        Ok(())
    }
}

/// What a manifest of ours holds for a cluster with both kinds of references.
pub fn manifest(site: &Site, name: &str) -> Value {
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name, "namespace": site.namespace},
        "spec": {
            "imageTemplate": "torch",
            "headGroupSpec": {"computeTemplate": "small"},
            "workerGroupSpecs": [
                {"groupName": "a", "replicas": 1, "minReplicas": 0, "maxReplicas": 4, "computeTemplate": "small"},
                {"groupName": "b", "replicas": 2, "minReplicas": 0, "maxReplicas": 4, "computeTemplate": "big",
                 "template": {"spec": {"containers": [{"name": "mine", "env": [{"name": "OWN", "value": "1"}]}, {"name": "sidecar", "image": "busybox"}]}}},
            ],
        },
    })
}

/// The templates of [`manifest`].
pub async fn templates(site: &Site) -> anyhow::Result<()> {
    let small = json!({"resources": {"limits": {"cpu": "1", "memory": "2Gi"}}, "env": [{"name": "SIZE", "value": "small"}],
        "sharedMemory": "1Gi", "tolerations": [{"key": "ray", "operator": "Exists"}], "nodeSelector": {"pool": "cpu"}});
    site.compute("small", small).await?;
    let big = json!({"extends": "small", "resources": {"limits": {"cpu": "8", "nvidia.com/gpu": "1"}}, "env": [{"name": "SIZE", "value": "big"}]});
    site.compute("big", big).await?;
    site.image("torch", Some("one")).await
}

/// Without what the API server writes on its own.
pub fn without_bookkeeping(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in [
            "managedFields",
            "resourceVersion",
            "generation",
            "uid",
            "creationTimestamp",
        ] {
            metadata.remove(field);
        }
    }
    object
}

pub fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or_default()
}
