//! Versions of Ray as people write them.

use std::fmt;

/// A version of Ray: `2.53.0rc1` and `v2.53` both count as 2.53.0, `nightly` is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RayVersion {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number, 0 where it is not written.
    pub patch: u32,
}

impl RayVersion {
    /// A version by its numbers.
    #[must_use]
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// Reads at least two numbers; whatever follows the last one does not count.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let mut rest = Some(text.strip_prefix('v').unwrap_or(text));
        let mut next = || {
            let text = rest.take()?;
            let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            let (number, after) = text.split_at_checked(end)?;
            rest = after.strip_prefix('.');
            number.parse().ok()
        };
        Some(Self::new(next()?, next()?, next().unwrap_or(0)))
    }
}

impl fmt::Display for RayVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_leniently() {
        for (text, version) in [
            ("2.53.0", Some(RayVersion::new(2, 53, 0))),
            ("2.53.0rc1", Some(RayVersion::new(2, 53, 0))),
            ("v2.53.1", Some(RayVersion::new(2, 53, 1))),
            ("2.53", Some(RayVersion::new(2, 53, 0))),
            ("2.53rc1", Some(RayVersion::new(2, 53, 0))),
            ("3.0.0.dev0", Some(RayVersion::new(3, 0, 0))),
            ("2", None),
            ("2.x", None),
            ("nightly", None),
            ("", None),
            ("99999999999.1", None),
        ] {
            assert_eq!(RayVersion::parse(text), version, "{text}");
        }
        assert!(RayVersion::parse("2.9.1") < RayVersion::parse("2.53.0"));
    }
}
