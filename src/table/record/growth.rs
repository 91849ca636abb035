//! More fields and indexes for records that are there.

use std::sync::Arc;

use super::image::{Image, hash_of};
use super::part::{RecordPart, RecordShape, over};
use super::secondary::{Over, Secondary};
use crate::arena::Arena;
use crate::error::{ArenaFull, Error};
use crate::index::Probe;

impl RecordPart {
    /// Adds an index, the last one of `shape`, which has no records yet: see [`build`](Self::build).
    pub(crate) fn add_index(
        &mut self,
        arena: &mut Arena,
        shape: Arc<RecordShape>,
    ) -> Result<(), ArenaFull> {
        arena.prepare(0)?;
        let before = std::mem::replace(&mut self.shape, shape);
        let records = self.len();
        match Secondary::new(arena, self.index_name(self.indexes.len()), records) {
            Ok(index) => self.indexes.push(Secondary { built: 0, ..index }),
            Err(full) => {
                self.shape = before;
                return Err(full);
            }
        }
        Ok(())
    }

    /// Enters the records of so many more slots into the index that was added last; says how many slots
    /// are left. Others may change records between two calls.
    pub(crate) fn build(&mut self, arena: &mut Arena, slots: u32) -> Result<u32, Error> {
        let Some(index) = self.indexes.len().checked_sub(1) else {
            return Ok(0);
        };
        let end = self.slots.next();
        let from = self.indexes[index].built.min(end);
        let to = from.saturating_add(slots).min(end);
        for slot in from..to {
            arena.prepare(0)?;
            let place = self.slots.place(slot);
            let row = self.values(arena, place);
            let probe = Probe::of_hash(hash_of(&self.shape.shape.key, &row));
            // Also one that is reserved for a transaction, which will not enter it any more.
            if self.key.refers(probe, slot) {
                let over = over!(self, index);
                let name = &self.shape.shape.index_kinds[index].0;
                let row = self.slots.cells(crate::table::Dynamic(over.cells), place);
                let row = super::part::RowValues::new(row, arena.view());
                let new = &mut self.indexes[index];
                new.check_values(name, over.spots, &row)?;
                new.make_room(arena, over, slot, &row)?;
                new.built = slot + 1;
                new.enter(arena, over, place);
            }
            self.indexes[index].built = slot + 1;
            if arena.is_scope_long() {
                self.end_scope(arena);
            }
        }
        if to == end {
            self.indexes[index].built = u32::MAX;
        }
        self.end_scope(arena);
        Ok(end - to)
    }

    /// Indexes beside the key's.
    pub(crate) fn indexes(&self) -> usize {
        self.indexes.len()
    }

    /// Drops an index; `shape` is without it.
    pub(crate) fn drop_index(&mut self, arena: &mut Arena, index: usize, shape: Arc<RecordShape>) {
        let index = self.indexes.remove(index);
        self.shape = shape;
        index.release(arena);
        self.end_scope(arena);
    }

    /// Copies all records into another part, whose records have more fields: those of `template`.
    pub(crate) fn copy_into(
        &self,
        arena: &mut Arena,
        other: &mut Self,
        template: &[u64],
    ) -> Result<(), Error> {
        let (template, _) = Image::split(template).ok_or(Error::KeyShape)?;
        let (mut old, mut new) = (Vec::new(), Vec::new());
        for place in self.scan(0..u32::MAX) {
            old.clear();
            new.clear();
            super::write_row(self.shape(), &self.values(arena, place), &mut old);
            let (image, _) = Image::split(&old).ok_or(Error::KeyShape)?;
            image.extend(self.shape(), &template, other.shape(), &mut new);
            let (image, _) = Image::split(&new).ok_or(Error::KeyShape)?;
            other.insert(arena, &image, &mut crate::table::Single)?;
        }
        other.end_scope(arena);
        Ok(())
    }
}
