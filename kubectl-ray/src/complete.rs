//! Completion: names come from the cluster, within a second and a half, and never as an error.

use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use clap::CommandFactory as _;
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, complete};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DynamicObject, ListParams, PartialObjectMeta};
use kube::config::Kubeconfig;
use kube::{Api, ResourceExt as _};
use ray_api::meta::label;
use ray_api::ray::v1::RayCluster;
use ray_api::template::v1alpha1::{ClusterComputeTemplate, ComputeTemplate, ImageTemplate};

use crate::cli::Cli;
use crate::cmd::create::group_names;
use crate::connection::{Connection, ConnectionArgs};
use crate::error::Result;
use crate::kinds::Kind;
use crate::output;
use crate::ray::dashboard::Dashboard;
use crate::ray::jobs::JobDetails;

/// Nobody waits longer for a Tab.
const BUDGET: Duration = Duration::from_millis(1500);
/// Names offered at most.
const LIMIT: u32 = 500;

/// Answers a shell that has our completion script (`COMPLETE=<shell>` is set), and ends the process then.
pub(crate) fn answer_shell() {
    CompleteEnv::with_factory(Cli::command).complete();
}

/// Speaks kubectl's protocol: called as `kubectl_complete-ray` with the words behind `ray`; one candidate a line,
/// a tab, its help, and a directive at the end, of which 4 means that files are no candidates.
pub(crate) fn kubectl_protocol(mut args: Vec<OsString>) -> ExitCode {
    if args.len() < 2 {
        args.push(OsString::new());
    }
    let last = args.len() - 1;
    let asks_for_flags = args
        .last()
        .is_some_and(|word| word.to_string_lossy().starts_with('-'));
    let mut candidates = complete(&mut Cli::command(), args, last, None).unwrap_or_default();
    // Flags are offered to those who begin one, as kubectl does: names would drown among them.
    candidates
        .retain(|candidate| asks_for_flags || !candidate.get_value().to_string_lossy().starts_with('-'));
    // A type wants its name behind it: no space then (cobra's directive 2).
    let whole = candidates.iter().any(|candidate| !is_type(candidate));
    let directive = if whole || candidates.is_empty() { 4 } else { 6 };
    let any_shown = candidates.iter().any(|candidate| !candidate.is_hide_set());
    let mut lines = String::new();
    for candidate in candidates
        .iter()
        .filter(|candidate| !any_shown || !candidate.is_hide_set())
    {
        lines.push_str(&candidate.get_value().to_string_lossy());
        if let Some(help) = candidate.get_help() {
            let help = help.to_string();
            lines.push('\t');
            lines.push_str(help.lines().next().unwrap_or_default());
        }
        lines.push('\n');
    }
    // A shell that has gone away needs no answer.
    let _ = output::text(&format!("{lines}:{directive}\n"));
    ExitCode::SUCCESS
}

fn is_type(candidate: &CompletionCandidate) -> bool {
    candidate.get_value().to_string_lossy().ends_with('/')
}

/// Completes Ray clusters.
pub(crate) fn clusters() -> ArgValueCompleter {
    by_name(|connection| async move { metadata_names(connection.api::<RayCluster>()).await })
}

/// Completes Ray clusters by name, and objects of these kinds as TYPE/NAME.
pub(crate) fn targets(kinds: &'static [Kind]) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| {
        let word = current.to_string_lossy();
        if let Some((type_, _)) = word.split_once('/') {
            let Some(kind) = Kind::parse(type_).filter(|kind| kinds.contains(kind)) else {
                return Vec::new();
            };
            let names = fetch(&|connection: Connection| names_of(connection, kind)).unwrap_or_default();
            let names = names.into_iter().map(|name| format!("{type_}/{name}"));
            return candidates(names.collect(), current);
        }
        let mut words =
            fetch(&|connection: Connection| names_of(connection, Kind::RayCluster)).unwrap_or_default();
        words.extend(kinds.iter().map(|kind| format!("{}/", kind.singular())));
        candidates(words, current)
    })
}

async fn names_of(connection: Connection, kind: Kind) -> Result<Vec<String>> {
    let resource = kind.resource();
    let api: Api<DynamicObject> = if kind.is_namespaced() {
        Api::namespaced_with(connection.client.clone(), &connection.namespace, &resource)
    } else {
        Api::all_with(connection.client.clone(), &resource)
    };
    metadata_names(api).await
}

/// Completes Ray clusters, and behind a cluster the jobs that its dashboard knows.
pub(crate) fn clusters_and_jobs() -> ArgValueCompleter {
    by_name(|connection| async move {
        let clusters = metadata_names(connection.api::<RayCluster>()).await?;
        let words = typed_words();
        let Some(cluster) = clusters.iter().find(|name| words.contains(name)) else {
            return Ok(clusters);
        };
        let jobs = Dashboard::of_cluster(&connection, cluster).await?.jobs().await?;
        let ids = jobs.into_iter().filter_map(|job| {
            let job: JobDetails = serde_json::from_value(job).ok()?;
            Some(job.id().to_owned())
        });
        Ok(ids.collect())
    })
}

/// Completes ImageTemplates.
pub(crate) fn image_templates() -> ArgValueCompleter {
    by_name(|connection| async move { metadata_names(connection.api::<ImageTemplate>()).await })
}

/// Completes ComputeTemplates of the namespace and of all namespaces.
pub(crate) fn compute_templates() -> ArgValueCompleter {
    by_name(|connection| async move {
        let mut names = metadata_names(connection.api::<ComputeTemplate>()).await?;
        let shared: Api<ClusterComputeTemplate> = Api::all(connection.client.clone());
        names.extend(metadata_names(shared).await.unwrap_or_default());
        Ok(names)
    })
}

