//! Copies a mounted ConfigMap: its files are symlinks that change as a whole, which no builder's COPY expects.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;

/// Where from, where to.
#[derive(Debug, clap::Args)]
pub struct ContextArgs {
    /// The mounted ConfigMap.
    #[arg(long)]
    from: PathBuf,
    /// The folder to fill.
    #[arg(long)]
    to: PathBuf,
}

pub(super) fn run(args: &ContextArgs) -> anyhow::Result<()> {
    let entries = fs::read_dir(&args.from).with_context(|| format!("cannot read {}", args.from.display()))?;
    for entry in entries {
        let name = entry?.file_name();
        // `..data` and the timestamped folder are the kubelet's own.
        if name.to_string_lossy().starts_with("..") {
            continue;
        }
        let (from, to) = (args.from.join(&name), args.to.join(&name));
        // Reading and writing instead of copying: a ConfigMap's modes mean nothing in an image.
        let content = fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
        fs::write(&to, content).with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_mounted_configmap_becomes_plain_files() {
        let from = tempfile::tempdir().unwrap();
        let to = tempfile::tempdir().unwrap();
        let data = from.path().join("..2026_01_01");
        fs::create_dir(&data).unwrap();
        fs::write(data.join("Dockerfile"), "FROM a\n").unwrap();
        symlink("..2026_01_01", from.path().join("..data")).unwrap();
        symlink("..data/Dockerfile", from.path().join("Dockerfile")).unwrap();
        run(&ContextArgs {
            from: from.path().to_owned(),
            to: to.path().to_owned(),
        })
        .unwrap();
        let names: Vec<_> = fs::read_dir(to.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["Dockerfile"]);
        let copy = to.path().join("Dockerfile");
        assert!(fs::symlink_metadata(&copy).unwrap().is_file());
        assert_eq!(fs::read_to_string(copy).unwrap(), "FROM a\n");
    }
}
