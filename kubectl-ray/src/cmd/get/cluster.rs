use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DynamicObject, ListParams, PartialObjectMeta};
use ray_api::conditions;
use ray_api::meta::{condition, label};
use ray_api::ray::v1::{RayCluster, RayClusterSpec, RayClusterStatus};
use serde::Deserialize;

use super::list::{self, Item, View};
use super::{ListArgs, age};
use crate::connection::ConnectionArgs;
use crate::error::Result;
use crate::follow::cluster::image_templates;
use crate::kinds::Kind;
use crate::output::Format;
use crate::table::{Cell, Column, Row, column, wide};

/// In this order the first that is true tells the most.
const TELLING: [&str; 5] = [
    condition::PROVISIONED,
    condition::HEAD_POD_READY,
    condition::REPLICA_FAILURE,
    condition::SUSPENDED,
    condition::SUSPENDING,
];

/// Healthy and all pods with a Serve proxy, by namespace and cluster.
type ServeCounts = BTreeMap<(String, String), (usize, usize)>;

pub(super) async fn run(connection: &ConnectionArgs, names: &[String], args: &ListArgs) -> Result<()> {
    let serve = if args.output == Format::Wide && !args.watch {
        serve_counts(connection, args).await?
    } else {
        ServeCounts::new()
    };
    let view = View {
        resource: Kind::RayCluster.resource(),
        prefix: "raycluster.ray.io".to_owned(),
        columns: columns(args.all_namespaces),
        selector: None,
        parts: false,
        cluster: None,
        items: Box::new(|object| vec![Item::whole(object, row(object, args.all_namespaces, &serve))]),
    };
    list::run(connection, names, args, &view).await
}

fn columns(all_namespaces: bool) -> Vec<Column> {
    let mut columns = vec![
        column("NAME"),
        column("DESIRED WORKERS"),
        column("AVAILABLE WORKERS"),
        column("CPUS"),
        column("GPUS"),
        column("TPUS"),
        column("MEMORY"),
        column("CONDITION"),
        column("STATUS"),
        column("AGE"),
        wide("SERVE"),
        wide("IMAGE TEMPLATE"),
        wide("HEAD POD"),
        wide("REASON"),
    ];
    if all_namespaces {
        columns.insert(0, column("NAMESPACE"));
    }
    columns
}

fn row(object: &DynamicObject, all_namespaces: bool, serve: &ServeCounts) -> Row {
    let namespace = object.metadata.namespace.clone().unwrap_or_default();
    let name = object.metadata.name.clone().unwrap_or_default();
    let mut row: Row = if all_namespaces {
        vec![namespace.clone().into()]
    } else {
        Vec::new()
    };
    row.push(name.clone().into());
    // A cluster that another version wrote may not fit our types; its name and age are still true.
    let Ok(cluster) = parse(object) else {
        row.extend(["?"; 8].map(Cell::from));
        row.push(age(object.metadata.creation_timestamp.as_ref()));
        return row;
    };
    let status = cluster.status.clone().unwrap_or_default();
    let list = status.conditions.clone().unwrap_or_default();
    let quantity = |q: &Option<k8s_openapi::apimachinery::pkg::api::resource::Quantity>| {
        super::quantity(q.as_ref().map_or_else(|| "0".to_owned(), |q| q.0.clone()))
    };
    let telling = TELLING
        .into_iter()
        .find(|type_| conditions::is_true(&list, type_));
    let counts = serve
        .get(&(namespace, name))
        .map(|(healthy, all)| format!("{healthy}/{all}"));
    row.extend([
        Cell::number(status.desired_worker_replicas.unwrap_or_default()),
        Cell::number(status.available_worker_replicas.unwrap_or_default()),
        quantity(&status.desired_cpu),
        quantity(&status.desired_gpu),
        quantity(&status.desired_tpu),
        quantity(&status.desired_memory),
        telling.unwrap_or_default().into(),
        status
            .state
            .map_or("", ray_api::ray::v1::ClusterState::as_str)
            .into(),
        age(object.metadata.creation_timestamp.as_ref()),
        counts.unwrap_or_default().into(),
        image_templates(&cluster).join(",").into(),
        status
            .head
            .and_then(|head| head.pod_name)
            .unwrap_or_default()
            .into(),
        status.reason.unwrap_or_default().into(),
    ]);
    row
}

/// What rows are made of: thousands of objects are not copied for it.
fn parse(object: &DynamicObject) -> serde_json::Result<RayCluster> {
    #[derive(Deserialize)]
    struct Content {
        spec: RayClusterSpec,
        status: Option<RayClusterStatus>,
    }
    let content = Content::deserialize(&object.data)?;
    let mut cluster = RayCluster::new("", content.spec);
    cluster
        .metadata
        .annotations
        .clone_from(&object.metadata.annotations);
    cluster.status = content.status;
    Ok(cluster)
}

async fn serve_counts(connection: &ConnectionArgs, args: &ListArgs) -> Result<ServeCounts> {
    let connected = connection.connect().await?;
    let api: Api<Pod> = if args.all_namespaces {
        Api::all(connected.client.clone())
    } else {
        connected.api()
    };
    let mut counts = ServeCounts::new();
    let mut params = ListParams::default().labels(label::SERVE).limit(args.chunk_size);
    loop {
        let page = match api.list_metadata(&params).await {
            // Without the right to read pods the column stays empty.
            Err(kube::Error::Api(status)) if status.is_forbidden() => return Ok(ServeCounts::new()),
            other => other?,
        };
        for pod in &page.items {
            count(&mut counts, pod);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(counts),
        }
    }
}

fn count(counts: &mut ServeCounts, pod: &PartialObjectMeta<Pod>) {
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    let Some(cluster) = labels.get(label::CLUSTER) else {
        return;
    };
    let key = (
        pod.metadata.namespace.clone().unwrap_or_default(),
        cluster.clone(),
    );
    let (healthy, all) = counts.entry(key).or_default();
    *all += 1;
    if labels.get(label::SERVE).is_some_and(|value| value == "true") {
        *healthy += 1;
    }
}
