//! Many operations with their memory asked for in time.
//!
//! # Rolling
//! The memory of operation `i + 32` is asked for while operation `i` runs, so that up to 32 cache
//! misses are under way at once. By direct id that is one stage. By key it is two: the index bucket
//! of operation `i + 48` is asked for, then the bucket of `i + 32`, now there, gives a candidate
//! slot, whose row is asked for. Operation `i` then verifies the key in the row. A candidate is only
//! a guess: what operations in between change is seen, because the row must live and have the key,
//! and whoever fails that is looked up anew.

use super::{
    BeforeImages, Block, Code, DirectId, Place, Probe, RowId, Single, TablePart, Verb, Width,
};
use crate::arena::Arena;
use crate::limits::{PREFETCH_DISTANCE, PROBE_DISTANCE};

/// Length of the windows between the stages; a power of two above the distances.
const WINDOW: usize = 64;

const _: () = assert!(WINDOW.is_power_of_two() && WINDOW >= PREFETCH_DISTANCE + PROBE_DISTANCE);

/// Marks a key for which no tag matched.
const NO_CANDIDATE: u32 = u32::MAX;

/// Whether the rows of a batch have been asked for already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Cold,
    Asked,
}

/// What an operation draws on beside its table.
pub(crate) struct Means<'a, W, B> {
    pub(crate) arena: &'a mut Arena,
    pub(crate) width: W,
    pub(crate) images: &'a mut B,
}

/// What became of one operation; `id` and `detail` carry the parts of an error, too.
pub(crate) struct Done {
    pub(crate) code: Code,
    pub(crate) id: u64,
    pub(crate) detail: u64,
}

impl TablePart {
    /// Asks for the memory of operations that come soon.
    pub(crate) fn prepare<W: Width, I: RowId>(&self, width: W, ids: &[I]) {
        if !I::KEYED {
            for id in ids {
                self.slots
                    .prefetch(width, DirectId::from_u64(id.raw()).slot());
            }
        } else if let Some(index) = &self.index {
            for id in ids {
                index.prefetch(Probe::new(id.raw()));
            }
        }
    }

    /// Finds the row of each id in order and lets `act` have it; `act` may change the table.
    #[inline(always)]
    pub(crate) fn each<W: Width, I: RowId>(
        &mut self,
        width: W,
        count: usize,
        memory: Memory,
        id_at: impl Fn(usize) -> I,
        mut act: impl FnMut(&mut Self, usize, Option<Place>),
    ) {
        if I::KEYED {
            self.each_key(width, count, |at| id_at(at).raw(), act);
            return;
        }
        let slot_at = |at: usize| DirectId::from_u64(id_at(at).raw()).slot();
        if memory == Memory::Asked {
            for at in 0..count {
                let place = self.find(id_at(at));
                act(self, at, place);
            }
            return;
        }
        for at in 0..count.min(PREFETCH_DISTANCE) {
            self.slots.prefetch(width, slot_at(at));
        }
        let rolling = count.saturating_sub(PREFETCH_DISTANCE);
        for at in 0..rolling {
            self.slots.prefetch(width, slot_at(at + PREFETCH_DISTANCE));
            let place = self.find(id_at(at));
            act(self, at, place);
        }
        for at in rolling..count {
            let place = self.find(id_at(at));
            act(self, at, place);
        }
    }

    #[inline(always)]
    fn each_key<W: Width>(
        &mut self,
        width: W,
        count: usize,
        key_at: impl Fn(usize) -> u64,
        mut act: impl FnMut(&mut Self, usize, Option<Place>),
    ) {
        if self.index.is_none() {
            (0..count).for_each(|at| act(self, at, None));
            return;
        }
        let mut candidates = [NO_CANDIDATE; WINDOW];
        for at in 0..count.min(PREFETCH_DISTANCE + PROBE_DISTANCE) {
            self.ask_bucket(key_at(at));
        }
        for at in 0..count.min(PREFETCH_DISTANCE) {
            candidates[at % WINDOW] = self.ask_row(width, key_at(at));
        }
        for at in 0..count {
            if at + PREFETCH_DISTANCE + PROBE_DISTANCE < count {
                self.ask_bucket(key_at(at + PREFETCH_DISTANCE + PROBE_DISTANCE));
            }
            if at + PREFETCH_DISTANCE < count {
                candidates[(at + PREFETCH_DISTANCE) % WINDOW] =
                    self.ask_row(width, key_at(at + PREFETCH_DISTANCE));
            }
            let place = self.verify(candidates[at % WINDOW], key_at(at));
            act(self, at, place);
        }
    }

