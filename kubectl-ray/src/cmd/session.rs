//! `session`: local ports to the head of a Ray cluster. Each connection looks the head up anew, so that a
//! replaced head is followed without reconnecting anything.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Args;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DynamicObject;
use ray_api::ray::v1::RayCluster;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};

use crate::connection::{Connection, ConnectionArgs};
use crate::error::{Exit, Failure, Result};
use crate::kinds::Kind;
use crate::output::{self, Colour, Format, paint};
use crate::ray::{self, CLIENT_PORT, DASHBOARD_PORT, SERVE_PORT, dashboard};

/// How often the cluster is looked at, to tell of a new head and to end with the cluster.
const PERIOD: Duration = Duration::from_secs(3);

/// Flags of `session`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl ray session demo
  kubectl ray session demo --port dashboard=9000 --port serve=0
  kubectl ray session rayservice/chat")]
pub struct SessionArgs {
    /// Ray cluster, or TYPE/NAME with raycluster, rayjob or rayservice.
    #[arg(value_name = "CLUSTER | TYPE/NAME", add = crate::complete::targets(&Kind::WITH_CLUSTER))]
    target: String,
    /// Local port of dashboard, client or serve; 0 is any free one; may be repeated.
    #[arg(long = "port", value_name = "NAME=PORT", value_parser = port)]
    ports: Vec<(String, u16)>,
    /// Address to listen on.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    bind: std::net::IpAddr,
    /// Form in which the ports are told.
    #[arg(short, long, value_enum, default_value = "table", hide_default_value = true)]
    output: Format,
    /// Tell of each connection.
    #[arg(short, long)]
    verbose: bool,
}

/// A port of Ray's, and the name that its container port has.
struct Forward {
    name: &'static str,
    remote: u16,
    scheme: &'static str,
}

const DASHBOARD: Forward = Forward {
    name: "dashboard",
    remote: DASHBOARD_PORT,
    scheme: "http://",
};
const CLIENT: Forward = Forward {
    name: "client",
    remote: CLIENT_PORT,
    scheme: "ray://",
};
const SERVE: Forward = Forward {
    name: "serve",
    remote: SERVE_PORT,
    scheme: "http://",
};

pub(crate) async fn run(connection: &ConnectionArgs, args: &SessionArgs) -> Result<()> {
    let (kind, name) = target(&args.target)?;
    let connected = connection.connect().await?;
    let forwards: &[Forward] = match kind {
        Kind::RayJob => &[DASHBOARD],
        _ => &[DASHBOARD, CLIENT, SERVE],
    };
    let cluster = cluster_of(&connected, kind, &name).await?;
    // Whatever is wrong with the head shows now, not at the first connection.
    let head = ray::head_pod(&connected, &cluster).await?;
    let session = Arc::new(Session {
        connection: connected,
        kind,
        name,
        cluster: Mutex::new(cluster),
        verbose: args.verbose,
    });
    let mut listeners = Vec::new();
    for forward in forwards {
        listeners.push((forward, listen(args, forward).await?));
    }
    announce(args, &listeners)?;
    for (forward, listener) in listeners {
        tokio::spawn(accept(
            Arc::clone(&session),
            forward.name,
            forward.remote,
            listener,
        ));
    }
    tokio::select! {
        ended = session.watch(head) => ended,
        _ = tokio::signal::ctrl_c() => {
            output::note("session ended");
            Ok(())
        }
    }
}

fn port(text: &str) -> std::result::Result<(String, u16), String> {
    let (name, port) = crate::cli::key_value(text)?;
    let names = [DASHBOARD.name, CLIENT.name, SERVE.name];
    if !names.contains(&name.as_str()) {
        return Err(format!("`{name}` is none of {}", names.join(", ")));
    }
    let port = port.parse().map_err(|_| format!("`{port}` is no port"))?;
    Ok((name, port))
}

pub(super) fn target(word: &str) -> Result<(Kind, String)> {
    let Some((kind, name)) = word.split_once('/') else {
        return Ok((Kind::RayCluster, word.to_owned()));
    };
    match Kind::parse(kind) {
        Some(kind @ (Kind::RayCluster | Kind::RayJob | Kind::RayService)) if !name.is_empty() => {
            Ok((kind, name.to_owned()))
        }
        _ => Err(
            Failure::usage(format!("`{word}` is no Ray cluster, job or service"))
                .hint("name a cluster, or raycluster/NAME, rayjob/NAME, rayservice/NAME"),
        ),
    }
}

/// The RayCluster that a job or service runs on now.
pub(super) async fn cluster_of(connection: &Connection, kind: Kind, name: &str) -> Result<String> {
    let pointer = match kind {
        Kind::RayJob => "/status/rayClusterName",
        Kind::RayService => "/status/activeServiceStatus/rayClusterName",
        _ => return Ok(name.to_owned()),
    };
    let api: Api<DynamicObject> =
        Api::namespaced_with(connection.client.clone(), &connection.namespace, &kind.resource());
    let object = api.get(name).await?;
    let cluster = object
        .data
        .pointer(pointer)
        .and_then(Value::as_str)
        .filter(|cluster| !cluster.is_empty());
    cluster
        .map(str::to_owned)
        .ok_or_else(|| Failure::failed(format!("{} `{name}` has no Ray cluster yet", kind.kind())))
}

