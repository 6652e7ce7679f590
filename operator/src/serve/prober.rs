//! The prober's loop: changes and answers in, probes and writes out. It never waits for the API server.

use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::facts::Label;
use super::fleet::{Change, Counts, Fleet, Job};
use super::metrics::{ClusterLabels, FlipLabels, Metrics, ProbeLabels};
use super::patch::{Write, sleep_until};
use super::probe::{Answer, Connection, probe};
use super::schedule::ProbeId;

/// Time between two looks at conditions and events: what changes within it becomes one write.
const SETTLE: Duration = Duration::from_secs(1);
/// Changes taken in before probes and answers get their turn again.
const BATCH: usize = 256;

/// The ends of the prober's channels.
pub(super) struct Channels {
    /// What the API server told.
    pub changes: mpsc::Receiver<Change>,
    /// Writes to make.
    pub writes: mpsc::UnboundedSender<Write>,
    /// Writes that were made.
    pub written: mpsc::UnboundedReceiver<Write>,
    /// Whether any cluster wants Serve health.
    pub wanted: watch::Sender<bool>,
}

/// Probes until `stop`.
pub(super) async fn run(
    mut fleet: Fleet<Connection>,
    timeout: Duration,
    period: Duration,
    mut channels: Channels,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let mut probes: JoinSet<(ProbeId, Answer)> = JoinSet::new();
    let mut settle = tokio::time::interval(SETTLE);
    settle.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sweep = Sweep::new(period);
    loop {
        while let Some(Job { id, target, kept }) = fleet.take(Instant::now()) {
            probes.spawn(async move { (id, probe(&target, kept, timeout).await) });
        }
        metrics
            .running
            .set(i64::try_from(fleet.running()).unwrap_or(i64::MAX));
        tokio::select! {
            () = stop.cancelled() => return,
            Some(first) = channels.changes.recv() => {
                let now = Instant::now();
                fleet.apply(first, now);
                for _ in 1..BATCH {
                    let Ok(change) = channels.changes.try_recv() else { break };
                    fleet.apply(change, now);
                }
                let wanted = fleet.is_wanted();
                channels.wanted.send_if_modified(|old| std::mem::replace(old, wanted) != wanted);
            }
            Some(ended) = probes.join_next() => {
                let more = std::iter::from_fn(|| probes.try_join_next());
                for (id, answer) in std::iter::once(ended).chain(more).flatten() {
                    count(&metrics, &answer);
                    let now = Instant::now();
                    let lag = fleet.finish(id, answer.outcome, answer.kept, now);
                    sweep.record(lag, now, &metrics);
                }
            }
            Some(write) = channels.written.recv() => fleet.written(&write),
            () = sleep_until(fleet.wake_at()) => {}
            _ = settle.tick() => report(&metrics, fleet.settle(Instant::now())),
        }
        for write in fleet.take_writes() {
            if let Write::Label {
                value: Some(label), ..
            } = &write
            {
                let to = match label {
                    Label::In => "in",
                    Label::Out => "out",
                };
                metrics.flips.get_or_create(&FlipLabels { to }).inc();
            }
            // The writer ends only together with this loop.
            let _ = channels.writes.send(write);
        }
    }
}

/// The longest time from due to answered within each period.
struct Sweep {
    period: Duration,
    started: Instant,
    longest: Duration,
}

impl Sweep {
    fn new(period: Duration) -> Self {
        Self {
            period,
            started: Instant::now(),
            longest: Duration::ZERO,
        }
    }

    fn record(&mut self, lag: Option<Duration>, now: Instant, metrics: &Metrics) {
        self.longest = self.longest.max(lag.unwrap_or_default());
        if now.saturating_duration_since(self.started) >= self.period {
            metrics.sweep.set(self.longest.as_secs_f64());
            self.longest = Duration::ZERO;
            self.started = now;
        }
    }
}

fn count(metrics: &Metrics, answer: &Answer) {
    let result = answer.outcome.name();
    metrics.probes.get_or_create(&ProbeLabels { result }).inc();
    metrics.latency.observe(answer.took.as_secs_f64());
}

