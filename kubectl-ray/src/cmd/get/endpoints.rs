use clap::Args;
use k8s_openapi::api::core::v1::Service;
use ray_api::names;
use ray_api::ray::v1::RayCluster;
use serde_json::json;

use crate::connection::ConnectionArgs;
use crate::error::Result;
use crate::output::{self, Format};
use crate::table::{Layout, Row, column};

#[derive(Debug, Args)]
pub(super) struct EndpointsArgs {
    /// Ray cluster.
    #[arg(value_name = "CLUSTER", add = crate::complete::clusters())]
    name: String,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value = "table", hide_default_value = true)]
    output: Format,
}

struct Endpoint {
    name: String,
    service: String,
    port: i32,
    url: String,
}

pub(super) async fn run(connection: &ConnectionArgs, args: &EndpointsArgs) -> Result<()> {
    let connected = connection.connect().await?;
    let cluster = connected.api::<RayCluster>().get(&args.name).await?;
    let head = cluster
        .status
        .and_then(|status| status.head)
        .and_then(|head| head.service_name);
    let services = connected.api::<Service>();
    let mut endpoints = Vec::new();
    for service in [
        head.unwrap_or_else(|| names::head_service(&args.name)),
        names::serve_service(&args.name),
    ] {
        let Some(found) = services.get_opt(&service).await? else {
            continue;
        };
        endpoints.extend(of_service(&service, &connected.namespace, &found));
    }
    match args.output {
        Format::Json | Format::Yaml => {
            let list: Vec<_> = endpoints
                .iter()
                .map(|e| json!({"name": e.name, "service": e.service, "port": e.port, "url": e.url}))
                .collect();
            output::object(args.output, &json!(list))
        }
        Format::Name => endpoints
            .iter()
            .try_for_each(|endpoint| output::line(&endpoint.url)),
        Format::Table | Format::Wide if endpoints.is_empty() => {
            output::note(&format!("RayCluster {} has no Service yet.", args.name));
            Ok(())
        }
        Format::Table | Format::Wide => {
            let rows: Vec<Row> = endpoints
                .into_iter()
                .map(|e| {
                    vec![
                        e.name.into(),
                        e.service.into(),
                        crate::table::Cell::number(e.port),
                        e.url.into(),
                    ]
                })
                .collect();
            let columns = vec![
                column("NAME"),
                column("SERVICE"),
                column("PORT"),
                column("URL INSIDE THE CLUSTER"),
            ];
            output::text(&Layout::new(columns, false).render(true, &rows))
        }
    }
}

fn of_service(name: &str, namespace: &str, service: &Service) -> Vec<Endpoint> {
    let ports = service
        .spec
        .as_ref()
        .and_then(|spec| spec.ports.clone())
        .unwrap_or_default();
    let endpoint = |port: k8s_openapi::api::core::v1::ServicePort| {
        let port_name = port.name.unwrap_or_default();
        let scheme = match port_name.as_str() {
            "dashboard" | "serve" | "metrics" => "http://",
            "client" => "ray://",
            _ => "",
        };
        Endpoint {
            url: format!("{scheme}{name}.{namespace}.svc:{}", port.port),
            name: port_name,
            service: name.to_owned(),
            port: port.port,
        }
    };
    ports.into_iter().map(endpoint).collect()
}
