//! Changes of records that happen at once: insert, update, delete, and undoing them.
//!
//! # Order of a change
//! First what can fail: room in the indexes, the texts' memory, a slot. Then what cannot: cells, index
//! entries, the row's life. So an operation that returns an error has changed nothing.

use super::image::{Image, TextCell, Values, are_equal, hash_of};
use super::part::{ByFields, RecordPart, RowValues, by_fields, over};
use super::secondary::{Over, Secondary};
use super::shape::Shape;
use super::text::TextOwner;
use crate::arena::Arena;
use crate::error::{ArenaFull, Error, Result};
use crate::index::Probe;
use crate::table::{BeforeImages, Dynamic, Place};

impl RecordPart {
    /// Bytes that undoing the change of a record may need before-images of.
    pub(crate) fn record_bytes(&self) -> usize {
        let Shape { cells, texts, .. } = &self.shape.shape;
        let indexes = self.indexes.iter().map(Secondary::undo_bytes);
        2 * cells * 8 + (1 + texts.len()) * 256 + indexes.sum::<usize>()
    }

    /// Bytes that before-images of a change may take, beside what every change may.
    pub(super) fn change_bytes(&self, arena: &Arena, image: &Image<'_>) -> usize {
        let indexes = self.indexes.iter();
        let indexes: usize = indexes.map(|index| index.change_bytes(arena)).sum();
        self.slots.stride() + 2 * size_of_val(image.cells()) + 256 + indexes
    }

    /// Adds a record; [`Error::DuplicateKey`] if there is one with its key.
    pub(crate) fn insert<B: BeforeImages>(
        &mut self,
        arena: &mut Arena,
        image: &Image<'_>,
        images: &mut B,
    ) -> Result<Place, Error> {
        self.begin::<B>(arena);
        arena.prepare(self.change_bytes(arena, image))?;
        let hash = hash_of(&self.shape.shape.key, image);
        let probe = Probe::of_hash(hash);
        let keys = by_fields!(self, arena, &self.shape.shape.key, Some(image));
        if self.key.seek(probe, &keys).is_ok() {
            return Err(Error::DuplicateKey);
        }
        self.check_values(image)?;
        if B::HOLDS_SLOTS {
            self.expect_undo(arena, None)?;
        }
        let place = self.slots.reserve(arena)?;
        if let Err(error) = self.make_ready(arena, probe, place, image) {
            self.slots.give_back(arena, place);
            return Err(error);
        }
        let width = Dynamic(self.shape.shape.cells);
        self.slots
            .cells_mut(width, place)
            .copy_from_slice(&self.cells);
        self.slots.enliven(place, None);
        self.enter(arena, probe, place);
        images.inserted(place.slot());
        self.check_sound()?;
        Ok(place)
    }

