//! Many keys, and many entries, for batches: in one piece of memory, or as the program has them.

use std::borrow::Borrow;

use super::subscript::{END, escape};
use super::{GlobalKey, KeyError, Subscript};
use crate::limits::{KEY_BYTES_MAX, NAME_BYTES_MAX};

/// Keys one behind the other in one piece of memory, which is kept when they are cleared: a batch of
/// them allocates nothing.
///
/// ```
/// use ancile::{GlobalKey, GlobalKeys, KeyList};
/// let mut keys = GlobalKeys::new();
/// let step = GlobalKey::new("step")?;
/// for n in 1..=3 {
///     keys.push_child(&step, n)?;
/// }
/// assert_eq!(keys.len(), 3);
/// # Ok::<(), ancile::KeyError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct GlobalKeys {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl GlobalKeys {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the keys; memory is kept.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds a key.
    pub fn push_key(&mut self, key: &GlobalKey) {
        self.bytes.extend_from_slice(key.as_bytes());
        self.end();
    }

    /// Adds the key of a name and subscripts.
    ///
    /// # Errors
    /// As [`GlobalKey::of`]; then no key was added.
    pub fn push(
        &mut self,
        name: impl AsRef<[u8]>,
        subscripts: &[Subscript<'_>],
    ) -> Result<(), KeyError> {
        let start = self.bytes.len();
        let name = name.as_ref();
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(KeyError::Name { bytes: name.len() });
        }
        escape(name, &mut self.bytes);
        self.bytes.push(END);
        self.finish(start, subscripts)
    }

    /// Adds a key with one more subscript.
    ///
    /// # Errors
    /// As [`GlobalKey::push`]; then no key was added.
    #[inline]
    pub fn push_child<'a>(
        &mut self,
        parent: &GlobalKey,
        subscript: impl Into<Subscript<'a>>,
    ) -> Result<(), KeyError> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(parent.prefix());
        self.finish(start, &[subscript.into()])
    }

    #[inline]
    fn finish(&mut self, start: usize, subscripts: &[Subscript<'_>]) -> Result<(), KeyError> {
        for subscript in subscripts {
            let encoded = match subscript {
                Subscript::Bytes(bytes) if bytes.len() > KEY_BYTES_MAX => {
                    Err(KeyError::TooLong { bytes: bytes.len() })
                }
                other => other.encode(&mut self.bytes),
            };
            if let Err(error) = encoded {
                self.bytes.truncate(start);
                return Err(error);
            }
        }
        self.bytes.push(END);
        let bytes = self.bytes.len() - start;
        if bytes > KEY_BYTES_MAX {
            self.bytes.truncate(start);
            return Err(KeyError::TooLong { bytes });
        }
        self.end();
        Ok(())
    }

    fn end(&mut self) {
        let end = u32::try_from(self.bytes.len());
        self.ends
            .push(end.expect("a list of keys has less than 4 GiB"));
    }
}

/// Entries, keys with values, in one piece of memory, which is kept when they are cleared.
#[derive(Clone, Debug, Default)]
pub struct GlobalEntries {
    keys: GlobalKeys,
    values: Vec<u8>,
    ends: Vec<u32>,
}

impl GlobalEntries {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the entries; memory is kept.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.values.clear();
        self.ends.clear();
    }

    /// Adds an entry.
    pub fn push_key(&mut self, key: &GlobalKey, value: impl AsRef<[u8]>) {
        self.keys.push_key(key);
        self.end(value.as_ref());
    }

    /// Adds the entry of a name and subscripts.
    ///
    /// # Errors
    /// As [`GlobalKey::of`]; then no entry was added.
    pub fn push(
        &mut self,
        name: impl AsRef<[u8]>,
        subscripts: &[Subscript<'_>],
        value: impl AsRef<[u8]>,
    ) -> Result<(), KeyError> {
        self.keys.push(name, subscripts)?;
        self.end(value.as_ref());
        Ok(())
    }

    /// Adds an entry whose key has one more subscript.
    ///
    /// # Errors
    /// As [`GlobalKey::push`]; then no entry was added.
    #[inline]
    pub fn push_child<'a>(
        &mut self,
        parent: &GlobalKey,
        subscript: impl Into<Subscript<'a>>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), KeyError> {
        self.keys.push_child(parent, subscript)?;
        self.end(value.as_ref());
        Ok(())
    }

    fn end(&mut self, value: &[u8]) {
        self.values.extend_from_slice(value);
        let end = u32::try_from(self.values.len());
        self.ends
            .push(end.expect("a list of values has less than 4 GiB"));
    }
}

