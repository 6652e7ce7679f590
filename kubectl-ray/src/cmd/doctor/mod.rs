//! `doctor`: what is installed, reachable, expired or missing, each with what to do.

mod certificates;
mod clusters;
mod install;
mod rights;

use clap::Args;
use serde_json::json;

use crate::connection::ConnectionArgs;
use crate::error::{Failure, Result};
use crate::output::{self, Format};

/// Flags of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Form of the output.
    #[arg(short, long, value_enum, default_value = "table", hide_default_value = true)]
    output: Format,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grade {
    Ok,
    Warning,
    Problem,
    /// Could not be looked at, for want of rights.
    Unknown,
}

/// One thing that was looked at.
#[derive(Debug)]
struct Finding {
    grade: Grade,
    subject: String,
    message: String,
    fix: Option<String>,
}

impl Finding {
    fn new(grade: Grade, subject: &str, message: impl Into<String>) -> Self {
        Self {
            grade,
            subject: subject.to_owned(),
            message: message.into(),
            fix: None,
        }
    }

    fn ok(subject: &str, message: impl Into<String>) -> Self {
        Self::new(Grade::Ok, subject, message)
    }

    fn warning(subject: &str, message: impl Into<String>, fix: &str) -> Self {
        Self {
            fix: Some(fix.to_owned()),
            ..Self::new(Grade::Warning, subject, message)
        }
    }

    fn problem(subject: &str, message: impl Into<String>, fix: &str) -> Self {
        Self {
            fix: Some(fix.to_owned()),
            ..Self::new(Grade::Problem, subject, message)
        }
    }

    /// What could not be read: no right to is no problem of the installation.
    fn of_error(subject: &str, error: kube::Error) -> Self {
        let failure = Failure::from(error);
        let grade = if failure.exit == crate::error::Exit::Denied {
            Grade::Unknown
        } else {
            Grade::Problem
        };
        Self {
            fix: failure.hint.clone(),
            ..Self::new(grade, subject, failure.message)
        }
    }
}

pub(crate) async fn run(connection: &ConnectionArgs, args: &DoctorArgs) -> Result<()> {
    let connected = connection.connect().await?;
    // Without an API server there is nothing else to look at: the error says what is wrong.
    let version = connected.client.apiserver_version().await?;
    let mut findings = vec![Finding::ok(
        "api server",
        format!("Kubernetes {}", version.git_version),
    )];
    findings.extend(install::crds(&connected).await);
    findings.extend(install::servers(&connected).await);
    findings.extend(install::webhooks(&connected).await);
    findings.extend(rights::check(&connected).await);
    findings.extend(clusters::check(&connected).await);
    print(args, &findings)?;
    let problems = findings
        .iter()
        .filter(|finding| finding.grade == Grade::Problem)
        .count();
    match problems {
        0 => Ok(()),
        1 => Err(Failure::failed("1 problem was found")),
        _ => Err(Failure::failed(format!("{problems} problems were found"))),
    }
}

fn print(args: &DoctorArgs, findings: &[Finding]) -> Result<()> {
    if matches!(args.output, Format::Json | Format::Yaml) {
        let list: Vec<_> = findings
            .iter()
            .map(
                |f| json!({"grade": word(f.grade), "subject": f.subject, "message": f.message, "fix": f.fix}),
            )
            .collect();
        return output::object(args.output, &json!(list));
    }
    for finding in findings {
        output::line(&format!(
            "{:<8} {}: {}",
            word(finding.grade),
            finding.subject,
            finding.message
        ))?;
        if let Some(fix) = &finding.fix {
            output::line(&format!("         → {fix}"))?;
        }
    }
    Ok(())
}

fn word(grade: Grade) -> &'static str {
    match grade {
        Grade::Ok => "ok",
        Grade::Warning => "warning",
        Grade::Problem => "PROBLEM",
        Grade::Unknown => "unknown",
    }
}
