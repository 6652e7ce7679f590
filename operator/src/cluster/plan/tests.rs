//! Tables of situations and what is planned for them.

use super::*;
use crate::cluster::build::Facts;
use crate::cluster::config::Config;
use crate::cluster::fixtures::{cluster, group, head, pod, worker, worker_with};
use ray_api::ray::v1::RayCluster;
use serde_json::{Value, json};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn terminating(since: &str) -> Value {
    json!({"metadata": {"deletionTimestamp": since}})
}

fn plan_at(cluster: &RayCluster, pods: &[Arc<PodView>], now: Timestamp) -> Plan {
    plan_with(&Config::for_tests(), cluster, pods, now)
}

fn plan_with(config: &Config, cluster: &RayCluster, pods: &[Arc<PodView>], now: Timestamp) -> Plan {
    let facts = Facts::new(cluster, config);
    let mut drawn = 0;
    let mut situation = Situation {
        pods,
        now,
        held_until: &|_| None,
        replica_name: &mut |group| {
            drawn += 1;
            format!("{group}-{drawn}")
        },
    };
    plan(&facts, &mut situation)
}

fn plan_of(cluster: &RayCluster, pods: &[Arc<PodView>]) -> Plan {
    plan_at(cluster, pods, at(1_000_000_000))
}

fn deleted(plan: &Plan) -> Vec<(&str, Why)> {
    plan.delete
        .iter()
        .map(|delete| (delete.pod.name.as_str(), delete.why))
        .collect()
}

/// Replica indexes of workers to create.
fn created(plan: &Plan) -> Vec<u32> {
    plan.create
        .iter()
        .filter_map(|create| match create {
            Create::Head => None,
            Create::Worker { identity, .. } => Some(identity.replica),
        })
        .collect()
}

#[test]
fn a_new_cluster_gets_a_head_and_its_workers_at_once() {
    let plan = plan_of(&group(json!({"replicas": 3})), &[]);
    assert_eq!(plan.create.first(), Some(&Create::Head));
    assert_eq!(created(&plan), [0, 1, 2]);
    assert!(plan.delete.is_empty());
}

#[test]
fn missing_workers_take_the_free_indexes() {
    let pods = [head(json!({})), worker(0), worker(2)];
    assert_eq!(created(&plan_of(&group(json!({"replicas": 4})), &pods)), [1, 3]);
}

#[test]
fn terminating_workers_do_not_count() {
    let going = worker_with(1, terminating("2026-01-01T00:00:00Z"));
    let plan = plan_of(
        &group(json!({"replicas": 2})),
        &[head(json!({})), worker(0), going],
    );
    assert_eq!(created(&plan), [1]);
    assert!(plan.delete.is_empty());
}

#[test]
fn surplus_workers_go_unready_and_young_first_unless_the_autoscaler_decides() {
    let unready = worker_with(
        0,
        json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
    );
    let pods = [head(json!({})), unready, worker(1), worker(2), worker(3)];
    let shrunk = plan_of(&group(json!({"replicas": 2})), &pods);
    assert_eq!(deleted(&shrunk), [("w0", Why::Surplus), ("w3", Why::Surplus)]);

    let mut autoscaled = group(json!({"replicas": 2}));
    autoscaled.spec.enable_in_tree_autoscaling = Some(true);
    assert!(plan_of(&autoscaled, &pods).delete.is_empty());
}

#[test]
fn named_workers_go_and_no_others() {
    let named =
        json!({"replicas": 3, "scaleStrategy": {"workersToDelete": ["w1", "gone", "stranger", "head"]}});
    let labels = json!({"ray.io/cluster": "c", "ray.io/group": "other"});
    let stranger = pod("stranger", labels, json!({}));
    let mut cluster = group(named);
    cluster
        .spec
        .worker_group_specs
        .push(ray_api::ray::v1::WorkerGroupSpec {
            group_name: "other".to_owned(),
            replicas: Some(1),
            ..Default::default()
        });
    let pods = [
        head(json!({})),
        worker(0),
        worker(1),
        worker(2),
        worker(3),
        stranger,
    ];
    let plan = plan_of(&cluster, &pods);
    assert_eq!(deleted(&plan), [("w1", Why::Named)]);
    assert!(plan.create.is_empty(), "three of four are left, as wanted");
}

