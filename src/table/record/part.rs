//! The records of one table in one shard: opened, found, told of.
//!
//! # Transactions
//! [`BeforeImages`](crate::table::BeforeImages) are told what was there before; texts that a transaction
//! replaces or removes stay where they are until it commits, so that undoing only puts their places
//! back.

mod check;
mod range;
mod tidy;

use std::sync::Arc;

use super::image::{TextCell, Values, are_equal, hash_of};
use super::secondary::{IndexName, Over, Secondary};
use super::shape::{Shape, Spot};
use super::text::Texts;
use super::watch::Watch;
use crate::arena::{Arena, Entry, ExtentKind, View};
use crate::error::{ArenaFull, Error};
use crate::id::{DirectId, ShardIndex};
use crate::index::{HashIndex, Keys, Probe};
use crate::table::slots::Slots;
use crate::table::stored::{Stored, of_kind};
use crate::table::{Dynamic, PartName, PartSpace, Place};
pub(crate) use check::salvage_records;

/// A shard's part of a table of records.
pub(crate) struct RecordPart {
    stored: Option<Stored>,
    pub(super) slots: Slots,
    pub(super) texts: Texts,
    pub(super) shape: Arc<RecordShape>,
    pub(super) key: HashIndex,
    pub(super) indexes: Vec<Secondary>,
    /// The cells of the row at hand.
    pub(super) cells: Vec<u64>,
    /// Who wants to know which records change.
    pub(super) watch: Option<Box<Watch>>,
}

/// A table of records, as its shards are told of it.
#[derive(Debug)]
pub(crate) struct RecordShape {
    pub(crate) shape: Shape,
    /// The number of each index in its database.
    pub(crate) index_serials: Vec<u32>,
}

/// The values of a row.
#[derive(Clone, Copy)]
pub(crate) struct RowValues<'a> {
    cells: &'a [u64],
    view: View,
}

impl<'a> RowValues<'a> {
    pub(super) fn new(cells: &'a [u64], view: View) -> Self {
        Self { cells, view }
    }
}

impl Values for RowValues<'_> {
    #[inline]
    fn cell(&self, cell: usize) -> u64 {
        self.cells[cell]
    }

    #[inline]
    fn with_text<T>(&self, cell: usize, look: impl FnOnce(&[u8]) -> T) -> T {
        match TextCell::read([self.cells[cell], self.cells[cell + 1]]) {
            TextCell::Short { bytes, length } => look(&bytes[..length]),
            TextCell::Long { place, length, .. } => self.view.with(place, length, look),
        }
    }

    #[inline]
    fn try_text<T>(&self, cell: usize, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let cell = TextCell::read([self.cells[cell], self.cells[cell + 1]]);
        match cell {
            TextCell::Short { bytes, length } => Some(look(&bytes[..length])),
            TextCell::Long { place, length, .. } => self
                .view
                .with(place, length, |text| cell.names(text).then(|| look(text))),
        }
    }
}

/// The rows of a table by some of their fields; what is looked for, if anything is.
pub(super) struct ByFields<'a, V> {
    pub(super) slots: &'a Slots,
    pub(super) view: View,
    pub(super) spots: &'a [Spot],
    pub(super) cells: usize,
    pub(super) wanted: Option<&'a V>,
}

impl<V> ByFields<'_, V> {
    fn values(&self, slot: u32) -> Option<RowValues<'_>> {
        let place = self.slots.has_slot(slot).then(|| self.slots.place(slot))?;
        let cells = self.slots.cells(Dynamic(self.cells), place);
        Some(RowValues::new(cells, self.view))
    }
}

impl<V: Values> Keys for ByFields<'_, V> {
    #[inline]
    fn is(&self, slot: u32, _key: u64) -> bool {
        match (self.values(slot), self.wanted) {
            (Some(row), Some(wanted)) => are_equal(self.spots, &row, wanted),
            _ => false,
        }
    }

    #[inline]
    fn probe(&self, slot: u32) -> Option<Probe> {
        let row = self.values(slot)?;
        Some(Probe::of_hash(hash_of(self.spots, &row)))
    }

    #[inline]
    fn prefetch(&self, slot: u32) {
        self.slots.prefetch_head(slot);
    }
}

