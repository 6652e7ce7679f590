//! What is refused of templates themselves, on a real API server.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod admission;

use admission::Site;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn templates_that_cannot_work_are_denied() -> anyhow::Result<()> {
    let site = Site::new("bad").await?;
    let deny = async |name: &str, spec: Value, words: &[&str]| -> anyhow::Result<()> {
        let error = site.compute(name, spec).await.unwrap_err().to_string();
        for word in words {
            anyhow::ensure!(error.contains(word), "{word:?} is missing in {error}");
        }
        Ok(())
    };
    for key in [
        "ray.io/cluster",
        "templates.ray.io/gated",
        "kueue.x-k8s.io/queue-name",
    ] {
        deny(
            "keys",
            json!({"labels": {key: "x"}}),
            &["spec.labels", "reserved"],
        )
        .await?;
        deny(
            "keys",
            json!({"annotations": {key: "x"}}),
            &["spec.annotations", "reserved"],
        )
        .await?;
    }
    deny(
        "limits",
        json!({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}),
        &["spec.resources.requests[cpu]"],
    )
    .await?;
    site.compute("x", json!({"extends": "y"})).await?;
    deny("y", json!({"extends": "x"}), &["spec.extends", "leads back"]).await?;
    let image = json!({"apiVersion": "templates.ray.io/v1alpha1", "kind": "ImageTemplate", "metadata": {"name": "i"},
        "spec": {"baseImage": "rayproject/ray:2.60.0", "repository": format!("reg/{}/i", site.namespace), "pipPackages": ["a\nRUN x"]}});
    let denied = site.kubectl(&["create"], &image)?;
    assert!(
        denied.code == 1 && denied.stderr.contains("spec.pipPackages[0]"),
        "{}",
        denied.stderr
    );
    site.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn cluster_wide_templates_are_held_to_the_same_rules() -> anyhow::Result<()> {
    let site = Site::new("wide").await?;
    let name = |suffix: &str| format!("{}-{suffix}", site.namespace);
    let deny = async |name: &str, spec: Value, words: &[&str]| -> anyhow::Result<()> {
        let error = site.cluster_compute(name, spec).await.unwrap_err().to_string();
        for word in words {
            anyhow::ensure!(error.contains(word), "{word:?} is missing in {error}");
        }
        Ok(())
    };
    let reserved = json!({"labels": {"ray.io/cluster": "x"}});
    deny(&name("keys"), reserved, &["spec.labels", "reserved"]).await?;
    let limits = json!({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}});
    deny(&name("limits"), limits, &["spec.resources.requests[cpu]"]).await?;
    site.cluster_compute(&name("x"), json!({"extends": name("y")}))
        .await?;
    deny(
        &name("y"),
        json!({"extends": name("x")}),
        &["spec.extends", "leads back"],
    )
    .await?;

    // Eight ancestors are enough for anybody, in either kind.
    let mut made = vec![name("x"), name("0")];
    site.cluster_compute(&name("0"), json!({"resources": {"limits": {"cpu": "1"}}}))
        .await?;
    for depth in 1..8 {
        let parent = json!({"extends": name(&format!("{}", depth - 1))});
        site.cluster_compute(&name(&format!("{depth}")), parent).await?;
        made.push(name(&format!("{depth}")));
    }
    let error = site
        .cluster_compute(&name("8"), json!({"extends": name("7")}))
        .await;
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("spec.extends") && error.contains("deeper than 8"),
        "{error}"
    );

    // Its values reach clusters of a namespace that has none of that name.
    let head = json!({"computeTemplate": name("7"), "template": {"spec": {"containers": [{"name": "ray-head", "image": "x"}]}}});
    let object = serde_json::to_value(site.raycluster("c", json!({"headGroupSpec": head}))?)?;
    site.kubectl(&["apply"], &object)?.success()?;
    assert_eq!(
        site.get("c")
            .await?
            .pointer("/spec/headGroupSpec/template/spec/containers/0/resources/limits/cpu"),
        Some(&json!("1"))
    );
    let made: Vec<_> = made.iter().map(String::as_str).collect();
    site.delete_cluster_compute(&made).await?;
    site.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn the_platform_teams_rules_deny_at_once() -> anyhow::Result<()> {
    let flags = [
        "--default-repository=reg.example/ray",
        "--allowed-base-images=rayproject",
        "--allow-custom-commands=false",
        "--default-push-secret=team",
    ];
    let site = Site::with("policy", &flags, "ray.io").await?;
    let template = |spec: Value| {
        let mut whole = json!({"baseImage": "rayproject/ray:2.60.0", "pipPackages": ["emoji==2.14.0"]});
        whole
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        json!({"apiVersion": "templates.ray.io/v1alpha1", "kind": "ImageTemplate", "metadata": {"name": "i"}, "spec": whole})
    };
    let commands = |count: usize| json!({"customCommands": vec!["x".repeat(60_000); count]});
    for (spec, words) in [
        (
            json!({"repository": "reg.example/ray/another-team/i"}),
            &["spec.repository", "push below reg.example/ray/"][..],
        ),
        (
            json!({"baseImage": "elsewhere.example/ray:1"}),
            &["spec.baseImage", "build on rayproject"],
        ),
        (
            json!({"customCommands": ["id"]}),
            &["spec.customCommands", "--allow-custom-commands=false"],
        ),
        (
            json!({"pullSecrets": ["mine", "team"]}),
            &["spec.pullSecrets[1]", "the platform team's push secret"],
        ),
        (commands(5), &["spec: ", "more than 262144"]),
    ] {
        let denied = site.kubectl(&["create"], &template(spec))?;
        assert_eq!(denied.code, 1);
        for word in words {
            assert!(
                denied.stderr.contains(word),
                "{word} is missing in {}",
                denied.stderr
            );
        }
    }
    // A data scientist names neither registry nor secret.
    site.kubectl(&["create"], &template(json!({})))?.success()?;
    site.finish().await
}
