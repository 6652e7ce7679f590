//! Starts everything, and stops it without a failed call.

use std::sync::Arc;

use axum_server::Handle;
use kube::{Client, Config};
use prometheus_client::registry::Registry;
use ray_api::meta::VERSION;
use ray_runtime::admin::{Admin, Readiness};
use tokio_util::sync::CancellationToken;

use crate::admit::Context;
use crate::args::Args;
use crate::certificate;
use crate::metrics::Metrics;
use crate::server::{Webhooks, drain};
use crate::templates::TemplateReader;

/// Runs the webhook until a signal.
///
/// # Errors
/// When the cluster cannot be reached, a listener fails, or mounted certificates do not load.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let format = args.log_format.parse().map_err(anyhow::Error::msg)?;
    ray_runtime::telemetry::init(format, &args.log_level)?;
    let shutdown = ray_runtime::shutdown::token()?;
    let mut config = Config::infer().await?;
    config.headers.push((
        http::header::USER_AGENT,
        format!("ray-webhook/{VERSION}").parse()?,
    ));
    let client = Client::try_from(config)?;

    let readiness = Readiness::default();
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    readiness.set("admission endpoint", false);
    let stop_admin = CancellationToken::new();
    let admin = Admin {
        readiness: readiness.clone(),
        registry: Arc::new(registry),
    };
    let admin = tokio::spawn(admin.serve(args.admin_address, stop_admin.clone()));

    let templates = TemplateReader::start(
        client.clone(),
        &args.watch_namespace,
        &readiness,
        metrics.clone(),
        &shutdown,
    );
    let tls = certificate::start(&args, client.clone(), &readiness, metrics.clone(), &shutdown).await?;
    let context = Context {
        client,
        templates,
        policy: args.policy.into(),
        require_use: args.require_use,
    };
    let handle = Handle::new();
    let server = Webhooks { context, metrics }.serve(args.bind_address, tls, handle.clone());
    let mut server = tokio::spawn(server);
    readiness.set("admission endpoint", handle.listening().await.is_some());

    tokio::select! {
        stopped = &mut server => return stopped?,
        stopped = admin => return stopped?,
        () = shutdown.cancelled() => {}
    }
    // Endpoints follow readiness with a delay; until then requests still come.
    readiness.set("admission endpoint", false);
    tokio::time::sleep(args.shutdown_delay).await;
    drain(&handle);
    server.await??;
    stop_admin.cancel();
    Ok(())
}
