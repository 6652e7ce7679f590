use clap::Args;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::Target;
use crate::connection::ConnectionArgs;
use crate::error::Result;
use crate::output::{self, Format};
use crate::ray::jobs::JobDetails;
use crate::table::{Cell, Layout, Row, column, wide};

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Ray cluster.
    #[arg(value_name = "CLUSTER", conflicts_with_all = ["ray_cluster", "address"], add = crate::complete::clusters())]
    name: Option<String>,
    #[command(flatten)]
    target: Target,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value = "table", hide_default_value = true)]
    output: Format,
}

pub(super) async fn run(connection: &ConnectionArgs, args: &ListArgs) -> Result<()> {
    let dashboard = args.target.dashboard(connection, args.name.as_deref()).await?;
    let jobs = dashboard.jobs().await?;
    match args.output {
        Format::Json | Format::Yaml => output::object(args.output, &Value::Array(jobs)),
        Format::Name => {
            let parsed = parse(&jobs)?;
            parsed
                .iter()
                .try_for_each(|job| output::line(&format!("job/{}", job.id())))
        }
        Format::Table | Format::Wide => {
            let parsed = parse(&jobs)?;
            if parsed.is_empty() {
                output::note("No jobs found.");
                return Ok(());
            }
            let rows: Vec<Row> = parsed.iter().map(row).collect();
            let columns = vec![
                column("ID"),
                column("STATUS"),
                column("STARTED"),
                column("DURATION"),
                column("ENTRYPOINT"),
                wide("MESSAGE"),
            ];
            output::text(&Layout::new(columns, args.output == Format::Wide).render(true, &rows))
        }
    }
}

fn parse(jobs: &[Value]) -> Result<Vec<JobDetails>> {
    let mut parsed: Vec<JobDetails> = jobs
        .iter()
        .cloned()
        .map(serde_json::from_value)
        .collect::<std::result::Result<_, _>>()?;
    parsed.sort_by_key(|job| job.start_time);
    Ok(parsed)
}

fn row(job: &JobDetails) -> Row {
    let now = Timestamp::now().as_millisecond();
    let started = job
        .start_time
        .and_then(|start| Timestamp::from_millisecond(start).ok());
    let lasted = job.start_time.map(|start| job.end_time.unwrap_or(now) - start);
    let lasted = lasted
        .and_then(|millis| u64::try_from(millis).ok())
        .map(std::time::Duration::from_millis);
    let first_line = job
        .message
        .as_deref()
        .and_then(|message| message.lines().next())
        .unwrap_or_default();
    vec![
        job.id().into(),
        job.status.as_str().into(),
        started.map(|time| time.to_string()).unwrap_or_default().into(),
        lasted.map_or_else(Cell::default, |d| {
            Cell::ranked(crate::follow::short(d), d.as_secs_f64())
        }),
        job.entrypoint.clone().into(),
        first_line.into(),
    ]
}
