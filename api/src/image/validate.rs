//! What a spec must hold to, beyond its schema. Webhook, operator and plugin say the same sentences.

use std::collections::BTreeSet;
use std::time::Duration;

use url::Url;

use super::reference::check_tag;
use super::{Invalid, Reference, Repository, render};
use crate::duration;
use crate::template::v1alpha1::ImageTemplateSpec;

/// Longest time of a build that names none.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Shortest and longest time that a build may be given.
const TIMEOUTS: std::ops::RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(24 * 3600);
/// Most retries of a build.
const MAX_BACKOFF_LIMIT: i32 = 10;
/// Most builds that are kept.
const MAX_HISTORY_LIMIT: i32 = 50;
/// Longest name of an object (a DNS subdomain).
const MAX_OBJECT_NAME: usize = 253;
/// Longest text of an environment variable or command.
const MAX_TEXT: usize = 64 * 1024;

/// Everything wrong with a spec; empty where it can be built.
#[must_use]
pub fn validate(spec: &ImageTemplateSpec) -> Vec<Invalid> {
    let mut invalid = render(spec).err().unwrap_or_default();
    let mut require = |passed: bool, field: &str, message: &str| {
        if !passed {
            invalid.push(Invalid::new(field, message));
        }
    };
    require(
        spec.backoff_limit
            .is_none_or(|limit| (0..=MAX_BACKOFF_LIMIT).contains(&limit)),
        "spec.backoffLimit",
        "must be 0 to 10",
    );
    require(
        spec.history_limit
            .is_none_or(|limit| (0..=MAX_HISTORY_LIMIT).contains(&limit)),
        "spec.historyLimit",
        "must be 0 to 50",
    );
    if let Some(repository) = &spec.repository
        && let Err(error) = repository.parse::<Repository>()
    {
        invalid.push(Invalid::new("spec.repository", error));
    }
    if let Some(tag) = &spec.tag
        && let Err(error) = check_tag(tag)
    {
        invalid.push(Invalid::new("spec.tag", error));
    }
    if let Err(problem) = timeout(spec) {
        invalid.push(problem);
    }
    invalid.extend(cache(spec));
    invalid.extend(secrets(spec));
    invalid
}

/// Sentences for a spec that can be built but may surprise.
#[must_use]
pub fn warnings(spec: &ImageTemplateSpec) -> Vec<String> {
    let mut warnings = Vec::new();
    if spec
        .base_image
        .parse::<Reference>()
        .is_ok_and(|base| base.is_floating())
    {
        warnings.push(format!(
            "spec.baseImage: {:?} may change under this name and then differs between builds: name a version or digest",
            spec.base_image
        ));
    }
    for name in spec.environment_variables.keys() {
        let upper = name.to_ascii_uppercase();
        if ["TOKEN", "PASSWORD", "SECRET", "API_KEY", "ACCESS_KEY"]
            .iter()
            .any(|word| upper.contains(word))
        {
            warnings.push(format!(
                "spec.environmentVariables.{name}: everyone who can pull the image can read this: give secrets to the pods instead"
            ));
        }
    }
    if spec.environment_variables.contains_key("PATH") {
        warnings.push(
            "spec.environmentVariables.PATH: replaces the image's own PATH; $PATH in it is not expanded"
                .to_owned(),
        );
    }
    if spec
        .cache
        .as_ref()
        .is_some_and(|cache| cache.enabled == Some(true))
    {
        warnings.push("spec.cache: packages' install scripts can read the cache's push secret".to_owned());
    }
    warnings
}

/// Longest time of one attempt.
///
/// # Errors
/// When the text is no duration, or out of range.
pub fn timeout(spec: &ImageTemplateSpec) -> Result<Duration, Invalid> {
    let Some(text) = &spec.timeout else {
        return Ok(DEFAULT_TIMEOUT);
    };
    duration::parse(text)
        .filter(|timeout| TIMEOUTS.contains(timeout))
        .ok_or_else(|| {
            Invalid::new(
                "spec.timeout",
                format!("{text:?} is not a time from 1m to 24h: write 30m or 1h30m"),
            )
        })
}

/// Hosts of the package indexes that a spec names: the only ones that its pip credentials are for.
#[must_use]
pub fn netrc_hosts(spec: &ImageTemplateSpec) -> BTreeSet<String> {
    let Some(pip) = &spec.pip else {
        return BTreeSet::new();
    };
    pip.index_url
        .iter()
        .chain(&pip.extra_index_urls)
        .filter_map(|text| index_url(text).ok())
        .filter_map(|url| url.host_str().map(str::to_owned))
        .collect()
}

