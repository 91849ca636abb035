//! The rows of one table in one shard: insert, find, change, remove.
//!
//! # Parts
//! [`slots`] places rows, the index finds keys, [`block`] is the form in which operations arrive,
//! and [`execute`] runs many of them with their memory asked for in time. What a program sees of a
//! table is in [`schema`] (its shape) and [`row`] (its rows).
//!
//! # Changes
//! Every change checks first and writes after, so one operation needs no undo. A transaction of
//! several passes [`BeforeImages`], which is told what was there before each change; freed slots
//! then wait until it commits. A table does not know what the images are for: rolling back, or a
//! journal.

#[cfg(test)]
mod audit;
mod batch;
mod block;
mod check;
mod execute;
mod free;
mod global;
mod handle;
mod record;
mod row;
mod schema;
mod slots;
mod stored;
mod tidy;
mod width;

#[cfg(test)]
mod test;
#[cfg(test)]
pub(crate) mod watch;

pub(crate) use batch::BatchOperations;
pub use batch::{Batch, Outcome};
pub(crate) use block::{Block, Code, Verb, Verbs};
pub(crate) use check::{LeftOut, salvage_rows};
use execute::Windows;
pub(crate) use execute::{Means, Rolling, RowPart};
pub use global::{Data, Globals, Routing};
pub(crate) use global::{
    Direction, GlobalLog, GlobalPart, Span, Strings, key_hash, salvage_globals, siblings,
};
pub use handle::Table;
pub(crate) use record::{
    Codec, Entries, Image, IndexPlace, KeySpan, RecordPart, RecordShape, Shape, Values, are_equal,
    hash_of, salvage_records, write_row, write_wanted,
};
pub use record::{
    Field, FieldKind, FieldReader, FieldWriter, FromField, IndexKind, IndexSchema, Key, KeyBounds,
    Record, RecordSchema, Records, ToField, Value,
};
pub use row::{Cell, Row};
pub(crate) use schema::check_name;
pub use schema::{Column, Kind, Schema, Timestamp};
use slots::Slots;
pub(crate) use slots::{Place, slot_at};
pub(crate) use stored::PartName;
use stored::Stored;
pub use width::{Dynamic, Fixed, Width};

use crate::arena::Arena;
use crate::error::{ArenaFull, Error};
use crate::id::{DirectId, RowId, ShardIndex};
use crate::index::{HashIndex, Hint, Keys, Probe};
use crate::tree::TreeSpace;

/// Is told what was there before a change.
pub(crate) trait BeforeImages {
    /// Whether slots of deleted rows stay reserved until the transaction ends.
    const HOLDS_SLOTS: bool;
    /// Whether each operation is a transaction of its own, so that a scope may end between two.
    const IS_ALONE: bool;
    fn inserted(&mut self, slot: u32);
    fn updating(&mut self, slot: u32, header: u64, cells: &[u64]);
    fn deleted(&mut self, slot: u32, header: u64);
    /// A text was replaced, and lies where it lay until the transaction commits.
    fn retired(&mut self, text: u64) {
        let _ = text;
    }
}

/// Nothing to remember: the operation is a transaction of its own.
pub(crate) struct Single;

impl BeforeImages for Single {
    const HOLDS_SLOTS: bool = false;
    const IS_ALONE: bool = true;
    #[inline(always)]
    fn inserted(&mut self, _slot: u32) {}
    #[inline(always)]
    fn updating(&mut self, _slot: u32, _header: u64, _cells: &[u64]) {}
    #[inline(always)]
    fn deleted(&mut self, _slot: u32, _header: u64) {}
}

/// Nothing to remember: the operation is one of several that were decided, or are undone, together.
pub(crate) struct Together;

impl BeforeImages for Together {
    const HOLDS_SLOTS: bool = false;
    const IS_ALONE: bool = false;
    #[inline(always)]
    fn inserted(&mut self, _slot: u32) {}
    #[inline(always)]
    fn updating(&mut self, _slot: u32, _header: u64, _cells: &[u64]) {}
    #[inline(always)]
    fn deleted(&mut self, _slot: u32, _header: u64) {}
}

/// What the memory of a part of a table is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartSpace {
    pub(crate) rows: u64,
    /// Of slabs and the stack of free slots.
    pub(crate) row_bytes: u64,
    /// Of texts that do not fit their rows.
    pub(crate) text_bytes: u64,
    pub(crate) index_bytes: u64,
    /// Of globals: how they lie in their pages.
    pub(crate) tree: Option<TreeSpace>,
}

/// A shard's part of a table.
pub(crate) struct TablePart {
    stored: Option<Stored>,
    slots: Slots,
    index: Option<HashIndex>,
    columns: usize,
    windows: Windows,
}

