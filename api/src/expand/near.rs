//! "Did you mean": names that are a slip of the finger away.

/// Most names to offer.
const OFFERED: usize = 3;

/// The nearest of `candidates`, nearest first; an edit for each three letters counts as near.
pub(super) fn names<'a>(wanted: &str, candidates: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let limit = (wanted.chars().count() / 3).max(1);
    let mut near: Vec<_> = candidates
        .map(|name| (strsim::osa_distance(wanted, name), name))
        .filter(|(distance, name)| *distance <= limit || name.starts_with(wanted))
        .collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(OFFERED).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn offers_slips_of_the_finger_and_no_strangers() {
        let known = ["a100", "h100", "small", "torch-gpu"];
        assert_eq!(names("a10", known.into_iter()), ["a100"]);
        assert_eq!(names("smal", known.into_iter()), ["small"]);
        assert_eq!(names("torch", known.into_iter()), ["torch-gpu"]);
        assert!(names("enormous", known.into_iter()).is_empty());
    }
}
