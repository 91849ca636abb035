//! The records of the shard at hand in the order of an index.

use std::ops::ControlFlow;

use super::{Local, LocalRecords};
use crate::error::Result;
use crate::table::{Direction, Image, Key, KeyBounds, KeySpan, Record};

/// Records in the order of an index: the key of each there, and its image.
#[derive(Default)]
pub(crate) struct Ranked {
    keys: Vec<u8>,
    words: Vec<u64>,
    /// Where the key and the image of each end.
    ends: Vec<(usize, usize)>,
    /// The first one that was not taken.
    at: usize,
}

impl Ranked {
    fn ends_before(&self, at: usize) -> (usize, usize) {
        match at.checked_sub(1) {
            Some(before) => self.ends[before],
            None => (0, 0),
        }
    }

    fn key_at(&self, at: usize) -> Option<&[u8]> {
        let (end, _) = *self.ends.get(at)?;
        Some(&self.keys[self.ends_before(at).0..end])
    }

    /// The key of the next record.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.key_at(self.at)
    }

    /// The key of the last record.
    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        self.key_at(self.ends.len().checked_sub(1)?)
    }

    /// Takes the next record.
    pub(crate) fn take(&mut self) -> Option<Image<'_>> {
        let (_, end) = *self.ends.get(self.at)?;
        let (_, start) = self.ends_before(self.at);
        self.at += 1;
        Image::split(&self.words[start..end]).map(|(image, _)| image)
    }

    /// Records that were not taken.
    pub(crate) fn left(&self) -> usize {
        self.ends.len() - self.at
    }

    /// Forgets the records that were taken.
    pub(crate) fn forget_taken(&mut self) {
        let (keys, words) = self.ends_before(self.at);
        self.keys.drain(..keys);
        self.words.drain(..words);
        self.ends.drain(..std::mem::take(&mut self.at));
        for (key, image) in &mut self.ends {
            *key -= keys;
            *image -= words;
        }
    }
}

impl Local<'_> {
    /// Adds records whose keys in an ordered index lie in a range, as long as they are not too many, and
    /// not too many words; whether those are all.
    pub(crate) fn range(
        &self,
        index: usize,
        span: (&[u8], Option<&[u8]>),
        direction: Direction,
        (records_max, words_max): (usize, usize),
        found: &mut Ranked,
    ) -> Result<bool> {
        let mut is_all = true;
        let most = found.ends.len() + records_max;
        self.part
            .range(self.arena, index, span, direction, |key, place| {
                if found.ends.len() >= most || found.words.len() >= words_max {
                    is_all = false;
                    return ControlFlow::Break(());
                }
                found.keys.extend_from_slice(key);
                self.read(place, &mut found.words);
                found.ends.push((found.keys.len(), found.words.len()));
                ControlFlow::Continue(())
            })?;
        Ok(is_all)
    }

    /// Records whose keys in an ordered index lie in a range.
    pub(crate) fn count_range(&self, index: usize, span: &KeySpan) -> Result<u64> {
        let span = (&span.start[..], span.end.as_deref());
        self.part.count_range(self.arena, index, span)
    }
}

impl<R: Record> LocalRecords<'_, R> {
    /// Visits the records of this shard whose values of an ordered index's fields lie in a range, in
    /// their order, until `visit` breaks. See [`RecordVerbs::range`](crate::RecordVerbs::range).
    pub fn range(
        &self,
        index: &str,
        bounds: impl KeyBounds,
        visit: impl FnMut(R) -> ControlFlow<()>,
    ) -> Result<()> {
        self.go_over(index, Wanted::Range(&bounds), Direction::Forward, visit)
    }

    /// As [`range`](Self::range), from the last record to the first.
    pub fn range_rev(
        &self,
        index: &str,
        bounds: impl KeyBounds,
        visit: impl FnMut(R) -> ControlFlow<()>,
    ) -> Result<()> {
        self.go_over(index, Wanted::Range(&bounds), Direction::Backward, visit)
    }

    /// Visits the records of this shard that begin with some values, in the order of the index, until
    /// `visit` breaks. See [`RecordVerbs::prefix`](crate::RecordVerbs::prefix).
    pub fn prefix(
        &self,
        index: &str,
        values: impl Key,
        visit: impl FnMut(R) -> ControlFlow<()>,
    ) -> Result<()> {
        self.go_over(index, Wanted::Prefix(&values), Direction::Forward, visit)
    }

    /// As [`prefix`](Self::prefix), from the last record to the first.
    pub fn prefix_rev(
        &self,
        index: &str,
        values: impl Key,
        visit: impl FnMut(R) -> ControlFlow<()>,
    ) -> Result<()> {
        self.go_over(index, Wanted::Prefix(&values), Direction::Backward, visit)
    }

    /// How many records of this shard have values of an ordered index's fields in a range.
    pub fn count_range(&self, index: &str, bounds: impl KeyBounds) -> Result<u64> {
        let index = self.records.ordered(index)?;
        let span = KeySpan::of(self.records.shape(), index, &bounds)?;
        self.inner.count_range(index, &span)
    }

    /// How many records of this shard [`prefix`](Self::prefix) visits.
    pub fn count_prefix(&self, index: &str, values: impl Key) -> Result<u64> {
        let index = self.records.ordered(index)?;
        let span = KeySpan::beginning(self.records.shape(), index, &values)?;
        self.inner.count_range(index, &span)
    }

    fn go_over(
        &self,
        index: &str,
        wanted: Wanted<'_>,
        direction: Direction,
        mut visit: impl FnMut(R) -> ControlFlow<()>,
    ) -> Result<()> {
        let index = self.records.ordered(index)?;
        let shape = self.records.shape();
        let span = match wanted {
            Wanted::Range(bounds) => KeySpan::of(shape, index, bounds)?,
            Wanted::Prefix(values) => KeySpan::beginning(shape, index, values)?,
        };
        if span.is_empty() {
            return Ok(());
        }
        let (codec, Local { part, arena, .. }) = (self.records.codec(), &self.inner);
        let span = (&span.start[..], span.end.as_deref());
        let mut failure = None;
        part.range(arena, index, span, direction, |_, place| {
            match codec.load(part.values(arena, place)) {
                Ok(record) => visit(record),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        failure.map_or(Ok(()), Err)
    }
}

/// Which records are wanted.
enum Wanted<'a> {
    Range(&'a dyn KeyBounds),
    Prefix(&'a dyn Key),
}
