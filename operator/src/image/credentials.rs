//! Secrets that a template names: who of a build's steps gets which login. Pure.

use k8s_openapi::api::core::v1::Container;
use ray_api::image::{Reference, netrc_hosts};
use ray_api::template::v1alpha1::ImageTemplateSpec;

use super::args::{BuilderFlavor, ImageArgs};
use super::pod;
use super::wanted::Wanted;
use crate::helper::{DOCKER_KEY, NETRC_KEY};

/// The step that checks Secrets, and which steps get logins.
#[derive(Default)]
pub(super) struct Credentials {
    pub(super) step: Option<Container>,
    pub(super) build: bool,
    pub(super) push: bool,
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

/// Mounts what a template names, for one step alone, and makes that step.
pub(super) fn step(
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
