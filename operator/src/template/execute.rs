//! Writes what was planned: touches, conditions, statuses. Nothing is written that is so already.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use ray_api::conditions::{self, Statement};
use ray_api::meta::{annotation, manager};
use ray_api::ray::RayCluster;
use ray_api::template::v1alpha1::UsedBy;
use ray_api::template::{ClusterComputeTemplate, ComputeTemplate, ImageTemplate};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::Metrics;
use super::plan::{self, Gate, Status, StatusKey};
use super::world::{Key, World};
use crate::shared::Shared;

/// Condition of a RayCluster that waits, or waited, for an image.
const IMAGE_READY: &str = "ImageReady";
/// No write takes longer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Writes at the same time.
const CONCURRENCY: usize = 8;
/// Shortest and longest time until a touch that changed nothing is tried again.
const BACKOFF: std::ops::RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(120);
/// What `--max-refreshes` counts in.
const WINDOW: Duration = Duration::from_secs(60);

/// The only writer of this controller.
pub(super) struct Executor {
    client: Client,
    recorder: Recorder,
    metrics: Metrics,
    max_refreshes: u32,
    /// When clusters may be touched again, and after how long a wait.
    touched: HashMap<Key, (Instant, Duration)>,
    /// What gated clusters were told last, so that waiting costs no request.
    told: HashMap<Key, String>,
    /// Times of refreshes within the window.
    refreshed: Vec<Instant>,
    owes_statuses: bool,
}

impl Executor {
    pub(super) fn new(shared: &Shared, max_refreshes: u32, metrics: Metrics) -> Self {
        let reporter = Reporter {
            controller: manager::TEMPLATE.into(),
            instance: Some(shared.instance.clone()),
        };
        Self {
            client: shared.client.clone(),
            recorder: Recorder::new(shared.client.clone(), reporter),
            metrics,
            max_refreshes,
            touched: HashMap::new(),
            told: HashMap::new(),
            refreshed: Vec::new(),
            owes_statuses: false,
        }
    }

    /// Whether a status could not be written.
    pub(super) fn owes_statuses(&self) -> bool {
        self.owes_statuses
    }

    /// Tells gated clusters what they wait for, and touches those whose image is there.
    pub(super) async fn gates(&mut self, world: &World) {
        if !world.is_complete() {
            return;
        }
        let gates = plan::gates(world);
        self.metrics
            .gated
            .set(i64::try_from(gates.len()).unwrap_or(i64::MAX));
        let now = Instant::now();
        let waits = |key: &Key| world.clusters.get(&key.0, &key.1);
        self.touched
            .retain(|key, _| waits(key).is_some_and(|cluster| cluster.gated || cluster.tracks));
        self.told
            .retain(|key, _| waits(key).is_some_and(|cluster| cluster.gated));
        let is_due = |gate: &Gate| match gate.lift {
            Some(_) => self.may_touch(&gate.cluster, now),
            None => self.told.get(&gate.cluster) != Some(&gate.message),
        };
        let due: Vec<_> = gates.into_iter().filter(is_due).collect();
        let mut writes = Vec::new();
        for gate in &due {
            writes.push(self.gate(world, gate));
        }
        let results = ordered(writes).await;
        for (gate, result) in due.into_iter().zip(results) {
            if let Err(error) = &result {
                self.metrics.failures.inc();
                tracing::warn!(namespace = gate.cluster.0, name = gate.cluster.1, %error, "cannot lift the image gate");
            }
            if gate.lift.is_some() {
                self.note_touch(gate.cluster, now);
            } else if result.is_ok() {
                self.told.insert(gate.cluster, gate.message);
            }
        }
    }

    async fn gate(&self, world: &World, gate: &Gate) -> anyhow::Result<()> {
        let (namespace, name) = &gate.cluster;
        let api: Api<RayCluster> = Api::namespaced(self.client.clone(), namespace);
        self.tell(world, &api, gate).await?;
        let Some(digest) = &gate.lift else { return Ok(()) };
        let touch = json!({"metadata": {"annotations": {annotation::GATE_LIFT: digest}}});
        let params = PatchParams {
            field_manager: Some(manager::TEMPLATE.to_owned()),
            ..PatchParams::default()
        };
        timeout(
            WRITE_TIMEOUT,
            api.patch_metadata(name, &params, &Patch::Merge(touch)),
        )
        .await??;
        self.metrics.lifts.inc();
        tracing::info!(namespace, name, digest, "asked to lift the image gate");
        Ok(())
    }

