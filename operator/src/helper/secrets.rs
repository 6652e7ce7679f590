//! The one step that sees the Secrets: checks each, and hands on only the logins that a later step needs.
//!
//! The build runs commands that nobody vouches for. It gets the login for the base image's registry and for the
//! package indexes, never a whole Secret; the push gets the login for its registry. A Secret of another kind never
//! gets past this step, whoever names it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde_json::{Map, Value, json};

/// Key of a Secret of type `kubernetes.io/dockerconfigjson`.
pub(crate) const DOCKER_KEY: &str = ".dockerconfigjson";
/// Key of a Secret of type `templates.ray.io/pip-credentials`.
pub(crate) const NETRC_KEY: &str = "netrc";
/// Docker Hub's name in login files.
const DOCKER_HUB_KEY: &str = "https://index.docker.io/v1/";

/// Mounted Secrets, each in a folder of its name, and what they are for.
#[derive(Debug, clap::Args)]
pub struct SecretsArgs {
    /// REGISTRY=FOLDER of the Secret to push the image with.
    #[arg(long, value_parser = Login::parse)]
    push: Option<Login>,
    /// REGISTRY=FOLDER of a Secret to pull the base image with; repeatable.
    #[arg(long, value_parser = Login::parse)]
    pull: Vec<Login>,
    /// REGISTRY=FOLDER of a Secret that the build pushes with: cached layers, or the image where build and push are one; repeatable.
    #[arg(long, value_parser = Login::parse)]
    cache: Vec<Login>,
    /// Folder of the Secret with the package indexes' logins.
    #[arg(long)]
    pip: Option<PathBuf>,
    /// Host of a package index; repeatable.
    #[arg(long)]
    pip_host: Vec<String>,
    /// Folder that the build reads.
    #[arg(long)]
    build_folder: Option<PathBuf>,
    /// Folder that the push reads.
    #[arg(long)]
    push_folder: Option<PathBuf>,
}

/// A mounted Secret and the registry that it is for.
#[derive(Clone, Debug)]
struct Login {
    registry: String,
    secret: PathBuf,
}

impl Login {
    fn parse(text: &str) -> Result<Self, String> {
        let (registry, secret) = text.split_once('=').ok_or("write REGISTRY=FOLDER")?;
        Ok(Self {
            registry: registry.to_owned(),
            secret: secret.into(),
        })
    }
}

pub(super) fn run(args: &SecretsArgs) -> anyhow::Result<()> {
    if let (Some(push), Some(folder)) = (&args.push, &args.push_folder) {
        let logins = logins(std::slice::from_ref(push))?;
        write(folder, "config.json", &json!({ "auths": logins }).to_string())?;
    }
    let Some(folder) = &args.build_folder else {
        return Ok(());
    };
    let mut auths = Map::new();
    for group in std::iter::once(args.pull.as_slice()).chain(args.cache.chunks(1)) {
        auths.extend(logins(group)?);
    }
    write(folder, "config.json", &json!({ "auths": auths }).to_string())?;
    if let Some(secret) = &args.pip {
        write(folder, "netrc", &netrc(secret, &args.pip_host)?)?;
    }
    Ok(())
}

/// World-readable: the volume is mounted into one more container, whose user we do not choose.
fn write(folder: &Path, name: &str, content: &str) -> anyhow::Result<()> {
    let path = folder.join(name);
    fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
}

/// The logins for the registry that all of the Secrets are for; the first Secret that has one wins.
fn logins(secrets: &[Login]) -> anyhow::Result<Map<String, Value>> {
    let mut found = Map::new();
    let mut others = Vec::new();
    for Login { registry, secret } in secrets {
        for (key, login) in docker_config(secret)? {
            let host = host(&key);
            if host != *registry {
                others.push(host);
                continue;
            }
            let key = if host == "docker.io" {
                DOCKER_HUB_KEY.to_owned()
            } else {
                key
            };
            found.entry(key).or_insert(login);
        }
    }
    if let Some(first) = secrets.first().filter(|_| found.is_empty()) {
        let names: Vec<_> = secrets.iter().map(|one| name(&one.secret)).collect();
        bail!(
            "Secret {} has no login for {}, only for {}: add one, or name another Secret",
            names.join(", "),
            first.registry,
            listed(&others)
        );
    }
    Ok(found)
}

fn listed(hosts: &[impl std::borrow::Borrow<str>]) -> String {
    match hosts {
        [] => "nothing".to_owned(),
        hosts => hosts.join(", "),
    }
}

fn docker_config(secret: &Path) -> anyhow::Result<BTreeMap<String, Value>> {
    let wrong = || {
        format!(
            "Secret {} is not of type kubernetes.io/dockerconfigjson",
            name(secret)
        )
    };
    // Neither the parser's words nor the text: both may hold the credential.
    let text = fs::read(secret.join(DOCKER_KEY)).with_context(wrong)?;
    let Ok(config) = serde_json::from_slice::<Value>(&text) else {
        bail!("{}: {DOCKER_KEY} is not JSON", wrong());
    };
    let auths = config
        .get("auths")
        .and_then(Value::as_object)
        .with_context(wrong)?;
    Ok(auths
        .iter()
        .map(|(key, login)| (key.clone(), login.clone()))
        .collect())
}

