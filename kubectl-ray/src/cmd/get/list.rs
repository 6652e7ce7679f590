//! Reading objects page by page, by name, or for ever, and printing them.

use std::collections::BTreeMap;

use futures::TryStreamExt as _;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use ray_api::ray::v1::RayCluster;
use serde_json::Value;

use super::ListArgs;
use crate::connection::{Connection, ConnectionArgs};
use crate::error::{Exit, Failure, Result};
use crate::output::{self, Format};
use crate::table::{Column, Layout, Row, sort};

/// Splits an object into the lines of a table.
type Items<'a> = Box<dyn Fn(&DynamicObject) -> Vec<Item> + 'a>;

/// How objects of one resource become rows and names.
pub(super) struct View<'a> {
    pub(super) resource: ApiResource,
    /// `raycluster.ray.io`: what `-o name` puts before the name.
    pub(super) prefix: String,
    pub(super) columns: Vec<Column>,
    /// Labels that objects must have besides `-l`.
    pub(super) selector: Option<String>,
    /// Whether items are parts of objects, with names of their own.
    pub(super) parts: bool,
    /// `-c`: the only Ray cluster whose items are wanted.
    pub(super) cluster: Option<&'a str>,
    /// The items of an object, each with its row: usually one, the object itself.
    pub(super) items: Items<'a>,
}

/// One line of a table.
pub(super) struct Item {
    pub(super) name: String,
    pub(super) row: Row,
    /// What `-o json` and `-o yaml` print, where it is not the object itself.
    pub(super) object: Option<Value>,
}

impl Item {
    /// An object as it is.
    pub(super) fn whole(object: &DynamicObject, row: Row) -> Self {
        Self {
            name: object.metadata.name.clone().unwrap_or_default(),
            row,
            object: None,
        }
    }
}

/// Lists as the flags say; `names` restricts to items of these names.
pub(super) async fn run(
    connection: &ConnectionArgs,
    names: &[String],
    args: &ListArgs,
    view: &View<'_>,
) -> Result<()> {
    if args.all_namespaces && !names.is_empty() {
        return Err(
            Failure::usage("a name cannot be looked up in all namespaces").hint("use -n instead of -A")
        );
    }
    if !names.is_empty() && (args.selector.is_some() || args.field_selector.is_some()) {
        return Err(Failure::usage("names and selectors exclude each other"));
    }
    let connected = connection.connect().await?;
    let api = api(&connected.client, &connected, args, view);
    if args.watch {
        if args.sort_by.is_some() {
            output::warning("--sort-by has no effect on a watch");
        }
        return watch(&api, names, args, view).await;
    }
    let items = read(&api, names, args, view).await?;
    print(&connected, names, args, view, items).await
}

fn api(client: &Client, connected: &Connection, args: &ListArgs, view: &View<'_>) -> Api<DynamicObject> {
    if args.all_namespaces {
        Api::all_with(client.clone(), &view.resource)
    } else {
        Api::namespaced_with(client.clone(), &connected.namespace, &view.resource)
    }
}

/// The items of these names, or all; only the objects in question are asked for.
pub(super) async fn read(
    api: &Api<DynamicObject>,
    names: &[String],
    args: &ListArgs,
    view: &View<'_>,
) -> Result<Vec<Item>> {
    let objects: Vec<&str> = if view.parts {
        view.cluster.into_iter().collect()
    } else {
        names.iter().map(String::as_str).collect()
    };
    if objects.is_empty() {
        return read_pages(api, args.field_selector.clone(), args, view).await;
    }
    let mut items = Vec::new();
    for name in objects {
        items.extend(read_pages(api, Some(named(name)), args, view).await?);
    }
    Ok(items)
}

/// A list by name needs no more rights than a get, and gives no error where there is nothing.
fn named(name: &str) -> String {
    format!("metadata.name={name}")
}

