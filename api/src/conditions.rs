//! Kubernetes conditions as a list keyed by type, whose transition time moves only with the status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// What a condition says now; [`upsert`] turns it into a [`Condition`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement<'a> {
    /// Condition type, CamelCase.
    pub type_: &'a str,
    /// True, False, or None for `Unknown`.
    pub status: Option<bool>,
    /// Machine-readable reason, CamelCase.
    pub reason: &'a str,
    /// Sentence for a person.
    pub message: &'a str,
}

/// Sets `statement` in `conditions`; `generation` becomes its `observedGeneration`.
///
/// Returns whether the status flipped (or the condition is new): the moment for an event.
pub fn upsert(
    conditions: &mut Vec<Condition>,
    statement: &Statement<'_>,
    generation: Option<i64>,
    now: &Time,
) -> bool {
    let status = match statement.status {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    };
    let mut new = Condition {
        type_: statement.type_.to_owned(),
        status: status.to_owned(),
        reason: statement.reason.to_owned(),
        message: statement.message.to_owned(),
        observed_generation: generation,
        last_transition_time: now.clone(),
    };
    match conditions.iter_mut().find(|c| c.type_ == statement.type_) {
        Some(old) => {
            let flipped = old.status != new.status;
            if !flipped {
                new.last_transition_time = old.last_transition_time.clone();
            }
            *old = new;
            flipped
        }
        None => {
            conditions.push(new);
            true
        }
    }
}

/// The condition of that type.
#[must_use]
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// Whether the condition of that type is there and `True`.
#[must_use]
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|c| c.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn transition_time_moves_only_with_the_status() {
        let mut conditions = Vec::new();
        let mut say = |status, reason: &str, second| {
            let statement = Statement {
                type_: "Ready",
                status,
                reason,
                message: "",
            };
            upsert(&mut conditions, &statement, Some(1), &at(second));
            conditions[0].last_transition_time.clone()
        };
        assert_eq!(say(Some(false), "Waiting", 1), at(1));
        assert_eq!(say(Some(false), "StillWaiting", 2), at(1));
        assert_eq!(say(Some(true), "Done", 3), at(3));
    }
}
