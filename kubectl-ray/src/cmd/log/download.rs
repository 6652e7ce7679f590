//! Ray's log directory of each node, and what its container printed, into a directory here.

use std::future::Future;
use std::path::{Path, PathBuf};

use futures::{AsyncReadExt as _, StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{AttachParams, AttachedProcess, LogParams};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;
use tokio_util::io::SyncIoBridge;

use super::archive::{self, Limits};
use super::{LogArgs, SESSION, name_of, ray_container};
use crate::connection::Connection;
use crate::error::{Failure, Result};
use crate::output;

/// Nodes that are read at once.
const PARALLEL: usize = 8;

pub(super) async fn run(connected: &Connection, pods: &[Pod], cluster: &str, args: &LogArgs) -> Result<()> {
    let folder = match &args.out_dir {
        Some(folder) if folder.is_dir() => folder.clone(),
        Some(folder) => {
            return Err(
                Failure::usage(format!("--out-dir: {} is no directory", folder.display()))
                    .hint("make it first"),
            );
        }
        None => PathBuf::from(cluster),
    };
    let limits = Limits {
        bytes: args.max_size.saturating_mul(1024 * 1024),
        files: 100_000,
    };
    let nodes = stream::iter(pods).map(|pod| {
        let folder = folder.join(name_of(pod));
        async move {
            let saved = node(connected, pod, &folder, limits).await;
            (name_of(pod), saved)
        }
    });
    let mut failed = 0;
    let mut nodes = nodes.buffer_unordered(PARALLEL);
    while let Some((name, saved)) = nodes.next().await {
        match saved {
            Ok(files) => output::note(&format!("{name}: {files} files")),
            Err(failure) => {
                failed += 1;
                output::error(&failure.context(name));
            }
        }
    }
    output::line(&folder.display().to_string())?;
    match failed {
        0 => Ok(()),
        _ => Err(Failure::failed(format!(
            "the logs of {failed} of {} nodes are incomplete",
            pods.len()
        ))),
    }
}

async fn node(connected: &Connection, pod: &Pod, folder: &Path, limits: Limits) -> Result<usize> {
    tokio::fs::create_dir_all(folder).await?;
    let log = save_container_log(connected, pod, &folder.join("stdout.log"), limits.bytes).await?;
    let limits = Limits {
        bytes: limits.bytes - log,
        ..limits
    };
    let logs = format!("{SESSION}/logs");
    let command = ["tar", "-C", &logs, "-chf", "-", "."];
    // Links are read as the files that they name (-h): what arrives has none, or is refused.
    let params = AttachParams {
        container: ray_container(pod),
        ..AttachParams::default()
    };
    let mut process = connected
        .api::<Pod>()
        .exec(&name_of(pod), command, &params)
        .await?;
    let status = process.take_status();
    let complaints = complaints(&mut process);
    let Some(stdout) = process.stdout() else {
        return Err(Failure::failed("the pod gave no stream"));
    };
    let folder = folder.to_owned();
    let reader = SyncIoBridge::new(stdout);
    let unpacked = tokio::task::spawn_blocking(move || archive::unpack(reader, &folder, limits)).await;
    let files = unpacked.map_err(|error| Failure::failed(error.to_string()))??;
    // A log that grows while tar reads it is a warning of tar's (1), and what came is whole.
    match check(status, complaints).await {
        Err(failure) if files == 0 => Err(failure),
        _ => Ok(files + 1),
    }
}

/// What the container printed, as a file of `most` bytes at most; how many there were.
async fn save_container_log(connected: &Connection, pod: &Pod, path: &Path, most: u64) -> Result<u64> {
    let params = LogParams {
        container: ray_container(pod),
        ..LogParams::default()
    };
    let mut log = std::pin::pin!(connected.api::<Pod>().log_stream(&name_of(pod), &params).await?);
    let mut file = tokio::fs::File::create(path).await?;
    let mut buffer = vec![0; 64 * 1024];
    let mut saved = 0;
    loop {
        let count = log.read(&mut buffer).await?;
        let Some(chunk) = buffer.get(..count).filter(|chunk| !chunk.is_empty()) else {
            break;
        };
        saved += chunk.len() as u64;
        if saved > most {
            file.flush().await?;
            let message = "what the container printed goes over the size limit (--max-size)";
            return Err(
                Failure::failed(message).hint("read its end with `kubectl ray log CLUSTER --tail LINES`")
            );
        }
        file.write_all(chunk).await?;
    }
    file.flush().await?;
    Ok(saved)
}

/// Runs a command in the Ray container and gives what it prints.
pub(super) async fn output_of(connected: &Connection, pod: &Pod, command: &[String]) -> Result<String> {
    let params = AttachParams {
        container: ray_container(pod),
        ..AttachParams::default()
    };
    let mut process = connected
        .api::<Pod>()
        .exec(&name_of(pod), command, &params)
        .await?;
    let status = process.take_status();
    let complaints = complaints(&mut process);
    let mut text = String::new();
    if let Some(mut stdout) = process.stdout() {
        stdout.read_to_string(&mut text).await?;
    }
    check(status, complaints).await?;
    Ok(text)
}

/// What a command complains of, read beside its output: a full pipe would stop it.
pub(super) fn complaints(process: &mut AttachedProcess) -> JoinHandle<String> {
    let stderr = process.stderr();
    tokio::spawn(async move {
        let mut said = String::new();
        if let Some(mut stderr) = stderr {
            // Half of a complaint is still of use.
            let _ = stderr.read_to_string(&mut said).await;
        }
        said
    })
}

/// Fails with what the command complained of, if it failed.
pub(super) async fn check(
    status: Option<impl Future<Output = Option<Status>>>,
    complaints: JoinHandle<String>,
) -> Result<()> {
    let ended = match status {
        Some(status) => status.await,
        None => None,
    };
    let Some(ended) = ended.filter(|status| status.status.as_deref() == Some("Failure")) else {
        return Ok(());
    };
    let said = complaints.await.unwrap_or_default();
    let said = said.trim();
    let message = if said.is_empty() {
        ended.message.unwrap_or_default()
    } else {
        said.to_owned()
    };
    Err(Failure::failed(message))
}
