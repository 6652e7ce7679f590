//! Logs: one line an event, as text or JSON, filtered by `RUST_LOG`-style directives.

use std::str::FromStr;

use tracing_subscriber::EnvFilter;

/// Shape of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line, for collectors.
    #[default]
    Json,
    /// For people.
    Text,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "json" => Ok(Self::Json),
            "text" | "console" => Ok(Self::Text),
            other => Err(format!("unknown log format {other:?}: use json or text")),
        }
    }
}

/// Starts logging to stderr.
///
/// # Errors
/// When `directives` do not parse, or logging was started before.
pub fn init(format: LogFormat, directives: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(directives)
        .map_err(|error| anyhow::anyhow!("log level {directives:?} does not parse: {error}"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("logging was started twice: {error}"))
}
