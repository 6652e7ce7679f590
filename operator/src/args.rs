//! The command line. KubeRay's flags keep their names, so that a chart of theirs starts this operator too.

use std::net::SocketAddr;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Runs Ray on Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "ray-operator", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do instead of running the operator.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How to run the operator.
    #[command(flatten)]
    pub run: RunArgs,
}

/// What the binary does besides being the operator.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Steps that run inside the pods of image builds.
    #[command(hide = true)]
    Helper(crate::helper::HelperArgs),
}

/// A controller that can be switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ControllerName {
    /// RayClusters.
    Cluster,
    /// ImageTemplates.
    Image,
    /// Gates and users of templates.
    Template,
    /// Serve health.
    Serve,
}

/// Flags of the operator.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Controllers to run.
    #[arg(long, value_delimiter = ',', default_value = "cluster,image,template,serve")]
    pub controllers: Vec<ControllerName>,
    /// Namespaces to watch, comma-separated; all where absent.
    #[arg(long, env = "WATCH_NAMESPACE", value_delimiter = ',')]
    pub watch_namespace: Vec<String>,
    /// Address of the metrics endpoint; `:8080` means every interface.
    #[arg(long, default_value = ":8080", value_parser = parse_address)]
    pub metrics_addr: SocketAddr,
    /// Address of the health endpoints.
    #[arg(long, default_value = ":8082", value_parser = parse_address)]
    pub health_probe_bind_address: SocketAddr,
    /// Only the holder of the Lease works; others wait.
    #[arg(long, default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = parse_bool)]
    pub enable_leader_election: bool,
    /// Namespace of the Lease; the operator's own where absent.
    #[arg(long, env = "POD_NAMESPACE")]
    pub leader_election_namespace: Option<String>,
    /// Objects of a kind that are reconciled at the same time.
    #[arg(long, default_value_t = 16)]
    pub reconcile_concurrency: u16,
    /// Log lines: json or text.
    #[arg(long, alias = "log-stdout-encoder", default_value = "json")]
    pub log_format: String,
    /// Log filter, as `info` or `ray_operator=debug,info`.
    #[arg(long, env = "RUST_LOG", default_value = "info")]
    pub log_level: String,
    /// Flags of the cluster controller.
    #[command(flatten)]
    pub cluster: crate::cluster::ClusterArgs,
    /// Flags of the image controller.
    #[command(flatten)]
    pub image: crate::image::ImageArgs,
    /// Flags of the template controller.
    #[command(flatten)]
    pub template: crate::template::TemplateArgs,
    /// Flags of Serve health.
    #[command(flatten)]
    pub serve: crate::serve::ServeArgs,
    /// KubeRay's flags that mean nothing here.
    #[command(flatten)]
    pub ignored: crate::compat::IgnoredArgs,
}

impl RunArgs {
    /// Whether that controller is switched on.
    #[must_use]
    pub fn runs(&self, name: ControllerName) -> bool {
        self.controllers.contains(&name)
    }

    /// Says which of KubeRay's flags were given in vain.
    pub fn warn_of_ignored_flags(&self) {
        for (flag, instead) in self.ignored.given() {
            tracing::warn!(
                setting = flag,
                "this setting of KubeRay's operator has no effect: {instead}"
            );
        }
    }
}

/// `true` or `false` in any case; anything else is refused, since a misread switch is silently off.
///
/// # Errors
/// For every other text, such as a quoted `"true"`.
pub fn parse_bool(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

/// Go writes `:8080` for every interface.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let full = if text.starts_with(':') {
        format!("0.0.0.0{text}")
    } else {
        text.to_owned()
    };
    full.parse()
        .map_err(|error| format!("{text:?} is not an address such as :8080: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> RunArgs {
        Cli::try_parse_from([&["ray-operator"], args].concat())
            .unwrap()
            .run
    }

    #[test]
    fn kuberays_command_line_starts_this_operator() {
        let args = parse(&[
            "--enable-leader-election=true",
            "--feature-gates=RayClusterStatusConditions=true",
            "--metrics-addr=:9090",
            "--reconcile-concurrency=4",
            "--watch-namespace=a,b",
            "--enable-metrics",
            "--qps=100",
            "--burst=200",
        ]);
        assert_eq!(args.watch_namespace, ["a", "b"]);
        assert_eq!(args.metrics_addr.port(), 9090);
        let ignored: Vec<_> = args.ignored.given().into_iter().map(|(flag, _)| flag).collect();
        assert_eq!(ignored, ["--feature-gates", "--qps", "--burst"]);
    }

    #[test]
    fn a_switch_that_is_neither_true_nor_false_is_refused() {
        assert!(parse_bool("TRUE").unwrap());
        assert!(parse_bool("\"true\"").is_err());
        assert!(!parse(&["--enable-leader-election=False"]).enable_leader_election);
    }
}
