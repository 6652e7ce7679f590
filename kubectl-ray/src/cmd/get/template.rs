use kube::Api;
use kube::api::DynamicObject;
use ray_api::conditions;
use ray_api::template::v1alpha1::{ComputeTemplate, ImageTemplate};
use serde_json::Value;

use super::list::{self, Item, View};
use super::{ListArgs, age};
use crate::connection::ConnectionArgs;
use crate::error::Result;
use crate::kinds::Kind;
use crate::table::{Cell, Row, column, wide};

pub(super) async fn images(connection: &ConnectionArgs, names: &[String], args: &ListArgs) -> Result<()> {
    let mut columns = vec![
        column("NAME"),
        column("READY"),
        column("IMAGE"),
        column("BASE"),
        column("REASON"),
        column("AGE"),
        wide("RAY"),
        wide("PYTHON"),
        wide("USED BY"),
        wide("MESSAGE"),
    ];
    if args.all_namespaces {
        columns.insert(0, column("NAMESPACE"));
    }
    let view = View {
        resource: Kind::ImageTemplate.resource(),
        prefix: "imagetemplate.templates.ray.io".to_owned(),
        columns,
        selector: None,
        parts: false,
        cluster: None,
        items: Box::new(|object| vec![Item::whole(object, image_row(object, args.all_namespaces))]),
    };
    list::run(connection, names, args, &view).await
}

fn image_row(object: &DynamicObject, all_namespaces: bool) -> Row {
    let mut row = start(object, all_namespaces);
    let Ok(template) = object.clone().try_parse::<ImageTemplate>() else {
        row.extend(["?"; 4].map(Cell::from));
        row.push(age(object.metadata.creation_timestamp.as_ref()));
        return row;
    };
    let status = template.status.unwrap_or_default();
    let list = status.conditions.unwrap_or_default();
    let ready = conditions::find(&list, "Ready");
    let told = list
        .iter()
        .find(|c| c.type_ == "Failed" && c.status == "True")
        .or(ready);
    row.extend([
        ready.map(|c| c.status.clone()).unwrap_or_default().into(),
        status.short_digest.unwrap_or_default().into(),
        template.spec.base_image.into(),
        told.map(|c| c.reason.clone()).unwrap_or_default().into(),
        age(object.metadata.creation_timestamp.as_ref()),
        status.ray_version.unwrap_or_default().into(),
        status.python_version.unwrap_or_default().into(),
        Cell::number(status.used_by.map(|used| used.clusters).unwrap_or_default()),
        told.map(|c| c.message.clone()).unwrap_or_default().into(),
    ]);
    row
}

fn start(object: &DynamicObject, all_namespaces: bool) -> Row {
    let mut row = Row::new();
    if all_namespaces {
        row.push(object.metadata.namespace.clone().unwrap_or_default().into());
    }
    row.push(object.metadata.name.clone().unwrap_or_default().into());
    row
}

/// Both kinds in one table: a name means the template of the namespace first.
pub(super) async fn computes(connection: &ConnectionArgs, names: &[String], args: &ListArgs) -> Result<()> {
    let local = compute_view(Kind::ComputeTemplate, args.all_namespaces);
    if args.watch {
        return list::run(connection, names, args, &local).await;
    }
    let connected = connection.connect().await?;
    let client = connected.client.clone();
    let api: Api<DynamicObject> = if args.all_namespaces {
        Api::all_with(client.clone(), &local.resource)
    } else {
        Api::namespaced_with(client.clone(), &connected.namespace, &local.resource)
    };
    let mut items = list::read(&api, names, args, &local).await?;
    let shared = compute_view(Kind::ClusterComputeTemplate, args.all_namespaces);
    match list::read(&Api::all_with(client, &shared.resource), names, args, &shared).await {
        Ok(more) => items.extend(more),
        // Rights to the cluster-wide kind are not everybody's.
        Err(failure) if failure.exit == crate::error::Exit::Denied => {
            crate::output::warning(&failure.message)
        }
        Err(failure) => return Err(failure),
    }
    list::print(&connected, names, args, &local, items).await
}

fn compute_view(kind: Kind, all_namespaces: bool) -> View<'static> {
    let mut columns = vec![
        column("NAME"),
        column("SCOPE"),
        column("CPU"),
        column("MEMORY"),
        column("GPU"),
        column("READY"),
        column("USED BY"),
        column("AGE"),
        wide("EXTENDS"),
        wide("DESCRIPTION"),
    ];
    if all_namespaces {
        columns.insert(0, column("NAMESPACE"));
    }
    View {
        resource: kind.resource(),
        prefix: format!("{}.templates.ray.io", kind.singular()),
        columns,
        selector: None,
        parts: false,
        cluster: None,
        items: Box::new(move |object| vec![Item::whole(object, compute_row(kind, object, all_namespaces))]),
    }
}

fn compute_row(kind: Kind, object: &DynamicObject, all_namespaces: bool) -> Row {
    let mut row = start(object, all_namespaces);
    // Both kinds have the same fields.
    let template: Option<ComputeTemplate> = object.clone().try_parse().ok();
    let spec = template.clone().map(|t| t.spec).unwrap_or_default();
    let status = template.and_then(|t| t.status).unwrap_or_default();
    let list = status.conditions.unwrap_or_default();
    let amount = |name: &str| -> Cell {
        let resources = object.data.pointer("/spec/resources");
        let of = |kind: &str| resources.and_then(|r| r.get(kind)?.get(name)).map(plain);
        let written = of("limits").or_else(|| of("requests"));
        written.map(super::quantity).unwrap_or_default()
    };
    row.extend([
        if kind.is_namespaced() {
            "Namespace"
        } else {
            "Cluster"
        }
        .into(),
        amount("cpu"),
        amount("memory"),
        amount("nvidia.com/gpu"),
        conditions::find(&list, "Ready")
            .map(|c| c.status.clone())
            .unwrap_or_default()
            .into(),
        Cell::number(status.used_by.map(|used| used.clusters).unwrap_or_default()),
        age(object.metadata.creation_timestamp.as_ref()),
        spec.extends.unwrap_or_default().into(),
        spec.description.unwrap_or_default().into(),
    ]);
    row
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
