//! Requests of one program, from the API server's audit log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The audit log, as one user agent is seen in it.
pub(crate) struct Audit {
    path: PathBuf,
    agent: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    stage: String,
    verb: String,
    #[serde(default)]
    user_agent: String,
    object_ref: Option<ObjectRef>,
}

#[derive(Deserialize)]
struct ObjectRef {
    resource: String,
    subresource: Option<String>,
}

impl Audit {
    /// Of the program whose user agent starts with that name.
    pub(crate) fn new(path: &Path, agent: &str) -> Self {
        Self {
            path: path.to_owned(),
            agent: format!("{agent}/"),
        }
    }

    /// Where the log ends now.
    ///
    /// # Errors
    /// When there is no log.
    pub(crate) fn mark(&self) -> anyhow::Result<u64> {
        Ok(std::fs::metadata(&self.path)?.len())
    }

    /// Requests since then by verb and resource; watches, which last, are not among them.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub(crate) fn since(&self, mark: u64) -> anyhow::Result<BTreeMap<String, u64>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(mark))?;
        let mut counts = BTreeMap::new();
        for line in BufReader::new(file).lines() {
            // The last line may be half written.
            let Ok(entry) = serde_json::from_str::<Entry>(&line?) else {
                continue;
            };
            let counts_here = entry.stage == "ResponseComplete" && entry.verb != "watch";
            if !counts_here || !entry.user_agent.starts_with(&self.agent) {
                continue;
            }
            let resource = entry.object_ref.map_or_else(String::new, |object| {
                let part = object
                    .subresource
                    .map_or_else(String::new, |part| format!("/{part}"));
                object.resource + &part
            });
            *counts.entry(format!("{} {resource}", entry.verb)).or_default() += 1;
        }
        Ok(counts)
    }
}
