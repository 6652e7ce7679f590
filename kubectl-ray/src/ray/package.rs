//! A working directory as the package that Ray's runtime environments know: a zip under the hash of its content.

use std::fs;
use std::io::{Cursor, Read as _, Write as _};
use std::path::{Path, PathBuf};

use http::Method;
use ignore::WalkBuilder;
use ignore::overrides::OverrideBuilder;
use sha2::{Digest as _, Sha256};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::dashboard::Dashboard;
use crate::error::{Failure, Result};

/// Ray's dashboard takes no larger request.
pub(crate) const MAX_BYTES: u64 = 100 * 1024 * 1024;

/// A packed directory.
#[derive(Debug)]
pub(crate) struct Package {
    /// `_ray_pkg_<hash>.zip`
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) files: usize,
}

impl Package {
    /// What a runtime environment calls it.
    pub(crate) fn uri(&self) -> String {
        format!("gcs://{}", self.name)
    }
}

/// Packs `folder` without what its `.gitignore`, `.rayignore` and `excludes` (of the same form) name.
///
/// # Errors
/// When files cannot be read, or are larger than `limit` bytes together; the largest are named.
pub(crate) fn pack(folder: &Path, excludes: &[String], limit: u64) -> Result<Package> {
    let files = list(folder, excludes)?;
    check_size(&files, limit)?;
    let mut hash = Sha256::new();
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for file in &files {
        let mut content = Vec::new();
        let read = fs::File::open(&file.path).and_then(|mut open| open.read_to_end(&mut content));
        read.map_err(|error| cannot_read(&file.path, &error))?;
        hash.update(file.name.as_bytes());
        hash.update([0]);
        hash.update(content.len().to_le_bytes());
        hash.update(&content);
        let options = SimpleFileOptions::default()
            .unix_permissions(file.mode)
            .large_file(false);
        zip.start_file(&file.name, options).map_err(cannot_pack)?;
        zip.write_all(&content)?;
    }
    let digest = hash.finalize();
    let short: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(Package {
        name: format!("_ray_pkg_{short}.zip"),
        bytes: zip.finish().map_err(cannot_pack)?.into_inner(),
        files: files.len(),
    })
}

struct File {
    path: PathBuf,
    /// Path inside the package, with `/`.
    name: String,
    bytes: u64,
    mode: u32,
}

fn list(folder: &Path, excludes: &[String]) -> Result<Vec<File>> {
    if !folder.is_dir() {
        return Err(Failure::usage(format!(
            "--working-dir: {} is no directory",
            folder.display()
        )));
    }
    let mut overrides = OverrideBuilder::new(folder);
    for exclude in excludes {
        // An override names what is taken; `!` turns it into what is left out.
        overrides
            .add(&format!("!{exclude}"))
            .map_err(|error| Failure::usage(format!("excludes: {error}")))?;
    }
    let overrides = overrides
        .build()
        .map_err(|error| Failure::usage(format!("excludes: {error}")))?;
    let walk = WalkBuilder::new(folder)
        .hidden(false)
        .require_git(false)
        .git_global(false)
        .ignore(false)
        .add_custom_ignore_filename(".rayignore")
        .overrides(overrides)
        .filter_entry(|entry| entry.file_name() != ".git")
        .sort_by_file_path(Path::cmp)
        .build();
    let mut files = Vec::new();
    for entry in walk {
        let entry = entry.map_err(|error| Failure::failed(format!("--working-dir: {error}")))?;
        // Links are followed to files inside or outside: a package has no links.
        let metadata = fs::metadata(entry.path()).map_err(|error| cannot_read(entry.path(), &error))?;
        if !metadata.is_file() {
            continue;
        }
        let inside = entry.path().strip_prefix(folder).unwrap_or(entry.path());
        let parts: Vec<_> = inside
            .components()
            .map(|part| part.as_os_str().to_string_lossy())
            .collect();
        files.push(File {
            name: parts.join("/"),
            path: entry.path().to_owned(),
            bytes: metadata.len(),
            mode: mode(&metadata),
        });
    }
    Ok(files)
}

