//! The objects of a build, from what is wanted: ConfigMap, Job, and the Job that verifies the result. Pure.
//!
//! ```text
//!   init  secrets   all named Secrets             → logins of the later steps      (ours; only where Secrets are named)
//!   init  context   ConfigMap                     → /workspace                      (ours)
//!   init  build     /workspace, pull logins       → /out/image, an OCI layout       (kaniko; runs foreign code)
//!   init  seal      /out, read-only               → digest                          (ours; no secret)
//!   main  push      /out, read-only, push login   → registry                        (kaniko; no capability)
//! ```
//!
//! No step has a service account's token. Volumes connect two steps each, and a step mounts nothing else.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, KeyToPath, LocalObjectReference, PodSpec, PodTemplateSpec, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use ray_api::image::{Reference, netrc_hosts};
use ray_api::meta::{annotation, label};
use ray_api::template::v1alpha1::{ImageTemplate, ImageTemplateSpec};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::args::{BuilderFlavor, ImageArgs};
use super::attempt::Identity;
use super::pod;
use super::wanted::Wanted;
use crate::helper::{DOCKER_KEY, NETRC_KEY};

/// Longest time of a verification: a GPU image takes minutes to pull.
const VERIFY_SECONDS: i64 = 15 * 60;
/// Longest label value.
const MAX_LABEL: usize = 63;

/// Value of the label that finds everything of a template: its name, or the name's hash where that is no label value.
pub(super) fn label_value(name: &str) -> String {
    if name.len() <= MAX_LABEL {
        return name.to_owned();
    }
    let digits: String = Sha256::digest(name)
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256-{digits}")
}

fn metadata(template: &ImageTemplate, name: String, identity: &Identity) -> ObjectMeta {
    let mut annotations = identity.annotations();
    annotations.insert(annotation::IMAGE_TEMPLATE.to_owned(), template.name_any());
    ObjectMeta {
        name: Some(name),
        namespace: template.namespace(),
        labels: Some(labels(template)),
        annotations: Some(annotations),
        owner_references: template.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

fn labels(template: &ImageTemplate) -> BTreeMap<String, String> {
    BTreeMap::from([
        (
            label::IMAGE_TEMPLATE.to_owned(),
            label_value(&template.name_any()),
        ),
        (label::APP_NAME.to_owned(), "ray-image-build".to_owned()),
    ])
}

/// The Dockerfile and its files.
pub(super) fn config_map(template: &ImageTemplate, wanted: &Wanted, identity: &Identity) -> ConfigMap {
    let mut data = wanted.context.files.clone();
    data.insert("Dockerfile".to_owned(), wanted.context.dockerfile.clone());
    ConfigMap {
        metadata: metadata(template, identity.job_name(&uid(template)), identity),
        data: Some(data),
        immutable: Some(true),
        ..ConfigMap::default()
    }
}

/// The Job of an attempt.
pub(super) fn build_job(
    template: &ImageTemplate,
    wanted: &Wanted,
    identity: &Identity,
    args: &ImageArgs,
) -> Job {
    let name = identity.job_name(&uid(template));
    let spec = &template.spec;
    let mut pod = pod::Builder::default();
    pod.config_map("inputs", &name);
    pod.empty("context", false);
    let credentials = credentials(&mut pod, spec, wanted, args);
    let context = pod::helper("context", args, &["--from=/inputs", "--to=/workspace"])
        .mount("inputs", "/inputs", true)
        .mount("context", "/workspace", false);
    let mut steps: Vec<Container> = credentials.step.into_iter().collect();
    steps.push(context.into_container());
    let mut build = pod::executor(
        "build",
        args,
        build_arguments(spec, wanted, args),
        resources(spec),
    )
    .with_capabilities()
    .mount("context", "/workspace", true);
    if credentials.build {
        build = build
            .mount("build-logins", pod::BUILD_LOGINS, true)
            .env("DOCKER_CONFIG", pod::BUILD_LOGINS);
    }
    let main = match args.builder_flavor {
        BuilderFlavor::Maintained => {
            pod.empty("image", false);
            steps.push(build.mount("image", "/out", false).into_container());
            steps.push(
                pod::helper("seal", args, &["--layout=/out/image"])
                    .with_root_user()
                    .mount("image", "/out", true)
                    .into_container(),
            );
            let mut push = pod::executor("push", args, push_arguments(wanted, args), pod::small_resources())
                .mount("image", "/out", true);
            if credentials.push {
                push = push
                    .mount("push-logins", pod::PUSH_LOGINS, true)
                    .env("DOCKER_CONFIG", pod::PUSH_LOGINS);
            }
            push.into_container()
        }
        // Without a `push` of its own the archived original takes both logins into the build.
        BuilderFlavor::Archived => build.into_container(),
    };
    let pod_spec = pod.finish(steps, main, spec);
    job(
        template,
        name,
        identity,
        pod_spec,
        i64::try_from(wanted.timeout.as_secs()).unwrap_or(i64::MAX),
    )
}

/// The Job that starts the image once.
pub(super) fn verify_job(template: &ImageTemplate, wanted: &Wanted, identity: &Identity) -> Job {
    let digest = identity.verifies.as_deref().unwrap_or_default();
    let image = Reference::pinned(&wanted.target.repository, digest);
    let mut pod_spec = pod::Builder::default().finish(Vec::new(), pod::verifier(&image), &template.spec);
    // The kubelet pulls with these; the pod itself sees no secret.
    let mut secrets = template.spec.run_pull_secrets.clone();
    if secrets.is_empty() {
        secrets.extend(wanted.target.push_secret.clone());
    }
    let references = secrets.into_iter().map(|name| LocalObjectReference { name });
    pod_spec.image_pull_secrets = Some(references.collect());
    job(
        template,
        identity.job_name(&uid(template)),
        identity,
        pod_spec,
        VERIFY_SECONDS,
    )
}

fn job(template: &ImageTemplate, name: String, identity: &Identity, spec: PodSpec, seconds: i64) -> Job {
    let annotations = BTreeMap::from([(annotation::IMAGE_TEMPLATE.to_owned(), template.name_any())]);
    Job {
        metadata: metadata(template, name, identity),
        spec: Some(JobSpec {
            // Retries are new Jobs, so that the pod of the last failure and its log stay.
            backoff_limit: Some(0),
            active_deadline_seconds: Some(seconds),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels(template)),
                    annotations: Some(annotations),
                    ..ObjectMeta::default()
                }),
                spec: Some(spec),
            },
            ..JobSpec::default()
        }),
        status: None,
    }
}

