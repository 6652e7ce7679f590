//! Real builds on a real node: what lists of packages become, what foreign code in a build can reach, and what failures say.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod images;

use images::Site;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{LogParams, PostParams};
use ray_api::template::v1alpha1::FailureReason;
use ray_tests::{Cluster, PATIENCE, eventually};
use serde_json::{Value, json};

const BASE: &str = "rayproject/ray:2.60.0";

async fn site(prefix: &str) -> anyhow::Result<Site> {
    Site::new(Cluster::node().await?, prefix).await
}

/// Waits for the end of a template's build, for several patiences: a build unpacks a whole image.
async fn ended(site: &Site, name: &str) -> anyhow::Result<ray_api::template::v1alpha1::ImageTemplateStatus> {
    let what = format!("the end of {name}");
    for _ in 0..5 {
        let end = eventually(&what, || async {
            let status = site.status(name).await?;
            let list = status.conditions.clone().unwrap_or_default();
            let over = ["Ready", "Failed"]
                .iter()
                .any(|type_| ray_api::conditions::is_true(&list, type_));
            anyhow::ensure!(over, "{list:?}");
            Ok(Some(status))
        });
        if let Ok(status) = end.await {
            return Ok(status);
        }
    }
    anyhow::bail!(
        "{name} did not end within {:?}: {:?}",
        PATIENCE * 5,
        site.status(name).await?
    )
}

/// Runs a command in an image; its output.
async fn run_in(site: &Site, image: &str, command: &str) -> anyhow::Result<String> {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"generateName": "look-"},
        "spec": {
            "restartPolicy": "Never", "automountServiceAccountToken": false,
            "containers": [{"name": "look", "image": image, "command": ["/bin/bash", "-c", command]}],
        },
    }))?;
    let name = site.pods.create(&PostParams::default(), &pod).await?.name_any();
    eventually(&format!("the end of {name}"), || async {
        let phase = site.pods.get(&name).await?.status.and_then(|status| status.phase);
        Ok(matches!(phase.as_deref(), Some("Succeeded" | "Failed")).then_some(()))
    })
    .await?;
    Ok(site.pods.logs(&name, &LogParams::default()).await?)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn packages_environment_and_commands_reach_the_image() -> anyhow::Result<()> {
    let site = site("build").await?;
    let value = r#"a "quoted" $HOME \n 'x' `id` #"#;
    site.create(
        "emoji",
        json!({
            "baseImage": BASE,
            "systemPackages": ["tree"],
            "pipPackages": ["emoji==2.14.0"],
            "environmentVariables": {"EXACT": value},
            "customCommands": ["id -un > /home/ray/who\nfalse | true || echo pipefail > /home/ray/pipefail"],
        }),
    )
    .await?;
    let status = ended(&site, "emoji").await?;
    assert_eq!(status.failure, None);
    assert_eq!(status.ray_version.as_deref(), Some("2.60.0"));
    assert!(status.python_version.is_some());
    let look = "printenv EXACT; tree --version; python -c 'import emoji; print(emoji.__version__)'; cat who pipefail; id -un";
    let seen = run_in(&site, status.image.as_deref().unwrap(), look).await?;
    assert!(seen.starts_with(&format!("{value}\ntree v")), "{seen}");
    assert!(seen.ends_with("2.14.0\nray\npipefail\nray\n"), "{seen}");
    Ok(())
}

/// What an install script could do, run as a command.
const CURIOUS: &str = r#"
for path in /run/ray-push /secrets /inputs /var/run/secrets/kubernetes.io /kaniko/.docker/config.json; do
  if [ -e "$path" ] && [ -n "$(ls -A "$path" 2> /dev/null)" ]; then echo "REACHED $path"; fi
done
if touch /workspace/planted 2> /dev/null; then echo "REACHED the files of the build"; fi
env | grep -i -E 'token|secret|password|DOCKER_CONFIG' && echo "REACHED the environment"
grep -r -s cHVzaA /proc/[0-9]*/environ && echo "REACHED the push secret"
exit 0
"#;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn foreign_code_reaches_nothing_and_what_it_plants_is_refused() -> anyhow::Result<()> {
    let site = site("hostile").await?;
    let login = json!({"auths": {"registry.local:5000": {"auth": "cHVzaDpwdXNo"}}}).to_string();
    let secret = json!({
        "metadata": {"name": "push"}, "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": login},
    });
    let secrets = kube::Api::namespaced(site.cluster.client.clone(), &site.namespace);
    let secret: k8s_openapi::api::core::v1::Secret = serde_json::from_value(secret)?;
    secrets.create(&PostParams::default(), &secret).await?;

    site.create(
        "curious",
        json!({"baseImage": BASE, "pushSecret": "push", "customCommands": [CURIOUS]}),
    )
    .await?;
    let plant = "mkdir -p /out/image/blobs/sha256; echo x > /out/image/blobs/sha256/00; ln -s /etc/passwd /out/image/blobs/sha256/link";
    site.create("planting", json!({"baseImage": BASE, "customCommands": [plant]}))
        .await?;

    let status = ended(&site, "curious").await?;
    assert_eq!(status.failure, None);
    let job = status.build.and_then(|build| build.job).unwrap();
    let pod = site.pod(&job).await?.name_any();
    let params = LogParams {
        container: Some("build".to_owned()),
        ..LogParams::default()
    };
    let log = site.pods.logs(&pod, &params).await?;
    assert!(log.contains("command-1.sh"), "{log}");
    let reached: Vec<_> = log.lines().filter(|line| line.starts_with("REACHED")).collect();
    assert!(reached.is_empty(), "{reached:?}");

    site.merge("planting", json!({"spec": {"backoffLimit": 0}}))
        .await?;
    let status = ended(&site, "planting").await?;
    assert_eq!(status.image, None);
    let failure = status.failure.unwrap();
    assert_eq!(failure.reason, FailureReason::BuildFailed);
    assert!(
        failure.message.starts_with("seal: ") && failure.message.contains("the built image is refused"),
        "{failure:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn failures_say_what_to_do() -> anyhow::Result<()> {
    let site = site("fail").await?;
    let cases: [(&str, Value, FailureReason, &str); 5] = [
        (
            "pip",
            json!({"pipPackages": ["emoji==999.0"]}),
            FailureReason::PipPackageNotFound,
            "emoji==999.0",
        ),
        (
            "conda",
            json!({"condaPackages": ["numpy"]}),
            FailureReason::CondaUnavailable,
            "conda: not found",
        ),
        (
            "base",
            json!({"baseImage": "rayproject/ray:0.0.1"}),
            FailureReason::BaseImageNotFound,
            "MANIFEST_UNKNOWN",
        ),
        (
            "secret",
            json!({"pushSecret": "nope", "backoffLimit": 0}),
            FailureReason::SecretNotFound,
            "Secret nope",
        ),
        (
            "command",
            json!({"customCommands": ["echo it broke >&2; exit 7"]}),
            FailureReason::CommandFailed,
            "it broke",
        ),
    ];
    for (name, spec, ..) in &cases {
        let mut whole = json!({"baseImage": BASE});
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        site.create(name, whole).await?;
    }
    for (name, _, reason, words) in &cases {
        let failure = ended(&site, name).await?.failure.unwrap();
        assert_eq!(failure.reason, *reason, "{name}: {failure:?}");
        assert!(failure.message.contains(words), "{name}: {failure:?}");
    }
    Ok(())
}
