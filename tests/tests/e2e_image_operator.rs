//! Builds on a real node by operators of the tests' own: killed at every step, or with flags that the installed one has not.
//! The installed operator rests meanwhile.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod images;

use images::{LOGIN, PRIVATE, RAY, Site, tiny};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use kube::api::Api;
use ray_api::template::v1alpha1::FailureReason;
use ray_tests::{Cluster, Process, User, eventually};
use serde_json::json;
use tokio::sync::Mutex;

/// One test at a time: they share the one Deployment.
static TURN: Mutex<()> = Mutex::const_new(());

/// The installed operator, which does nothing until this is dropped.
struct Rest {
    admin: User,
    /// How many of it there were.
    replicas: i32,
    /// What the installed one knows of this cluster's registries.
    flags: Vec<String>,
}

impl Rest {
    async fn begin(cluster: &Cluster) -> anyhow::Result<Self> {
        let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), "ray-system");
        let spec = deployments.get("ray-operator").await?.spec;
        let pod = spec.template.spec.unwrap();
        let known = [
            "--helper-image",
            "--builder-image",
            "--insecure-registry",
            "--registry-mirror",
        ];
        let mut flags = pod.containers[0].args.clone().unwrap_or_default();
        flags.retain(|flag| known.iter().any(|one| flag.starts_with(one)));
        let rest = Self {
            admin: User::of(cluster, "ray-system"),
            replicas: spec.replicas.unwrap_or(1),
            flags,
        };
        rest.admin
            .kubectl(&["scale", "deployment/ray-operator", "--replicas=0"])?
            .success()?;
        let gone = [
            "wait",
            "--for=delete",
            "pod",
            "-l",
            "app.kubernetes.io/name=ray-operator",
            "--timeout=180s",
        ];
        rest.admin.kubectl(&gone)?.success()?;
        Ok(rest)
    }

    fn operator(&self, site: &Site, extra: &[&str]) -> anyhow::Result<Process> {
        // The last one of a repeated flag counts, where it counts once.
        let known = self.flags.iter().map(String::as_str);
        let kept = known.filter(|flag| {
            let name = flag.split('=').next().unwrap_or_default();
            extra.iter().all(|one| !one.starts_with(&format!("{name}=")))
        });
        site.operator(&kept.chain(extra.iter().copied()).collect::<Vec<_>>())
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        let replicas = format!("--replicas={}", self.replicas);
        let _ = self
            .admin
            .kubectl(&["scale", "deployment/ray-operator", &replicas]);
        let ready = ["rollout", "status", "deployment/ray-operator", "--timeout=60s"];
        let _ = self.admin.kubectl(&ready);
    }
}

/// Steps of a build that an operator can be killed at.
const STEPS: [&str; 6] = ["job", "context", "build", "seal", "push", "verify"];

/// Waits until a step of the template's build has begun; returns the Job.
async fn reached(site: &Site, name: &str, step: &str) -> anyhow::Result<()> {
    eventually(&format!("{name} reaches {step}"), || async {
        let jobs = site.jobs_of(name).await?;
        let verifies = jobs.iter().any(|job| job.name_any().ends_with("-verify"));
        let Some(job) = jobs.iter().find(|job| !job.name_any().ends_with("-verify")) else {
            return Ok(None);
        };
        if step == "job" || step == "verify" {
            return Ok((step == "job" || verifies).then_some(()));
        }
        let status = site.pod(&job.name_any()).await?.status.unwrap_or_default();
        let first = status.init_container_statuses.unwrap_or_default();
        let all = first
            .into_iter()
            .chain(status.container_statuses.unwrap_or_default());
        let begun = all.into_iter().any(|one| {
            one.name == step
                && one
                    .state
                    .is_some_and(|state| state.running.is_some() || state.terminated.is_some())
        });
        Ok(begun.then_some(()))
    })
    .await
}

/// What the registry has of each repository: its tags, and the digest of the first. Runs in a pod.
const TAGS: &str = r#"
import json, sys, urllib.request
for repository in sys.argv[1:]:
    url = f"http://registry.local:5000/v2/{repository}"
    tags = json.load(urllib.request.urlopen(url + "/tags/list"))["tags"]
    request = urllib.request.Request(f"{url}/manifests/{tags[0]}", headers={"Accept": "application/vnd.oci.image.manifest.v1+json"}, method="HEAD")
    print(len(tags), urllib.request.urlopen(request).headers["Docker-Content-Digest"])