/// Reads in chunks; only what will be printed is kept.
async fn read_pages(
    api: &Api<DynamicObject>,
    field_selector: Option<String>,
    args: &ListArgs,
    view: &View<'_>,
) -> Result<Vec<Item>> {
    let mut params = ListParams::default().limit(args.chunk_size);
    params.label_selector = selector(args, view);
    params.field_selector = field_selector;
    let keep_objects = matches!(args.output, Format::Json | Format::Yaml);
    let mut items = Vec::new();
    loop {
        let page = match api.list(&params).await {
            // The list expired between two chunks: start again, in one piece.
            Err(kube::Error::Api(status)) if status.code == 410 && params.continue_token.is_some() => {
                items.clear();
                params.continue_token = None;
                params.limit = None;
                continue;
            }
            other => other?,
        };
        for object in page.items {
            let object = with_types(object, &view.resource);
            for mut item in (view.items)(&object) {
                if keep_objects && item.object.is_none() {
                    item.object = Some(serde_json::to_value(&object)?);
                }
                items.push(item);
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(items),
        }
    }
}

/// Items of lists carry no kind; printed alone they need one.
fn with_types(mut object: DynamicObject, resource: &ApiResource) -> DynamicObject {
    object.types.get_or_insert_with(|| kube::api::TypeMeta {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
    });
    object
}

fn selector(args: &ListArgs, view: &View<'_>) -> Option<String> {
    let parts: Vec<_> = [view.selector.clone(), args.selector.clone()]
        .into_iter()
        .flatten()
        .collect();
    (!parts.is_empty()).then(|| parts.join(","))
}

/// Prints the items, and fails for each name that is not among them.
pub(super) async fn print(
    connected: &Connection,
    names: &[String],
    args: &ListArgs,
    view: &View<'_>,
    items: Vec<Item>,
) -> Result<()> {
    let missing: Vec<&String> = names
        .iter()
        .filter(|name| !items.iter().any(|item| &item.name == *name))
        .collect();
    let mut items = items;
    if !names.is_empty() {
        items.retain(|item| names.contains(&item.name));
    }
    if let Some(cluster) = view.cluster.filter(|_| items.is_empty() && !args.all_namespaces) {
        // Tells a cluster without items from one that does not exist.
        connected.api::<RayCluster>().get_metadata(cluster).await?;
    }
    if items.is_empty() && names.is_empty() && matches!(args.output, Format::Table | Format::Wide) {
        let place = if args.all_namespaces {
            "any namespace".to_owned()
        } else {
            format!("namespace {}", connected.namespace)
        };
        output::note(&format!("No resources found in {place}."));
        return Ok(());
    }
    match args.output {
        Format::Json | Format::Yaml if !items.is_empty() || names.is_empty() => {
            print_objects(names, args, items)?
        }
        Format::Json | Format::Yaml => {}
        Format::Name => {
            for item in &items {
                output::line(&format!("{}/{}", view.prefix, item.name))?;
            }
        }
        Format::Table | Format::Wide if items.is_empty() => {}
        Format::Table | Format::Wide => {
            let mut rows: Vec<Row> = items.into_iter().map(|item| item.row).collect();
            if let Some(by) = &args.sort_by {
                sort(&view.columns, &mut rows, by)?;
            }
            let mut layout = Layout::new(view.columns.clone(), args.output == Format::Wide);
            output::text(&layout.render(!args.no_headers, &rows))?;
        }
    }
    match missing.as_slice() {
        [] => Ok(()),
        missing => Err(not_found(&view.prefix, missing, &connected.namespace)),
    }
}

fn print_objects(names: &[String], args: &ListArgs, items: Vec<Item>) -> Result<()> {
    let objects: Vec<Value> = items.into_iter().filter_map(|item| item.object).collect();
    match (objects.as_slice(), names) {
        ([one], [_]) => output::object(args.output, one),
        _ => {
            let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": objects});
            output::object(args.output, &list)
        }
    }
}

fn not_found(prefix: &str, names: &[&String], namespace: &str) -> Failure {
    let quoted: Vec<_> = names.iter().map(|name| format!("{prefix} \"{name}\"")).collect();
    Failure::new(
        Exit::NotFound,
        format!("{} not found in namespace {namespace}", quoted.join(", ")),
    )
}

/// Prints all items, then each change. Closed and expired watches start again and repeat nothing.
async fn watch(api: &Api<DynamicObject>, names: &[String], args: &ListArgs, view: &View<'_>) -> Result<()> {
    let mut config = watcher::Config::default().page_size(args.chunk_size);
    config.label_selector = selector(args, view);
    config.field_selector = match names {
        [one] => Some(named(one)),
        _ => args.field_selector.clone(),
    };
    let mut stream = std::pin::pin!(watcher(api.clone(), config).default_backoff());
    let mut printer = Printer::new(names, args, view);
    let mut failures = 0;
    loop {
        match stream.try_next().await {
            Ok(Some(event)) => {
                failures = 0;
                printer.handle(event)?;
            }
            Ok(None) => return Ok(()),
            Err(error) => {
                let failure = Failure::from(error);
                // Denied and unknown stay so; a server that is away comes back.
                if !matches!(failure.exit, Exit::Failed | Exit::TimedOut)
                    || (failures >= 5 && !printer.has_printed())
                {
                    return Err(failure);
                }
                failures += 1;
                output::note(&format!("watch: {} (trying again)", failure.message));
            }
        }
    }
}

struct Printer<'a> {
    names: &'a [String],
    args: &'a ListArgs,
    view: &'a View<'a>,
    layout: Layout,
    header: bool,
    /// Last printed version by uid, so that a new list prints only what changed.
    seen: BTreeMap<String, String>,
    listed: Vec<DynamicObject>,
}

