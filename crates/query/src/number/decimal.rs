//! Decimals of a static precision and scale: the types of results, and division.

use super::numeric_overflow;
use arrow::datatypes::{DataType, i256};
use arrow::error::ArrowError;
use oribi_types::value::has_digits;

/// The most digits of a decimal.
pub(super) const DIGITS_MAX: u8 = 38;

/// Digits behind the point that PostgreSQL's division shows of a quotient below 1 ...
const QUOTIENT_SCALE: u8 = 20;

/// ... and of one from 1 to 9,999; fewer than these a quotient never has, unless the type leaves no room.
const QUOTIENT_SCALE_MIN: u8 = 16;

/// Precision, which may be more than a type can have, and scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) precision: u8,
    pub(super) scale: u8,
}

impl Shape {
    pub(super) fn of(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::Decimal128(precision, scale) => {
                // A negative scale stands for zeros before the point.
                let zeros = scale.min(&0).unsigned_abs();
                Some(Shape { precision: precision + zeros, scale: scale.max(&0).unsigned_abs() })
            }
            _ => None,
        }
    }

    pub(super) fn integer(digits: u8) -> Self {
        Shape { precision: digits, scale: 0 }
    }

    /// Digits before the point.
    pub(super) fn whole(self) -> u8 {
        self.precision.saturating_sub(self.scale)
    }

    pub(super) fn with_whole(whole: u8, scale: u8) -> Self {
        Shape { precision: whole.saturating_add(scale).max(1), scale }
    }

    /// Whether a type has room for all values of the shape.
    pub(super) fn fits(self) -> bool {
        self.precision <= DIGITS_MAX
    }

    pub(super) fn data_type(self) -> DataType {
        DataType::Decimal128(self.precision.min(DIGITS_MAX), self.scale.min(DIGITS_MAX) as i8)
    }

    pub(super) fn sum(self, other: Shape) -> Shape {
        Shape::with_whole(self.whole().max(other.whole()) + 1, self.scale.max(other.scale))
    }

    /// The product keeps all digits behind the point.
    pub(super) fn product(self, other: Shape) -> Shape {
        Shape { precision: self.precision + other.precision, scale: self.scale + other.scale }
    }

    pub(super) fn remainder(self, other: Shape) -> Shape {
        Shape::with_whole(self.whole().max(other.whole()), self.scale.max(other.scale))
    }

    pub(super) fn quotient(self, other: Shape) -> Shape {
        let whole = self.whole() + other.scale;
        let room = DIGITS_MAX.saturating_sub(whole);
        let scale = room.clamp(QUOTIENT_SCALE_MIN, QUOTIENT_SCALE);
        Shape::with_whole(whole, scale.max(self.scale).max(other.scale))
    }

    /// The average of values of the shape, which is no larger than they are.
    pub(super) fn average(self) -> Shape {
        let room = DIGITS_MAX.saturating_sub(self.whole());
        Shape::with_whole(self.whole(), QUOTIENT_SCALE_MIN.min(room).max(self.scale))
    }
}

/// 10^n; n is at most 38.
pub(super) fn power_of_ten(n: u8) -> i128 {
    10_i128.pow(u32::from(n.min(DIGITS_MAX)))
}

/// The value, if a decimal of 38 digits can be it.
pub(super) fn checked(value: Option<i128>) -> Result<i128, ArrowError> {
    value.filter(|value| has_digits(*value, DIGITS_MAX)).ok_or_else(numeric_overflow)
}

/// `dividend` times 10^`power`, divided by `divisor`, which is not 0; halves are rounded away from zero.
pub(super) fn divide(dividend: i128, power: u8, divisor: i128) -> Result<i128, ArrowError> {
    if let Some(dividend) = dividend.checked_mul(power_of_ten(power)).filter(|_| power <= DIGITS_MAX) {
        let (quotient, rest) = (dividend / divisor, dividend % divisor);
        let up = rest.unsigned_abs() >= divisor.unsigned_abs().div_ceil(2);
        let away = if (dividend < 0) == (divisor < 0) { 1 } else { -1 };
        return checked(Some(if up && rest != 0 { quotient + away } else { quotient }));
    }
    let mut wide = i256::from_i128(dividend);
    for step in [power.min(DIGITS_MAX), power.saturating_sub(DIGITS_MAX)] {
        wide = wide.checked_mul(i256::from_i128(power_of_ten(step))).ok_or_else(numeric_overflow)?;
    }
    let divisor_wide = i256::from_i128(divisor);
    let (quotient, rest) = (wide.wrapping_div(divisor_wide), wide.wrapping_rem(divisor_wide));
    let half = i256::from_i128(divisor).wrapping_abs();
    let up = rest.wrapping_abs() >= half.wrapping_sub(rest.wrapping_abs());
    let away = if (dividend < 0) == (divisor < 0) { i256::ONE } else { i256::MINUS_ONE };
    let rounded = if up && rest != i256::ZERO { quotient.wrapping_add(away) } else { quotient };
    checked(rounded.to_i128())
}

/// A decimal of one scale as one of another; halves are rounded away from zero.
pub(super) fn rescale(value: i128, from: i8, to: i8) -> Result<i128, ArrowError> {
    match to - from {
        0 => Ok(value),
        up @ 1.. => checked(value.checked_mul(power_of_ten(up as u8))),
        down if down < -38 => Ok(0),
        down => divide(value, 0, power_of_ten(down.unsigned_abs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_rounded_half_away_from_zero_at_any_width() {
        for (dividend, power, divisor, quotient) in [
            (1, 1, 4, 3),
            (-1, 1, 4, -3),
            (1, 1, -4, -3),
            (1, 0, 3, 0),
            (2, 0, 3, 1),
            (1, 0, 2, 1),
            (10, 0, 5, 2),
            (1, 20, 3, 33_333_333_333_333_333_333),
            (i128::from(i64::MAX), 30, i128::from(i64::MAX), 10_i128.pow(30)),
            (5 * 10_i128.pow(37), 20, 10_i128.pow(38), 5 * 10_i128.pow(19)),
        ] {
            assert_eq!(divide(dividend, power, divisor).unwrap(), quotient, "{dividend} {power} {divisor}");
        }
        assert!(divide(10_i128.pow(37), 16, 1).is_err());
    }

    #[test]
    fn types_of_results_have_room_for_all_of_them_while_there_is_room() {
        let shape = |precision, scale| Shape { precision, scale };
        assert_eq!(shape(15, 2).sum(shape(1, 0)), shape(16, 2));
        assert_eq!(shape(15, 2).product(shape(16, 2)), shape(31, 4));
        assert_eq!(shape(10, 0).quotient(shape(10, 0)), shape(30, 20));
        assert_eq!(shape(38, 4).quotient(shape(38, 4)), shape(54, 16));
        assert_eq!(shape(15, 2).average(), shape(29, 16));
        assert_eq!(shape(38, 0).average(), shape(38, 0));
    }
}
