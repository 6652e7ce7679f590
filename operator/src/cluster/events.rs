//! Events on RayClusters: one a pass and reason, published beside the loop, so that no pass waits for them.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Controller name in events; KubeRay's, since people filter by it.
const CONTROLLER: &str = "raycluster-controller";
/// Longest note that the API server takes.
const LONGEST_NOTE: usize = 1000;
/// Events that wait at most; more are dropped rather than kept.
const QUEUE: usize = 1024;

/// Where a pass leaves its events.
#[derive(Clone, Debug)]
pub(super) struct Events(mpsc::Sender<(ObjectReference, Kind, String)>);

/// Type, reason and action of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    warning: bool,
    reason: &'static str,
    action: &'static str,
}

impl Kind {
    /// Something was done.
    #[must_use]
    pub(super) const fn normal(reason: &'static str, action: &'static str) -> Self {
        Self {
            warning: false,
            reason,
            action,
        }
    }

    /// Something is wrong.
    #[must_use]
    pub(super) const fn warning(reason: &'static str, action: &'static str) -> Self {
        Self {
            warning: true,
            reason,
            action,
        }
    }
}

impl Events {
    /// The queue, and the task that publishes from it until `shutdown`.
    pub(super) fn start(client: Client, instance: &str, shutdown: CancellationToken) -> Self {
        let (sender, mut queue) = mpsc::channel::<(ObjectReference, Kind, String)>(QUEUE);
        let reporter = Reporter {
            controller: CONTROLLER.to_owned(),
            instance: Some(instance.to_owned()),
        };
        // One recorder, so that repeats are counted instead of listed.
        let recorder = Recorder::new(client, reporter);
        tokio::spawn(async move {
            loop {
                let next = tokio::select! {
                    () = shutdown.cancelled() => return,
                    next = queue.recv() => next,
                };
                let Some((reference, kind, note)) = next else {
                    return;
                };
                let event = Event {
                    type_: if kind.warning {
                        EventType::Warning
                    } else {
                        EventType::Normal
                    },
                    reason: kind.reason.to_owned(),
                    note: Some(note),
                    action: kind.action.to_owned(),
                    secondary: None,
                };
                if let Err(error) = recorder.publish(&event, &reference).await {
                    tracing::debug!(reason = kind.reason, %error, "event not published");
                }
            }
        });
        Self(sender)
    }

    /// Leaves an event about `reference`.
    pub(super) fn publish(&self, reference: &ObjectReference, kind: Kind, note: &str) {
        let note: String = note.chars().take(LONGEST_NOTE).collect();
        if self.0.try_send((reference.clone(), kind, note)).is_err() {
            tracing::debug!(reason = kind.reason, "too many events: one is dropped");
        }
    }
}

/// `a, b, c and 4 more`.
#[must_use]
pub(super) fn listing(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown = names.get(..SHOWN.min(names.len())).unwrap_or_default().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::listing;

    #[test]
    fn long_lists_are_cut_and_counted() {
        let names: Vec<String> = (0..7).map(|n| format!("p{n}")).collect();
        assert_eq!(listing(&names), "p0, p1, p2 and 4 more");
        assert_eq!(listing(&names[..2]), "p0, p1");
        assert_eq!(listing(&[]), "");
    }
}
