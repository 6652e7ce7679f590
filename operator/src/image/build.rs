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
struct Credentials {
    step: Option<Container>,
    build: bool,
    push: bool,
}

fn credentials(
    pod: &mut pod::Builder,
    spec: &ImageTemplateSpec,
    wanted: &Wanted,
    args: &ImageArgs,
) -> Credentials {
    let cache = spec.cache.as_ref().filter(|cache| cache.enabled == Some(true));
    let cache = cache.and_then(|cache| Some((cache.push_secret.as_ref()?, cache.repository.as_ref()?)));
    let pip = spec.pip.as_ref().and_then(|pip| pip.credentials_secret.as_ref());
    let push = wanted.target.push_secret.as_ref();
    let one_container = args.builder_flavor == BuilderFlavor::Archived;
    let build = !spec.pull_secrets.is_empty()
        || cache.is_some()
        || pip.is_some()
        || (one_container && push.is_some());
    if push.is_none() && !build {
        return Credentials {
            step: None,
            build: false,
            push: false,
        };
    }
    let registry = |image: &str| {
        image
            .parse::<Reference>()
            .map_or_else(|_| image.to_owned(), |it| it.repository.registry)
    };
    let mut arguments = Vec::new();
    let mut mounts = Vec::new();
    let mut secret = |option: &str, name: &str, key: &str| {
        let path = format!("/secrets/{option}/{name}");
        arguments.push(format!("--{option}={path}"));
        mounts.push((pod.secret(name, key), path));
    };
    if let Some(name) = push.filter(|_| !one_container) {
        secret("push", name, DOCKER_KEY);
    }
    for name in &spec.pull_secrets {
        secret("pull", name, DOCKER_KEY);
    }
    let cache_secret = cache.map(|(name, repository)| (name, registry(repository)));
    let joint = push
        .filter(|_| one_container)
        .map(|name| (name, wanted.target.repository.registry.clone()));
    for (name, _) in cache_secret.iter().chain(&joint) {
        secret("cache", name, DOCKER_KEY);
    }
    if let Some(name) = pip {
        secret("pip", name, NETRC_KEY);
    }
    arguments.push(format!("--push-registry={}", wanted.target.repository.registry));
    arguments.push(format!("--pull-registry={}", registry(&spec.base_image)));
    arguments.extend(
        cache_secret
            .iter()
            .chain(&joint)
            .map(|(_, host)| format!("--cache-registry={host}")),
    );
    arguments.extend(netrc_hosts(spec).iter().map(|host| format!("--pip-host={host}")));
    let push = push.is_some() && !one_container;
    let mut volumes = Vec::new();
    if build {
        pod.empty("build-logins", true);
        arguments.push(format!("--build-folder={}", pod::BUILD_LOGINS));
        volumes.push(("build-logins", pod::BUILD_LOGINS));
    }
    if push {
        pod.empty("push-logins", true);
        arguments.push(format!("--push-folder={}", pod::PUSH_LOGINS));
        volumes.push(("push-logins", pod::PUSH_LOGINS));
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut step = pod::helper("secrets", args, &arguments);
    for (volume, path) in &mounts {
        step = step.mount(volume, path, true);
    }
    for (volume, path) in volumes {
        step = step.mount(volume, path, false);
    }
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
