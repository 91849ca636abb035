//! Whether a part of a table is whole, and its rows without trust in anything but the rows.

use super::TablePart;
use super::slots::Slots;
use super::stored::{PartName, Stored, of_kind};
use crate::arena::{Arena, Entry, ExtentKind};
use crate::error::Faults;
use crate::id::{DirectId, RowId, ShardIndex, SurrogateId};
use crate::index::Probe;

impl TablePart {
    /// Tells of everything that is wrong with the part, in an engine of so many shards, while nobody
    /// has a place reserved.
    pub(crate) fn check(&self, shard: ShardIndex, shards: usize, faults: &mut Faults) {
        self.slots.check(faults);
        let Some(index) = &self.index else { return };
        let mut entries = 0_u64;
        index.check(&self.slots, faults, |_| entries += 1);
        let mut rows = 0;
        for place in self.scan(0..u32::MAX) {
            rows += 1;
            let key = self.slots.key(place);
            let slot = || format!("slot {}", place.slot());
            if SurrogateId(key).shard_of(shards) != shard {
                faults.note(slot(), format!("key {key} belongs to another shard"));
            } else if index.find(Probe::new(key), &self.slots) != Some(place.slot()) {
                faults.note(slot(), format!("key {key} does not find its row"));
            }
        }
        if entries != rows {
            faults.note("index", format!("it has {entries} entries for {rows} rows"));
        }
    }
}

/// What was left out of a part, and why.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftOut(std::collections::BTreeMap<&'static str, u64>);

impl LeftOut {
    pub(crate) fn note(&mut self, why: &'static str) {
        self.add(why, 1);
    }

    /// Notes some of a kind, or none.
    pub(crate) fn add(&mut self, why: &'static str, count: u64) {
        if count > 0 {
            *self.0.entry(why).or_default() += count;
        }
    }

    pub(crate) fn into_counts(self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.into_iter()
    }
}

/// The slabs of a part, in an arena that is not trusted.
pub(in crate::table) struct Salvage {
    pub(in crate::table) slots: Slots,
    slabs: Vec<Entry>,
    next: u64,
}

impl Salvage {
    /// The slabs among the extents of a table; `shape` is what its head says if it is whole.
    pub(in crate::table) fn new(
        arena: &Arena,
        slots: Slots,
        shape: [u64; 2],
        own: &[Entry],
        left: &mut LeftOut,
    ) -> Self {
        let mut slabs = of_kind(own, ExtentKind::Slab);
        slabs.retain(|slab| {
            let fits = slab.extent.bytes >= slots.slab_bytes();
            if !fits {
                left.note("slabs of another length than they should have");
            }
            fits
        });
        let numbers: Vec<u32> = slabs.iter().map(|slab| slab.use_.number).collect();
        slabs.retain(|slab| {
            let is_one = numbers
                .iter()
                .filter(|&&one| one == slab.use_.number)
                .count()
                == 1;
            if !is_one {
                left.note("slabs that have the same number");
            }
            is_one
        });
        // Behind the last slot that was used lies what the memory held before. Without a head nobody
        // knows where that is.
        let room =
            (numbers.iter().max().map_or(0, |&max| u64::from(max) + 1)) << slots.slab_shift();
        let saved = Stored::open(arena, own, shape).ok();
        let next = saved.map(|stored| stored.saved().next);
        let next = next.filter(|&next| next <= room);
        if next.is_none() && room > 0 {
            left.note("heads of parts: their last rows may be remains of others");
        }
        Self {
            slots,
            slabs,
            next: next.unwrap_or(room),
        }
    }

    /// Visits every row that lives, with what lies behind its header.
    pub(in crate::table) fn rows(&self, arena: &Arena, mut visit: impl FnMut(DirectId, &[u64])) {
        for slab in &self.slabs {
            self.slots
                .salvage(arena.view(), slab, self.next, &mut visit);
        }
    }
}

/// Takes a row's id, its key, if it has one, and its cells.
pub(crate) type RowVisit<'a> = dyn FnMut(DirectId, Option<u64>, &[u64]) + 'a;

/// Visits the rows of a part of a table without records, as they lie in slabs that are not trusted:
/// their ids, keys, if the table is keyed, and cells.
pub(crate) fn salvage_rows(
    arena: &Arena,
    (shard, shards): (ShardIndex, usize),
    (columns, keyed): (usize, bool),
    (name, own): (PartName, &[Entry]),
    left: &mut LeftOut,
    visit: &mut RowVisit<'_>,
) {
    let slots = Slots::new(name, shard, columns, keyed);
    let shape = [columns as u64, u64::from(keyed)];
    let salvage = Salvage::new(arena, slots, shape, own, left);
    let mut keys = hashbrown::HashSet::new();
    salvage.rows(arena, |id, words| {
        let (key, cells) = match words.split_first() {
            Some((&key, cells)) if keyed => (Some(key), cells),
            _ => (None, words),
        };
        let Some(cells) = cells.get(..columns) else {
            return;
        };
        match key {
            Some(key) if SurrogateId(key).shard_of(shards) != shard => {
                left.note("rows whose key belongs to another shard");
            }
            Some(key) if !keys.insert(key) => left.note("rows whose key another one has"),
            key => visit(id, key, cells),
        }
    });
}
