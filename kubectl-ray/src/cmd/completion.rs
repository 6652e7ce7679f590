//! `completion`: scripts for shells, and the file that kubectl itself looks for.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use clap_complete::env::Shells;

use crate::error::{Failure, Result};
use crate::output;

/// kubectl looks for a program of this name when it completes `kubectl ray`.
const KUBECTL_COMPLETER: &str = "kubectl_complete-ray";

/// Flags of `completion`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl ray completion install              # completes `kubectl ray …` wherever kubectl completes
  source <(kubectl ray completion bash)       # completes `kubectl-ray …` in bash
  kubectl ray completion fish > ~/.config/fish/completions/kubectl-ray.fish")]
pub struct CompletionArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print the script for bash.
    Bash,
    /// Print the script for zsh.
    Zsh,
    /// Print the script for fish.
    Fish,
    /// Print the script for PowerShell.
    Powershell,
    /// Install what kubectl needs to complete `kubectl ray`.
    Install(InstallArgs),
}

#[derive(Debug, Args)]
struct InstallArgs {
    /// Directory on the PATH to install into [default: the plugin's own].
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &CompletionArgs) -> Result<()> {
    match &args.what {
        What::Bash => script("bash"),
        What::Zsh => script("zsh"),
        What::Fish => script("fish"),
        What::Powershell => script("powershell"),
        What::Install(args) => install(args),
    }
}

fn script(shell: &str) -> Result<()> {
    let shells = Shells::builtins();
    let known = shells
        .completer(shell)
        .ok_or_else(|| Failure::usage(format!("no completion for {shell}")))?;
    let mut script = Vec::new();
    known.write_registration(
        "COMPLETE",
        "kubectl-ray",
        "kubectl-ray",
        "kubectl-ray",
        &mut script,
    )?;
    output::text(&String::from_utf8_lossy(&script))
}

fn install(args: &InstallArgs) -> Result<()> {
    let plugin = std::env::current_exe()?;
    let folder = match &args.dir {
        Some(folder) => folder.clone(),
        None => plugin.parent().unwrap_or(Path::new(".")).to_owned(),
    };
    let path = folder.join(file_name());
    write(&plugin, &path).map_err(|error| {
        Failure::failed(format!("cannot install {}: {error}", path.display()))
            .hint("choose a directory on your PATH with --dir")
    })?;
    output::line(&format!("installed {}", path.display()))?;
    let on_path = std::env::var_os("PATH")
        .is_some_and(|value| std::env::split_paths(&value).any(|entry| entry == folder));
    if !on_path {
        output::warning(&format!(
            "{} is not on your PATH: kubectl will not find it there",
            folder.display()
        ));
    }
    Ok(())
}

#[cfg(unix)]
fn file_name() -> String {
    KUBECTL_COMPLETER.to_owned()
}

#[cfg(unix)]
fn write(plugin: &Path, path: &Path) -> std::io::Result<()> {
    if path.is_symlink() {
        std::fs::remove_file(path)?;
    }
    std::os::unix::fs::symlink(plugin, path)
}

#[cfg(not(unix))]
fn file_name() -> String {
    format!("{KUBECTL_COMPLETER}.exe")
}

#[cfg(not(unix))]
fn write(plugin: &Path, path: &Path) -> std::io::Result<()> {
    std::fs::copy(plugin, path).map(|_| ())
}
