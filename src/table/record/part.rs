//! The records of one table in one shard: find, insert, update, delete.
//!
//! # Order of a change
//! First what can fail: room in the indexes, the texts' memory, a slot. Then what cannot: cells, index
//! entries, the row's life. So an operation that returns an error has changed nothing.
//!
//! # Transactions
//! [`RecordImages`] is told what was there before; texts that a transaction replaces or removes stay
//! where they are until it commits, so that undoing only puts their places back.

use std::sync::Arc;

use super::image::{Image, TextCell, Values, are_equal, hash_of};
use super::links::{Left, Links};
use super::shape::{Shape, Spot};
use super::text::Texts;
use crate::arena::{Arena, Entry, ExtentKind, View};
use crate::error::{ArenaFull, Error};
use crate::id::{DirectId, ShardIndex};
use crate::index::{HashIndex, Keys, Probe};
use crate::table::slots::Slots;
use crate::table::stored::{Stored, of_kind};
use crate::table::{BeforeImages, Dynamic, PartName, Place};

/// A shard's part of a table of records.
pub(crate) struct RecordPart {
    stored: Option<Stored>,
    pub(super) slots: Slots,
    texts: Texts,
    shape: Arc<RecordShape>,
    key: HashIndex,
    indexes: Vec<Secondary>,
    /// The cells of the row at hand.
    cells: Vec<u64>,
}

/// A table of records, as its shards are told of it.
#[derive(Debug)]
pub(crate) struct RecordShape {
    pub(crate) shape: Shape,
    /// The number of each index in its database.
    pub(crate) index_serials: Vec<u32>,
}

/// An index beside the key's.
struct Secondary {
    hash: HashIndex,
    links: Links,
    /// Slots below this are in it; the others are not yet.
    built: u32,
}

impl Secondary {
    /// An index that has all records.
    fn whole(hash: HashIndex, links: Links) -> Self {
        Self {
            hash,
            links,
            built: u32::MAX,
        }
    }
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
            TextCell::Long { place, length } => self.view.with(place, length, look),
        }
    }
}

