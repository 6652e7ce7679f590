//! Image references as registries and container runtimes read them (the distribution project's grammar).

use std::fmt;
use std::str::FromStr;

/// The registry of names that name no registry.
pub const DOCKER_HUB: &str = "docker.io";
/// Longest repository name, registry included (distribution grammar).
const MAX_REPOSITORY: usize = 255;
/// Longest tag.
const MAX_TAG: usize = 128;

/// A place for images, without tag: `registry.example:5000/team/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Repository {
    /// Host, with its port if any.
    pub registry: String,
    /// Path in the registry.
    pub path: String,
}

/// An image: a repository with a tag, a digest, or both.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Where it lives.
    pub repository: Repository,
    /// Its tag; `latest` is filled in where neither tag nor digest is given.
    pub tag: Option<String>,
    /// Its digest, `sha256:…`.
    pub digest: Option<String>,
}

/// Why a text is no image reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// Nothing is there.
    #[error("an image is missing: write one such as rayproject/ray:2.50.0")]
    Empty,
    /// A character that no reference has.
    #[error("{0:?} must not stand in an image reference")]
    Character(char),
    /// The host does not parse.
    #[error("{0:?} is not a registry host: write host or host:port")]
    Registry(String),
    /// A path component does not parse.
    #[error(
        "{0:?} is not part of a repository name: use lower-case letters, digits and single separators . _ - between them"
    )]
    Component(String),
    /// The tag does not parse.
    #[error("{0:?} is not a tag: use at most 128 letters, digits, _ . - and no leading . or -")]
    Tag(String),
    /// The digest does not parse.
    #[error("{0:?} is not a digest: write sha256: and 64 hexadecimal digits")]
    Digest(String),
    /// Too long.
    #[error("the repository name is longer than 255 characters")]
    TooLong,
    /// A tag or digest where only a repository may stand.
    #[error("a repository has no tag and no digest here: put the tag into `tag`")]
    NotARepository,
}

impl Reference {
    /// The same image under its digest alone, as pods should name it.
    #[must_use]
    pub fn pinned(repository: &Repository, digest: &str) -> String {
        format!("{repository}@{digest}")
    }

    /// Whether the image may change under this name.
    #[must_use]
    pub fn is_floating(&self) -> bool {
        self.digest.is_none()
            && self
                .tag
                .as_deref()
                .is_none_or(|tag| tag == "latest" || tag == "nightly")
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        check_characters(text)?;
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(parse_digest(digest)?)),
            None => (text, None),
        };
        // A colon after the last slash starts a tag; one before it starts a port.
        let (name, tag) = match name.rsplit_once(':') {
            Some((left, tag)) if !tag.contains('/') => (left, Some(parse_tag(tag)?)),
            _ => (name, None),
        };
        let repository = name.parse()?;
        let tag = match (tag, &digest) {
            (None, None) => Some("latest".to_owned()),
            (tag, _) => tag,
        };
        Ok(Self {
            repository,
            tag,
            digest,
        })
    }
}

impl FromStr for Repository {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        check_characters(text)?;
        if text.contains('@') {
            return Err(ReferenceError::NotARepository);
        }
        let (registry, path) = match text.split_once('/') {
            Some((host, path)) if is_host(host) => (parse_registry(host)?, path.to_owned()),
            _ => (DOCKER_HUB.to_owned(), text.to_owned()),
        };
        // Docker Hub's official images live under library/.
        let path = if registry == DOCKER_HUB && !path.contains('/') {
            format!("library/{path}")
        } else {
            path
        };
        if path.rsplit('/').next().is_some_and(|last| last.contains(':')) {
            return Err(ReferenceError::NotARepository);
        }
        for component in path.split('/') {
            if !is_component(component) {
                return Err(ReferenceError::Component(component.to_owned()));
            }
        }
        if registry.len() + 1 + path.len() > MAX_REPOSITORY {
            return Err(ReferenceError::TooLong);
        }
        Ok(Self { registry, path })
    }
}

impl Repository {
    /// A repository below this one.
    ///
    /// # Errors
    /// When a component cannot stand in a repository name.
    pub fn join(&self, components: &[&str]) -> Result<Self, ReferenceError> {
        format!("{self}/{}", components.join("/")).parse()
    }

