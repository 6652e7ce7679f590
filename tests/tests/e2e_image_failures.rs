//! Builds that fail on a real node: each has the reason that a person can act on, and the line that explains it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod images;

use images::{PRIVATE, RAY, Site, tiny};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{Api, ListParams, Patch, PatchParams};
use ray_api::template::v1alpha1::FailureReason::{self, *};
use ray_tests::Cluster;
use serde_json::{Value, json};

/// A template, and what must be said of it.
type Case = (&'static str, Value, FailureReason, &'static str);

async fn site(prefix: &str) -> anyhow::Result<Site> {
    Site::new(Cluster::node().await?, prefix).await
}

/// Creates all, then looks at each end.
async fn fail(site: &Site, cases: &[Case]) -> anyhow::Result<()> {
    for (name, spec, ..) in cases {
        let mut spec = spec.clone();
        spec["backoffLimit"] = json!(0);
        site.create(name, spec).await?;
    }
    for (name, _, reason, words) in cases {
        let status = site.ended(name).await?;
        let failure = status.failure.unwrap();
        assert_eq!(failure.reason, *reason, "{name}: {failure:?}");
        assert!(failure.message.contains(words), "{name}: {failure:?}");
        assert_eq!(status.image, None, "{name}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn packages_and_commands() -> anyhow::Result<()> {
    let ray = |spec: Value| {
        let mut whole = tiny(spec);
        whole["baseImage"] = json!(RAY);
        whole
    };
    fail(
        &site("package").await?,
        &[
            (
                "pip",
                ray(json!({"pipPackages": ["emoji==999.0"]})),
                PipPackageNotFound,
                "emoji==999.0",
            ),
            (
                "apt",
                ray(json!({"systemPackages": ["no-such-package"]})),
                SystemPackageNotFound,
                "no-such-package",
            ),
            (
                "conda",
                ray(json!({"condaPackages": ["numpy"]})),
                CondaUnavailable,
                "conda: not found",
            ),
            (
                "command",
                tiny(json!({"customCommands": ["echo it broke >&2; exit 7"]})),
                CommandFailed,
                "it broke",
            ),
            (
                "ray",
                tiny(json!({"user": "root", "customCommands": ["rm /usr/local/bin/python3"]})),
                RayMissing,
                "the image has no Python",
            ),
        ],
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn registries_and_secrets() -> anyhow::Result<()> {
    let site = site("secret").await?;
    let node = Api::<Node>::all(site.cluster.client.clone())
        .list(&ListParams::default())
        .await?;
    let addresses = node
        .items
        .first()
        .and_then(|node| node.status.clone()?.addresses)
        .unwrap();
    let address = addresses
        .into_iter()
        .find(|one| one.type_ == "InternalIP")
        .unwrap()
        .address;
    site.login("wrong-password", PRIVATE, ("push", "not-that"))
        .await?;
    site.login("other-registry", "reg.example", ("push", "word"))
        .await?;
    site.secret("other-key", "Opaque", &[("password", "hunter2")])
        .await?;
    site.secret("no-login", "Opaque", &[(".dockerconfigjson", "hunter2")])
        .await?;
    let push = |secret: &str| tiny(json!({"pushSecret": secret}));
    let base = |image: &str| {
        let mut whole = tiny(json!({}));
        whole["baseImage"] = json!(image);
        whole
    };
    let private = format!("{PRIVATE}/{}/x", site.namespace);
    fail(
        &site,
        &[
            (
                "missing",
                push("nope"),
                SecretNotFound,
                "Secret nope is not in this namespace",
            ),
            (
                "wrong-type",
                push("other-key"),
                SecretInvalid,
                "Secret other-key is of another type: it has no key .dockerconfigjson",
            ),
            (
                "wrong-content",
                push("no-login"),
                SecretInvalid,
                "not of type kubernetes.io/dockerconfigjson",
            ),
            (
                "elsewhere",
                push("other-registry"),
                SecretInvalid,
                "no login for registry.local:5000, only for reg.example",
            ),
            (
                "refused",
                tiny(json!({"repository": private, "pushSecret": "wrong-password"})),
                PushUnauthorized,
                "UNAUTHORIZED",
            ),
            (
                "anonymous",
                tiny(json!({"repository": private})),
                PushUnauthorized,
                "UNAUTHORIZED",
            ),
            (
                "no-base",
                base("tests/tiny:0"),
                BaseImageNotFound,
                "MANIFEST_UNKNOWN",
            ),
            (
                "no-registry",
                base("registry.local:5999/x:1"),
                RegistryUnreachable,
                "connection refused",
            ),
            (
                "plain-http",
                base(&format!("{address}:5000/tests/tiny:1")),
                RegistryTlsMismatch,
                "HTTP response to HTTPS",
            ),
        ],
    )
    .await?;
    for name in ["wrong-type", "wrong-content"] {
        let status = serde_json::to_string(&site.status(name).await?)?;
        assert!(!status.contains("hunter2"), "{status}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn memory_disk_time_and_pod_security() -> anyhow::Result<()> {
    let site = site("limit").await?;
    let limited = |limits: Value, command: &str| {
        let requests = json!({"cpu": "10m"});
        let mut whole = tiny(json!({"user": "root", "customCommands": [command]}));
        whole["resources"] = json!({"requests": requests, "limits": limits});
        whole
    };
    let mut slow =
        tiny(json!({"customCommands": ["echo hunter2 https://me:hunter2@index.example; sleep 600"]}));
    slow["timeout"] = json!("1m");
    fail(
        &site,
        &[
            // The command outgrows the limit and is what the kernel kills.
            (
                "child",
                limited(json!({"memory": "100Mi"}), "tail -c 1000m /dev/zero"),
                OutOfMemory,
                "limits.memory",
            ),
            // Memory that belongs to no process: the largest one, the executor itself, is killed for it.
            (
                "container",
                limited(json!({"memory": "50Mi"}), "head -c 64m /dev/zero > /dev/shm/full"),
                OutOfMemory,
                "limits.memory",
            ),
            (
                "disk",
                limited(
                    json!({"ephemeral-storage": "30Mi"}),
                    "head -c 200m /dev/urandom > /home/ray/full; sleep 300",
                ),
                StorageExhausted,
                "evicted",
            ),
            ("time", slow, Timeout, "raise spec.timeout"),
        ],
    )
    .await?;

    let namespaces: Api<Namespace> = Api::all(site.cluster.client.clone());
    let label = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    namespaces
        .patch(&site.namespace, &PatchParams::default(), &Patch::Merge(label))
        .await?;
    fail(
        &site,
        &[(
            "restricted",
            tiny(json!({})),
            PodSecurityRejected,
            "enforce=baseline",
        )],
    )
    .await
}
