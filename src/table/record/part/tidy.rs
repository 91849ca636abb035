//! Bringing a part of a table of records together: texts out of chunks that are mostly free, indexes
//! into fewer buckets, extents to lower offsets. The pages of ordered indexes stay where they are.
//!
//! Nobody may hold the place of a text meanwhile, as a transaction does that is prepared.

use super::{Over, RecordPart, RowValues, Secondary};
use crate::arena::{Arena, Extent};
use crate::table::record::text::Movable;

/// Before-images that one move may need: a block, heads, and a cell.
const MOVE_BYTES: usize = 40 << 10;

/// What looking at a text that stays costs, in bytes moved.
const LOOK_BYTES: usize = 64;

impl RecordPart {
    /// Whether so much of the texts' memory is free that they should be moved.
    #[inline]
    pub(crate) fn is_sparse(&self) -> bool {
        self.texts.is_sparse()
    }

    /// Moves texts of at most about so many bytes out of chunks that are mostly free; says how many
    /// bytes it was. Each move stays, whatever happens afterwards.
    pub(crate) fn tidy(&mut self, arena: &mut Arena, bytes: usize) -> usize {
        self.texts.look_around(arena);
        let mut moved = 0;
        while moved < bytes && arena.prepare(MOVE_BYTES).is_ok() {
            let Some(text) = self.texts.next_movable(arena) else {
                break;
            };
            moved += LOOK_BYTES;
            if self.named(text.owner) != Some((text.place, text.length)) {
                continue;
            }
            let Some(place) = self.texts.copy(arena, text) else {
                self.texts.end_victim();
                continue;
            };
            self.rename(arena, text, place);
            self.texts.remove(arena, text.place);
            moved += text.length;
            if arena.is_scope_long() {
                self.end_scope(arena);
            }
        }
        self.end_scope(arena);
        moved
    }

    /// Tells the row of a text where it is now.
    fn rename(&mut self, arena: &mut Arena, text: Movable, place: u64) {
        if let Some(row) = self.slots.find_slot(text.owner.slot) {
            let cell = usize::from(text.owner.cell);
            self.slots.set_cell(arena, row, cell, place);
        }
    }

    /// Plans to bring all texts together, which [`tidy`](Self::tidy) then does.
    pub(crate) fn plan_all(&mut self, arena: &Arena) {
        self.texts.plan_all(arena);
    }

    /// Gives back what indexes and the list of free slots have no use for.
    pub(crate) fn shrink(&mut self, arena: &mut Arena) {
        self.slots.shrink(arena);
        let shape = std::sync::Arc::clone(&self.shape);
        let over = |spots| Over {
            slots: &self.slots,
            spots,
            cells: shape.shape.cells,
        };
        let key = over(&shape.shape.key);
        self.key
            .shrink(arena, &key.keys(arena, None::<&RowValues<'_>>));
        for (spots, index) in shape.shape.indexes.iter().zip(&mut self.indexes) {
            index.shrink(arena, over(spots));
        }
        self.end_scope(arena);
    }

    /// The extents that may move.
    pub(crate) fn movable(&self) -> Vec<Extent> {
        let head = self.stored.iter().map(|stored| stored.extent());
        let indexes = self.indexes.iter();
        let indexes = indexes.flat_map(Secondary::movable);
        head.chain(self.slots.movable())
            .chain(self.texts.movable())
            .chain(self.key.movable())
            .chain(indexes)
            .collect()
    }

    /// Moves an extent down, if it is ours and there is room; says whether it did. The move stays.
    pub(crate) fn sink(&mut self, arena: &mut Arena, extent: Extent) -> bool {
        // A chunk of the smallest blocks has some two thousand, with a cell for each.
        if arena.prepare(2 * MOVE_BYTES).is_err() {
            return false;
        }
        let is_moved = self.sink_any(arena, extent);
        if is_moved {
            self.end_scope(arena);
        }
        is_moved
    }

    fn sink_any(&mut self, arena: &mut Arena, extent: Extent) -> bool {
        if let Some(stored) = &mut self.stored
            && stored.extent() == extent
        {
            return stored.sink(arena);
        }
        if let Some((texts, distance)) = self.texts.sink(arena, extent) {
            for text in texts {
                if self.named(text.owner) == Some((text.place, text.length)) {
                    self.rename(arena, text, text.place - distance);
                }
            }
            return true;
        }
        self.slots.sink(arena, extent)
            || self.key.sink(arena, extent)
            || self
                .indexes
                .iter_mut()
                .any(|index| index.sink(arena, extent))
    }
}
