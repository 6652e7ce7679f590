//! A namespace with an operator that builds images in it.

#![allow(
    dead_code,
    missing_docs,
    clippy::indexing_slicing,
    reason = "each test file uses its own part"
)]

use std::collections::BTreeMap;

use anyhow::Context;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::ResourceExt;
use kube::api::{Api, ListParams, LogParams, Patch, PatchParams, PostParams};
use ray_api::conditions;
use ray_api::template::v1alpha1::{ImageTemplate, ImageTemplateStatus};
use ray_tests::{Cluster, PATIENCE, Process, eventually};
use serde_json::{Value, json};

pub(crate) const DIGEST: &str = "sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a";

/// The node's image with Ray.
pub(crate) const RAY: &str = "rayproject/ray:2.60.0";
/// The node's registry that wants a login, and who may.
pub(crate) const PRIVATE: &str = "registry.local:5001";
pub(crate) const LOGIN: (&str, &str) = ("push", "push-word");

/// A spec on the node's smallest base, whose pod finds room beside many others.
pub(crate) fn tiny(spec: Value) -> Value {
    let mut whole = json!({
        "baseImage": "tests/tiny:1", "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        whole[key] = value.clone();
    }
    whole
}

/// What an install script could do, run as a command. The password stands in two parts, so that the script itself has it not.
const CURIOUS: &str = r#"
for path in /run/ray-push /secrets /inputs /var/run/secrets/kubernetes.io /kaniko/.docker/config.json; do
  if [ -e "$path" ] && [ -n "$(ls -A "$path" 2> /dev/null)" ]; then echo "REACHED $path"; fi
done
if touch /workspace/planted 2> /dev/null; then echo "REACHED the files of the build"; fi
env | grep -i -E 'token|secret|password|DOCKER_CONFIG' && echo "REACHED the environment"
part=push-; encoded=cHVzaDpwdXNoL
grep -r -s -l -e "${part}word" -e "${encoded}Xdvcm" /proc/[0-9]*/environ /run /etc /home /kaniko /out /tmp && echo "REACHED the push secret"
[ -L /bin/wget ] || wget -T 5 -O - --no-check-certificate https://API_SERVER/api/v1/secrets || echo "refused"
exit 0
"#;

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

    /// Waits for the end of a template's build, for several patiences: a build unpacks a whole image.
    pub(crate) async fn ended(&self, name: &str) -> anyhow::Result<ImageTemplateStatus> {
        let what = format!("the end of {name}");
        for _ in 0..5 {
            let end = eventually(&what, || async {
                let status = self.status(name).await?;
                let list = status.conditions.clone().unwrap_or_default();
                let is = |type_| conditions::is_true(&list, type_);
                let over = !is("Building") && (is("Ready") || is("Failed"));
                Ok(over.then_some(status))
            });
            if let Ok(status) = end.await {
                return Ok(status);
            }
        }
        let status = self.status(name).await?;
        anyhow::bail!("{name} did not end within {:?}: {status:?}", PATIENCE * 5)
    }

    /// The image of a build that must succeed.
    pub(crate) async fn built(&self, name: &str) -> anyhow::Result<String> {
        let status = self.ended(name).await?;
        anyhow::ensure!(status.failure.is_none(), "{name}: {:?}", status.failure);
        status.image.ok_or_else(|| anyhow::anyhow!("{name} has no image"))
    }

    /// The commands of a curious install script, for this cluster's API server.
    pub(crate) async fn curious(&self) -> anyhow::Result<String> {
        let services: Api<Service> = Api::namespaced(self.cluster.client.clone(), "default");
        let spec = services.get("kubernetes").await?.spec;
        let address = spec
            .and_then(|spec| spec.cluster_ip)
            .context("the API server has no address")?;
        Ok(CURIOUS.replace("API_SERVER", &address))
    }

    /// Creates a Secret from text.
    pub(crate) async fn secret(&self, name: &str, type_: &str, data: &[(&str, &str)]) -> anyhow::Result<()> {
        let secret = Secret {
            metadata: kube::core::ObjectMeta {
                name: Some(name.to_owned()),
                ..Default::default()
            },
            type_: Some(type_.to_owned()),
            string_data: Some(
                data.iter()
                    .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
                    .collect::<BTreeMap<_, _>>(),
            ),
            ..Secret::default()
        };
        let secrets: Api<Secret> = Api::namespaced(self.cluster.client.clone(), &self.namespace);
        secrets.create(&PostParams::default(), &secret).await?;
        Ok(())
    }

    /// Creates a Secret with a login for one registry.
    pub(crate) async fn login(
        &self,
        name: &str,
        registry: &str,
        (user, password): (&str, &str),
    ) -> anyhow::Result<()> {
        let config = json!({"auths": {registry: {"username": user, "password": password}}}).to_string();
        self.secret(
            name,
            "kubernetes.io/dockerconfigjson",
            &[(".dockerconfigjson", &config)],
        )
        .await
    }

    /// Runs a program in an image; its output.
    pub(crate) async fn run_in(&self, image: &str, command: &[&str]) -> anyhow::Result<String> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"generateName": "look-"},
            "spec": {
                "restartPolicy": "Never", "automountServiceAccountToken": false,
                "containers": [{"name": "look", "image": image, "command": command}],
            },
        }))?;
        let name = self.pods.create(&PostParams::default(), &pod).await?.name_any();
        eventually(&format!("the end of {name}"), || async {
            let phase = self.pods.get(&name).await?.status.and_then(|status| status.phase);
            Ok(matches!(phase.as_deref(), Some("Succeeded" | "Failed")).then_some(()))
        })
        .await?;
        Ok(self.pods.logs(&name, &LogParams::default()).await?)
    }

    /// What a step of a template's newest build printed.
    pub(crate) async fn log(&self, name: &str, step: &str) -> anyhow::Result<String> {
        let job = self.status(name).await?.build.and_then(|build| build.job);
        let pod = self.pod(&job.unwrap_or_default()).await?.name_any();
        let params = LogParams {
            container: Some(step.to_owned()),
            ..LogParams::default()
        };
        Ok(self.pods.logs(&pod, &params).await?)
    }

    /// Jobs of a template, in the order of their names.
    pub(crate) async fn jobs_of(&self, name: &str) -> anyhow::Result<Vec<Job>> {
        let of_template = ListParams::default().labels(&format!("templates.ray.io/image-template={name}"));
        Ok(self.jobs.list(&of_template).await?.items)
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