/// Listens on the wanted port; a port that was not asked for by number gives way to a free one.
async fn listen(args: &SessionArgs, forward: &Forward) -> Result<TcpListener> {
    let asked = args
        .ports
        .iter()
        .find(|(name, _)| name == forward.name)
        .map(|(_, port)| *port);
    let port = asked.unwrap_or(forward.remote);
    match TcpListener::bind((args.bind, port)).await {
        Ok(listener) => Ok(listener),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && asked.is_none() => {
            output::warning(&format!(
                "local port {port} is in use: {} gets another one",
                forward.name
            ));
            Ok(TcpListener::bind((args.bind, 0)).await?)
        }
        Err(error) => Err(
            Failure::failed(format!("cannot listen on local port {port}: {error}")).hint(format!(
                "choose another one with --port {}=PORT, or any with --port {0}=0",
                forward.name
            )),
        ),
    }
}

fn announce(args: &SessionArgs, listeners: &[(&Forward, TcpListener)]) -> Result<()> {
    let mut urls = Vec::new();
    for (forward, listener) in listeners {
        urls.push((
            forward.name,
            format!("{}{}", forward.scheme, listener.local_addr()?),
        ));
    }
    match args.output {
        Format::Json | Format::Yaml => {
            let map: serde_json::Map<String, Value> = urls
                .into_iter()
                .map(|(name, url)| (name.to_owned(), url.into()))
                .collect();
            output::object(args.output, &Value::Object(map))
        }
        _ => {
            for (name, url) in urls {
                output::line(&format!("{name:<10} {url}"))?;
            }
            output::note("Ctrl-C ends the session");
            Ok(())
        }
    }
}

struct Session {
    connection: Connection,
    kind: Kind,
    name: String,
    /// A RayService moves from one cluster to the next.
    cluster: Mutex<String>,
    verbose: bool,
}

impl Session {
    fn cluster(&self) -> String {
        self.cluster
            .lock()
            .map(|cluster| cluster.clone())
            .unwrap_or_default()
    }

    /// Tells of new heads until the object is gone.
    async fn watch(&self, head: Pod) -> Result<()> {
        let mut last = Some(head.metadata.name.unwrap_or_default());
        loop {
            tokio::time::sleep(PERIOD).await;
            match cluster_of(&self.connection, self.kind, &self.name).await {
                Ok(cluster) => {
                    if let Ok(mut current) = self.cluster.lock() {
                        *current = cluster;
                    }
                }
                Err(failure) if failure.exit == Exit::NotFound => return Err(failure),
                Err(_) => {}
            }
            let cluster = self.cluster();
            match ray::head_pod(&self.connection, &cluster).await {
                Ok(head) => {
                    let name = head.metadata.name.unwrap_or_default();
                    if last.as_ref() != Some(&name) {
                        output::note(&format!("{} head pod {name}", paint(Colour::Green, "connected:")));
                        last = Some(name);
                    }
                }
                Err(failure) if failure.exit == Exit::NotFound && self.is_gone(&cluster).await => {
                    return Err(failure);
                }
                Err(failure) if last.take().is_some() => {
                    output::note(&format!(
                        "{} {}",
                        paint(Colour::Yellow, "waiting:"),
                        failure.message
                    ));
                }
                Err(_) => {}
            }
        }
    }

    async fn is_gone(&self, cluster: &str) -> bool {
        matches!(
            self.connection.api::<RayCluster>().get_opt(cluster).await,
            Ok(None)
        )
    }
}

async fn accept(session: Arc<Session>, name: &'static str, default: u16, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let session = Arc::clone(&session);
                tokio::spawn(async move {
                    match forward(&session, name, default, stream).await {
                        Err(failure) => output::note(&format!("{name}: {}", failure.message)),
                        Ok(()) if session.verbose => output::note(&format!("{name}: connection ended")),
                        Ok(()) => {}
                    }
                });
            }
            // Too many open files, say: the next connection may do.
            Err(error) => {
                output::note(&format!("{name}: {error}"));
                tokio::time::sleep(PERIOD).await;
            }
        }
    }
}

async fn forward(session: &Session, name: &str, default: u16, mut local: TcpStream) -> Result<()> {
    let head = ray::head_pod(&session.connection, &session.cluster()).await?;
    let port = ray::port(&head, name, default);
    if session.verbose {
        output::note(&format!(
            "{name}: connection to {}:{port}",
            head.metadata.name.as_deref().unwrap_or_default()
        ));
    }
    let (mut remote, refusal) = dashboard::open(&session.connection, &head, port).await?.split();
    // Either side may hang up as it likes.
    let _ = tokio::io::copy_bidirectional(&mut local, &mut remote).await;
    drop(remote);
    match refusal.await {
        Some(why) => Err(Failure::failed(why)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_clusters_jobs_and_services() {
        assert_eq!(target("a").unwrap(), (Kind::RayCluster, "a".to_owned()));
        assert_eq!(
            target("rayservice/a").unwrap(),
            (Kind::RayService, "a".to_owned())
        );
        assert!(target("it/a").is_err() && target("rayjob/").is_err());
    }

    #[test]
    fn ports_have_the_names_of_rays_ports() {
        assert_eq!(port("serve=0"), Ok(("serve".to_owned(), 0)));
        assert!(port("gcs=1").is_err() && port("serve=70000").is_err());
    }

    #[tokio::test]
    async fn a_busy_port_gives_way_unless_it_was_asked_for() {
        let busy = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let taken = busy.local_addr().unwrap().port();
        let forward = Forward {
            name: "dashboard",
            remote: taken,
            scheme: "http://",
        };
        let mut args = SessionArgs {
            target: "a".into(),
            ports: Vec::new(),
            bind: "127.0.0.1".parse().unwrap(),
            output: Format::Table,
            verbose: false,
        };
        let other = listen(&args, &forward).await.unwrap();
        assert_ne!(other.local_addr().unwrap().port(), taken);
        args.ports = vec![("dashboard".to_owned(), taken)];
        let failure = listen(&args, &forward).await.unwrap_err();
        assert!(failure.message.contains(&taken.to_string()), "{failure}");
    }
}
