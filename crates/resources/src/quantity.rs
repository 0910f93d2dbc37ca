//! Amounts of a resource, counted in ten-thousandths so that shares add up exactly.

use std::fmt;

use thiserror::Error;

/// An amount of a resource, in units of 1/10,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(u64);

/// A number is no amount of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum QuantityError {
    /// Below zero.
    #[error("{0} is negative; an amount is zero or more")]
    Negative(f64),
    /// Not a number.
    #[error("NaN is no amount; give a number of zero or more")]
    NotANumber,
    /// Positive infinity.
    #[error("infinity is no amount; the most is {}", Quantity::MAX)]
    Infinite,
    /// Above zero and below the smallest amount.
    #[error("{0} is finer than 0.0001, the smallest amount there is")]
    TooFine(f64),
    /// Above the largest amount.
    #[error("{0} is too much; the most is {most}", most = Quantity::MAX)]
    TooLarge(f64),
}

impl Quantity {
    /// How many units make one whole.
    pub const UNITS_PER_WHOLE: u64 = 10_000;

    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// One whole: a device, a CPU, a byte.
    pub const ONE: Self = Self(Self::UNITS_PER_WHOLE);

    /// The largest amount of one resource on one machine or in one demand, the same as Ray's.
    pub const MAX: Self = Self(100_000_000_000_000 * Self::UNITS_PER_WHOLE);

    /// That many ten-thousandths.
    pub const fn from_units(units: u64) -> Self {
        Self(units)
    }

    /// That many wholes.
    pub const fn whole(count: u32) -> Self {
        Self(count as u64 * Self::UNITS_PER_WHOLE)
    }

    /// Reads a number the way Ray does: digits beyond the fourth are cut off, not rounded.
    ///
    /// What binary floating point adds to or takes from a decimal (`0.1 + 0.2`, `0.0003 * 10_000`) is
    /// not a digit: a number within its own precision of a unit is that unit.
    pub fn from_f64(number: f64) -> Result<Self, QuantityError> {
        if number.is_nan() {
            return Err(QuantityError::NotANumber);
        }
        if number < 0.0 {
            return Err(QuantityError::Negative(number));
        }
        if number.is_infinite() {
            return Err(QuantityError::Infinite);
        }
        if number > Self::MAX.as_f64() {
            return Err(QuantityError::TooLarge(number));
        }
        let scale = Self::UNITS_PER_WHOLE as f64;
        let fraction = number.fract() * scale;
        let dust = (number * f64::EPSILON * scale * 2.0).max(1e-6);
        let nearest = fraction.round();
        let cut = if (fraction - nearest).abs() <= dust { nearest } else { fraction.floor() };
        let units = number.trunc() as u64 * Self::UNITS_PER_WHOLE + cut as u64;
        if units == 0 && number > 0.0 {
            return Err(QuantityError::TooFine(number));
        }
        Ok(Self(units))
    }

    /// The nearest floating-point number.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / Self::UNITS_PER_WHOLE as f64
    }

    /// The number of ten-thousandths.
    pub const fn units(self) -> u64 {
        self.0
    }

    /// The wholes in it, the fraction cut off.
    pub const fn wholes(self) -> u64 {
        self.0 / Self::UNITS_PER_WHOLE
    }

    /// Whether it has no fraction.
    pub const fn is_whole(self) -> bool {
        self.0.is_multiple_of(Self::UNITS_PER_WHOLE)
    }

    /// Whether it is nothing.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum; `None` where it cannot be represented.
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(units) => Some(Self(units)),
            None => None,
        }
    }

    /// The difference; `None` where `other` is larger.
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(units) => Some(Self(units)),
            None => None,
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = self.0 % Self::UNITS_PER_WHOLE;
        if fraction == 0 {
            return write!(f, "{}", self.wholes());
        }
        let digits = format!("{fraction:04}");
        write!(f, "{}.{}", self.wholes(), digits.trim_end_matches('0'))
    }
}
