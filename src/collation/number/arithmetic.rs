//! Numbers in values: what a value is worth as a number, and sums, as GT.M has them.

use super::Number;
use crate::collation::KeyError;
use crate::limits::NUMBER_DIGITS_MAX;

/// One more than the largest magnitude of as many digits as a number has.
const MAGNITUDE_END: u128 = 10_u128.pow(NUMBER_DIGITS_MAX as u32);

impl Number {
    /// What bytes are worth as a number: the longest beginning that is one, in any usual notation
    /// (`12abc` is 12, `-1.5E3` is -1500, `abc` is 0). Digits beyond the eighteenth are dropped.
    ///
    /// # Errors
    /// [`KeyError::Range`] if the magnitude is too large; one that is too small is 0.
    pub fn of_value(bytes: &[u8]) -> Result<Self, KeyError> {
        let is_plain = matches!(bytes.len(), 1..=18) && bytes.iter().all(u8::is_ascii_digit);
        if is_plain {
            let digit = |number: u64, byte: &u8| number * 10 + u64::from(byte - b'0');
            return Ok(Self::new(false, bytes.iter().fold(0, digit), 0));
        }
        let signs = bytes.iter().take_while(|byte| b"+-".contains(byte)).count();
        let negative = bytes[..signs].iter().filter(|&&byte| byte == b'-').count() % 2 == 1;
        let (mut digits, mut last_exponent, mut behind_point, mut rest) = (0_u64, 0_i64, false, 0);
        let mut count = 0;
        for (at, &byte) in bytes.iter().enumerate().skip(signs) {
            rest = at + 1;
            match byte {
                b'.' if !behind_point => behind_point = true,
                b'0'..=b'9' => {
                    count += 1;
                    if digits < MAGNITUDE_END as u64 / 10 {
                        digits = digits * 10 + u64::from(byte - b'0');
                        last_exponent -= i64::from(behind_point);
                    } else {
                        last_exponent += i64::from(!behind_point);
                    }
                }
                _ => {
                    rest = at;
                    break;
                }
            }
        }
        if count > 0 {
            last_exponent += exponent(&bytes[rest..]);
        }
        let last_exponent = last_exponent.clamp(-1_000_000, 1_000_000) as i32;
        Self::new(negative, digits, last_exponent).in_range()
    }

    /// The sum, rounded to eighteen significant digits.
    ///
    /// # Errors
    /// [`KeyError::Range`] if it is too large.
    pub fn plus(self, other: Self) -> Result<Self, KeyError> {
        let (large, small) = match (self.digits, other.digits) {
            (0, _) => return other.in_range(),
            (_, 0) => return self.in_range(),
            _ if self.exponent >= other.exponent => (self, other),
            _ => (other, self),
        };
        // Both as integers of one exponent, below the last digit that can count in the sum.
        let last = (large.exponent - NUMBER_DIGITS_MAX as i32 - 1)
            .max(large.last_exponent().min(small.last_exponent()));
        let (large, small) = (large.scaled(last), small.scaled(last));
        let sum = large + small;
        let (mut magnitude, mut exponent) = (sum.unsigned_abs(), last);
        let mut dropped = 0;
        while magnitude >= MAGNITUDE_END {
            dropped = magnitude % 10;
            magnitude /= 10;
            exponent += 1;
        }
        magnitude += u128::from(dropped >= 5);
        Self::new(sum < 0, magnitude as u64, exponent).in_range()
    }

    /// Appends the canonical text.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        use std::io::Write;
        let integer = match self.to_i64() {
            Some(integer) => integer,
            None => {
                // A vector takes all that is written.
                let _ = write!(out, "{self}");
                return;
            }
        };
        if integer < 0 {
            out.push(b'-');
        }
        let (mut digits, mut at) = ([0; 20], 20);
        let mut rest = integer.unsigned_abs();
        while at == 20 || rest > 0 {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        out.extend_from_slice(&digits[at..]);
    }

    /// The exponent of the last significant digit.
    fn last_exponent(self) -> i32 {
        self.exponent - self.digits.checked_ilog10().unwrap_or(0) as i32
    }

    /// The number as a multiple of a power of ten; what is below that is dropped.
    fn scaled(self, last: i32) -> i128 {
        let up = self.last_exponent() - last;
        let digits = i128::from(self.digits);
        let power = |exponent: i32| 10_i128.checked_pow(exponent.unsigned_abs());
        let magnitude = match power(up) {
            Some(power) if up >= 0 => digits * power,
            Some(power) => digits / power,
            None => 0,
        };
        if self.negative { -magnitude } else { magnitude }
    }

    fn in_range(self) -> Result<Self, KeyError> {
        if self.digits != 0 && self.exponent < *crate::limits::NUMBER_EXPONENTS.start() {
            return Ok(Self::ZERO);
        }
        self.check()?;
        Ok(self)
    }
}

/// The exponent that a text begins with: `E5`, `E-5`; 0 if it begins with none.
fn exponent(text: &[u8]) -> i64 {
    let Some((b'E' | b'e', text)) = text.split_first() else {
        return 0;
    };
    let (negative, text) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, text),
    };
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    let digit = |number: i64, byte: &u8| (number * 10 + i64::from(byte - b'0')).min(1_000_000);
    let magnitude = digits.fold(0, digit);
    if negative { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(left: &str, right: &str) -> String {
        let worth = |text: &str| Number::of_value(text.as_bytes()).unwrap();
        worth(left).plus(worth(right)).unwrap().to_string()
    }

    #[test]
    fn values_are_worth_the_number_that_they_begin_with() {
        let cases = [
            ("", "0"),
            ("0", "0"),
            ("007", "7"),
            ("12abc", "12"),
            ("abc", "0"),
            ("--3", "3"),
            ("+-3x", "-3"),
            ("1.50", "1.5"),
            (".5.5", ".5"),
            ("-", "0"),
            (".", "0"),
            ("1E3", "1000"),
            ("1e-2x", ".01"),
            ("1E", "1"),
            ("E5", "0"),
            ("1E-9999999999", "0"),
            ("1234567890123456789", "1234567890123456780"),
            ("0.0000000000000000000000001", ".0000000000000000000000001"),
        ];
        for (text, worth) in cases {
            assert_eq!(
                Number::of_value(text.as_bytes()).unwrap().to_string(),
                worth
            );
        }
        assert!(Number::of_value(b"1E47").is_err());
    }

    #[test]
    fn sums_are_exact_to_eighteen_digits() {
        let cases = [
            ("1", "2", "3"),
            ("-1", "1", "0"),
            (".1", ".2", ".3"),
            ("999999999999999999", "1", "1000000000000000000"),
            ("100000000000000000", ".4", "100000000000000000"),
            ("1E40", "1", "10000000000000000000000000000000000000000"),
            ("1", "1E-30", "1"),
            ("-12.5", "2", "-10.5"),
            ("0", "-7", "-7"),
            ("1E-30", "0", ".000000000000000000000000000001"),
            ("1E20", "-1E20", "0"),
        ];
        for (left, right, both) in cases {
            assert_eq!(sum(left, right), both, "{left} + {right}");
            assert_eq!(sum(right, left), both, "{right} + {left}");
        }
        let large = Number::of_value(b"9.9E46").unwrap();
        assert!(large.plus(large).is_err());
    }
}
