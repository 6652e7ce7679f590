//! The objects of a build: what each step can reach.

use std::collections::BTreeSet;
use std::io::Write;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use ray_api::image::NETRC_PATH;
use serde_json::json;

use super::super::args::RegistryCertificate;
use super::super::attempt::Identity;
use super::super::build::{build_job, config_map, label_value, verify_job};
use super::super::pod;
use super::{args, template, want};

fn identity() -> Identity {
    Identity {
        number: 3,
        attempt: 1,
        inputs_hash: "abc".to_owned(),
        destination: "reg.example:5000/images/team/emoji:abc".to_owned(),
        settings: "def".to_owned(),
        reason: "Created".to_owned(),
        rebuild: None,
        verifies: None,
    }
}

/// The pod of a build with every Secret that a template can name.
fn pod_with_secrets(extra: &[&str]) -> PodSpec {
    let template = template(json!({
        "pushSecret": "push", "pullSecrets": ["pull-a", "pull-b"], "platform": "linux/arm64",
        "pip": {"indexUrl": "https://index.example/simple", "credentialsSecret": "index"},
        "cache": {"enabled": true, "repository": "reg.example:5000/images/team/cache", "pushSecret": "cache"},
    }));
    let job = build_job(&template, &want(&template), &identity(), &args(extra));
    job.spec.unwrap().template.spec.unwrap()
}

fn step<'a>(pod: &'a PodSpec, name: &str) -> &'a Container {
    let all = pod.init_containers.iter().flatten().chain(&pod.containers);
    all.into_iter().find(|container| container.name == name).unwrap()
}

/// Mounted volumes, `:ro` where they cannot be written.
fn mounts(container: &Container) -> BTreeSet<String> {
    let mounts = container.volume_mounts.iter().flatten();
    mounts
        .map(|mount| {
            let kind = if mount.name.starts_with("secret-") {
                "secret"
            } else {
                mount.name.as_str()
            };
            format!("{kind}{}", if mount.read_only == Some(true) { ":ro" } else { "" })
        })
        .collect()
}

fn set(items: &[&str]) -> BTreeSet<String> {
    items.iter().map(ToString::to_string).collect()
}

#[test]
fn each_step_reaches_what_it_needs_and_no_more() {
    let pod = pod_with_secrets(&[]);
    let steps: Vec<_> = pod
        .init_containers
        .iter()
        .flatten()
        .map(|step| step.name.as_str())
        .collect();
    assert_eq!(steps, ["secrets", "context", "build", "seal"]);
    assert_eq!(pod.containers.len(), 1);
    for (name, expected) in [
        ("secrets", set(&["secret:ro", "build-logins", "push-logins"])),
        ("context", set(&["inputs:ro", "context"])),
        ("build", set(&["context:ro", "build-logins:ro", "image"])),
        ("seal", set(&["image:ro"])),
        ("push", set(&["image:ro", "push-logins:ro"])),
    ] {
        assert_eq!(mounts(step(&pod, name)), expected, "{name}");
    }
    assert_eq!(pod.automount_service_account_token, Some(false));
    assert_eq!(pod.service_account_name, None);
    // Secrets are readable by one fixed key each.
    for secret in pod
        .volumes
        .iter()
        .flatten()
        .filter_map(|volume| volume.secret.as_ref())
    {
        let keys: Vec<_> = secret
            .items
            .iter()
            .flatten()
            .map(|item| item.key.as_str())
            .collect();
        let key = if secret.secret_name.as_deref() == Some("index") {
            "netrc"
        } else {
            ".dockerconfigjson"
        };
        assert_eq!(keys, [key], "{secret:?}");
    }
    assert_eq!(NETRC_PATH, format!("{}/netrc", pod::BUILD_LOGINS));
    assert_eq!(pod.node_selector.unwrap()["kubernetes.io/arch"], "arm64");
}