#[test]
fn pods_that_ended_are_replaced() {
    for phase in ["Failed", "Succeeded"] {
        let ended = json!({"status": {"phase": phase}});
        let plan = plan_of(
            &group(json!({"replicas": 1})),
            &[head(ended.clone()), worker_with(0, ended)],
        );
        assert_eq!(deleted(&plan), [("head", Why::Ended), ("w0", Why::Ended)]);
        assert_eq!(created(&plan), [0]);
        assert!(
            !plan.create.contains(&Create::Head),
            "a head waits until its predecessor is gone"
        );
    }
}

#[test]
fn a_head_is_replaced_when_it_is_gone_or_its_node_is() {
    let deletion = "2026-01-01T00:00:00Z";
    let since: Timestamp = deletion.parse().unwrap();
    let going = [head(terminating(deletion))];
    let soon = plan_at(&group(json!({})), &going, since);
    assert!(soon.create.is_empty() && soon.delete.is_empty());
    assert_eq!(soon.look_again, Some(Duration::from_secs(60)));

    let overdue = plan_at(&group(json!({})), &going, since + OVERDUE);
    assert_eq!(deleted(&overdue), [("head", Why::Stuck)]);

    let forced = json!({"metadata": {"deletionTimestamp": deletion, "deletionGracePeriodSeconds": 0}});
    let forced = plan_at(&group(json!({})), &[head(forced)], since + OVERDUE);
    assert_eq!(
        forced.create,
        [Create::Head],
        "a finalizer may hold it as long as it likes"
    );
}

#[test]
fn two_heads_are_a_problem_for_a_person() {
    let labels = json!({"ray.io/node-type": "head"});
    let pods = [head(json!({})), pod("second", labels, json!({}))];
    let plan = plan_of(&group(json!({"replicas": 1})), &pods);
    assert!(plan.delete.is_empty());
    assert!(plan.problem.unwrap().1.contains("head, second"));
    assert_eq!(plan.create.len(), 1, "workers are not held up by it");
}

