//! The figures of design section 8, one subcommand a row; `tests/bench/run.sh` starts clusters and calls it.

mod admission;
mod audit;
mod cluster;
mod contestant;
mod plugin;
mod process;
mod ready;
mod serve;

use std::path::Path;

use anyhow::{Context, bail};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["cluster", audit, times, clusters, workers, contestant, operator] => {
            let load = cluster::Load {
                clusters: clusters.parse().context("CLUSTERS is a number")?,
                workers: workers.parse().context("WORKERS is a number")?,
            };
            let contestant = contestant.parse()?;
            cluster::bench(
                contestant,
                Path::new(operator),
                Path::new(audit),
                load,
                Path::new(times),
            )
            .await
        }
        ["ready", times, rounds, contestant] => {
            let rounds = rounds.parse().context("ROUNDS is a number")?;
            ready::bench(contestant.parse()?, rounds, Path::new(times)).await
        }
        ["serve", operator, pods, nodes] => {
            let pods = pods.parse().context("PODS is a number")?;
            serve::bench(
                Path::new(operator),
                pods,
                nodes.parse().context("NODES is a number")?,
            )
            .await
        }
        ["admission", webhook] => admission::bench(Path::new(webhook)).await,
        ["plugin", plugin, kubectl] => plugin::bench(Path::new(plugin), Path::new(kubectl)).await,
        _ => bail!(
            "usage: ray-bench cluster AUDIT_LOG TIMES CLUSTERS WORKERS CONTESTANT OPERATOR | ready TIMES ROUNDS CONTESTANT | serve OPERATOR PODS NODES | admission WEBHOOK | plugin PLUGIN KUBECTL"
        ),
    }
}