impl<'a> Printer<'a> {
    fn new(names: &'a [String], args: &'a ListArgs, view: &'a View<'a>) -> Self {
        Self {
            names,
            args,
            view,
            layout: Layout::new(view.columns.clone(), args.output == Format::Wide),
            header: !args.no_headers,
            seen: BTreeMap::new(),
            listed: Vec::new(),
        }
    }

    fn has_printed(&self) -> bool {
        !self.seen.is_empty()
    }

    fn handle(&mut self, event: Event<DynamicObject>) -> Result<()> {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(object) => self.listed.push(object),
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                self.print(listed)?;
            }
            Event::Apply(object) | Event::Delete(object) => self.print(vec![object])?,
        }
        Ok(())
    }

    fn print(&mut self, objects: Vec<DynamicObject>) -> Result<()> {
        let keep_objects = matches!(self.args.output, Format::Json | Format::Yaml);
        let mut items = Vec::new();
        for object in objects {
            let uid = object.metadata.uid.clone().unwrap_or_default();
            let version = object.metadata.resource_version.clone().unwrap_or_default();
            if self.seen.insert(uid, version.clone()) == Some(version) {
                continue;
            }
            let object = with_types(object, &self.view.resource);
            for mut item in (self.view.items)(&object) {
                if keep_objects && item.object.is_none() {
                    item.object = Some(serde_json::to_value(&object)?);
                }
                items.push(item);
            }
        }
        items.retain(|item| self.names.is_empty() || self.names.contains(&item.name));
        match self.args.output {
            Format::Json | Format::Yaml => {
                for object in items.into_iter().filter_map(|item| item.object) {
                    if self.args.output == Format::Yaml {
                        output::line("---")?;
                    }
                    output::object(self.args.output, &object)?;
                }
            }
            Format::Name => {
                for item in &items {
                    output::line(&format!("{}/{}", self.view.prefix, item.name))?;
                }
            }
            Format::Table | Format::Wide if items.is_empty() => {}
            Format::Table | Format::Wide => {
                let rows: Vec<Row> = items.into_iter().map(|item| item.row).collect();
                let header = std::mem::take(&mut self.header);
                output::text(&self.layout.render(header, &rows))?;
            }
        }
        Ok(())
    }
}
