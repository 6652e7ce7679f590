//! Corners of the build that no recorded cluster has; facts are those of raycluster-behaviour section 6.

use ray_api::ray::v1::RayCluster;
use serde_json::{Value, json};

use super::*;
use crate::cluster::ClusterArgs;
use crate::cluster::config::Config;

/// A cluster with one group `g` of workers that run `w`; `patch` changes it.
fn with_worker(patch: Value) -> RayCluster {
    let template = json!({"spec": {"containers": [{"name": "ray-worker", "image": "w"}]}});
    let group =
        json!({"groupName": "g", "replicas": 1, "minReplicas": 0, "maxReplicas": 9, "template": template});
    let mut all = json!({"spec": {"workerGroupSpecs": [group]}});
    json_patch::merge(&mut all, &patch);
    crate::cluster::fixtures::cluster(all)
}

/// Head and first worker.
fn built(cluster: &RayCluster, config: &Config) -> [Value; 2] {
    let facts = Facts::new(cluster, config);
    let identity = WorkerIdentity {
        replica: 0,
        replica_name: None,
        host: 0,
    };
    let worker = worker_pod(&facts, &cluster.spec.worker_group_specs[0], &identity);
    [head_pod(&facts), worker].map(|pod| serde_json::to_value(pod).unwrap())
}

fn env<'a>(container: &'a Value, name: &str) -> &'a Value {
    static NONE: Value = Value::Null;
    let variables = container["env"].as_array().into_iter().flatten();
    variables
        .into_iter()
        .find(|variable| variable["name"] == name)
        .unwrap_or(&NONE)
}

/// Fact 21.
#[test]
fn the_users_account_runs_the_head_and_gets_the_role() {
    let head = json!({"template": {"spec": {"serviceAccountName": "team-sa"}}});
    let cluster = with_worker(json!({"spec": {"enableInTreeAutoscaling": true, "headGroupSpec": head}}));
    let config = Config::for_tests();
    let around = children(&Facts::new(&cluster, &config));
    assert!(around.service_account.is_none());
    assert_eq!(around.role_binding.unwrap().subjects.unwrap()[0].name, "team-sa");
    assert_eq!(
        built(&cluster, &config)[0]["spec"]["serviceAccountName"],
        "team-sa"
    );
}

/// Fact 23.
#[test]
fn the_autoscalers_version_decides_over_restarts_and_a_variable() {
    for (version, variable, policy) in [
        (json!("v2"), json!("true"), json!("Never")),
        (json!("v1"), json!("false"), Value::Null),
        (Value::Null, Value::Null, Value::Null),
    ] {
        let options = json!({"enableInTreeAutoscaling": true, "autoscalerOptions": {"version": version}});
        let [head, worker] = built(&with_worker(json!({"spec": options})), &Config::for_tests());
        let policies = (&head["spec"]["restartPolicy"], &worker["spec"]["restartPolicy"]);
        assert_eq!(policies, (&policy, &policy), "{version}");
        let ray = &head["spec"]["containers"][0];
        assert_eq!(
            env(ray, "RAY_enable_autoscaler_v2")["value"],
            variable,
            "{version}"
        );
    }
}

/// Fact 24.
#[test]
fn the_users_options_reach_the_autoscaler_as_they_are() {
    let security = json!({"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": false});
    let options = json!({
        "image": "a", "imagePullPolicy": "Always", "command": ["sh"], "args": ["x"],
        "resources": {"limits": {"cpu": "1"}}, "securityContext": security,
    });
    let spec = json!({"enableInTreeAutoscaling": true, "autoscalerOptions": options});
    let [head, _] = built(&with_worker(json!({"spec": spec})), &Config::for_tests());
    let sidecar = &head["spec"]["containers"][1];
    for (key, value) in options.as_object().unwrap() {
        assert_eq!(&sidecar[key], value, "{key}");
    }
    let generated = env(sidecar, "KUBERAY_GEN_AUTOSCALER_START_CMD")["value"].as_str();
    assert!(generated.unwrap().starts_with("ray kuberay-autoscaler"));
}

/// Fact 34.
#[test]
fn a_token_of_the_user_or_of_kubernetes_needs_no_secret_of_ours() {
    let config = Config::for_tests();
    let own = json!({"mode": "token", "secretName": "mine"});
    let kubernetes = json!({"mode": "token", "enableK8sTokenAuth": true});
    for options in [&own, &kubernetes, &json!({})] {
        let cluster = with_worker(json!({"spec": {"rayVersion": "2.60.0", "authOptions": options}}));
        let facts = Facts::new(&cluster, &config);
        assert!(auth_secret(&facts, &[0; 32]).is_none(), "{options}");
        for pod in built(&cluster, &config) {
            let ray = &pod["spec"]["containers"][0];
            assert_eq!(
                env(ray, "RAY_AUTH_MODE")["value"] == "token",
                *options != json!({})
            );
            if *options == own {
                let reference = &env(ray, "RAY_AUTH_TOKEN")["valueFrom"]["secretKeyRef"];
                assert_eq!(*reference, json!({"name": "mine", "key": "auth_token"}));
            }
            if *options == kubernetes {
                assert_eq!(env(ray, "RAY_ENABLE_K8S_TOKEN_AUTH")["value"], "true");
                let volumes = pod["spec"]["volumes"].as_array().unwrap();
                assert!(volumes.iter().any(|volume| volume["name"] == "ray-token"));
            }
        }
    }
}