fn report(metrics: &Metrics, counts: Vec<Counts>) {
    for (key, tally) in counts {
        let labels = ClusterLabels {
            namespace: key.namespace.to_string(),
            cluster: key.name.to_string(),
        };
        match tally {
            Some(tally) => {
                let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
                metrics.eligible.get_or_create(&labels).set(gauge(tally.eligible));
                metrics.healthy.get_or_create(&labels).set(gauge(tally.healthy));
            }
            None => {
                metrics.eligible.remove(&labels);
                metrics.healthy.remove(&labels);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::{Arc, Mutex};

    use prometheus_client::registry::Registry;
    use ray_api::meta::annotation;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::super::facts::{ClusterFacts, ObjectKey, PodFacts};
    use super::super::fleet::Options;
    use super::super::machine::Thresholds;
    use super::super::targets::Settings;
    use super::*;

    const HUNG: u16 = 1000;
    const HEALTHY: u16 = 20;

    fn key(name: &str) -> ObjectKey {
        ObjectKey {
            uid: name.into(),
            namespace: "ns".into(),
            name: name.into(),
        }
    }

    fn cluster(name: &str, port: u16) -> Change {
        let annotations = BTreeMap::from([(annotation::SERVE_HEALTH_PORT.to_owned(), port.to_string())]);
        let settings = Some(Settings::parse(&annotations, None));
        Change::Cluster(ClusterFacts {
            key: key(name),
            generation: None,
            settings,
            conditions: Vec::new(),
        })
    }

    fn pod(cluster: &str, block: u8, index: u16) -> Change {
        let [high, low] = index.to_be_bytes();
        Change::Pod(PodFacts {
            key: key(&format!("{cluster}-{index}")),
            owner: cluster.into(),
            head: false,
            running: true,
            ip: Some(Ipv4Addr::new(127, block, high, low).into()),
            host_network: false,
            serve_port: None,
            label: None,
            label_is_ours: false,
        })
    }

    /// Answers every request with 200, and counts them by the address that was asked.
    async fn healthy_server() -> (u16, Arc<Mutex<HashMap<IpAddr, usize>>>) {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let counts = Arc::new(Mutex::new(HashMap::new()));
        let counted = Arc::clone(&counts);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let counted = Arc::clone(&counted);
                tokio::spawn(async move {
                    let asked = stream.local_addr()?.ip();
                    let mut request = [0; 1024];
                    while stream.read(&mut request).await? > 0 {
                        *counted.lock().unwrap().entry(asked).or_insert(0) += 1;
                        stream
                            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nsuccess")
                            .await?;
                    }
                    std::io::Result::Ok(())
                });
            }
        });
        (port, counts)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_thousand_hanging_pods_of_one_cluster_do_not_delay_the_probes_of_another() {
        // Sixteen rounds of timeouts until every hanging pod was asked once: the other cluster must not wait for that.
        let options = Options {
            period: Duration::from_millis(200),
            timeout: Duration::from_millis(500),
            thresholds: Thresholds {
                failure: 5,
                success: 1,
            },
            concurrency: 64,
            reachable: |_| true,
        };
        let hanging = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let (port, counts) = healthy_server().await;
        let metrics = Metrics::register(&mut Registry::default());
        let (change_sender, changes) = mpsc::channel(16);
        let (writes, mut made) = mpsc::unbounded_channel();
        let (_written, written) = mpsc::unbounded_channel();
        let channels = Channels {
            changes,
            writes,
            written,
            wanted: watch::channel(false).0,
        };
        let stop = CancellationToken::new();
        let fleet = Fleet::new(options, 7);
        let prober = tokio::spawn(run(
            fleet,
            options.timeout,
            options.period,
            channels,
            metrics.clone(),
            stop.clone(),
        ));
        change_sender
            .send(cluster("hung", hanging.local_addr().unwrap().port()))
            .await
            .unwrap();
        for index in 0..HUNG {
            change_sender.send(pod("hung", 1, index)).await.unwrap();
        }
        change_sender.send(cluster("well", port)).await.unwrap();
        for index in 0..HEALTHY {
            change_sender.send(pod("well", 2, index)).await.unwrap();
        }
        let silent = || {
            let count = |result| metrics.probes.get_or_create(&ProbeLabels { result }).get();
            count("timeout") + count("unreachable") + count("inconclusive")
        };
        while silent() < u64::from(HUNG) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let counts = counts.lock().unwrap().clone();
        stop.cancel();
        prober.await.unwrap();
        assert_eq!(counts.len(), usize::from(HEALTHY));
        assert!(counts.values().all(|asked| *asked >= 4), "{counts:?}");
        let mut entered = 0;
        while let Ok(write) = made.try_recv() {
            entered += usize::from(matches!(
                write,
                Write::Label {
                    value: Some(Label::In),
                    ..
                }
            ));
        }
        assert_eq!(entered, usize::from(HEALTHY));
    }
}
