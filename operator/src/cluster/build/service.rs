//! The Services of a cluster (raycluster-behaviour 2.4).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use ray_api::meta::{APP_NAME, CREATED_BY, NODE_TYPE_HEAD, NODE_TYPE_WORKER, annotation, label};
use ray_api::names;

use super::facts::{Crd, Facts, annotation_is_true, hosts, param};
use super::pod::{METRICS_PORT, identifier};
use super::probes::{DEFAULT_DASHBOARD_PORT, DEFAULT_SERVE_PORT};
use super::{owned, owner_reference};

/// Ports of a head that declares none, with the start parameter that moves each.
const DEFAULT_PORTS: [(&str, i32, &str); 5] = [
    ("client", 10001, "ray-client-server-port"),
    ("gcs-server", 6379, "port"),
    ("dashboard", DEFAULT_DASHBOARD_PORT, "dashboard-port"),
    ("metrics", METRICS_PORT, "metrics-export-port"),
    ("serve", DEFAULT_SERVE_PORT, ""),
];

/// The head Service: by default headless, and with addresses that are not ready, so that workers find a head
/// that is just starting.
pub(super) fn head(facts: &Facts<'_>) -> Service {
    let group = &facts.spec.head_group_spec;
    let selector = head_labels(facts);
    let generated = head_ports(facts);
    let Some(user) = &group.head_service else {
        let mut spec = ServiceSpec {
            type_: group.service_type.clone().filter(|kind| !kind.is_empty()),
            selector: Some(selector.clone()),
            ports: Some(generated),
            ..ServiceSpec::default()
        };
        let plain = matches!(spec.type_.as_deref(), None | Some("ClusterIP"));
        if plain && !facts.config.args.head_cluster_ip_service {
            spec.cluster_ip = Some("None".to_owned());
            spec.publish_not_ready_addresses = Some(true);
        }
        return service(facts, facts.head_service.clone(), selector, spec);
    };
    let mut labels = user.metadata.labels.clone().unwrap_or_default();
    labels.extend(selector.clone());
    let mut spec = user.spec.clone().unwrap_or_default();
    spec.selector = Some(selector);
    if spec.type_.as_ref().is_none_or(String::is_empty) {
        spec.type_ = group.service_type.clone().filter(|kind| !kind.is_empty());
    }
    let mut ports = spec.ports.take().unwrap_or_default();
    // A port that the user wrote stays as it is; a second one of its name or number would be refused.
    let names: BTreeSet<_> = ports.iter().filter_map(|port| port.name.clone()).collect();
    let numbers: BTreeSet<_> = ports.iter().map(|port| port.port).collect();
    ports.extend(generated.into_iter().filter(|port| {
        !numbers.contains(&port.port) && port.name.as_ref().is_none_or(|name| !names.contains(name))
    }));
    spec.ports = Some(ports);
    let mut service = service(facts, facts.head_service.clone(), labels, spec);
    if let Some(own) = &user.metadata.annotations {
        let annotations = service.metadata.annotations.get_or_insert_default();
        for (key, value) in own {
            annotations.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    service
}

/// Lets the hosts of multi-host replicas find each other.
pub(super) fn headless(facts: &Facts<'_>) -> Option<Service> {
    let multi_host = facts.spec.worker_group_specs.iter().any(|group| hosts(group) > 1);
    let labels = [
        (label::HEADLESS_WORKER_SVC, facts.name),
        (label::CLUSTER, facts.name),
    ];
    multi_host.then(|| Service {
        metadata: owned(facts, names::headless_service(facts.name), &labels),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(true),
            selector: Some(map(&[
                (label::CLUSTER, facts.name),
                (label::NODE_TYPE, NODE_TYPE_WORKER),
            ])),
            ..ServiceSpec::default()
        }),
        status: None,
    })
}