impl Keys for Slots {
    #[inline(always)]
    fn is(&self, slot: u32, key: u64) -> bool {
        self.has_slot(slot) && self.key(self.place(slot)) == key
    }

    #[inline]
    fn probe(&self, slot: u32) -> Option<Probe> {
        self.has_slot(slot)
            .then(|| Probe::new(self.key(self.place(slot))))
    }

    #[inline(always)]
    fn prefetch(&self, slot: u32) {
        self.prefetch_head(slot);
    }
}

/// What a conditional update found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// The condition held; the row was changed.
    Updated,
    /// A column had another value; nothing changed.
    Differs,
    /// There is no such row.
    NotFound,
}

impl TablePart {
    /// An empty table, its index sized for `rows_expected` in this shard.
    pub(crate) fn new(
        arena: &mut Arena,
        name: PartName,
        shard: ShardIndex,
        columns: usize,
        keyed: bool,
        rows_expected: u64,
    ) -> Result<Self, ArenaFull> {
        arena.prepare(0)?;
        let mut part = Self {
            stored: Stored::new(arena, name)?,
            slots: Slots::new(name, shard, columns, keyed),
            index: None,
            columns,
            windows: Windows::default(),
        };
        if keyed {
            match HashIndex::new(arena, name.serial, rows_expected) {
                Ok(index) => part.index = Some(index),
                Err(full) => {
                    part.release(arena);
                    return Err(full);
                }
            }
        }
        part.save(arena);
        Ok(part)
    }