    #[inline(always)]
    fn ask_bucket(&self, key: u64) {
        if let Some(index) = &self.index {
            index.prefetch(Probe::new(key));
        }
    }

    #[inline(always)]
    fn ask_row<W: Width>(&self, width: W, key: u64) -> u32 {
        let Some(slot) = self
            .index
            .as_ref()
            .and_then(|index| index.candidate(Probe::new(key)))
        else {
            return NO_CANDIDATE;
        };
        self.slots.prefetch(width, slot);
        slot
    }

    /// The row of a key, given a guess of its slot.
    #[inline(always)]
    fn verify(&self, candidate: u32, key: u64) -> Option<Place> {
        if candidate != NO_CANDIDATE
            && let Some(place) = self.slots.find_slot(candidate)
            && self.slots.key(place) == key
        {
            return Some(place);
        }
        self.find_key(key)
    }

    /// Executes a block, each operation a transaction of its own, in order.
    pub(crate) fn run<W: Width, I: RowId>(
        &mut self,
        arena: &mut Arena,
        width: W,
        block: &mut Block<'_>,
    ) {
        let Block {
            ids,
            verbs,
            outcomes,
            rows,
            uniform,
        } = block;
        match uniform {
            Some(Verb::Select) => self.run_selects::<W, I>(width, ids, outcomes, rows),
            Some(Verb::Update) => self.run_updates::<W, I>(width, ids, outcomes, rows),
            Some(Verb::Insert) => self.run_inserts::<W, I>(arena, width, ids, outcomes, rows),
            Some(Verb::Delete) => self.run_deletes::<W, I>(arena, width, ids, outcomes),
            Some(Verb::Upsert) | None => {
                self.run_mixed::<W, I>(arena, width, verbs, ids, outcomes, rows)
            }
        }
    }

    fn run_selects<W: Width, I: RowId>(
        &mut self,
        width: W,
        ids: &[u64],
        outcomes: &mut [Code],
        rows: &mut [u64],
    ) {
        let cells = width.cells();
        self.each(
            width,
            ids.len(),
            Memory::Cold,
            |at| I::from_raw(ids[at]),
            |table, at, place| {
                outcomes[at] = table.select_into(width, place, &mut rows[at * cells..][..cells]);
            },
        );
    }

    fn run_updates<W: Width, I: RowId>(
        &mut self,
        width: W,
        ids: &[u64],
        outcomes: &mut [Code],
        rows: &[u64],
    ) {
        let cells = width.cells();
        self.each(
            width,
            ids.len(),
            Memory::Cold,
            |at| I::from_raw(ids[at]),
            |table, at, place| {
                outcomes[at] = table.update_from(width, place, &rows[at * cells..][..cells]);
            },
        );
    }

    fn run_deletes<W: Width, I: RowId>(
        &mut self,
        arena: &mut Arena,
        width: W,
        ids: &[u64],
        outcomes: &mut [Code],
    ) {
        self.each(
            width,
            ids.len(),
            Memory::Cold,
            |at| I::from_raw(ids[at]),
            |table, at, place| {
                outcomes[at] = table.delete_at(arena, place);
            },
        );
    }

    fn run_inserts<W: Width, I: RowId>(
        &mut self,
        arena: &mut Arena,
        width: W,
        ids: &mut [u64],
        outcomes: &mut [Code],
        rows: &mut [u64],
    ) {
        let cells = width.cells();
        for &key in &ids[..ids.len().min(PROBE_DISTANCE)] {
            self.ask_bucket(key);
        }
        for at in 0..ids.len() {
            if let Some(&ahead) = ids.get(at + PROBE_DISTANCE) {
                self.ask_bucket(ahead);
            }
            outcomes[at] = self.insert_from::<W, I>(
                arena,
                width,
                &mut ids[at],
                &mut rows[at * cells..][..cells],
            );
        }
    }

