//! `ray-operator`: see the library for what it does.

use std::process::ExitCode;

use clap::Parser;
use ray_operator::args::{Cli, Command};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    ray_runtime::install_crypto();
    let cli = Cli::parse();
    match cli.command {
        Some(Command::Helper(helper)) => ray_operator::helper::run(&helper),
        None => tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?
            .block_on(ray_operator::run(cli.run)),
    }
}
