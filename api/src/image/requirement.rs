//! PEP 508 requirements of an index: name, extras, version, marker. URLs and paths are no packages here.
//!
//! pep508_rs would be the library for this, but it panics on `A-:` and keeps every marker it ever saw; a webhook can
//! afford neither. Versions, the hard part, are pep440_rs's.

use std::fmt::Write;
use std::str::FromStr;

use pep440_rs::VersionSpecifiers;

/// What a marker may ask about (PEP 508, `env_var`).
const MARKER_VARIABLES: [&str; 12] = [
    "python_version",
    "python_full_version",
    "os_name",
    "sys_platform",
    "platform_release",
    "platform_system",
    "platform_version",
    "platform_machine",
    "platform_python_implementation",
    "implementation_name",
    "implementation_version",
    "extra",
];
/// How it compares; longer ones first, so that `<=` is not read as `<`.
const MARKER_OPERATORS: [&str; 10] = ["===", "==", "~=", "!=", "<=", ">=", "<", ">", "not in", "in"];
/// Deepest parentheses in a marker.
const MAX_DEPTH: usize = 8;

/// A parsed requirement; displayed in one canonical form.
#[derive(Debug)]
pub(super) struct Requirement {
    name: String,
    extras: Vec<String>,
    versions: VersionSpecifiers,
    marker: Option<String>,
}

impl FromStr for Requirement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (head, marker) = match text.split_once(';') {
            Some((head, marker)) => (head, Some(Marker::new(marker).parse()?)),
            None => (text, None),
        };
        let head = head.trim();
        let end = head.find(|c: char| !is_name_character(c)).unwrap_or(head.len());
        let (name, rest) = head.split_at(end);
        let (extras, rest) = extras(rest.trim_start())?;
        let rest = rest.trim();
        if rest.starts_with('@') || head.contains("://") {
            return Err(
                "it names a URL: name a package of an index (spec.pip.indexUrl sets the index)".to_owned(),
            );
        }
        let versions = rest
            .strip_prefix('(')
            .and_then(|inner| inner.strip_suffix(')'))
            .unwrap_or(rest);
        Ok(Self {
            name: normal_name(name)?,
            extras,
            versions: versions
                .parse()
                .map_err(|_| format!("{versions:?} is not a version condition"))?,
            marker,
        })
    }
}

impl std::fmt::Display for Requirement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)?;
        if !self.extras.is_empty() {
            write!(f, "[{}]", self.extras.join(","))?;
        }
        for (index, version) in self.versions.iter().enumerate() {
            write!(f, "{}{version}", if index == 0 { "" } else { "," })?;
        }
        match &self.marker {
            Some(marker) => write!(f, " ; {marker}"),
            None => Ok(()),
        }
    }
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

/// A name as indexes compare names (PEP 503): lower case, runs of `.`, `_`, `-` as one `-`.
fn normal_name(name: &str) -> Result<String, String> {
    let edges = [name.bytes().next(), name.bytes().last()];
    if !edges
        .iter()
        .all(|edge| edge.is_some_and(|b| b.is_ascii_alphanumeric()))
    {
        return Err(format!(
            "{name:?} is not a name: letters and digits, with . _ - between them"
        ));
    }
    let mut normal = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_ascii_alphanumeric() {
            normal.push(c.to_ascii_lowercase());
        } else if !normal.ends_with('-') {
            normal.push('-');
        }
    }
    Ok(normal)
}

/// `[a, b]` and what follows it.
fn extras(text: &str) -> Result<(Vec<String>, &str), String> {
    let Some(inner) = text.strip_prefix('[') else {
        return Ok((Vec::new(), text));
    };
    let (list, rest) = inner.split_once(']').ok_or("a ] is missing")?;
    let mut names = Vec::new();
    for name in list.split(',').map(str::trim).filter(|_| !list.trim().is_empty()) {
        if !name.chars().all(is_name_character) {
            return Err(format!("{name:?} is not an extra"));
        }
        names.push(normal_name(name)?);
    }
    Ok((names, rest))
}

/// Reads `a < 'b' and (c == 'd' or …)` and writes it with single spaces and single quotes.
struct Marker<'a> {
    rest: &'a str,
    written: String,
}

impl<'a> Marker<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            rest: text,
            written: String::new(),
        }
    }

    fn parse(mut self) -> Result<String, String> {
        self.alternatives(0)?;
        match self.rest.trim() {
            "" => Ok(self.written),
            rest => Err(format!("{rest:?} is not understood in the marker")),
        }
    }

    /// Conditions joined by `and` and `or`: their precedence is the reader's business, not ours.
    fn alternatives(&mut self, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err("the marker has too many parentheses".to_owned());
        }
        loop {
            if self.take("(") {
                self.written.push('(');
                self.alternatives(depth + 1)?;
                if !self.take(")") {
                    return Err("a ) is missing in the marker".to_owned());
                }
                self.written.push(')');
            } else {
                self.condition()?;
            }
            let Some(word) = ["and", "or"].into_iter().find(|word| self.take_word(word)) else {
                return Ok(());
            };
            let _ = write!(self.written, " {word} ");
        }
    }

    fn condition(&mut self) -> Result<(), String> {
        self.value()?;
        self.rest = self.rest.trim_start();
        let operator = MARKER_OPERATORS
            .into_iter()
            .find(|operator| {
                if operator.ends_with("in") {
                    self.take_word(operator)
                } else {
                    self.take(operator)
                }
            })
            .ok_or("a marker compares with == != < <= > >= ~= in or not in")?;
        let _ = write!(self.written, " {operator} ");
        self.value()
    }

    fn value(&mut self) -> Result<(), String> {
        if let Some(variable) = MARKER_VARIABLES
            .into_iter()
            .find(|variable| self.take_word(variable))
        {
            self.written.push_str(variable);
            return Ok(());
        }
        let quote = ["'", "\""].into_iter().find(|quote| self.take(quote));
        let quoted = quote.and_then(|quote| self.rest.split_once(quote));
        let (text, rest) =
            quoted.ok_or("a marker compares a variable such as python_version with a quoted text")?;
        // A requirements file would read # \ $ and words with a leading - as something else.
        if !text.chars().all(|c| is_name_character(c) || " +!*,".contains(c))
            || text.contains(" -")
            || text.starts_with('-')
        {
            return Err(format!("{text:?} is not a value that a marker compares with"));
        }
        let _ = write!(self.written, "'{text}'");
        self.rest = rest;
        Ok(())
    }

    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// A token that a longer word does not begin with.
    fn take_word(&mut self, word: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(word);
        let rest = rest.filter(|rest| !rest.starts_with(|c: char| c == '_' || c.is_ascii_alphanumeric()));
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}
