use super::*;

fn build(yaml: &str, style: Style) -> serde_json::Value {
    let config = ClusterConfig::parse(yaml).unwrap();
    serde_json::to_value(cluster(&config, style).unwrap()).unwrap()
}

#[test]
fn templates_leave_nothing_else_to_say() {
    insta::assert_yaml_snapshot!(build(
        "name: train\nimage-template: torch\nhead: {compute-template: small}\n\
         worker-groups: [{name: gpu, replicas: 2, compute-template: a100}]",
        Style::Fields
    ), @r#"
    apiVersion: ray.io/v1
    kind: RayCluster
    metadata:
      name: train
    spec:
      headGroupSpec:
        computeTemplate: small
        rayStartParams: {}
      imageTemplate: torch
      workerGroupSpecs:
        - computeTemplate: a100
          groupName: gpu
          rayStartParams: {}
          replicas: 2
"#);
}

#[test]
fn kuberays_crd_gets_annotations_and_whole_pod_templates() {
    insta::assert_yaml_snapshot!(build(
        "name: train\nimage-template: torch\nhead: {compute-template: small}\n\
         worker-groups: [{name: gpu, replicas: 2, compute-template: a100}]",
        Style::Annotations
    ), @r#"
    apiVersion: ray.io/v1
    kind: RayCluster
    metadata:
      annotations:
        templates.ray.io/image-template: torch
      name: train
    spec:
      headGroupSpec:
        rayStartParams: {}
        template:
          metadata:
            annotations:
              templates.ray.io/compute-template: small
          spec:
            containers:
              - name: ray-head
      workerGroupSpecs:
        - groupName: gpu
          rayStartParams: {}
          replicas: 2
          template:
            metadata:
              annotations:
                templates.ray.io/compute-template: a100
            spec:
              containers:
                - name: ray-worker
"#);
}

#[test]
fn nothing_said_is_kuberays_default_cluster() {
    insta::assert_yaml_snapshot!(build("name: plain", Style::Fields), @r#"
    apiVersion: ray.io/v1
    kind: RayCluster
    metadata:
      name: plain
    spec:
      headGroupSpec:
        rayStartParams: {}
        template:
          spec:
            containers:
              - image: "rayproject/ray:2.60.0"
                name: ray-head
                resources:
                  limits:
                    memory: 4Gi
                  requests:
                    cpu: "2"
                    memory: 4Gi
      rayVersion: 2.60.0
      workerGroupSpecs:
        - groupName: default-group
          rayStartParams: {}
          replicas: 1
          template:
            spec:
              containers:
                - image: "rayproject/ray:2.60.0"
                  name: ray-worker
                  resources:
                    limits:
                      memory: 4Gi
                    requests:
                      cpu: "2"
                      memory: 4Gi
"#);
}

#[test]
fn autoscaled_groups_have_bounds() {
    let built = build(
        "name: a\nautoscaler: {version: v2}\nworker-groups: [{name: g, replicas: 20}]",
        Style::Fields,
    );
    let group = &built["spec"]["workerGroupSpecs"][0];
    assert_eq!(
        (&group["minReplicas"], &group["maxReplicas"]),
        (&0.into(), &20.into())
    );
    assert_eq!(built["spec"]["autoscalerOptions"]["version"], "v2");
}

#[test]
fn an_image_by_name_wins_over_the_templates() {
    let built = build(
        "name: a\nimage-template: t\nworker-groups: [{name: g, image: mine:1}, {name: h}]",
        Style::Fields,
    );
    let image = |index: usize| {
        built["spec"]["workerGroupSpecs"][index]["template"]["spec"]["containers"][0]["image"].clone()
    };
    assert_eq!(image(0), "mine:1");
    assert_eq!(image(1), serde_json::Value::Null);
}

#[test]
fn the_ray_version_moves_the_image() {
    let built = build("name: a\nray-version: 2.53.0", Style::Fields);
    let head = &built["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0];
    assert_eq!(head["image"], "rayproject/ray:2.53.0");
    assert_eq!(built["spec"]["rayVersion"], "2.53.0");
}

#[test]
fn tpus_need_the_shape_of_their_slice() {
    let config = ClusterConfig::parse("name: a\nworker-groups: [{name: t, tpu: 4}]").unwrap();
    let error = cluster(&config, Style::Fields).unwrap_err();
    assert!(error.contains("gke-tpu-accelerator"), "{error}");
}

#[test]
fn a_bucket_is_mounted_into_every_pod() {
    let built = build(
        "name: a\ngke: {gcsfuse: {bucket-name: b, mount-path: /mnt, resources: {cpu: 250m}}}",
        Style::Fields,
    );
    for group in [
        &built["spec"]["headGroupSpec"],
        &built["spec"]["workerGroupSpecs"][0],
    ] {
        let template = &group["template"];
        assert_eq!(
            template["metadata"]["annotations"]["gke-gcsfuse/cpu-limit"],
            "250m"
        );
        assert_eq!(
            template["spec"]["volumes"][0]["csi"]["volumeAttributes"]["bucketName"],
            "b"
        );
        assert_eq!(
            template["spec"]["containers"][0]["volumeMounts"][0]["mountPath"],
            "/mnt"
        );
    }
}
