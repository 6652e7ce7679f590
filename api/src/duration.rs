//! Go's notation of durations, as people write it in specs and flags.

use std::time::Duration;

/// Longest text: `23h59m59.999s` and a few.
const LONGEST: usize = 16;

/// Reads `90s`, `1h30m`, `500ms`; none for anything else, signs among it.
///
/// kube's parser panics on a sign inside and on numbers that no clock has, so it sees neither.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    let is_plain = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'h' | 'm' | 's' | 'u' | 'n' | 'µ');
    if text.is_empty() || text.len() > LONGEST || !text.chars().all(is_plain) {
        return None;
    }
    text.parse::<kube::core::Duration>().ok().map(Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_duration_is_none_and_never_a_panic() {
        assert_eq!(parse("1h30m"), Some(Duration::from_secs(5400)));
        assert_eq!(parse("500ms"), Some(Duration::from_millis(500)));
        for text in [
            "1h-30m",
            "-1s",
            "1e400h",
            "99999999999999999999h",
            "soon",
            "1",
            "h",
            "",
            "1..s",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert!(parse("999999999999999h").is_some(), "the largest that is read");
    }
}
