//! The main job as a person types it, on a real node with real Ray: packages to image, image and hardware to cluster,
//! cluster to a job's result; and the same from committed YAML.

use ray_tests::{Cluster, User, repository};

/// Runs on the cluster: imports the package on the worker, where the base image would not have it.
const JOB: &str = r#"
import importlib.metadata
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

ray.init()
head = ray.get_runtime_context().get_node_id()
alive = [n["NodeID"] for n in ray.nodes() if n["Alive"]]
worker = next(n for n in alive if n != head)

@ray.remote(num_cpus=0)
def version():
    import cowsay
    return importlib.metadata.version("cowsay"), ray.get_runtime_context().get_node_id()

found, where = ray.get(version.options(scheduling_strategy=On(worker, soft=False)).remote())
assert where == worker
print(f"cowsay {found} on the worker, {len(alive)} Ray nodes")
"#;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn a_package_list_becomes_an_image_a_cluster_and_a_jobs_result() -> anyhow::Result<()> {
    let user = User::new(&Cluster::node().await?, "main").await?;
    user.compute_template("small", "200m", "2Gi")?;
    let image = [
        "create",
        "image-template",
        "cows",
        "--base-image",
        "rayproject/ray:2.60.0",
    ];
    let built = user.ray(&[&image[..], &["--pip", "cowsay==6.1", "--wait"]].concat())?;
    let log = format!("{}{}", built.stdout, built.stderr);
    built.success()?;
    assert!(
        log.contains("Successfully installed cowsay-6.1"),
        "--wait streams the build's log:\n{log}"
    );

    let create = [
        "create",
        "cluster",
        "demo",
        "--image-template",
        "cows",
        "--head-compute-template",
        "small",
    ];
    let group = [
        "--worker-group",
        "name=w,replicas=1,compute-template=small",
        "--wait",
    ];
    user.ray(&[&create[..], &group[..]].concat())?.success()?;

    let path = "{.status.state} {.status.availableWorkerReplicas}/{.status.desiredWorkerReplicas} \
                {.spec.headGroupSpec.template.spec.containers[0].image}";
    let shown = user
        .kubectl(&["get", "raycluster", "demo", "-o", &format!("jsonpath={path}")])?
        .success()?;
    assert!(shown.starts_with("ready 1/1 "), "{shown}");
    assert!(
        shown.contains("@sha256:"),
        "the image is pinned by digest: {shown}"
    );

    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("main.py"), JOB)?;
    let directory = folder.path().to_string_lossy().into_owned();
    let job = user.ray(&[
        "job",
        "submit",
        "demo",
        "--working-dir",
        &directory,
        "--",
        "python",
        "main.py",
    ])?;
    let printed = format!("{}{}", job.stdout, job.stderr);
    job.success()?;
    assert!(
        printed.contains("cowsay 6.1 on the worker, 2 Ray nodes"),
        "{printed}"
    );

    let failing = user.ray(&[
        "job",
        "submit",
        "demo",
        "--",
        "python",
        "-c",
        "raise SystemExit(3)",
    ])?;
    assert_eq!(failing.code, 1, "a job that fails fails the command: {failing:?}");
    user.ray(&["delete", "demo", "--yes"])?.success()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn committed_yaml_waits_for_its_image_and_stays_as_it_is() -> anyhow::Result<()> {
    let user = User::new(&Cluster::node().await?, "gitops").await?;
    let samples = repository()
        .join("manifests/samples")
        .to_string_lossy()
        .into_owned();
    user.kubectl(&["apply", "-f", &samples])?.success()?;
    let ready = [
        "wait",
        "--for=jsonpath={.status.state}=ready",
        "raycluster/train",
        "--timeout=600s",
    ];
    user.kubectl(&ready)?.success()?;

    let generations = || {
        let each = "jsonpath={range .items[*]}{.kind}/{.metadata.name}={.metadata.generation} {end}";
        user.kubectl(&["get", "rayclusters,imagetemplates,computetemplates", "-o", each])?
            .success()
    };
    let before = generations()?;
    user.kubectl(&["apply", "-f", &samples])?.success()?;
    assert_eq!(before, generations()?, "applying again must change nothing");
    user.kubectl(&["diff", "-f", &samples])?.success()?;
    user.kubectl(&["delete", "-f", &samples])?.success()?;
    Ok(())
}
