//! A shard's memory: one contiguous reservation on the shard's own NUMA node, cut into extents.
//!
//! # Shape
//! The arena reserves its whole bound as address space when it is made; memory is used only where it
//! is touched. It never moves, so an offset names the same byte for as long as the arena lives, and
//! everything in it (slabs, index segments, free lists) refers by offset or by the address derived
//! from one.
//!
//! ```text
//! offset 0           top                         bound
//! | extents, in use and free  | never used        |
//! ```
//!
//! # Extents
//! Multiples of a page. A freed extent joins its free neighbours; the smallest free extent that fits
//! is given out first, else the arena grows at its top. The bound is a promise kept with an error,
//! [`ArenaFull`], before anything was changed.
//!
//! # Placement
//! The reservation asks for huge pages and is bound to its node with the *preferred* policy: on a
//! full node memory comes from the next one, where a strict policy would have the process killed.
//! What was obtained is read back page by page, never assumed ([`Arena::placement`]).

mod extents;
mod heap;
mod map;
mod prefetch;

use std::ptr::NonNull;

use crate::error::ArenaFull;
use crate::limits::PAGE_BYTES;
pub(crate) use extents::Extent;
use extents::Extents;
pub(crate) use heap::Heap;
use map::Map;
pub(crate) use map::{Binding, MapError, MapOptions, Pages, current_pu};
pub(crate) use prefetch::{prefetch, prefetch_range};

/// A shard's data memory.
pub(crate) struct Arena {
    map: Map,
    extents: Extents,
    /// Memory below this was made present beforehand.
    prefaulted: u64,
}

impl Arena {
    /// Reserves `options.bytes` of address space, bound to `options.node`.
    pub(crate) fn new(options: &MapOptions) -> Result<Self, MapError> {
        let map = Map::new(options)?;
        let bound = map.bytes() as u64;
        Ok(Self {
            map,
            extents: Extents::new(bound),
            prefaulted: 0,
        })
    }

    /// An extent of at least `bytes`; its content is whatever was there.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Result<Extent, ArenaFull> {
        let rounded = bytes.next_multiple_of(PAGE_BYTES) as u64;
        self.extents.allocate(rounded).ok_or(ArenaFull {
            asked_bytes: rounded,
            used_bytes: self.extents.used(),
            bound_bytes: self.extents.bound(),
        })
    }

    /// Gives an extent back.
    pub(crate) fn release(&mut self, extent: Extent) {
        self.extents.release(extent);
    }

    /// Returns the memory of all free extents to the system; their address space stays.
    pub(crate) fn purge(&mut self) {
        for extent in self.extents.free() {
            self.map
                .discard(extent.offset as usize, extent.bytes as usize);
        }
    }

    /// The address of an extent, valid while the arena lives and the extent is not released.
    pub(crate) fn address(&self, extent: Extent) -> NonNull<u8> {
        self.map.address(extent.offset as usize)
    }

    /// Makes memory present for the next `bytes` above the top, so that growing into them meets no
    /// page fault.
    pub(crate) fn prefault(&mut self, bytes: u64) {
        let top = self.extents.top();
        let end = self.extents.bound().min(top.saturating_add(bytes));
        self.map.populate(top as usize, (end - top) as usize);
        self.prefaulted = self.prefaulted.max(end);
    }

    /// Bytes in use by extents.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.extents.used()
    }

    /// The bound.
    pub(crate) fn bound_bytes(&self) -> u64 {
        self.extents.bound()
    }

    /// What the system answered when the arena was bound.
    pub(crate) fn binding(&self) -> &Binding {
        self.map.binding()
    }

    /// Where the arena's pages are, read back from the system.
    pub(crate) fn placement(&self) -> Pages {
        self.map
            .pages(self.extents.top().max(self.prefaulted) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena(bytes: u64) -> Arena {
        Arena::new(&MapOptions {
            bytes,
            node: None,
            huge_pages: true,
        })
        .unwrap()
    }

    #[test]
    fn full_arena_names_its_bound_and_serves_again_after_a_release() {
        let mut arena = arena(4 << 20);
        let first = arena.allocate(3 << 20).unwrap();
        let full = arena.allocate(2 << 20).unwrap_err();
        assert_eq!(
            (full.bound_bytes, full.used_bytes, full.asked_bytes),
            (4 << 20, 3 << 20, 2 << 20)
        );
        arena.release(first);
        arena.allocate(4 << 20).unwrap();
    }

    #[test]
    fn purge_returns_memory_and_leaves_zeros() {
        let mut arena = arena(8 << 20);
        let extent = arena.allocate(4 << 20).unwrap();
        arena.prefault(1 << 20);
        map::fill(arena.address(extent), extent.bytes as usize, 7);
        arena.release(extent);
        arena.purge();
        let extent = arena.allocate(4 << 20).unwrap();
        assert!(map::all(arena.address(extent), extent.bytes as usize, 0));
    }

    #[test]
    fn placement_counts_the_touched_pages() {
        let mut arena = arena(8 << 20);
        let extent = arena.allocate(2 << 20).unwrap();
        map::fill(arena.address(extent), extent.bytes as usize, 1);
        let pages = arena.placement();
        if pages.error.is_none() {
            assert!(pages.by_node.values().sum::<u64>() > 0, "{pages:?}");
        }
    }
}