    fn run_mixed<W: Width, I: RowId>(
        &mut self,
        arena: &mut Arena,
        width: W,
        verbs: &[Verb],
        ids: &mut [u64],
        outcomes: &mut [Code],
        rows: &mut [u64],
    ) {
        let cells = width.cells();
        let ids = std::cell::Cell::from_mut(ids).as_slice_of_cells();
        self.each(
            width,
            ids.len(),
            Memory::Cold,
            |at| I::from_raw(ids[at].get()),
            |table, at, place| {
                let row = &mut rows[at * cells..][..cells];
                if verbs[at] == Verb::Select {
                    outcomes[at] = table.select_into(width, place, row);
                    return;
                }
                let id = ids[at].get();
                let done = table.one(
                    Means {
                        arena,
                        width,
                        images: &mut Single,
                    },
                    verbs[at],
                    I::from_raw(id),
                    place,
                    |cells| cells.copy_from_slice(row),
                );
                outcomes[at] = done.code;
                if verbs[at] == Verb::Insert || verbs[at] == Verb::Upsert {
                    ids[at].set(done.id);
                    if done.code.to_error(0, 0).is_some() {
                        row[0] = done.detail;
                    }
                }
            },
        );
    }

    /// Executes one operation whose row was looked for; a select only says whether it is there.
    #[inline(always)]
    pub(crate) fn one<W: Width, I: RowId>(
        &mut self,
        Means {
            arena,
            width,
            images,
        }: Means<'_, W, impl BeforeImages>,
        verb: Verb,
        id: I,
        place: Option<Place>,
        fill: impl FnOnce(&mut [u64]),
    ) -> Done {
        let found = if place.is_some() {
            Code::Done
        } else {
            Code::NotFound
        };
        let mut done = Done {
            code: found,
            id: id.raw(),
            detail: 0,
        };
        match (verb, place) {
            (Verb::Select, _) | (Verb::Update | Verb::Delete, None) => {}
            (Verb::Update | Verb::Upsert, Some(place)) => self.update(width, place, images, fill),
            (Verb::Delete, Some(place)) => self.delete(arena, place, images),
            (Verb::Insert, Some(_)) if I::KEYED => done.code = Code::Duplicate,
            (Verb::Insert | Verb::Upsert, _) => {
                let key = I::KEYED.then_some(id.raw());
                done.code = match self.insert(arena, width, key, images, fill) {
                    Ok(place) => {
                        done.id = self.slots.id(place).to_u64();
                        if verb == Verb::Upsert {
                            Code::Inserted
                        } else {
                            Code::Done
                        }
                    }
                    Err(error) => Code::of_error(&error, &mut done.id, &mut done.detail),
                };
            }
        }
        done
    }

    #[inline(always)]
    fn select_into<W: Width>(&self, width: W, place: Option<Place>, row: &mut [u64]) -> Code {
        let Some(place) = place else {
            return Code::NotFound;
        };
        row.copy_from_slice(self.slots.cells(width, place));
        Code::Done
    }

    #[inline(always)]
    fn update_from<W: Width>(&mut self, width: W, place: Option<Place>, row: &[u64]) -> Code {
        let Some(place) = place else {
            return Code::NotFound;
        };
        self.update(width, place, &mut Single, |cells| {
            cells.copy_from_slice(row)
        });
        Code::Done
    }

    #[inline(always)]
    fn delete_at(&mut self, arena: &mut Arena, place: Option<Place>) -> Code {
        let Some(place) = place else {
            return Code::NotFound;
        };
        self.delete(arena, place, &mut Single);
        Code::Done
    }

    /// Inserts a row; its direct id takes the place of `id`.
    #[inline(always)]
    fn insert_from<W: Width, I: RowId>(
        &mut self,
        arena: &mut Arena,
        width: W,
        id: &mut u64,
        row: &mut [u64],
    ) -> Code {
        let key = I::KEYED.then_some(*id);
        match self.insert(arena, width, key, &mut Single, |cells| {
            cells.copy_from_slice(row)
        }) {
            Ok(place) => {
                *id = self.slots.id(place).to_u64();
                Code::Done
            }
            Err(error) => Code::of_error(&error, id, &mut row[0]),
        }
    }
}
