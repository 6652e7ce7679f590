//! A tar stream from a pod that may be hostile, unpacked into one directory and nowhere else.

use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use crate::error::{Failure, Result};

/// How much is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) bytes: u64,
    pub(super) files: usize,
}

/// Unpacks plain files and directories below `folder`; gives the number of files.
///
/// # Errors
/// At the first entry that is absolute, climbs with `..`, is a link or a device, or goes over a limit:
/// what stands before it is kept.
pub(super) fn unpack(stream: impl Read, folder: &Path, limits: Limits) -> Result<usize> {
    let mut archive = tar::Archive::new(stream);
    let mut left = limits.bytes;
    let mut files = 0;
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let inside = inside(&path).ok_or_else(|| refused(&path, "leads out of the directory"))?;
        let target = folder.join(inside);
        match entry.header().entry_type() {
            tar::EntryType::Directory => fs::create_dir_all(&target)?,
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                files += 1;
                if files > limits.files {
                    return Err(refused(
                        &path,
                        &format!("is more than the limit of {} files", limits.files),
                    ));
                }
                if entry.size() > left {
                    return Err(refused(&path, "goes over the size limit (--max-size)"));
                }
                left -= entry.size();
                write(&mut entry, &target)?;
            }
            // A link could lead a later entry out of the directory.
            _ => return Err(refused(&path, "is neither file nor directory")),
        }
    }
    // The padding behind the archive's end is read too: the process at the other end waits for that.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok(files)
}

/// The path below the directory; None where it would leave it.
fn inside(path: &Path) -> Option<PathBuf> {
    let mut inside = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => inside.push(part),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(inside)
}

fn write(entry: &mut impl Read, target: &Path) -> Result<()> {
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    // A new file each time: nothing that lies there is written through.
    match fs::remove_file(target) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(target)?;
    io::copy(entry, &mut file)?;
    Ok(())
}

fn refused(path: &Path, why: &str) -> Failure {
    Failure::failed(format!("the pod sent `{}`, which {why}: refused", path.display()))
        .hint("what was read before it is kept; do not trust this pod")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        bytes: 1000,
        files: 3,
    };

    /// A tar of one entry with exactly this path, which `tar::Builder` would refuse to write.
    fn entry(path: &str, kind: tar::EntryType, content: &[u8]) -> Vec<u8> {
        let mut header = tar::Header::new_gnu();
        let name = &mut header.as_old_mut().name;
        name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        if kind == tar::EntryType::Symlink {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_cksum();
        let mut builder = tar::Builder::new(Vec::new());
        builder.append(&header, content).unwrap();
        builder.into_inner().unwrap()
    }

    #[test]
    fn files_and_directories_land_below_the_directory() {
        let folder = tempfile::tempdir().unwrap();
        let tar = entry("./logs/raylet.out", tar::EntryType::Regular, b"hello");
        assert_eq!(unpack(&tar[..], folder.path(), LIMITS).unwrap(), 1);
        assert_eq!(fs::read(folder.path().join("logs/raylet.out")).unwrap(), b"hello");
    }

    #[test]
    fn hostile_entries_are_refused() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("node");
        fs::create_dir(&folder).unwrap();
        for (path, kind, content) in [
            ("../escaped", tar::EntryType::Regular, &b"x"[..]),
            ("logs/../../escaped", tar::EntryType::Regular, b"x"),
            ("/tmp/escaped", tar::EntryType::Regular, b"x"),
            ("link", tar::EntryType::Symlink, b""),
            ("hard", tar::EntryType::Link, b""),
            ("device", tar::EntryType::Char, b""),
            ("pipe", tar::EntryType::Fifo, b""),
            ("big", tar::EntryType::Regular, &[0; 1001]),
        ] {
            let failure = unpack(&entry(path, kind, content)[..], &folder, LIMITS).unwrap_err();
            assert!(failure.message.contains("refused"), "{path}: {failure}");
        }
        assert_eq!(
            fs::read_dir(outer.path()).unwrap().count(),
            1,
            "nothing beside the directory"
        );
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing in it");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_lies_there_is_not_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        std::os::unix::fs::symlink(&victim, folder.path().join("a")).unwrap();
        unpack(
            &entry("a", tar::EntryType::Regular, b"theirs")[..],
            folder.path(),
            LIMITS,
        )
        .unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    }

    #[test]
    fn endless_files_end_at_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let mut tar = Vec::new();
        for name in ["a", "b", "c", "d"] {
            let one = entry(name, tar::EntryType::Regular, b"x");
            tar.extend_from_slice(&one[..1024]);
        }
        let failure = unpack(&tar[..], folder.path(), LIMITS).unwrap_err();
        assert!(failure.message.contains("limit of 3 files"), "{failure}");
    }
}
