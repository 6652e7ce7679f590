//! One file a verb: its flags, and what it does.

pub(crate) mod build;
pub(crate) mod completion;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod describe;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod get;
pub(crate) mod job;
pub(crate) mod log;
pub(crate) mod refresh;
pub(crate) mod render;
pub(crate) mod scale;
pub(crate) mod session;
pub(crate) mod version;

use std::future::Future;
use std::pin::Pin;

use crate::cli::{Cli, Command};
use crate::connection::ConnectionArgs;
use crate::error::Result;

type Work<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// Runs a parsed command line.
pub(crate) fn run(cli: Cli) -> Result<()> {
    match &cli.command {
        // These need no cluster, and start without a runtime.
        Command::Completion(args) => return completion::run(args),
        Command::Version(args) if args.client => return version::client(args),
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(dispatch(&cli.connection, &cli.command));
    // A blocking read of stdin or a file must not hold the exit back.
    runtime.shutdown_background();
    done
}

fn dispatch<'a>(connection: &'a ConnectionArgs, command: &'a Command) -> Work<'a> {
    match command {
        Command::Create(args) => Box::pin(create::run(connection, args)),
        Command::Get(args) => Box::pin(get::run(connection, args)),
        Command::Describe(args) => Box::pin(describe::run(connection, args)),
        Command::Explain(args) => Box::pin(explain::run(connection, args)),
        Command::Scale(args) => Box::pin(scale::run(connection, args)),
        Command::Refresh(args) => Box::pin(refresh::run(connection, args)),
        Command::Delete(args) => Box::pin(delete::run(connection, args)),
        Command::Render(args) => Box::pin(render::run(connection, args)),
        Command::Build(args) => Box::pin(build::run(connection, args)),
        Command::Job(args) => Box::pin(job::run(connection, args)),
        Command::Session(args) => Box::pin(session::run(connection, args)),
        Command::Log(args) => Box::pin(log::run(connection, args)),
        Command::Doctor(args) => Box::pin(doctor::run(connection, args)),
        Command::Version(args) => Box::pin(version::run(connection, args)),
        Command::Completion(args) => Box::pin(async { completion::run(args) }),
    }
}