/// Rows by fields, as an index wants them.
macro_rules! by_fields {
    ($part:expr, $arena:expr, $spots:expr, $wanted:expr) => {
        ByFields {
            slots: &$part.slots,
            view: $arena.view(),
            spots: $spots,
            cells: $part.shape.shape.cells,
            wanted: $wanted,
        }
    };
}
pub(super) use by_fields;

/// What one of the part's indexes is over, while the index itself may change.
macro_rules! over {
    ($part:expr, $index:expr) => {
        Over {
            slots: &$part.slots,
            spots: &$part.shape.shape.indexes[$index],
            cells: $part.shape.shape.cells,
        }
    };
}
pub(super) use over;

impl RecordPart {
    /// No records yet.
    pub(crate) fn new(
        arena: &mut Arena,
        name: PartName,
        shard: ShardIndex,
        shape: Arc<RecordShape>,
        records_expected: u64,
    ) -> Result<Self, ArenaFull> {
        arena.prepare(0)?;
        let slots = Slots::new(name, shard, shape.shape.cells, false);
        let mut part = Self {
            stored: Stored::new(arena, name)?,
            key: HashIndex::new(arena, name.serial, records_expected)?,
            texts: Texts::new(name.serial),
            indexes: Vec::new(),
            cells: Vec::new(),
            watch: None,
            shape,
            slots,
        };
        for at in 0..part.shape.index_serials.len() {
            match Secondary::new(arena, part.index_name(at), records_expected) {
                Ok(index) => part.indexes.push(index),
                Err(full) => {
                    part.release(arena);
                    return Err(full);
                }
            }
        }
        part.save(arena);
        Ok(part)
    }

    /// The part that extents of an opened arena hold, or what is wrong with them.
    pub(crate) fn open(
        arena: &Arena,
        name: PartName,
        shard: ShardIndex,
        shape: Arc<RecordShape>,
        extents: &[Entry],
    ) -> Result<Self, String> {
        let (own, others): (Vec<Entry>, Vec<Entry>) = extents
            .iter()
            .partition(|entry| entry.use_.owner == name.serial);
        let cells = shape.shape.cells;
        let stored = Stored::open(arena, &own, [cells as u64, 2])?;
        let slots = Slots::new(name, shard, cells, false)
            .open(
                arena,
                stored.saved(),
                &of_kind(&own, ExtentKind::Slab),
                &of_kind(&own, ExtentKind::FreeSlots),
            )
            .ok_or("the slots of a table do not fit its extents")?;
        let key = HashIndex::open(arena, name.serial, &of_kind(&own, ExtentKind::Segment));
        let key = key.ok_or("the index of a table does not fit its extents")?;
        let texts = Texts::open(name.serial, &of_kind(&own, ExtentKind::Text));
        let texts = texts.ok_or("the texts of a table do not fit its extents")?;
        let mut part = Self {
            stored: Some(stored),
            slots,
            texts,
            shape,
            key,
            indexes: Vec::new(),
            cells: Vec::new(),
            watch: None,
        };
        for index in 0..part.shape.index_serials.len() {
            let name = part.index_name(index);
            let of_index: Vec<Entry> = others
                .iter()
                .copied()
                .filter(|entry| entry.use_.owner == name.serial)
                .collect();
            let index = Secondary::open(arena, name, &of_index)?;
            part.indexes.push(index);
        }
        Ok(part)
    }

    /// By what names an index goes.
    pub(super) fn index_name(&self, index: usize) -> IndexName {
        IndexName {
            kind: self.shape.shape.index_kinds[index].1,
            serial: self.shape.index_serials[index],
            shard: self.slots.shard(),
            slab_shift: self.slots.slab_shift(),
        }
    }