#[test]
fn a_provisioned_cluster_may_stay_without_a_head() {
    let stays = cluster(json!({
        "metadata": {"annotations": {"ray.io/disable-provisioned-head-restart": "true"}},
        "status": {"conditions": [{"type": "RayClusterProvisioned", "status": "True", "reason": "r", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    }));
    assert!(plan_of(&stays, &[]).create.is_empty());
}

#[test]
fn workers_of_removed_groups_go_and_unlabelled_ones_stay() {
    let orphan = pod("orphan", json!({"ray.io/group": "removed"}), json!({}));
    let unlabelled = pod("unlabelled", json!({"ray.io/group": null}), json!({}));
    let plan = plan_of(&group(json!({})), &[head(json!({})), orphan, unlabelled]);
    assert_eq!(deleted(&plan), [("orphan", Why::Orphan)]);
}

#[test]
fn a_suspended_group_loses_its_workers_only() {
    let plan = plan_of(
        &group(json!({"replicas": 2, "suspend": true})),
        &[head(json!({})), worker(0)],
    );
    assert_eq!(deleted(&plan), [("w0", Why::GroupSuspended)]);
    assert!(plan.create.is_empty());
}

fn condition(type_: &str) -> Value {
    json!({"type": type_, "status": "True", "reason": type_, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

#[test]
fn suspension_is_said_first_completes_always_and_ends_when_the_field_goes() {
    let pods = [head(json!({})), worker(0)];
    let with = |suspend: Value, conditions: Value| {
        cluster(json!({"spec": {"suspend": suspend}, "status": {"conditions": conditions}}))
    };
    let requested = with(json!(true), json!([]));
    assert_eq!(suspension(&requested), Suspension::Requested);
    assert!(plan_of(&requested, &pods).delete.is_empty());

    let taken_back = with(json!(false), json!([condition("RayClusterSuspending")]));
    let plan = plan_of(&taken_back, &pods);
    assert_eq!(deleted(&plan), [("w0", Why::Suspended), ("head", Why::Suspended)]);

    let suspended = with(json!(true), json!([condition("RayClusterSuspended")]));
    assert!(plan_of(&suspended, &[]).create.is_empty());
    for resumed in [json!(false), Value::Null] {
        let resumed = with(resumed, json!([condition("RayClusterSuspended")]));
        assert_eq!(plan_of(&resumed, &[]).create, [Create::Head]);
    }
}

#[test]
fn a_changed_spec_recreates_only_what_we_made_and_only_on_request() {
    let recreate = json!({"spec": {"upgradeStrategy": {"type": "Recreate"}}});
    let asked = cluster(recreate);
    let hash = crate::cluster::build::spec_hash(&asked.spec);
    let ours = ray_api::meta::operator_version();
    let made = |hash: &str, version: &str| {
        head(json!({"metadata": {"annotations": {
            "ray.io/upgrade-strategy-recreate-hash": hash, "ray.io/kuberay-version": version}}}))
    };
    assert!(plan_of(&asked, &[made(&hash, &ours)]).delete.is_empty());
    let changed = plan_of(&asked, &[made("old", &ours), worker(0)]);
    assert_eq!(
        deleted(&changed),
        [("w0", Why::Recreate), ("head", Why::Recreate)],
        "the head last"
    );
    let kuberays = plan_of(&asked, &[made("old", "v1.7.0")]);
    assert!(kuberays.delete.is_empty() && kuberays.restamp.is_some());
    let not_asked = plan_of(&cluster(json!({})), &[made("old", &ours)]);
    assert!(not_asked.delete.is_empty() && not_asked.restamp.is_none());
}

fn host(replica: u32, host: u32, patch: Value) -> Arc<PodView> {
    let labels = json!({
        "ray.io/worker-group-replica-index": replica.to_string(),
        "ray.io/worker-group-replica-name": format!("g-r{replica}"),
        "ray.io/replica-host-index": host.to_string(),
    });
    pod(&format!("r{replica}h{host}"), labels, patch)
}

#[test]
fn a_replica_of_several_hosts_lives_and_dies_as_a_whole() {
    let wanted = group(json!({"replicas": 2, "numOfHosts": 2}));
    let fresh = plan_of(&wanted, &[head(json!({}))]);
    assert_eq!(created(&fresh), [0, 0, 1, 1]);

    let lost_a_host = [
        head(json!({})),
        host(0, 0, json!({})),
        host(1, 0, json!({})),
        host(1, 1, json!({})),
    ];
    let plan = plan_of(&wanted, &lost_a_host);
    assert_eq!(deleted(&plan), [("r0h0", Why::BrokenReplica)]);
    assert_eq!(created(&plan), [0, 0]);

    let named =
        group(json!({"replicas": 1, "numOfHosts": 2, "scaleStrategy": {"workersToDelete": ["r0h1"]}}));
    let pods = [
        head(json!({})),
        host(0, 0, json!({})),
        host(0, 1, json!({})),
        host(1, 0, json!({})),
        host(1, 1, json!({})),
    ];
    assert_eq!(
        deleted(&plan_of(&named, &pods)),
        [("r0h0", Why::Named), ("r0h1", Why::Named)]
    );
}

#[test]
fn a_replica_that_never_ran_is_completed() {
    let pending = json!({"status": {"phase": "Pending", "conditions": []}});
    let plan = plan_of(
        &group(json!({"replicas": 1, "numOfHosts": 4})),
        &[head(json!({})), host(0, 2, pending)],
    );
    assert!(plan.delete.is_empty());
    let hosts = plan.create.iter().map(|create| match create {
        Create::Worker { identity, .. } => (identity.replica_name.as_deref().unwrap(), identity.host),
        Create::Head => unreachable!(),
    });
    assert_eq!(hosts.collect::<Vec<_>>(), [("g-r0", 0), ("g-r0", 1), ("g-r0", 3)]);
}

#[test]
fn hosts_from_before_replicas_had_names_are_adopted() {
    let pods = [head(json!({})), worker(0), worker(1), worker(2), worker(3)];
    let plan = plan_of(&group(json!({"replicas": 2, "numOfHosts": 2})), &pods);
    assert!(plan.create.is_empty() && plan.delete.is_empty());
}

#[test]
fn a_held_group_creates_nothing_and_says_when_it_will() {
    let config = Config::for_tests();
    let cluster = group(json!({"replicas": 2}));
    let facts = Facts::new(&cluster, &config);
    let mut situation = Situation {
        pods: &[],
        now: at(0),
        held_until: &|group| group.map(|_| at(30)),
        replica_name: &mut |_| String::new(),
    };
    let plan = plan(&facts, &mut situation);
    assert_eq!(plan.create, [Create::Head]);
    assert_eq!(plan.look_again, Some(Duration::from_secs(30)));
}

#[test]
fn a_number_that_nobody_can_mean_is_planned_in_parts() {
    for hosts in [1, 4] {
        let asked = group(json!({"replicas": i32::MAX, "maxReplicas": i32::MAX, "numOfHosts": hosts}));
        let plan = plan_of(&asked, &[]);
        assert!((2..=5000).contains(&plan.create.len()), "{}", plan.create.len());
        assert!(plan.look_again.is_some(), "the rest follows");
    }
}

/// Facts 5, 6 and 8.
#[test]
fn under_the_autoscaler_only_named_workers_go_and_a_later_scale_up_is_met() {
    let pods: Vec<_> = [head(json!({}))].into_iter().chain((0..5).map(worker)).collect();
    let with = |replicas: i32, names: Value| {
        let mut cluster = group(json!({"replicas": replicas, "scaleStrategy": {"workersToDelete": names}}));
        cluster.spec.enable_in_tree_autoscaling = Some(true);
        cluster
    };
    let plan = plan_of(&with(3, json!(["w1", "gone"])), &pods);
    assert_eq!(deleted(&plan), [("w1", Why::Named)]);
    assert!(plan.create.is_empty());
    let left: Vec<_> = pods.iter().filter(|pod| pod.name != "w1").cloned().collect();
    assert_eq!(created(&plan_of(&with(6, json!(["w1", "gone"])), &left)), [1, 5]);
    let mut config = Config::for_tests();
    config.args.random_pod_delete = true;
    let plan = plan_with(&config, &with(2, json!(["w4"])), &pods, at(1_000_000_000));
    let gone = [("w4", Why::Named), ("w3", Why::Surplus), ("w2", Why::Surplus)];
    assert_eq!(deleted(&plan), gone);
}

#[test]
fn a_recreation_keeps_the_head_until_every_worker_is_told() {
    let asked = cluster(json!({"spec": {"upgradeStrategy": {"type": "Recreate"}}}));
    let old = head(json!({"metadata": {"annotations": {
        "ray.io/upgrade-strategy-recreate-hash": "old",
        "ray.io/kuberay-version": ray_api::meta::operator_version(),
    }}}));
    let mut unseen = PodView::clone(&worker(1));
    unseen.uid.clear();
    let plan = plan_of(&asked, &[Arc::clone(&old), worker(0), Arc::new(unseen)]);
    assert_eq!(deleted(&plan), [("w0", Why::Recreate)]);
    let plan = plan_of(&asked, &[old, worker(0), worker(1)]);
    let all = [
        ("w0", Why::Recreate),
        ("w1", Why::Recreate),
        ("head", Why::Recreate),
    ];
    assert_eq!(deleted(&plan), all);
}

#[test]
fn an_adopted_replica_that_lost_a_host_is_a_problem_for_a_person() {
    let pods = [head(json!({})), worker(0), worker(1), worker(2)];
    let plan = plan_of(&group(json!({"replicas": 2, "numOfHosts": 2})), &pods);
    assert!(
        plan.delete.is_empty() && plan.create.is_empty(),
        "nothing tells whose host it was"
    );
    let (reason, message) = plan.problem.unwrap();
    assert_eq!(reason, "AdoptedReplicaIncomplete");
    assert!(message.contains("(w2)"), "{message}");
}
