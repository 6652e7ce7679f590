//! From a spec to the text and files of a build. Same spec, same bytes, whatever the order of its maps.

use std::collections::BTreeMap;
use std::fmt::Write;

use sha2::{Digest, Sha256};

use super::packages::{conda_package, pip_package, system_package};
use super::validate::{self, index_url};
use super::{Invalid, Reference};
use crate::template::v1alpha1::{ImageTemplateSpec, PipOptions};

/// Folder of the image that keeps what was asked for: requirements and scripts.
pub const CONTEXT_FOLDER: &str = "/opt/ray-image";
/// Where a build that names pip credentials finds them; a mount, so that no layer holds it.
pub const NETRC_PATH: &str = "/run/ray-image/netrc";
/// Most bytes of Dockerfile and files together: they travel in one ConfigMap, which ends at 1 MiB.
pub const MAX_CONTEXT_BYTES: usize = 256 * 1024;

/// A comment without `=`, so that no later line can be read as a parser directive.
const FIRST_LINE: &str = "# Rendered from an ImageTemplate. Edit that, not this.";
/// Hexadecimal digits of an inputs hash: 128 bits, also a legal tag and label.
const HASH_DIGITS: usize = 32;

/// Everything that the builder gets: what decides about the image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildContext {
    /// Text of the Dockerfile.
    pub dockerfile: String,
    /// Files beside it by name; names are ours, never a user's.
    pub files: BTreeMap<String, String>,
    /// Platform such as `linux/arm64`; the node's where absent.
    pub platform: Option<String>,
}

impl BuildContext {
    fn bytes(&self) -> usize {
        self.dockerfile.len() + self.files.values().map(String::len).sum::<usize>()
    }
}

/// Renders a spec.
///
/// Order: base, system packages, conda, pip, environment, custom commands. Nothing is emitted for an empty list.
///
/// # Errors
/// Every field that cannot be rendered, with its path.
pub fn render(spec: &ImageTemplateSpec) -> Result<BuildContext, Vec<Invalid>> {
    let mut invalid = validate::dockerfile_fields(spec);
    let system = parse_all(
        "spec.systemPackages",
        &spec.system_packages,
        system_package,
        &mut invalid,
    );
    let conda = parse_all(
        "spec.condaPackages",
        &spec.conda_packages,
        conda_package,
        &mut invalid,
    );
    let pip = parse_all("spec.pipPackages", &spec.pip_packages, pip_package, &mut invalid);
    let base = match spec.base_image.parse::<Reference>() {
        Ok(base) if invalid.is_empty() => base,
        Ok(_) => return Err(invalid),
        Err(error) => {
            invalid.insert(0, Invalid::new("spec.baseImage", error));
            return Err(invalid);
        }
    };
    let mut context = BuildContext {
        dockerfile: format!("{FIRST_LINE}\nFROM {base}\n"),
        files: BTreeMap::new(),
        platform: spec.platform.clone(),
    };
    add_system(&mut context, &system, spec.user.as_deref(), &base);
    add_conda(&mut context, &conda);
    add_pip(&mut context, &pip, spec.pip.as_ref());
    for (name, value) in &spec.environment_variables {
        line(&mut context, format_args!("ENV {name}={}", double_quoted(value)));
    }
    add_commands(&mut context, &spec.custom_commands);
    let bytes = context.bytes();
    if bytes > MAX_CONTEXT_BYTES {
        let message = format!(
            "the packages and commands render to {bytes} bytes, more than {MAX_CONTEXT_BYTES}: move what is large into the base image"
        );
        return Err(vec![Invalid::new("spec", message)]);
    }
    Ok(context)
}

/// Hash of what decides about an image: equal inputs are never built twice.
#[must_use]
pub fn inputs_hash(context: &BuildContext) -> String {
    let mut hash = Sha256::new();
    // Lengths first, so that no two different lists of parts read the same.
    let mut part = |bytes: &str| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes.as_bytes());
    };
    part(context.platform.as_deref().unwrap_or_default());
    part(&context.dockerfile);
    for (name, text) in &context.files {
        part(name);
        part(text);
    }
    let mut digits = String::with_capacity(HASH_DIGITS);
    for byte in hash.finalize().iter().take(HASH_DIGITS / 2) {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

/// The user that an image most likely runs as: Ray's images are named `ray` or `ray-…` and have the user `ray`.
#[must_use]
pub fn default_user(base: &Reference) -> &'static str {
    let name = base.repository.path.rsplit('/').next().unwrap_or_default();
    if name == "ray" || name.starts_with("ray-") {
        "ray"
    } else {
        "root"
    }
}

