//! An index beside the key's, of the records of one shard: by equal values, or in order.
//!
//! By equal values, a hash index names the first record of each value, and the others hang on it in a
//! list. In order, a tree has a key for each record, its values and its slot.
//!
//! # Changes
//! First what can fail: [`make_room`](Secondary::make_room), and, where a change may be taken back or is
//! only prepared, [`expect_undo`](Secondary::expect_undo) and [`prepare`](Secondary::prepare). Then what
//! cannot: [`leave`](Secondary::leave) while the record has its old values, [`enter`](Secondary::enter)
//! when it has the new ones.

mod ordered;

use std::ops::ControlFlow;

use super::image::{Values, hash_of};
use super::links::{Left, Links};
use super::order::{SLOT_BYTES, slot_of, step_behind, write_key, write_values};
use super::part::{ByFields, RowValues};
use super::shape::{IndexKind, Spot};
use crate::arena::{Arena, Entry, Extent, ExtentKind};
use crate::error::{ArenaFull, Error, Result};
use crate::id::ShardIndex;
use crate::index::{HashIndex, Probe};
use crate::limits::INDEXED_BYTES_MAX;
use crate::table::slots::Slots;
use crate::table::stored::of_kind;
use crate::table::{Direction, Dynamic, Place};
pub(super) use ordered::Ordered;

/// Before-images that any change of an index by equal values may leave.
const HASH_BYTES: usize = 256;

/// An index beside the key's.
pub(super) struct Secondary {
    pub(super) by: By,
    /// Slots below this are in it; the others are not yet.
    pub(super) built: u32,
}

/// How an index finds records.
pub(super) enum By {
    /// By equal values.
    Equal { hash: HashIndex, links: Links },
    /// In the order of the values.
    Order(Ordered),
}

/// By what names an index of a part goes.
#[derive(Clone, Copy)]
pub(super) struct IndexName {
    pub(super) kind: IndexKind,
    /// Its number in its database.
    pub(super) serial: u32,
    pub(super) shard: ShardIndex,
    /// Records of the part in one piece of memory, as a power of two.
    pub(super) slab_shift: u32,
}

/// What an index is over: the records of its part, and some of their fields.
#[derive(Clone, Copy)]
pub(super) struct Over<'a> {
    pub(super) slots: &'a Slots,
    pub(super) spots: &'a [Spot],
    pub(super) cells: usize,
}

impl<'a> Over<'a> {
    fn row(&self, arena: &Arena, place: Place) -> RowValues<'a> {
        let cells = self.slots.cells(Dynamic(self.cells), place);
        RowValues::new(cells, arena.view())
    }

    pub(super) fn keys<V>(&self, arena: &Arena, wanted: Option<&'a V>) -> ByFields<'a, V> {
        ByFields {
            slots: self.slots,
            view: arena.view(),
            spots: self.spots,
            cells: self.cells,
            wanted,
        }
    }
}

impl Secondary {
    /// An index without records, into which all will be entered.
    pub(super) fn new(
        arena: &mut Arena,
        name: IndexName,
        records_expected: u64,
    ) -> Result<Self, ArenaFull> {
        let by = match name.kind {
            IndexKind::Ordered => By::Order(Ordered::new(arena, name.serial, name.shard)?),
            IndexKind::Hash | IndexKind::Unique => By::Equal {
                hash: HashIndex::new(arena, name.serial, records_expected)?,
                links: Links::new(name.serial, name.slab_shift),
            },
        };
        Ok(Self::whole(by))
    }

    fn whole(by: By) -> Self {
        let built = u32::MAX;
        Self { by, built }
    }

    /// The index that extents of an opened arena hold, or what is wrong with them.
    pub(super) fn open(arena: &Arena, name: IndexName, extents: &[Entry]) -> Result<Self, String> {
        let IndexName { serial, shard, .. } = name;
        if name.kind == IndexKind::Ordered {
            let ordered = Ordered::open(arena, serial, shard, extents)?;
            return Ok(Self::whole(By::Order(ordered)));
        }
        let segments = of_kind(extents, ExtentKind::Segment);
        let links = of_kind(extents, ExtentKind::Links);
        let hash = HashIndex::open(arena, serial, &segments);
        let links = Links::open(arena, serial, name.slab_shift, &links);
        let (hash, links) = hash.zip(links).ok_or("an index does not fit its extents")?;
        Ok(Self::whole(By::Equal { hash, links }))
    }

