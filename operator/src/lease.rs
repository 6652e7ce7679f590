//! Leader election over a `coordination.k8s.io` Lease, compatible with client-go's and so with KubeRay's.
//!
//! Every write carries the resourceVersion that was read, so two holders cannot both win. Expiry is judged by
//! how long *this* process saw the Lease unchanged, never by comparing clocks of two machines.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Periods of the election; client-go's defaults.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// An unchanged Lease is free after this long.
    pub lease: Duration,
    /// A holder that could not renew for this long gives up; shorter than `lease`, so it stops before another starts.
    pub renew_deadline: Duration,
    /// Between attempts.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// A candidate for a Lease.
#[derive(Clone)]
pub struct Election {
    api: Api<Lease>,
    name: String,
    identity: String,
    timing: Timing,
}

/// What was last read, and since when it looks the same.
#[derive(Default)]
struct Observation {
    record: Option<(Option<String>, Option<MicroTime>)>,
    since: Option<Instant>,
}

impl Observation {
    /// How long the Lease has looked as it does now.
    fn unchanged_for(&mut self, lease: &Lease, now: Instant) -> Duration {
        let spec = lease.spec.as_ref();
        let record = (
            spec.and_then(|s| s.holder_identity.clone()),
            spec.and_then(|s| s.renew_time.clone()),
        );
        if self.record.as_ref() != Some(&record) {
            self.record = Some(record);
            self.since = Some(now);
        }
        self.since.map_or(Duration::ZERO, |since| now - since)
    }
}

impl Election {
    /// A candidate called `identity`, which no other process may use.
    #[must_use]
    pub fn new(client: kube::Client, namespace: &str, name: &str, identity: &str, timing: Timing) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity: identity.to_owned(),
            timing,
        }
    }

    /// Waits until the Lease is ours; false when `shutdown` came first.
    pub async fn acquire(&self, shutdown: &CancellationToken) -> bool {
        let mut observation = Observation::default();
        let mut said = None;
        loop {
            match timeout(self.timing.renew_deadline, self.try_acquire(&mut observation)).await {
                Ok(Ok(None)) => {
                    tracing::info!(lease = self.name, identity = self.identity, "became leader");
                    return true;
                }
                Ok(Ok(Some(holder))) => {
                    if said.as_ref() != Some(&holder) {
                        tracing::info!(lease = self.name, holder, "waiting for the lease");
                        said = Some(holder);
                    }
                }
                Ok(Err(error)) => tracing::warn!(lease = self.name, %error, "cannot take the lease yet"),
                Err(_) => tracing::warn!(lease = self.name, "the API server did not answer about the lease"),
            }
            tokio::select! {
                () = shutdown.cancelled() => return false,
                () = tokio::time::sleep(self.timing.retry) => {}
            }
        }
    }

    /// Renews until `stop`; returns an error as soon as the Lease is lost.
    ///
    /// # Errors
    /// When another holds the Lease, or it could not be renewed for the renew deadline.
    pub async fn keep(&self, stop: &CancellationToken) -> anyhow::Result<()> {
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(self.timing.retry) => {}
            }
            let left = self.timing.renew_deadline.saturating_sub(renewed.elapsed());
            match timeout(left, self.renew()).await {
                Ok(Ok(())) => renewed = Instant::now(),
                Ok(Err(kube::Error::Api(status))) if status.is_conflict() => {
                    anyhow::bail!("another process took the lease {}", self.name);
                }
                Ok(Err(error)) if renewed.elapsed() < self.timing.renew_deadline => {
                    tracing::warn!(lease = self.name, %error, "cannot renew the lease; trying again");
                }
                Ok(Err(error)) => anyhow::bail!("lost the lease {}: {error}", self.name),
                Err(_) => anyhow::bail!(
                    "lost the lease {}: no answer for {:?}",
                    self.name,
                    self.timing.renew_deadline
                ),
            }
        }
    }

    /// Frees the Lease for the next holder, where it is still ours.
    ///
    /// # Errors
    /// When the API server refuses; the Lease then expires by itself.
    pub async fn release(&self) -> Result<(), kube::Error> {
        let mut lease = self.api.get(&self.name).await?;
        let Some(spec) = lease.spec.as_mut().filter(|spec| self.is_ours(spec)) else {
            return Ok(());
        };
        // client-go's way of letting go: no holder, and a duration that nobody waits for.
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        self.write(&lease).await
    }

    /// One attempt; the present holder where there is one.
    async fn try_acquire(&self, observation: &mut Observation) -> Result<Option<String>, kube::Error> {
        let Some(mut lease) = self.api.get_opt(&self.name).await? else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(self.name.clone()),
                    ..ObjectMeta::default()
                },
                spec: Some(self.claim(0)),
            };
            self.api.create(&PostParams::default(), &lease).await?;
            return Ok(None);
        };
        let unchanged = observation.unchanged_for(&lease, Instant::now());
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.clone().unwrap_or_default();
        let valid = spec.lease_duration_seconds.map_or(self.timing.lease, |seconds| {
            Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
        });
        if !holder.is_empty() && holder != self.identity && unchanged < valid {
            return Ok(Some(holder));
        }
        lease.spec = Some(self.claim(spec.lease_transitions.unwrap_or_default().saturating_add(1)));
        self.write(&lease).await?;
        Ok(None)
    }

    async fn renew(&self) -> Result<(), kube::Error> {
        let mut lease = self.api.get(&self.name).await?;
        match lease.spec.as_mut().filter(|spec| self.is_ours(spec)) {
            Some(spec) => {
                spec.renew_time = Some(MicroTime(Timestamp::now()));
                self.write(&lease).await
            }
            None => Err(kube::Error::Api(
                kube::core::Status::failure("the lease has another holder", "Conflict")
                    .with_code(409)
                    .boxed(),
            )),
        }
    }

    /// PUT with the resourceVersion that was read.
    async fn write(&self, lease: &Lease) -> Result<(), kube::Error> {
        self.api
            .replace(&self.name, &PostParams::default(), lease)
            .await
            .map(drop)
    }

    fn claim(&self, transitions: i32) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_duration_seconds: i32::try_from(self.timing.lease.as_secs()).ok(),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }

    fn is_ours(&self, spec: &LeaseSpec) -> bool {
        spec.holder_identity.as_deref() == Some(&self.identity)
    }
}