/// The rows of a table by some of their fields; what is looked for, if anything is.
struct ByFields<'a, V> {
    slots: &'a Slots,
    view: View,
    spots: &'a [Spot],
    cells: usize,
    wanted: Option<&'a V>,
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
            shape,
            slots,
        };
        for at in 0..part.shape.index_serials.len() {
            let serial = part.shape.index_serials[at];
            let made = HashIndex::new(arena, serial, records_expected);
            match made {
                Ok(hash) => {
                    let links = Links::new(serial, part.slots.slab_shift());
                    part.indexes.push(Secondary::whole(hash, links));
                }
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
        let mut indexes = Vec::new();
        for &serial in &shape.index_serials {
            let of_index: Vec<Entry> = others
                .iter()
                .copied()
                .filter(|entry| entry.use_.owner == serial)
                .collect();
            let segments = of_kind(&of_index, ExtentKind::Segment);
            let links = of_kind(&of_index, ExtentKind::Links);
            let hash = HashIndex::open(arena, serial, &segments);
            let links = Links::open(arena, serial, slots.slab_shift(), &links);
            let (hash, links) = hash.zip(links).ok_or("an index does not fit its extents")?;
            indexes.push(Secondary::whole(hash, links));
        }
        Ok(Self {
            stored: Some(stored),
            slots,
            texts,
            shape,
            key,
            indexes,
            cells: Vec::new(),
        })
    }

    /// Gives all memory back.
    pub(crate) fn release(mut self, arena: &mut Arena) {
        if let Some(stored) = self.stored {
            stored.release(arena);
        }
        self.key.release(arena);
        for mut index in self.indexes {
            index.hash.release(arena);
            index.links.release(arena);
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

    /// Bytes of rows and texts, and of indexes.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let indexes = self.indexes.iter();
        let indexes: u64 = indexes
            .map(|index| index.hash.bytes() + index.links.bytes())
            .sum();
        (
            self.slots.bytes() + self.texts.bytes(),
            self.key.bytes() + indexes,
        )
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

    /// The record that a direct id names.
    pub(crate) fn find_id(&self, id: DirectId) -> Option<Place> {
        self.slots.find(id)
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
    ) -> impl Iterator<Item = Place> {
        let spots = &self.shape.shape.indexes[index];
        let keys = by_fields!(self, arena, spots, Some(wanted));
        let probe = Probe::of_hash(hash_of(spots, wanted));
        let Secondary { hash, links, .. } = &self.indexes[index];
        let first = hash.find(probe, &keys);
        first
            .into_iter()
            .flat_map(|first| links.list(first))
            .filter(|&slot| self.slots.has_slot(slot))
            .filter_map(|slot| self.slots.find_slot(slot))
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

    /// Bytes that undoing the change of a record may need before-images of.
    pub(crate) fn record_bytes(&self) -> usize {
        let Shape { cells, texts, .. } = &self.shape.shape;
        2 * cells * 8 + (1 + texts.len() + self.indexes.len()) * 256
    }

    /// Bytes that before-images of a change may take, beside what every change may.
    fn change_bytes(&self, image: &Image<'_>) -> usize {
        self.slots.stride() + 2 * size_of_val(image.cells()) + (1 + self.indexes.len()) * 256
    }

    /// Adds a record; [`Error::DuplicateKey`] if there is one with its key.
    pub(crate) fn insert<B: BeforeImages>(
        &mut self,
        arena: &mut Arena,
        image: &Image<'_>,
        images: &mut B,
    ) -> Result<Place, Error> {
        self.begin::<B>(arena);
        arena.prepare(self.change_bytes(image))?;
        let hash = hash_of(&self.shape.shape.key, image);
        let probe = Probe::of_hash(hash);
        let keys = by_fields!(self, arena, &self.shape.shape.key, Some(image));
        if self.key.seek(probe, &keys).is_ok() {
            return Err(Error::DuplicateKey);
        }
        let place = self.slots.reserve(arena)?;
        if let Err(full) = self.make_ready(arena, probe, place, image) {
            self.slots.give_back(arena, place);
            return Err(full.into());
        }
        let width = Dynamic(self.shape.shape.cells);
        self.slots
            .cells_mut(width, place)
            .copy_from_slice(&self.cells);
        self.slots.enliven(place, None);
        self.enter(arena, probe, place);
        images.inserted(place.slot());
        Ok(place)
    }

    /// Gets all that an insert needs: room in the indexes, and the row's cells with its texts' places.
    fn make_ready(
        &mut self,
        arena: &mut Arena,
        probe: Probe,
        place: Place,
        image: &Image<'_>,
    ) -> Result<(), ArenaFull> {
        let keys = by_fields!(self, arena, &self.shape.shape.key, None::<&Image<'_>>);
        self.key.make_room(arena, probe, &keys)?;
        self.make_room(arena, place, image)?;
        self.take_texts(arena, image, None)
    }

    /// Room in every index for a record with these values.
    fn make_room(
        &mut self,
        arena: &mut Arena,
        place: Place,
        image: &Image<'_>,
    ) -> Result<(), ArenaFull> {
        for (at, spots) in self.shape.shape.indexes.iter().enumerate() {
            let probe = Probe::of_hash(hash_of(spots, image));
            let keys = by_fields!(self, arena, spots, None::<&Image<'_>>);
            let Secondary { hash, links, .. } = &mut self.indexes[at];
            hash.make_room(arena, probe, &keys)?;
            links.reach(arena, place.slot())?;
        }
        Ok(())
    }

    /// Fills `cells` with an image's, its texts copied into the arena, but for those that the row at
    /// `old` has already.
    fn take_texts(
        &mut self,
        arena: &mut Arena,
        image: &Image<'_>,
        old: Option<Place>,
    ) -> Result<(), ArenaFull> {
        let Shape { cells, texts, .. } = &self.shape.shape;
        self.cells.clear();
        self.cells.extend_from_slice(&image.cells()[..*cells]);
        for (at, &cell) in texts.iter().enumerate() {
            let TextCell::Long { length, .. } =
                TextCell::read([self.cells[cell], self.cells[cell + 1]])
            else {
                continue;
            };
            if let Some(old) = old {
                let row = self.slots.cells(Dynamic(*cells), old);
                let same = row[cell + 1] == self.cells[cell + 1]
                    && arena.view().with(row[cell], length, |old| {
                        image.with_text(cell, |new| old == new)
                    });
                if same {
                    self.cells[cell] = row[cell];
                    continue;
                }
            }
            match image.with_text(cell, |text| self.texts.add(arena, text)) {
                Ok(place) => self.cells[cell] = place,
                Err(full) => {
                    for &cell in &texts[..at] {
                        let kept = old.map(|old| self.slots.cells(Dynamic(*cells), old)[cell]);
                        let new = [self.cells[cell], self.cells[cell + 1]];
                        if let TextCell::Long { place, .. } = TextCell::read(new)
                            && kept != Some(place)
                        {
                            self.texts.remove(arena, place);
                        }
                    }
                    return Err(full);
                }
            }
        }
        Ok(())
    }

    /// Enters a record into all indexes, which have room.
    fn enter(&mut self, arena: &mut Arena, probe: Probe, place: Place) {
        self.enter_key(arena, probe, place);
        for index in 0..self.indexes.len() {
            self.enter_index(arena, index, place);
        }
    }

    fn enter_key(&mut self, arena: &mut Arena, probe: Probe, place: Place) {
        let cells = self.slots.cells(Dynamic(self.shape.shape.cells), place);
        let row = RowValues::new(cells, arena.view());
        let keys = by_fields!(self, arena, &self.shape.shape.key, Some(&row));
        if let Err(vacancy) = self.key.seek(probe, &keys) {
            let added = self.key.insert(arena, probe, vacancy, place.slot(), &keys);
            debug_assert!(added.is_ok(), "room was made before");
        }
    }

    fn enter_index(&mut self, arena: &mut Arena, index: usize, place: Place) {
        if place.slot() >= self.indexes[index].built {
            return;
        }
        let spots = &self.shape.shape.indexes[index];
        let cells = self.slots.cells(Dynamic(self.shape.shape.cells), place);
        let row = RowValues::new(cells, arena.view());
        let probe = Probe::of_hash(hash_of(spots, &row));
        let keys = by_fields!(self, arena, spots, Some(&row));
        let Secondary { hash, links, .. } = &mut self.indexes[index];
        match hash.seek(probe, &keys) {
            Ok(first) => links.join(arena, first, place.slot()),
            Err(vacancy) => {
                let added = hash.insert(arena, probe, vacancy, place.slot(), &keys);
                debug_assert!(added.is_ok(), "room was made before");
                links.begin(arena, place.slot());
            }
        }
    }

    fn leave_index(&mut self, arena: &mut Arena, index: usize, place: Place) {
        if place.slot() >= self.indexes[index].built {
            return;
        }
        let spots = &self.shape.shape.indexes[index];
        let cells = self.slots.cells(Dynamic(self.shape.shape.cells), place);
        let probe = Probe::of_hash(hash_of(spots, &RowValues::new(cells, arena.view())));
        let Secondary { hash, links, .. } = &mut self.indexes[index];
        match links.leave(arena, place.slot()) {
            Left::Other => {}
            Left::Last => {
                hash.remove(arena, probe, place.slot());
            }
            Left::First { next } => {
                hash.rename(arena, probe, place.slot(), next);
            }
        }
    }

    /// Replaces a record by another one with the same key.
    pub(crate) fn update<B: BeforeImages>(
        &mut self,
        arena: &mut Arena,
        place: Place,
        image: &Image<'_>,
        images: &mut B,
    ) -> Result<(), Error> {
        self.begin::<B>(arena);
        arena.prepare(self.change_bytes(image))?;
        if !are_equal(&self.shape.shape.key, &self.values(arena, place), image) {
            return Err(Error::KeyChanged);
        }
        self.make_room(arena, place, image)?;
        self.take_texts(arena, image, Some(place))?;
        let width = Dynamic(self.shape.shape.cells);
        let changed: Vec<usize> = (0..self.indexes.len())
            .filter(|&index| {
                let spots = &self.shape.shape.indexes[index];
                !are_equal(spots, &self.values(arena, place), image)
            })
            .collect();
        for &index in &changed {
            self.leave_index(arena, index, place);
        }
        self.slots.before_row(arena, place);
        let header = self.slots.header(place);
        images.updating(place.slot(), header, self.slots.cells(width, place));
        self.slots.touch(place);
        let gone = self.replace_cells(place);
        for &index in &changed {
            self.enter_index(arena, index, place);
        }
        for text in gone {
            if B::HOLDS_SLOTS {
                images.retired(text);
            } else {
                self.texts.remove(arena, text);
            }
        }
        Ok(())
    }

    /// Puts `cells` into a row; the places of texts that only the old cells have.
    fn replace_cells(&mut self, place: Place) -> Vec<u64> {
        let Shape { cells, texts, .. } = &self.shape.shape;
        let row = self.slots.cells_mut(Dynamic(*cells), place);
        let gone = texts
            .iter()
            .filter_map(|&cell| match TextCell::read([row[cell], row[cell + 1]]) {
                TextCell::Long { place, .. } => (self.cells[cell] != place).then_some(place),
                TextCell::Short { .. } => None,
            })
            .collect();
        row.copy_from_slice(&self.cells);
        gone
    }

    /// Removes a record.
    pub(crate) fn delete<B: BeforeImages>(
        &mut self,
        arena: &mut Arena,
        place: Place,
        images: &mut B,
    ) {
        self.begin::<B>(arena);
        let hash = hash_of(&self.shape.shape.key, &self.values(arena, place));
        self.key.remove(arena, Probe::of_hash(hash), place.slot());
        for index in 0..self.indexes.len() {
            self.leave_index(arena, index, place);
        }
        images.deleted(place.slot(), self.slots.header(place));
        self.slots.kill(arena, place);
        if !B::HOLDS_SLOTS {
            self.free(arena, place);
        }
    }

    /// Lets later inserts have the slot and the texts of a record that was removed.
    fn free(&mut self, arena: &mut Arena, place: Place) {
        self.free_texts(arena, place);
        self.slots.give_back(arena, place);
    }

    fn free_texts(&mut self, arena: &mut Arena, place: Place) {
        let row = self.slots.cells(Dynamic(self.shape.shape.cells), place);
        for &cell in &self.shape.shape.texts {
            if let TextCell::Long { place, .. } = TextCell::read([row[cell], row[cell + 1]]) {
                self.texts.remove(arena, place);
            }
        }
    }

    /// As above, once the transaction commits that has removed the record in a slot.
    pub(crate) fn free_slot(&mut self, arena: &mut Arena, slot: u32) {
        self.free(arena, self.slots.place(slot));
    }

    /// Lets others have the memory of a text that a transaction has replaced, once it commits.
    pub(crate) fn free_text(&mut self, arena: &mut Arena, place: u64) {
        self.texts.remove(arena, place);
    }

    /// Undoes an insert.
    pub(crate) fn undo_insert(&mut self, arena: &mut Arena, slot: u32) {
        self.delete(arena, self.slots.place(slot), &mut crate::table::Together);
    }

    /// Undoes an update.
    pub(crate) fn undo_update(&mut self, arena: &mut Arena, slot: u32, header: u64, cells: &[u64]) {
        let place = self.slots.place(slot);
        for index in 0..self.indexes.len() {
            self.leave_index(arena, index, place);
        }
        self.slots.before_row(arena, place);
        self.slots.restore(place, header);
        self.cells.clear();
        self.cells.extend_from_slice(cells);
        for text in self.replace_cells(place) {
            self.texts.remove(arena, text);
        }
        for index in 0..self.indexes.len() {
            self.enter_index(arena, index, place);
        }
    }

    /// Undoes a delete whose slot was held.
    pub(crate) fn undo_delete(&mut self, arena: &mut Arena, slot: u32, header: u64) {
        let place = self.slots.place(slot);
        let hash = hash_of(&self.shape.shape.key, &self.values(arena, place));
        self.enter(arena, Probe::of_hash(hash), place);
        self.slots.revive(arena, place, header);
    }

    /// Reserves all that a new record needs, and writes it, but nobody finds it before
    /// [`confirm`](Self::confirm), which cannot fail.
    pub(crate) fn reserve(&mut self, arena: &mut Arena, image: &Image<'_>) -> Result<Place, Error> {
        arena.prepare(self.change_bytes(image))?;
        let probe = Probe::of_hash(hash_of(&self.shape.shape.key, image));
        let keys = by_fields!(self, arena, &self.shape.shape.key, Some(image));
        if self.key.seek(probe, &keys).is_ok() {
            return Err(Error::DuplicateKey);
        }
        let place = self.slots.reserve(arena)?;
        if let Err(full) = self.make_ready(arena, probe, place, image) {
            self.slots.give_back(arena, place);
            return Err(full.into());
        }
        let width = Dynamic(self.shape.shape.cells);
        self.slots
            .cells_mut(width, place)
            .copy_from_slice(&self.cells);
        self.enter(arena, probe, place);
        Ok(place)
    }

    /// Makes a reserved record a living one.
    pub(crate) fn confirm(&mut self, arena: &mut Arena, place: Place) {
        self.slots.confirm(arena, place);
    }

    /// Takes a reservation back.
    pub(crate) fn cancel(&mut self, arena: &mut Arena, place: Place) {
        let hash = hash_of(&self.shape.shape.key, &self.values(arena, place));
        self.key.remove(arena, Probe::of_hash(hash), place.slot());
        for index in 0..self.indexes.len() {
            self.leave_index(arena, index, place);
        }
        self.free_texts(arena, place);
        self.slots.cancel(arena, place);
    }

    /// The place of a reserved record, if it is one still.
    pub(crate) fn find_reserved(&self, id: DirectId) -> Option<Place> {
        self.slots.find_reserved(id)
    }

    /// Gets all that replacing a record by an image needs, and makes the image's cells those that the
    /// row will have: the places of its texts are the arena's then.
    pub(crate) fn prepare_update(
        &mut self,
        arena: &mut Arena,
        place: Place,
        words: &mut [u64],
    ) -> Result<(), Error> {
        let Some((image, _)) = Image::split(words) else {
            return Err(Error::KeyShape);
        };
        arena.prepare(self.change_bytes(&image))?;
        self.make_room(arena, place, &image)?;
        self.take_texts(arena, &image, Some(place))?;
        Image::cells_mut(words)[..self.cells.len()].copy_from_slice(&self.cells);
        Ok(())
    }

    /// Gives a record the cells that were prepared.
    pub(crate) fn apply_update(&mut self, arena: &mut Arena, place: Place, cells: &[u64]) {
        let width = Dynamic(self.shape.shape.cells);
        for index in 0..self.indexes.len() {
            self.leave_index(arena, index, place);
        }
        self.slots.before_row(arena, place);
        self.slots.touch(place);
        self.cells.clear();
        self.cells.extend_from_slice(&cells[..width.0]);
        for text in self.replace_cells(place) {
            self.texts.remove(arena, text);
        }
        for index in 0..self.indexes.len() {
            self.enter_index(arena, index, place);
        }
    }

    /// Gives back the texts of cells that were prepared and will not be used.
    pub(crate) fn abandon_update(&mut self, arena: &mut Arena, place: Place, cells: &[u64]) {
        let row = self.slots.cells(Dynamic(self.shape.shape.cells), place);
        for &cell in &self.shape.shape.texts {
            if let TextCell::Long { place, .. } = TextCell::read([cells[cell], cells[cell + 1]])
                && row[cell] != place
            {
                self.texts.remove(arena, place);
            }
        }
    }

    pub(crate) fn is_live(&self, place: Place) -> bool {
        self.slots.is_live(place)
    }

    /// The place of a slot that was used before.
    pub(crate) fn place(&self, slot: u32) -> Place {
        self.slots.place(slot)
    }

    /// What tells whether a record is still the one it was, unchanged: its slot and header.
    pub(crate) fn version(&self, place: Place) -> (u32, u64) {
        (place.slot(), self.slots.header(place))
    }

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

    #[inline]
    fn begin<B: BeforeImages>(&mut self, arena: &mut Arena) {
        if B::IS_ALONE && arena.is_scope_long() {
            self.end_scope(arena);
        }
    }
}