    pub(super) fn release(self, arena: &mut Arena) {
        match self.by {
            By::Equal { mut hash, links } => {
                hash.release(arena);
                links.release(arena);
            }
            By::Order(ordered) => ordered.release(arena),
        }
    }

    pub(super) fn bytes(&self, arena: &Arena) -> u64 {
        match &self.by {
            By::Equal { hash, links } => hash.bytes() + links.bytes(),
            By::Order(ordered) => ordered.bytes(arena),
        }
    }

    /// The extents that may move. Pages of a tree are named by their places, and stay.
    pub(super) fn movable(&self) -> Vec<Extent> {
        match &self.by {
            By::Equal { hash, links } => hash.movable().chain(links.movable()).collect(),
            By::Order(_) => Vec::new(),
        }
    }

    /// Moves an extent down, if it is ours and there is room; says whether it did.
    pub(super) fn sink(&mut self, arena: &mut Arena, extent: Extent) -> bool {
        match &mut self.by {
            By::Equal { hash, links } => hash.sink(arena, extent) || links.sink(arena, extent),
            By::Order(_) => false,
        }
    }

    /// Gives back what it has no use for. A tree does that when pages are freed.
    pub(super) fn shrink(&mut self, arena: &mut Arena, over: Over<'_>) {
        if let By::Equal { hash, .. } = &mut self.by {
            hash.shrink(arena, &over.keys(arena, None::<&RowValues<'_>>));
        }
    }

    /// Before-images that a change may need, at most.
    pub(super) fn change_bytes(&self, arena: &Arena) -> usize {
        match &self.by {
            By::Equal { .. } => HASH_BYTES,
            By::Order(ordered) => ordered.change_bytes(arena),
        }
    }

    /// Before-images that undoing a change needs as a rule.
    pub(super) fn undo_bytes(&self) -> usize {
        match self.by {
            By::Equal { .. } => HASH_BYTES,
            By::Order(_) => ordered::UNDO_BYTES + 2 * INDEXED_BYTES_MAX,
        }
    }

    /// Whether changes are taken.
    pub(super) fn check_sound(&self) -> Result<()> {
        match &self.by {
            By::Equal { .. } => Ok(()),
            By::Order(ordered) => ordered.check_sound(),
        }
    }

    /// Whether the values of a record, which is to be in the index called `name`, have a place in it.
    pub(super) fn check_values(
        &mut self,
        name: &str,
        spots: &[Spot],
        values: &impl Values,
    ) -> Result<()> {
        let By::Order(Ordered { key, .. }) = &mut self.by else {
            return Ok(());
        };
        key.clear();
        write_values(spots, values, key);
        if key.len() <= INDEXED_BYTES_MAX {
            return Ok(());
        }
        Err(Error::IndexedTooLong {
            index: name.to_owned(),
            bytes: key.len(),
            limit: INDEXED_BYTES_MAX,
        })
    }

    /// Makes room for a record with some values, in a slot.
    pub(super) fn make_room(
        &mut self,
        arena: &mut Arena,
        over: Over<'_>,
        slot: u32,
        values: &impl Values,
    ) -> Result<()> {
        match &mut self.by {
            By::Equal { hash, links } => {
                let probe = Probe::of_hash(hash_of(over.spots, values));
                let keys = over.keys(arena, None::<&RowValues<'_>>);
                hash.make_room(arena, probe, &keys)?;
                links.reach(arena, slot)?;
            }
            By::Order(ordered) => {
                ordered.key.clear();
                write_key(over.spots, values, slot, &mut ordered.key);
                ordered.make_room(arena)?;
            }
        }
        Ok(())
    }

    /// Makes room for a record that will have some values once that is decided, and of which others may be
    /// changed before.
    pub(super) fn prepare(
        &mut self,
        arena: &mut Arena,
        over: Over<'_>,
        slot: u32,
        values: &impl Values,
    ) -> Result<()> {
        let By::Order(ordered) = &mut self.by else {
            return self.make_room(arena, over, slot, values);
        };
        ordered.key.clear();
        write_key(over.spots, values, slot, &mut ordered.key);
        ordered.prepare(arena)
    }

    /// Sees to it that the record with a slot can be taken out again, or put back with the values that it
    /// has now, until [`end_undo`](Self::end_undo).
    pub(super) fn expect_undo(
        &mut self,
        arena: &mut Arena,
        over: Over<'_>,
        old: Option<Place>,
    ) -> Result<()> {
        let By::Order(ordered) = &mut self.by else {
            return Ok(());
        };
        let removed = old.map(|old| {
            ordered.key.clear();
            write_values(over.spots, &over.row(arena, old), &mut ordered.key);
            ordered.key.len() + SLOT_BYTES
        });
        ordered.expect_undo(arena, removed)
    }

    pub(super) fn end_undo(&mut self) {
        if let By::Order(ordered) = &mut self.by {
            ordered.end_undo();
        }
    }

    /// Enters the record at a place, for which there is room.
    pub(super) fn enter(&mut self, arena: &mut Arena, over: Over<'_>, place: Place) {
        if place.slot() >= self.built {
            return;
        }
        let row = over.row(arena, place);
        match &mut self.by {
            By::Equal { hash, links } => {
                let probe = Probe::of_hash(hash_of(over.spots, &row));
                let keys = over.keys(arena, Some(&row));
                match hash.seek(probe, &keys) {
                    Ok(first) => links.join(arena, first, place.slot()),
                    Err(vacancy) => {
                        let added = hash.insert(arena, probe, vacancy, place.slot(), &keys);
                        debug_assert!(added.is_ok(), "room was made before");
                        links.begin(arena, place.slot());
                    }
                }
            }
            By::Order(ordered) => {
                ordered.key.clear();
                write_key(over.spots, &row, place.slot(), &mut ordered.key);
                ordered.insert(arena);
            }
        }
    }

    /// Takes the record at a place out.
    pub(super) fn leave(&mut self, arena: &mut Arena, over: Over<'_>, place: Place) {
        if place.slot() >= self.built {
            return;
        }
        let row = over.row(arena, place);
        match &mut self.by {
            By::Equal { hash, links } => {
                let probe = Probe::of_hash(hash_of(over.spots, &row));
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
            By::Order(ordered) => {
                ordered.key.clear();
                write_key(over.spots, &row, place.slot(), &mut ordered.key);
                ordered.remove(arena);
            }
        }
    }

    /// Lets go of what was kept for a record that was to have some values, and enters it if it has them
    /// now.
    pub(super) fn conclude(
        &mut self,
        arena: &mut Arena,
        over: Over<'_>,
        (slot, values): (u32, &impl Values),
        is_entered: bool,
    ) {
        let is_built = slot < self.built;
        match &mut self.by {
            By::Equal { .. } if is_entered => self.enter(arena, over, over.slots.place(slot)),
            By::Equal { .. } => {}
            By::Order(ordered) => {
                ordered.key.clear();
                write_key(over.spots, values, slot, &mut ordered.key);
                ordered.conclude(arena, is_entered && is_built);
            }
        }
    }

    /// The slots of the records that have some values of the fields.
    pub(super) fn find<V: Values>(
        &self,
        arena: &Arena,
        over: Over<'_>,
        wanted: &V,
    ) -> Result<Vec<u32>> {
        let mut found = Vec::new();
        match &self.by {
            By::Equal { hash, links } => {
                let keys = ByFields {
                    slots: over.slots,
                    view: arena.view(),
                    spots: over.spots,
                    cells: over.cells,
                    wanted: Some(wanted),
                };
                let probe = Probe::of_hash(hash_of(over.spots, wanted));
                if let Some(first) = hash.find(probe, &keys) {
                    found.extend(links.list(first));
                }
            }
            By::Order(ordered) => {
                let mut start = Vec::new();
                write_values(over.spots, wanted, &mut start);
                let mut end = start.clone();
                let end = step_behind(&mut end).then_some(&end[..]);
                ordered.scan(arena, (&start, end), Direction::Forward, |key| {
                    found.extend(slot_of(key));
                    ControlFlow::Continue(())
                })?;
            }
        }
        Ok(found)
    }
}
