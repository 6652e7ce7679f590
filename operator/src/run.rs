//! Starts the admin endpoints, waits for the Lease, runs the controllers until told to stop.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use http::header::{HeaderValue, USER_AGENT};
use kube::{Client, Config};
use prometheus_client::registry::Registry;
use ray_api::meta::{RAY_GROUP, TEMPLATES_GROUP, VERSION};
use ray_runtime::admin::{Admin, Readiness};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::args::{ControllerName, RunArgs};
use crate::lease::{Election, Timing};
use crate::shared::{Scope, Shared};
use crate::{cluster, image, serve, template};

/// Lease that KubeRay's operator takes too: never two cluster controllers at once.
const CLUSTER_LEASE: &str = "ray-operator-leader";
/// Lease of an operator without the cluster controller, so that it runs beside KubeRay's.
const TEMPLATES_LEASE: &str = "ray-templates-leader";

/// Runs the operator until a signal.
///
/// # Errors
/// When the cluster cannot be reached, the CRDs are missing, a listener fails, or the Lease is lost.
pub async fn run(args: RunArgs) -> anyhow::Result<()> {
    let format = args.log_format.parse().map_err(anyhow::Error::msg)?;
    ray_runtime::telemetry::init(format, &args.log_level)?;
    args.warn_of_ignored_flags();
    tracing::info!(settings = ?args, "the operator starts");
    let shutdown = ray_runtime::shutdown::token()?;

    let config = config().await?;
    let default_namespace = config.default_namespace.clone();
    let client = Client::try_from(config)?;
    let shared = Shared {
        client: client.clone(),
        scope: Scope::of(&args.watch_namespace),
        instance: instance(),
    };

    let readiness = Readiness::default();
    readiness.set("custom resources", false);
    let mut registry = Registry::default();
    let controllers = controllers(&args, &shared, &mut registry)?;
    let mut admin = serve_admin(&args, &readiness, registry, &shutdown);

    tokio::select! {
        found = check_crds(&client, &args) => found?,
        stopped = first(&mut admin) => return stopped,
    }
    readiness.set("custom resources", true);

    tokio::select! {
        done = lead(&args, &shared, &default_namespace, controllers, &shutdown) => done,
        stopped = first(&mut admin) => stopped,
    }
}

/// A controller that is ready to start, given the token that stops it.
type Start = Box<dyn FnOnce(CancellationToken, &mut JoinSet<anyhow::Result<()>>) + Send>;

/// The selected controllers, their metrics registered.
fn controllers(args: &RunArgs, shared: &Shared, registry: &mut Registry) -> anyhow::Result<Vec<Start>> {
    let mut starts = Vec::new();
    if args.runs(ControllerName::Cluster) {
        let metrics = cluster::Metrics::register(registry);
        let config = cluster::Config::new(&args.cluster, args);
        let shared = shared.clone();
        starts.push(start(move |stop| cluster::run(shared, config, metrics, stop)));
    }
    if args.runs(ControllerName::Image) {
        let metrics = image::Metrics::register(registry);
        let (shared, args) = (shared.clone(), args.image.clone());
        starts.push(start(move |stop| image::run(shared, args, metrics, stop)));
    }
    if args.runs(ControllerName::Template) {
        let metrics = template::Metrics::register(registry);
        let (shared, args) = (shared.clone(), args.template.clone());
        starts.push(start(move |stop| template::run(shared, args, metrics, stop)));
    }
    if args.runs(ControllerName::Serve) {
        let metrics = serve::Metrics::register(registry);
        let (shared, args) = (shared.clone(), args.serve.clone());
        starts.push(start(move |stop| serve::run(shared, args, metrics, stop)));
    }
    Ok(starts)
}

fn start<F, Fut>(run: F) -> Start
where
    F: FnOnce(CancellationToken) -> Fut + Send + 'static,
    Fut: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    Box::new(move |stop, tasks| {
        tasks.spawn(run(stop));
    })
}

/// Runs the controllers while this process holds the Lease.
async fn lead(
    args: &RunArgs,
    shared: &Shared,
    default_namespace: &str,
    controllers: Vec<Start>,
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
    if !args.enable_leader_election {
        return run_all(controllers, shutdown).await;
    }
    let namespace = args
        .leader_election_namespace
        .as_deref()
        .unwrap_or(default_namespace);
    let name = if args.runs(ControllerName::Cluster) {
        CLUSTER_LEASE
    } else {
        TEMPLATES_LEASE
    };
    let client = shared.client.clone();
    let election = Election::new(client, namespace, name, &shared.instance, Timing::default());
    if !election.acquire(shutdown).await {
        return Ok(());
    }
    // The Lease is renewed until the last controller has stopped; only then may another start.
    let stopped = CancellationToken::new();
    tokio::select! {
        done = run_all(controllers, shutdown) => {
            stopped.cancel();
            if let Err(error) = election.release().await {
                tracing::warn!(%error, "the lease was not released; it expires by itself");
            }
            done
        }
        // Returning ends the process, and with it every write of its controllers.
        lost = election.keep(&stopped) => lost,
    }
}

