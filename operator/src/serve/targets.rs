//! Which address to ask about a pod's Serve proxy, if any: pure, and the only place that decides what is reached.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ray_api::meta::annotation;

use super::facts::PodFacts;

/// Serve's port where nothing names another.
pub(super) const DEFAULT_PORT: u16 = 8000;
/// Path that Serve's proxies answer on.
pub(super) const DEFAULT_PATH: &str = "/-/healthz";
/// Ports below belong to the system: nobody may aim the prober at them.
const FIRST_PORT: u16 = 1024;
/// Long enough for any health path.
const MAX_PATH: usize = 256;

/// What a RayCluster says about its health checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// Port by annotation.
    port: Option<u16>,
    /// Port of the head's Ray container named `serve`.
    head_port: Option<i32>,
    /// Path, by annotation or the default.
    path: Arc<str>,
    /// The head gets no Serve traffic.
    exclude_head: bool,
}

impl Settings {
    /// Reads the annotations of a RayCluster.
    ///
    /// # Errors
    /// A sentence that names the annotation, its value and the rule.
    pub(super) fn parse(
        annotations: &BTreeMap<String, String>,
        head_port: Option<i32>,
    ) -> Result<Self, String> {
        let port = annotations
            .get(annotation::SERVE_HEALTH_PORT)
            .map(|text| {
                let port = text.parse().ok().filter(|port| *port >= FIRST_PORT);
                let name = annotation::SERVE_HEALTH_PORT;
                port.ok_or_else(|| {
                    format!("annotation {name} is {text:?}: set it to a port from {FIRST_PORT} to 65535, or remove it")
                })
            })
            .transpose()?;
        let path = annotations
            .get(annotation::SERVE_HEALTH_PATH)
            .map_or(DEFAULT_PATH, String::as_str);
        if !is_plain_path(path) {
            let name = annotation::SERVE_HEALTH_PATH;
            return Err(format!(
                "annotation {name} is {path:?}: set it to a path of at most {MAX_PATH} characters that starts with / \
                 and has only letters, digits and ._~/- after it, or remove it"
            ));
        }
        Ok(Self {
            port,
            head_port,
            path: path.into(),
            exclude_head: annotations
                .get(annotation::SERVE_EXCLUDE_HEAD)
                .is_some_and(|value| value == "true"),
        })
    }

    /// The port where Serve is expected on a pod that declares none itself, for messages.
    #[must_use]
    pub(super) fn port(&self) -> i32 {
        self.port
            .map(i32::from)
            .or(self.head_port)
            .unwrap_or(DEFAULT_PORT.into())
    }
}

/// Where to ask about one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The pod's own address and its Serve port.
    pub address: SocketAddr,
    /// Path of the health check.
    pub path: Arc<str>,
}

/// What to do about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Assessment {
    /// Ask there.
    Probe(Target),
    /// It must not get Serve traffic, and is not asked.
    Out,
}

/// Decides what to do about a pod of a cluster with these settings.
///
/// `reachable` says whether an address may be asked at all: [`is_pod_address`].
#[must_use]
pub(super) fn assess(settings: &Settings, pod: &PodFacts, reachable: fn(IpAddr) -> bool) -> Assessment {
    if !pod.running || (pod.head && settings.exclude_head) {
        return Assessment::Out;
    }
    let declared = pod
        .serve_port
        .or(settings.head_port)
        .unwrap_or(DEFAULT_PORT.into());
    // On the node's own network an annotation could name any service of the node.
    let (port, path) = if pod.host_network {
        (declared, DEFAULT_PATH.into())
    } else {
        (
            settings.port.map_or(declared, i32::from),
            Arc::clone(&settings.path),
        )
    };
    let port = u16::try_from(port).ok().filter(|port| *port >= FIRST_PORT);
    match (
        pod.ip.map(|ip| ip.to_canonical()).filter(|ip| reachable(*ip)),
        port,
    ) {
        (Some(ip), Some(port)) => Assessment::Probe(Target {
            address: SocketAddr::new(ip, port),
            path,
        }),
        _ => Assessment::Out,
    }
}

/// Whether an address can be a pod's own, in canonical form: neither loopback, link-local (cloud metadata), multicast nor void.
#[must_use]
pub(super) fn is_pod_address(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            !(ip.is_loopback()
                || ip.is_link_local()
                || ip.is_unspecified()
                || ip.is_multicast()
                || ip.is_broadcast())
        }
        IpAddr::V6(ip) => {
            !(ip.is_loopback()
                || ip.is_unicast_link_local()
                || ip.is_unspecified()
                || ip.is_multicast()
                || is_compatible(ip))
        }
    }
}

/// `::a.b.c.d`, deprecated, which some stacks still take for the IPv4 address.
fn is_compatible(ip: Ipv6Addr) -> bool {
    matches!(ip.segments(), [0, 0, 0, 0, 0, 0, _, _])
}

