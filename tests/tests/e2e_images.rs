//! Real builds on a real node: what lists of packages become, where images go, what foreign code in a build can reach.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod images;

use images::{LOGIN, RAY, Site, tiny};
use k8s_openapi::api::core::v1::Pod;
use ray_api::template::v1alpha1::FailureReason;
use ray_tests::{Cluster, User};
use serde_json::json;

async fn site(prefix: &str) -> anyhow::Result<Site> {
    Site::new(Cluster::node().await?, prefix).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn packages_environment_and_commands_reach_the_image() -> anyhow::Result<()> {
    let site = site("build").await?;
    let value = r#"a "quoted" $HOME \n 'x' `id` #"#;
    let spec = json!({
        "baseImage": RAY,
        "systemPackages": ["tree"],
        "pipPackages": ["emoji==2.14.0"],
        "environmentVariables": {"EXACT": value},
        "customCommands": ["id -un > /home/ray/who\nfalse | true || echo pipefail > /home/ray/pipefail"],
    });
    site.create("emoji", spec).await?;
    let image = site.built("emoji").await?;
    let status = site.status("emoji").await?;
    assert_eq!(status.ray_version.as_deref(), Some("2.60.0"));
    assert!(status.python_version.is_some());
    let look = "printenv EXACT; tree --version; python -c 'import emoji; print(emoji.__version__)'; cat who pipefail; id -un";
    let seen = site.run_in(&image, &["/bin/bash", "-c", look]).await?;
    assert!(seen.starts_with(&format!("{value}\ntree v")), "{seen}");
    assert!(seen.ends_with("2.14.0\nray\npipefail\nray\n"), "{seen}");
    Ok(())
}

/// Gives an image a second tag. Runs in a pod, as the registry may be reachable from nowhere else.
const TAG: &str = r#"
import sys, urllib.request
repository, old, new = sys.argv[1:]
types = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
url = f"http://{repository}/manifests/"
answer = urllib.request.urlopen(urllib.request.Request(url + old, headers={"Accept": types}))
urllib.request.urlopen(urllib.request.Request(url + new, answer.read(), {"Content-Type": answer.headers["Content-Type"]}, method="PUT"))
"#;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn the_first_users_payload_has_exactly_its_environment() -> anyhow::Result<()> {
    let site = site("first").await?;
    site.run_in(
        RAY,
        &[
            "python",
            "-c",
            TAG,
            "registry.local:5000/v2/rayproject/ray",
            "2.60.0",
            "1.7.0-gpu",
        ],
    )
    .await?;
    let environment = json!({
        "CLASSPATH": "/opt/lib/yarn_deploy/hadoop/bin/hadoop classpath --glob",
        "HADOOP_HOME": "/opt/lib/yarn_deploy/hadoop",
        "LD_LIBRARY_PATH": "/opt/lib",
    });
    let spec = json!({
        "baseImage": "rayproject/ray:1.7.0-gpu", "pipPackages": [], "systemPackages": ["vim", "git"],
        "environmentVariables": environment, "customCommands": [],
    });
    let name = "ray1.7-torch1.9-tensorflow2.3-gpu";
    site.create(name, spec).await?;
    let image = site.built(name).await?;
    let look =
        "for name in CLASSPATH HADOOP_HOME LD_LIBRARY_PATH; do printenv $name; done; command -v vim git";
    let seen = site.run_in(&image, &["/bin/bash", "-c", look]).await?;
    let expected = "/opt/lib/yarn_deploy/hadoop/bin/hadoop classpath --glob\n/opt/lib/yarn_deploy/hadoop\n/opt/lib\n/usr/bin/vim\n/usr/bin/git\n";
    assert_eq!(seen, expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn two_builds_at_once_conda_and_the_cache() -> anyhow::Result<()> {
    let site = site("two").await?;
    let packages =
        json!({"condaPackages": ["conda-forge::numpy>=2,<3", "scipy"], "customCommands": ["sleep 2"]});
    let cache = json!({"enabled": true, "repository": format!("registry.local:5000/images/{}/cache", site.namespace)});
    let cached = tiny(
        json!({"cache": cache, "customCommands": ["sleep 2; cat /proc/sys/kernel/random/uuid > /home/ray/when"]}),
    );
    site.create("conda", tiny(packages)).await?;
    site.create("first", cached.clone()).await?;
    let conda = site.built("conda").await?;
    let first = site.built("first").await?;
    let site = &site;
    let build = |name: &'static str| async move { anyhow::Ok(site.status(name).await?.build.unwrap()) };
    let (one, other) = (build("conda").await?, build("first").await?);
    assert!(
        one.start_time < other.completion_time && other.start_time < one.completion_time,
        "both ran at once: {one:?} {other:?}"
    );
    assert_eq!(
        site.run_in(&conda, &["/bin/cat", "/home/ray/conda-arguments"])
            .await?,
        "install\n--yes\n--quiet\nconda-forge::numpy>=2,<3\nscipy\n"
    );

    // The same inputs for another repository are another build, whose command comes from the cache.
    site.create("again", cached).await?;
    let again = site.built("again").await?;
    let when = ["/bin/cat", "/home/ray/when"];
    assert_eq!(
        site.run_in(&again, &when).await?,
        site.run_in(&first, &when).await?
    );
    assert!(
        site.log("again", "build")
            .await?
            .contains("Using caching version of cmd")
    );
    assert!(!site.log("conda", "build").await?.contains("cache"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn foreign_code_finds_nothing() -> anyhow::Result<()> {
    let site = site("hostile").await?;
    site.login("push", "registry.local:5000", LOGIN).await?;
    let command = site.curious().await?;
    for (name, user, base) in [("root", "root", "tests/tiny:1"), ("ray", "ray", RAY)] {
        let mut spec = tiny(json!({"user": user, "pushSecret": "push", "customCommands": [command]}));
        spec["baseImage"] = json!(base);
        site.create(name, spec).await?;
    }
    for name in ["root", "ray"] {
        site.built(name).await?;
        let log = site.log(name, "build").await?;
        assert!(log.contains("command-1.sh"), "{log}");
        let reached: Vec<_> = log.lines().filter(|line| line.starts_with("REACHED")).collect();
        assert!(reached.is_empty(), "{name}: {reached:?}");
    }
    // The API server can be reached, and knows nobody who asks without a token. (The smaller base has no wget that speaks TLS.)
    let log = site.log("ray", "build").await?;
    assert!(
        log.contains("401 Unauthorized") || log.contains("403 Forbidden"),
        "{log}"
    );
    Ok(())
}

/// Prints digest and size of a layer of the base image, which the builder does not write where a file of that size is there.
const LAYER: &str = r#"
import json, urllib.request
types = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
url = "http://registry.local:5000/v2/tests/tiny/manifests/1"
layer = json.load(urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": types})))["layers"][0]
print(layer["digest"].removeprefix("sha256:"), layer["size"])
"#;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn what_foreign_code_plants_beside_the_image_is_refused() -> anyhow::Result<()> {
    let site = site("plant").await?;
    let layer = site.run_in(RAY, &["python", "-c", LAYER]).await?;
    let (digest, size) = layer.trim().split_once(' ').unwrap();
    let blobs = "/out/image/blobs/sha256";
    let cases = [
        ("link", "ln -s /etc/passwd link".to_owned(), "the blob link is not a regular file"),
        (
            "index",
            "echo '{}' > /tmp/index.json; ln -s /tmp/index.json ../../index.json".to_owned(),
            "index.json is neither a file nor a folder",
        ),
        (
            "manifest",
            r#"echo '{"schemaVersion": 2, "config": {}, "layers": []}' > m; mv m $(sha256sum m | cut -d' ' -f1)"#.to_owned(),
            "belongs to no image",
        ),
        ("layer", format!("head -c {size} /dev/zero > {digest}"), "holds something else"),
    ];
    for (name, command, _) in &cases {
        let command = format!("mkdir -p {blobs}; cd {blobs}; {command}");
        let spec = tiny(json!({"user": "root", "backoffLimit": 0, "customCommands": [command]}));
        site.create(name, spec).await?;
    }
    for (name, _, words) in &cases {
        let status = site.ended(name).await?;
        let failure = status.failure.unwrap();
        assert_eq!(failure.reason, FailureReason::BuildFailed, "{name}: {failure:?}");
        let said = "seal: the built image is refused: ";
        assert!(
            failure.message.starts_with(said) && failure.message.contains(words),
            "{name}: {failure:?}"
        );
        assert_eq!(status.image, None);
        // Nothing was pushed: the step that would have never ran.
        let pod: Pod = site
            .pod(&status.build.and_then(|build| build.job).unwrap())
            .await?;
        let pushed = pod.status.unwrap().container_statuses.unwrap_or_default();
        assert!(
            pushed.iter().all(|push| push
                .state
                .as_ref()
                .is_none_or(|it| it.terminated.as_ref().is_none_or(|it| it.container_id.is_none()))),
            "{pushed:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn the_story_of_a_build_as_a_person_sees_it() -> anyhow::Result<()> {
    let user = User::new(&Cluster::node().await?, "story").await?;
    let create = [
        "create",
        "image-template",
        "--base-image",
        "tests/tiny:1",
        "--wait",
    ];
    let good = user.ray(
        &[
            &create[..],
            &["good", "--command", "echo 40 and 2", "--env", "A=b"],
        ]
        .concat(),
    )?;
    assert_eq!(good.code, 0, "{good:?}");
    for part in [
        "==> build",
        "40 and 2",
        "==> push",
        "built: registry.local:5000/images/",
    ] {
        assert!(good.stderr.contains(part), "{part} in {}", good.stderr);
    }
    let bad = user.ray(&[&create[..], &["bad", "--command", "echo it broke >&2; exit 7"]].concat())?;
    assert_eq!(bad.code, 1, "{bad:?}");
    assert!(bad.stderr.contains("CommandFailed: it broke"), "{}", bad.stderr);

    let line = user.ray(&["get", "image-template", "good"])?.success()?;
    let words: Vec<_> = line.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        (words[0], words[1], words[3], words[4]),
        ("good", "True", "tests/tiny:1", "Built"),
        "{line}"
    );
    let line = user.ray(&["get", "image-template", "bad"])?.success()?;
    assert!(line.contains("CommandFailed"), "{line}");
    let page = user.ray(&["describe", "image-template", "bad"])?.success()?;
    assert!(page.contains("it broke") && page.lines().count() <= 40, "{page}");

    let log = user.ray(&["build", "log", "bad"])?;
    assert_eq!(log.code, 1, "{log:?}");
    assert!(log.stdout.contains("it broke"), "{log:?}");
    assert!(
        log.stderr.contains("the image was not built: CommandFailed"),
        "{log:?}"
    );
    user.ray(&["build", "rebuild", "good", "--wait"])?.success()?;
    let path = "-o=jsonpath={.status.build.number} {.status.build.reason}";
    let build = user
        .kubectl(&["get", "imagetemplates.templates.ray.io", "good", path])?
        .success()?;
    assert_eq!(build, "2 Requested");
    Ok(())
}
