//! An encoded key, its components, and the ranges that it begins.

use std::borrow::Cow;
use std::fmt;

use super::subscript::{END, escape, unescape};
use super::{KeyError, Subscript};
use crate::limits::{KEY_BYTES_MAX, NAME_BYTES_MAX};

/// A key of the ordered store: a name and any number of subscripts.
///
/// It holds the encoding, so comparing keys is comparing bytes, and a key is checked when it is
/// made: one that exists is within its limits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GlobalKey {
    /// Components, each with its zero byte, and another zero byte.
    bytes: Vec<u8>,
}

/// A half-open range of encoded keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first bytes that belong to it.
    pub start: Vec<u8>,
    /// The first bytes behind it.
    pub end: Vec<u8>,
}

impl GlobalKey {
    /// The key of a name without subscripts.
    ///
    /// # Errors
    /// [`KeyError::Name`] if the name is empty or too long.
    pub fn new(name: impl AsRef<[u8]>) -> Result<Self, KeyError> {
        let name = name.as_ref();
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(KeyError::Name { bytes: name.len() });
        }
        let mut bytes = Vec::with_capacity(name.len() + 32);
        escape(name, &mut bytes);
        bytes.extend_from_slice(&[END, END]);
        Ok(Self { bytes })
    }

    /// The key of a name and subscripts.
    ///
    /// # Errors
    /// As [`GlobalKey::new`] and [`GlobalKey::push`].
    pub fn of(name: impl AsRef<[u8]>, subscripts: &[Subscript<'_>]) -> Result<Self, KeyError> {
        let mut key = Self::new(name)?;
        for subscript in subscripts {
            key.push_one(subscript)?;
        }
        Ok(key)
    }

    /// Appends a subscript.
    ///
    /// # Errors
    /// [`KeyError::TooLong`], [`KeyError::Digits`], [`KeyError::Range`]; the key is as it was.
    pub fn push<'a>(&mut self, subscript: impl Into<Subscript<'a>>) -> Result<&mut Self, KeyError> {
        self.push_one(&subscript.into())?;
        Ok(self)
    }

    /// The key with one more subscript.
    ///
    /// # Errors
    /// As [`GlobalKey::push`].
    pub fn child<'a>(&self, subscript: impl Into<Subscript<'a>>) -> Result<Self, KeyError> {
        let mut child = self.clone();
        child.push_one(&subscript.into())?;
        Ok(child)
    }

    fn push_one(&mut self, subscript: &Subscript<'_>) -> Result<(), KeyError> {
        let length = self.bytes.len();
        if let Subscript::Bytes(bytes) = subscript
            && bytes.len() > KEY_BYTES_MAX
        {
            return Err(KeyError::TooLong { bytes: bytes.len() });
        }
        self.bytes.pop();
        let result = subscript.encode(&mut self.bytes);
        let result = result.and_then(|()| {
            let bytes = self.bytes.len() + 1;
            let fits = bytes <= KEY_BYTES_MAX;
            fits.then_some(()).ok_or(KeyError::TooLong { bytes })
        });
        if result.is_err() {
            self.bytes.truncate(length - 1);
        }
        self.bytes.push(END);
        result
    }

    /// Takes the last subscript off; false if there is none.
    pub fn pop(&mut self) -> bool {
        let Some(start) = self.last_start() else {
            return false;
        };
        self.bytes.truncate(start);
        self.bytes.push(END);
        true
    }

    /// The key without its last subscript, if it has one.
    pub fn parent(&self) -> Option<Self> {
        let mut parent = self.clone();
        parent.pop().then_some(parent)
    }

    /// Where the last subscript begins.
    fn last_start(&self) -> Option<usize> {
        let inner = &self.bytes[..self.bytes.len() - 2];
        inner.iter().rposition(|&byte| byte == END).map(|at| at + 1)
    }

    /// The name.
    pub fn name(&self) -> Cow<'_, [u8]> {
        let end = self.bytes.iter().position(|&byte| byte == END);
        let name = &self.bytes[..end.unwrap_or(0)];
        unescape(name).unwrap_or(Cow::Borrowed(name))
    }

    /// The subscripts, from left to right.
    pub fn subscripts(&self) -> Subscripts<'_> {
        let name = self.bytes.iter().position(|&byte| byte == END);
        Subscripts {
            rest: &self.bytes[name.map_or(0, |end| end + 1)..self.bytes.len() - 1],
        }
    }

    /// The last subscript.
    pub fn last(&self) -> Option<Subscript<'_>> {
        let start = self.last_start()?;
        Subscript::decode(&self.bytes[start..self.bytes.len() - 2]).ok()
    }

    /// The encoding.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The encoding, taken out.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The key of an encoding, which is checked in every detail.
    ///
    /// # Errors
    /// [`KeyError::Encoding`] says what is wrong and where, [`KeyError::TooLong`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, KeyError> {
        let wrong = |what, at| Err(KeyError::Encoding { what, at });
        if bytes.len() > KEY_BYTES_MAX {
            return Err(KeyError::TooLong { bytes: bytes.len() });
        }
        let Some(inner) = bytes.strip_suffix(&[END, END]) else {
            return wrong("a key ends in two zero bytes", bytes.len());
        };
        let mut at = 0;
        for (number, component) in inner.split(|&byte| byte == END).enumerate() {
            if component.is_empty() {
                return wrong("a component has no bytes", at);
            }
            let result = if number == 0 {
                unescape(component).map(|name| name.len() <= NAME_BYTES_MAX)
            } else {
                Subscript::decode(component).map(|_| true)
            };
            match result {
                Ok(true) => {}
                Ok(false) => return wrong("the name is too long", at),
                Err(what) => return wrong(what, at),
            }
            at += component.len() + 1;
        }
        Ok(Self {
            bytes: bytes.to_vec(),
        })
    }

    /// The first bytes of every key that continues this one, and of this one.
    pub fn prefix(&self) -> &[u8] {
        &self.bytes[..self.bytes.len() - 1]
    }

    /// The encoding of the name and the first `subscripts` subscripts, or of all if there are fewer:
    /// what keys are routed by.
    pub fn prefix_of(&self, subscripts: usize) -> &[u8] {
        let inner = self.prefix();
        let mut ends = inner.iter().enumerate().filter(|(_, byte)| **byte == END);
        let end = ends.nth(subscripts).map_or(inner.len(), |(at, _)| at + 1);
        &inner[..end]
    }

    /// Where this key and all that continue it are.
    pub fn subtree(&self) -> KeyRange {
        KeyRange {
            start: self.prefix().to_vec(),
            end: self.behind(),
        }
    }

    /// Where the keys are that continue this one.
    pub fn descendants(&self) -> KeyRange {
        let mut start = self.prefix().to_vec();
        start.push(END + 1);
        KeyRange {
            start,
            end: self.behind(),
        }
    }

    /// The first bytes behind this key and all that continue it: where the search for the next key of
    /// the same level begins.
    fn behind(&self) -> Vec<u8> {
        let mut behind = self.prefix().to_vec();
        if let Some(last) = behind.last_mut() {
            *last = END + 1;
        }
        behind
    }
}

