//! Keys of the ordered store: a name and any number of subscripts, encoded so that the order of the
//! bytes is the order of the keys.
//!
//! # Order
//! By name, byte by byte; then by subscripts from left to right, a key before those that continue
//! it. At each level the order is that of GT.M with standard null collation:
//! 1. the empty subscript;
//! 2. numbers by value, negative before zero before positive, fractions between;
//! 3. strings, byte by byte.
//!
//! # What is a number
//! A subscript that *looks* like a canonical number *is* that number, whether it was given as a
//! number, as text or as bytes: `key!["t", 11]` and `key!["t", "11"]` are one key, and `"2"` comes
//! before `"11"`. A canonical number has at most 18 significant digits and a magnitude from 1E-43
//! to below 1E47, and is written in one way only: no leading zero (`.5`, not `0.5`), no trailing
//! zero behind the point, no point at the end, no `+`, no exponent, no `-0`. Everything else is a
//! string, and comes behind all numbers: `"011"`, `"1.0"`, `"1E3"`, a string of 19 digits. An *integer* of
//! more than 18 significant digits is an error rather than a string in an unexpected place.
//!
//! # Encoding
//! As the GT.M Administration and Operations Guide documents it ("GDS Keys"). Each component ends in
//! a zero byte, and the key in another one:
//! ```text
//! key     | name | 00 | subscript | 00 | ... | 00 |
//! empty   01
//! zero    80
//! number  80 + 3F + exponent | two decimal digits a byte, each byte + 1 |         12.5 -> C0 13 51
//!         negative: every byte complemented, then FF                             -12.5 -> 3F EC AE FF
//! string  FF | bytes, with 00 -> 01 01 and 01 -> 01 02 |
//! name    bytes, escaped as in strings
//! ```
//! The exponent is that of the first significant digit: 0 for 1 to 9.
//!
//! # Limits
//! A key has at most 2,000 bytes when encoded (GT.M: 1,019), a name 1 to 255 bytes. A key beyond
//! its limits cannot be made, so nothing is ever written under one.

mod error;
mod key;
mod list;
mod number;
mod subscript;
mod view;

#[cfg(test)]
mod test;

pub use error::KeyError;
pub use key::{GlobalKey, KeyRange, Subscripts};
pub use list::{EntryList, GlobalEntries, GlobalKeys, KeyList};
pub use number::Number;
pub use subscript::Subscript;
pub use view::GlobalKeyRef;

/// Makes a [`GlobalKey`] of a name and subscripts, which may be numbers, text or bytes in any mixture:
/// `key!["cycle", 11]?`.
///
/// The result is an error if the key is beyond its limits (see [`KeyError`]).
#[macro_export]
macro_rules! key {
    [$name:expr $(, $subscript:expr)* $(,)?] => {
        $crate::GlobalKey::of($name, &[$($crate::Subscript::from($subscript)),*])
    };
}
