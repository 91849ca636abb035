//! One component of a key behind its name.

use std::borrow::Cow;
use std::fmt;

use super::{KeyError, Number};

/// Starts every string.
pub(super) const STRING: u8 = 0xff;
/// The empty subscript.
pub(super) const EMPTY: u8 = 0x01;
/// Ends every component.
pub(super) const END: u8 = 0x00;
/// Says that the next byte stands for another one.
const ESCAPE: u8 = 0x01;

/// A subscript: nothing, a number, or a string of any bytes.
///
/// Conversions give the variant by which the subscript collates: text and bytes that look like a
/// canonical number become that number, and those of no length the empty subscript. Encoding does
/// the same with variants that were made by hand.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Subscript<'a> {
    /// The empty subscript, before all others.
    Empty,
    /// A number.
    Number(Number),
    /// A string, of UTF-8 text or any other bytes.
    Bytes(Cow<'a, [u8]>),
}

impl<'a> Subscript<'a> {
    /// The subscript as text: a number in canonical form, a string if it is UTF-8.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Empty => Some(Cow::Borrowed("")),
            Self::Number(number) => Some(Cow::Owned(number.to_string())),
            Self::Bytes(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
        }
    }

    /// The subscript as bytes, as it would be given to make it again.
    pub fn to_bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Empty => Cow::Borrowed(b""),
            Self::Number(number) => Cow::Owned(number.to_string().into_bytes()),
            Self::Bytes(bytes) => Cow::Borrowed(bytes),
        }
    }

    /// The subscript as an integer, if it is one.
    pub fn to_i64(&self) -> Option<i64> {
        match self {
            Self::Number(number) => number.to_i64(),
            Self::Empty | Self::Bytes(_) => None,
        }
    }

    /// The same subscript, borrowing nothing.
    pub fn into_owned(self) -> Subscript<'static> {
        match self {
            Self::Empty => Subscript::Empty,
            Self::Number(number) => Subscript::Number(number),
            Self::Bytes(bytes) => Subscript::Bytes(Cow::Owned(bytes.into_owned())),
        }
    }

    /// Appends the encoding with the zero byte at its end.
    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), KeyError> {
        match self {
            Self::Empty => out.push(EMPTY),
            Self::Number(number) => number.encode(out)?,
            Self::Bytes(bytes) if bytes.is_empty() => out.push(EMPTY),
            Self::Bytes(bytes) => match Number::canonical(bytes) {
                Some(number) => number.encode(out)?,
                None => {
                    out.push(STRING);
                    escape(bytes, out);
                }
            },
        }
        out.push(END);
        Ok(())
    }

    /// Reads an encoding without the zero byte at its end.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, &'static str> {
        match bytes {
            [EMPTY] => Ok(Self::Empty),
            [STRING, escaped @ ..] => {
                let bytes = unescape(escaped)?;
                if bytes.is_empty() || Number::canonical(&bytes).is_some() {
                    return Err("a number, or nothing, is encoded as a string");
                }
                Ok(Self::Bytes(bytes))
            }
            number => Number::decode(number).map(Self::Number),
        }
    }
}

impl fmt::Debug for Subscript<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("\"\""),
            Self::Number(number) => number.fmt(f),
            Self::Bytes(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
        }
    }
}

impl<'a> From<&'a [u8]> for Subscript<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::from(Cow::Borrowed(bytes))
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Subscript<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::from(&bytes[..])
    }
}

impl<'a> From<&'a str> for Subscript<'a> {
    fn from(text: &'a str) -> Self {
        Self::from(text.as_bytes())
    }
}

impl<'a> From<&'a String> for Subscript<'a> {
    fn from(text: &'a String) -> Self {
        Self::from(text.as_bytes())
    }
}

impl From<String> for Subscript<'_> {
    fn from(text: String) -> Self {
        Self::from(text.into_bytes())
    }
}

impl From<Vec<u8>> for Subscript<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(Cow::Owned(bytes))
    }
}

impl<'a> From<Cow<'a, [u8]>> for Subscript<'a> {
    fn from(bytes: Cow<'a, [u8]>) -> Self {
        if bytes.is_empty() {
            return Self::Empty;
        }
        Number::canonical(&bytes).map_or(Self::Bytes(bytes), Self::Number)
    }
}

impl From<Number> for Subscript<'_> {
    fn from(number: Number) -> Self {
        Self::Number(number)
    }
}

macro_rules! from_integers {
    ($($integer:ty)*) => {$(
        impl From<$integer> for Subscript<'_> {
            fn from(integer: $integer) -> Self {
                Self::Number(Number::from(integer))
            }
        }
    )*};
}

from_integers!(i8 i16 i32 i64 u8 u16 u32 u64 usize);

/// Appends bytes so that none of them is a zero byte, in the same order as before.
pub(super) fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        if byte <= ESCAPE {
            out.extend_from_slice(&[ESCAPE, byte + 1]);
        } else {
            out.push(byte);
        }
    }
}

pub(super) fn unescape(escaped: &[u8]) -> Result<Cow<'_, [u8]>, &'static str> {
    if !escaped.contains(&ESCAPE) {
        return Ok(Cow::Borrowed(escaped));
    }
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped.iter();
    while let Some(&byte) = rest.next() {
        match (byte, rest.as_slice().first()) {
            (ESCAPE, Some(&coded @ 1..=2)) => {
                bytes.push(coded - 1);
                rest.next();
            }
            (ESCAPE, _) => return Err("01 is followed by neither 01 nor 02"),
            _ => bytes.push(byte),
        }
    }
    Ok(Cow::Owned(bytes))
}