"#;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn an_operator_killed_at_every_step_loses_and_repeats_nothing() -> anyhow::Result<()> {
    let _turn = TURN.lock().await;
    let kills: usize = std::env::var("RAY_TESTS_KILLS").map_or(Ok(3), |text| text.parse())?;
    let site = Site::new(Cluster::node().await?, "killed").await?;
    let rest = Rest::begin(&site.cluster).await?;
    let flags = ["--default-repository=registry.local:5000/images"];
    let mut expected = Vec::new();
    for round in 0..kills {
        // Every second step first, then the others.
        let step = STEPS[(2 * round + round / 3) % STEPS.len()];
        let name = format!("killed-{round}");
        let mut operator = rest.operator(&site, &flags)?;
        let command = format!("echo {round} > /home/ray/round; sleep 1");
        site.create(&name, tiny(json!({"customCommands": [command]})))
            .await?;
        reached(&site, &name, step).await?;
        operator.kill()?;
        if round % 2 == 1 {
            // What goes on ends while nobody looks.
            eventually("every Job ends", || async {
                let jobs = site.jobs_of(&name).await?;
                let ended = |job: &k8s_openapi::api::batch::v1::Job| {
                    job.status
                        .as_ref()
                        .is_some_and(|status| status.completion_time.is_some())
                };
                Ok(jobs.iter().all(ended).then_some(()))
            })
            .await?;
        }
        let _operator = rest.operator(&site, &flags)?;
        let image = site.built(&name).await?;
        let status = site.status(&name).await?;
        let build = status.build.unwrap();
        assert_eq!((build.number, build.attempts), (1, 1), "{name}, killed at {step}");
        assert_eq!(status.ray_version.as_deref(), Some("2.60.0"));
        let jobs: Vec<_> = site
            .jobs_of(&name)
            .await?
            .iter()
            .map(ResourceExt::name_any)
            .collect();
        let job = build.job.unwrap();
        assert_eq!(
            jobs,
            [job.clone(), format!("{job}-verify")],
            "{name}, killed at {step}"
        );
        expected.push(image);
    }
    let repositories: Vec<_> = (0..kills)
        .map(|round| format!("images/{}/killed-{round}", site.namespace))
        .collect();
    let look = ["python", "-c", TAGS]
        .into_iter()
        .chain(repositories.iter().map(String::as_str));
    let seen = site.run_in(RAY, &look.collect::<Vec<_>>()).await?;
    let wanted: Vec<_> = expected
        .iter()
        .map(|image| format!("1 {}", image.split_once('@').unwrap().1))
        .collect();
    assert_eq!(
        seen.lines().collect::<Vec<_>>(),
        wanted,
        "one image each, the one that the status names"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn flags_of_the_platform_team() -> anyhow::Result<()> {
    let _turn = TURN.lock().await;
    let cluster = Cluster::node().await?;
    let rest = Rest::begin(&cluster).await?;
    let repository = format!("--default-repository={PRIVATE}/images");
    let site = |prefix| Site::new(cluster.clone(), prefix);

    // Neither registry nor Secret is named, by a person or in the template.
    let defaults = site("defaults").await?;
    defaults.login("team", PRIVATE, LOGIN).await?;
    let _defaults = rest.operator(&defaults, &[&repository, "--default-push-secret=team"])?;
    defaults
        .create("plain", tiny(json!({"customCommands": ["true"]})))
        .await?;

    // The archived executor has no `push`: it builds and pushes in one container.
    let archived = site("archived").await?;
    archived.login("push", PRIVATE, LOGIN).await?;
    let _archived = rest.operator(&archived, &[&repository, "--builder-flavor=archived"])?;
    archived
        .create(
            "plain",
            tiny(json!({"pushSecret": "push", "customCommands": ["true"]})),
        )
        .await?;

    let nowhere = site("nowhere").await?;
    let missing = "--builder-image=registry.local:5000/no/such:1";
    let _nowhere = rest.operator(&nowhere, &[&repository, missing])?;
    nowhere.create("plain", tiny(json!({"backoffLimit": 0}))).await?;

    for site in [&defaults, &archived] {
        let image = site.built("plain").await?;
        let expected = format!("{PRIVATE}/images/{}/plain@sha256:", site.namespace);
        assert!(image.starts_with(&expected), "{image}");
        assert_eq!(site.status("plain").await?.ray_version.as_deref(), Some("2.60.0"));
    }
    let job = archived
        .status("plain")
        .await?
        .build
        .and_then(|build| build.job)
        .unwrap();
    let spec = archived.pod(&job).await?.spec.unwrap();
    let steps = spec
        .init_containers
        .unwrap_or_default()
        .into_iter()
        .chain(spec.containers);
    assert_eq!(
        steps.map(|step| step.name).collect::<Vec<_>>(),
        ["secrets", "context", "build"]
    );

    let failure = nowhere.ended("plain").await?.failure.unwrap();
    assert_eq!(
        failure.reason,
        FailureReason::BuilderImageUnavailable,
        "{failure:?}"
    );
    assert!(
        failure.message.contains("registry.local:5000/no/such:1"),
        "{failure:?}"
    );
    Ok(())
}
