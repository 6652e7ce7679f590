//! The fleet under a hand-moved clock: probes answer as a table says, writes are looked at.

use std::collections::BTreeMap;

use ray_api::meta::annotation;

use super::*;
use crate::serve::condition;
use crate::serve::facts::ObjectKey;
use crate::serve::machine::Fault;

const PERIOD: Duration = Duration::from_secs(2);
const REFUSED: Outcome = Outcome::Failed(Fault::Refused);
const TIMEOUT: Outcome = Outcome::Failed(Fault::Timeout);

/// A fleet and the time; pods answer what `answers` says, refusing by default.
struct World {
    fleet: Fleet<()>,
    now: Instant,
    answers: BTreeMap<String, Outcome>,
    /// Pod asked, in order.
    asked: Vec<String>,
    writes: Vec<Write>,
    pods: BTreeMap<String, PodFacts>,
}

impl World {
    fn new() -> Self {
        let options = Options {
            period: PERIOD,
            timeout: Duration::from_secs(1),
            thresholds: Thresholds {
                failure: 3,
                success: 1,
            },
            concurrency: 64,
            reachable: targets::is_pod_address,
        };
        Self {
            fleet: Fleet::new(options, 7),
            now: Instant::now(),
            answers: BTreeMap::new(),
            asked: Vec::new(),
            writes: Vec::new(),
            pods: BTreeMap::new(),
        }
    }

    fn cluster(&mut self, name: &str, annotations: &[(&str, &str)]) {
        let pairs = annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let facts = ClusterFacts {
            key: key(name),
            generation: Some(1),
            settings: Some(Settings::parse(&pairs, None)),
            conditions: Vec::new(),
        };
        self.fleet.apply(Change::Cluster(facts), self.now);
    }

    fn pod(&mut self, name: &str, cluster: &str, change: impl FnOnce(&mut PodFacts)) {
        let address = u8::try_from(self.pods.len() + 1).unwrap();
        let facts = self.pods.entry(name.to_owned()).or_insert_with(|| PodFacts {
            key: key(name),
            owner: cluster.into(),
            head: false,
            running: true,
            ip: Some([10, 0, 0, address].into()),
            host_network: false,
            serve_port: None,
            label: None,
            label_is_ours: false,
        });
        change(facts);
        self.fleet.apply(Change::Pod(facts.clone()), self.now);
    }

    fn answer(&mut self, pod: &str, outcome: Outcome) {
        self.answers.insert(pod.to_owned(), outcome);
    }

    /// Lets that many periods pass; the API server makes every write at once.
    fn pass(&mut self, periods: u32) {
        for _ in 0..periods * 20 {
            self.now += PERIOD / 20;
            while let Some(job) = self.fleet.take(self.now) {
                let pod = self.fleet.probes[&job.id].to_string();
                let outcome = self.answers.get(&pod).copied().unwrap_or(REFUSED);
                self.asked.push(pod);
                self.fleet.finish(job.id, outcome, None, self.now);
            }
            self.fleet.settle(self.now);
            self.make_writes();
        }
    }

    fn make_writes(&mut self) {
        for write in self.fleet.take_writes() {
            if let Write::Label { pod, value } = &write
                && let Some(facts) = self.pods.get_mut(&*pod.name)
            {
                facts.label = *value;
                facts.label_is_ours = value.is_some();
                let facts = facts.clone();
                self.fleet.apply(Change::Pod(facts), self.now);
            }
            self.fleet.written(&write);
            self.writes.push(write);
        }
    }

    /// Labels written so far, and forgets them.
    fn labels(&mut self) -> Vec<(String, Option<Label>)> {
        let writes = std::mem::take(&mut self.writes);
        let labels = writes.into_iter().filter_map(|write| match write {
            Write::Label { pod, value } => Some((pod.name.to_string(), value)),
            _ => None,
        });
        labels.collect()
    }

    fn label(&self, pod: &str) -> Option<Label> {
        self.pods[pod].label
    }

