//! Names of derived objects, and the length rules behind them (raycluster-behaviour 2.1).

/// Longest RayCluster name: `<name>-head-svc` and friends must fit a DNS label.
pub const MAX_CLUSTER_NAME: usize = 53;
/// `CheckName` of KubeRay: longest generated name of RBAC objects, ingresses and secrets.
const MAX_NAME: usize = 50;
/// Longest label value and DNS label.
const MAX_LABEL: usize = 63;
/// Longest name of an object.
const MAX_SUBDOMAIN: usize = 253;

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

/// Prefix of generated pod names: the first 50 characters, lower-cased. Groups are named as labels are, which allows
/// more than names do: what a name cannot hold is `-` in it.
#[must_use]
pub fn pod_prefix(name: &str, role: &str) -> String {
    let fitting = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let name: String = name.chars().take(MAX_NAME).map(fitting).collect();
    format!("{name}-{role}-")
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

/// Whether Kubernetes takes it for a label's value: at most 63 of `A-Za-z0-9-_.`, beginning and ending with a letter or
/// digit, or nothing.
#[must_use]
pub fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_label_name(value)
}

/// Whether Kubernetes takes it for the key of a label or annotation: `[prefix/]name`, the prefix a DNS subdomain.
#[must_use]
pub fn is_qualified_name(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_dns_1123_subdomain(prefix) && is_label_name(name),
        None => is_label_name(key),
    }
}

/// Whether it names a Service: a lower-case DNS label that begins with a letter.
#[must_use]
pub fn is_dns_1035_label(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase()) && is_dns_label(name)
}

/// Whether it names an object: lower-case DNS labels joined by dots, at most 253 characters.
#[must_use]
pub fn is_dns_1123_subdomain(name: &str) -> bool {
    name.len() <= MAX_SUBDOMAIN && name.split('.').all(is_dns_label_part)
}

fn is_dns_label(name: &str) -> bool {
    name.len() <= MAX_LABEL && is_dns_label_part(name)
}

fn is_dns_label_part(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty() && name.chars().all(inner) && !name.starts_with('-') && !name.ends_with('-')
}

fn is_label_name(name: &str) -> bool {
    let outer = |c: char| c.is_ascii_alphanumeric();
    let inner = |c: char| outer(c) || matches!(c, '-' | '_' | '.');
    name.len() <= MAX_LABEL && name.chars().all(inner) && name.starts_with(outer) && name.ends_with(outer)
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
        assert_eq!(pod_prefix("c-GPU_a100.x", "worker"), "c-gpu-a100-x-worker-");
        assert_eq!(
            pod_prefix(&"x".repeat(60), "worker"),
            format!("{}-worker-", "x".repeat(50))
        );
    }

    #[test]
    fn labels_and_names_are_told_as_kubernetes_does() {
        assert!(
            ["", "a", "A.b_c-9", &"x".repeat(63)]
                .into_iter()
                .all(is_label_value)
        );
        assert!(
            !["-a", "a-", "a b", "a/b", "é", &"x".repeat(64)]
                .into_iter()
                .any(is_label_value)
        );
        assert!(["a", "ray.io/x", "A_b.c"].into_iter().all(is_qualified_name));
        assert!(
            !["", "/a", "a/", "a/b/c", "Ray.io/x", "-a"]
                .into_iter()
                .any(is_qualified_name)
        );
        assert!(["a", "a-1"].into_iter().all(is_dns_1035_label));
        assert!(
            !["", "1a", "a.b", "A", "a-", &"a".repeat(64)]
                .into_iter()
                .any(is_dns_1035_label)
        );
        assert!(["1a", "a.b-c"].into_iter().all(is_dns_1123_subdomain));
        assert!(
            !["", "a..b", "a.-b", "A", &"a".repeat(254)]
                .into_iter()
                .any(is_dns_1123_subdomain)
        );
    }
}