/// apt needs root; everything after it must not become root's.
fn add_system(context: &mut BuildContext, packages: &[String], user: Option<&str>, base: &Reference) {
    if packages.is_empty() {
        if let Some(user) = user {
            line(context, format_args!("USER {user}"));
        }
        return;
    }
    line(context, format_args!("USER root"));
    line(
        context,
        format_args!(
            "RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends -- {} && rm -rf /var/lib/apt/lists/*",
            packages.join(" ")
        ),
    );
    let user = user.unwrap_or_else(|| default_user(base));
    line(context, format_args!("USER {user}"));
}

fn add_conda(context: &mut BuildContext, packages: &[String]) {
    if !packages.is_empty() {
        let words: Vec<_> = packages.iter().map(|package| single_quoted(package)).collect();
        line(
            context,
            format_args!("RUN conda install --yes --quiet {}", words.join(" ")),
        );
    }
}

fn add_pip(context: &mut BuildContext, packages: &[String], options: Option<&PipOptions>) {
    if packages.is_empty() {
        return;
    }
    let path = add_file(context, "requirements.txt", packages.join("\n") + "\n");
    let mut command = String::new();
    let flag = |set: Option<bool>| set == Some(true);
    if options.is_some_and(|options| options.credentials_secret.is_some()) {
        let _ = write!(command, "NETRC={NETRC_PATH} ");
    }
    if options.is_some_and(|options| flag(options.break_system_packages)) {
        // As a variable: pip before 23 does not know the flag.
        command.push_str("PIP_BREAK_SYSTEM_PACKAGES=1 ");
    }
    command.push_str("pip install --no-input --no-cache-dir --disable-pip-version-check");
    if let Some(options) = options {
        let first = options.index_url.iter().map(|url| ("--index-url", url));
        let more = options
            .extra_index_urls
            .iter()
            .map(|url| ("--extra-index-url", url));
        for (option, text) in first.chain(more) {
            let Ok(url) = index_url(text) else { continue };
            let _ = write!(command, " {option} {}", single_quoted(url.as_str()));
            if let ("http", Some(host)) = (url.scheme(), url.host_str()) {
                let _ = write!(command, " --trusted-host {}", single_quoted(host));
            }
        }
    }
    line(context, format_args!("RUN {command} --requirement {path}"));
}

fn add_commands(context: &mut BuildContext, commands: &[String]) {
    for (index, command) in commands.iter().enumerate() {
        let path = add_file(
            context,
            &format!("command-{}.sh", index + 1),
            format!("{command}\n"),
        );
        line(
            context,
            format_args!(r#"RUN ["/bin/bash", "-eo", "pipefail", "{path}"]"#),
        );
    }
}

/// Adds a file to the context and the image; returns its path there.
fn add_file(context: &mut BuildContext, name: &str, text: String) -> String {
    let path = format!("{CONTEXT_FOLDER}/{name}");
    line(context, format_args!(r#"COPY ["{name}", "{path}"]"#));
    context.files.insert(name.to_owned(), text);
    path
}

fn line(context: &mut BuildContext, text: std::fmt::Arguments<'_>) {
    let _ = writeln!(context.dockerfile, "{text}");
}

/// The text as one shell word; callers hold only text without quotes.
fn single_quoted(text: &str) -> String {
    format!("'{text}'")
}

/// The text as a Dockerfile's double-quoted word: the three characters that mean something there are escaped.
fn double_quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        if matches!(character, '\\' | '"' | '$') {
            quoted.push('\\');
        }
        quoted.push(character);
    }
    quoted.push('"');
    quoted
}

fn parse_all(
    field: &str,
    items: &[String],
    parse: fn(&str) -> Result<String, String>,
    invalid: &mut Vec<Invalid>,
) -> Vec<String> {
    let mut parsed = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        match parse(item) {
            Ok(item) => parsed.push(item),
            Err(message) => invalid.push(Invalid::new(format!("{field}[{index}]"), message)),
        }
    }
    parsed
}