    fn said(&self, condition: &str) -> Option<(Option<bool>, &'static str)> {
        let said = self.writes.iter().rev().find_map(|write| match write {
            Write::Conditions { said, .. } => said.iter().find(|said| said.type_ == condition),
            _ => None,
        });
        said.map(|said| (said.status, said.reason))
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey {
        uid: name.into(),
        namespace: "ns".into(),
        name: name.into(),
    }
}

fn in_(pod: &str) -> (String, Option<Label>) {
    (pod.to_owned(), Some(Label::In))
}

fn out(pod: &str) -> (String, Option<Label>) {
    (pod.to_owned(), Some(Label::Out))
}

#[test]
fn a_healthy_pod_enters_once_and_then_nothing_is_written() {
    let mut world = World::new();
    world.cluster("c", &[]);
    world.pod("a", "c", |_| {});
    world.answer("a", Outcome::Healthy);
    world.pass(2);
    assert_eq!(world.labels(), [in_("a")]);
    world.pass(50);
    let conditions = world
        .writes
        .iter()
        .filter(|write| !matches!(write, Write::Conditions { .. }))
        .count();
    assert_eq!(conditions, 0, "{:?}", world.writes);
}

#[test]
fn a_pod_that_never_had_a_proxy_makes_no_noise() {
    let mut world = World::new();
    world.cluster("c", &[]);
    world.pod("a", "c", |_| {});
    world.pod("b", "c", |_| {});
    world.answer("a", Outcome::Healthy);
    world.pass(20);
    assert_eq!(world.labels(), [in_("a")]);
    assert!(world.asked.iter().filter(|pod| *pod == "b").count() > 10);
}

#[test]
fn a_failing_pod_leaves_after_the_threshold_and_comes_back() {
    let mut world = World::new();
    world.cluster("c", &[]);
    for pod in ["a", "b"] {
        world.pod(pod, "c", |_| {});
        world.answer(pod, Outcome::Healthy);
    }
    world.pass(2);
    world.labels();
    world.answer("a", REFUSED);
    world.pass(1);
    assert_eq!(world.labels(), []);
    world.pass(4);
    assert_eq!(world.labels(), [out("a")]);
    world.answer("a", Outcome::Healthy);
    world.pass(2);
    assert_eq!(world.labels(), [in_("a")]);
}

#[test]
fn a_pod_that_is_deleted_or_ends_leaves_at_once() {
    let mut world = World::new();
    world.cluster("c", &[]);
    world.pod("a", "c", |_| {});
    world.answer("a", Outcome::Healthy);
    world.pass(2);
    world.labels();
    world.pod("a", "c", |pod| pod.running = false);
    world.make_writes();
    assert_eq!(world.labels(), [out("a")]);
    world.asked.clear();
    world.pass(5);
    assert!(world.asked.is_empty() && world.labels().is_empty());
}

#[test]
fn a_restart_keeps_labels_until_it_knows_better() {
    let mut world = World::new();
    world.pod("a", "c", |pod| {
        (pod.label, pod.label_is_ours) = (Some(Label::In), true)
    });
    world.pod("b", "c", |pod| {
        (pod.label, pod.label_is_ours) = (Some(Label::Out), true)
    });
    world.cluster("c", &[]);
    world.pass(1);
    assert_eq!(world.labels(), [], "one failure says little");
    world.pass(4);
    assert_eq!(world.labels(), [out("a")]);
}

#[test]
fn a_label_from_a_pod_template_is_no_evidence() {
    let mut world = World::new();
    world.cluster("c", &[]);
    world.pod("a", "c", |pod| pod.label = Some(Label::In));
    world.make_writes();
    assert_eq!(world.labels(), [("a".to_owned(), None)]);
    world.answer("a", Outcome::Healthy);
    world.pass(2);
    assert_eq!(world.labels(), [in_("a")]);
}

#[test]
fn a_label_that_somebody_changes_is_put_right() {
    let mut world = World::new();
    world.cluster("c", &[]);
    world.pod("a", "c", |_| {});
    world.answer("a", Outcome::Healthy);
    world.pass(2);
    world.labels();
    world.pod("a", "c", |pod| (pod.label, pod.label_is_ours) = (None, false));
    world.make_writes();
    assert_eq!(world.labels(), [in_("a")]);
}

#[test]
fn a_reused_address_is_not_credited_with_the_old_pods_health() {
    let mut world = World::new();
    world.cluster("c", &[]);
    world.pod("old", "c", |_| {});
    world.answer("old", Outcome::Healthy);
    world.pass(2);
    let late = loop {
        world.now += PERIOD / 20;
        if let Some(job) = world.fleet.take(world.now) {
            break job;
        }
    };
    world.labels();
    let address = world.pods["old"].ip;
    world.fleet.apply(Change::PodGone("old".into()), world.now);
    world.pod("new", "c", |pod| pod.ip = address);
    world.fleet.finish(late.id, Outcome::Healthy, Some(()), world.now);
    world.make_writes();
    assert_eq!(world.labels(), [], "the late answer of the old pod is nobody's");
    world.pass(5);
    assert_eq!(world.labels(), [], "the new pod has no proxy");
}

#[test]
fn an_excluded_head_is_not_asked_and_loses_its_label() {
    let mut world = World::new();
    world.cluster("c", &[]);
    world.pod("head", "c", |pod| pod.head = true);
    world.answer("head", Outcome::Healthy);
    world.pass(2);
    world.labels();
    world.asked.clear();
    world.cluster("c", &[(annotation::SERVE_EXCLUDE_HEAD, "true")]);
    world.pass(5);
    assert_eq!(world.labels(), [out("head")]);
    assert!(world.asked.is_empty());
    world.cluster("c", &[]);
    world.pass(2);
    assert_eq!(world.labels(), [in_("head")]);
}

#[test]
fn only_pods_that_the_cluster_controls_are_asked() {
    let mut world = World::new();
    world.cluster("c", &[]);
    world.pod("stranger", "another uid", |_| {});
    world.pass(5);
    assert!(world.asked.is_empty());
}

#[test]
fn a_bad_annotation_stops_probes_keeps_labels_and_is_said() {
    let mut world = World::new();
    world.cluster("c", &[]);
    world.pod("a", "c", |_| {});
    world.answer("a", Outcome::Healthy);
    world.pass(2);
    world.labels();
    world.asked.clear();
    world.cluster("c", &[(annotation::SERVE_HEALTH_PORT, "22")]);
    world.pass(10);
    assert_eq!(
        world.said(condition::HEALTH_UNKNOWN),
        Some((Some(true), "InvalidAnnotation"))
    );
    assert!(world.asked.is_empty());
    assert_eq!(world.label("a"), Some(Label::In));
}

fn many_healthy(world: &mut World, cluster: &str, count: usize) -> Vec<String> {
    let pods: Vec<String> = (0..count).map(|pod| format!("{cluster}-{pod}")).collect();
    for pod in &pods {
        world.pod(pod, cluster, |_| {});
        world.answer(pod, Outcome::Healthy);
    }
    pods
}

#[test]
fn when_all_falls_silent_the_labels_stay_and_a_condition_says_so() {
    let mut world = World::new();
    world.cluster("c", &[]);
    let pods = many_healthy(&mut world, "c", 10);
    world.pass(2);
    world.labels();
    pods.iter().for_each(|pod| world.answer(pod, TIMEOUT));
    world.pass(20);
    assert_eq!(
        world.said(condition::HEALTH_UNKNOWN),
        Some((Some(true), "NoPodAnswers"))
    );
    assert_eq!(world.labels(), []);
    pods.iter().for_each(|pod| world.answer(pod, REFUSED));
    world.pass(2);
    assert_eq!(world.labels().len(), 10, "an own answer counts");
}

#[test]
fn when_one_cluster_falls_silent_and_another_answers_it_is_the_clusters_fault() {
    let mut world = World::new();
    world.cluster("c", &[]);
    world.cluster("other", &[]);
    let pods = many_healthy(&mut world, "c", 5);
    world.pod("o", "other", |_| {});
    world.pass(2);
    world.labels();
    pods.iter().for_each(|pod| world.answer(pod, TIMEOUT));
    world.pass(6);
    assert_eq!(world.labels().len(), 5);
}

#[test]
fn pods_that_fall_silent_beside_healthy_ones_leave() {
    let mut world = World::new();
    world.cluster("c", &[]);
    many_healthy(&mut world, "c", 5);
    world.pass(2);
    world.labels();
    world.answer("c-3", TIMEOUT);
    world.pass(6);
    assert_eq!(world.labels(), [out("c-3")]);
}

#[test]
fn a_lone_pod_leaves_when_it_hangs_or_serve_is_shut_down() {
    for outcome in [
        REFUSED,
        Outcome::Failed(Fault::Hung),
        Outcome::Failed(Fault::Status(503)),
    ] {
        let mut world = World::new();
        world.cluster("c", &[]);
        world.pod("a", "c", |_| {});
        world.answer("a", Outcome::Healthy);
        world.pass(2);
        world.labels();
        world.answer("a", outcome);
        world.pass(5);
        assert_eq!(world.labels(), [out("a")], "{outcome:?}");
    }
}

#[test]
fn the_service_gets_the_second_key_only_once_a_pod_carries_the_label() {
    let mut world = World::new();
    world.cluster("c", &[]);
    world.pod("a", "c", |_| {});
    let service = ServiceFacts {
        key: key("c-serve-svc"),
        owner: "c".into(),
        lacks_selector: true,
    };
    world.fleet.apply(Change::Service(service.clone()), world.now);
    let selects = |world: &World| {
        world
            .writes
            .iter()
            .filter(|write| matches!(write, Write::Selector { .. }))
            .count()
    };
    world.pass(5);
    assert_eq!(selects(&world), 0);
    world.answer("a", Outcome::Healthy);
    world.pass(1);
    assert!(selects(&world) > 0);
    let done = ServiceFacts {
        lacks_selector: false,
        ..service
    };
    world.fleet.apply(Change::Service(done), world.now);
    let before = selects(&world);
    world.pass(10);
    assert_eq!(selects(&world), before);
}

#[test]
fn a_service_that_came_before_its_cluster_is_not_forgotten() {
    let mut world = World::new();
    let service = ServiceFacts {
        key: key("c-serve-svc"),
        owner: "c".into(),
        lacks_selector: true,
    };
    world.fleet.apply(Change::Service(service), world.now);
    world.pod("a", "c", |_| {});
    world.answer("a", Outcome::Healthy);
    world.cluster("c", &[]);
    world.pass(3);
    assert!(
        world
            .writes
            .iter()
            .any(|write| matches!(write, Write::Selector { .. }))
    );
}

#[test]
fn a_cluster_that_goes_or_loses_the_annotation_is_not_asked_any_more() {
    let mut world = World::new();
    world.cluster("c", &[]);
    world.pod("a", "c", |_| {});
    world.pass(2);
    world.asked.clear();
    let facts = ClusterFacts {
        key: key("c"),
        generation: Some(2),
        settings: None,
        conditions: Vec::new(),
    };
    world.fleet.apply(Change::Cluster(facts), world.now);
    world.pass(5);
    assert!(world.asked.is_empty() && !world.fleet.is_wanted());
    world.fleet.apply(Change::ClusterGone("c".into()), world.now);
    world.fleet.apply(Change::PodGone("a".into()), world.now);
    assert!(world.fleet.pods.is_empty() && world.fleet.pods_of.is_empty() && world.fleet.clusters.is_empty());
    assert!(world.fleet.probes.is_empty());
}
