//! How many pods a group wants, without overflow: a number that does not fit is large, never zero.

use ray_api::ray::v1::WorkerGroupSpec;

use crate::cluster::build::hosts;

/// Pods that a group wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Replicas.
    pub replicas: i64,
    /// Pods of one replica, at least one.
    pub hosts: i64,
    /// All pods.
    pub pods: i64,
}

fn target(replicas: i32, group: &WorkerGroupSpec) -> Target {
    let replicas = if group.suspend == Some(true) {
        0
    } else {
        i64::from(replicas.max(0))
    };
    let hosts = i64::from(hosts(group));
    Target {
        replicas,
        hosts,
        pods: replicas * hosts,
    }
}

/// Replicas within their bounds; absent ones are the minimum, and a suspended group wants none.
#[must_use]
pub fn wanted(group: &WorkerGroupSpec) -> Target {
    let min = group.min_replicas.unwrap_or_default();
    let max = group.max_replicas.unwrap_or(i32::MAX);
    let replicas = group.replicas.unwrap_or(min).max(min).min(max);
    target(replicas, group)
}

/// The fewest pods.
#[must_use]
pub fn fewest(group: &WorkerGroupSpec) -> Target {
    target(group.min_replicas.unwrap_or_default(), group)
}

/// The most pods.
#[must_use]
pub fn most(group: &WorkerGroupSpec) -> Target {
    target(group.max_replicas.unwrap_or(i32::MAX), group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(replicas: Option<i32>, min: i32, max: i32, hosts: Option<i32>) -> i64 {
        wanted(&WorkerGroupSpec {
            replicas,
            min_replicas: Some(min),
            max_replicas: Some(max),
            num_of_hosts: hosts,
            ..WorkerGroupSpec::default()
        })
        .pods
    }

    #[test]
    fn replicas_are_kept_within_their_bounds() {
        assert_eq!(pods(None, 2, 5, None), 2);
        assert_eq!(pods(Some(1), 2, 5, None), 2);
        assert_eq!(pods(Some(9), 2, 5, None), 5);
        assert_eq!(pods(Some(3), 0, 5, Some(4)), 12);
    }

    #[test]
    fn zero_hosts_are_one_and_large_numbers_do_not_wrap() {
        assert_eq!(
            pods(Some(3), 0, 5, Some(0)),
            3,
            "older CRDs do not know the field"
        );
        assert_eq!(
            pods(Some(i32::MAX), 0, i32::MAX, Some(1000)),
            i64::from(i32::MAX) * 1000
        );
        assert_eq!(pods(Some(-4), -4, 5, None), 0);
    }

    #[test]
    fn a_suspended_group_wants_none() {
        let group = WorkerGroupSpec {
            replicas: Some(3),
            suspend: Some(true),
            ..WorkerGroupSpec::default()
        };
        assert_eq!((wanted(&group).pods, most(&group).pods), (0, 0));
    }
}