    /// Gets all that an insert needs: room in the indexes, and the row's cells with its texts' places.
    pub(super) fn make_ready(
        &mut self,
        arena: &mut Arena,
        probe: Probe,
        place: Place,
        image: &Image<'_>,
    ) -> Result<()> {
        let keys = by_fields!(self, arena, &self.shape.shape.key, None::<&Image<'_>>);
        self.key.make_room(arena, probe, &keys)?;
        for (at, index) in self.indexes.iter_mut().enumerate() {
            index.make_room(arena, over!(self, at), place.slot(), image)?;
        }
        self.take_texts(arena, image, place, None)?;
        Ok(())
    }

    /// Whether the values of a record have a place in every index.
    pub(super) fn check_values(&mut self, image: &Image<'_>) -> Result<()> {
        let Shape {
            indexes,
            index_kinds,
            ..
        } = &self.shape.shape;
        let fields = indexes.iter().zip(index_kinds);
        for (index, (spots, (name, _))) in self.indexes.iter_mut().zip(fields) {
            index.check_values(name, spots, image)?;
        }
        Ok(())
    }

    /// Sees to it that the change at hand can be taken back by its transaction: an insertion, or else that
    /// of the record at `old`.
    fn expect_undo(&mut self, arena: &mut Arena, old: Option<Place>) -> Result<()> {
        for (at, index) in self.indexes.iter_mut().enumerate() {
            index.expect_undo(arena, over!(self, at), old)?;
        }
        Ok(())
    }

    /// Lets go of what was kept for taking changes back.
    pub(crate) fn end_undo(&mut self) {
        for index in &mut self.indexes {
            index.end_undo();
        }
    }

    /// Fills `cells` with an image's, for the row at `place`, its texts copied into the arena, but for
    /// those that the row at `old` has already.
    pub(super) fn take_texts(
        &mut self,
        arena: &mut Arena,
        image: &Image<'_>,
        place: Place,
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
            let owner = TextOwner {
                slot: place.slot(),
                cell: cell as u16,
            };
            match image.with_text(cell, |text| self.texts.add(arena, text, owner)) {
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
    pub(super) fn enter(&mut self, arena: &mut Arena, probe: Probe, place: Place) {
        self.enter_key(arena, probe, place);
        for (at, index) in self.indexes.iter_mut().enumerate() {
            index.enter(arena, over!(self, at), place);
        }
        self.note(arena, place);
    }

    /// Takes a record out of all indexes.
    pub(super) fn leave(&mut self, arena: &mut Arena, place: Place) {
        self.note(arena, place);
        let hash = hash_of(&self.shape.shape.key, &self.values(arena, place));
        self.key.remove(arena, Probe::of_hash(hash), place.slot());
        for (at, index) in self.indexes.iter_mut().enumerate() {
            index.leave(arena, over!(self, at), place);
        }
    }

    /// Numbers of the indexes in which a record has other values than those given.
    pub(super) fn changed(&self, arena: &Arena, place: Place, values: &impl Values) -> Vec<usize> {
        let row = self.values(arena, place);
        let indexes = self.shape.shape.indexes.iter().enumerate();
        indexes
            .filter(|(_, spots)| !are_equal(spots, &row, values))
            .map(|(index, _)| index)
            .collect()
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

    /// Replaces a record by another one with the same key.
    pub(crate) fn update<B: BeforeImages>(
        &mut self,
        arena: &mut Arena,
        place: Place,
        image: &Image<'_>,
        images: &mut B,
    ) -> Result<(), Error> {
        self.begin::<B>(arena);
        arena.prepare(self.change_bytes(arena, image))?;
        if !are_equal(&self.shape.shape.key, &self.values(arena, place), image) {
            return Err(Error::KeyChanged);
        }
        self.check_values(image)?;
        let changed = self.changed(arena, place, image);
        for &at in &changed {
            let (index, over) = (&mut self.indexes[at], over!(self, at));
            if B::HOLDS_SLOTS {
                index.expect_undo(arena, over, Some(place))?;
            }
            index.make_room(arena, over, place.slot(), image)?;
        }
        self.take_texts(arena, image, place, Some(place))?;
        let width = Dynamic(self.shape.shape.cells);
        self.note(arena, place);
        for &at in &changed {
            self.indexes[at].leave(arena, over!(self, at), place);
        }
        self.slots.before_row(arena, place);
        let header = self.slots.header(place);
        images.updating(place.slot(), header, self.slots.cells(width, place));
        self.slots.touch(place);
        let gone = self.replace_cells(place);
        for &at in &changed {
            self.indexes[at].enter(arena, over!(self, at), place);
        }
        self.note(arena, place);
        for text in gone {
            if B::HOLDS_SLOTS {
                images.retired(text);
            } else {
                self.texts.remove(arena, text);
            }
        }
        self.check_sound()
    }

    /// Puts `cells` into a row; the places of texts that only the old cells have.
    pub(super) fn replace_cells(&mut self, place: Place) -> Vec<u64> {
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

    /// Removes a record, if that can be taken back by its transaction.
    pub(crate) fn delete_undoably<B: BeforeImages>(
        &mut self,
        arena: &mut Arena,
        place: Place,
        images: &mut B,
    ) -> Result<()> {
        if B::HOLDS_SLOTS {
            self.expect_undo(arena, Some(place))?;
        }
        self.delete(arena, place, images);
        self.check_sound()
    }

    /// Removes a record.
    pub(crate) fn delete<B: BeforeImages>(
        &mut self,
        arena: &mut Arena,
        place: Place,
        images: &mut B,
    ) {
        self.begin::<B>(arena);
        self.leave(arena, place);
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

    pub(super) fn free_texts(&mut self, arena: &mut Arena, place: Place) {
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
        let changed = self.changed(arena, place, &RowValues::new(cells, arena.view()));
        self.note(arena, place);
        for &at in &changed {
            self.indexes[at].leave(arena, over!(self, at), place);
        }
        self.slots.before_row(arena, place);
        self.slots.restore(place, header);
        self.cells.clear();
        self.cells.extend_from_slice(cells);
        for text in self.replace_cells(place) {
            self.texts.remove(arena, text);
        }
        for &at in &changed {
            self.indexes[at].enter(arena, over!(self, at), place);
        }
        self.note(arena, place);
    }

    /// Undoes a delete whose slot was held.
    pub(crate) fn undo_delete(&mut self, arena: &mut Arena, slot: u32, header: u64) {
        let place = self.slots.place(slot);
        let hash = hash_of(&self.shape.shape.key, &self.values(arena, place));
        self.enter(arena, Probe::of_hash(hash), place);
        self.slots.revive(arena, place, header);
    }

    #[inline]
    fn begin<B: BeforeImages>(&mut self, arena: &mut Arena) {
        if B::IS_ALONE && arena.is_scope_long() {
            self.end_scope(arena);
        }
    }
}
