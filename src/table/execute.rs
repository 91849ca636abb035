//! Many operations with their memory asked for in time.
//!
//! # Rolling
//! The memory of operation `i + 48` is asked for while operation `i` runs, so that up to 48 cache
//! misses are under way at once. By direct id that is one stage. By key it is two: the index bucket
//! of operation `i + 64` is asked for, then the bucket of `i + 48`, now there, gives a candidate
//! slot, whose row is asked for. Operation `i` then verifies the key in the row. A candidate is only
//! a guess: what operations in between change is seen, because the row must live and have the key,
//! and whoever fails that is looked up anew.
//!
//! A batch that knows the next one keeps rolling into it, so that short batches, one after the other,
//! run like a long one. Asking twice for the same line costs next to nothing.

use std::cell::Cell;
use std::ops::ControlFlow;

use super::{
    BeforeImages, Block, Code, DirectId, Dynamic, Hint, Place, Probe, RowId, Single, TablePart,
    Verb, Verbs, Width,
};
use crate::arena::Arena;
use crate::error::Error;
use crate::limits::{PREFETCH_DISTANCE, PROBE_DISTANCE};

/// Length of the windows between the stages; a power of two above the distances.
const WINDOW: usize = 64;

const _: () = assert!(WINDOW.is_power_of_two() && WINDOW >= PREFETCH_DISTANCE + PROBE_DISTANCE);

/// What was asked for and is not used yet.
pub(super) struct Window {
    hints: [Option<Hint>; WINDOW],
    guesses: [Option<Place>; WINDOW],
    /// Where the batch's first operation is.
    first: usize,
}

impl Window {
    fn new() -> Box<Self> {
        Box::new(Self {
            hints: [None; WINDOW],
            guesses: [None; WINDOW],
            first: 0,
        })
    }

    #[inline(always)]
    fn at(&self, operation: usize) -> usize {
        self.first.wrapping_add(operation) % WINDOW
    }
}

/// The windows of a table: one goes from batch to batch, as long as each tells the next; the other
/// is for batches that come between.
#[derive(Default)]
pub(super) struct Windows {
    rolling: Option<Box<Window>>,
    alone: Option<Box<Window>>,
    /// The first id of the batch that was asked for.
    expected: Option<u64>,
}

impl Windows {
    /// Whether the batch that begins with this id was asked for by the one before.
    #[inline(always)]
    fn expects(&mut self, first: Option<u64>) -> bool {
        let expects = first.is_some() && self.expected == first;
        if expects {
            self.expected = None;
        }
        expects
    }

    /// Ends a batch whose next one begins with this id.
    #[inline(always)]
    fn expect(&mut self, next: &[u64]) {
        if let Some(&first) = next.first() {
            self.expected = Some(first);
        }
    }

    /// Lends a window; it is gone if its user unwinds, and made anew.
    #[inline(always)]
    fn lend(&mut self, rolls: bool) -> Box<Window> {
        let window = if rolls {
            &mut self.rolling
        } else {
            &mut self.alone
        };
        window.take().unwrap_or_else(Window::new)
    }

    #[inline(always)]
    fn give_back(&mut self, rolls: bool, window: Box<Window>) {
        *if rolls {
            &mut self.rolling
        } else {
            &mut self.alone
        } = Some(window);
    }
}

/// How the rows of a batch join those of the batches before and after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rolling<'a> {
    /// The ids of the next batch, to be asked for while this one runs.
    pub(crate) next: &'a [u64],
    /// How much of a row an operation reads or writes.
    pub(crate) part: RowPart,
}

