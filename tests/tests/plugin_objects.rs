//! The plugin against a real API server: what it creates is valid, what it shows is there, what it changes is only that.

mod plugin;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use kube::api::{Patch, PatchParams};
use plugin::{clusters, set_up};
use ray_tests::binary;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn everything_that_create_can_say_is_valid() -> anyhow::Result<()> {
    let (_, user) = set_up("create").await?;
    let tpu = "cloud.google.com/gke-tpu-accelerator=tpu-v5,cloud.google.com/gke-tpu-topology=2x2";
    let create: [&[&str]; 8] = [
        &[
            "compute-template",
            "small",
            "--cpu",
            "1",
            "--memory",
            "1Gi",
            "--shared-memory",
            "1Gi",
            "--toleration",
            "gpu",
        ],
        &[
            "image-template",
            "torch",
            "--base-image",
            "rayproject/ray:2.60.0",
            "--pip",
            "torch==2.9.0",
            "--apt",
            "git",
        ],
        &[
            "compute-template",
            "v5",
            "--extends",
            "small",
            "--tpu",
            "4",
            "--ephemeral-storage",
            "100Gi",
            "--runtime-class",
            "gvisor",
            "--service-account",
            "ray",
        ],
        &[
            "image-template",
            "late",
            "--base-image",
            "rayproject/ray:2.60.0",
            "--pip",
            "torch",
            "--extra-index-url",
            "https://a.example/simple",
            "--break-system-packages",
        ],
        &["cluster", "plain", "--autoscaler", "v2", "--worker-gpu", "1"],
        &[
            "cluster",
            "tpu",
            "--worker-tpu",
            "4",
            "--worker-node-selectors",
            tpu,
        ],
        &[
            "cluster",
            "two",
            "--worker-group",
            "name=a,replicas=1",
            "--worker-group",
            "name=b,min=0,max=5,hosts=2",
        ],
        &[
            "workergroup",
            "more",
            "--ray-cluster",
            "plain",
            "--worker-memory",
            "5Gi",
        ],
    ];
    for words in create {
        user.ray(&[&["create"], words].concat())?.success()?;
    }
    let again = user.ray(&["create", "cluster", "plain", "--worker-replicas", "9"])?;
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.stderr.contains("already exists"), "{again:?}");
    let twice = user.ray(&["create", "workergroup", "more", "--ray-cluster", "plain"])?;
    assert!(twice.code == 1 && twice.stderr.contains("already"), "{twice:?}");
    let server = user
        .ray(&["create", "cluster", "unsaved", "--dry-run=server"])?
        .success()?;
    assert_eq!(server, "raycluster.ray.io/unsaved created (server dry run)\n");
    assert_eq!(user.ray(&["get", "cluster", "unsaved"])?.code, 3);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn what_the_crd_refuses_is_told_in_its_words() -> anyhow::Result<()> {
    let (_, user) = set_up("refused").await?;
    let long = "c".repeat(54);
    let wrong: [(&[&str], &[&str]); 5] = [
        (&["cluster", &long], &["metadata.name", "53"]),
        (
            &[
                "cluster",
                "c",
                "--worker-group",
                "name=a",
                "--worker-group",
                "name=a",
            ],
            &["workerGroupSpecs", "Duplicate"],
        ),
        (
            &["cluster", "c", "--worker-group", "name=a,min=3,max=2"],
            &["workerGroupSpecs[0]", "minReplicas"],
        ),
        (&["cluster", "c", "--worker-memory", "abc"], &["memory"]),
        (
            &["image-template", "t", "--base-image", "b", "--pip", "a\nb"],
            &["pipPackages"],
        ),
    ];
    for (words, parts) in wrong {
        let output = user.ray(&[&["create"], words].concat())?;
        assert_eq!(output.code, 4, "{output:?}");
        for part in parts {
            assert!(output.stderr.contains(part), "{part}: {output:?}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn lists_show_what_is_there() -> anyhow::Result<()> {
    let (cluster, user) = set_up("get").await?;
    let api = clusters(&cluster, &user.namespace);
    for name in ["b", "a"] {
        user.ray(&["create", "cluster", name, "--labels", &format!("team={name}")])?
            .success()?;
    }
    let status = json!({"status": {"state": "ready", "desiredWorkerReplicas": 3, "availableWorkerReplicas": 2, "desiredCPU": "4"}});
    api.patch_status("b", &PatchParams::default(), &Patch::Merge(status))
        .await?;

    let table = user
        .ray(&["get", "cluster", "--sort-by", "desired workers"])?
        .success()?;
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[1][..3], ["a", "0", "0"], "{table}");
    assert_eq!(rows[2][..4], ["b", "3", "2", "4"], "{table}");
    assert!(rows[2].contains(&"ready"), "{table}");

    assert_eq!(
        user.ray(&["get", "cluster", "-l", "team=a", "-o", "name"])?
            .success()?,
        "raycluster.ray.io/a\n"
    );
    let json: Value = serde_json::from_str(&user.ray(&["get", "cluster", "b", "-o", "json"])?.success()?)?;
    assert_eq!(
        (&json["kind"], &json["status"]["state"]),
        (&"RayCluster".into(), &"ready".into())
    );
    let everywhere = user.ray(&["get", "cluster", "-A"])?.success()?;
    assert!(
        everywhere.starts_with("NAMESPACE") && everywhere.contains(&user.namespace),
        "{everywhere}"
    );
    let groups = user.ray(&["get", "workergroup", "-c", "a"])?.success()?;
    assert!(
        groups.contains("default-group") && groups.contains("0/1"),
        "{groups}"
    );
    let missing = user.ray(&["get", "cluster", "a", "nope"])?;
    assert_eq!(missing.code, 3);
    assert!(
        missing.stderr.contains("\"nope\" not found") && missing.stdout.contains('a'),
        "{missing:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn a_watch_shows_changes_as_they_come() -> anyhow::Result<()> {
    let (cluster, user) = set_up("watch").await?;
    user.ray(&["create", "cluster", "a"])?.success()?;
    let mut child = Command::new(binary("kubectl-ray"))
        .args(["-n", &user.namespace, "get", "cluster", "-w", "--no-headers"])
        .env("KUBECONFIG", &cluster.kubeconfig)
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or_else(|| anyhow::anyhow!("no stdout"))?;
    let mut lines = BufReader::new(stdout).lines();
    let mut desired = || lines.next()?.ok()?.split_whitespace().nth(1).map(str::to_owned);
    assert_eq!(desired().as_deref(), Some("0"));
    let api = clusters(&cluster, &user.namespace);
    for wanted in [5, 7] {
        let status = json!({"status": {"desiredWorkerReplicas": wanted}});
        api.patch_status("a", &PatchParams::default(), &Patch::Merge(status))
            .await?;
        assert_eq!(desired(), Some(wanted.to_string()));
    }
    child.kill()?;
    child.wait()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn scaling_changes_the_numbers_and_nothing_else() -> anyhow::Result<()> {
    let (cluster, user) = set_up("scale").await?;
    user.ray(&[
        "create",
        "cluster",
        "c",
        "--worker-group",
        "name=a,replicas=1",
        "--worker-group",
        "name=b,replicas=1",
    ])?
    .success()?;
    let api = clusters(&cluster, &user.namespace);
    let before = serde_json::to_value(api.get("c").await?)?;
    let said = user
        .ray(&[
            "scale",
            "cluster",
            "c",
            "-w",
            "b",
            "-r",
            "4",
            "--max-replicas",
            "8",
        ])?
        .success()?;
    assert!(said.contains("replicas 1 → 4"), "{said}");
    let after = api.get("c").await?;
    let mut expected = before["spec"].clone();
    expected["workerGroupSpecs"][1]["replicas"] = 4.into();
    expected["workerGroupSpecs"][1]["maxReplicas"] = 8.into();
    assert_eq!(after.data["spec"], expected);
    let managers: Vec<_> = after
        .metadata
        .managed_fields
        .unwrap_or_default()
        .into_iter()
        .filter_map(|f| f.manager)
        .collect();
    assert!(
        managers.iter().all(|manager| manager == "kubectl-ray"),
        "{managers:?}"
    );

    let unknown = user.ray(&["scale", "cluster", "c", "-w", "nope", "-r", "1"])?;
    assert_eq!(unknown.code, 3);
    assert!(unknown.stderr.contains("the groups are: a, b"), "{unknown:?}");
    let refused = user.ray(&["scale", "cluster", "c", "-w", "b", "--min-replicas", "9"])?;
    assert_eq!(refused.code, 4, "{refused:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn groups_that_are_added_at_once_are_all_there() -> anyhow::Result<()> {
    let (cluster, user) = set_up("groups").await?;
    user.ray(&["create", "cluster", "c", "--worker-group", "name=first"])?
        .success()?;
    let groups = ["g0", "g1", "g2", "g3"];
    let user = &user;
    std::thread::scope(|scope| {
        let adding =
            groups.map(|group| scope.spawn(move || user.ray(&["create", "workergroup", group, "-c", "c"])));
        for added in adding {
            let added = added.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?;
            added?.success()?;
        }
        anyhow::Ok(())
    })?;
    let live = clusters(&cluster, &user.namespace).get("c").await?;
    let mut names: Vec<&str> = live.data["spec"]["workerGroupSpecs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|group| group["groupName"].as_str())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["first", "g0", "g1", "g2", "g3"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn deleting_goes_through_the_whole_list() -> anyhow::Result<()> {
    let (_, user) = set_up("delete").await?;
    user.ray(&["create", "cluster", "a"])?.success()?;
    user.ray(&["create", "compute-template", "t", "--cpu", "1"])?
        .success()?;
    let output = user.ray(&["delete", "nope", "a", "ct/t", "--yes", "--wait"])?;
    assert_eq!(output.code, 3, "{output:?}");
    assert!(
        output.stdout.contains("raycluster.ray.io/a deleted"),
        "{output:?}"
    );
    assert!(
        output
            .stdout
            .contains("computetemplate.templates.ray.io/t deleted"),
        "{output:?}"
    );
    user.ray(&["delete", "a", "ct/t", "--yes", "--ignore-not-found"])?
        .success()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn expansion_on_this_side_is_recorded_and_explained() -> anyhow::Result<()> {
    let (cluster, user) = set_up("expand").await?;
    user.ray(&["create", "compute-template", "small", "--memory", "3Gi"])?
        .success()?;
    let words = [
        "create",
        "cluster",
        "c",
        "--image",
        "a:1",
        "--compute-template",
        "small",
        "--expand",
        "client",
    ];
    user.ray(&words)?.success()?;
    let made = clusters(&cluster, &user.namespace).get("c").await?;
    let memory = made
        .data
        .pointer("/spec/headGroupSpec/template/spec/containers/0/resources/limits/memory");
    assert_eq!(memory, Some(&"3Gi".into()));
    let explained = user.ray(&["explain", "cluster", "c"])?.success()?;
    assert!(explained.contains("ComputeTemplate/small"), "{explained}");

    let missing = user.ray(&[
        "create",
        "cluster",
        "d",
        "--image",
        "a:1",
        "--compute-template",
        "smal",
        "--expand",
        "client",
    ])?;
    assert_eq!(missing.code, 4, "{missing:?}");
    assert!(missing.stderr.contains("did you mean `small`"), "{missing:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a control plane: make test"]
async fn waiting_ends_with_the_reason() -> anyhow::Result<()> {
    let (_, user) = set_up("wait").await?;
    let output = user.ray(&["create", "cluster", "c", "--wait", "--timeout", "2s"])?;
    assert_eq!(output.code, 5, "{output:?}");
    assert!(
        output.stderr.contains("no operator has looked at it yet"),
        "{output:?}"
    );
    let doctor = user.ray(&["doctor"])?;
    assert_eq!(doctor.code, 1);
    assert!(doctor.stdout.contains("no operator was found"), "{doctor:?}");
    Ok(())
}
