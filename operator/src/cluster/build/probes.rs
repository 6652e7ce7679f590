//! Probes of the Ray container (raycluster-behaviour 3.5), kept apart from what the user set.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ExecAction, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::facts::{Crd, Facts};

/// Port of the dashboard agent on every Ray node.
pub(super) const DEFAULT_AGENT_PORT: i32 = 52365;
/// Port of the dashboard on the head.
pub(super) const DEFAULT_DASHBOARD_PORT: i32 = 8265;
/// Port of Serve's proxy.
pub(super) const DEFAULT_SERVE_PORT: i32 = 8000;

/// Seconds that one inner check of an exec probe may take.
const INNER_TIMEOUT: i32 = 2;

/// Period and thresholds of a probe.
struct Schedule {
    delay: i32,
    period: i32,
    failures: i32,
}

/// As KubeRay's: ten minutes of failures until a restart.
const LIVENESS: Schedule = Schedule {
    delay: 30,
    period: 5,
    failures: 120,
};
/// KubeRay waits 10 s and asks every 5 s, ten failures long; the same 50 s of tolerance at a shorter period
/// make a node ready seconds earlier.
const READINESS: Schedule = Schedule {
    delay: 1,
    period: 2,
    failures: 25,
};
/// A worker of a RayService leaves traffic at its first failure.
const SERVE_READINESS: Schedule = Schedule {
    delay: 1,
    period: 2,
    failures: 1,
};

/// Adds the probes that the user did not set.
pub(super) fn add(
    container: &mut Container,
    facts: &Facts<'_>,
    params: &BTreeMap<String, String>,
    is_head: bool,
) {
    if !facts.config.args.inject_probes {
        return;
    }
    let agent = port(params, "dashboard-agent-listen-port", DEFAULT_AGENT_PORT);
    let mut checks = vec![(agent, "api/local_raylet_healthz")];
    if is_head {
        let dashboard = port(params, "dashboard-port", DEFAULT_DASHBOARD_PORT);
        checks.push((dashboard, "api/gcs_healthz"));
    }
    let probe = |schedule: &Schedule| {
        let probe = probe(schedule, if is_head { 5 } else { 2 });
        if facts.has_http_health() {
            with_http(probe, agent)
        } else {
            with_exec(probe, &checks)
        }
    };
    if container.liveness_probe.is_none() {
        container.liveness_probe = Some(probe(&LIVENESS));
    }
    if container.readiness_probe.is_none() {
        container.readiness_probe = Some(if facts.crd == Crd::RayService && !is_head {
            // Ready means ready for traffic: the node and its Serve proxy, which only a command can both ask.
            checks.push((serve_port(container), "-/healthz"));
            with_exec(self::probe(&SERVE_READINESS, 5), &checks)
        } else {
            probe(&READINESS)
        });
    }
}

/// The container's port named `serve`, else Serve's default.
pub(super) fn serve_port(container: &Container) -> i32 {
    container
        .ports
        .iter()
        .flatten()
        .find(|port| port.name.as_deref() == Some("serve"))
        .map_or(DEFAULT_SERVE_PORT, |port| port.container_port)
}

/// A port from the start parameters; shell text that is no number falls back.
pub(super) fn port(params: &BTreeMap<String, String>, key: &str, default: i32) -> i32 {
    params
        .get(key)
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(default)
}

fn probe(schedule: &Schedule, timeout: i32) -> Probe {
    Probe {
        initial_delay_seconds: Some(schedule.delay),
        period_seconds: Some(schedule.period),
        success_threshold: Some(1),
        failure_threshold: Some(schedule.failures),
        timeout_seconds: Some(timeout),
        ..Probe::default()
    }
}

fn with_http(probe: Probe, port: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some("/api/healthz".to_owned()),
            port: IntOrString::Int(port),
            ..HTTPGetAction::default()
        }),
        ..probe
    }
}

fn with_exec(probe: Probe, checks: &[(i32, &str)]) -> Probe {
    let text = checks
        .iter()
        .map(|(port, path)| {
            format!("wget --tries 1 -T {INNER_TIMEOUT} -q -O- http://localhost:{port}/{path} | grep success")
        })
        .collect::<Vec<_>>()
        .join(" && ");
    Probe {
        exec: Some(ExecAction {
            command: Some(vec!["bash".to_owned(), "-c".to_owned(), text]),
        }),
        ..probe
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_limits_of_the_checks_fit_into_the_probes() {
        let checks = [(DEFAULT_AGENT_PORT, "a"), (DEFAULT_DASHBOARD_PORT, "b")];
        let head = with_exec(probe(&READINESS, 5), &checks);
        let text = head.exec.unwrap().command.unwrap().join(" ");
        let inner: i32 = text
            .split("-T ")
            .skip(1)
            .map(|rest| rest.split(' ').next().unwrap().parse::<i32>().unwrap())
            .sum();
        assert!(inner <= head.timeout_seconds.unwrap(), "{inner}");
        const { assert!(INNER_TIMEOUT <= 2, "a worker's probe has two seconds") };
    }

    #[test]
    fn ports_that_are_no_numbers_fall_back() {
        let params = [("dashboard-port".to_owned(), "$PORT".to_owned())].into();
        assert_eq!(port(&params, "dashboard-port", 8265), 8265);
    }
}
