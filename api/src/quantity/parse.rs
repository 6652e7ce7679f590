//! Text to [`Amount`], digit by digit: no number of digits overflows.

use std::str::FromStr;

use super::{Amount, NotAQuantity, Style};

/// Digits of an `i128` that surely fit; more are far beyond the cap.
const MAX_DIGITS: usize = 38;
/// Decimal places of a nano.
const NANO_PLACES: i64 = 9;

impl FromStr for Amount {
    type Err = NotAQuantity;

    fn from_str(text: &str) -> Result<Self, NotAQuantity> {
        parse(text).ok_or_else(|| NotAQuantity(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Amount> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = unsigned
        .find(|c: char| c != '.' && !c.is_ascii_digit())
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at_checked(end)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || whole.len() + fraction.len() == 0 {
        return None;
    }
    let mut digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|d| d - b'0').collect();
    let (style, exponent) = match suffix_of(suffix)? {
        Suffix::Power(style, exponent) => (style, exponent),
        Suffix::Binary(bits) => {
            multiply(&mut digits, 1 << bits);
            (Style::Binary, 0)
        }
    };
    let places = i64::try_from(fraction.len()).ok()?;
    let nanos = shift(
        &digits,
        exponent.saturating_sub(places).saturating_add(NANO_PLACES),
    );
    Some(Amount::capped(if negative { -nanos } else { nanos }, style))
}

enum Suffix {
    /// Times a power of ten.
    Power(Style, i64),
    /// Times two to the power of that many bits.
    Binary(u32),
}

fn suffix_of(suffix: &str) -> Option<Suffix> {
    Some(match suffix {
        "n" => Suffix::Power(Style::Decimal, -9),
        "u" => Suffix::Power(Style::Decimal, -6),
        "m" => Suffix::Power(Style::Decimal, -3),
        "" => Suffix::Power(Style::Decimal, 0),
        "k" => Suffix::Power(Style::Decimal, 3),
        "M" => Suffix::Power(Style::Decimal, 6),
        "G" => Suffix::Power(Style::Decimal, 9),
        "T" => Suffix::Power(Style::Decimal, 12),
        "P" => Suffix::Power(Style::Decimal, 15),
        "E" => Suffix::Power(Style::Decimal, 18),
        "Ki" => Suffix::Binary(10),
        "Mi" => Suffix::Binary(20),
        "Gi" => Suffix::Binary(30),
        "Ti" => Suffix::Binary(40),
        "Pi" => Suffix::Binary(50),
        "Ei" => Suffix::Binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            Suffix::Power(Style::Exponent, exponent.parse().ok()?)
        }
    })
}

/// Multiplies a number in decimal digits, most significant first.
fn multiply(digits: &mut Vec<u8>, factor: u128) {
    let mut carry = 0;
    for digit in digits.iter_mut().rev() {
        let product = u128::from(*digit) * factor + carry;
        *digit = (product % 10) as u8;
        carry = product / 10;
    }
    while carry > 0 {
        digits.insert(0, (carry % 10) as u8);
        carry /= 10;
    }
}

/// The digits times ten to the power of `power`; a rest below one rounds up, so that something stays something.
fn shift(digits: &[u8], power: i64) -> i128 {
    let significant = digits.iter().skip_while(|digit| **digit == 0).count();
    let kept = i64::try_from(significant)
        .unwrap_or(i64::MAX)
        .saturating_add(power);
    if significant == 0 {
        return 0;
    }
    let Ok(kept) = usize::try_from(kept) else {
        return 1;
    };
    if kept > MAX_DIGITS {
        return i128::MAX;
    }
    let mut rest = digits.iter().skip_while(|digit| **digit == 0);
    let value = (0..kept).fold(0_i128, |value, _| {
        value * 10 + i128::from(rest.next().copied().unwrap_or(0))
    });
    value + i128::from(rest.any(|digit| *digit != 0))
}