impl Rolling<'_> {
    /// A batch on its own.
    pub(crate) const ALONE: Self = Self {
        next: &[],
        part: RowPart::Whole,
    };

    /// The id of operation `at`, of this batch of `count` or of the next.
    #[inline(always)]
    fn ahead(self, at: usize, count: usize, id_at: impl Fn(usize) -> u64) -> Option<u64> {
        if at < count {
            Some(id_at(at))
        } else {
            self.next.get(at - count).copied()
        }
    }
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
    /// Starts reading the row of one id; of a key, first its bucket, and the row when it is asked for
    /// again `near` its use.
    pub(crate) fn ask<I: RowId>(&self, id: I, near: bool) {
        let width = Dynamic(self.columns);
        if !I::KEYED {
            let slot = DirectId::from_u64(id.raw()).slot();
            self.slots.ask(width, RowPart::Whole, slot);
            return;
        }
        let Some(index) = &self.index else { return };
        let hint = index.ask(Probe::new(id.raw()));
        if near && let Some(slot) = index.candidate(hint) {
            self.slots.ask(width, RowPart::Whole, slot);
        }
    }

    /// Asks for the rows of operations that come soon. By key this waits for the index.
    pub(crate) fn prepare<W: Width, I: RowId>(&self, width: W, ids: &[I]) {
        let Some(index) = self.index.as_ref().filter(|_| I::KEYED) else {
            for id in ids.iter().filter(|_| !I::KEYED) {
                self.slots
                    .ask(width, RowPart::Whole, DirectId::from_u64(id.raw()).slot());
            }
            return;
        };
        for ids in ids.chunks(WINDOW) {
            let mut hints = [None; WINDOW];
            for (hint, id) in hints.iter_mut().zip(ids) {
                *hint = Some(index.ask(Probe::new(id.raw())));
            }
            for slot in hints
                .iter()
                .flatten()
                .filter_map(|hint| index.candidate(*hint))
            {
                self.slots.ask(width, RowPart::Whole, slot);
            }
        }
    }

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
        let ahead = |at: usize| rolling.ahead(at, count, |at| id_at(at).raw());
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
        if !self.windows.expects(ahead(0)) {
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
        self.windows.expect(rolling.next);
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
        let is_expected = self.windows.expects(ahead(0));
        let rolls = is_expected || !rolling.next.is_empty();
        let mut window = self.windows.lend(rolls);
        let known = count + rolling.next.len();
        if !is_expected {
            for at in 0..known.min(PREFETCH_DISTANCE + PROBE_DISTANCE) {
                self.ask_bucket(&mut window, at, ahead(at));
            }
            for at in 0..known.min(PREFETCH_DISTANCE) {
                self.ask_row(&mut window, width, part, at);
            }
        }
        for at in 0..count {
            let (row, bucket) = (
                at + PREFETCH_DISTANCE,
                at + PREFETCH_DISTANCE + PROBE_DISTANCE,
            );
            if bucket < known {
                self.ask_bucket(&mut window, bucket, ahead(bucket));
            }
            if row < known {
                self.ask_row(&mut window, width, part, row);
            }
            let place = ahead(at).and_then(|key| self.verify(&window, at, key));
            act(self, at, place);
        }
        window.first = window.first.wrapping_add(count);
        self.windows.give_back(rolls, window);
        self.windows.expect(rolling.next);
    }

    /// Inserts rows with keys in order, index buckets asked for; `fill` writes the cells of each, and
    /// `done` is told what became of it and says whether to go on.
    #[inline(always)]
    pub(crate) fn insert_each_key<W: Width>(
        &mut self,
        Means {
            arena,
            width,
            images,
        }: Means<'_, W, Single>,
        rolling: Rolling<'_>,
        count: usize,
        key_at: impl Fn(usize) -> u64,
        fill: impl Fn(usize, &mut [u64]),
        mut done: impl FnMut(&Self, usize, Result<Place, Error>) -> ControlFlow<()>,
    ) {
        let ahead = |at: usize| rolling.ahead(at, count, &key_at);
        if !self.windows.expects(ahead(0)) {
            for key in (0..PREFETCH_DISTANCE).map_while(ahead) {
                self.hint(Some(key));
            }
        }
        for at in 0..count {
            self.hint(ahead(at + PREFETCH_DISTANCE));
            let key = Some(key_at(at));
            let result = self.insert(arena, width, key, images, |cells| fill(at, cells));
            if done(self, at, result).is_break() {
                return;
            }
        }
        self.windows.expect(rolling.next);
    }

    /// Inserts rows without keys, in runs of neighbouring slots where they are fresh.
    #[inline(always)]
    pub(crate) fn insert_each<W: Width>(
        &mut self,
        arena: &mut Arena,
        width: W,
        count: usize,
        fill: impl Fn(usize, &mut [u64]),
        mut done: impl FnMut(usize, Result<DirectId, Error>) -> ControlFlow<()>,
    ) {
        let mut at = 0;
        while at < count {
            let run = self.slots.fresh_run(count - at);
            if run > 0 && self.index.is_none() {
                self.slots.fill_run(
                    arena,
                    width,
                    run,
                    |k, cells| fill(at + k, cells),
                    |k, id| {
                        // What fits a slab cannot fail.
                        let _ = done(at + k, Ok(id));
                    },
                );
                #[cfg(test)]
                for slot in self.slots.next() - run as u32..self.slots.next() {
                    self.note(self.slots.place(slot), true);
                }
                at += run;
                continue;
            }
            let place = self.insert(arena, width, None, &mut Single, |cells| fill(at, cells));
            let id = place.map(|place| self.slots.id(place));
            if done(at, id).is_break() {
                return;
            }
            at += 1;
        }
    }

    /// Asks for the bucket of a key, `at` operations into the batch.
    #[inline(always)]
    fn ask_bucket(&self, window: &mut Window, at: usize, key: Option<u64>) {
        window.hints[window.at(at)] = self.hint(key);
    }

    #[inline(always)]
    fn hint(&self, key: Option<u64>) -> Option<Hint> {
        match (key, &self.index) {
            (Some(key), Some(index)) => Some(index.ask(Probe::new(key))),
            _ => None,
        }
    }

    /// Guesses the row of a key whose bucket was asked for, and asks for it.
    #[inline(always)]
    fn ask_row<W: Width>(&self, window: &mut Window, width: W, part: RowPart, at: usize) {
        let guess = match (window.hints[window.at(at)], &self.index) {
            (Some(hint), Some(index)) => index
                .candidate(hint)
                .and_then(|slot| self.slots.ask(width, part, slot)),
            _ => None,
        };
        window.guesses[window.at(at)] = guess;
    }

    /// The row of a key, for which there may be a guess.
    #[inline(always)]
    fn verify(&self, window: &Window, at: usize, key: u64) -> Option<Place> {
        match window.guesses[window.at(at)] {
            Some(place) if self.slots.is_live(place) && self.slots.key(place) == key => Some(place),
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
        match block.verbs {
            Verbs::All(Verb::Select) => self.run_selects::<W, I>(width, block),
            Verbs::All(Verb::Update) => self.run_updates::<W, I>(arena, width, block),
            Verbs::All(Verb::Insert) => self.run_inserts::<W, I>(arena, width, block),
            Verbs::All(Verb::Delete) => self.run_deletes::<W, I>(arena, width, block),
            verbs => self.run_mixed::<W, I>(arena, width, verbs, block),
        }
    }

    fn run_selects<W: Width, I: RowId>(&mut self, width: W, block: &mut Block<'_>) {
        let Block {
            ids,
            outcomes,
            rows,
            rolling,
            ..
        } = block;
        let (count, cells) = (ids.len(), width.cells());
        let id_at = |at: usize| I::from_raw(ids[at]);
        self.each(width, *rolling, count, id_at, |table, at, place| {
            outcomes[at] = table.select_into(width, place, &mut rows[at * cells..][..cells]);
        });
    }

    fn run_updates<W: Width, I: RowId>(
        &mut self,
        arena: &mut Arena,
        width: W,
        block: &mut Block<'_>,
    ) {
        let Block {
            ids,
            outcomes,
            rows,
            rolling,
            ..
        } = block;
        let (count, cells) = (ids.len(), width.cells());
        let id_at = |at: usize| I::from_raw(ids[at]);
        self.each(width, *rolling, count, id_at, |table, at, place| {
            outcomes[at] = table.update_from(arena, width, place, &rows[at * cells..][..cells]);
        });
    }

    fn run_deletes<W: Width, I: RowId>(
        &mut self,
        arena: &mut Arena,
        width: W,
        block: &mut Block<'_>,
    ) {
        let Block {
            ids,
            outcomes,
            rolling,
            ..
        } = block;
        let rolling = Rolling {
            part: RowPart::Head,
            ..*rolling
        };
        let id_at = |at: usize| I::from_raw(ids[at]);
        self.each(width, rolling, ids.len(), id_at, |table, at, place| {
            outcomes[at] = table.delete_at(arena, place);
        });
    }

    fn run_inserts<W: Width, I: RowId>(
        &mut self,
        arena: &mut Arena,
        width: W,
        block: &mut Block<'_>,
    ) {
        let Block {
            ids,
            outcomes,
            rows,
            rolling,
            ..
        } = block;
        let (cells, count) = (width.cells(), ids.len());
        let ids = Cell::from_mut(&mut **ids).as_slice_of_cells();
        let rows = Cell::from_mut(&mut **rows).as_slice_of_cells();
        let fill = |at: usize, row: &mut [u64]| {
            for (cell, given) in row.iter_mut().zip(&rows[at * cells..][..cells]) {
                *cell = given.get();
            }
        };
        let mut done = |at: usize, result: Result<DirectId, Error>| {
            outcomes[at] = match result {
                Ok(id) => {
                    ids[at].set(id.to_u64());
                    Code::Done
                }
                Err(error) => {
                    let (mut id, mut detail) = (ids[at].get(), 0);
                    let code = Code::of_error(&error, &mut id, &mut detail);
                    ids[at].set(id);
                    rows[at * cells].set(detail);
                    code
                }
            };
            ControlFlow::Continue(())
        };
        if I::KEYED {
            let done = |part: &Self, at, result: Result<Place, Error>| {
                done(at, result.map(|place| part.id(place)))
            };
            let means = Means {
                arena,
                width,
                images: &mut Single,
            };
            self.insert_each_key(means, *rolling, count, |at| ids[at].get(), fill, done);
        } else {
            self.insert_each(arena, width, count, fill, done);
        }
    }

    fn run_mixed<W: Width, I: RowId>(
        &mut self,
        arena: &mut Arena,
        width: W,
        verbs: Verbs<'_>,
        block: &mut Block<'_>,
    ) {
        let Block {
            ids,
            outcomes,
            rows,
            rolling,
            ..
        } = block;
        let cells = width.cells();
        let ids = Cell::from_mut(&mut **ids).as_slice_of_cells();
        let id_at = |at: usize| I::from_raw(ids[at].get());
        self.each(width, *rolling, ids.len(), id_at, |table, at, place| {
            let row = &mut rows[at * cells..][..cells];
            let verb = verbs.of(at);
            if verb == Verb::Select {
                outcomes[at] = table.select_into(width, place, row);
                return;
            }
            let means = Means {
                arena,
                width,
                images: &mut Single,
            };
            let done = table.one(means, verb, id_at(at), place, |cells| {
                cells.copy_from_slice(row)
            });
            outcomes[at] = done.code;
            if verb == Verb::Insert || verb == Verb::Upsert {
                ids[at].set(done.id);
                if done.code.to_error(0, 0).is_some() {
                    row[0] = done.detail;
                }
            }
        });
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
            (Verb::Update | Verb::Upsert, Some(place)) => {
                self.update(arena, width, place, images, fill)
            }
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
    fn update_from<W: Width>(
        &mut self,
        arena: &mut Arena,
        width: W,
        place: Option<Place>,
        row: &[u64],
    ) -> Code {
        let Some(place) = place else {
            return Code::NotFound;
        };
        self.update(arena, width, place, &mut Single, |cells| {
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
}
