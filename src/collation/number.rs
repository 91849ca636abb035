//! Decimal numbers as subscripts: canonical text, value, encoding.

mod arithmetic;

use std::cmp::Ordering;
use std::fmt;

use super::KeyError;
use crate::limits::{NUMBER_DIGITS_MAX, NUMBER_EXPONENTS};

/// Added to the exponent, so that it is never negative.
const BIAS: i32 = 0x3f;
/// Set in the first byte of positive numbers, and in zero.
const SIGN: u8 = 0x80;
/// Behind the digits of a negative number, so that more digits come before fewer.
const NEGATIVE_END: u8 = 0xff;

/// Decimal digits of the largest `u64`.
const MAGNITUDE_DIGITS: usize = 20;

/// A decimal number.
///
/// Equal numbers are the same, however they were written: `Number::parse("1.50")` is
/// `Number::parse("1.5")`. The order is that of the values.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Number {
    negative: bool,
    /// The significant digits as an integer that does not end in 0; 0 is zero, which is not negative.
    digits: u64,
    /// The exponent of the first digit; 0 for zero.
    exponent: i32,
}

impl Number {
    /// Zero.
    pub const ZERO: Self = Self {
        negative: false,
        digits: 0,
        exponent: 0,
    };

    fn new(negative: bool, mut digits: u64, last_exponent: i32) -> Self {
        if digits == 0 {
            return Self::ZERO;
        }
        let exponent = last_exponent + digits.ilog10() as i32;
        while digits.is_multiple_of(10) {
            digits /= 10;
        }
        Self {
            negative,
            digits,
            exponent,
        }
    }

    /// Reads a number in any usual notation: sign, digits with a point, exponent (`-1.50E+3`).
    ///
    /// # Errors
    /// [`KeyError::NotANumber`], [`KeyError::Digits`], [`KeyError::Range`].
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let not_a_number = || KeyError::NotANumber { text: text.into() };
        let (mantissa, exponent) = match text.find(['e', 'E']) {
            Some(at) => (&text[..at], text[at + 1..].parse::<i32>().ok()),
            None => (text, Some(0)),
        };
        let exponent = exponent
            .filter(|exponent| exponent.abs() < 1 << 24)
            .ok_or_else(not_a_number)?;
        let negative = mantissa.starts_with('-');
        let unsigned = mantissa.strip_prefix(['-', '+']).unwrap_or(mantissa);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let mut all = whole.bytes().chain(fraction.bytes());
        if whole.len() + fraction.len() == 0 || !all.all(|byte| byte.is_ascii_digit()) {
            return Err(not_a_number());
        }
        let mut digits = 0_u64;
        let mut last_exponent = exponent.saturating_add(whole.len() as i32);
        let mut zeros = 0;
        for byte in whole.bytes().chain(fraction.bytes()) {
            if byte == b'0' && digits != 0 {
                zeros += 1;
                continue;
            }
            for digit in std::iter::repeat_n(0, zeros).chain([u64::from(byte - b'0')]) {
                let more = digits
                    .checked_mul(10)
                    .and_then(|ten| ten.checked_add(digit));
                let number = || KeyError::Digits {
                    number: text.into(),
                };
                digits = more.ok_or_else(number)?;
                last_exponent = last_exponent.saturating_sub(1);
            }
            zeros = 0;
        }
        let number = Self::new(negative, digits, last_exponent);
        number.check()?;
        Ok(number)
    }

    /// The number that a subscript of these bytes is, if it looks like a canonical one.
    pub fn canonical(bytes: &[u8]) -> Option<Self> {
        let first = *bytes.first()?;
        if !(first == b'-' || first == b'.' || first.is_ascii_digit()) {
            return None;
        }
        if bytes == b"0" {
            return Some(Self::ZERO);
        }
        let unsigned = bytes.strip_prefix(b"-").unwrap_or(bytes);
        let point = unsigned.iter().position(|&byte| byte == b'.');
        let (whole, fraction) = match point {
            Some(at) => (&unsigned[..at], &unsigned[at + 1..]),
            None => (unsigned, &[][..]),
        };
        let is_canonical = whole.len() + fraction.len() > 0
            && whole.first() != Some(&b'0')
            && (point.is_none() || !fraction.is_empty())
            && fraction.last() != Some(&b'0')
            && whole.iter().chain(fraction).all(u8::is_ascii_digit);
        if !is_canonical {
            return None;
        }
        Self::parse(std::str::from_utf8(bytes).ok()?).ok()
    }

    /// Whether the number can be part of a key.
    pub(super) fn check(self) -> Result<(), KeyError> {
        if self.digits == 0 {
            return Ok(());
        }
        if self.digits.ilog10() as usize >= NUMBER_DIGITS_MAX {
            return Err(KeyError::Digits {
                number: self.to_string(),
            });
        }
        if !NUMBER_EXPONENTS.contains(&self.exponent) {
            return Err(KeyError::Range {
                number: format!(
                    "a number with its first digit at the power of ten {}",
                    self.exponent
                ),
            });
        }
        Ok(())
    }

    /// The number as an integer, if it is one that fits.
    pub fn to_i64(self) -> Option<i64> {
        let last = self.exponent - self.digits.checked_ilog10().unwrap_or(0) as i32;
        let power = 10_i128.checked_pow(u32::try_from(last).ok()?)?;
        let magnitude = i128::from(self.digits).checked_mul(power)?;
        i64::try_from(if self.negative { -magnitude } else { magnitude }).ok()
    }

    /// Appends the number's encoding, without the zero byte at its end.
    pub(super) fn encode(self, out: &mut Vec<u8>) -> Result<(), KeyError> {
        self.check()?;
        if self.digits == 0 {
            out.push(SIGN);
            return Ok(());
        }
        let start = out.len();
        out.push(SIGN | (BIAS + self.exponent) as u8);
        let count = self.digits.ilog10() as usize + 1;
        let mut pairs = [0_u8; MAGNITUDE_DIGITS / 2];
        let mut rest = if count.is_multiple_of(2) {
            self.digits
        } else {
            self.digits * 10
        };
        let pairs = &mut pairs[..count.div_ceil(2)];
        for pair in pairs.iter_mut().rev() {
            let two = (rest % 100) as u8;
            *pair = two / 10 * 16 + two % 10 + 1;
            rest /= 100;
        }
        out.extend_from_slice(pairs);
        if self.negative {
            for byte in &mut out[start..] {
                *byte = !*byte;
            }
            out.push(NEGATIVE_END);
        }
        Ok(())
    }

    /// Reads an encoding without the zero byte at its end.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        if bytes == [SIGN] {
            return Ok(Self::ZERO);
        }
        let negative = bytes.first().is_some_and(|first| first & SIGN == 0);
        let flip = if negative { 0xff } else { 0 };
        let body = if negative {
            bytes
                .strip_suffix(&[NEGATIVE_END])
                .ok_or("a negative number does not end in FF")?
        } else {
            bytes
        };
        let (&first, pairs) = body.split_first().ok_or("a number has no bytes")?;
        if pairs.is_empty() || pairs.len() > NUMBER_DIGITS_MAX.div_ceil(2) {
            return Err("a number has no digits, or too many");
        }
        let mut digits = 0_u64;
        for &pair in pairs {
            let packed = (pair ^ flip).wrapping_sub(1);
            let (ten, one) = (packed >> 4, packed & 15);
            if ten > 9 || one > 9 {
                return Err("a byte of a number is not two digits");
            }
            digits = digits * 100 + u64::from(ten * 10 + one);
        }
        let exponent = i32::from((first ^ flip) & !SIGN) - BIAS;
        let last_exponent = exponent - (2 * pairs.len() as i32 - 1);
        let number = Self::new(negative, digits, last_exponent);
        let is_minimal = pairs.last() != Some(&(1 ^ flip)) && number.exponent == exponent;
        if digits == 0 || !is_minimal || number.check().is_err() {
            return Err("a number is not normalized, or out of range");
        }
        Ok(number)
    }
}

