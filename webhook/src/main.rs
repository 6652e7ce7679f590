//! `ray-webhook`: see the library for what it does.

use clap::Parser;
use ray_webhook::args::Args;

fn main() -> anyhow::Result<()> {
    ray_runtime::install_crypto();
    let args = Args::parse();
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(ray_webhook::run(args))
}