/// A package index's address.
pub(super) fn index_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("{text:?} is not a URL: {error}"))?;
    if !matches!(url.scheme(), "https" | "http") || url.host_str().is_none() {
        return Err(format!(
            "{text:?} is not the address of an index: write https://host/path"
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        // The text itself is not repeated: it holds a credential.
        return Err("a URL with a user or password would be readable in the image: put them into a Secret and name it in spec.pip.credentialsSecret".to_owned());
    }
    if url.fragment().is_some() || url.as_str().contains(['\'', '\\', '$', '`', ' ']) {
        return Err(format!(
            "{text:?} holds a character that an index address must not hold: # ' \\ $ ` or a space"
        ));
    }
    Ok(url)
}

/// Fields that reach the Dockerfile and are no package.
pub(super) fn dockerfile_fields(spec: &ImageTemplateSpec) -> Vec<Invalid> {
    let mut invalid = Vec::new();
    if let Some(user) = &spec.user
        && !is_user(user)
    {
        invalid.push(Invalid::new(
            "spec.user",
            format!("{user:?} is not a user: write a name, a number, or user:group"),
        ));
    }
    if let Some(platform) = &spec.platform
        && !is_platform(platform)
    {
        invalid.push(Invalid::new(
            "spec.platform",
            format!("{platform:?} is not a platform: write linux/amd64 or linux/arm64"),
        ));
    }
    for (name, value) in &spec.environment_variables {
        invalid.extend(environment_variable(name, value));
    }
    for (index, command) in spec.custom_commands.iter().enumerate() {
        let field = format!("spec.customCommands[{index}]");
        if command.trim().is_empty() {
            invalid.push(Invalid::new(field, "the command is empty: remove the item"));
        } else if command.contains('\0') || command.len() > MAX_TEXT {
            invalid.push(Invalid::new(
                field,
                "a command is at most 64 KiB of text without NUL",
            ));
        }
    }
    if let Some(pip) = &spec.pip {
        let first = pip
            .index_url
            .iter()
            .map(|url| ("spec.pip.indexUrl".to_owned(), url));
        let more = pip.extra_index_urls.iter().enumerate();
        let more = more.map(|(index, url)| (format!("spec.pip.extraIndexUrls[{index}]"), url));
        for (field, url) in first.chain(more) {
            if let Err(message) = index_url(url) {
                invalid.push(Invalid::new(field, message));
            }
        }
    }
    invalid
}

fn environment_variable(name: &str, value: &str) -> Option<Invalid> {
    let starts = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    let is_name =
        name.bytes().next().is_some_and(starts) && name.bytes().all(|b| starts(b) || b.is_ascii_digit());
    if !is_name {
        let field = "spec.environmentVariables";
        return Some(Invalid::new(
            field,
            format!(
                "{name:?} is not a variable's name: use letters, digits and _, not starting with a digit"
            ),
        ));
    }
    let field = format!("spec.environmentVariables.{name}");
    if value.len() > MAX_TEXT {
        return Some(Invalid::new(field, "a value is at most 64 KiB"));
    }
    value.chars().find(|c| c.is_control() && *c != '\t').map(|odd| {
        Invalid::new(
            field,
            format!("holds the control character {odd:?}: a value is one line"),
        )
    })
}

fn is_user(text: &str) -> bool {
    let part = |part: &str| {
        part.bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_')
            && part.len() <= 64
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
    };
    match text.split_once(':') {
        Some((user, group)) => part(user) && part(group),
        None => part(text),
    }
}

fn is_platform(text: &str) -> bool {
    let parts: Vec<_> = text.split('/').collect();
    let word =
        |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    parts.first() == Some(&"linux") && (2..=3).contains(&parts.len()) && parts.iter().all(word)
}

fn cache(spec: &ImageTemplateSpec) -> Vec<Invalid> {
    let Some(cache) = spec.cache.as_ref().filter(|cache| cache.enabled == Some(true)) else {
        return Vec::new();
    };
    let mut invalid = Vec::new();
    match cache.repository.as_deref().map(str::parse::<Repository>) {
        Some(Ok(_)) => {}
        Some(Err(error)) => invalid.push(Invalid::new("spec.cache.repository", error)),
        None => invalid.push(Invalid::new(
            "spec.cache.repository",
            "a cache that is enabled needs a repository",
        )),
    }
    if cache.push_secret.is_some() && cache.push_secret == spec.push_secret {
        let message = "must not be the push secret of the image: the build's commands can read it";
        invalid.push(Invalid::new("spec.cache.pushSecret", message));
    }
    invalid
}

fn secrets(spec: &ImageTemplateSpec) -> Vec<Invalid> {
    let one = |field: &str, name: &Option<String>| name.clone().map(|name| (field.to_owned(), name));
    let many = |field: &str, names: &[String]| -> Vec<_> {
        let named = names.iter().enumerate();
        named
            .map(|(index, name)| (format!("{field}[{index}]"), name.clone()))
            .collect()
    };
    let pip = spec.pip.as_ref().and_then(|pip| pip.credentials_secret.clone());
    let cache = spec.cache.as_ref().and_then(|cache| cache.push_secret.clone());
    one("spec.pushSecret", &spec.push_secret)
        .into_iter()
        .chain(many("spec.pullSecrets", &spec.pull_secrets))
        .chain(many("spec.runPullSecrets", &spec.run_pull_secrets))
        .chain(one("spec.pip.credentialsSecret", &pip))
        .chain(one("spec.cache.pushSecret", &cache))
        .filter(|(_, name)| !is_object_name(name))
        .map(|(field, name)| Invalid::new(field, format!("{name:?} is not the name of a Secret")))
        .collect()
}

fn is_object_name(name: &str) -> bool {
    let label = |label: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        label.bytes().next().is_some_and(inner)
            && label.bytes().last().is_some_and(inner)
            && label.bytes().all(|b| inner(b) || b == b'-')
    };
    name.len() <= MAX_OBJECT_NAME && name.split('.').all(label)
}
