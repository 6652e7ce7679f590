//! Operators that are measured in the same way, one after the other, and what they took.

use std::fmt::Write;
use std::path::Path;
use std::str::FromStr;

use anyhow::bail;

/// Whose operator is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contestant {
    Ours,
    Peer,
    /// With the settings that let it go as fast as it can.
    FastPeer,
}

impl FromStr for Contestant {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text {
            "ours" => Ok(Self::Ours),
            "peer" => Ok(Self::Peer),
            "fast-peer" => Ok(Self::FastPeer),
            _ => bail!("CONTESTANT is ours, peer or fast-peer"),
        }
    }
}

impl Contestant {
    /// As tables name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Peer => "peer",
            Self::FastPeer => "peer, 10 workers, 1000 qps",
        }
    }

    /// Keeps a peer's seconds in `times`, a line for each; prints ours as a ratio to all that are there, or what was
    /// recorded of one where there is none.
    pub(crate) fn compare(self, seconds: f64, times: &Path, recorded: Option<&str>) -> anyhow::Result<()> {
        let mut known = std::fs::read_to_string(times).unwrap_or_default();
        if self != Self::Ours {
            writeln!(known, "{seconds} {}", self.name())?;
            std::fs::write(times, known)?;
            return Ok(());
        }
        if let (true, Some(recorded)) = (known.is_empty(), recorded) {
            println!("{recorded}");
        }
        for line in known.lines() {
            if let Some((peers, name)) = line.split_once(' ') {
                let ratio = seconds / peers.parse::<f64>()?;
                println!("{:<28} {ratio:.2} × the time of: {name}", self.name());
            }
        }
        Ok(())
    }
}
