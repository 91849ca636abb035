//! Names of things: shards, tables, rows.
//!
//! ```text
//! DirectId   63        54 53                    22 21                0
//!            | shard 10  | slot 32                | generation 22    |
//! ```
//!
//! A direct id is a place. Its generation changes each time the place is freed, so an id of a
//! deleted row finds nothing, for ever: a slot whose generations are spent is retired.
//!
//! A surrogate id is any 64-bit key. One mixed hash of it decides the shard (from its low half) and
//! the place in that shard's index (from its high half), so that the two are independent.

#![expect(
    unsafe_code,
    reason = "ids are plain numbers, and slices of them are too"
)]

use std::fmt;

use crate::limits::{GENERATION_MAX, SHARDS_MAX};

/// Index of a shard in its engine, counted from 0.
pub type ShardIndex = usize;

/// A row's place in memory: the fastest way to it.
///
/// Given by an insert, valid until that row is deleted; afterwards it finds nothing, even when the
/// place holds another row. It is a name within one table: used with another table it finds nothing
/// or an unrelated row there, so keep ids with their table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct DirectId(u64);

const SLOT_SHIFT: u32 = 22;
const SHARD_SHIFT: u32 = 54;

const _: () = assert!(SHARDS_MAX == 1 << (64 - SHARD_SHIFT));
const _: () = assert!(GENERATION_MAX == (1 << SLOT_SHIFT) - 1);

impl DirectId {
    pub(crate) fn new(shard: ShardIndex, slot: u32, generation: u32) -> Self {
        debug_assert!(shard < SHARDS_MAX && generation <= GENERATION_MAX);
        Self((shard as u64) << SHARD_SHIFT | u64::from(slot) << SLOT_SHIFT | u64::from(generation))
    }

    /// The shard that holds the row.
    #[inline]
    pub fn shard(self) -> ShardIndex {
        (self.0 >> SHARD_SHIFT) as usize
    }

    #[inline]
    pub(crate) fn slot(self) -> u32 {
        (self.0 >> SLOT_SHIFT) as u32
    }

    /// The slot of a row in `shard`; for rows of other shards a number above those of all slots.
    #[inline]
    pub(crate) fn slot_in(self, shard: ShardIndex) -> u64 {
        (self.0 >> SLOT_SHIFT).wrapping_sub((shard as u64) << (SHARD_SHIFT - SLOT_SHIFT))
    }

    #[inline]
    pub(crate) fn generation(self) -> u32 {
        self.0 as u32 & GENERATION_MAX
    }

    /// The id as a plain number, for storing in a column of another row.
    #[inline]
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// The id that [`to_u64`](Self::to_u64) gave. Any other number is harmless: it finds nothing,
    /// or the row that it happens to name.
    #[inline]
    pub fn from_u64(raw: u64) -> Self {
        Self(raw)
    }
}

impl fmt::Debug for DirectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DirectId({}:{}:{})",
            self.shard(),
            self.slot(),
            self.generation()
        )
    }
}

/// The unique key of a row in a keyed table; any number is legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct SurrogateId(pub u64);

/// The two ways to a row: [`DirectId`] and [`SurrogateId`].
///
/// Sealed: a row is found by its place or by its key.
pub trait RowId: Copy + fmt::Debug + Send + Sync + sealed::Sealed + 'static {
    /// Whether this id is looked up in the table's index.
    const KEYED: bool;
    /// The id as a plain number.
    fn raw(self) -> u64;
    /// The id of a plain number.
    fn from_raw(raw: u64) -> Self;
    /// Ids as plain numbers.
    fn raw_slice(ids: &[Self]) -> &[u64];
    /// The shard, of `shards`, that holds the row, if there is one.
    fn shard_of(self, shards: usize) -> ShardIndex;
}

impl RowId for DirectId {
    const KEYED: bool = false;

    #[inline]
    fn raw(self) -> u64 {
        self.0
    }

    #[inline]
    fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    #[inline]
    fn raw_slice(ids: &[Self]) -> &[u64] {
        // SAFETY: the type is a transparent wrapper of `u64`.
        unsafe { std::slice::from_raw_parts(ids.as_ptr().cast(), ids.len()) }
    }

    #[inline]
    fn shard_of(self, shards: usize) -> ShardIndex {
        // A number that names no shard finds nothing in any.
        self.shard().min(shards - 1)
    }
}

impl RowId for SurrogateId {
    const KEYED: bool = true;

    #[inline]
    fn raw(self) -> u64 {
        self.0
    }

    #[inline]
    fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    #[inline]
    fn raw_slice(ids: &[Self]) -> &[u64] {
        // SAFETY: the type is a transparent wrapper of `u64`.
        unsafe { std::slice::from_raw_parts(ids.as_ptr().cast(), ids.len()) }
    }

    #[inline]
    fn shard_of(self, shards: usize) -> ShardIndex {
        shard_of(hash(self.0), shards)
    }
}

/// The shard, of `shards`, of a key with this hash.
#[inline]
pub(crate) fn shard_of(hash: u64, shards: usize) -> ShardIndex {
    ((u64::from(hash as u32) * shards as u64) >> 32) as usize
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::DirectId {}
    impl Sealed for super::SurrogateId {}
}

/// Mixes a key so that every bit of the result depends on every bit of it.
///
/// The finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014), a bijection: distinct keys have
/// distinct hashes, so consecutive and clustered keys spread evenly.
#[inline]
pub(crate) fn hash(key: u64) -> u64 {
    let key = (key ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ key >> 31).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ key >> 30
}

/// A table of one engine: its place in the catalog, and a stamp that no other table of this process
/// ever has, so that a handle of a dropped table, or of another engine, finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TableKey {
    pub(crate) index: u32,
    pub(crate) stamp: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direct_id_gives_back_its_parts() {
        for (shard, slot, generation) in
            [(0, 0, 0), (1023, u32::MAX, GENERATION_MAX), (7, 123_456, 3)]
        {
            let id = DirectId::new(shard, slot, generation);
            assert_eq!(
                (id.shard(), id.slot(), id.generation()),
                (shard, slot, generation)
            );
            assert_eq!(DirectId::from_u64(id.to_u64()), id);
            for other in [0, 7, 8, 1023] {
                let is_own = id.slot_in(other) == u64::from(slot);
                assert_eq!(is_own, other == shard);
                assert!(is_own || id.slot_in(other) > u64::from(u32::MAX));
            }
        }
    }

    #[test]
    fn few_sequential_keys_spread_evenly_over_any_number_of_shards() {
        for shards in 1..=64 {
            let keys = 4096_u64;
            let mut counts = vec![0_u64; shards];
            for key in 0..keys {
                counts[SurrogateId(key).shard_of(shards)] += 1;
            }
            let mean = keys as f64 / shards as f64;
            let max = *counts.iter().max().unwrap() as f64;
            assert!(max / mean <= 1.5, "{shards} shards: {counts:?}");
        }
    }
}