    /// The condition `ImageReady`, and an event when it turns.
    async fn tell(&self, world: &World, api: &Api<RayCluster>, gate: &Gate) -> anyhow::Result<()> {
        let (namespace, name) = &gate.cluster;
        // Metadata alone is watched; few clusters are gated, and each of them only for a while.
        let Some(cluster) = timeout(WRITE_TIMEOUT, api.get_opt(name)).await?? else {
            return Ok(());
        };
        let old = cluster
            .status
            .as_ref()
            .and_then(|status| status.conditions.clone())
            .unwrap_or_default();
        let statement = Statement {
            type_: IMAGE_READY,
            status: Some(gate.ready),
            reason: &gate.reason,
            message: &gate.message,
        };
        let Some((condition, flipped)) = changed(&old, &statement, cluster.metadata.generation) else {
            return Ok(());
        };
        let patch = json!({"apiVersion": RayCluster::api_version(&()), "kind": RayCluster::kind(&()),
            "metadata": {"name": name}, "status": {"conditions": [condition]}});
        let params = PatchParams::apply(manager::TEMPLATE).force();
        timeout(
            WRITE_TIMEOUT,
            api.patch_status(name, &params, &Patch::Apply(patch)),
        )
        .await??;
        let same = world
            .clusters
            .get(namespace, name)
            .is_some_and(|c| Some(&c.uid) == cluster.metadata.uid.as_ref());
        if flipped
            || !gate.ready
                && same
                && !old
                    .iter()
                    .any(|c| c.type_ == IMAGE_READY && c.reason == gate.reason)
        {
            let event = Event {
                type_: if gate.ready {
                    EventType::Normal
                } else {
                    EventType::Warning
                },
                reason: gate.reason.clone(),
                note: Some(gate.message.clone()),
                action: "WaitForImage".to_owned(),
                secondary: None,
            };
            timeout(
                WRITE_TIMEOUT,
                self.recorder.publish(&event, &cluster.object_ref(&())),
            )
            .await??;
        }
        Ok(())
    }

    /// Refreshes clusters that follow their templates, as many as the limit lets.
    pub(super) async fn refreshes(&mut self, world: &World) {
        if !world.is_complete() {
            return;
        }
        let now = Instant::now();
        self.refreshed.retain(|at| now.duration_since(*at) < WINDOW);
        for key in plan::refreshes(world) {
            if self.refreshed.len() >= self.max_refreshes as usize {
                return;
            }
            if !self.may_touch(&key, now) {
                continue;
            }
            self.note_touch(key.clone(), now);
            let api: Api<RayCluster> = Api::namespaced(self.client.clone(), &key.0);
            let value = Timestamp::now().to_string();
            let touch = json!({"metadata": {"annotations": {annotation::REFRESH: value}}});
            let params = PatchParams {
                field_manager: Some(manager::TEMPLATE.to_owned()),
                ..PatchParams::default()
            };
            match timeout(
                WRITE_TIMEOUT,
                api.patch_metadata(&key.1, &params, &Patch::Merge(touch)),
            )
            .await
            {
                Ok(Ok(_)) => {
                    self.refreshed.push(now);
                    self.metrics.refreshes.inc();
                    tracing::info!(namespace = key.0, name = key.1, "refreshed to newer templates");
                }
                Ok(Err(error)) => self.refresh_failed(&key, &error.to_string()),
                Err(error) => self.refresh_failed(&key, &error.to_string()),
            }
        }
    }

    fn refresh_failed(&self, key: &Key, error: &str) {
        self.metrics.failures.inc();
        tracing::warn!(namespace = key.0, name = key.1, error, "cannot refresh");
    }

    fn may_touch(&self, key: &Key, now: Instant) -> bool {
        self.touched.get(key).is_none_or(|(again, _)| now >= *again)
    }

    fn note_touch(&mut self, key: Key, now: Instant) {
        let wait = self
            .touched
            .get(&key)
            .map_or(*BACKOFF.start(), |(_, wait)| (*wait * 2).min(*BACKOFF.end()));
        self.touched.insert(key, (now + wait, wait));
    }