    /// Gives all memory back.
    pub(crate) fn release(self, arena: &mut Arena) {
        if let Some(stored) = self.stored {
            stored.release(arena);
        }
        self.slots.release(arena);
        if let Some(mut index) = self.index {
            index.release(arena);
        }
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// The number that the table has in its database.
    pub(crate) fn serial(&self) -> u32 {
        self.slots.owner()
    }

    pub(crate) fn is_keyed(&self) -> bool {
        self.index.is_some()
    }

    /// Rows.
    pub(crate) fn len(&self) -> u64 {
        self.slots.live()
    }

    /// What the part's memory is used for.
    pub(crate) fn space(&self) -> PartSpace {
        PartSpace {
            rows: self.slots.live(),
            row_bytes: self.slots.bytes(),
            text_bytes: 0,
            index_bytes: self.index.as_ref().map_or(0, HashIndex::bytes),
            tree: None,
        }
    }

    /// The row that an id names.
    #[inline(always)]
    pub(crate) fn find<I: RowId>(&self, id: I) -> Option<Place> {
        if I::KEYED {
            self.find_key(id.raw())
        } else {
            self.slots.find(DirectId::from_u64(id.raw()))
        }
    }

    #[inline]
    fn find_key(&self, key: u64) -> Option<Place> {
        // The index names no slot that was never used: it has compared the key.
        let slot = self.index.as_ref()?.find(Probe::new(key), &self.slots)?;
        // A row that is reserved for a transaction is in the index, and not there yet.
        self.slots.find_slot(slot)
    }

    #[inline(always)]
    pub(crate) fn id(&self, place: Place) -> DirectId {
        self.slots.id(place)
    }

    #[inline(always)]
    pub(crate) fn cells<W: Width>(&self, width: W, place: Place) -> &[u64] {
        self.slots.cells(width, place)
    }

    /// Bytes that the change of one row may need before-images of.
    pub(crate) fn row_bytes(&self) -> usize {
        self.slots.stride()
    }

    /// Begins an operation: what was done before it stays, if nothing binds the two, before there is
    /// too much to undo.
    #[inline(always)]
    fn begin<B: BeforeImages>(&mut self, arena: &mut Arena) {
        if B::IS_ALONE && arena.is_scope_long() {
            self.end_scope(arena);
        }
    }

    /// Adds a row whose cells `fill` writes; `key` is there exactly for keyed tables. If `fill`
    /// unwinds, there is no row; its slot is lost until the table is dropped.
    #[inline(always)]
    pub(crate) fn insert<W: Width, B: BeforeImages>(
        &mut self,
        arena: &mut Arena,
        width: W,
        key: Option<u64>,
        images: &mut B,
        fill: impl FnOnce(&mut [u64]),
    ) -> Result<Place, Error> {
        self.begin::<B>(arena);
        arena.prepare(self.slots.stride())?;
        let place = match (key, &mut self.index) {
            (None, None) => {
                let place = self.slots.reserve(arena)?;
                fill(self.slots.cells_mut(width, place));
                place
            }
            (Some(key), Some(index)) => {
                let probe = Probe::new(key);
                let Err(vacancy) = index.seek(probe, &self.slots) else {
                    return Err(Error::Duplicate { key });
                };
                let place = self.slots.reserve(arena)?;
                let slot = place.slot();
                fill(self.slots.cells_mut(width, place));
                if let Err(full) = index.insert(arena, probe, vacancy, slot, &self.slots) {
                    self.slots.give_back(arena, place);
                    return Err(full.into());
                }
                place
            }
            (Some(_), None) => return Err(Error::NotKeyed),
            (None, Some(_)) => return Err(Error::KeyNeeded),
        };
        self.slots.enliven(place, key);
        images.inserted(place.slot());
        #[cfg(test)]
        self.note(place, true);
        Ok(place)
    }

    /// Changes a row in place.
    #[inline(always)]
    pub(crate) fn update<W: Width, B: BeforeImages>(
        &mut self,
        arena: &mut Arena,
        width: W,
        place: Place,
        images: &mut B,
        change: impl FnOnce(&mut [u64]),
    ) {
        self.begin::<B>(arena);
        self.slots.before_row(arena, place);
        images.updating(
            place.slot(),
            self.slots.header(place),
            self.slots.cells(width, place),
        );
        self.slots.touch(place);
        change(self.slots.cells_mut(width, place));
        #[cfg(test)]
        self.note(place, true);
    }

    /// Removes a row.
    #[inline(always)]
    pub(crate) fn delete<B: BeforeImages>(
        &mut self,
        arena: &mut Arena,
        place: Place,
        images: &mut B,
    ) {
        self.begin::<B>(arena);
        if let Some(index) = &mut self.index {
            let probe = Probe::new(self.slots.key(place));
            let removed = index.remove(arena, probe, place.slot());
            debug_assert!(removed, "every living row of a keyed table is in its index");
        }
        images.deleted(place.slot(), self.slots.header(place));
        #[cfg(test)]
        self.note(place, false);
        self.slots.kill(arena, place);
        if !B::HOLDS_SLOTS {
            self.slots.give_back(arena, place);
        }
    }

    /// Undoes an insert.
    pub(crate) fn undo_insert(&mut self, arena: &mut Arena, slot: u32) {
        self.delete(arena, self.slots.place(slot), &mut Together);
    }

    /// Undoes an update.
    pub(crate) fn undo_update(&mut self, arena: &mut Arena, slot: u32, header: u64, cells: &[u64]) {
        let place = self.slots.place(slot);
        self.slots.before_row(arena, place);
        self.slots.restore(place, header);
        self.slots
            .cells_mut(Dynamic(self.columns), place)
            .copy_from_slice(cells);
        #[cfg(test)]
        self.note(place, true);
    }

    /// Undoes a delete whose slot was held. The index has room: it held this key before.
    pub(crate) fn undo_delete(
        &mut self,
        arena: &mut Arena,
        slot: u32,
        header: u64,
    ) -> Result<(), ArenaFull> {
        let place = self.slots.place(slot);
        if let Some(index) = &mut self.index {
            let probe = Probe::new(self.slots.key(place));
            if let Err(vacancy) = index.seek(probe, &self.slots) {
                index.insert(arena, probe, vacancy, slot, &self.slots)?;
            }
        }
        self.slots.revive(arena, place, header);
        #[cfg(test)]
        self.note(place, true);
        Ok(())
    }

    /// What tells whether a row is still the one it was, unchanged: its slot and header.
    pub(crate) fn version(&self, place: Place) -> (u32, u64) {
        (place.slot(), self.slots.header(place))
    }

    /// The place of a slot that was used before.
    pub(crate) fn place(&self, slot: u32) -> Place {
        self.slots.place(slot)
    }

    pub(crate) fn is_live(&self, place: Place) -> bool {
        self.slots.is_live(place)
    }

    /// The number by which a row is known in this shard, whichever way it was found: its key, or in
    /// tables without keys its slot.
    pub(crate) fn row_number(&self, id: DirectId) -> Option<u64> {
        match self.index {
            Some(_) => Some(self.number(self.slots.find(id)?)),
            // A row that is not there yet has its number already.
            None => self.slots.slot_of(id).map(u64::from),
        }
    }

    /// The number of the row at a place.
    pub(crate) fn number(&self, place: Place) -> u64 {
        match self.index {
            Some(_) => self.slots.key(place),
            None => u64::from(place.slot()),
        }
    }

    /// Reserves all that a new row needs, and writes it, but nobody finds it before
    /// [`confirm_row`](Self::confirm_row), which cannot fail.
    pub(crate) fn reserve_row(
        &mut self,
        arena: &mut Arena,
        key: Option<u64>,
        cells: &[u64],
    ) -> Result<Place, Error> {
        // It may be taken back before the scope ends.
        arena.prepare_undoable(self.slots.stride())?;
        let place = match (key, &mut self.index) {
            (None, None) => self.slots.reserve(arena)?,
            (Some(key), Some(index)) => {
                let probe = Probe::new(key);
                let Err(vacancy) = index.seek(probe, &self.slots) else {
                    return Err(Error::Duplicate { key });
                };
                let place = self.slots.reserve(arena)?;
                self.slots.set_key(place, key);
                let slot = place.slot();
                if let Err(full) = index.insert(arena, probe, vacancy, slot, &self.slots) {
                    self.slots.give_back(arena, place);
                    return Err(full.into());
                }
                place
            }
            (Some(_), None) => return Err(Error::NotKeyed),
            (None, Some(_)) => return Err(Error::KeyNeeded),
        };
        self.slots
            .cells_mut(Dynamic(self.columns), place)
            .copy_from_slice(cells);
        Ok(place)
    }

    /// Makes a reserved row a living one.
    pub(crate) fn confirm_row(&mut self, arena: &mut Arena, place: Place) {
        self.slots.confirm(arena, place);
        #[cfg(test)]
        self.note(place, true);
    }

    /// Takes a reservation back.
    pub(crate) fn cancel_row(&mut self, arena: &mut Arena, place: Place) {
        if let Some(index) = &mut self.index {
            let probe = Probe::new(self.slots.key(place));
            let removed = index.remove(arena, probe, place.slot());
            debug_assert!(
                removed,
                "every reserved row of a keyed table is in its index"
            );
        }
        self.slots.cancel(arena, place);
    }

    /// Reserves a place for a row of a table without keys, which will have this id.
    pub(crate) fn reserve_place(&mut self, arena: &mut Arena) -> Result<DirectId, Error> {
        if self.index.is_some() {
            return Err(Error::KeyNeeded);
        }
        arena.prepare(self.slots.stride())?;
        let place = self.slots.reserve(arena)?;
        Ok(self.slots.id(place))
    }

    /// Writes a row at a place that was reserved for it.
    pub(crate) fn fill_reserved(
        &mut self,
        arena: &mut Arena,
        id: DirectId,
        cells: &[u64],
    ) -> Result<Place, Error> {
        let place = self.slots.find_reserved(id).ok_or(Error::TableGone)?;
        arena.prepare_undoable(self.slots.stride())?;
        self.slots.before_row(arena, place);
        self.slots
            .cells_mut(Dynamic(self.columns), place)
            .copy_from_slice(cells);
        Ok(place)
    }

    /// Whether a place is reserved for a row that is not there yet.
    pub(crate) fn is_reserved(&self, id: DirectId) -> bool {
        self.slots.find_reserved(id).is_some()
    }

    /// The place that is reserved for a row that is not there yet.
    pub(crate) fn find_reserved(&self, id: DirectId) -> Option<Place> {
        self.slots.find_reserved(id)
    }

    /// Takes back a reservation that a crash has left, unless its row's key is gone from the index.
    pub(crate) fn cancel_reserved(&mut self, arena: &mut Arena, place: Place) {
        if let Some(index) = &mut self.index {
            let probe = Probe::new(self.slots.key(place));
            if !index.remove(arena, probe, place.slot()) {
                return;
            }
        }
        self.slots.cancel(arena, place);
    }

    /// Gives back a place that was reserved.
    pub(crate) fn cancel_place(&mut self, arena: &mut Arena, id: DirectId) {
        if let Some(place) = self.slots.find_reserved(id) {
            self.slots.cancel(arena, place);
        }
    }

    /// Lets later inserts have the slot of a row deleted by a transaction that commits.
    pub(crate) fn free_slot(&mut self, arena: &mut Arena, slot: u32) {
        self.slots.give_back(arena, self.slots.place(slot));
    }

    /// Slots ever used: the end of a scan.
    pub(crate) fn slots_end(&self) -> u32 {
        self.slots.next()
    }

    /// The living rows in a range of slots, in slot order.
    pub(crate) fn scan(&self, slots: std::ops::Range<u32>) -> impl Iterator<Item = Place> {
        (slots.start..slots.end.min(self.slots.next()))
            .filter_map(|slot| self.slots.find_slot(slot))
    }

    /// Tells a test that watches what has become of a row.
    #[cfg(test)]
    fn note(&self, place: Place, is_there: bool) {
        let cells = self.cells(Dynamic(self.columns), place).try_into();
        let row = watch::RowName {
            is_keyed: self.is_keyed(),
            number: if self.is_keyed() {
                self.slots.key(place)
            } else {
                self.id(place).to_u64()
            },
        };
        if let Ok(cells) = cells {
            let id = self.id(place).to_u64();
            watch::note(watch::What::Row(row, is_there.then_some(cells), id));
        }
    }
}