/// Starts the controllers and waits until all have stopped; the first failure stops the others.
async fn run_all(controllers: Vec<Start>, shutdown: &CancellationToken) -> anyhow::Result<()> {
    let stop = shutdown.child_token();
    let mut tasks = JoinSet::new();
    for start in controllers {
        start(stop.clone(), &mut tasks);
    }
    let mut result = Ok(());
    while let Some(ended) = tasks.join_next().await {
        let outcome = match ended {
            Ok(Ok(())) if stop.is_cancelled() => Ok(()),
            Ok(Ok(())) => Err(anyhow::anyhow!("a controller ended by itself")),
            Ok(Err(error)) => Err(error),
            Err(error) => Err(anyhow::anyhow!("a controller broke: {error}")),
        };
        if outcome.is_err() && result.is_ok() {
            result = outcome;
        }
        stop.cancel();
    }
    result
}

/// Health and metrics, on one listener where both addresses are the same.
fn serve_admin(
    args: &RunArgs,
    readiness: &Readiness,
    registry: Registry,
    shutdown: &CancellationToken,
) -> JoinSet<anyhow::Result<()>> {
    let admin = Admin {
        readiness: readiness.clone(),
        registry: Arc::new(registry),
    };
    let mut addresses: Vec<SocketAddr> = vec![args.metrics_addr, args.health_probe_bind_address];
    // Port 0 asks for any free port, so two of them are not the same.
    addresses.dedup_by(|a, b| a == b && a.port() != 0);
    let mut tasks = JoinSet::new();
    for address in addresses {
        tasks.spawn(admin.clone().serve(address, shutdown.clone()));
    }
    tasks
}

/// Waits for the first listener that fails; one that stops with the process is no failure.
async fn first(tasks: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    while let Some(ended) = tasks.join_next().await {
        ended.context("a listener broke")??;
    }
    std::future::pending().await
}

/// Connection settings of the pod, or of `KUBECONFIG`.
async fn config() -> anyhow::Result<Config> {
    let mut config = Config::infer().await.context(
        "no cluster to work on: run inside a pod with a service account, or set KUBECONFIG to a kubeconfig",
    )?;
    let agent = HeaderValue::from_str(&format!("ray-operator/{VERSION}"))?;
    config.headers.push((USER_AGENT, agent));
    Ok(config)
}

/// Name of this process in the Lease and in events: its pod, and something random, since a pod may restart.
fn instance() -> String {
    let pod = std::env::var("POD_NAME")
        .or_else(|_| std::env::var("HOSTNAME"))
        .unwrap_or_else(|_| "ray-operator".to_owned());
    format!("{pod}_{:08x}", rand::random::<u32>())
}

/// Refuses to start without the kinds that the selected controllers work on.
async fn check_crds(client: &Client, args: &RunArgs) -> anyhow::Result<()> {
    let ray = (RAY_GROUP, "v1", "rayclusters");
    let images = (TEMPLATES_GROUP, "v1alpha1", "imagetemplates");
    let computes = (TEMPLATES_GROUP, "v1alpha1", "computetemplates");
    let mut needed = Vec::new();
    for controller in &args.controllers {
        match controller {
            ControllerName::Cluster | ControllerName::Serve => needed.push(ray),
            ControllerName::Image => needed.push(images),
            ControllerName::Template => needed.extend([ray, images, computes]),
        }
    }
    needed.sort_unstable();
    needed.dedup();
    for (group, version, plural) in needed {
        let group_version = format!("{group}/{version}");
        let resources = match client.list_api_group_resources(&group_version).await {
            Ok(list) => list.resources,
            // A group that is not served at all answers with plain text, so only the code tells.
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(error) => return Err(error).context("cannot ask the API server which kinds it serves"),
        };
        anyhow::ensure!(
            resources.iter().any(|resource| resource.name == plural),
            "the API server does not serve {plural}.{group} in version {version}: install the CRDs first \
             (`make install`, or `kubectl apply --server-side -f manifests/crds/`)"
        );
    }
    Ok(())
}
