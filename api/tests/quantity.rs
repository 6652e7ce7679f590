//! Quantities as Go's `resource.Quantity` reads and prints them.

#![allow(clippy::unwrap_used, reason = "a test")]

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use proptest::prelude::*;
use ray_api::quantity::Amount;

fn amount(text: &str) -> Amount {
    text.parse().unwrap()
}

#[test]
fn prints_and_rounds_as_go() {
    for line in include_str!("fixtures/quantities.tsv").lines().skip(1) {
        let [text, printed, value] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("three columns: {line}");
        };
        assert_eq!(amount(text).to_string(), printed, "{text}");
        assert_eq!(amount(text).ceil().to_string(), value, "{text}");
    }
}

#[test]
fn caps_what_go_cannot_count() {
    for text in ["1e100", "763E", "8Ei", "9Ei"] {
        assert_eq!(amount(text), Amount::units(i64::MAX), "{text}");
    }
}

#[test]
fn refuses_what_go_refuses() {
    for text in [
        "", ".", "+", "-", "abc", "1 Gi", "1Gib", "1ki", "1K", "1e", "1e1.5", "1.2.3", "--1", "1mi", "0x1",
        "١",
    ] {
        let error = text.parse::<Amount>().unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn sums_in_the_style_of_the_first_that_is_not_zero() {
    let sum = |texts: &[&str]| texts.iter().map(|text| amount(text)).sum::<Amount>().to_string();
    assert_eq!(sum(&["1Gi", "1G"]), "2073741824");
    assert_eq!(sum(&["1Gi", "512Mi"]), "1536Mi");
    assert_eq!(sum(&["0", "1Gi"]), "1Gi");
    assert_eq!(sum(&["500m", "1"]), "1500m");
    assert_eq!(sum(&[]), "0");
}

#[test]
fn rounds_away_from_zero() {
    assert_eq!(amount("-500m").ceil(), -1);
    assert_eq!(amount("1001m").ceil(), 2);
}

#[test]
fn multiplies_without_overflow() {
    assert_eq!(amount("500m").times(3).to_string(), "1500m");
    assert_eq!(amount("1Gi").times(0).to_string(), "0");
    assert_eq!(amount("8Ei").times(i64::MAX), Amount::units(i64::MAX));
}

#[test]
fn reads_the_quantities_of_the_api() {
    assert_eq!(Amount::of(&Quantity("2Gi".into())), Ok(amount("2048Mi")));
    assert_eq!(Quantity::from(amount("2048Mi")), Quantity("2Gi".into()));
    assert!((amount("2500m").to_f64() - 2.5).abs() < f64::EPSILON);
}

/// Any text of the grammar.
fn quantity() -> impl Strategy<Value = String> {
    "[+-]?([0-9]{1,25}(\\.[0-9]{0,25})?|\\.[0-9]{1,25})([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?"
}

proptest! {
    #[test]
    fn any_text_parses_or_not_but_never_panics(text in ".{0,40}") {
        let _ = text.parse::<Amount>();
    }

    #[test]
    fn what_is_printed_reads_back_equal_and_prints_the_same(text in quantity()) {
        let once = amount(&text);
        let printed = once.to_string();
        prop_assert_eq!(once, amount(&printed));
        prop_assert_eq!(printed.clone(), amount(&printed).to_string());
    }

    #[test]
    fn integers_add_and_compare_as_integers(a in -1_000_000_000_i64..1_000_000_000, b in -1_000_000_000_i64..1_000_000_000) {
        prop_assert_eq!(Amount::units(a) + Amount::units(b), Amount::units(a + b));
        prop_assert_eq!(Amount::units(a).cmp(&Amount::units(b)), a.cmp(&b));
        prop_assert_eq!(amount(&a.to_string()), Amount::units(a));
    }

    #[test]
    fn binary_suffixes_multiply_exactly(mantissa in 0_i64..8_000, power in 1_u32..5) {
        let suffix = ["Ki", "Mi", "Gi", "Ti"][power as usize - 1];
        prop_assert_eq!(amount(&format!("{mantissa}{suffix}")), Amount::units(mantissa << (10 * power)));
    }
}
