use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::api::{ApiResource, DynamicObject};
use ray_api::meta::label;
use ray_api::quantity::Amount;

use super::list::{self, Item, View};
use super::{ListArgs, age};
use crate::connection::ConnectionArgs;
use crate::error::Result;
use crate::follow::pod;
use crate::table::{Cell, Row, column, wide};

pub(super) async fn run(
    connection: &ConnectionArgs,
    names: &[String],
    cluster: Option<&str>,
    args: &ListArgs,
) -> Result<()> {
    let mut columns = vec![
        column("NAME"),
        column("STATUS"),
        column("CPUS"),
        column("GPUS"),
        column("TPUS"),
        column("MEMORY"),
        column("CLUSTER"),
        column("TYPE"),
        column("WORKER GROUP"),
        column("AGE"),
        wide("IP"),
        wide("NODE"),
        wide("IMAGE"),
        wide("REASON"),
    ];
    if args.all_namespaces {
        columns.insert(0, column("NAMESPACE"));
    }
    let selector = match cluster {
        Some(cluster) => format!("{}=yes,{}={cluster}", label::IS_RAY_NODE, label::CLUSTER),
        None => format!("{}=yes", label::IS_RAY_NODE),
    };
    let view = View {
        resource: ApiResource::erase::<Pod>(&()),
        prefix: "pod".to_owned(),
        columns,
        selector: Some(selector),
        parts: false,
        cluster,
        items: Box::new(|object| vec![Item::whole(object, row(object, args.all_namespaces))]),
    };
    list::run(connection, names, args, &view).await
}

fn row(object: &DynamicObject, all_namespaces: bool) -> Row {
    let mut row = Row::new();
    if all_namespaces {
        row.push(object.metadata.namespace.clone().unwrap_or_default().into());
    }
    row.push(object.metadata.name.clone().unwrap_or_default().into());
    let pod: Pod = object.clone().try_parse().unwrap_or_default();
    let spec = pod.spec.as_ref();
    let status = pod.status.clone().unwrap_or_default();
    let [cpus, gpus, tpus, memory] = amounts(spec, 1);
    let group = pod::label(&pod, label::GROUP);
    let image = spec.and_then(|s| s.containers.first()?.image.clone());
    row.extend([
        pod::phase(&pod).into(),
        cpus,
        gpus,
        tpus,
        memory,
        pod::label(&pod, label::CLUSTER).into(),
        pod::label(&pod, label::NODE_TYPE).into(),
        if pod::is_head(&pod) { "" } else { group }.into(),
        age(object.metadata.creation_timestamp.as_ref()),
        status.pod_ip.unwrap_or_default().into(),
        spec.and_then(|s| s.node_name.clone()).unwrap_or_default().into(),
        image.unwrap_or_default().into(),
        pod::trouble(&pod).unwrap_or_default().into(),
    ]);
    row
}

/// CPUs, GPUs, TPUs and memory of `count` pods: what the scheduler sets aside, all containers together.
pub(super) fn amounts(spec: Option<&PodSpec>, count: i64) -> [Cell; 4] {
    ["cpu", "nvidia.com/gpu", "google.com/tpu", "memory"].map(|name| {
        let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
        let each = containers.iter().filter_map(|container| {
            let resources = container.resources.as_ref()?;
            let of = |map: &Option<
                std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
            >| map.as_ref()?.get(name).cloned();
            of(&resources.requests).or_else(|| of(&resources.limits))
        });
        let one: Amount = each.filter_map(|quantity| Amount::of(&quantity).ok()).sum();
        let total = one.times(count);
        Cell::ranked(total.to_string(), total.to_f64())
    })
}