/// The step that checks Secrets, and which steps get logins.
#[derive(Default)]
struct Credentials {
    step: Option<Container>,
    build: bool,
    push: bool,
}

/// A Secret that a template names, and what for.
struct Named<'a> {
    /// Option of the helper.
    option: &'static str,
    secret: &'a str,
    key: &'static str,
    /// Registry that its login is for; none for package indexes.
    registry: Option<String>,
}

/// Secrets in the order in which they are checked.
fn named<'a>(spec: &'a ImageTemplateSpec, wanted: &'a Wanted, flavor: BuilderFlavor) -> Vec<Named<'a>> {
    let docker = |option, secret, registry| Named {
        option,
        secret,
        key: DOCKER_KEY,
        registry: Some(registry),
    };
    let registry = |image: &str| {
        let parsed = image.parse::<Reference>();
        parsed.map_or_else(|_| image.to_owned(), |it| it.repository.registry)
    };
    // The archived executor pushes from within the build, as every one does with its cache.
    let push = match flavor {
        BuilderFlavor::Maintained => "push",
        BuilderFlavor::Archived => "cache",
    };
    let target = &wanted.target;
    let mut named = Vec::new();
    named.extend(
        target
            .push_secret
            .iter()
            .map(|secret| docker(push, secret, target.repository.registry.clone())),
    );
    named.extend(
        spec.pull_secrets
            .iter()
            .map(|secret| docker("pull", secret, registry(&spec.base_image))),
    );
    let cache = spec.cache.as_ref().filter(|cache| cache.enabled == Some(true));
    if let Some((secret, repository)) =
        cache.and_then(|it| it.push_secret.as_ref().zip(it.repository.as_ref()))
    {
        named.push(docker("cache", secret, registry(repository)));
    }
    if let Some(secret) = spec.pip.as_ref().and_then(|pip| pip.credentials_secret.as_ref()) {
        named.push(Named {
            option: "pip",
            secret,
            key: NETRC_KEY,
            registry: None,
        });
    }
    named
}

