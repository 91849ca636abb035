//! Strings of bytes one behind the other: how keys travel to shards, and what was found comes back.

/// Says that there is no string: beside where the one before it ends.
const ABSENT: u64 = 1 << 63;

/// A list of strings, each of which may be absent.
#[derive(Debug, Default)]
pub(crate) struct Strings {
    bytes: Vec<u8>,
    ends: Vec<u64>,
}

impl Strings {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of all.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    #[inline]
    pub(crate) fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len() as u64);
    }

    #[inline]
    pub(crate) fn push_maybe(&mut self, string: Option<&[u8]>) {
        match string {
            Some(string) => self.push(string),
            None => self.ends.push(self.bytes.len() as u64 | ABSENT),
        }
    }

    /// One of them, counted from 0; the empty one where it is absent.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> &[u8] {
        let start = if at == 0 {
            0
        } else {
            self.ends[at - 1] & !ABSENT
        };
        &self.bytes[start as usize..(self.ends[at] & !ABSENT) as usize]
    }

    /// One of them, if it is there.
    #[inline]
    pub(crate) fn find(&self, at: usize) -> Option<&[u8]> {
        (self.ends[at] & ABSENT == 0).then(|| self.get(at))
    }
}
