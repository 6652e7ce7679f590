//! `create`: objects from flags, made by one POST, so that an existing object is never overwritten.

mod cluster;
mod compute_template;
mod image_template;
mod worker;
mod workergroup;

pub(crate) use workergroup::group_names;

use clap::{Args, Subcommand};
use http::Request;
use kube::Client;
use kube::api::ApiResource;
use ray_api::meta::manager;
use serde_json::Value;

use crate::cli::{DryRun, DryRunArgs};
use crate::connection::{Connection, ConnectionArgs};
use crate::error::Result;
use crate::kinds::Kind;
use crate::output::{self, Format};

/// Flags of `create`.
#[derive(Debug, Args)]
pub struct CreateArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Create a Ray cluster.
    #[command(alias = "raycluster")]
    Cluster(Box<cluster::ClusterArgs>),
    /// Add a worker group to a Ray cluster.
    #[command(alias = "worker-group")]
    Workergroup(Box<workergroup::WorkerGroupArgs>),
    /// Create an ImageTemplate: packages in, image out.
    #[command(alias = "imagetemplate")]
    ImageTemplate(Box<image_template::ImageTemplateArgs>),
    /// Create a ComputeTemplate: hardware under a name.
    #[command(alias = "computetemplate")]
    ComputeTemplate(Box<compute_template::ComputeTemplateArgs>),
}

/// How the result is made and shown.
#[derive(Clone, Copy, Debug, Args)]
struct ResultArgs {
    #[command(flatten)]
    dry_run: DryRunArgs,
    /// Print the object in this form.
    #[arg(short, long, value_enum)]
    output: Option<Format>,
}

pub(crate) async fn run(connection: &ConnectionArgs, args: &CreateArgs) -> Result<()> {
    match &args.what {
        What::Cluster(args) => cluster::run(connection, args).await,
        What::Workergroup(args) => workergroup::run(connection, args).await,
        What::ImageTemplate(args) => image_template::run(connection, args).await,
        What::ComputeTemplate(args) => compute_template::run(connection, args).await,
    }
}

impl ResultArgs {
    fn is_client_dry_run(&self) -> bool {
        self.dry_run.dry_run == DryRun::Client
    }

    /// Prints an object that nothing was sent of: its YAML, unless another form is asked for.
    fn print_unsent(&self, kind: Kind, object: &Value) -> Result<()> {
        self.print(kind, object, self.output.unwrap_or(Format::Yaml), "created")
    }

    /// Prints what the server answered.
    fn print_sent(&self, kind: Kind, object: &Value, verb: &str) -> Result<()> {
        self.print(kind, object, self.output.unwrap_or(Format::Table), verb)
    }

    fn print(&self, kind: Kind, object: &Value, format: Format, verb: &str) -> Result<()> {
        let name = object
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        match format {
            Format::Json | Format::Yaml => output::object(format, object),
            Format::Name => output::line(&kind.object_name(name)),
            Format::Table | Format::Wide => {
                let dry = match self.dry_run.dry_run {
                    DryRun::None => "",
                    DryRun::Client => " (dry run)",
                    DryRun::Server => " (server dry run)",
                };
                output::line(&format!("{} {verb}{dry}", kind.object_name(name)))
            }
        }
    }
}

/// POSTs `object`; fields that the server does not know are an error, not silently dropped.
async fn post(
    client: &Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    object: &Value,
    dry_run: DryRun,
) -> kube::Result<Value> {
    use kube::api::DynamicObject;
    use kube::core::Resource as _;
    let url = DynamicObject::url_path(resource, namespace);
    let dry = if dry_run == DryRun::Server {
        "&dryRun=All"
    } else {
        ""
    };
    let manager = manager::PLUGIN;
    let request = Request::post(format!(
        "{url}?fieldManager={manager}&fieldValidation=Strict{dry}"
    ))
    .header(http::header::CONTENT_TYPE, "application/json")
    .body(serde_json::to_vec(object).map_err(kube::Error::SerdeError)?)
    .map_err(kube::Error::HttpError)?;
    client.request(request).await
}

/// Creates `object` as `args` say, and prints it.
async fn create(
    connection: &ConnectionArgs,
    args: &ResultArgs,
    kind: Kind,
    mut object: Value,
) -> Result<Option<(Connection, Value)>> {
    if args.is_client_dry_run() {
        if let (Some(namespace), true) = (&connection.namespace, kind.is_namespaced()) {
            set_namespace(&mut object, namespace);
        }
        args.print_unsent(kind, &object)?;
        return Ok(None);
    }
    let connected = connection.connect().await?;
    let namespace = kind.is_namespaced().then_some(connected.namespace.as_str());
    if let Some(namespace) = namespace {
        set_namespace(&mut object, namespace);
    }
    let created = post(
        &connected.client,
        &kind.resource(),
        namespace,
        &object,
        args.dry_run.dry_run,
    )
    .await?;
    args.print_sent(kind, &created, "created")?;
    Ok((args.dry_run.dry_run == DryRun::None).then_some((connected, created)))
}

fn set_namespace(object: &mut Value, namespace: &str) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
}
