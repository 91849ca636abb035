//! Changes of records in two steps: made ready while their transaction is decided, then kept or taken
//! back.

use super::image::{Image, TextCell, hash_of};
use super::part::{ByFields, RecordPart, RowValues, by_fields, over};
use super::secondary::Over;
use crate::arena::Arena;
use crate::error::Error;
use crate::id::DirectId;
use crate::index::Probe;
use crate::table::{Dynamic, Place};

impl RecordPart {
    /// Reserves all that a new record needs, and writes it, but nobody finds it before
    /// [`confirm`](Self::confirm), which cannot fail.
    pub(crate) fn reserve(&mut self, arena: &mut Arena, image: &Image<'_>) -> Result<Place, Error> {
        // It may be taken back before the scope ends.
        self.check_sound()?;
        arena.prepare_undoable(self.change_bytes(arena, image) + self.record_bytes())?;
        let probe = Probe::of_hash(hash_of(&self.shape.shape.key, image));
        let keys = by_fields!(self, arena, &self.shape.shape.key, Some(image));
        if self.key.seek(probe, &keys).is_ok() {
            return Err(Error::DuplicateKey);
        }
        self.check_values(image)?;
        let place = self.slots.reserve(arena)?;
        if let Err(error) = self.make_ready(arena, probe, place, image) {
            self.slots.give_back(arena, place);
            return Err(error);
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
        self.note(arena, place);
    }

    /// Takes a reservation back.
    pub(crate) fn cancel(&mut self, arena: &mut Arena, place: Place) {
        self.leave(arena, place);
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
        self.check_sound()?;
        arena.prepare_undoable(self.change_bytes(arena, &image) + self.record_bytes())?;
        self.check_values(&image)?;
        self.take_texts(arena, &image, place, Some(place))?;
        let changed = self.changed(arena, place, &image);
        for (done, &at) in changed.iter().enumerate() {
            let index = &mut self.indexes[at];
            if let Err(error) = index.prepare(arena, over!(self, at), place.slot(), &image) {
                let cells = std::mem::take(&mut self.cells);
                self.conclude(arena, place, &cells, &changed[..done], false);
                self.abandon_texts(arena, place, &cells);
                self.cells = cells;
                return Err(error);
            }
        }
        Image::cells_mut(words)[..self.cells.len()].copy_from_slice(&self.cells);
        Ok(())
    }

    /// Lets indexes go of what they have kept for a record that was to have these cells, and enters it if
    /// it has them now.
    fn conclude(
        &mut self,
        arena: &mut Arena,
        place: Place,
        cells: &[u64],
        changed: &[usize],
        is_entered: bool,
    ) {
        let values = RowValues::new(cells, arena.view());
        for &at in changed {
            let values = (place.slot(), &values);
            self.indexes[at].conclude(arena, over!(self, at), values, is_entered);
        }
    }

    /// Gives a record the cells that were prepared.
    pub(crate) fn apply_update(&mut self, arena: &mut Arena, place: Place, cells: &[u64]) {
        let cells = &cells[..self.shape.shape.cells];
        let changed = self.changed(arena, place, &RowValues::new(cells, arena.view()));
        self.note(arena, place);
        for &at in &changed {
            self.indexes[at].leave(arena, over!(self, at), place);
        }
        self.slots.before_row(arena, place);
        self.slots.touch(place);
        self.cells.clear();
        self.cells.extend_from_slice(cells);
        for text in self.replace_cells(place) {
            self.texts.remove(arena, text);
        }
        self.conclude(arena, place, cells, &changed, true);
        self.note(arena, place);
    }

    /// Gives back what was kept for cells that were prepared and will not be used.
    pub(crate) fn abandon_update(&mut self, arena: &mut Arena, place: Place, cells: &[u64]) {
        let row = &cells[..self.shape.shape.cells];
        let changed = self.changed(arena, place, &RowValues::new(row, arena.view()));
        self.conclude(arena, place, row, &changed, false);
        self.abandon_texts(arena, place, cells);
    }

    fn abandon_texts(&mut self, arena: &mut Arena, place: Place, cells: &[u64]) {
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
}