fn is_plain_path(path: &str) -> bool {
    path.starts_with('/')
        && path.len() <= MAX_PATH
        && path
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._~/-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::super::facts::ObjectKey;
    use super::*;
    use proptest::prelude::*;

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn settings(pairs: &[(&str, &str)], head_port: Option<i32>) -> Settings {
        Settings::parse(&annotations(pairs), head_port).unwrap()
    }

    fn pod() -> PodFacts {
        PodFacts {
            key: ObjectKey {
                uid: "p".into(),
                namespace: "ns".into(),
                name: "pod".into(),
            },
            owner: "c".into(),
            head: false,
            running: true,
            ip: Some("10.0.0.7".parse().unwrap()),
            host_network: false,
            serve_port: None,
            label: None,
            label_is_ours: false,
        }
    }

    fn asked(settings: &Settings, pod: &PodFacts) -> Option<String> {
        match assess(settings, pod, is_pod_address) {
            Assessment::Probe(target) => Some(format!("{}{}", target.address, target.path)),
            Assessment::Out => None,
        }
    }

    #[test]
    fn the_port_is_the_annotations_then_the_pods_then_the_heads_then_8000() {
        let worker = PodFacts {
            serve_port: Some(9001),
            ..pod()
        };
        let annotated = [
            (annotation::SERVE_HEALTH_PORT, "9003"),
            (annotation::SERVE_HEALTH_PATH, "/live"),
        ];
        let cases = [
            (settings(&annotated, Some(9002)), &worker, "10.0.0.7:9003/live"),
            (settings(&[], Some(9002)), &worker, "10.0.0.7:9001/-/healthz"),
            (settings(&[], Some(9002)), &pod(), "10.0.0.7:9002/-/healthz"),
            (settings(&[], None), &pod(), "10.0.0.7:8000/-/healthz"),
        ];
        for (settings, pod, expected) in cases {
            assert_eq!(asked(&settings, pod).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_pod_on_the_hosts_network_is_asked_only_on_its_serve_port_and_the_default_path() {
        let annotated = [
            (annotation::SERVE_HEALTH_PORT, "10250"),
            (annotation::SERVE_HEALTH_PATH, "/pods"),
        ];
        let pod = PodFacts {
            host_network: true,
            ..pod()
        };
        assert_eq!(
            asked(&settings(&annotated, None), &pod).as_deref(),
            Some("10.0.0.7:8000/-/healthz")
        );
    }

    #[test]
    fn no_request_goes_to_an_excluded_head() {
        let excluded = settings(&[(annotation::SERVE_EXCLUDE_HEAD, "true")], None);
        assert_eq!(asked(&excluded, &PodFacts { head: true, ..pod() }), None);
        assert!(asked(&excluded, &pod()).is_some());
    }

    #[test]
    fn no_request_goes_to_a_pod_that_does_not_run() {
        assert_eq!(
            asked(
                &settings(&[], None),
                &PodFacts {
                    running: false,
                    ..pod()
                }
            ),
            None
        );
        assert_eq!(asked(&settings(&[], None), &PodFacts { ip: None, ..pod() }), None);
    }

    #[test]
    fn system_ports_are_never_asked() {
        for port in [-1, 0, 22, 1023, 70_000] {
            assert_eq!(
                asked(
                    &settings(&[], None),
                    &PodFacts {
                        serve_port: Some(port),
                        ..pod()
                    }
                ),
                None
            );
        }
    }

    #[test]
    fn only_addresses_that_a_pod_can_have_are_asked() {
        let forbidden = [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
        ];
        for ip in forbidden {
            let pod = PodFacts {
                ip: Some(ip.parse().unwrap()),
                ..pod()
            };
            assert_eq!(asked(&settings(&[], None), &pod), None, "{ip}");
        }
        for (ip, url) in [
            ("10.1.2.3", "10.1.2.3:8000/-/healthz"),
            ("fd00::7", "[fd00::7]:8000/-/healthz"),
            ("::ffff:10.1.2.3", "10.1.2.3:8000/-/healthz"),
        ] {
            let pod = PodFacts {
                ip: Some(ip.parse().unwrap()),
                ..pod()
            };
            assert_eq!(asked(&settings(&[], None), &pod).as_deref(), Some(url));
        }
    }

    #[test]
    fn a_bad_annotation_says_which_and_what_is_allowed() {
        for port in ["", "http", "80", "0", "70000", "-1"] {
            let error =
                Settings::parse(&annotations(&[(annotation::SERVE_HEALTH_PORT, port)]), None).unwrap_err();
            assert!(
                error.contains("ray.io/serve-health-port") && error.contains("1024"),
                "{error}"
            );
        }
        for path in [
            "",
            "healthz",
            "/a b",
            "/?x=1",
            "/a#b",
            "/\r\nX: y",
            "/%2e",
            "/é",
            &"/".repeat(300),
        ] {
            let error =
                Settings::parse(&annotations(&[(annotation::SERVE_HEALTH_PATH, path)]), None).unwrap_err();
            assert!(error.contains("ray.io/serve-health-path"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_asked_is_the_pods_own_address_on_a_user_port(
            port in any::<i32>(), head_port in any::<Option<i32>>(), text in ".{0,8}", path in ".{0,8}",
            ip in any::<IpAddr>(), host_network in any::<bool>(),
        ) {
            let pairs = annotations(&[(annotation::SERVE_HEALTH_PORT, &text), (annotation::SERVE_HEALTH_PATH, &path)]);
            let settings = Settings::parse(&pairs, head_port).unwrap_or_else(|_| settings(&[], head_port));
            let pod = PodFacts { serve_port: Some(port), ip: Some(ip), host_network, ..pod() };
            if let Assessment::Probe(target) = assess(&settings, &pod, is_pod_address) {
                prop_assert_eq!(target.address.ip(), ip.to_canonical());
                prop_assert!(target.address.port() >= FIRST_PORT);
                prop_assert!(is_plain_path(&target.path));
            }
        }
    }
}
