//! Whether a part of a table of records is whole, and records without trust in anything but their rows.

use std::ops::ControlFlow;

use super::{ByFields, Probe, RecordPart, RecordShape, RowValues};
use crate::arena::{Arena, Entry, ExtentKind};
use crate::error::Faults;
use crate::id::{DirectId, ShardIndex, shard_of};
use crate::index::HashIndex;
use crate::limits::TEXT_BYTES_MAX;
use crate::table::check::Salvage;
use crate::table::record::image::{Image, TextCell, Values, are_equal, hash_of};
use crate::table::record::links::Links;
use crate::table::record::order::{slot_of, write_key};
use crate::table::record::secondary::{By, Ordered};
use crate::table::record::shape::{FieldKind, Shape, Spot};
use crate::table::record::text::{TextOwner, Texts};
use crate::table::record::typed::write_row;
use crate::table::slots::Slots;
use crate::table::stored::of_kind;
use crate::table::{Direction, Dynamic, LeftOut, PartName, Place};

impl RecordPart {
    /// Tells of everything that is wrong with the part, in an engine of so many shards, while nobody
    /// has a place reserved.
    pub(crate) fn check(
        &self,
        arena: &Arena,
        shard: ShardIndex,
        shards: usize,
        faults: &mut Faults,
    ) {
        self.slots.check(faults);
        let shape = self.shape();
        for place in self.scan(0..u32::MAX) {
            let row = self.values(arena, place);
            let slot = || format!("slot {}", place.slot());
            if let Some((_, what)) = row_fault(shape, &self.texts, arena, place.slot(), &row) {
                faults.note(slot(), what);
                // Its values may be any, and what finds it is told below.
                continue;
            }
            let hash = hash_of(&shape.key, &row);
            if shard_of(hash, shards) != shard {
                faults.note(slot(), "its key belongs to another shard");
            }
        }
        self.check_texts(arena, faults);
        let entries = self.check_key(arena, faults);
        if entries != self.scan(0..u32::MAX).count() as u64 {
            faults.note("index of the key", format!("it has {entries} entries"));
        }
        for (number, index) in self.indexes.iter().enumerate() {
            match &index.by {
                By::Equal { hash, links } => {
                    self.check_equal(arena, (number, hash, links), faults);
                }
                By::Order(ordered) => self.check_order(arena, (number, ordered), faults),
            }
        }
    }

    /// Whether the record of every text says so.
    fn check_texts(&self, arena: &Arena, faults: &mut Faults) {
        let mut orphans = Vec::new();
        let mut note = |place: u64, what: String| faults.note(format!("texts at {place}"), what);
        self.texts
            .survey(arena, &mut note, &mut |place, owner, length| {
                if self.named(owner) != Some((place, length)) {
                    orphans.push((place, owner));
                }
            });
        for (place, owner) in orphans {
            let (slot, cell) = (owner.slot, owner.cell);
            let what = format!("slot {slot} should name it in cell {cell}, and does not");
            faults.note(format!("text at {place}"), what);
        }
    }

    /// The place and the length of the longer text that a record names.
    pub(super) fn named(&self, owner: TextOwner) -> Option<(u64, usize)> {
        let has_slot = self.slots.has_slot(owner.slot);
        let place = has_slot.then(|| self.slots.find_slot(owner.slot))??;
        let cell = usize::from(owner.cell);
        if !self.shape().texts.contains(&cell) {
            return None;
        }
        let row = self.slots.cells(Dynamic(self.shape().cells), place);
        match TextCell::read([row[cell], row[cell + 1]]) {
            TextCell::Long { place, length, .. } => Some((place, length)),
            TextCell::Short { .. } => None,
        }
    }

