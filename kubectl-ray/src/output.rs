//! What a person or a script reads: results on stdout, everything else on stderr.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::error::{Failure, Result};

/// Form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns.
    Table,
    /// More columns.
    Wide,
    /// The objects as JSON.
    Json,
    /// The objects as YAML.
    Yaml,
    /// `resource/name` a line.
    Name,
}

/// Writes one object, or many as a `List`.
pub(crate) fn objects(format: Format, objects: &[Value]) -> Result<()> {
    match objects {
        [one] => object(format, one),
        many => {
            let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": many});
            object(format, &list)
        }
    }
}

/// Writes one object as JSON or YAML, without the bookkeeping of field managers.
pub(crate) fn object(format: Format, object: &Value) -> Result<()> {
    let mut object = object.clone();
    drop_managed_fields(&mut object);
    match format {
        Format::Yaml => text(&yaml(&object)?),
        _ => text(&format!("{}\n", serde_json::to_string_pretty(&object)?)),
    }
}

/// YAML as kubectl writes it: block style, one document.
pub(crate) fn yaml(value: &Value) -> Result<String> {
    serde_saphyr::to_string(value).map_err(|error| Failure::failed(format!("cannot write YAML: {error}")))
}

fn drop_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    if let Some(items) = object.get_mut("items").and_then(Value::as_array_mut) {
        items.iter_mut().for_each(drop_managed_fields);
    }
}

/// Writes text to stdout as it stands.
pub(crate) fn text(text: &str) -> Result<()> {
    beside_progress(|| {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        Ok(())
    })
}

/// Writes a line to stdout.
pub(crate) fn line(line: &str) -> Result<()> {
    text(&format!("{line}\n"))
}

/// A remark that is no result, on stderr.
pub(crate) fn note(text: &str) {
    // Nobody can be told that stderr is closed.
    let _ = beside_progress(|| writeln!(io::stderr(), "{text}"));
}

/// A warning, on stderr.
pub(crate) fn warning(text: &str) {
    note(&format!("{} {text}", paint(Colour::Yellow, "Warning:")));
}

/// A failure and its hint, on stderr.
pub(crate) fn error(failure: &Failure) {
    note(&format!("{} {}", paint(Colour::Red, "error:"), failure.message));
    if let Some(hint) = &failure.hint {
        note(&format!("{} {hint}", paint(Colour::Cyan, "hint:")));
    }
}

/// Colours of words on stderr.
#[derive(Clone, Copy)]
pub(crate) enum Colour {
    Red = 31,
    Green = 32,
    Yellow = 33,
    Cyan = 36,
}

/// Colours `text` where stderr is a terminal that wants it (`NO_COLOR`, `TERM=dumb`).
pub(crate) fn paint(colour: Colour, text: &str) -> String {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
        || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if plain || !io::stderr().is_terminal() {
        return text.to_owned();
    }
    format!("\x1b[{}m{text}\x1b[0m", colour as u8)
}

/// To the start of the line, and nothing on it.
const ERASE: &str = "\r\x1b[K";

/// The line that [`Progress`] has drawn and rewrites in place; empty where there is none.
static DRAWN: Mutex<String> = Mutex::new(String::new());

/// Prints whole lines while the progress line is away.
fn beside_progress<T>(print: impl FnOnce() -> T) -> T {
    let drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
    if drawn.is_empty() {
        return print();
    }
    let _ = write!(io::stderr(), "{ERASE}");
    let printed = print();
    draw(&drawn);
    printed
}

/// A long line is cut at the terminal's edge (autowrap off): of one that wrapped, only the last row could be erased.
fn draw(text: &str) {
    let _ = write!(io::stderr(), "{ERASE}\x1b[?7l{text}\x1b[?7h");
}

/// A line that says what is being waited for; on a terminal it is rewritten in place.
#[derive(Default)]
pub(crate) struct Progress {
    last: String,
}

impl Progress {
    /// Shows `text` if it is news.
    pub(crate) fn show(&mut self, text: &str) {
        if text == self.last {
            return;
        }
        text.clone_into(&mut self.last);
        if io::stderr().is_terminal() {
            let mut drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
            text.clone_into(&mut drawn);
            draw(text);
        } else {
            note(text);
        }
    }
}

impl Drop for Progress {
    /// Takes the line away, so that other output starts on a clean one.
    fn drop(&mut self) {
        let mut drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::take(&mut *drawn).is_empty() {
            let _ = write!(io::stderr(), "{ERASE}");
        }
    }
}
