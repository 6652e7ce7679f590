//! Checks what the build left behind, before anything with a credential touches it.
//!
//! The layout was written next to commands that nobody vouches for. It holds regular files only, each blob is what its
//! name says, and one manifest accounts for every blob; the digest of that manifest is what gets pushed and run.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// Largest index or manifest; registries refuse larger ones.
const MAX_JSON: u64 = 4 * 1024 * 1024;

/// What to check, where to say the result.
#[derive(Debug, clap::Args)]
pub struct SealArgs {
    /// The OCI layout.
    #[arg(long)]
    layout: PathBuf,
    /// File to write the digest to.
    #[arg(long, default_value = "/dev/termination-log")]
    digest_file: PathBuf,
}

pub(super) fn run(args: &SealArgs) -> anyhow::Result<()> {
    let digest = seal(&args.layout).context("the built image is refused")?;
    fs::write(&args.digest_file, &digest)
        .with_context(|| format!("cannot write {}", args.digest_file.display()))?;
    println!("{digest}");
    Ok(())
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: String,
    size: u64,
}

/// The digest of the layout's one manifest.
fn seal(layout: &Path) -> anyhow::Result<String> {
    let blobs = layout.join("blobs/sha256");
    expect_entries(layout, &["blobs", "index.json", "oci-layout"])?;
    expect_entries(&layout.join("blobs"), &["sha256"])?;
    let names = file_names(&blobs)?;
    for name in &names {
        let actual = hash_file(&blobs.join(name))?;
        ensure!(
            actual == *name,
            "the blob {name} holds something else (sha256:{actual})"
        );
    }
    let index: Index = read_json(&layout.join("index.json"))?;
    let [only] = index.manifests.as_slice() else {
        bail!("index.json names {} manifests, not one", index.manifests.len());
    };
    let manifest: Manifest = read_json(&blob(&blobs, &names, only)?)?;
    let mut named: BTreeSet<&str> = BTreeSet::new();
    for part in [only, &manifest.config].into_iter().chain(&manifest.layers) {
        blob(&blobs, &names, part)?;
        named.extend(part.digest.strip_prefix("sha256:"));
    }
    if let Some(stray) = names.iter().find(|name| !named.contains(name.as_str())) {
        bail!("the blob {stray} belongs to no image");
    }
    Ok(only.digest.clone())
}

/// Path of a blob that is there, under a name that cannot lead elsewhere, in the size that is claimed.
fn blob(blobs: &Path, names: &BTreeSet<String>, part: &Descriptor) -> anyhow::Result<PathBuf> {
    let name = part.digest.strip_prefix("sha256:").unwrap_or_default();
    ensure!(names.contains(name), "the blob {} is missing", part.digest);
    let path = blobs.join(name);
    ensure!(
        fs::symlink_metadata(&path)?.len() == part.size,
        "the blob {} has another size",
        part.digest
    );
    Ok(path)
}

fn expect_entries(folder: &Path, expected: &[&str]) -> anyhow::Result<()> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).with_context(|| format!("there is no {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type()?;
        ensure!(
            kind.is_file() || kind.is_dir(),
            "{name} is neither a file nor a folder"
        );
        found.insert(name);
    }
    let expected: BTreeSet<String> = expected.iter().map(ToString::to_string).collect();
    ensure!(
        found == expected,
        "{} holds {found:?}, not {expected:?}",
        folder.display()
    );
    Ok(())
}

/// Names of the blobs, all of them regular files.
fn file_names(folder: &Path) -> anyhow::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // The entry's own type: a link is not followed.
        ensure!(
            entry.file_type()?.is_file(),
            "the blob {name} is not a regular file"
        );
        names.insert(name);
    }
    Ok(names)
}

fn hash_file(path: &Path) -> anyhow::Result<String> {
    let mut hash = Sha256::new();
    io::copy(&mut File::open(path)?, &mut Writer(&mut hash))?;
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Lets a hash be written to, so that a layer of gigabytes needs no memory.
struct Writer<'a>(&'a mut Sha256);

impl io::Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let meta = fs::symlink_metadata(path)?;
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    ensure!(meta.is_file(), "{name} is not a regular file");
    ensure!(meta.len() <= MAX_JSON, "{name} is larger than {MAX_JSON} bytes");
    serde_json::from_slice(&fs::read(path)?).with_context(|| format!("{name} does not parse"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    struct Layout(tempfile::TempDir);

    impl Layout {
        fn new() -> (Self, String) {
            let layout = Self(tempfile::tempdir().unwrap());
            fs::create_dir_all(layout.path("blobs/sha256")).unwrap();
            fs::write(layout.path("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
            let config = layout.blob(b"{}");
            let layer = layout.blob(b"layer");
            let manifest = json!({
                "config": {"digest": config, "size": 2},
                "layers": [{"digest": layer, "size": 5}],
            })
            .to_string();
            let digest = layout.blob(manifest.as_bytes());
            layout.index(&[json!({"digest": digest, "size": manifest.len()})]);
            (layout, digest)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn blob(&self, content: &[u8]) -> String {
            let mut hash = Sha256::new();
            hash.update(content);
            let name: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
            fs::write(self.path("blobs/sha256").join(&name), content).unwrap();
            format!("sha256:{name}")
        }

        fn index(&self, manifests: &[serde_json::Value]) {
            fs::write(
                self.path("index.json"),
                json!({ "manifests": manifests }).to_string(),
            )
            .unwrap();
        }

        fn refusal(&self) -> String {
            format!("{:#}", seal(self.0.path()).unwrap_err())
        }
    }

    #[test]
    fn a_whole_layout_gives_the_digest_of_its_manifest() {
        let (layout, digest) = Layout::new();
        assert_eq!(seal(layout.0.path()).unwrap(), digest);
    }

    #[test]
    fn planted_content_is_refused() {
        let (layout, digest) = Layout::new();
        let entry = json!({"digest": digest, "size": 1});
        layout.index(&[entry.clone(), entry]);
        assert!(layout.refusal().contains("2 manifests"));

        let (layout, _) = Layout::new();
        fs::write(layout.path("blobs/sha256").join("00"), "x").unwrap();
        assert!(layout.refusal().contains("holds something else"));

        let (layout, _) = Layout::new();
        let stray = layout.blob(b"another manifest");
        assert!(layout.refusal().contains(stray.trim_start_matches("sha256:")));

        let (layout, _) = Layout::new();
        symlink("/etc/passwd", layout.path("blobs/sha256").join("link")).unwrap();
        assert!(layout.refusal().contains("not a regular file"));

        let (layout, _) = Layout::new();
        fs::remove_file(layout.path("index.json")).unwrap();
        symlink("/etc/passwd", layout.path("index.json")).unwrap();
        assert!(layout.refusal().contains("neither a file nor a folder"));

        let (layout, _) = Layout::new();
        layout.index(&[json!({"digest": "sha256:../../../etc/passwd", "size": 1})]);
        assert!(layout.refusal().contains("missing"));

        let (layout, _) = Layout::new();
        fs::write(layout.path("more"), "x").unwrap();
        assert!(layout.refusal().contains("more"));
    }
}
