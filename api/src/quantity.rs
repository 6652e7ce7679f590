//! Kubernetes quantities (`500m`, `1.5Gi`, `2e3`): exact arithmetic, and the text that Go's `resource.Quantity` prints.

mod parse;

use std::cmp::Ordering;
use std::fmt;
use std::iter::Sum;
use std::ops::Add;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Nanos in a unit: the finest fraction that a quantity can hold.
const NANO: i128 = 1_000_000_000;
/// Go caps every quantity at this many units.
const MAX_NANOS: i128 = i64::MAX as i128 * NANO;
/// Suffixes for 10^-9, 10^-6, … 10^18.
const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// Suffixes for 2^0, 2^10, … 2^60.
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// A parsed quantity: a count of nanos, and the style that it was written in. Compares by value alone.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    nanos: i128,
    style: Style,
}

/// How a quantity was written, and so is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// `1500M`
    Decimal,
    /// `2Gi`
    Binary,
    /// `2e9`
    Exponent,
}

/// The text is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a quantity: write a number and a suffix, such as 500m, 2, 1.5Gi or 4e9")]
pub struct NotAQuantity(pub String);

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self {
        nanos: 0,
        style: Style::Decimal,
    };

    /// That many units.
    #[must_use]
    pub fn units(units: i64) -> Self {
        Self::capped(i128::from(units) * NANO, Style::Decimal)
    }

    /// Parses a quantity of the API.
    ///
    /// # Errors
    /// When its text is none: the API server refuses such objects, but not every object met an API server.
    pub fn of(quantity: &Quantity) -> Result<Self, NotAQuantity> {
        quantity.0.parse()
    }

    /// Whole units, rounded away from zero as Go's `Value()` does: half a CPU is one.
    #[must_use]
    pub fn ceil(self) -> i64 {
        let whole = self.nanos / NANO + (self.nanos % NANO).signum();
        i64::try_from(whole).unwrap_or(i64::MAX)
    }

    /// The nearest floating-point number of units.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a float is what the caller asks for")]
    pub fn to_f64(self) -> f64 {
        self.nanos as f64 / NANO as f64
    }

    /// Whether it is nothing.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// That many times this.
    #[must_use]
    pub fn times(self, count: i64) -> Self {
        Self::capped(self.nanos.saturating_mul(i128::from(count)), self.style)
    }

    fn capped(nanos: i128, style: Style) -> Self {
        Self {
            nanos: nanos.clamp(-MAX_NANOS, MAX_NANOS),
            style,
        }
    }
}

impl Add for Amount {
    type Output = Self;

    /// The sum, in the style of the first that is not zero.
    fn add(self, other: Self) -> Self {
        let style = if self.is_zero() { other.style } else { self.style };
        Self::capped(self.nanos.saturating_add(other.nanos), style)
    }
}

impl Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Amount {}

impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Amount {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl From<Amount> for Quantity {
    fn from(amount: Amount) -> Self {
        Self(amount.to_string())
    }
}

/// Go's canonical form: no fraction, and the largest suffix that keeps every digit.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = self.nanos / NANO;
        if self.is_zero() {
            f.write_str("0")
        } else if self.style == Style::Binary && self.nanos % NANO == 0 && units.abs() >= 1024 {
            let (mantissa, power) = without_factor(units, 1024, BINARY_SUFFIXES.len() - 1);
            write!(f, "{mantissa}{}", BINARY_SUFFIXES.get(power).unwrap_or(&""))
        } else {
            let (mantissa, power) = without_factor(self.nanos, 1000, DECIMAL_SUFFIXES.len() - 1);
            match self.style {
                Style::Exponent if power != 3 => write!(f, "{mantissa}e{}", 3 * power.cast_signed() - 9),
                _ => write!(f, "{mantissa}{}", DECIMAL_SUFFIXES.get(power).unwrap_or(&"")),
            }
        }
    }
}

/// Divides by `factor` while nothing is lost, at most `limit` times; returns how often.
fn without_factor(mut value: i128, factor: i128, limit: usize) -> (i128, usize) {
    let mut power = 0;
    while power < limit && value % factor == 0 {
        value /= factor;
        power += 1;
    }
    (value, power)
}
