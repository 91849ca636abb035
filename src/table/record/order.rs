//! Values as bytes that have the order of the values: the keys of ordered indexes, and ranges of them.
//!
//! # Bytes
//! They are part of the file format. The values of an index's fields come one after the other, then the
//! slot of their record, so that no two records have the same key.
//!
//! ```text
//! key             | value of the first field | value of the second | ... | slot 4, big-endian |
//! optional field  | 0 |          holds nothing
//!                 | 1 | value |  holds a value
//! u64             | 8, big-endian |
//! i64, timestamp  | 8, big-endian, the sign's bit turned |
//! f64             | 8, big-endian, the sign's bit turned, or all bits where it was set |
//! bool            | 0 or 1 |
//! text, bytes     | the bytes, but 0 255 for each 0 | 0 0 |
//! ```
//! So numbers have their own order, `f64` the total order of IEEE 754, and texts that of their bytes. What
//! begins with the same values, or with a text that begins the same, is a range of keys.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use super::image::{Image, Values};
use super::shape::{FieldKind, Shape, Spot};
use super::typed::{Key, write_leading};
use crate::error::Result;

const SIGN: u64 = 1 << 63;

/// What ends a text.
const TEXT_END: [u8; 2] = [0, 0];

/// Bytes of a slot.
pub(super) const SLOT_BYTES: usize = size_of::<u32>();

/// Writes the key of a record, behind what is there.
pub(super) fn write_key(spots: &[Spot], values: &impl Values, slot: u32, key: &mut Vec<u8>) {
    write_values(spots, values, key);
    key.extend_from_slice(&slot.to_be_bytes());
}

/// Writes the values of some fields, behind what is there.
pub(super) fn write_values(spots: &[Spot], values: &impl Values, key: &mut Vec<u8>) {
    for spot in spots {
        let is_present = values.is_present(spot);
        if spot.presence.is_some() {
            key.push(u8::from(is_present));
        }
        if is_present {
            write_value(spot, values, key);
        }
    }
}

fn write_value(spot: &Spot, values: &impl Values, key: &mut Vec<u8>) {
    let number = match spot.kind {
        FieldKind::Text | FieldKind::Bytes => {
            return values.with_text(spot.cell, |text| {
                write_text(text, key);
                key.extend_from_slice(&TEXT_END);
            });
        }
        FieldKind::Bool => return key.push(u8::from(values.cell(spot.cell) != 0)),
        FieldKind::U64 => values.cell(spot.cell),
        FieldKind::I64 | FieldKind::Timestamp => values.cell(spot.cell) ^ SIGN,
        FieldKind::F64 => match values.cell(spot.cell) {
            bits if bits & SIGN == 0 => bits ^ SIGN,
            bits => !bits,
        },
    };
    key.extend_from_slice(&number.to_be_bytes());
}

fn write_text(text: &[u8], key: &mut Vec<u8>) {
    let mut pieces = text.split(|&byte| byte == 0);
    key.extend_from_slice(pieces.next().unwrap_or_default());
    for piece in pieces {
        key.extend_from_slice(&[0, 255]);
        key.extend_from_slice(piece);
    }
}

/// The slot that a key ends with.
pub(super) fn slot_of(key: &[u8]) -> Option<u32> {
    key.last_chunk().map(|slot| u32::from_be_bytes(*slot))
}

/// Makes bytes the first ones behind all that begin with them; false if there are none.
pub(super) fn step_behind(bytes: &mut Vec<u8>) -> bool {
    while let Some(last) = bytes.pop() {
        if last < u8::MAX {
            bytes.push(last + 1);
            return true;
        }
    }
    false
}

/// The ends of a range of an ordered index's values: ranges such as `"a".."b"` and `(1, 2)..=(3, 4)`, and
/// pairs of [`Bound`]s.
///
/// An end is what [`Key`] is, for as many of the index's first fields as it has values. It stands for all
/// records that have these values: `(1900,)..=(1950,)` has those of 1950, whatever their other fields.
pub trait KeyBounds: Sync {
    /// Where the range begins.
    fn begin(&self) -> Bound<&dyn Key>;
    /// Where the range ends.
    fn end(&self) -> Bound<&dyn Key>;
}

