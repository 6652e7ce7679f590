//! Flags of the image controller.

use clap::{ArgAction, Args, ValueEnum};
use ray_runtime::policy::PolicyArgs;

/// The maintained kaniko fork.
const BUILDER_IMAGE: &str = "ghcr.io/osscontainertools/kaniko:v1.28.3";

/// Most bytes of a registry's certificates: they travel in each build's ConfigMap.
const MAX_CERTIFICATE_BYTES: usize = 64 * 1024;

/// Which kaniko the builder image holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum BuilderFlavor {
    /// The maintained fork, whose `push` is a step of its own: no command of a build sees the push secret.
    #[default]
    Maintained,
    /// The archived original: one container builds and pushes, so that commands of a build can read the push secret.
    Archived,
}

/// Certificates that are trusted for a registry, besides those of the builder image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryCertificate {
    /// The registry, as images name it.
    pub host: String,
    /// One or more certificates.
    pub pem: String,
}

impl RegistryCertificate {
    /// Reads `HOST=FILE`.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let (host, file) = text
            .split_once('=')
            .filter(|(host, file)| !host.is_empty() && !file.is_empty())
            .ok_or("say HOST:PORT=FILE, as in reg.example:5000=/etc/registry/ca.crt")?;
        let pem = std::fs::read_to_string(file).map_err(|error| format!("cannot read {file}: {error}"))?;
        if !pem.contains("-----BEGIN CERTIFICATE-----") {
            return Err(format!("{file} holds no certificate in PEM"));
        }
        if pem.contains("PRIVATE KEY-----") {
            return Err(format!("{file} holds a private key: every build could read it"));
        }
        if pem.len() > MAX_CERTIFICATE_BYTES {
            return Err(format!(
                "{file} has more than {MAX_CERTIFICATE_BYTES} bytes: name the registry's own CA, not a bundle of all"
            ));
        }
        Ok(Self {
            host: host.to_owned(),
            pem,
        })
    }
}

/// Flags of the image controller.
#[derive(Clone, Debug, Args)]
pub struct ImageArgs {
    /// Image of the kaniko executor.
    #[arg(long, default_value = BUILDER_IMAGE)]
    pub builder_image: String,
    /// Which kaniko the builder image holds.
    #[arg(long, value_enum, default_value_t)]
    pub builder_flavor: BuilderFlavor,
    /// Image that holds this binary at /usr/local/bin/ray-operator, for the steps around a build.
    #[arg(long, default_value = concat!("ghcr.io/kubectl-ray/servers:", env!("CARGO_PKG_VERSION")))]
    pub helper_image: String,
    /// Secret, in each template's namespace, to pull the two images above with; repeatable.
    #[arg(long)]
    pub builder_pull_secret: Vec<String>,
    /// CA certificate (PEM) of a registry that builds pull from or push to, as HOST:PORT=FILE; repeatable.
    #[arg(long, value_name = "HOST=FILE", value_parser = RegistryCertificate::read)]
    pub registry_certificate: Vec<RegistryCertificate>,
    /// Registry (host:port) that is reached over plain HTTP; repeatable.
    #[arg(long)]
    pub insecure_registry: Vec<String>,
    /// Registry (host:port) that is asked before docker.io; repeatable.
    #[arg(long)]
    pub registry_mirror: Vec<String>,
    /// Whether each built image is started once, to read its Ray and Python versions.
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub verify_images: bool,
    /// What the platform team allows.
    #[command(flatten)]
    pub policy: PolicyArgs,
}
