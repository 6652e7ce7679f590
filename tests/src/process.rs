//! Our binaries as child processes, killed when the test ends.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context;

use crate::repository;

/// Path of one of our binaries, built by the same profile as this test.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    // The test binary lives in target/<profile>/deps.
    let deps = std::env::current_exe().unwrap_or_default();
    deps.parent()
        .and_then(Path::parent)
        .map_or_else(|| PathBuf::from(name), |dir| dir.join(name))
}

/// A running child with its log in a file.
pub struct Process {
    child: Child,
    /// Where its stdout and stderr go.
    pub log: PathBuf,
}

impl Process {
    /// Starts one of our binaries against a cluster.
    ///
    /// # Errors
    /// When the binary is not there (`cargo build --workspace` makes it) or does not start.
    pub fn start(name: &str, kubeconfig: &Path, args: &[&str]) -> anyhow::Result<Self> {
        Self::start_with(name, kubeconfig, args, &[])
    }

    /// The same, with more in its environment.
    ///
    /// # Errors
    /// As [`Process::start`].
    pub fn start_with(
        name: &str,
        kubeconfig: &Path,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let folder = repository().join(".local/test-logs");
        std::fs::create_dir_all(&folder)?;
        let (file, log) = tempfile::Builder::new()
            .prefix(name)
            .suffix(".log")
            .tempfile_in(&folder)?
            .keep()?;
        let path = binary(name);
        let child = Command::new(&path)
            .args(args)
            .env("KUBECONFIG", kubeconfig)
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(File::try_clone(&file)?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {}", path.display()))?;
        Ok(Self { child, log })
    }

    /// Process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, as a node that dies would do.
    ///
    /// # Errors
    /// When the process is gone already.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM, as a kubelet asks a container to end.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn terminate(&self) -> anyhow::Result<()> {
        let status = Command::new("kill")
            .args(["-TERM", &self.id().to_string()])
            .status()?;
        anyhow::ensure!(status.success(), "kill: {status}");
        Ok(())
    }

    /// How it ended, once it has.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn ended(&mut self) -> anyhow::Result<Option<std::process::ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn is_running(&mut self) -> anyhow::Result<bool> {
        Ok(self.ended()?.is_none())
    }

    /// Its log so far.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read_log(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(&self.log)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