#[test]
fn steps_pass_pod_securitys_baseline() {
    let allowed = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETFCAP", "SETGID", "SETUID"];
    let pod = pod_with_secrets(&[]);
    assert_eq!(
        pod.security_context
            .as_ref()
            .unwrap()
            .seccomp_profile
            .as_ref()
            .unwrap()
            .type_,
        "RuntimeDefault"
    );
    for container in pod.init_containers.iter().flatten().chain(&pod.containers) {
        let context = container.security_context.as_ref().unwrap();
        assert_eq!(
            context.allow_privilege_escalation,
            Some(false),
            "{}",
            container.name
        );
        assert_eq!(context.privileged, None);
        let capabilities = context.capabilities.as_ref().unwrap();
        assert_eq!(capabilities.drop.as_deref(), Some(&["ALL".to_owned()][..]));
        let added: Vec<_> = capabilities.add.iter().flatten().map(String::as_str).collect();
        assert_eq!(
            added,
            if container.name == "build" {
                allowed.to_vec()
            } else {
                Vec::new()
            }
        );
        let name = container.name.as_str();
        if ["secrets", "context", "seal"].contains(&name) {
            assert_eq!(context.read_only_root_filesystem, Some(true));
        }
        if ["secrets", "context"].contains(&name) {
            assert_eq!(context.run_as_non_root, Some(true));
        }
    }
}

#[test]
fn a_template_without_secrets_has_no_step_for_them() {
    let template = template(json!({}));
    let job = build_job(&template, &want(&template), &identity(), &args(&[]));
    let pod = job.spec.unwrap().template.spec.unwrap();
    let steps: Vec<_> = pod
        .init_containers
        .iter()
        .flatten()
        .map(|step| step.name.as_str())
        .collect();
    assert_eq!(steps, ["context", "build", "seal"]);
}

#[test]
fn the_executors_arguments() {
    let pod = pod_with_secrets(&[
        "--insecure-registry=reg.example:5000",
        "--registry-mirror=mirror.example",
    ]);
    insta::assert_snapshot!(
        "build_arguments",
        step(&pod, "build").args.as_ref().unwrap().join("\n")
    );
    insta::assert_snapshot!(
        "push_arguments",
        step(&pod, "push").args.as_ref().unwrap().join("\n")
    );
    insta::assert_snapshot!(
        "secrets_arguments",
        step(&pod, "secrets").args.as_ref().unwrap().join("\n")
    );
}

#[test]
fn the_archived_executor_builds_and_pushes_in_one_container() {
    let pod = pod_with_secrets(&["--builder-flavor=archived"]);
    let steps: Vec<_> = pod
        .init_containers
        .iter()
        .flatten()
        .map(|step| step.name.as_str())
        .collect();
    assert_eq!(steps, ["secrets", "context"]);
    let build = step(&pod, "build");
    assert_eq!(mounts(build), set(&["context:ro", "build-logins:ro"]));
    let arguments = build.args.as_ref().unwrap();
    assert!(
        arguments
            .iter()
            .any(|one| one.starts_with("--destination=reg.example:5000/images/team/emoji:"))
    );
    assert!(arguments.contains(&"--digest-file=/dev/termination-log".to_owned()));
    assert!(!arguments.contains(&"--no-push".to_owned()));
}

#[test]
fn a_registrys_certificate_reaches_pull_and_push_and_nothing_else() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let pem = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    file.write_all(pem.as_bytes()).unwrap();
    let flag = format!(
        "--registry-certificate=reg.example:5000={}",
        file.path().display()
    );
    let pod = pod_with_secrets(&[&flag]);
    let argument = "--registry-certificate=reg.example:5000=/run/ray-certificates/registry-0.crt";
    for name in ["secrets", "context", "build", "seal", "push"] {
        let step = step(&pod, name);
        let concerns = ["build", "push"].contains(&name);
        assert_eq!(mounts(step).contains("certificates:ro"), concerns, "{name}");
        let arguments = step.args.as_ref().unwrap();
        assert_eq!(arguments.contains(&argument.to_owned()), concerns, "{name}");
    }
    // One ConfigMap, of which the context sees the Dockerfile and its files alone.
    let keys = |volume: &str| -> Vec<String> {
        let mut volumes = pod.volumes.iter().flatten();
        let source = volumes
            .find(|one| one.name == volume)
            .unwrap()
            .config_map
            .as_ref();
        let items = source.unwrap().items.as_ref().unwrap();
        items.iter().map(|item| item.key.clone()).collect()
    };
    assert_eq!(keys("certificates"), ["registry-0.crt"]);
    assert_eq!(keys("inputs"), ["requirements.txt", "Dockerfile"]);
    let template = template(json!({}));
    let map = config_map(&template, &want(&template), &identity(), &args(&[&flag]));
    assert_eq!(map.data.unwrap()["registry-0.crt"], pem);

    let archived = pod_with_secrets(&[&flag, "--builder-flavor=archived"]);
    let build = step(&archived, "build");
    assert!(mounts(build).contains("certificates:ro"));
    assert!(build.args.as_ref().unwrap().contains(&argument.to_owned()));
}