/// The canonical text.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.digits == 0 {
            return f.write_str("0");
        }
        let digits = self.digits.to_string();
        let sign = if self.negative { "-" } else { "" };
        let whole = self.exponent + 1;
        if whole <= 0 {
            let zeros = "0".repeat(-whole as usize);
            return write!(f, "{sign}.{zeros}{digits}");
        }
        let whole = whole as usize;
        match digits.split_at_checked(whole) {
            Some((digits, "")) => write!(f, "{sign}{digits}"),
            Some((before, behind)) => write!(f, "{sign}{before}.{behind}"),
            None => write!(f, "{sign}{digits:0<whole$}"),
        }
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |number: &Self| match (number.digits, number.negative) {
            (0, _) => 0,
            (_, true) => -1,
            (_, false) => 1,
        };
        let aligned = |number: &Self| {
            let places = number.digits.checked_ilog10().unwrap_or(0);
            u128::from(number.digits) * 10_u128.pow(MAGNITUDE_DIGITS as u32 - 1 - places)
        };
        sign(self).cmp(&sign(other)).then_with(|| {
            let magnitudes = (self.exponent, aligned(self)).cmp(&(other.exponent, aligned(other)));
            if self.negative {
                magnitudes.reverse()
            } else {
                magnitudes
            }
        })
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

macro_rules! from_integers {
    ($($integer:ty)*) => {$(
        impl From<$integer> for Number {
            fn from(integer: $integer) -> Self {
                #[allow(unused_comparisons, clippy::allow_attributes)]
                Self::new(integer < 0, u64::from(integer.abs_diff(0)), 0)
            }
        }
    )*};
}

from_integers!(i8 i16 i32 i64 u8 u16 u32 u64);

impl From<usize> for Number {
    fn from(integer: usize) -> Self {
        Self::from(integer as u64)
    }
}
