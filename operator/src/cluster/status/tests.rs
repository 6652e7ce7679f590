//! What is observed, and what the status then says.

use k8s_openapi::jiff::Timestamp;
use ray_api::conditions::find;
use ray_api::meta::condition;
use ray_api::ray::v1::RayCluster;
use serde_json::{Value, json};

use super::*;
use crate::cluster::config::Config;
use crate::cluster::fixtures::{cluster, group, head, pod, worker, worker_with};

fn at(second: i64) -> Time {
    Time(Timestamp::from_second(second).unwrap())
}

fn unready() -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "m"}]}})
}

struct Pass<'a> {
    pods: &'a [Arc<PodView>],
    service: Option<Service>,
    failure: Option<&'static str>,
    object: Option<&'static str>,
    unsupported: Option<&'static str>,
    now: i64,
}

fn headless() -> Service {
    serde_json::from_value(json!({"spec": {"clusterIP": "None"}})).unwrap()
}

impl Default for Pass<'_> {
    fn default() -> Self {
        Self {
            pods: &[],
            service: Some(headless()),
            failure: None,
            object: None,
            unsupported: None,
            now: 1,
        }
    }
}

impl Pass<'_> {
    /// The status after it, which the cluster then has.
    fn over(&self, cluster: &mut RayCluster) -> RayClusterStatus {
        let config = Config::for_tests();
        let facts = Facts::new(cluster, &config);
        let now = at(self.now);
        let observation = Observation {
            pods: self.pods,
            head_service: self.service.as_ref(),
            replica_failure: self
                .failure
                .map(|message| ("FailedCreateWorkerPod", message.to_owned())),
            object_failure: self
                .object
                .map(|message| ("FailedToCreateIngress", message.to_owned())),
            unsupported: self.unsupported.map(str::to_owned),
            now: &now,
        };
        let status = compute(&facts, &observation);
        cluster.status = Some(status.clone());
        status
    }
}

fn seen(cluster: &mut RayCluster, pods: &[Arc<PodView>]) -> RayClusterStatus {
    Pass {
        pods,
        ..Pass::default()
    }
    .over(cluster)
}

fn word(status: &RayClusterStatus) -> &'static str {
    status.state.map_or("", ClusterState::as_str)
}

/// Status and reason of a condition.
fn says<'a>(status: &'a RayClusterStatus, type_: &str) -> (&'a str, &'a str) {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    find(conditions, type_).map_or(("", ""), |condition| (&condition.status, &condition.reason))
}

#[test]
fn a_cluster_becomes_ready_with_its_last_pod() {
    let mut cluster = group(json!({"replicas": 2}));
    let pods = [head(json!({})), worker(0), worker_with(1, unready())];
    let early = seen(&mut cluster, &pods);
    assert_eq!(word(&early), "");
    assert_eq!(
        says(&early, condition::HEAD_POD_READY),
        ("True", "HeadPodRunningAndReady")
    );
    assert_eq!(
        says(&early, condition::PROVISIONED),
        ("False", "RayClusterPodsProvisioning")
    );
    assert_eq!(
        (early.ready_worker_replicas, early.available_worker_replicas),
        (Some(1), Some(2))
    );

    let pods = [head(json!({})), worker(0), worker(1)];
    let status = Pass {
        pods: &pods,
        now: 9,
        ..Pass::default()
    }
    .over(&mut cluster);
    assert_eq!(word(&status), "ready");
    assert_eq!(
        says(&status, condition::PROVISIONED),
        ("True", "AllPodRunningAndReadyFirstTime")
    );
    assert_eq!(status.state_transition_times.unwrap().get("ready"), Some(&at(9)));
    let conditions = status.conditions.unwrap();
    let types: Vec<_> = conditions
        .iter()
        .map(|condition| condition.type_.as_str())
        .collect();
    let kuberays = [
        condition::HEAD_POD_READY,
        condition::PROVISIONED,
        condition::SUSPENDED,
        condition::SUSPENDING,
    ];
    assert_eq!(types, kuberays);
    assert!(
        conditions
            .iter()
            .all(|condition| condition.observed_generation == Some(7))
    );
    let since: Vec<_> = conditions
        .iter()
        .map(|condition| &condition.last_transition_time)
        .collect();
    assert_eq!(
        since,
        [&at(1), &at(9), &at(1), &at(1)],
        "only a flip moves the time"
    );
}