/// Fact 35: every recorded input is of an older Ray.
#[test]
fn new_rays_are_asked_by_http_and_a_services_workers_by_command() {
    let labels = json!({"ray.io/originated-from-crd": "RayService"});
    let cluster = with_worker(json!({"metadata": {"labels": labels}, "spec": {"rayVersion": "2.53.0"}}));
    let [head, worker] = built(&cluster, &Config::for_tests());
    for pod in [&head, &worker] {
        let asked = &pod["spec"]["containers"][0]["livenessProbe"]["httpGet"];
        assert_eq!(
            (&asked["path"], &asked["port"]),
            (&json!("/api/healthz"), &json!(52365))
        );
    }
    assert!(head["spec"]["containers"][0]["readinessProbe"]["exec"].is_null());
    let ready = &worker["spec"]["containers"][0]["readinessProbe"];
    let command = ready["exec"]["command"].as_array().unwrap().last().unwrap();
    assert!(command.as_str().unwrap().contains(":8000/-/healthz"), "{command}");
}

/// Facts 17 and 39.
#[test]
fn wait_gcs_ready_comes_last_and_is_like_the_ray_container_without_its_devices() {
    let ray = json!({
        "name": "w", "image": "i", "imagePullPolicy": "Always", "securityContext": {"runAsUser": 7},
        "env": [{"name": "A", "value": "1"}],
        "resources": {"limits": {"nvidia.com/gpu": "1", "memory": "8Gi"}, "claims": [{"name": "net"}]},
    });
    let pod = json!({"initContainers": [{"name": "mine"}], "containers": [ray]});
    let group =
        json!({"groupName": "g", "template": {"metadata": {"namespace": "not-default"}, "spec": pod}});
    let cluster = with_worker(json!({"spec": {"workerGroupSpecs": [group]}}));
    let [_, worker] = built(&cluster, &Config::for_tests());
    assert_eq!(worker["metadata"]["namespace"], "n");
    let wait = worker["spec"]["initContainers"]
        .as_array()
        .unwrap()
        .last()
        .unwrap();
    assert_eq!(wait["name"], "wait-gcs-ready");
    for key in ["image", "imagePullPolicy", "securityContext"] {
        assert_eq!(wait[key], ray[key], "{key}");
    }
    assert_eq!(env(wait, "A")["value"], "1");
    assert!(wait["resources"]["claims"].is_null(), "{wait}");
    assert!(
        wait["resources"]["limits"].get("nvidia.com/gpu").is_none(),
        "{wait}"
    );
}

/// Fact 30.
#[test]
fn the_cleanup_job_is_the_head_with_one_container_that_only_cleans_up() {
    let options = json!({"redisAddress": "redis:6379"});
    let spec = json!({"enableInTreeAutoscaling": true, "gcsFaultToleranceOptions": options});
    let cluster = with_worker(json!({"spec": spec}));
    let config = Config::for_tests();
    let job = serde_json::to_value(cleanup_job(&Facts::new(&cluster, &config))).unwrap();
    let limits = (
        &job["spec"]["backoffLimit"],
        &job["spec"]["activeDeadlineSeconds"],
    );
    assert_eq!(limits, (&json!(0), &json!(300)));
    let pod = &job["spec"]["template"];
    assert_eq!(pod["metadata"]["labels"]["ray.io/node-type"], "redis-cleanup");
    assert_eq!(pod["spec"]["restartPolicy"], "Never");
    let containers = pod["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 1);
    assert!(containers[0]["livenessProbe"].is_null() && containers[0]["readinessProbe"].is_null());
    assert_eq!(
        env(&containers[0], "RAY_external_storage_namespace")["value"],
        "u"
    );
}

/// KubeRay's environment variables, by what they do.
#[test]
fn the_operators_switches() {
    let plain = with_worker(json!({}));
    let with = |change: fn(&mut ClusterArgs)| {
        let mut config = Config::for_tests();
        change(&mut config.args);
        built(&plain, &config)
    };
    let [head, _] = with(|args| args.login_shell = true);
    assert_eq!(head["spec"]["containers"][0]["command"][1], "-cl");
    let [head, _] = with(|args| args.inject_probes = false);
    assert!(head["spec"]["containers"][0]["livenessProbe"].is_null());
    let [_, worker] = with(|args| args.inject_init_container = false);
    let waits = worker["spec"]["initContainers"].as_array().into_iter().flatten();
    assert_eq!(waits.count(), 0);
    let [head, _] = with(|args| args.deterministic_head_pod_name = true);
    assert_eq!(head["metadata"]["name"], "c-head");
    let [_, worker] = with(|args| "corp".clone_into(&mut args.cluster_domain));
    let name = &env(&worker["spec"]["containers"][0], "FQ_RAY_IP")["value"];
    assert_eq!(*name, "c-head-svc.n.svc.corp");
}

#[test]
fn who_names_a_plasma_directory_gets_no_shared_memory_volume() {
    let params = json!({"plasma-directory": "/x"});
    let cluster = with_worker(json!({"spec": {"headGroupSpec": {"rayStartParams": params}}}));
    let [head, _] = built(&cluster, &Config::for_tests());
    assert!(!head.to_string().contains("shared-mem"), "{head}");
}