/// The Serve Service of a cluster that asks for one. It selects all pods; the Serve controller narrows the
/// selector to healthy ones. KubeRay's RayService controller makes its own.
pub(super) fn serve(facts: &Facts<'_>) -> Option<Service> {
    let annotations = facts.cluster.metadata.annotations.as_ref();
    if !annotation_is_true(annotations, annotation::ENABLE_SERVE_SERVICE) || facts.crd == Crd::RayService {
        return None;
    }
    let name = names::serve_service(facts.name);
    let serve = format!("{}-serve", facts.name);
    let labels = [
        (label::CLUSTER, facts.name),
        (label::ORIGINATED_FROM_CR_NAME, facts.name),
        (label::ORIGINATED_FROM_CRD, "RayCluster"),
        (label::SERVE, &serve),
    ];
    Some(Service {
        metadata: owned(facts, name, &labels),
        spec: Some(ServiceSpec {
            type_: facts
                .spec
                .head_group_spec
                .service_type
                .clone()
                .filter(|kind| !kind.is_empty()),
            selector: Some(map(&[(label::CLUSTER, facts.name)])),
            ports: Some(serve_ports(facts)),
            ..ServiceSpec::default()
        }),
        status: None,
    })
}

/// Port of the dashboard on the head Service.
pub(super) fn dashboard_port(facts: &Facts<'_>) -> i32 {
    head_ports(facts)
        .into_iter()
        .find(|port| port.name.as_deref() == Some("dashboard"))
        .map_or(DEFAULT_DASHBOARD_PORT, |port| port.port)
}

/// The labels of a head pod that its Service selects on, and carries itself.
pub(super) fn head_labels(facts: &Facts<'_>) -> BTreeMap<String, String> {
    let group = &facts.spec.head_group_spec;
    let template = group
        .template
        .as_ref()
        .and_then(|template| template.metadata.as_ref());
    let name = param(Some(&group.labels), label::APP_NAME)
        .or_else(|| {
            param(
                template.and_then(|metadata| metadata.labels.as_ref()),
                label::APP_NAME,
            )
        })
        .unwrap_or(APP_NAME);
    map(&[
        (label::CLUSTER, facts.name),
        (label::NODE_TYPE, NODE_TYPE_HEAD),
        (label::IDENTIFIER, &identifier(facts, NODE_TYPE_HEAD)),
        (label::APP_NAME, name),
        (label::APP_CREATED_BY, CREATED_BY),
    ])
}

fn service(facts: &Facts<'_>, name: String, labels: BTreeMap<String, String>, spec: ServiceSpec) -> Service {
    let annotations = facts.spec.head_service_annotations.clone();
    let mut metadata = owned(facts, name, &[]);
    metadata.labels = Some(labels);
    metadata.annotations = Some(annotations).filter(|annotations| !annotations.is_empty());
    metadata.owner_references = Some(vec![owner_reference(facts)]);
    Service {
        metadata,
        spec: Some(spec),
        status: None,
    }
}

/// The head container's ports, or the defaults, and always one for metrics; sorted by name.
fn head_ports(facts: &Facts<'_>) -> Vec<ServicePort> {
    let declared = facts.head_container().and_then(|ray| ray.ports.as_deref());
    let mut ports: BTreeMap<String, i32> = match declared {
        None | Some([]) => DEFAULT_PORTS
            .iter()
            .map(|(name, port, moved_by)| ((*name).to_owned(), started_at(facts, moved_by).unwrap_or(*port)))
            .collect(),
        Some(declared) => declared
            .iter()
            .map(|port| {
                let number = port.container_port;
                let name = port.name.clone().filter(|name| !name.is_empty());
                (name.unwrap_or_else(|| format!("{number}-port")), number)
            })
            .collect(),
    };
    if !ports.values().any(|port| *port == METRICS_PORT) {
        ports.entry("metrics".to_owned()).or_insert(METRICS_PORT);
    }
    let mut seen = BTreeSet::new();
    ports
        .into_iter()
        .filter(|(_, port)| seen.insert(*port))
        .map(|(name, port)| ServicePort {
            app_protocol: Some("tcp".to_owned()),
            ..service_port(name, port)
        })
        .collect()
}

