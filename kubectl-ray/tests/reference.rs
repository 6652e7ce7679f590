//! The reference and the man pages are made from the command line's own definitions.
//! `UPDATE=1 cargo test -p kubectl-ray --test reference` rewrites them.

// Clippy lets tests panic, but not what they call.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Arg, Command, CommandFactory as _};
use kubectl_ray::cli::Cli;

#[test]
fn reference_and_man_pages_are_in_sync() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/cli");
    let pages = pages();
    if std::env::var_os("UPDATE").is_some() {
        let _ = std::fs::remove_dir_all(&folder);
        for (path, text) in &pages {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }
    for (path, text) in &pages {
        let found = std::fs::read_to_string(folder.join(path)).unwrap_or_default();
        assert!(
            &found == text,
            "{} is out of date: run this test with UPDATE=1",
            path.display()
        );
    }
    let known: Vec<_> = files(&folder)
        .into_iter()
        .filter(|path| !pages.contains_key(path))
        .collect();
    assert!(known.is_empty(), "nothing makes {known:?}");
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path.strip_prefix(folder).unwrap().to_owned());
            }
        }
    }
    files
}

/// Every page by its path: one Markdown file a verb, one man page a command.
fn pages() -> BTreeMap<PathBuf, String> {
    let mut root = Cli::command();
    root.build();
    let mut pages = BTreeMap::new();
    let mut index = String::from(
        "# kubectl ray\n\nMade from the plugin's own definitions; do not edit.\n\n| verb | |\n|---|---|\n",
    );
    for verb in shown(&root) {
        let name = verb.get_name();
        writeln!(index, "| [{name}]({name}.md) | {} |", about(verb)).unwrap();
        let mut text = String::new();
        push_command(&mut text, verb, &format!("kubectl ray {name}"), 1);
        pages.insert(PathBuf::from(format!("{name}.md")), text);
    }
    index.push_str("\n## Connection options\n\nkubectl's own; every verb takes them.\n\n");
    push_options(
        &mut index,
        root.get_arguments()
            .filter(|arg| arg.is_global_set() && !arg.is_hide_set()),
    );
    writeln!(index, "\n{}", root.get_after_help().unwrap()).unwrap();
    pages.insert(PathBuf::from("README.md"), index);
    push_man(&mut pages, &root, "kubectl-ray");
    pages
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set())
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

fn push_command(text: &mut String, command: &Command, name: &str, depth: usize) {
    writeln!(
        text,
        "{} {name}\n\n{}.\n",
        "#".repeat(depth),
        about(command).trim_end_matches('.')
    )
    .unwrap();
    let usage = command.clone().render_usage().to_string();
    writeln!(text, "```\n{}\n```\n", usage.trim_start_matches("Usage: ")).unwrap();
    let aliases: Vec<_> = command.get_visible_aliases().collect();
    if !aliases.is_empty() {
        writeln!(text, "Also: {}\n", aliases.join(", ")).unwrap();
    }
    let own = command
        .get_arguments()
        .filter(|arg| !arg.is_global_set() && !arg.is_hide_set() && arg.get_id() != "help");
    push_options(text, own);
    if let Some(examples) = command.get_after_help() {
        let examples = examples.to_string();
        writeln!(text, "\n```\n{}\n```", examples.trim_start_matches("Examples:\n")).unwrap();
    }
    for sub in shown(command) {
        text.push('\n');
        push_command(text, sub, &format!("{name} {}", sub.get_name()), depth + 1);
    }
}

fn push_options<'a>(text: &mut String, args: impl Iterator<Item = &'a Arg>) {
    let rows: Vec<_> = args.map(row).collect();
    if !rows.is_empty() {
        writeln!(text, "| option | |\n|---|---|\n{}", rows.join("\n")).unwrap();
    }
}

fn row(arg: &Arg) -> String {
    let values: Vec<_> = arg
        .get_value_names()
        .unwrap_or_default()
        .iter()
        .map(|name| format!("<{name}>"))
        .collect();
    let takes_value = arg.get_action().takes_values();
    let value = if takes_value {
        values.join(" ")
    } else {
        String::new()
    };
    let flags: Vec<_> = arg
        .get_short()
        .map(|short| format!("-{short}"))
        .into_iter()
        .chain(arg.get_long().map(|long| format!("--{long}")))
        .collect();
    let name = format!("{} {value}", flags.join(", "));
    let mut help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let possible: Vec<_> = arg
        .get_possible_values()
        .iter()
        .map(|value| value.get_name().to_owned())
        .collect();
    if takes_value && !possible.is_empty() && !arg.is_hide_possible_values_set() {
        write!(help, " ({})", possible.join(", ")).unwrap();
    }
    let defaults: Vec<_> = arg
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy())
        .collect();
    if takes_value && !defaults.is_empty() {
        write!(help, " Default: `{}`.", defaults.join(" ")).unwrap();
    }
    format!(
        "| `{}` | {} |",
        name.trim().replace('|', "\\|"),
        help.replace('|', "\\|").replace('\n', " ")
    )
}

fn push_man(pages: &mut BTreeMap<PathBuf, String>, command: &Command, name: &str) {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page).unwrap();
    pages.insert(
        PathBuf::from(format!("man/{name}.1")),
        String::from_utf8(page).unwrap(),
    );
    for sub in shown(command) {
        push_man(pages, sub, &format!("{name}-{}", sub.get_name()));
    }
}