/// The host in a login's key, which may be a URL or have a path.
fn host(key: &str) -> String {
    let rest = key.split_once("://").map_or(key, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or_default().to_ascii_lowercase();
    match host.as_str() {
        "index.docker.io" | "registry-1.docker.io" => "docker.io".to_owned(),
        _ => host,
    }
}

/// The entries for the given hosts; `default` and macros are never handed on.
fn netrc(secret: &Path, hosts: &[String]) -> anyhow::Result<String> {
    let wrong = || {
        format!(
            "Secret {} is not of type templates.ray.io/pip-credentials with the key {NETRC_KEY}",
            name(secret)
        )
    };
    let text = fs::read_to_string(secret.join(NETRC_KEY)).with_context(wrong)?;
    let mut words = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .flat_map(str::split_whitespace)
        .peekable();
    let (mut written, mut others) = (String::new(), Vec::new());
    while let Some(word) = words.next() {
        ensure!(
            matches!(word, "machine" | "default"),
            "{}: it starts an entry with neither machine nor default",
            wrong()
        );
        let machine = if word == "machine" {
            words.next().unwrap_or_default()
        } else {
            ""
        };
        let mut entry = format!("machine {machine}");
        while let Some(field) = words.next_if(|word| matches!(*word, "login" | "password" | "account")) {
            entry.push_str(&format!(" {field} {}", words.next().unwrap_or_default()));
        }
        if hosts.iter().any(|host| host == machine) {
            written.push_str(&entry);
            written.push('\n');
        } else {
            others.push(machine);
        }
    }
    ensure!(
        !written.is_empty(),
        "Secret {} has no login for {}, only for {}: add a line `machine HOST login USER password PASSWORD`",
        name(secret),
        hosts.join(", "),
        listed(&others)
    );
    Ok(written)
}

fn name(secret: &Path) -> String {
    secret
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(folder: &Path, name: &str, key: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join(key), text).unwrap();
        path
    }

    fn login(registry: &str, secret: PathBuf) -> Login {
        Login {
            registry: registry.to_owned(),
            secret,
        }
    }

    #[test]
    fn each_step_gets_its_own_logins_only() {
        let folder = tempfile::tempdir().unwrap();
        let push = secret(
            folder.path(),
            "push",
            DOCKER_KEY,
            r#"{"auths": {"reg.example:5000": {"auth": "cHVzaA=="}, "other.example": {"auth": "b3RoZXI="}}}"#,
        );
        let pull = secret(
            folder.path(),
            "pull",
            DOCKER_KEY,
            r#"{"auths": {"docker.io": {"auth": "aHVi"}, "https://third.example/v1/": {"auth": "dGhpcmQ="}}}"#,
        );
        let pip = secret(
            folder.path(),
            "pip",
            NETRC_KEY,
            "# mine\nmachine index.example login me\n  password pw1\ndefault login x password pw2\nmachine else.example login y password pw3\n",
        );
        let (build, out) = (folder.path().join("b"), folder.path().join("p"));
        fs::create_dir(&build).unwrap();
        fs::create_dir(&out).unwrap();
        run(&SecretsArgs {
            push: Some(login("reg.example:5000", push)),
            pull: vec![login("docker.io", pull)],
            cache: Vec::new(),
            pip: Some(pip),
            pip_host: vec!["index.example".to_owned()],
            build_folder: Some(build.clone()),
            push_folder: Some(out.clone()),
        })
        .unwrap();
        let read = |path: PathBuf| fs::read_to_string(path).unwrap();
        assert_eq!(
            read(out.join("config.json")),
            r#"{"auths":{"reg.example:5000":{"auth":"cHVzaA=="}}}"#
        );
        assert_eq!(
            read(build.join("config.json")),
            r#"{"auths":{"https://index.docker.io/v1/":{"auth":"aHVi"}}}"#
        );
        assert_eq!(
            read(build.join("netrc")),
            "machine index.example login me password pw1\n"
        );
    }

    #[test]
    fn a_wrong_secret_is_named_without_its_content() {
        let folder = tempfile::tempdir().unwrap();
        for (key, text, expected) in [
            (
                DOCKER_KEY,
                "hunter2",
                "not of type kubernetes.io/dockerconfigjson",
            ),
            (
                DOCKER_KEY,
                r#"{"password": "hunter2"}"#,
                "not of type kubernetes.io/dockerconfigjson",
            ),
            (
                DOCKER_KEY,
                r#"{"auths": {"other.example": {"password": "hunter2"}}}"#,
                "no login for reg.example, only for other.example",
            ),
        ] {
            let path = secret(folder.path(), "push", key, text);
            let error = format!("{:#}", logins(&[login("reg.example", path)]).unwrap_err());
            assert!(error.contains(expected) && error.contains("push"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let path = secret(folder.path(), "pip", NETRC_KEY, "hunter2 machine");
        let error = format!("{:#}", netrc(&path, &["a".to_owned()]).unwrap_err());
        assert!(
            error.contains("pip-credentials") && !error.contains("hunter2"),
            "{error}"
        );
    }
}