    /// Writes the statuses that changed.
    pub(super) async fn statuses(&mut self, world: &World) {
        if !world.is_complete() {
            return;
        }
        let mut due = Vec::new();
        for (key, status) in plan::statuses(world) {
            if let Some(patch) = status_patch(world, &key, &status) {
                due.push((key, patch));
            }
        }
        let mut writes = Vec::new();
        for (key, patch) in &due {
            writes.push(self.write_status(key, patch));
        }
        let results = ordered(writes).await;
        self.owes_statuses = results.iter().any(Result::is_err);
        for (((kind, key), _), result) in due.iter().zip(results) {
            if let Err(error) = result {
                self.metrics.failures.inc();
                tracing::warn!(kind, namespace = key.0, name = key.1, %error, "cannot write a template's status");
            }
        }
    }

    async fn write_status(&self, (kind, key): &StatusKey, status: &Value) -> anyhow::Result<()> {
        let resource = match *kind {
            "ComputeTemplate" => ApiResource::erase::<ComputeTemplate>(&()),
            "ImageTemplate" => ApiResource::erase::<ImageTemplate>(&()),
            _ => ApiResource::erase::<ClusterComputeTemplate>(&()),
        };
        let api: Api<DynamicObject> = if key.0.is_empty() {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), &key.0, &resource)
        };
        let patch = json!({"apiVersion": resource.api_version, "kind": resource.kind,
            "metadata": {"name": key.1}, "status": status});
        let params = PatchParams::apply(manager::TEMPLATE).force();
        match timeout(
            WRITE_TIMEOUT,
            api.patch_status(&key.1, &params, &Patch::Apply(patch)),
        )
        .await?
        {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            result => result.map(drop).map_err(Into::into),
        }
    }
}

/// Runs writes, a few at a time, and gives their results in order.
async fn ordered<F: Future>(writes: Vec<F>) -> Vec<F::Output> {
    futures::stream::iter(writes)
        .buffered(CONCURRENCY)
        .collect()
        .await
}

/// Our part of a template's status, unless it is so already.
fn status_patch(world: &World, (kind, key): &StatusKey, wanted: &Status) -> Option<Value> {
    let (namespace, name) = key;
    let current = match *kind {
        "ImageTemplate" => {
            let used_by = world
                .images
                .get(namespace, name)?
                .status
                .as_ref()
                .and_then(|s| s.used_by.clone());
            let current = used_by.unwrap_or_default();
            return (current != wanted.used_by).then(|| json!({"usedBy": used_by_value(&wanted.used_by)}));
        }
        "ComputeTemplate" => world.compute.get(namespace, name)?.status.clone(),
        _ => world.cluster_compute.get(namespace, name)?.status.clone(),
    };
    let current = current.unwrap_or_default();
    let old = current.conditions.clone().unwrap_or_default();
    let statement = match &wanted.sound {
        Some(Err((reason, message))) => Statement {
            type_: "Ready",
            status: Some(false),
            reason,
            message,
        },
        _ => Statement {
            type_: "Ready",
            status: Some(true),
            reason: "Usable",
            message: "",
        },
    };
    let condition = changed(&old, &statement, wanted.generation);
    let same = condition.is_none()
        && current.used_by.clone().unwrap_or_default() == wanted.used_by
        && current.stale == wanted.stale
        && current.observed_generation == wanted.generation;
    // Apply removes what it stops to mention: the condition is always there.
    let condition = condition
        .map(|(condition, _)| condition)
        .or_else(|| conditions::find(&old, "Ready").cloned());
    (!same).then(|| {
        json!({"usedBy": used_by_value(&wanted.used_by), "stale": wanted.stale,
            "observedGeneration": wanted.generation, "conditions": [condition]})
    })
}

fn used_by_value(used_by: &UsedBy) -> Value {
    json!({"clusters": used_by.clusters, "names": used_by.names})
}

/// The condition to write and whether its status flips; None where it says the same already.
fn changed(
    old: &[Condition],
    statement: &Statement<'_>,
    generation: Option<i64>,
) -> Option<(Condition, bool)> {
    let mut new = old.to_vec();
    let flipped = conditions::upsert(&mut new, statement, generation, &Time(Timestamp::now()));
    let condition = conditions::find(&new, statement.type_)?;
    (conditions::find(old, statement.type_) != Some(condition)).then(|| (condition.clone(), flipped))
}