    /// Visits the entry that each record should have in a unique index: the record's slot, and the
    /// entry's image.
    pub(crate) fn unique_entries(
        &self,
        arena: &Arena,
        unique: usize,
        entries: &Shape,
        mut visit: impl FnMut(u32, &Image<'_>),
    ) {
        for place in self.scan(0..u32::MAX) {
            let entry = self.entry(arena, place, unique, entries);
            if let Some((entry, _)) = entry.as_deref().and_then(Image::split) {
                visit(place.slot(), &entry);
            }
        }
    }

    /// The entry of a record in a unique index, if it has all values.
    fn entry(
        &self,
        arena: &Arena,
        place: Place,
        unique: usize,
        entries: &Shape,
    ) -> Option<Vec<u64>> {
        let (shape, spots) = (self.shape(), &self.shape().uniques[unique]);
        let (mut words, mut entry) = (Vec::new(), Vec::new());
        write_row(shape, &self.values(arena, place), &mut words);
        let fields = spots.iter().chain(&shape.key).copied();
        let (image, _) = Image::split(&words)?;
        let has_all = image.pick(fields, spots.len(), entries, &mut entry);
        has_all.then_some(entry)
    }

    /// Visits the entries of a unique index, which this part holds: the slot, the entry's image, and
    /// that of the key of its record, whose shape is `own`.
    pub(crate) fn indexed_keys(
        &self,
        arena: &Arena,
        own: &Shape,
        mut visit: impl FnMut(u32, &Image<'_>, &Image<'_>),
    ) {
        let shape = self.shape();
        let (mut words, mut key) = (Vec::new(), Vec::new());
        for place in self.scan(0..u32::MAX) {
            words.clear();
            key.clear();
            write_row(shape, &self.values(arena, place), &mut words);
            let Some((entry, _)) = Image::split(&words) else {
                continue;
            };
            entry.carry(&shape.spots[shape.key.len()..], own, &own.key, &mut key);
            if let Some((key, _)) = Image::split(&key) {
                visit(place.slot(), &entry, &key);
            }
        }
    }

    /// Whether the record with a key is here, and has this entry in a unique index.
    pub(crate) fn has_entry(
        &self,
        arena: &Arena,
        key: &Image<'_>,
        unique: usize,
        (entries, entry): (&Shape, &Image<'_>),
    ) -> bool {
        let found = self.find(arena, hash_of(&self.shape().key, key), key);
        let own = found.and_then(|place| self.entry(arena, place, unique, entries));
        let own = own.as_deref().and_then(Image::split);
        own.is_some_and(|(own, _)| are_equal(&entries.spots, &own, entry))
    }

    /// Whether a record is here that is the same as an image.
    pub(crate) fn has(&self, arena: &Arena, image: &Image<'_>) -> bool {
        let shape = self.shape();
        self.find(arena, hash_of(&shape.key, image), image)
            .is_some_and(|place| are_equal(&shape.spots, &self.values(arena, place), image))
    }

    fn by_fields<'a>(
        &'a self,
        arena: &Arena,
        spots: &'a [Spot],
        wanted: Option<&'a RowValues<'a>>,
    ) -> ByFields<'a, RowValues<'a>> {
        ByFields {
            slots: &self.slots,
            view: arena.view(),
            spots,
            cells: self.shape().cells,
            wanted,
        }
    }

    /// Checks the index of the key; the number of its entries.
    fn check_key(&self, arena: &Arena, faults: &mut Faults) -> u64 {
        let spots = &self.shape().key;
        let mut entries = 0;
        let keys = self.by_fields(arena, spots, None);
        self.key.check(&keys, faults, |_| entries += 1);
        for place in self.scan(0..u32::MAX) {
            if self.first_with(arena, spots, &self.key, place) != Some(place.slot()) {
                let slot = format!("slot {}", place.slot());
                faults.note(slot, "its key does not find it");
            }
        }
        entries
    }

    /// The slot that an index, or that of the key, finds by the values of a record.
    fn first_with(
        &self,
        arena: &Arena,
        spots: &[Spot],
        hash: &HashIndex,
        place: Place,
    ) -> Option<u32> {
        let row = self.values(arena, place);
        let keys = self.by_fields(arena, spots, Some(&row));
        hash.find(Probe::of_hash(hash_of(spots, &row)), &keys)
    }

    /// Checks an ordered index: its tree, and that every record is in it once, by its values.
    fn check_order(&self, arena: &Arena, (index, ordered): (usize, &Ordered), faults: &mut Faults) {
        let spots = &self.shape().indexes[index];
        if let Err(damaged) = ordered.check(arena) {
            faults.note(format!("index {index}"), damaged.to_string());
        }
        let at = |slot: u32| format!("index {index}, slot {slot}");
        let mut is_entered = vec![false; self.slots.next() as usize];
        let mut wanted = Vec::new();
        let whole = ordered.scan(arena, (&[], None), Direction::Forward, |key| {
            let slot = slot_of(key).unwrap_or(u32::MAX);
            match self.living(slot) {
                None => faults.note(at(slot), "it has an entry, and no record lives there"),
                Some(place) => {
                    wanted.clear();
                    write_key(spots, &self.values(arena, place), slot, &mut wanted);
                    if wanted != key {
                        faults.note(at(slot), "it has an entry with other values");
                    } else if std::mem::replace(&mut is_entered[slot as usize], true) {
                        faults.note(at(slot), "it has two entries");
                    }
                }
            }
            ControlFlow::Continue(())
        });
        if whole.is_err() {
            faults.note(format!("index {index}"), "it cannot be read to its end");
        }
        for place in self.scan(0..u32::MAX) {
            if !is_entered[place.slot() as usize] {
                faults.note(at(place.slot()), "the record has no entry");
            }
        }
    }

    /// Checks an index and its lists: every record is in one, once, that of its values.
    fn check_equal(
        &self,
        arena: &Arena,
        (index, hash, links): (usize, &HashIndex, &Links),
        faults: &mut Faults,
    ) {
        let spots = &self.shape().indexes[index];
        let mut firsts = Vec::new();
        let keys = self.by_fields(arena, spots, None);
        hash.check(&keys, faults, |slot| firsts.push(slot));
        let mut is_listed = vec![false; self.slots.next() as usize];
        let at = |slot: u32| format!("index {index}, slot {slot}");
        for first in firsts {
            let Some(place) = self.living(first) else {
                faults.note(at(first), "it begins a list, and no record lives there");
                continue;
            };
            if self.first_with(arena, spots, hash, place) != Some(first) {
                faults.note(at(first), "its values do not find the list that it begins");
            }
            self.check_list(arena, (index, links), place, &mut is_listed, faults);
        }
        for place in self.scan(0..u32::MAX) {
            if !is_listed[place.slot() as usize] {
                faults.note(at(place.slot()), "the record is in no list");
            }
        }
    }

    fn check_list(
        &self,
        arena: &Arena,
        (index, links): (usize, &Links),
        first: Place,
        is_listed: &mut [bool],
        faults: &mut Faults,
    ) {
        let spots = &self.shape().indexes[index];
        let wanted = self.values(arena, first);
        let at = |slot: u32| format!("index {index}, slot {slot}");
        let (mut slot, mut before) = (Some(first.slot()), None);
        while let Some(member) = slot {
            let Some(place) = self.living(member) else {
                return faults.note(at(member), "it is in a list, and no record lives there");
            };
            if std::mem::replace(&mut is_listed[member as usize], true) {
                return faults.note(at(member), "it is in a list twice, or in two");
            }
            if !are_equal(spots, &self.values(arena, place), &wanted) {
                faults.note(at(member), "it is in the list of other values");
            }
            let (next, back) = links.neighbours(member);
            if back != before {
                faults.note(
                    at(member),
                    "its list names it, and it names another one before",
                );
            }
            (before, slot) = (slot, next);
        }
    }
}

/// What is wrong with a record in itself: in short, and in full.
fn row_fault(
    shape: &Shape,
    texts: &Texts,
    arena: &Arena,
    slot: u32,
    row: &RowValues<'_>,
) -> Option<(&'static str, String)> {
    for spot in &shape.spots {
        let name = &shape.names[spot.field];
        let is_present = row.is_present(spot);
        let value = row.cell(spot.cell);
        if spot.kind == FieldKind::Bool && is_present && value > 1 {
            let what = format!("field {name:?} is neither true nor false");
            return Some(("records with damaged values", what));
        }
        if !spot.kind.is_text() {
            continue;
        }
        let cell = TextCell::read([value, row.cell(spot.cell + 1)]);
        if let TextCell::Long { place, length, .. } = cell {
            let owner = TextOwner {
                slot,
                cell: spot.cell as u16,
            };
            if let Some(what) = texts.fault(arena, place, length, owner) {
                return Some((
                    "records whose texts are missing",
                    format!("field {name:?}: {what}"),
                ));
            }
        }
        let is_whole = row.with_text(spot.cell, |text| {
            cell.fits(text)
                && text.len() <= TEXT_BYTES_MAX
                && (spot.kind != FieldKind::Text || std::str::from_utf8(text).is_ok())
        });
        if !is_whole {
            let what = format!("field {name:?} is no text that it can be");
            return Some(("records with damaged texts", what));
        }
    }
    None
}

/// Visits the records of a part of a table, as they lie in slabs that are not trusted: their ids, and
/// their images.
pub(crate) fn salvage_records(
    arena: &Arena,
    (shard, shards): (ShardIndex, usize),
    shape: &RecordShape,
    (name, own): (PartName, &[Entry]),
    left: &mut LeftOut,
    visit: &mut dyn FnMut(DirectId, &Image<'_>),
) {
    let shape = &shape.shape;
    let slots = Slots::new(name, shard, shape.cells, false);
    let salvage = Salvage::new(arena, slots, [shape.cells as u64, 2], own, left);
    let texts = Texts::salvage(name.serial, &of_kind(own, ExtentKind::Text));
    // By the hash of their keys: the images of those keys.
    let mut keys: hashbrown::HashMap<u64, Vec<Box<[u64]>>> = hashbrown::HashMap::new();
    let (mut words, mut key) = (Vec::new(), Vec::new());
    salvage.rows(arena, |id, cells| {
        let Some(cells) = cells.get(..shape.cells) else {
            return;
        };
        let row = RowValues::new(cells, arena.view());
        if let Some((why, _)) = row_fault(shape, &texts, arena, id.slot(), &row) {
            return left.note(why);
        }
        let hash = hash_of(&shape.key, &row);
        if shard_of(hash, shards) != shard {
            return left.note("records whose key belongs to another shard");
        }
        words.clear();
        write_row(shape, &row, &mut words);
        let Some((image, _)) = Image::split(&words) else {
            return;
        };
        key.clear();
        image.carry(&shape.key, shape, &shape.key, &mut key);
        let others = keys.entry(hash).or_default();
        if others.iter().any(|other| **other == *key) {
            return left.note("records whose key another one has");
        }
        others.push(key.as_slice().into());
        visit(id, &image);
    });
}
