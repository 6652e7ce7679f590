//! Names of derived objects, and the length rules behind them (raycluster-behaviour 2.1).

/// Longest RayCluster name: `<name>-head-svc` and friends must fit a DNS label.
pub const MAX_CLUSTER_NAME: usize = 53;
/// `CheckName` of KubeRay: longest generated name of RBAC objects, ingresses and secrets.
const MAX_NAME: usize = 50;
/// Longest label value and DNS label.
const MAX_LABEL: usize = 63;

/// A name of at most 50 characters that starts with a letter: the **last** 50 characters, as KubeRay cuts them.
#[must_use]
pub fn check_name(name: &str) -> String {
    start_with_letter(last_chars(name, MAX_NAME), true)
}

/// A label value of at most 63 characters: the **last** 63, without leading punctuation.
#[must_use]
pub fn check_label(value: &str) -> String {
    start_with_letter(last_chars(value, MAX_LABEL), false)
}

/// Prefix of generated pod names: the first 50 characters, lower-cased.
#[must_use]
pub fn pod_prefix(name: &str, role: &str) -> String {
    format!("{}-{role}-", name.chars().take(MAX_NAME).collect::<String>()).to_lowercase()
}

/// Name of the head Service that the operator makes when the user gives none.
#[must_use]
pub fn head_service(cluster: &str) -> String {
    format!("{cluster}-head-svc")
}

/// Name of the Serve Service.
#[must_use]
pub fn serve_service(cluster: &str) -> String {
    format!("{cluster}-serve-svc")
}

/// Name of the headless Service of multi-host worker groups.
#[must_use]
pub fn headless_service(cluster: &str) -> String {
    format!("{cluster}-headless")
}

/// Name of the Ingress to the dashboard.
#[must_use]
pub fn head_ingress(cluster: &str) -> String {
    check_name(&format!("{cluster}-head-ingress"))
}

fn last_chars(text: &str, limit: usize) -> &str {
    let skip = text.chars().count().saturating_sub(limit);
    text.char_indices()
        .nth(skip)
        .map_or("", |(at, _)| text.get(at..).unwrap_or_default())
}

fn start_with_letter(text: &str, replace_digit: bool) -> String {
    match text.chars().next() {
        Some(first) if first.is_ascii_punctuation() || (replace_digit && first.is_ascii_digit()) => {
            format!("r{}", text.get(first.len_utf8()..).unwrap_or_default())
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_name_cuts_from_the_front_as_kuberay_does() {
        assert_eq!(
            check_name("72fbcc7e-a661-4b18e-ca41-e903-fc3ae634b18e-lazer090scholar-director-s"),
            "rca41-e903-fc3ae634b18e-lazer090scholar-director-s"
        );
        assert_eq!(check_name("short"), "short");
        assert_eq!(check_name("1st"), "rst");
    }

    #[test]
    fn check_label_replaces_leading_punctuation_only() {
        assert_eq!(check_label("1st"), "1st");
        assert_eq!(
            check_label(&format!("x-{}", "a".repeat(62))),
            format!("r{}", "a".repeat(62))
        );
    }

    #[test]
    fn pod_prefix_keeps_the_first_fifty_characters_in_lower_case() {
        assert_eq!(pod_prefix("Demo", "head"), "demo-head-");
        assert_eq!(
            pod_prefix(&"x".repeat(60), "worker"),
            format!("{}-worker-", "x".repeat(50))
        );
    }
}