/// Completes worker groups: of the cluster that the line names, else of all.
pub(crate) fn worker_groups() -> ArgValueCompleter {
    by_name(|connection| async move {
        let resource = Kind::RayCluster.resource();
        let api: Api<DynamicObject> =
            Api::namespaced_with(connection.client.clone(), &connection.namespace, &resource);
        let words: Vec<String> = typed_words();
        let list = api.list(&ListParams::default().limit(LIMIT)).await?;
        let named = list
            .items
            .iter()
            .any(|cluster| words.contains(&cluster.name_any()));
        let clusters = list
            .items
            .iter()
            .filter(|cluster| !named || words.contains(&cluster.name_any()));
        Ok(clusters
            .flat_map(|cluster| group_names(cluster).into_iter().map(str::to_owned))
            .collect())
    })
}

/// Completes Ray nodes: pods of the cluster that the line names, else of all.
pub(crate) fn nodes() -> ArgValueCompleter {
    by_name(|connection| async move {
        let nodes = format!("{}=yes", label::IS_RAY_NODE);
        let params = ListParams::default().labels(&nodes).limit(LIMIT);
        let list = connection.api::<Pod>().list_metadata(&params).await?;
        let words = typed_words();
        let cluster = |pod: &PartialObjectMeta<Pod>| pod.labels().get(label::CLUSTER).cloned();
        let is_named = |pod: &&PartialObjectMeta<Pod>| cluster(pod).is_some_and(|name| words.contains(&name));
        let named = list.items.iter().any(|pod| is_named(&pod));
        let pods = list.items.iter().filter(|pod| !named || is_named(pod));
        Ok(pods.map(|pod| pod.name_any()).collect())
    })
}

/// Completes namespaces.
pub(crate) fn namespaces() -> ArgValueCompleter {
    by_name(
        |connection| async move { metadata_names(Api::<Namespace>::all(connection.client.clone())).await },
    )
}

/// Completes contexts of the kubeconfig.
pub(crate) fn contexts() -> ArgValueCompleter {
    of_kubeconfig(|config| config.contexts.into_iter().map(|context| context.name).collect())
}

/// Completes clusters of the kubeconfig.
pub(crate) fn kubeconfig_clusters() -> ArgValueCompleter {
    of_kubeconfig(|config| config.clusters.into_iter().map(|cluster| cluster.name).collect())
}

/// Completes users of the kubeconfig.
pub(crate) fn kubeconfig_users() -> ArgValueCompleter {
    of_kubeconfig(|config| config.auth_infos.into_iter().map(|user| user.name).collect())
}

fn of_kubeconfig(names: fn(Kubeconfig) -> Vec<String>) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| {
        let config = typed_connection().kubeconfig().ok().flatten();
        candidates(config.map(names).unwrap_or_default(), current)
    })
}

fn by_name<P, F>(names: P) -> ArgValueCompleter
where
    P: Fn(Connection) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Vec<String>>>,
{
    ArgValueCompleter::new(move |current: &OsStr| candidates(fetch(&names).unwrap_or_default(), current))
}

fn fetch<P, F>(names: &P) -> Option<Vec<String>>
where
    P: Fn(Connection) -> F,
    F: Future<Output = Result<Vec<String>>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    let work = async { names(typed_connection().connect().await.ok()?).await.ok() };
    let answer = runtime.block_on(async { tokio::time::timeout(BUDGET, work).await });
    runtime.shutdown_background();
    answer.ok().flatten()
}

async fn metadata_names<K>(api: Api<K>) -> Result<Vec<String>>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let list = api.list_metadata(&ListParams::default().limit(LIMIT)).await?;
    Ok(list
        .items
        .iter()
        .filter_map(|item| item.metadata.name.clone())
        .collect())
}

/// Candidates that go on from what is typed, without those that stand on the line already.
fn candidates(names: Vec<String>, current: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed_words();
    let start = current.to_string_lossy();
    names
        .into_iter()
        .filter(|name| name.starts_with(&*start) && (*name == *start || !typed.contains(name)))
        .map(CompletionCandidate::new)
        .collect()
}

/// The words of the unfinished line, without connection flags: a namespace may be called as a cluster is.
fn typed_words() -> Vec<String> {
    let mut words = Vec::new();
    let mut line = std::env::args().skip(1);
    while let Some(word) = line.next() {
        if CONNECTION_FLAGS.contains(&word.as_str()) {
            line.next();
        } else {
            words.push(word);
        }
    }
    words
}

/// Those of [`typed_connection`].
const CONNECTION_FLAGS: [&str; 9] = [
    "-n",
    "--namespace",
    "--context",
    "--kubeconfig",
    "--cluster",
    "--user",
    "-s",
    "--server",
    "--token",
];

/// The connection flags that stand on the unfinished line; a whole parse would fail on it.
fn typed_connection() -> ConnectionArgs {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let value = |names: &[&str]| {
        let at = words.iter().position(|word| {
            let flag = word.split_once('=').map_or(word.as_str(), |(flag, _)| flag);
            names.contains(&flag)
        })?;
        let word = words.get(at)?;
        word.split_once('=')
            .map(|(_, value)| value.to_owned())
            .or_else(|| words.get(at + 1).cloned())
    };
    ConnectionArgs {
        namespace: value(&["-n", "--namespace"]),
        context: value(&["--context"]),
        kubeconfig: value(&["--kubeconfig"]).map(Into::into),
        cluster: value(&["--cluster"]),
        user: value(&["--user"]),
        server: value(&["-s", "--server"]),
        token: value(&["--token"]),
        ..ConnectionArgs::default()
    }
}
