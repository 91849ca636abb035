//! More fields and indexes for records that are there.

use std::sync::Arc;

use super::image::{Image, hash_of};
use super::links::Links;
use super::part::{ByFields, RecordPart, RecordShape, Secondary, by_fields};
use crate::arena::Arena;
use crate::error::{ArenaFull, Error};
use crate::index::{HashIndex, Probe};

impl RecordPart {
    /// Adds an index, the last one of `shape`, which has no records yet: see [`build`](Self::build).
    pub(crate) fn add_index(
        &mut self,
        arena: &mut Arena,
        shape: Arc<RecordShape>,
    ) -> Result<(), ArenaFull> {
        arena.prepare(0)?;
        let serial = shape.index_serials.last().copied().unwrap_or_default();
        let hash = HashIndex::new(arena, serial, self.len())?;
        let links = Links::new(serial, self.slots.slab_shift());
        self.indexes.push(Secondary {
            hash,
            links,
            built: 0,
        });
        self.shape = shape;
        Ok(())
    }

    /// Enters the records of so many more slots into the index that was added last; says how many slots
    /// are left. Others may change records between two calls.
    pub(crate) fn build(&mut self, arena: &mut Arena, slots: u32) -> Result<u32, ArenaFull> {
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
                let spots = &self.shape.shape.indexes[index];
                let probe = Probe::of_hash(hash_of(spots, &row));
                let keys = by_fields!(self, arena, spots, None::<&Image<'_>>);
                let Secondary { hash, links, .. } = &mut self.indexes[index];
                hash.make_room(arena, probe, &keys)?;
                links.reach(arena, slot)?;
                self.indexes[index].built = slot + 1;
                self.enter_index(arena, index, place);
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
        let Secondary {
            mut hash, links, ..
        } = self.indexes.remove(index);
        self.shape = shape;
        hash.release(arena);
        links.release(arena);
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
