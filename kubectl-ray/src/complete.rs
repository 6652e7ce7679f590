//! Completion: names come from the cluster, within a second and a half, and never as an error.

use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use clap::CommandFactory as _;
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, complete};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, ResourceExt as _};
use ray_api::ray::v1::RayCluster;
use ray_api::template::v1alpha1::{ClusterComputeTemplate, ComputeTemplate, ImageTemplate};

use crate::cli::Cli;
use crate::cmd::create::group_names;
use crate::connection::{Connection, ConnectionArgs};
use crate::error::Result;
use crate::kinds::Kind;
use crate::output;

/// Nobody waits longer for a Tab.
const BUDGET: Duration = Duration::from_millis(1500);
/// Names offered at most.
const LIMIT: u32 = 500;

/// Answers a shell that has our completion script (`COMPLETE=<shell>` is set), and ends the process then.
pub(crate) fn answer_shell() {
    CompleteEnv::with_factory(Cli::command).complete();
}

/// Speaks kubectl's protocol: called as `kubectl_complete-ray` with the words behind `ray`; one candidate a line,
/// a tab, its help, and `:4` at the end, which means that files are no candidates.
pub(crate) fn kubectl_protocol(mut args: Vec<OsString>) -> ExitCode {
    if args.len() < 2 {
        args.push(OsString::new());
    }
    let last = args.len() - 1;
    let candidates = complete(&mut Cli::command(), args, last, None).unwrap_or_default();
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
    let _ = output::text(&format!("{lines}:4\n"));
    ExitCode::SUCCESS
}

/// Completes Ray clusters.
pub(crate) fn clusters() -> ArgValueCompleter {
    by_name(|connection| async move { metadata_names(connection.api::<RayCluster>()).await })
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

/// Completes the worker groups of whichever clusters there are.
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

/// Completes Ray nodes: pods.
pub(crate) fn nodes() -> ArgValueCompleter {
    by_name(|connection| async move {
        let params = ListParams::default()
            .labels("ray.io/is-ray-node=yes")
            .limit(LIMIT);
        let list = connection
            .api::<k8s_openapi::api::core::v1::Pod>()
            .list_metadata(&params)
            .await?;
        Ok(list.items.iter().map(kube::ResourceExt::name_any).collect())
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
    ArgValueCompleter::new(|current: &OsStr| {
        let kubeconfig = typed_connection().kubeconfig().ok().flatten();
        let contexts = kubeconfig.map(|config| config.contexts).unwrap_or_default();
        candidates(
            contexts.into_iter().map(|context| context.name).collect(),
            current,
        )
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
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
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

fn typed_words() -> Vec<String> {
    std::env::args().skip(1).collect()
}

/// The connection flags that stand on the unfinished line; a whole parse would fail on it.
fn typed_connection() -> ConnectionArgs {
    let words = typed_words();
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