#[test]
fn a_certificate_that_cannot_be_one_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let pem = "-----BEGIN CERTIFICATE-----\n";
    for (value, word) in [
        ("reg.example".to_owned(), "HOST:PORT=FILE"),
        ("=/x".to_owned(), "HOST:PORT=FILE"),
        (
            format!("reg.example={}/none", folder.path().display()),
            "cannot read",
        ),
        (
            format!("reg.example={}", file("text", "hello")),
            "holds no certificate",
        ),
        (
            format!(
                "reg.example={}",
                file("key", &format!("{pem}-----BEGIN PRIVATE KEY-----"))
            ),
            "holds a private key",
        ),
        (
            format!("reg.example={}", file("bundle", &pem.repeat(3000))),
            "more than 65536 bytes",
        ),
    ] {
        let error = RegistryCertificate::read(&value).unwrap_err();
        assert!(error.contains(word), "{value}: {error}");
    }
}

#[test]
fn the_kubelet_pulls_the_builders_images_with_their_secret() {
    let pod = pod_with_secrets(&["--builder-pull-secret=a", "--builder-pull-secret=b"]);
    let names = |pod: &PodSpec| -> Vec<String> {
        let secrets = pod.image_pull_secrets.iter().flatten();
        secrets.map(|secret| secret.name.clone()).collect()
    };
    assert_eq!(names(&pod), ["a", "b"]);
    let mounted = pod
        .volumes
        .iter()
        .flatten()
        .filter_map(|volume| volume.secret.as_ref());
    let mounted: Vec<_> = mounted
        .filter_map(|secret| secret.secret_name.as_deref())
        .collect();
    assert!(!mounted.contains(&"a") && !mounted.contains(&"b"), "{mounted:?}");
    assert_eq!(pod_with_secrets(&[]).image_pull_secrets, None);
}

#[test]
fn names_hold_no_text_of_a_user_and_stay_the_same() {
    let mut template = template(json!({}));
    template.metadata.name = Some("ray1.7-torch1.9-tensorflow2.3-gpu".to_owned());
    let name = identity().job_name("uid");
    assert_eq!(name, identity().job_name("uid"));
    assert_ne!(name, identity().job_name("another"));
    assert_ne!(
        name,
        Identity {
            number: 4,
            ..identity()
        }
        .job_name("uid")
    );
    assert!(
        name.starts_with("ray-image-") && name.ends_with("-1") && name.len() < 40,
        "{name}"
    );
    let map = config_map(&template, &want(&template), &identity(), &args(&[]));
    let job = build_job(&template, &want(&template), &identity(), &args(&[]));
    assert_eq!(map.metadata.name, job.metadata.name);
    assert_eq!(Identity::of(&job), Some(identity()));
    assert_eq!(
        map.data.unwrap().keys().collect::<Vec<_>>(),
        ["Dockerfile", "requirements.txt"]
    );
    assert_eq!(label_value("torch"), "torch");
    assert!(label_value(&"x".repeat(200)).len() <= 63);
}

#[test]
fn a_verification_runs_the_digest_without_secrets() {
    let template = template(json!({"pushSecret": "push"}));
    let digest = format!("sha256:{}", "ab".repeat(32));
    let identity = Identity {
        verifies: Some(digest.clone()),
        ..identity()
    };
    let pod = verify_job(&template, &want(&template), &identity)
        .spec
        .unwrap()
        .template
        .spec
        .unwrap();
    assert_eq!(
        pod.containers[0].image,
        Some(format!("reg.example:5000/images/team/emoji@{digest}"))
    );
    assert!(pod.volumes.is_none() && pod.init_containers.is_none());
    assert_eq!(pod.image_pull_secrets.unwrap()[0].name, "push");
}