/// A list of keys: [`GlobalKeys`], or keys in a slice, an array or a vector.
pub trait KeyList: sealed::Sealed {
    /// How many.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The encoding of one, counted from 0.
    fn key(&self, at: usize) -> &[u8];
}

/// A list of entries: [`GlobalEntries`], or pairs of key and value in a slice, an array or a vector.
pub trait EntryList: sealed::Sealed {
    /// How many.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The encoded key of one, counted from 0.
    fn key(&self, at: usize) -> &[u8];

    /// The value of one.
    fn value(&self, at: usize) -> &[u8];
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::GlobalKeys {}
    impl Sealed for super::GlobalEntries {}
    impl<T> Sealed for [T] {}
    impl<T, const N: usize> Sealed for [T; N] {}
    impl<T> Sealed for Vec<T> {}
}

fn start(ends: &[u32], at: usize) -> usize {
    if at == 0 { 0 } else { ends[at - 1] as usize }
}

impl KeyList for GlobalKeys {
    fn len(&self) -> usize {
        self.ends.len()
    }

    #[inline]
    fn key(&self, at: usize) -> &[u8] {
        &self.bytes[start(&self.ends, at)..self.ends[at] as usize]
    }
}

impl EntryList for GlobalEntries {
    fn len(&self) -> usize {
        self.ends.len()
    }

    #[inline]
    fn key(&self, at: usize) -> &[u8] {
        self.keys.key(at)
    }

    #[inline]
    fn value(&self, at: usize) -> &[u8] {
        &self.values[start(&self.ends, at)..self.ends[at] as usize]
    }
}

impl<K: Borrow<GlobalKey>> KeyList for [K] {
    fn len(&self) -> usize {
        <[K]>::len(self)
    }

    #[inline]
    fn key(&self, at: usize) -> &[u8] {
        self[at].borrow().as_bytes()
    }
}

impl<K: Borrow<GlobalKey>, V: AsRef<[u8]>> EntryList for [(K, V)] {
    fn len(&self) -> usize {
        <[(K, V)]>::len(self)
    }

    #[inline]
    fn key(&self, at: usize) -> &[u8] {
        self[at].0.borrow().as_bytes()
    }

    #[inline]
    fn value(&self, at: usize) -> &[u8] {
        self[at].1.as_ref()
    }
}

impl<K: Borrow<GlobalKey>> KeyList for Vec<K> {
    fn len(&self) -> usize {
        self[..].len()
    }

    fn key(&self, at: usize) -> &[u8] {
        self[..].key(at)
    }
}

impl<K: Borrow<GlobalKey>, const N: usize> KeyList for [K; N] {
    fn len(&self) -> usize {
        self[..].len()
    }

    fn key(&self, at: usize) -> &[u8] {
        self[..].key(at)
    }
}

impl<K: Borrow<GlobalKey>, V: AsRef<[u8]>> EntryList for Vec<(K, V)> {
    fn len(&self) -> usize {
        self[..].len()
    }

    fn key(&self, at: usize) -> &[u8] {
        self[..].key(at)
    }

    fn value(&self, at: usize) -> &[u8] {
        self[..].value(at)
    }
}

impl<K: Borrow<GlobalKey>, V: AsRef<[u8]>, const N: usize> EntryList for [(K, V); N] {
    fn len(&self) -> usize {
        self[..].len()
    }

    fn key(&self, at: usize) -> &[u8] {
        self[..].key(at)
    }

    fn value(&self, at: usize) -> &[u8] {
        self[..].value(at)
    }
}