#[test]
fn ready_ends_when_a_pod_is_lost_but_not_when_more_are_asked_for() {
    let mut cluster = group(json!({"replicas": 2}));
    let (first, second) = (worker(0), worker(1));
    let all = [head(json!({})), Arc::clone(&first), Arc::clone(&second)];
    assert_eq!(word(&seen(&mut cluster, &all)), "ready");

    cluster.spec.worker_group_specs[0].replicas = Some(3);
    assert_eq!(
        word(&seen(&mut cluster, &all)),
        "ready",
        "a scale-up takes nothing away"
    );
    cluster.spec.worker_group_specs[0].replicas = Some(1);
    let fewer = [head(json!({})), Arc::clone(&first)];
    assert_eq!(
        word(&seen(&mut cluster, &fewer)),
        "ready",
        "a scale-down is no loss"
    );

    cluster.spec.worker_group_specs[0].replicas = Some(2);
    assert_eq!(word(&seen(&mut cluster, &all)), "ready");
    for lost in [
        vec![head(json!({})), Arc::clone(&first)],
        vec![
            head(json!({})),
            Arc::clone(&first),
            worker_with(
                1,
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            ),
        ],
        vec![head(json!({})), Arc::clone(&first), worker_with(1, unready())],
        vec![head(unready()), Arc::clone(&first), Arc::clone(&second)],
        vec![Arc::clone(&first), Arc::clone(&second)],
    ] {
        let mut cluster = cluster.clone();
        let status = seen(&mut cluster, &lost);
        assert_eq!(word(&status), "", "{lost:?}");
        assert_eq!(
            says(&status, condition::PROVISIONED).0,
            "True",
            "that once holds for good"
        );
        assert_eq!(word(&seen(&mut cluster, &all)), "ready");
    }
}

#[test]
fn pods_that_are_not_wanted_keep_a_cluster_from_ready() {
    let mut cluster = group(json!({"replicas": 1}));
    let stray = pod("stray", json!({"ray.io/group": "old"}), json!({}));
    assert_eq!(
        word(&seen(&mut cluster, &[head(json!({})), worker(0), stray])),
        ""
    );
    let cleanup = pod("job", json!({"ray.io/node-type": "redis-cleanup"}), json!({}));
    assert_eq!(
        word(&seen(&mut cluster, &[head(json!({})), worker(0), cleanup])),
        "ready"
    );
}

#[test]
fn a_failure_holds_ready_back_and_is_taken_back_in_words() {
    let mut cluster = group(json!({"replicas": 1}));
    let pods = [head(json!({})), worker(0)];
    let failed = Pass {
        pods: &pods,
        failure: Some("forbidden: exceeded quota"),
        ..Pass::default()
    }
    .over(&mut cluster);
    assert_eq!(word(&failed), "");
    assert_eq!(
        says(&failed, condition::REPLICA_FAILURE),
        ("True", "FailedCreateWorkerPod")
    );
    let healed = seen(&mut cluster, &pods);
    assert_eq!(word(&healed), "ready");
    assert_eq!(says(&healed, condition::REPLICA_FAILURE), ("False", "Recovered"));
    let later = seen(&mut cluster, &pods);
    assert!(!differs(&healed, &later), "and that stays said");
}

#[test]
fn the_heads_condition_names_what_holds_it_back() {
    let mut cluster = group(json!({"replicas": 0}));
    assert_eq!(
        says(&seen(&mut cluster, &[]), condition::HEAD_POD_READY),
        ("False", "HeadPodNotFound")
    );
    let silent = head(json!({"status": {"conditions": null}}));
    assert_eq!(
        says(&seen(&mut cluster, &[silent]), condition::HEAD_POD_READY),
        ("False", "Unknown")
    );
    let waiting =
        json!({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image \"ray:nope\""}});
    let mut patch = unready();
    patch["status"]["containerStatuses"] = json!([{"name": "ray", "state": waiting}]);
    let status = seen(&mut cluster, &[head(patch)]);
    assert_eq!(
        says(&status, condition::HEAD_POD_READY),
        ("False", "ImagePullBackOff")
    );
    let conditions = status.conditions.unwrap();
    let message = &find(&conditions, condition::HEAD_POD_READY).unwrap().message;
    assert_eq!(message, "m; ray: Back-off pulling image \"ray:nope\"");
}