fn credentials(
    pod: &mut pod::Builder,
    spec: &ImageTemplateSpec,
    wanted: &Wanted,
    args: &ImageArgs,
) -> Credentials {
    let named = named(spec, wanted, args.builder_flavor);
    if named.is_empty() {
        return Credentials::default();
    }
    let (mut arguments, mut mounts) = (Vec::new(), Vec::new());
    for one in &named {
        let path = format!("/secrets/{}/{}", one.option, one.secret);
        arguments.push(match &one.registry {
            Some(registry) => format!("--{}={registry}={path}", one.option),
            None => format!("--{}={path}", one.option),
        });
        mounts.push((pod.secret(one.secret, one.key), path, true));
    }
    arguments.extend(netrc_hosts(spec).iter().map(|host| format!("--pip-host={host}")));
    let push = named.iter().any(|one| one.option == "push");
    let build = named.iter().any(|one| one.option != "push");
    let folders = [
        (build, "build-logins", "--build-folder", pod::BUILD_LOGINS),
        (push, "push-logins", "--push-folder", pod::PUSH_LOGINS),
    ];
    for (_, volume, option, path) in folders.into_iter().filter(|(needed, ..)| *needed) {
        pod.empty(volume, true);
        arguments.push(format!("{option}={path}"));
        mounts.push((volume.to_owned(), path.to_owned(), false));
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let step = pod::helper("secrets", args, &arguments);
    let step = mounts.iter().fold(step, |step, (volume, path, read_only)| {
        step.mount(volume, path, *read_only)
    });
    Credentials {
        step: Some(step.into_container()),
        build,
        push,
    }
}

fn build_arguments(spec: &ImageTemplateSpec, wanted: &Wanted, args: &ImageArgs) -> Vec<String> {
    let mut arguments: Vec<String> = [
        "--dockerfile=/workspace/Dockerfile",
        "--context=dir:///workspace",
        // Half the time of `full`, and unlike `time` it sees edits within one second.
        "--snapshot-mode=redo",
        // Compressing layers in memory is what kills builds of large images.
        "--compressed-caching=false",
        "--image-download-retry=3",
        "--image-fs-extract-retry=3",
    ]
    .map(str::to_owned)
    .to_vec();
    match args.builder_flavor {
        BuilderFlavor::Maintained => {
            arguments.extend(["--no-push".to_owned(), "--oci-layout-path=/out/image".to_owned()]);
        }
        BuilderFlavor::Archived => arguments.extend([
            format!("--destination={}", wanted.target.destination()),
            "--digest-file=/dev/termination-log".to_owned(),
            "--push-retry=3".to_owned(),
        ]),
    }
    if let Some(platform) = &spec.platform {
        arguments.push(format!("--custom-platform={platform}"));
    }
    let cache = spec.cache.as_ref().filter(|cache| cache.enabled == Some(true));
    if let Some(repository) = cache.and_then(|cache| cache.repository.as_ref()) {
        arguments.extend(["--cache=true".to_owned(), format!("--cache-repo={repository}")]);
    }
    arguments.extend(
        args.registry_mirror
            .iter()
            .map(|host| format!("--registry-mirror={host}")),
    );
    arguments.extend(insecure(args));
    arguments
}

fn push_arguments(wanted: &Wanted, args: &ImageArgs) -> Vec<String> {
    let destination = format!("--destination={}", wanted.target.destination());
    let fixed = [
        "push".to_owned(),
        "/out/image".to_owned(),
        destination,
        "--push-retry=3".to_owned(),
    ];
    fixed.into_iter().chain(insecure(args)).collect()
}

fn insecure(args: &ImageArgs) -> impl Iterator<Item = String> {
    args.insecure_registry
        .iter()
        .map(|host| format!("--insecure-registry={host}"))
}

/// The spec's resources; without them what a Ray image needs, whose files exist three times while it is built.
fn resources(spec: &ImageTemplateSpec) -> ResourceRequirements {
    spec.resources.clone().unwrap_or_else(|| {
        serde_json::from_value(json!({
            "requests": {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "4Gi"},
            "limits": {"memory": "8Gi", "ephemeral-storage": "40Gi"},
        }))
        .unwrap_or_default()
    })
}

/// Unique id of a template; empty only for one that was never stored.
pub(super) fn uid(template: &ImageTemplate) -> String {
    template.meta().uid.clone().unwrap_or_default()
}

/// A key of a mounted Secret under its own name: no other key is ever readable.
pub(super) fn only_key(key: &str) -> Vec<KeyToPath> {
    vec![KeyToPath {
        key: key.to_owned(),
        path: key.to_owned(),
        ..KeyToPath::default()
    }]
}
