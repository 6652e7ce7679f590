//! A namespace with an operator that builds images in it.

#![allow(
    dead_code,
    missing_docs,
    clippy::indexing_slicing,
    reason = "each test file uses its own part"
)]

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use ray_api::conditions;
use ray_api::template::v1alpha1::{ImageTemplate, ImageTemplateStatus};
use ray_tests::{Cluster, Process, eventually};
use serde_json::{Value, json};

pub(crate) const DIGEST: &str = "sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a";

pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: String,
    pub(crate) templates: Api<ImageTemplate>,
    pub(crate) jobs: Api<Job>,
    pub(crate) pods: Api<Pod>,
}

impl Site {
    pub(crate) async fn new(cluster: Cluster, prefix: &str) -> anyhow::Result<Self> {
        let namespace = cluster.namespace(prefix).await?;
        Ok(Self {
            templates: Api::namespaced(cluster.client.clone(), &namespace),
            jobs: Api::namespaced(cluster.client.clone(), &namespace),
            pods: Api::namespaced(cluster.client.clone(), &namespace),
            cluster,
            namespace,
        })
    }

    /// Starts the image controller alone, for this namespace alone.
    pub(crate) fn operator(&self, flags: &[&str]) -> anyhow::Result<Process> {
        let mut args = vec![
            "--controllers=image",
            "--enable-leader-election=false",
            "--log-format=text",
            "--metrics-addr=127.0.0.1:0",
            "--health-probe-bind-address=127.0.0.1:0",
            "--watch-namespace",
            &self.namespace,
        ];
        args.extend(flags);
        Process::start("ray-operator", &self.cluster.kubeconfig, &args)
    }

    pub(crate) async fn create(&self, name: &str, spec: Value) -> anyhow::Result<()> {
        let object = json!({
            "apiVersion": "templates.ray.io/v1alpha1", "kind": "ImageTemplate", "metadata": {"name": name}, "spec": spec,
        });
        self.templates
            .create(&PostParams::default(), &serde_json::from_value(object)?)
            .await?;
        Ok(())
    }

    pub(crate) async fn merge(&self, name: &str, patch: Value) -> anyhow::Result<()> {
        self.templates
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    pub(crate) async fn status(&self, name: &str) -> anyhow::Result<ImageTemplateStatus> {
        Ok(self.templates.get(name).await?.status.unwrap_or_default())
    }

    /// Waits until a condition has that status and reason; gives the whole status.
    pub(crate) async fn told(
        &self,
        name: &str,
        type_: &str,
        status: &str,
        reason: &str,
    ) -> anyhow::Result<ImageTemplateStatus> {
        eventually(&format!("{name} is {type_}={status} {reason}"), || async {
            let now = self.status(name).await?;
            let list = now.conditions.clone().unwrap_or_default();
            let found =
                conditions::find(&list, type_).is_some_and(|it| it.status == status && it.reason == reason);
            anyhow::ensure!(found, "{list:?}");
            Ok(Some(now))
        })
        .await
    }

    /// Jobs of builds, oldest number first.
    pub(crate) async fn builds(&self) -> anyhow::Result<Vec<Job>> {
        let mut jobs = self
            .jobs
            .list(&ListParams::default().labels("templates.ray.io/image-template"))
            .await?
            .items;
        jobs.retain(|job| !job.name_any().ends_with("-verify"));
        jobs.sort_by_key(|job| job.annotations()["templates.ray.io/build"].clone());
        Ok(jobs)
    }

    /// The pod of a Job.
    pub(crate) async fn pod(&self, job: &str) -> anyhow::Result<Pod> {
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
        eventually(&format!("the pod of {job}"), || async {
            Ok(self.pods.list(&of_job).await?.items.into_iter().next())
        })
        .await
    }

    /// What a kubelet would say of the pod once it has ended: the given steps with exit code and message.
    pub(crate) async fn end_pod(
        &self,
        job: &str,
        phase: &str,
        steps: &[(&str, i32, &str)],
    ) -> anyhow::Result<()> {
        let pod = self.pod(job).await?;
        let status = |name: &String| {
            let (code, message) = steps
                .iter()
                .find(|(step, ..)| step == name)
                .map_or((0, ""), |(_, code, message)| (*code, *message));
            json!({
                "name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": code, "message": message, "reason": if code == 0 { "Completed" } else { "Error" }}},
            })
        };
        let spec = pod.spec.clone().unwrap_or_default();
        let first: Vec<_> = spec
            .init_containers
            .iter()
            .flatten()
            .map(|container| status(&container.name))
            .collect();
        let main: Vec<_> = spec
            .containers
            .iter()
            .map(|container| status(&container.name))
            .collect();
        let patch =
            json!({"status": {"phase": phase, "initContainerStatuses": first, "containerStatuses": main}});
        self.pods
            .patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }
}
