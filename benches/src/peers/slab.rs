//! sharded-slab: rows by an id of the slab's own making, pages per thread.
//!
//! The slab hands out shared references only, so each row sits behind a mutex of one byte: without
//! it UPDATE would not be possible at all.

use parking_lot::Mutex;

use super::Peer;

/// A slab.
pub struct Slab<const N: usize>(sharded_slab::Slab<Mutex<[u64; N]>>);

impl<const N: usize> Slab<N> {
    /// An empty slab; it cannot be presized.
    pub fn new() -> Self {
        Self(sharded_slab::Slab::new())
    }
}

impl<const N: usize> Default for Slab<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Peer<N> for Slab<N> {
    fn name(&self) -> &'static str {
        "sharded-slab"
    }

    fn has_own_ids(&self) -> bool {
        true
    }

    #[inline]
    fn insert(&self, _key: u64, row: &[u64; N]) -> Option<u64> {
        self.0.insert(Mutex::new(*row)).map(|id| id as u64)
    }

    #[inline]
    fn select(&self, id: u64) -> Option<[u64; N]> {
        self.0.get(id as usize).map(|row| *row.lock())
    }

    #[inline]
    fn update(&self, id: u64, row: &[u64; N]) -> bool {
        let held = self.0.get(id as usize);
        held.map(|held| *held.lock() = *row).is_some()
    }

    #[inline]
    fn delete(&self, id: u64) -> bool {
        self.0.remove(id as usize)
    }

    fn count(&self) -> Option<usize> {
        None
    }

    /// Does nothing: each part deletes its rows by their ids.
    fn clear(&self) {}
}
