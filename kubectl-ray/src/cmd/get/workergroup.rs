use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DynamicObject, ListParams};
use ray_api::meta::{NODE_TYPE_WORKER, label};
use ray_api::ray::v1::{RayCluster, WorkerGroupSpec};
use serde_json::{Value, json};

use super::list::{self, Item, View};
use super::{ListArgs, node};
use crate::connection::ConnectionArgs;
use crate::error::{Failure, Result};
use crate::follow::pod;
use crate::kinds::Kind;
use crate::table::{Cell, column};

/// Ready worker pods by namespace, cluster and group.
type Ready = BTreeMap<(String, String, String), i64>;

pub(super) async fn run(
    connection: &ConnectionArgs,
    names: &[String],
    cluster: Option<&str>,
    args: &ListArgs,
) -> Result<()> {
    if args.watch {
        return Err(
            Failure::usage("worker groups are no objects of their own, and cannot be watched")
                .hint("use `kubectl ray get cluster -w` or `kubectl ray get node -w`"),
        );
    }
    let ready = ready_workers(connection, cluster, args).await?;
    let mut columns = vec![
        column("NAME"),
        column("MIN"),
        column("MAX"),
        column("REPLICAS"),
        column("CPUS"),
        column("GPUS"),
        column("TPUS"),
        column("MEMORY"),
        column("CLUSTER"),
        column("COMPUTE TEMPLATE"),
    ];
    if args.all_namespaces {
        columns.insert(0, column("NAMESPACE"));
    }
    let view = View {
        resource: Kind::RayCluster.resource(),
        prefix: "workergroup".to_owned(),
        columns,
        selector: None,
        parts: true,
        cluster,
        items: Box::new(|object| groups(object, args.all_namespaces, &ready)),
    };
    list::run(connection, names, args, &view).await
}

fn groups(object: &DynamicObject, all_namespaces: bool, ready: &Ready) -> Vec<Item> {
    let Ok(cluster) = object.clone().try_parse::<RayCluster>() else {
        return Vec::new();
    };
    let namespace = object.metadata.namespace.clone().unwrap_or_default();
    let name = object.metadata.name.clone().unwrap_or_default();
    let raw = object
        .data
        .pointer("/spec/workerGroupSpecs")
        .and_then(Value::as_array);
    let raw: Vec<Value> = raw.cloned().unwrap_or_default();
    let groups = cluster.spec.worker_group_specs.iter().zip(raw);
    groups
        .map(|(group, spec)| {
            let key = (namespace.clone(), name.clone(), group.group_name.clone());
            let mut row = row(group, &name, ready.get(&key).copied().unwrap_or_default());
            if all_namespaces {
                row.insert(0, namespace.clone().into());
            }
            Item {
                name: group.group_name.clone(),
                row,
                object: Some(json!({
                    "apiVersion": "ray.io/v1", "kind": "WorkerGroup",
                    "metadata": {"name": group.group_name, "namespace": namespace, "labels": {label::CLUSTER: name}},
                    "spec": spec,
                })),
            }
        })
        .collect()
}

fn row(group: &WorkerGroupSpec, cluster: &str, ready: i64) -> Vec<Cell> {
    let hosts = i64::from(group.num_of_hosts.unwrap_or(1).max(1));
    let desired = i64::from(group.replicas.unwrap_or_default()) * hosts;
    let spec = group
        .template
        .as_ref()
        .and_then(|template| template.spec.as_ref());
    let [cpus, gpus, tpus, memory] = node::amounts(spec, desired);
    let most = group.max_replicas.filter(|most| *most != i32::MAX);
    vec![
        group.group_name.clone().into(),
        Cell::number(group.min_replicas.unwrap_or_default()),
        most.map_or_else(Cell::default, Cell::number),
        Cell::ranked(format!("{ready}/{desired}"), desired as f64),
        cpus,
        gpus,
        tpus,
        memory,
        cluster.into(),
        group.compute_template.clone().unwrap_or_default().into(),
    ]
}

/// One list of pods for all groups.
async fn ready_workers(connection: &ConnectionArgs, cluster: Option<&str>, args: &ListArgs) -> Result<Ready> {
    let connected = connection.connect().await?;
    let api: Api<Pod> = if args.all_namespaces {
        Api::all(connected.client.clone())
    } else {
        connected.api()
    };
    let of_cluster = cluster.map(|name| format!(",{}={name}", label::CLUSTER));
    let workers = format!(
        "{}={NODE_TYPE_WORKER}{}",
        label::NODE_TYPE,
        of_cluster.unwrap_or_default()
    );
    let mut params = ListParams::default().labels(&workers).limit(args.chunk_size);
    let mut ready = Ready::new();
    loop {
        let page = api.list(&params).await?;
        for worker in page.items.iter().filter(|pod| pod::is_ready(pod)) {
            let namespace = worker.metadata.namespace.clone().unwrap_or_default();
            let cluster = pod::label(worker, label::CLUSTER).to_owned();
            let group = pod::label(worker, label::GROUP).to_owned();
            *ready.entry((namespace, cluster, group)).or_default() += 1;
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(ready),
        }
    }
}
