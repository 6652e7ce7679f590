//! Metrics that the registry knows from the moment they are made.

use prometheus_client::registry::{Metric, Registry};

/// Registers a metric and hands it out; clones share the value. `name` is what Prometheus shows, the registry's prefix and a counter's `_total` aside.
pub fn registered<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[test]
    fn what_is_counted_later_is_shown_under_its_name() {
        let mut registry = Registry::default();
        let ours = registry.sub_registry_with_prefix("ray");
        registered(ours, "passes", "Passes", Counter::<u64>::default()).inc();
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert!(text.contains("ray_passes_total 1"), "{text}");
    }
}
