//! A second reader of Dockerfiles, written from Docker's reference and knowing nothing of the renderer:
//! comments, continuation lines, flags, exec and shell forms, double-quoted ENV words.

use std::collections::BTreeMap;

/// One instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instruction {
    /// Upper case.
    pub(crate) name: String,
    /// `--name=value` words before the rest.
    pub(crate) flags: Vec<String>,
    /// What follows.
    pub(crate) rest: String,
}

/// Reads a Dockerfile; panics where Docker would refuse it.
pub(crate) fn read(text: &str) -> Vec<Instruction> {
    let mut instructions = Vec::new();
    let mut pending = String::new();
    for line in text.split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let trimmed = line.trim_start();
        if trimmed.starts_with('#') {
            let directive = trimmed.trim_start_matches('#').trim_start();
            assert!(
                !instructions.is_empty() || !directive.contains('='),
                "a parser directive: {directive}"
            );
            continue;
        }
        if trimmed.is_empty() {
            continue;
        }
        if let Some(more) = line.trim_end().strip_suffix('\\') {
            pending.push_str(more);
            continue;
        }
        pending.push_str(line);
        instructions.push(instruction(pending.trim()));
        pending.clear();
    }
    assert!(pending.is_empty(), "the last line continues nowhere: {pending}");
    instructions
}

fn instruction(line: &str) -> Instruction {
    let (name, mut rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let name = name.to_ascii_uppercase();
    let known = ["FROM", "USER", "RUN", "COPY", "ENV"];
    assert!(known.contains(&name.as_str()), "unknown instruction: {line}");
    // Elsewhere `<<` is text: only these instructions read here-documents.
    assert!(
        !["RUN", "COPY"].contains(&name.as_str()) || !rest.contains("<<"),
        "a here-document: {line}"
    );
    let mut flags = Vec::new();
    rest = rest.trim_start();
    while rest.starts_with("--") {
        let (flag, after) = rest.split_once(' ').unwrap_or((rest, ""));
        flags.push(flag.to_owned());
        rest = after.trim_start();
    }
    Instruction {
        name,
        flags,
        rest: rest.to_owned(),
    }
}

impl Instruction {
    /// The words of an exec form, if it is one.
    pub(crate) fn exec(&self) -> Option<Vec<String>> {
        serde_json::from_str(&self.rest).ok()
    }
}

/// The environment that ENV instructions leave in an image whose own is empty.
pub(crate) fn environment(instructions: &[Instruction]) -> BTreeMap<String, String> {
    let mut environment = BTreeMap::new();
    for env in instructions.iter().filter(|one| one.name == "ENV") {
        let (name, word) = env.rest.split_once('=').expect("ENV NAME=value");
        let (value, left) = unquote(word);
        assert_eq!(left, "", "more than one pair in {env:?}");
        environment.insert(name.to_owned(), value);
    }
    environment
}

/// The value of a double-quoted word and what follows it; an unescaped `$` would be an expansion.
fn unquote(word: &str) -> (String, &str) {
    let mut characters = word.char_indices();
    assert_eq!(characters.next(), Some((0, '"')), "not quoted: {word}");
    let mut value = String::new();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &word[at + 1..]),
            '$' => panic!("an expansion in {word}"),
            '\\' => {
                let (_, escaped) = characters.next().expect("an escape at the end");
                if !matches!(escaped, '"' | '\\' | '$') {
                    value.push('\\');
                }
                value.push(escaped);
            }
            _ => value.push(character),
        }
    }
    panic!("no closing quote: {word}");
}
