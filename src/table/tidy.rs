//! Bringing a part of a table together.

use super::TablePart;
use crate::arena::{Arena, Extent};

impl TablePart {
    /// Gives back what the index and the list of free slots have no use for.
    pub(crate) fn shrink(&mut self, arena: &mut Arena) {
        self.slots.shrink(arena);
        if let Some(index) = &mut self.index {
            index.shrink(arena, &self.slots);
        }
        self.end_scope(arena);
    }

    /// The extents that may move.
    pub(crate) fn movable(&self) -> Vec<Extent> {
        let head = self.stored.iter().map(|stored| stored.extent());
        let index = self.index.iter().flat_map(|index| index.movable());
        head.chain(self.slots.movable()).chain(index).collect()
    }

    /// Moves an extent down, if it is ours and there is room; says whether it did. The move stays.
    pub(crate) fn sink(&mut self, arena: &mut Arena, extent: Extent) -> bool {
        if arena.prepare(0).is_err() {
            return false;
        }
        let head = self.stored.as_mut();
        let is_moved = match head.filter(|stored| stored.extent() == extent) {
            Some(stored) => stored.sink(arena),
            None => {
                self.slots.sink(arena, extent)
                    || self
                        .index
                        .as_mut()
                        .is_some_and(|index| index.sink(arena, extent))
            }
        };
        if is_moved {
            self.end_scope(arena);
        }
        is_moved
    }
}
