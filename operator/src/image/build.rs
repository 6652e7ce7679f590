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
    ConfigMap, Container, LocalObjectReference, PodSpec, PodTemplateSpec, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use ray_api::image::Reference;
use ray_api::meta::{annotation, label};
use ray_api::template::v1alpha1::{ImageTemplate, ImageTemplateSpec};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::args::{BuilderFlavor, ImageArgs, RegistryCertificate};
use super::attempt::Identity;
use super::wanted::Wanted;
use super::{credentials, pod};

/// Longest time of a verification: a GPU image takes minutes to pull.
const VERIFY_SECONDS: i64 = 15 * 60;
/// Key of the Dockerfile in a build's ConfigMap.
const DOCKERFILE: &str = "Dockerfile";
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

/// The Dockerfile and its files, and the certificates of registries.
pub(super) fn config_map(
    template: &ImageTemplate,
    wanted: &Wanted,
    identity: &Identity,
    args: &ImageArgs,
) -> ConfigMap {
    let mut data = wanted.context.files.clone();
    data.insert(DOCKERFILE.to_owned(), wanted.context.dockerfile.clone());
    data.extend(certificates(args).map(|(key, one)| (key, one.pem.clone())));
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
    let inputs = wanted.context.files.keys().cloned();
    pod.config_map("inputs", &name, inputs.chain([DOCKERFILE.to_owned()]));
    pod.empty("context", false);
    if !args.registry_certificate.is_empty() {
        let keys = certificates(args).map(|(key, _)| key);
        pod.config_map("certificates", &name, keys);
    }
    let credentials = credentials::step(&mut pod, spec, wanted, args);
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
    build = with_certificates(build, args);
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
            with_certificates(push, args).into_container()
        }
        // Without a `push` of its own the archived original takes both logins into the build.
        BuilderFlavor::Archived => build.into_container(),
    };
    let mut pod_spec = pod.finish(steps, main, spec);
    pod_spec.image_pull_secrets = references(&args.builder_pull_secret);
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
    pod_spec.image_pull_secrets = references(&secrets);
    job(
        template,
        identity.job_name(&uid(template)),
        identity,
        pod_spec,
        VERIFY_SECONDS,
    )
}

/// Secrets for the kubelet, which no container sees.
fn references(names: &[String]) -> Option<Vec<LocalObjectReference>> {
    let references = names
        .iter()
        .map(|name| LocalObjectReference { name: name.clone() });
    (!names.is_empty()).then(|| references.collect())
}

/// The certificates, each with its key in the build's ConfigMap.
fn certificates(args: &ImageArgs) -> impl Iterator<Item = (String, &RegistryCertificate)> {
    let certificates = args.registry_certificate.iter().enumerate();
    certificates.map(|(index, one)| (format!("registry-{index}.crt"), one))
}

fn with_certificates(step: pod::Step, args: &ImageArgs) -> pod::Step {
    if args.registry_certificate.is_empty() {
        return step;
    }
    step.mount("certificates", pod::CERTIFICATES, true)
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
    arguments.extend(reached(args));
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
    fixed.into_iter().chain(reached(args)).collect()
}

/// How registries are reached, by pulls and pushes alike.
fn reached(args: &ImageArgs) -> impl Iterator<Item = String> {
    let insecure = args.insecure_registry.iter();
    let certificates = certificates(args)
        .map(|(key, one)| format!("--registry-certificate={}={}/{key}", one.host, pod::CERTIFICATES));
    insecure
        .map(|host| format!("--insecure-registry={host}"))
        .chain(certificates)
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
