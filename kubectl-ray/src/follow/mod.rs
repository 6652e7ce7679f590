//! Waiting that says what it waits for. The judgements are pure; [`until`] polls, so that a closed watch is no end.

pub(crate) mod cluster;
pub(crate) mod image;
pub(crate) mod pod;

use std::future::Future;
use std::time::{Duration, Instant};

use crate::error::{Exit, Failure, Result};
use crate::output::Progress;

const PERIOD: Duration = Duration::from_secs(1);

/// How far something is.
#[derive(Debug)]
pub(crate) enum Stage {
    /// It is there.
    Done,
    /// Not yet, and why.
    Waiting(String),
    /// It will not come without a change.
    Failed(Failure),
}

/// Asks `probe` until it is done, has failed, or `limit` is over (zero: no limit).
///
/// Errors of the connection and the server are waited out; what the server denies is not.
pub(crate) async fn until<P, F>(what: &str, limit: Duration, mut probe: P) -> Result<()>
where
    P: FnMut() -> F,
    F: Future<Output = Result<Stage>>,
{
    let start = Instant::now();
    let mut progress = Progress::default();
    loop {
        let now = match probe().await {
            Ok(Stage::Done) => return Ok(()),
            Ok(Stage::Failed(failure)) => return Err(failure),
            Ok(Stage::Waiting(why)) => why,
            Err(error) if matches!(error.exit, Exit::Failed | Exit::TimedOut) => error.message,
            Err(error) => return Err(error),
        };
        progress.show(&format!("{what}: {now}"));
        if !limit.is_zero() && start.elapsed() >= limit {
            let message = format!("{what} is not ready after {}: {now}", short(limit));
            return Err(Failure::timed_out(message));
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// A duration as kubectl shows it: `45s`, `5m`, `5m30s`, `3h2m`, `7d`.
pub(crate) fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let pair = |big: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{big}{unit}"),
        _ => format!("{big}{unit}{small}{small_unit}"),
    };
    match seconds {
        0..120 => pair_seconds(seconds),
        120..600 => pair(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

fn pair_seconds(seconds: u64) -> String {
    match seconds {
        60 => "1m".to_owned(),
        _ => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_as_kubectl_does() {
        for (seconds, text) in [
            (0, "0s"),
            (60, "1m"),
            (90, "90s"),
            (300, "5m"),
            (330, "5m30s"),
            (3600, "60m"),
            (10_900, "3h1m"),
            (100_000, "27h"),
            (200_000, "2d7h"),
            (2_000_000, "23d"),
        ] {
            assert_eq!(short(Duration::from_secs(seconds)), text);
        }
    }

    #[tokio::test]
    async fn waiting_rides_over_a_bad_connection_and_stops_at_a_denial() {
        let mut answers = vec![
            Ok(Stage::Done),
            Ok(Stage::Waiting("almost".into())),
            Err(Failure::failed("connection reset")),
        ];
        let done = until("x", Duration::ZERO, || std::future::ready(answers.pop().unwrap())).await;
        assert!(done.is_ok() && answers.is_empty());

        let denied = || std::future::ready(Err(Failure::new(Exit::Denied, "no")));
        assert_eq!(
            until("x", Duration::ZERO, denied).await.unwrap_err().exit,
            Exit::Denied
        );
    }

    #[tokio::test]
    async fn the_end_of_patience_tells_the_reason() {
        let waiting = || std::future::ready(Ok(Stage::Waiting("no node has a GPU".into())));
        let error = until("demo", Duration::from_millis(1), waiting)
            .await
            .unwrap_err();
        assert_eq!(error.exit, Exit::TimedOut);
        assert!(error.message.contains("no node has a GPU"), "{error}");
    }
}