/// The port that a start parameter names; shell text that is no number says nothing here.
fn started_at(facts: &Facts<'_>, parameter: &str) -> Option<i32> {
    let params = facts.spec.head_group_spec.ray_start_params.as_ref();
    param(params, parameter)?
        .trim()
        .parse::<u16>()
        .ok()
        .map(i32::from)
}

/// Ports named `serve` or `serve-…`; the annotation's, or Serve's own, where there is none.
fn serve_ports(facts: &Facts<'_>) -> Vec<ServicePort> {
    let annotated = param(
        facts.cluster.metadata.annotations.as_ref(),
        annotation::SERVE_HEALTH_PORT,
    )
    .and_then(|text| text.trim().parse::<u16>().ok());
    let mut ports: Vec<_> = head_ports(facts)
        .into_iter()
        .filter_map(|port| Some((port.name?, port.port)))
        .filter(|(name, _)| name == "serve" || name.starts_with("serve-"))
        .collect();
    if let Some(port) = annotated {
        ports.retain(|(name, _)| name != "serve");
        ports.push(("serve".to_owned(), port.into()));
    } else if ports.is_empty() {
        ports.push(("serve".to_owned(), DEFAULT_SERVE_PORT));
    }
    ports
        .into_iter()
        .map(|(name, port)| service_port(name, port))
        .collect()
}

