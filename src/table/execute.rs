//! Many operations with their memory asked for in time.
//!
//! # Rolling
//! The memory of operation `i + 32` is asked for while operation `i` runs, so that up to 32 cache
//! misses are under way at once. By direct id that is one stage. By key it is two: the index bucket
//! of operation `i + 48` is asked for, then the bucket of `i + 32`, now there, gives a candidate
//! slot, whose row is asked for. Operation `i` then verifies the key in the row. A candidate is only
//! a guess: what operations in between change is seen, because the row must live and have the key,
//! and whoever fails that is looked up anew.
//!
//! A batch that knows the next one keeps rolling into it, so that short batches, one after the other,
//! run like a long one. Asking twice for the same line costs next to nothing.

use super::{
    BeforeImages, Block, Code, DirectId, Hint, Place, Probe, RowId, Single, TablePart, Verb, Width,
};
use crate::arena::Arena;
use crate::limits::{PREFETCH_DISTANCE, PROBE_DISTANCE};

/// Length of the windows between the stages; a power of two above the distances.
const WINDOW: usize = 64;

const _: () = assert!(WINDOW.is_power_of_two() && WINDOW >= PREFETCH_DISTANCE + PROBE_DISTANCE);

/// How the rows of a batch join those of the batches before and after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rolling<'a> {
    /// The first operations were asked for while the batch before ran.
    pub(crate) announced: bool,
    /// The ids of the next batch, to be asked for while this one runs.
    pub(crate) next: &'a [u64],
    /// How much of a row an operation reads or writes.
    pub(crate) part: RowPart,
}

impl Rolling<'_> {
    /// A batch on its own.
    pub(crate) const ALONE: Self = Self {
        announced: false,
        next: &[],
        part: RowPart::Whole,
    };
}

/// How much of a row is worth asking for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowPart {
    /// Header and key: enough to delete.
    Head,
    Whole,
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
    /// Finds the row of each id in order and lets `act` have it; `act` may change the table.
    #[inline(always)]
    pub(crate) fn each<W: Width, I: RowId>(
        &mut self,
        width: W,
        rolling: Rolling<'_>,
        count: usize,
        id_at: impl Fn(usize) -> I,
        act: impl FnMut(&mut Self, usize, Option<Place>),
    ) {
        // The id that is so many operations ahead, of this batch or the next.
        let ahead = |at: usize| {
            if at < count {
                Some(id_at(at).raw())
            } else {
                rolling.next.get(at - count).copied()
            }
        };
        if I::KEYED {
            self.each_key(width, rolling, count, ahead, act);
        } else {
            self.each_place(width, rolling, count, ahead, act);
        }
    }

    #[inline(always)]
    fn each_place<W: Width>(
        &mut self,
        width: W,
        rolling: Rolling<'_>,
        count: usize,
        ahead: impl Fn(usize) -> Option<u64>,
        mut act: impl FnMut(&mut Self, usize, Option<Place>),
    ) {
        if !rolling.announced {
            for id in (0..PREFETCH_DISTANCE).map_while(&ahead) {
                self.slots
                    .ask(width, rolling.part, DirectId::from_u64(id).slot());
            }
        }
        for at in 0..count {
            if let Some(id) = ahead(at + PREFETCH_DISTANCE) {
                self.slots
                    .ask(width, rolling.part, DirectId::from_u64(id).slot());
            }
            let place = ahead(at).and_then(|id| self.slots.find(DirectId::from_u64(id)));
            act(self, at, place);
        }
    }

    #[inline(always)]
    fn each_key<W: Width>(
        &mut self,
        width: W,
        rolling: Rolling<'_>,
        count: usize,
        ahead: impl Fn(usize) -> Option<u64>,
        mut act: impl FnMut(&mut Self, usize, Option<Place>),
    ) {
        let part = rolling.part;
        let mut hints = [None; WINDOW];
        let mut guesses = [None; WINDOW];
        for (at, hint) in hints
            .iter_mut()
            .take(PREFETCH_DISTANCE + PROBE_DISTANCE)
            .enumerate()
        {
            *hint = ahead(at).and_then(|key| self.ask_bucket(key));
        }
        for (guess, hint) in guesses.iter_mut().zip(hints).take(PREFETCH_DISTANCE) {
            *guess = self.ask_row(width, part, hint);
        }
        for at in 0..count {
            let bucket = at + PREFETCH_DISTANCE + PROBE_DISTANCE;
            hints[bucket % WINDOW] = ahead(bucket).and_then(|key| self.ask_bucket(key));
            let row = at + PREFETCH_DISTANCE;
            guesses[row % WINDOW] = self.ask_row(width, part, hints[row % WINDOW]);
            let place = ahead(at).and_then(|key| self.verify(guesses[at % WINDOW], key));
            act(self, at, place);
        }
    }

    /// Asks for the index buckets of the first keys of a batch of inserts.
    #[inline(always)]
    pub(crate) fn ask_first(&self, rolling: Rolling<'_>, keys: &[u64]) {
        if !rolling.announced {
            for &key in keys.iter().take(PREFETCH_DISTANCE) {
                self.ask_bucket(key);
            }
        }
    }

    /// Asks for the bucket of the key that is inserted some time after number `at`.
    #[inline(always)]
    pub(crate) fn ask_ahead(&self, rolling: Rolling<'_>, keys: &[u64], at: usize) {
        let ahead = at + PREFETCH_DISTANCE;
        if let Some(&key) = keys
            .get(ahead)
            .or_else(|| rolling.next.get(ahead.checked_sub(keys.len())?))
        {
            self.ask_bucket(key);
        }
    }

    #[inline(always)]
    fn ask_bucket(&self, key: u64) -> Option<Hint> {
        self.index.as_ref().map(|index| index.ask(Probe::new(key)))
    }

    /// Guesses a key's row and asks for it.
    #[inline(always)]
    fn ask_row<W: Width>(&self, width: W, part: RowPart, hint: Option<Hint>) -> Option<Place> {
        let slot = self.index.as_ref()?.candidate(hint?)?;
        self.slots.ask(width, part, slot)
    }

    /// The row of a key, given a guess.
    #[inline(always)]
    fn verify(&self, guess: Option<Place>, key: u64) -> Option<Place> {
        match guess {
            Some(place) if self.slots.is_live(place) && self.slots.key(place) == key => guess,
            _ => self.find_key(key),
        }
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
            Rolling::ALONE,
            ids.len(),
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
            Rolling::ALONE,
            ids.len(),
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
            Rolling {
                part: RowPart::Head,
                ..Rolling::ALONE
            },
            ids.len(),
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
        if I::KEYED {
            self.ask_first(Rolling::ALONE, ids);
        }
        for at in 0..ids.len() {
            if I::KEYED {
                self.ask_ahead(Rolling::ALONE, ids, at);
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
            Rolling::ALONE,
            ids.len(),
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