impl KeyRange {
    /// Whether an encoding is in the range.
    pub fn contains(&self, bytes: &[u8]) -> bool {
        self.start.as_slice() <= bytes && bytes < self.end.as_slice()
    }
}

impl AsRef<[u8]> for GlobalKey {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for GlobalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name().escape_ascii())?;
        for (number, subscript) in self.subscripts().enumerate() {
            let before = if number == 0 { "(" } else { "," };
            write!(f, "{before}{subscript:?}")?;
        }
        f.write_str(if self.last_start().is_some() { ")" } else { "" })
    }
}

/// The subscripts of a key, from left to right.
#[derive(Clone, Debug)]
pub struct Subscripts<'a> {
    /// Components, each with its zero byte.
    rest: &'a [u8],
}

impl<'a> Subscripts<'a> {
    pub(super) fn of(rest: &'a [u8]) -> Self {
        Self { rest }
    }
}

impl<'a> Iterator for Subscripts<'a> {
    type Item = Subscript<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let end = self.rest.iter().position(|&byte| byte == END)?;
        let component = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        // A key's bytes were checked when it was made.
        Subscript::decode(component).ok()
    }
}

impl<'a> IntoIterator for &'a GlobalKey {
    type Item = Subscript<'a>;
    type IntoIter = Subscripts<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.subscripts()
    }
}