    /// Gives all memory back.
    pub(crate) fn release(mut self, arena: &mut Arena) {
        if let Some(stored) = self.stored {
            stored.release(arena);
        }
        self.key.release(arena);
        for index in self.indexes {
            index.release(arena);
        }
        self.texts.release(arena);
        self.slots.release(arena);
    }

    /// Brings the head up to date.
    pub(crate) fn save(&mut self, arena: &mut Arena) {
        if let Some(stored) = &mut self.stored {
            let shape = [self.shape.shape.cells as u64, 2];
            stored.save(arena, self.slots.saved(), shape);
        }
    }

    /// Ends a scope in which no other part was changed.
    #[inline]
    pub(crate) fn end_scope(&mut self, arena: &mut Arena) {
        if arena.is_logged() {
            self.save(arena);
            arena.end_scope();
        }
    }

    pub(crate) fn serial(&self) -> u32 {
        self.slots.owner()
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape.shape
    }

    /// Records.
    pub(crate) fn len(&self) -> u64 {
        self.slots.live()
    }

    /// What the part's memory is used for.
    pub(crate) fn space(&self, arena: &Arena) -> PartSpace {
        let indexes = self.indexes.iter();
        let indexes: u64 = indexes.map(|index| index.bytes(arena)).sum();
        PartSpace {
            rows: self.slots.live(),
            row_bytes: self.slots.bytes(),
            text_bytes: self.texts.bytes(),
            index_bytes: self.key.bytes() + indexes,
            tree: None,
        }
    }

    /// The values of a record.
    pub(crate) fn values(&self, arena: &Arena, place: Place) -> RowValues<'_> {
        let cells = self.slots.cells(Dynamic(self.shape.shape.cells), place);
        RowValues::new(cells, arena.view())
    }

    /// The direct id of a record.
    pub(crate) fn id(&self, place: Place) -> DirectId {
        self.slots.id(place)
    }

    /// The record with this key.
    #[inline]
    pub(crate) fn find(&self, arena: &Arena, hash: u64, wanted: &impl Values) -> Option<Place> {
        let keys = by_fields!(self, arena, &self.shape.shape.key, Some(wanted));
        let slot = self.key.find(Probe::of_hash(hash), &keys)?;
        // A record that is reserved for a transaction is in the index, and not there yet.
        self.slots.find_slot(slot)
    }

    /// Starts reading what leads to a key, and, asked again `near` its use, to its record.
    #[inline]
    pub(crate) fn ask(&self, hash: u64, near: bool) {
        let hint = self.key.ask(Probe::of_hash(hash));
        if near && let Some(slot) = self.key.candidate(hint) {
            let width = Dynamic(self.shape.shape.cells);
            self.slots.ask(width, crate::table::RowPart::Whole, slot);
        }
    }

    /// The records that have these values of an index's fields.
    pub(crate) fn find_by<V: Values>(
        &self,
        arena: &Arena,
        index: usize,
        wanted: &V,
    ) -> Result<impl Iterator<Item = Place>, Error> {
        let found = self.indexes[index].find(arena, over!(self, index), wanted)?;
        Ok(found.into_iter().filter_map(|slot| self.living(slot)))
    }

    /// The record that lives in a slot that an index names.
    pub(super) fn living(&self, slot: u32) -> Option<Place> {
        let has_slot = self.slots.has_slot(slot);
        has_slot.then(|| self.slots.find_slot(slot))?
    }

    /// Whether changes are taken: not, when one has met damage in an index.
    pub(crate) fn check_sound(&self) -> Result<(), Error> {
        self.indexes.iter().try_for_each(Secondary::check_sound)
    }

    /// Slots ever used: the end of a scan.
    pub(crate) fn slots_end(&self) -> u32 {
        self.slots.next()
    }

    /// The records in a range of slots.
    pub(crate) fn scan(&self, slots: std::ops::Range<u32>) -> impl Iterator<Item = Place> {
        (slots.start..slots.end.min(self.slots.next()))
            .filter_map(|slot| self.slots.find_slot(slot))
    }
}