#[test]
fn suspension_goes_through_its_steps_and_forgets_what_was_provisioned() {
    let mut cluster = group(json!({"replicas": 1}));
    let pods = [head(json!({})), worker(0)];
    seen(&mut cluster, &pods);
    cluster.spec.suspend = Some(true);
    let steps: Vec<_> = [&pods[..], &pods[1..], &[], &[]]
        .into_iter()
        .map(|pods| {
            let status = seen(&mut cluster, pods);
            (
                word(&status),
                says(&status, condition::SUSPENDING).0.to_owned(),
                says(&status, condition::SUSPENDED).0.to_owned(),
            )
        })
        .collect();
    let step =
        |state, suspending: &str, suspended: &str| (state, suspending.to_owned(), suspended.to_owned());
    assert_eq!(
        steps,
        [
            step("ready", "True", "False"),
            step("ready", "True", "False"),
            step("suspended", "False", "True"),
            step("suspended", "False", "True"),
        ]
    );
    let status = cluster.status.clone().unwrap();
    assert_eq!(says(&status, condition::PROVISIONED).0, "False");
    assert_eq!(
        says(&status, condition::HEAD_POD_READY),
        ("False", "HeadPodNotFound")
    );
    let pod = status.head.and_then(|head| head.pod_name);
    assert_eq!(pod, None, "a suspended cluster has no head");

    cluster.spec.suspend = None;
    assert_eq!(says(&seen(&mut cluster, &[]), condition::SUSPENDED).0, "False");
    let status = seen(&mut cluster, &pods);
    assert_eq!(
        (word(&status), says(&status, condition::PROVISIONED).0),
        ("ready", "True")
    );
}

#[test]
fn resources_are_those_of_the_pods_that_are_wanted() {
    let template = |resources: Value| json!({"spec": {"containers": [{"name": "ray", "resources": resources}, {"name": "log"}]}});
    let limits = template(json!({"limits": {"cpu": "1", "memory": "1Gi"}}));
    let mut cluster = cluster(json!({"spec": {
        "headGroupSpec": {"template": limits},
        "workerGroupSpecs": [
            {"groupName": "g", "replicas": 9, "minReplicas": 0, "maxReplicas": 3, "template": limits},
            {"groupName": "gpu", "replicas": 2, "minReplicas": 0, "maxReplicas": 3, "numOfHosts": 2,
                "template": template(json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "4", "nvidia.com/gpu": "1"}}))},
            {"groupName": "off", "suspend": true, "replicas": 2, "minReplicas": 1, "maxReplicas": 3, "template": limits},
        ],
    }}));
    let status = seen(&mut cluster, &[]);
    let text = |quantity: &Option<k8s_openapi::apimachinery::pkg::api::resource::Quantity>| {
        quantity.clone().unwrap().0
    };
    // Limits count where nothing is requested; 3 of 9 replicas are allowed; a suspended group wants none.
    assert_eq!(text(&status.desired_cpu), "6");
    assert_eq!(text(&status.desired_memory), "4Gi");
    assert_eq!(text(&status.desired_gpu), "4");
    assert_eq!(
        (
            status.desired_worker_replicas,
            status.min_worker_replicas,
            status.max_worker_replicas
        ),
        (Some(7), None, Some(9))
    );
}

#[test]
fn numbers_that_do_not_fit_are_large() {
    let mut cluster = group(
        json!({"replicas": i32::MAX, "maxReplicas": i32::MAX, "numOfHosts": 8, "minReplicas": i32::MAX}),
    );
    let status = seen(&mut cluster, &[]);
    let most = Some(i32::MAX);
    assert_eq!(
        (
            status.desired_worker_replicas,
            status.min_worker_replicas,
            status.max_worker_replicas
        ),
        (most, most, most)
    );
}

#[test]
fn head_and_endpoints_say_where_to_go() {
    let service = |spec: Value| -> Service { serde_json::from_value(json!({"spec": spec})).unwrap() };
    let ports = json!([
        {"name": "dashboard", "port": 8265, "targetPort": 8265, "nodePort": 30001},
        {"name": "client", "port": 10001, "targetPort": "ray-client"},
        {"name": "serve", "port": 8000, "targetPort": 8000, "nodePort": 0},
        {"port": 9},
    ]);
    let with_ip = head(json!({"status": {"podIP": "10.0.0.7"}}));
    let mut cluster = group(json!({"replicas": 0}));
    for (address, reached) in [("None", "10.0.0.7"), ("10.96.0.9", "10.96.0.9")] {
        let pass = Pass {
            pods: &[Arc::clone(&with_ip)],
            service: Some(service(json!({"clusterIP": address, "ports": ports}))),
            ..Pass::default()
        };
        let status = pass.over(&mut cluster);
        let head = status.head.unwrap();
        assert_eq!(head.service_ip.as_deref(), Some(reached));
        assert_eq!(head.service_name.as_deref(), Some("c-head-svc"));
        assert_eq!(
            (head.pod_name.as_deref(), head.pod_ip.as_deref()),
            (Some("head"), Some("10.0.0.7"))
        );
        let endpoints = serde_json::to_value(status.endpoints).unwrap();
        assert_eq!(
            endpoints,
            json!({"dashboard": "30001", "client": "ray-client", "serve": "8000"})
        );
    }
}