fn service_port(name: String, port: i32) -> ServicePort {
    ServicePort {
        name: Some(name),
        port,
        target_port: Some(IntOrString::Int(port)),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    }
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::config::Config;
    use crate::cluster::fixtures::cluster;

    fn with<T>(patch: Value, config: &Config, build: impl Fn(&Facts<'_>) -> T) -> T {
        let cluster = cluster(patch);
        build(&Facts::new(&cluster, config))
    }

    /// Ports of the Serve Service of a cluster with these annotations and head ports.
    fn serve_ports_of(annotations: Value, ports: Value) -> Vec<(String, i32)> {
        let patch = json!({
            "metadata": {"annotations": annotations},
            "spec": {"headGroupSpec": {"template": {"spec": {"containers": [{"name": "ray-head", "ports": ports}]}}}},
        });
        let service = with(patch, &Config::for_tests(), serve);
        let ports = service.map(|service| service.spec.unwrap().ports.unwrap());
        let ports = ports.into_iter().flatten();
        ports.map(|port| (port.name.unwrap(), port.port)).collect()
    }

    #[test]
    fn the_serve_service_takes_the_annotated_port_else_the_heads_else_serves_own() {
        let on = json!({"ray.io/enable-serve-service": "TRUE"});
        let at =
            |port: &str| json!({"ray.io/enable-serve-service": "true", "ray.io/serve-health-port": port});
        let none = json!([]);
        let own =
            json!([{"name": "serve", "containerPort": 9000}, {"name": "serve-grpc", "containerPort": 9001}]);
        let other = json!([{"name": "dashboard", "containerPort": 8265}]);
        let serve = |port| ("serve".to_owned(), port);
        let grpc = ("serve-grpc".to_owned(), 9001);
        assert_eq!(serve_ports_of(on.clone(), none.clone()), [serve(8000)]);
        assert_eq!(serve_ports_of(on.clone(), other), [serve(8000)]);
        assert_eq!(serve_ports_of(on, own.clone()), [serve(9000), grpc.clone()]);
        assert_eq!(
            serve_ports_of(at("7000"), own.clone()),
            [grpc.clone(), serve(7000)]
        );
        assert_eq!(
            serve_ports_of(at("soon"), own.clone()),
            [serve(9000), grpc],
            "nonsense is no port"
        );
        assert_eq!(
            serve_ports_of(json!({"ray.io/enable-serve-service": "no"}), own),
            []
        );
    }

    #[test]
    fn a_users_labels_cannot_break_the_head_services_selector() {
        let patch = json!({"spec": {"headGroupSpec": {
            "labels": {"ray.io/identifier": "mine"},
            "template": {"metadata": {"labels": {
                "ray.io/cluster": "other", "ray.io/node-type": "worker", "ray.io/group": "x",
                "app.kubernetes.io/created-by": "me", "app.kubernetes.io/name": "myapp", "team": "a",
            }}},
        }}});
        let config = Config::for_tests();
        let selector = with(patch.clone(), &config, |facts| {
            head(facts).spec.unwrap().selector.unwrap()
        });
        let labels = with(patch, &config, |facts| {
            crate::cluster::build::head_pod(facts).metadata.labels.unwrap()
        });
        for (key, value) in &selector {
            assert_eq!(labels.get(key), Some(value), "{key}");
        }
        assert_eq!(labels.get(label::CLUSTER).map(String::as_str), Some("c"));
        assert_eq!(
            labels.get(label::APP_NAME).map(String::as_str),
            Some("myapp"),
            "this one is honoured"
        );
        assert_eq!(labels.get("team").map(String::as_str), Some("a"));
    }

    #[test]
    fn ports_of_the_start_parameters_are_the_services_where_none_is_declared() {
        let moved = json!({"dashboard-port": "8266", "port": "6380", "ray-client-server-port": "$P"});
        let ports_of = |containers: Value| {
            let head = json!({"rayStartParams": moved, "template": {"spec": {"containers": containers}}});
            let patch = json!({"spec": {"headGroupSpec": head}});
            with(patch, &Config::for_tests(), |facts| {
                let named = head_ports(facts)
                    .into_iter()
                    .map(|port| (port.name.unwrap(), port.port));
                named.collect::<BTreeMap<_, _>>()
            })
        };
        let ports = ports_of(json!([{"name": "ray-head"}]));
        assert_eq!(
            (ports["client"], ports["dashboard"], ports["gcs-server"]),
            (10001, 8266, 6380)
        );
        let declared = json!([{"name": "ray-head", "ports": [{"name": "dashboard", "containerPort": 8267}]}]);
        assert_eq!(
            ports_of(declared)["dashboard"],
            8267,
            "what is written down holds"
        );
    }

    #[test]
    fn a_port_that_the_user_wrote_stays_as_it_is() {
        let own = json!([{"name": "dashboard", "port": 8265, "appProtocol": "http"}]);
        let patch = json!({"spec": {"headGroupSpec": {"headService": {"spec": {"ports": own}}}}});
        let ports = with(patch, &Config::for_tests(), |facts| {
            head(facts).spec.unwrap().ports.unwrap()
        });
        let dashboards: Vec<_> = ports
            .iter()
            .filter(|port| port.name.as_deref() == Some("dashboard"))
            .map(|port| port.app_protocol.as_deref())
            .collect();
        assert_eq!(dashboards, [Some("http")]);
    }

    #[test]
    fn a_plain_head_service_is_headless_unless_told_otherwise() {
        let mut config = Config::for_tests();
        let address =
            |patch: Value, config: &Config| with(patch, config, |facts| head(facts).spec.unwrap().cluster_ip);
        assert_eq!(address(json!({}), &config).as_deref(), Some("None"));
        let balanced = json!({"spec": {"headGroupSpec": {"serviceType": "LoadBalancer"}}});
        assert_eq!(address(balanced, &config), None);
        config.args.head_cluster_ip_service = true;
        assert_eq!(address(json!({}), &config), None);
    }

    #[test]
    fn long_names_keep_their_services_whole() {
        let name = "c".repeat(53);
        let patch = json!({
            "metadata": {"name": name, "annotations": {"ray.io/enable-serve-service": "true"}},
            "spec": {"workerGroupSpecs": [{"groupName": "g", "numOfHosts": 4}]},
        });
        let names = with(patch, &Config::for_tests(), |facts| {
            [Some(head(facts)), headless(facts), serve(facts)]
                .map(|service| service.unwrap().metadata.name.unwrap())
        });
        assert_eq!(
            names,
            ["head-svc", "headless", "serve-svc"].map(|part| format!("{name}-{part}"))
        );
    }
}
