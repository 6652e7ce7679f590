//! What Serve health counts, under `ray_serve_*`.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use ray_runtime::metrics::registered;

/// Latency buckets: 0.5 ms doubling to about 8 s.
const BUCKETS: (f64, f64, u16) = (0.0005, 2.0, 15);

/// Label set of `ray_serve_probes_total`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct ProbeLabels {
    /// [`Outcome::name`](super::machine::Outcome::name).
    pub result: &'static str,
}

/// Label set of `ray_serve_flips_total`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct FlipLabels {
    /// `in` or `out`.
    pub to: &'static str,
}

/// Label set of `ray_serve_writes_total`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct WriteLabels {
    /// `label`, `selector`, `conditions` or `event`.
    pub kind: &'static str,
    /// `ok` or `error`.
    pub result: &'static str,
}

/// A RayCluster as a label set.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct ClusterLabels {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub cluster: String,
}

/// Handles of all metrics; clones share the values.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Probes by result.
    pub(super) probes: Family<ProbeLabels, Counter>,
    /// How long probes took.
    pub(super) latency: Histogram,
    /// Labels that changed.
    pub(super) flips: Family<FlipLabels, Counter>,
    /// Longest time from due to answered among the probes of the last period.
    pub(super) sweep: Gauge<f64, std::sync::atomic::AtomicU64>,
    /// Probes under way.
    pub(super) running: Gauge,
    /// Requests to the API server.
    pub(super) writes: Family<WriteLabels, Counter>,
    /// Requests to the API server that wait for their turn.
    pub(super) pending_writes: Gauge,
    /// Pods that have or had a Serve proxy.
    pub(super) eligible: Family<ClusterLabels, Gauge>,
    /// Pods that get Serve traffic.
    pub(super) healthy: Family<ClusterLabels, Gauge>,
}

impl Metrics {
    /// Creates the metrics and registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let (start, factor, length) = BUCKETS;
        let serve = registry.sub_registry_with_prefix("ray_serve");
        Self {
            probes: registered(
                serve,
                "probes",
                "Serve health probes by result",
                Family::default(),
            ),
            latency: registered(
                serve,
                "probe_duration_seconds",
                "Time that a Serve health probe took",
                Histogram::new(exponential_buckets(start, factor, length)),
            ),
            flips: registered(
                serve,
                "flips",
                "Pods that entered or left their Serve service",
                Family::default(),
            ),
            sweep: registered(
                serve,
                "sweep_duration_seconds",
                "Longest time from due to answered among the probes of the last period",
                Gauge::default(),
            ),
            running: registered(
                serve,
                "probes_running",
                "Serve health probes under way",
                Gauge::default(),
            ),
            writes: registered(
                serve,
                "writes",
                "Requests of Serve health to the API server",
                Family::default(),
            ),
            pending_writes: registered(
                serve,
                "pending_writes",
                "Requests of Serve health to the API server that wait for their turn",
                Gauge::default(),
            ),
            eligible: registered(
                serve,
                "eligible_pods",
                "Pods that have or had a Serve proxy",
                Family::default(),
            ),
            healthy: registered(
                serve,
                "healthy_pods",
                "Pods that get Serve traffic",
                Family::default(),
            ),
        }
    }
}