#[test]
fn only_what_somebody_reads_is_worth_a_write() {
    let mut cluster = group(json!({"replicas": 1}));
    let pods = [head(json!({})), worker(0)];
    let old = seen(&mut cluster, &pods);
    let mut new = Pass {
        pods: &pods,
        now: 99,
        ..Pass::default()
    }
    .over(&mut cluster);
    assert_ne!(old, new, "it was looked at later");
    assert!(!differs(&old, &new));
    new.desired_cpu = Some(k8s_openapi::apimachinery::pkg::api::resource::Quantity(
        "9".to_owned(),
    ));
    assert!(differs(&old, &new));
    assert!(!is_urgent(&old, &new), "nobody waits for a sum");
    let lost = seen(&mut cluster, &pods[..1]);
    assert!(is_urgent(&old, &lost));
}

#[test]
fn what_is_no_more_is_written_as_nothing() {
    let mut cluster = group(json!({"replicas": 1}));
    let with_ip = head(json!({"status": {"podIP": "10.0.0.7"}}));
    let old = seen(&mut cluster, &[with_ip, worker(0)]);
    let new = seen(&mut cluster, &[]);
    let patch = patch(&cluster, &old, &new);
    let status = &patch["status"];
    assert_eq!(
        (&status["readyWorkerReplicas"], &status["state"]),
        (&json!(0), &json!(""))
    );
    let head = json!({"podName": "", "podIP": "", "serviceName": "c-head-svc", "serviceIP": ""});
    assert_eq!(status["head"], head);
    assert_eq!(patch["metadata"]["uid"], "u");
}

#[test]
fn an_ingress_of_somebody_else_is_told_and_holds_nothing_back() {
    let mut cluster = group(json!({"replicas": 1}));
    let pods = [head(json!({})), worker(0)];
    let foreign = Some("Ingress c-head-ingress exists and is not owned by this RayCluster");
    let status = Pass {
        pods: &pods,
        object: foreign,
        ..Pass::default()
    }
    .over(&mut cluster);
    assert_eq!(
        (word(&status), says(&status, condition::OBJECT_FAILURE).0),
        ("ready", "True")
    );
    let without = Pass {
        pods: &pods,
        object: foreign,
        service: None,
        ..Pass::default()
    };
    let status = without.over(&mut group(json!({"replicas": 1})));
    assert_eq!(word(&status), "", "nobody finds a head without its Service");
}

#[test]
fn what_is_not_supported_is_said_as_long_as_it_is_asked_for() {
    let mut cluster = group(json!({"replicas": 0}));
    let pods = [head(json!({}))];
    let asking = Pass {
        pods: &pods,
        unsupported: Some("spec.tlsOptions: not yet"),
        ..Pass::default()
    };
    let status = asking.over(&mut cluster);
    assert_eq!(
        says(&status, condition::UNSUPPORTED_FEATURES),
        ("True", "NotSupported")
    );
    assert_eq!(word(&status), "ready", "it runs all the same");
    assert_eq!(
        says(&seen(&mut cluster, &pods), condition::UNSUPPORTED_FEATURES),
        ("", "")
    );
}

/// Fact 16: a suspension is atomic.
#[test]
fn a_suspension_that_is_taken_back_still_ends_first() {
    for last in [Some(false), None, Some(true)] {
        let mut cluster = group(json!({"replicas": 0}));
        let pods = [head(json!({}))];
        cluster.spec.suspend = Some(true);
        seen(&mut cluster, &pods);
        cluster.spec.suspend = Some(false);
        let status = seen(&mut cluster, &pods);
        assert_eq!(says(&status, condition::SUSPENDING).0, "True");
        cluster.spec.suspend = last;
        let status = seen(&mut cluster, &[]);
        let both = [condition::SUSPENDING, condition::SUSPENDED].map(|type_| says(&status, type_).0);
        assert_eq!(both, ["False", "True"]);
        let stays = says(&seen(&mut cluster, &[]), condition::SUSPENDED).0 == "True";
        assert_eq!(stays, last == Some(true));
    }
}

/// Facts 25 and 28.
#[test]
fn ready_counts_pods_not_replicas_and_no_suspended_group() {
    let mut cluster = group(json!({"replicas": 2, "numOfHosts": 4}));
    let all: Vec<_> = [head(json!({}))].into_iter().chain((0..8).map(worker)).collect();
    assert_eq!(word(&seen(&mut cluster, &all[..8])), "");
    let status = seen(&mut cluster, &all);
    assert_eq!(word(&status), "ready");
    let counts = [
        status.desired_worker_replicas,
        status.ready_worker_replicas,
        status.available_worker_replicas,
    ];
    assert_eq!(counts, [Some(8); 3]);
    let mut off = group(json!({"replicas": 3, "suspend": true}));
    assert_eq!(word(&seen(&mut off, &[head(json!({}))])), "ready");
}