#[cfg(unix)]
fn mode(metadata: &fs::Metadata) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    metadata.permissions().mode() & 0o777
}

#[cfg(not(unix))]
fn mode(_: &fs::Metadata) -> u32 {
    0o644
}

fn check_size(files: &[File], limit: u64) -> Result<()> {
    let total: u64 = files.iter().map(|file| file.bytes).sum();
    if total <= limit {
        return Ok(());
    }
    let mut largest: Vec<&File> = files.iter().collect();
    largest.sort_by_key(|file| std::cmp::Reverse(file.bytes));
    let named: Vec<_> = largest
        .iter()
        .take(3)
        .map(|f| format!("{} ({})", f.name, mebibytes(f.bytes)))
        .collect();
    let message = format!(
        "--working-dir: {} are more than the limit of {}; the largest: {}",
        mebibytes(total),
        mebibytes(limit),
        named.join(", ")
    );
    Err(Failure::usage(message)
        .hint("leave files out by .rayignore or .gitignore, or put data into a bucket or volume"))
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1024 * 1024))
}

fn cannot_read(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("--working-dir: cannot read {}: {error}", path.display()))
}

fn cannot_pack(error: zip::result::ZipError) -> Failure {
    Failure::failed(format!("cannot pack the working directory: {error}"))
}

/// Uploads the package unless the cluster has it already.
pub(crate) async fn upload(dashboard: &Dashboard, package: &Package) -> Result<()> {
    let path = format!("/api/packages/gcs/{}", package.name);
    let (known, _) = dashboard.send(Method::GET, &path, Vec::new(), "").await?;
    if known.is_success() {
        return Ok(());
    }
    let (status, answer) = dashboard
        .send(
            Method::PUT,
            &path,
            package.bytes.clone(),
            "application/octet-stream",
        )
        .await?;
    if status.is_success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&answer);
    Err(Failure::failed(format!(
        "Ray did not take the working directory: {status}: {}",
        said.trim()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        folder
    }

    fn names(package: &Package) -> BTreeSet<String> {
        let zip = zip::ZipArchive::new(Cursor::new(&package.bytes)).unwrap();
        zip.file_names().map(|name| name.unwrap().into_owned()).collect()
    }

    #[test]
    fn ignored_and_excluded_files_stay_at_home() {
        let folder = folder(&[
            ("main.py", "print()"),
            ("lib/a.py", ""),
            (".env", "SECRET=1"),
            (".gitignore", "*.log\n.env\n"),
            (".rayignore", "data/\n"),
            ("run.log", "x"),
            ("data/big.bin", "x"),
            ("notes/todo.md", "x"),
            (".git/config", "x"),
        ]);
        let package = pack(folder.path(), &["notes".to_owned()], MAX_BYTES).unwrap();
        let expected = [".gitignore", ".rayignore", "lib/a.py", "main.py"].map(str::to_owned);
        assert_eq!(names(&package), BTreeSet::from(expected));
    }

    #[test]
    fn the_name_follows_the_content_alone() {
        let one = pack(folder(&[("a", "1")]).path(), &[], MAX_BYTES).unwrap();
        let same = pack(folder(&[("a", "1")]).path(), &[], MAX_BYTES).unwrap();
        let other = pack(folder(&[("a", "2")]).path(), &[], MAX_BYTES).unwrap();
        assert_eq!(one.name, same.name);
        assert_ne!(one.name, other.name);
        assert!(one.uri().starts_with("gcs://_ray_pkg_"));
    }

    #[test]
    fn too_much_is_refused_and_the_largest_files_named() {
        let error = pack(folder(&[("big", "0123456789"), ("small", "")]).path(), &[], 5).unwrap_err();
        assert!(error.message.contains("big (0.0 MiB)"), "{error}");
        assert!(
            pack(Path::new("/no/such"), &[], 5)
                .unwrap_err()
                .message
                .contains("no directory")
        );
    }
}
