//! A server under measurement: its CPU time, memory and metrics.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Kernel's unit of CPU time in /proc.
const TICKS_PER_SECOND: f64 = 100.0;

/// A child process; it is killed when dropped.
pub(crate) struct Measured(Child);

impl Measured {
    /// # Errors
    /// The binary cannot be started.
    pub(crate) fn start(binary: &Path, args: &[impl AsRef<OsStr>]) -> anyhow::Result<Self> {
        let child = Command::new(binary).args(args).stdin(Stdio::null()).spawn();
        Ok(Self(
            child.with_context(|| format!("cannot start {}", binary.display()))?,
        ))
    }

    /// User and system time since its start.
    pub(crate) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        cpu_seconds(self.0.id())
    }

    /// Resident now, in MiB.
    pub(crate) fn resident_mib(&self) -> anyhow::Result<u64> {
        Ok(self.resident_kib()? / 1024)
    }

    /// Resident now, in KiB.
    pub(crate) fn resident_kib(&self) -> anyhow::Result<u64> {
        status_kib(self.0.id(), "VmRSS:")
    }

    /// Most ever resident, in MiB.
    pub(crate) fn peak_mib(&self) -> anyhow::Result<u64> {
        Ok(peak_kib(self.0.id())? / 1024)
    }

    pub(crate) fn open_files(&self) -> anyhow::Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", self.0.id()))?.count())
    }
}

/// User and system time of a process since its start.
pub(crate) fn cpu_seconds(process: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields = stat.rsplit(')').next().unwrap_or_default();
    // utime and stime are the 12th and 13th after the name.
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    #[allow(clippy::cast_precision_loss, reason = "ticks of a short run are small")]
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

/// Most ever resident of a process.
pub(crate) fn peak_kib(process: u32) -> anyhow::Result<u64> {
    status_kib(process, "VmHWM:")
}

fn status_kib(process: u32, name: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .with_context(|| format!("no {name} in /proc"))?;
    Ok(value.trim().trim_end_matches("kB").trim().parse()?)
}

impl Drop for Measured {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Prometheus text of a server's metrics address.
pub(crate) async fn scrape(address: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(
            format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").as_bytes(),
        )
        .await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

/// Sum of all series of a metric whose lines start so.
pub(crate) fn metric(text: &str, prefix: &str) -> f64 {
    let lines = text.lines().filter(|line| line.starts_with(prefix));
    lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}