macro_rules! key_bounds {
    ($($range:ty, |$from:ident| $begin:expr, |$to:ident| $end:expr;)+) => {$(
        impl<K: Key> KeyBounds for $range {
            fn begin(&self) -> Bound<&dyn Key> {
                let $from = self;
                $begin
            }

            fn end(&self) -> Bound<&dyn Key> {
                let $to = self;
                $end
            }
        }
    )+};
}

key_bounds! {
    Range<K>, |range| Bound::Included(&range.start), |range| Bound::Excluded(&range.end);
    RangeInclusive<K>, |range| Bound::Included(range.start()), |range| Bound::Included(range.end());
    RangeFrom<K>, |range| Bound::Included(&range.start), |_range| Bound::Unbounded;
    RangeTo<K>, |_range| Bound::Unbounded, |range| Bound::Excluded(&range.end);
    RangeToInclusive<K>, |_range| Bound::Unbounded, |range| Bound::Included(&range.end);
    (Bound<K>, Bound<K>), |range| dynamic(&range.0), |range| dynamic(&range.1);
}

fn dynamic<K: Key>(bound: &Bound<K>) -> Bound<&dyn Key> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

impl KeyBounds for RangeFull {
    fn begin(&self) -> Bound<&dyn Key> {
        Bound::Unbounded
    }

    fn end(&self) -> Bound<&dyn Key> {
        Bound::Unbounded
    }
}

/// A range of an ordered index's keys: from `start` to below `end`, or to the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeySpan {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Option<Vec<u8>>,
}

impl KeySpan {
    /// A span without keys.
    fn empty() -> Self {
        Self {
            start: Vec::new(),
            end: Some(Vec::new()),
        }
    }

    /// The keys within some bounds.
    pub(crate) fn of(
        shape: &Shape,
        index: usize,
        bounds: &(impl KeyBounds + ?Sized),
    ) -> Result<Self> {
        let spots = &shape.indexes[index];
        let start = match bounds.begin() {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => leading(shape, spots, key)?.0,
            Bound::Excluded(key) => {
                let (mut start, _) = leading(shape, spots, key)?;
                if !step_behind(&mut start) {
                    return Ok(Self::empty());
                }
                start
            }
        };
        let end = match bounds.end() {
            Bound::Unbounded => None,
            Bound::Excluded(key) => Some(leading(shape, spots, key)?.0),
            Bound::Included(key) => {
                let (mut end, _) = leading(shape, spots, key)?;
                step_behind(&mut end).then_some(end)
            }
        };
        Ok(Self { start, end })
    }

    /// The keys that begin with some values, of which the last one, if it is a text, need only be the
    /// beginning of a record's.
    pub(crate) fn beginning(
        shape: &Shape,
        index: usize,
        values: &(impl Key + ?Sized),
    ) -> Result<Self> {
        let (mut start, ends_with_text) = leading(shape, &shape.indexes[index], values)?;
        if ends_with_text {
            start.truncate(start.len() - TEXT_END.len());
        }
        let mut end = start.clone();
        let end = step_behind(&mut end).then_some(end);
        Ok(Self { start, end })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }
}

/// The bytes of values of the first fields, and whether the last of them is a text.
fn leading(shape: &Shape, spots: &[Spot], values: &(impl Key + ?Sized)) -> Result<(Vec<u8>, bool)> {
    let mut words = Vec::new();
    let count = write_leading(shape, spots, values, &mut words)?;
    let (spots, mut key) = (&spots[..count], Vec::new());
    let mut ends_with_text = false;
    if let Some((image, _)) = Image::split(&words) {
        write_values(spots, &image, &mut key);
        ends_with_text = spots
            .last()
            .is_some_and(|last| last.kind.is_text() && image.is_present(last));
    }
    Ok((key, ends_with_text))
}

#[cfg(test)]
mod test;
