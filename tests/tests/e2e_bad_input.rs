//! What a person gets wrong is denied with the field's path and what to do; the plugin prints that text and exits 4.

use ray_tests::{Cluster, Output, User};

fn denied(output: &Output, code: i32, words: &[&str]) {
    assert_eq!(output.code, code, "{output:?}");
    for word in words {
        assert!(
            output.stderr.contains(word),
            "{word:?} is missing in:\n{}",
            output.stderr
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn the_plugin_prints_the_denial_and_exits_4() -> anyhow::Result<()> {
    let user = User::new(&Cluster::node().await?, "bad").await?;
    user.compute_template("a100", "1", "1Gi")?;

    let missing = [
        "create",
        "cluster",
        "c",
        "--image",
        "rayproject/ray:2.60.0",
        "--compute-template",
        "a10",
    ];
    denied(&user.ray(&missing)?, 4, &["a10", &user.namespace, "a100"]);

    let long = "c".repeat(54);
    denied(
        &user.ray(&["create", "cluster", &long, "--image", "rayproject/ray:2.60.0"])?,
        4,
        &["metadata.name", "53"],
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: make test"]
async fn plain_manifests_are_denied_by_the_crd_itself() -> anyhow::Result<()> {
    let user = User::new(&Cluster::node().await?, "bad").await?;
    let folder = tempfile::tempdir()?;
    let create = |yaml: &str| {
        let path = folder.path().join("object.yaml");
        std::fs::write(&path, yaml)?;
        user.kubectl(&["create", "-f", &path.to_string_lossy()])
    };
    let cluster = |groups: &str| {
        format!(
            "{{apiVersion: ray.io/v1, kind: RayCluster, metadata: {{name: c}}, spec: {{headGroupSpec: {{template: \
             {{spec: {{containers: [{{name: h, image: i}}]}}}}}}, workerGroupSpecs: [{groups}]}}}}"
        )
    };
    let pod = "template: {spec: {containers: [{name: w, image: i}]}}";
    let twice = cluster(&format!("{{groupName: g, {pod}}}, {{groupName: g, {pod}}}"));
    denied(&create(&twice)?, 1, &["spec.workerGroupSpecs[1]", "Duplicate"]);
    let crossed = cluster(&format!(
        "{{groupName: g, minReplicas: 5, maxReplicas: 1, {pod}}}"
    ));
    denied(
        &create(&crossed)?,
        1,
        &["spec.workerGroupSpecs[0]", "minReplicas", "maxReplicas"],
    );
    let quantity = "template: {spec: {containers: [{name: w, image: i, resources: {limits: {cpu: abc}}}]}}";
    denied(
        &create(&cluster(&format!("{{groupName: g, {quantity}}}")))?,
        1,
        &["spec.workerGroupSpecs[0].template.spec.containers[0].resources.limits.cpu"],
    );
    let image = "{apiVersion: templates.ray.io/v1alpha1, kind: ImageTemplate, metadata: {name: i}, spec: \
                 {baseImage: \"rayproject/ray:2.60.0\", pipPackages: [\"emoji\\nRUN true\"]}}";
    denied(&create(image)?, 1, &["spec.pipPackages[0]"]);
    Ok(())
}
