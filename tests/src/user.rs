//! What a person types: the plugin and kubectl as child processes, their output whole.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::{Cluster, binary};

/// What a command printed, and how it ended.
#[derive(Debug)]
pub struct Output {
    /// Exit code.
    pub code: i32,
    /// What it printed for machines and pipes.
    pub stdout: String,
    /// What it told the person.
    pub stderr: String,
}

impl Output {
    /// The standard output of a command that must succeed.
    ///
    /// # Errors
    /// When it did not, with all that it printed.
    pub fn success(self) -> anyhow::Result<String> {
        if self.code != 0 {
            bail!(
                "exit code {}\nstdout:\n{}\nstderr:\n{}",
                self.code,
                self.stdout,
                self.stderr
            );
        }
        Ok(self.stdout)
    }
}

/// A person with a namespace of their own on a cluster.
pub struct User {
    kubeconfig: PathBuf,
    kubectl: PathBuf,
    /// The namespace of every command.
    pub namespace: String,
}

impl User {
    /// A user in a new namespace.
    ///
    /// # Errors
    /// When the namespace cannot be made.
    pub async fn new(cluster: &Cluster, prefix: &str) -> anyhow::Result<Self> {
        Ok(Self::of(cluster, &cluster.namespace(prefix).await?))
    }

    /// A user of a namespace that is there.
    #[must_use]
    pub fn of(cluster: &Cluster, namespace: &str) -> Self {
        let bundled = cluster
            .kubeconfig
            .parent()
            .unwrap_or(Path::new("."))
            .join("cluster/bin/kubectl");
        let kubectl = if bundled.exists() {
            bundled
        } else {
            PathBuf::from("kubectl")
        };
        Self {
            kubeconfig: cluster.kubeconfig.clone(),
            kubectl,
            namespace: namespace.to_owned(),
        }
    }

    /// Runs `kubectl ray …`.
    ///
    /// # Errors
    /// When the plugin cannot be started.
    pub fn ray(&self, args: &[&str]) -> anyhow::Result<Output> {
        self.run(&binary("kubectl-ray"), args)
    }

    /// Runs `kubectl …`.
    ///
    /// # Errors
    /// When kubectl cannot be started.
    pub fn kubectl(&self, args: &[&str]) -> anyhow::Result<Output> {
        self.run(&self.kubectl, args)
    }

    /// Publishes hardware by the plugin.
    ///
    /// # Errors
    /// When the plugin fails.
    pub fn compute_template(&self, name: &str, cpu: &str, memory: &str) -> anyhow::Result<()> {
        let create = [
            "create",
            "compute-template",
            name,
            "--cpu",
            cpu,
            "--memory",
            memory,
        ];
        self.ray(&create)?.success()?;
        Ok(())
    }

    /// Runs `kubectl …` where our servers are; what it prints.
    ///
    /// # Errors
    /// When it fails.
    pub fn system(&self, args: &[&str]) -> anyhow::Result<String> {
        self.kubectl(&[&["-n", "ray-system"], args].concat())?.success()
    }

    /// Names of the webhook's pods, as `pod/NAME`, one a line.
    ///
    /// # Errors
    /// When kubectl fails.
    pub fn webhook_pods(&self) -> anyhow::Result<String> {
        self.system(&[
            "get",
            "pods",
            "-l",
            "app.kubernetes.io/name=ray-webhook",
            "-o",
            "name",
        ])
    }

    /// `kubectl ray …`, not started yet: for what goes on until it is interrupted.
    #[must_use]
    pub fn ray_command(&self, args: &[&str]) -> Command {
        self.command(&binary("kubectl-ray"), args)
    }

    fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(["-n", &self.namespace])
            .args(args)
            .env("KUBECONFIG", &self.kubeconfig)
            // kubectl keeps what a server serves by its address, and clusters reuse addresses.
            .env(
                "KUBECACHEDIR",
                self.kubeconfig.with_file_name("cluster").join("kubectl-cache"),
            );
        command
    }

    fn run(&self, program: &Path, args: &[&str]) -> anyhow::Result<Output> {
        let output = self
            .command(program, args)
            .output()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Output {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}