    /// Whether this is `prefix` or lies below it, by whole components.
    #[must_use]
    pub fn is_within(&self, prefix: &str) -> bool {
        let name = self.to_string();
        name.strip_prefix(prefix.trim_end_matches('/'))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.path)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

fn check_characters(text: &str) -> Result<(), ReferenceError> {
    if text.is_empty() {
        return Err(ReferenceError::Empty);
    }
    match text.chars().find(|c| !c.is_ascii_graphic()) {
        Some(odd) => Err(ReferenceError::Character(odd)),
        None => Ok(()),
    }
}

/// The first component is a host if it could not be a repository's: it has a dot or a port, or is localhost.
fn is_host(component: &str) -> bool {
    component.contains(['.', ':']) || component == "localhost"
}

fn parse_registry(text: &str) -> Result<String, ReferenceError> {
    let wrong = || ReferenceError::Registry(text.to_owned());
    // An IPv6 address stands in brackets.
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']').ok_or_else(wrong)?;
            address.parse::<std::net::Ipv6Addr>().map_err(|_| wrong())?;
            (None, port.strip_prefix(':').or((!port.is_empty()).then_some("")))
        }
        None => match text.split_once(':') {
            Some((host, port)) => (Some(host), Some(port)),
            None => (Some(text), None),
        },
    };
    let label = |label: &str| {
        !label.is_empty()
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if host.is_some_and(|host| !host.split('.').all(label)) {
        return Err(wrong());
    }
    if port.is_some_and(|port| !port.bytes().all(|b| b.is_ascii_digit()) || port.parse::<u16>().is_err()) {
        return Err(wrong());
    }
    let lower = text.to_ascii_lowercase();
    // The three names of Docker Hub are one registry.
    Ok(match lower.as_str() {
        "index.docker.io" | "registry-1.docker.io" => DOCKER_HUB.to_owned(),
        _ => lower,
    })
}

/// `alphanumerics ((. | _ | __ | -+) alphanumerics)*`, lower case.
fn is_component(text: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let edges = [text.bytes().next(), text.bytes().last()];
    if !edges.iter().all(|edge| edge.is_some_and(alphanumeric)) {
        return false;
    }
    text.split(|c: char| alphanumeric(u8::try_from(c).unwrap_or_default()))
        .all(|separator| matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|b| b == b'-'))
}

fn parse_tag(text: &str) -> Result<String, ReferenceError> {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let valid = text.len() <= MAX_TAG
        && text.bytes().next().is_some_and(word)
        && text.bytes().all(|b| word(b) || b == b'.' || b == b'-');
    valid
        .then(|| text.to_owned())
        .ok_or_else(|| ReferenceError::Tag(text.to_owned()))
}

fn parse_digest(text: &str) -> Result<String, ReferenceError> {
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    text.strip_prefix("sha256:")
        .filter(|digits| digits.len() == 64 && digits.bytes().all(hex))
        .map(|_| text.to_owned())
        .ok_or_else(|| ReferenceError::Digest(text.to_owned()))
}

/// Checks a tag that stands alone.
pub(super) fn check_tag(text: &str) -> Result<(), ReferenceError> {
    check_characters(text)?;
    parse_tag(text).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        text.parse::<Reference>()
            .map_or_else(|error| format!("{error:?}"), |reference| reference.to_string())
    }

    #[test]
    fn names_are_completed_as_docker_does() {
        for (text, full) in [
            ("ray", "docker.io/library/ray:latest"),
            ("rayproject/ray:2.50.0", "docker.io/rayproject/ray:2.50.0"),
            ("index.docker.io/a/b", "docker.io/a/b:latest"),
            ("localhost/a:1", "localhost/a:1"),
            ("reg.local:5000/team/img:v1", "reg.local:5000/team/img:v1"),
            ("Reg.Local:5000/team/img", "reg.local:5000/team/img:latest"),
            ("[::1]:5000/a", "[::1]:5000/a:latest"),
        ] {
            assert_eq!(shown(text), full);
        }
    }

    #[test]
    fn a_port_is_not_a_tag_and_a_digest_needs_no_tag() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let reference: Reference = format!("reg:5000/a@{digest}").parse().unwrap();
        assert_eq!(reference.tag, None);
        assert_eq!(reference.digest.as_deref(), Some(digest.as_str()));
        assert_eq!(reference.repository.registry, "reg:5000");
        assert!(!reference.is_floating());
        assert!("ray".parse::<Reference>().unwrap().is_floating());
    }

    #[test]
    fn what_registries_refuse_is_refused_early() {
        for text in [
            "",
            "a b",
            "reg.local:5000/Team/img:v1",
            "reg.local:5000/team/img:v1\n",
            "reg.local:port/img",
            "reg.local:99999/img",
            "-reg.local/img",
            "a//b",
            "a/b:",
            "a/-b",
            "a___b",
            "a/b:-x",
            "a/b@sha256:12",
            "a/b@md5:00",
            "[::g]/a",
            "ä/b",
        ] {
            assert!(text.parse::<Reference>().is_err(), "{text:?} passed");
        }
        assert_eq!("a/b:1".parse::<Repository>(), Err(ReferenceError::NotARepository));
    }

    #[test]
    fn prefixes_end_at_components() {
        let repository: Repository = "reg/x/team/a".parse().unwrap();
        assert_eq!(repository.registry, DOCKER_HUB);
        let repository: Repository = "reg.io/team/a".parse().unwrap();
        assert!(repository.is_within("reg.io/team"));
        assert!(repository.is_within("reg.io/team/a"));
        assert!(!repository.is_within("reg.io/te"));
        assert!(!repository.is_within("reg.io/team/a/b"));
    }
}
