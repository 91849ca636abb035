//! Moving slabs to lower offsets, and giving back what is empty.

use super::Slots;
use crate::arena::{Arena, Extent};

impl Slots {
    /// The extents that may move.
    pub(in crate::table) fn movable(&self) -> impl Iterator<Item = Extent> {
        self.extents.iter().copied().chain(self.free.extents())
    }

    /// Moves an extent of ours down, if there is room; says whether it did.
    pub(in crate::table) fn sink(&mut self, arena: &mut Arena, extent: Extent) -> bool {
        let Some(slab) = self.extents.iter().position(|slab| *slab == extent) else {
            return self.free.sink(arena, extent);
        };
        let Some(lower) = arena.sink(extent) else {
            return false;
        };
        self.extents[slab] = lower;
        self.slabs[slab] = arena.address(lower);
        true
    }

    /// Gives back what the stack of free slots does not use.
    pub(in crate::table) fn shrink(&mut self, arena: &mut Arena) {
        self.free.shrink(arena);
    }
}
