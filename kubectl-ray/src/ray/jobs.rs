//! Ray's Jobs API (`/api/jobs/`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_tungstenite::tungstenite::Message;

use super::dashboard::{Dashboard, STARTUP};
use crate::error::{Failure, Result};
use crate::output;

const PERIOD: Duration = Duration::from_secs(1);
/// Broken connections in a row that a log survives.
const RECONNECTS: u32 = 10;

/// What is asked of Ray.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Submission {
    pub(crate) entrypoint: String,
    pub(crate) submission_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) runtime_env: Option<Value>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) entrypoint_num_cpus: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) entrypoint_num_gpus: Option<f64>,
    /// Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) entrypoint_memory: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) entrypoint_resources: Option<BTreeMap<String, f64>>,
}

/// State of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum JobStatus {
    Pending,
    Running,
    Stopped,
    Succeeded,
    Failed,
    /// A state of a newer Ray.
    #[serde(other)]
    Unknown,
}

impl JobStatus {
    pub(crate) fn is_final(self) -> bool {
        matches!(self, Self::Stopped | Self::Succeeded | Self::Failed)
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Stopped => "STOPPED",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// A job as Ray tells it; times are milliseconds since 1970.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct JobDetails {
    pub(crate) submission_id: Option<String>,
    pub(crate) job_id: Option<String>,
    pub(crate) status: JobStatus,
    #[serde(default)]
    pub(crate) entrypoint: String,
    pub(crate) message: Option<String>,
    pub(crate) start_time: Option<i64>,
    pub(crate) end_time: Option<i64>,
}

impl JobDetails {
    /// The id by which Ray's API and ours know it.
    pub(crate) fn id(&self) -> &str {
        self.submission_id
            .as_deref()
            .or(self.job_id.as_deref())
            .unwrap_or_default()
    }
}

impl Dashboard {
    /// Submits a job; gives its id.
    ///
    /// Right after its start Ray has no agent to run jobs yet, and a connection may break: the id is ours,
    /// so that asking again cannot run the job twice.
    pub(crate) async fn submit(&self, submission: &Submission) -> Result<String> {
        let body = serde_json::to_value(submission)?;
        let start = Instant::now();
        loop {
            match self.json::<Value>(Method::POST, "/api/jobs/", Some(&body)).await {
                Ok(answer) => {
                    let id = answer.get("submission_id").or_else(|| answer.get("job_id"));
                    let id = id.and_then(Value::as_str).unwrap_or(&submission.submission_id);
                    return Ok(id.to_owned());
                }
                Err(failure) if failure.retriable && start.elapsed() < STARTUP => {
                    tokio::time::sleep(PERIOD).await;
                    if self.job(&submission.submission_id).await.is_ok() {
                        return Ok(submission.submission_id.clone());
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// One job.
    pub(crate) async fn job(&self, id: &str) -> Result<JobDetails> {
        self.json(Method::GET, &format!("/api/jobs/{}", segment(id)?), None)
            .await
    }

    /// All jobs as Ray tells them.
    pub(crate) async fn jobs(&self) -> Result<Vec<Value>> {
        self.json(Method::GET, "/api/jobs/", None).await
    }

    /// Asks a job to stop; tells whether it ran.
    pub(crate) async fn stop(&self, id: &str) -> Result<bool> {
        let answer: Value = self
            .json(Method::POST, &format!("/api/jobs/{}/stop", segment(id)?), None)
            .await?;
        Ok(answer.get("stopped").and_then(Value::as_bool).unwrap_or_default())
    }

    /// The log so far.
    pub(crate) async fn log(&self, id: &str) -> Result<String> {
        let answer: Value = self
            .json(Method::GET, &format!("/api/jobs/{}/logs", segment(id)?), None)
            .await?;
        Ok(answer
            .get("logs")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned())
    }

    /// Writes the log to stdout as it comes, and gives the job once it has ended.
    ///
    /// A broken connection is opened again: Ray starts the log anew, and what was written is skipped.
    pub(crate) async fn follow(&self, id: &str) -> Result<JobDetails> {
        let mut written = 0;
        let mut failures = 0;
        loop {
            let before = written;
            let tailed = self.tail(id, &mut written).await;
            failures = if written > before { 0 } else { failures + 1 };
            match self.job(id).await {
                Ok(job) if job.status.is_final() => {
                    // What was logged between the end of the tail and the end of the job.
                    let rest = self.log(id).await?;
                    return output::text(rest.get(written..).unwrap_or_default()).map(|()| job);
                }
                Ok(_) => match tailed {
                    Err(failure) if !failure.retriable => return Err(failure),
                    _ => {}
                },
                Err(failure) if failures > RECONNECTS || !failure.retriable => return Err(failure),
                Err(_) => {}
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    async fn tail(&self, id: &str, written: &mut usize) -> Result<()> {
        let mut socket = self
            .websocket(&format!("/api/jobs/{}/logs/tail", segment(id)?))
            .await?;
        let mut position = 0;
        while let Some(message) = socket.next().await {
            let Ok(message) = message else { break };
            let text = match message {
                Message::Text(text) => text.as_str().to_owned(),
                Message::Binary(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Message::Close(_) => break,
                _ => continue,
            };
            let skip = written.saturating_sub(position).min(text.len());
            position += text.len();
            if let Some(new) = text.get(skip..) {
                output::text(new)?;
                *written = (*written).max(position);
            }
        }
        Ok(())
    }

    /// Waits until the job has ended.
    pub(crate) async fn wait(&self, id: &str) -> Result<JobDetails> {
        let mut failures = 0;
        loop {
            match self.job(id).await {
                Ok(job) if job.status.is_final() => return Ok(job),
                Ok(_) => failures = 0,
                Err(failure) if failure.retriable && failures < RECONNECTS => failures += 1,
                Err(failure) => return Err(failure),
            }
            tokio::time::sleep(PERIOD).await;
        }
    }
}

/// An id as one segment of a path.
fn segment(id: &str) -> Result<&str> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if id.is_empty() || id.starts_with('.') || !id.chars().all(legal) {
        return Err(Failure::usage(format!("`{id}` is no id of a Ray job"))
            .hint("ids have letters, digits, `-`, `_` and `.`; `kubectl ray job list` shows them"));
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_cannot_leave_its_path() {
        assert!(segment("raysubmit_Ab1").is_ok());
        for wrong in ["", "../x", "a/b", "a?b", "."] {
            assert!(segment(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn states_of_a_newer_ray_are_not_final() {
        let job: JobDetails = serde_json::from_value(serde_json::json!({"status": "HIBERNATING"})).unwrap();
        assert_eq!((job.status, job.status.is_final()), (JobStatus::Unknown, false));
    }
}
