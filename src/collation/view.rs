//! A key that lies in memory of somebody else.

use std::borrow::Cow;
use std::fmt;

use super::subscript::{END, unescape};
use super::{GlobalKey, KeyError, Subscript, Subscripts};

/// The encoding of a key, borrowed: what a scan lends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GlobalKeyRef<'a> {
    /// At least three bytes, of which the last two are zero.
    bytes: &'a [u8],
}

impl<'a> GlobalKeyRef<'a> {
    /// Bytes that came from a store; `None` if they cannot be a key.
    pub(crate) fn of_stored(bytes: &'a [u8]) -> Option<Self> {
        (bytes.len() > 2 && bytes.ends_with(&[END, END])).then_some(Self { bytes })
    }

    /// The encoding.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The name.
    pub fn name(&self) -> Cow<'a, [u8]> {
        let name = &self.bytes[..self.name_end()];
        unescape(name).unwrap_or(Cow::Borrowed(name))
    }

    /// The subscripts, from left to right.
    pub fn subscripts(&self) -> Subscripts<'a> {
        Subscripts::of(&self.bytes[self.name_end() + 1..self.bytes.len() - 1])
    }

    /// The last subscript.
    pub fn last(&self) -> Option<Subscript<'a>> {
        let inner = &self.bytes[..self.bytes.len() - 2];
        let start = inner.iter().rposition(|&byte| byte == END)? + 1;
        Subscript::decode(&inner[start..]).ok()
    }

    /// The key, in memory of its own.
    ///
    /// # Errors
    /// [`KeyError::Encoding`] if the bytes came from a damaged file.
    pub fn to_key(&self) -> Result<GlobalKey, KeyError> {
        GlobalKey::from_bytes(self.bytes)
    }

    /// Where the name ends: there are two zeros at least.
    fn name_end(&self) -> usize {
        let end = self.bytes.iter().position(|&byte| byte == END);
        end.unwrap_or(0).min(self.bytes.len() - 2)
    }
}

impl fmt::Debug for GlobalKeyRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_key() {
            Ok(key) => key.fmt(f),
            Err(_) => write!(f, "\"{}\"", self.bytes.escape_ascii()),
        }
    }
}
