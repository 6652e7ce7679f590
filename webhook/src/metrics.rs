//! What the webhook counts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// One admission question and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct AdmissionLabels {
    /// Path of the webhook.
    pub webhook: &'static str,
    /// `allowed`, `denied`, `error` (no answer could be given) or `malformed`.
    pub result: &'static str,
}

/// The path alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct WebhookLabels {
    /// Path of the webhook.
    pub webhook: &'static str,
}

/// A template kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabels {
    /// Kind of the cached objects.
    pub kind: &'static str,
}

/// The webhook's metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Answers by webhook and result.
    pub requests: Family<AdmissionLabels, Counter>,
    /// Time to answer.
    pub duration: Family<WebhookLabels, Histogram>,
    /// Templates in the cache.
    pub store_size: Family<KindLabels, Gauge>,
    /// When the serving certificate ends.
    pub certificate_expiry: Gauge,
}

impl Metrics {
    /// Makes them known to `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_25, 2.0, 14))),
            store_size: Family::default(),
            certificate_expiry: Gauge::default(),
        };
        let registry = registry.sub_registry_with_prefix("ray_webhook");
        registry.register(
            "requests",
            "Admission requests by result",
            metrics.requests.clone(),
        );
        registry.register_with_unit(
            "duration",
            "Time to answer an admission request",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        registry.register("store_size", "Templates in the cache", metrics.store_size.clone());
        registry.register(
            "certificate_expiry_timestamp_seconds",
            "When the serving certificate ends, in seconds since 1970",
            metrics.certificate_expiry.clone(),
        );
        metrics
    }
}
