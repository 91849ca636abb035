//! The CompleteDB workload: what is done to which row, in which order.
//!
//! A table of N columns of 8 bytes is filled; then every thread walks **its own** rows in an order
//! that was shuffled once (a seeded permutation: every row once before any row twice). The threads'
//! rows are disjoint, so that every answer can be checked; whether they lie in the thread's own
//! shard (`local`) or are spread over the whole table (`routed`) is decided by who gets which row.
//!
//! - INSERT starts from an empty table and ends with a full one.
//! - SELECT copies every column into local memory, UPDATE writes every column.
//! - DELETE deletes every row once.
//! - MIXED repeats 1 delete, 4 updates, 8 inserts and 64 selects, in this order; its inserts put
//!   their rows at random places shortly behind the walk, so that nothing is visited again while it
//!   is still in a cache.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use clap::ValueEnum;

use crate::failure::Failure;
use crate::random::XorShift;
use crate::subject::Chunk;

/// State of the id order in every report.
pub const ID_DISTRIBUTION: &str =
    "seeded permutation of each thread's own rows, walked in a circle; keys without order";

/// Inserted rows are visited again after one whole round of the walk, less at most this many.
const PLACE_BEHIND_MAX: usize = 4_096;

/// One kind of operation, or the mixture of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub enum Operation {
    /// New rows into an empty table.
    Insert,
    /// All columns of a row into local memory.
    Select,
    /// All columns of a row.
    Update,
    /// Every row once.
    Delete,
    /// 1 delete : 4 updates : 8 inserts : 64 selects.
    Mixed,
}

impl Operation {
    /// In the order in which a table is built, used and emptied.
    pub const ALL: [Self; 5] = [
        Self::Insert,
        Self::Select,
        Self::Update,
        Self::Delete,
        Self::Mixed,
    ];

    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Select => "select",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Mixed => "mixed",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// How rows are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// By physical place.
    Direct,
    /// By unique key through a hash index.
    Surrogate,
}

impl Access {
    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Surrogate => "surrogate",
        }
    }
}

/// The cells of the row written with `seed`: consecutive numbers, so that a torn row is noticed.
#[inline(always)]
pub fn row_of<const N: usize>(seed: u64) -> [u64; N] {
    std::array::from_fn(|column| seed.wrapping_add(column as u64))
}

/// The row of `seed` as a user brings it to a store: in memory of the user's own, from where it is
/// copied to its place. A loop that builds rows at their place is spared a copy that no store is.
#[inline(always)]
pub fn brought<const N: usize>(seed: u64) -> [u64; N] {
    let mut row = row_of(seed);
    std::hint::black_box(&mut row);
    row
}

/// Identity of a row for its thread: a place or a key.
pub trait Identity: Copy + Ord + Send + fmt::Debug + 'static {
    /// The key to use again once the row is gone; places have none.
    fn key(self) -> u64;
}

impl Identity for u32 {
    fn key(self) -> u64 {
        0
    }
}

impl Identity for u64 {
    fn key(self) -> u64 {
        self
    }
}

/// One operation of MIXED.
#[derive(Debug, Clone, Copy)]
pub enum Draw<I> {
    /// Read all columns.
    Select(I),
    /// Write all columns, of this seed.
    Update(I, u64),
    /// Delete.
    Delete(I),
    /// Insert under this key (or, where rows have no key, with this seed).
    Insert(u64),
}

/// One thread's rows and its walk over them.
pub struct Stream<I> {
    ids: Vec<I>,
    cursor: usize,
    // Rows before this place are deleted already; not zero only while DELETE runs.
    dead: usize,
    rows: usize,
    growth_max: usize,
    // Keys of rows that are not in the table, first in, first out; none for rows without keys.
    spare: Option<VecDeque<u64>>,
    seed: u64,
    random: XorShift,
    // Operations of the present cycle of MIXED that were drawn.
    drawn: usize,
    filled_once: bool,
    // Rows stand in the order of their insertion; they are to be shuffled.
    in_order: bool,
}

/// Updates of one cycle of MIXED.
pub const UPDATES: usize = 4;

/// Inserts of one cycle of MIXED.
pub const INSERTS: usize = 8;

/// Selects of one cycle of MIXED.
pub const SELECTS: usize = 64;

/// Operations of one cycle of MIXED.
pub const CYCLE: usize = 1 + UPDATES + INSERTS + SELECTS;

/// One cycle of MIXED, in the order of its fields.
#[derive(Debug, Clone, Copy)]
pub struct Cycle<I> {
    /// Deleted first.
    pub delete: I,
    /// Updated next.
    pub updates: [I; UPDATES],
    /// Keys (or, where rows have no key, seeds) of new rows.
    pub inserts: [u64; INSERTS],
    /// Read last.
    pub selects: [I; SELECTS],
}

impl<I: Identity> Stream<I> {
    /// A walk over `rows` rows known by their place.
    pub fn direct(rows: usize, seed: u64) -> Self {
        Self::new(rows, None, seed)
    }

    /// A walk over `rows` rows known by their key; `keys` holds [`key_count`] of them at least.
    pub fn keyed(rows: usize, keys: Vec<u64>, seed: u64) -> Self {
        assert!(keys.len() >= key_count(rows), "too few keys");
        Self::new(rows, Some(keys.into()), seed)
    }

    fn new(rows: usize, spare: Option<VecDeque<u64>>, seed: u64) -> Self {
        Self {
            ids: Vec::with_capacity(rows + growth_max(rows)),
            cursor: 0,
            dead: 0,
            rows,
            growth_max: growth_max(rows),
            spare,
            seed: seed << 32,
            random: XorShift::new(seed),
            drawn: 0,
            filled_once: false,
            in_order: false,
        }
    }

    /// The rows of the walk, in its order.
    #[inline(always)]
    pub fn ids(&self) -> &[I] {
        &self.ids
    }

    /// Rows that are in the table now.
    pub fn live(&self) -> usize {
        self.ids.len() - self.dead
    }

    /// Replaces the walk's rows: for routes that deal the rows of all shards out to all threads.
    pub fn deal(&mut self, ids: Vec<I>) {
        assert_eq!(
            ids.len(),
            self.rows,
            "a thread gets as many rows as it made"
        );
        self.ids.clear();
        self.ids.extend(ids);
        self.cursor = 0;
        self.random.shuffle(&mut self.ids);
    }

    /// Up to `most` places of the walk that come next, without a turn at its end.
    #[inline]
    pub fn span(&mut self, most: usize) -> Range<usize> {
        let start = if self.cursor >= self.ids.len() {
            0
        } else {
            self.cursor
        };
        let end = (start + most).min(self.ids.len());
        self.cursor = end;
        start..end
    }

    /// Up to `most` places whose rows are deleted next.
    #[inline]
    pub fn doomed(&mut self, most: usize) -> Range<usize> {
        let start = self.dead;
        self.dead = (start + most).min(self.ids.len());
        start..self.dead
    }

    /// Rows that INSERT still has to make, at most `most`.
    #[inline]
    pub fn missing(&self, most: usize) -> usize {
        self.rows.saturating_sub(self.ids.len()).min(most)
    }

    /// Cycles of MIXED, at most `most` operations, before the table has grown as far as it may.
    #[inline]
    pub fn cycles_left(&self, most: usize) -> usize {
        let growth_left = (self.rows + self.growth_max).saturating_sub(self.ids.len());
        (growth_left / INSERTS).min(most.div_ceil(CYCLE))
    }

    /// The key (or seed) of the next new row.
    #[inline(always)]
    pub fn next_key(&mut self) -> u64 {
        match &mut self.spare {
            Some(keys) => keys.pop_front().unwrap_or(u64::MAX - 1),
            None => self.next_seed(),
        }
    }

    /// A number that no row was written with before.
    #[inline(always)]
    pub fn next_seed(&mut self) -> u64 {
        self.seed += 1;
        self.seed
    }

    /// Puts a row that INSERT made at the end of the walk.
    #[inline(always)]
    pub fn push(&mut self, id: I) {
        self.in_order = true;
        self.ids.push(id);
    }

    /// The next operation of MIXED.
    #[inline(always)]
    pub fn draw(&mut self) -> Draw<I> {
        let place = self.drawn;
        self.drawn = if place + 1 == CYCLE { 0 } else { place + 1 };
        match place {
            0 => Draw::Delete(self.take_out()),
            1..=4 => {
                let id = self.take();
                Draw::Update(id, self.next_seed())
            }
            5..=12 => Draw::Insert(self.next_key()),
            _ => Draw::Select(self.take()),
        }
    }

    /// The next whole cycle of MIXED.
    #[inline(always)]
    pub fn draw_cycle(&mut self, cycle: &mut Cycle<I>) {
        cycle.delete = self.take_out();
        cycle.updates = std::array::from_fn(|_| self.take());
        cycle.inserts = std::array::from_fn(|_| self.next_key());
        match self.ids.get(self.cursor..self.cursor + SELECTS) {
            Some(ids) => {
                cycle.selects.copy_from_slice(ids);
                self.cursor += SELECTS;
            }
            None => cycle.selects = std::array::from_fn(|_| self.take()),
        }
    }

    /// A cycle to be drawn into; `None` in an empty table.
    pub fn new_cycle(&self) -> Option<Cycle<I>> {
        let filler = *self.ids.first()?;
        Some(Cycle {
            delete: filler,
            updates: [filler; UPDATES],
            inserts: [0; INSERTS],
            selects: [filler; SELECTS],
        })
    }

    #[inline(always)]
    fn take(&mut self) -> I {
        if self.cursor >= self.ids.len() {
            self.cursor = 0;
        }
        self.cursor += 1;
        self.ids[self.cursor - 1]
    }

    #[inline(always)]
    fn take_out(&mut self) -> I {
        if self.cursor >= self.ids.len() {
            self.cursor = 0;
        }
        let id = self.ids.swap_remove(self.cursor);
        self.release(id);
        id
    }

    /// Puts a row that MIXED made behind the walk; the row there goes to the end.
    #[inline(always)]
    pub fn place(&mut self, id: I) {
        let back = 1 + (self.random.next_bits() as usize & (PLACE_BEHIND_MAX - 1));
        if back > self.cursor || self.cursor - back >= self.ids.len() {
            self.ids.push(id);
            return;
        }
        let moved = std::mem::replace(&mut self.ids[self.cursor - back], id);
        self.ids.push(moved);
    }

    /// Forgets the rows that DELETE deleted.
    pub fn settle(&mut self) {
        for place in 0..self.dead {
            self.release(self.ids[place]);
        }
        self.ids.drain(..self.dead);
        self.dead = 0;
    }

    /// Forgets all rows: the table was emptied.
    pub fn clear(&mut self) {
        self.dead = self.ids.len();
        self.settle();
        self.cursor = 0;
    }

    /// Takes the rows beyond the wanted number out of the walk; they are to be deleted.
    pub fn surplus(&mut self) -> Vec<I> {
        self.settle();
        let surplus = self.ids.split_off(self.rows.min(self.ids.len()));
        surplus.iter().for_each(|id| self.release(*id));
        surplus
    }

    fn release(&mut self, id: I) {
        if let Some(keys) = &mut self.spare {
            keys.push_back(id.key());
        }
    }
}

/// How far MIXED may let a thread's `rows` grow before they are cut back outside the clock.
pub fn growth_max(rows: usize) -> usize {
    (rows / 5).clamp(64, 2_000_000)
}

/// Distinct keys that a thread needs for `rows` rows: new ones must be at hand while MIXED grows.
pub fn key_count(rows: usize) -> usize {
    rows + growth_max(rows) + 4 * CYCLE
}

/// One thread's rows in a subject: what it takes to run every operation of the workload.
pub trait Part {
    /// How a row is known.
    type Id: Identity;

    /// The walk.
    fn stream(&mut self) -> &mut Stream<Self::Id>;

    /// Up to about `most` operations; none when the rows are used up.
    fn chunk(&mut self, operation: Operation, most: usize) -> Chunk;

    /// Deletes these rows.
    fn remove(&mut self, ids: &[Self::Id]) -> Chunk;

    /// Deletes all rows, by whatever is fastest.
    ///
    /// # Errors
    /// Whatever the subject reports.
    fn clear(&mut self) -> Result<(), Failure>;

    /// Brings the rows into the state `operation` starts from.
    ///
    /// # Errors
    /// Whatever the subject reports, or wrong answers.
    fn prepare(&mut self, operation: Operation) -> Result<(), Failure> {
        self.prepare_full(operation)?;
        self.prepare_empty(operation)
    }

    /// First half: the table is full, unless INSERT is to start and memory was touched before.
    ///
    /// # Errors
    /// As `prepare`.
    fn prepare_full(&mut self, operation: Operation) -> Result<(), Failure> {
        self.stream().settle();
        if operation != Operation::Insert || !self.stream().filled_once {
            self.trim()?;
            self.fill()?;
        }
        Ok(())
    }

    /// Second half: the table is empty where INSERT is to start.
    ///
    /// # Errors
    /// As `prepare`.
    fn prepare_empty(&mut self, operation: Operation) -> Result<(), Failure> {
        if operation == Operation::Insert {
            self.clear()?;
            self.stream().clear();
        }
        Ok(())
    }

    /// Deletes what MIXED added.
    ///
    /// # Errors
    /// Wrong answers.
    fn trim(&mut self) -> Result<(), Failure> {
        let surplus = self.stream().surplus();
        let done = self.remove(&surplus);
        faultless(done, "cutting back")
    }

    /// Inserts what is missing and shuffles the walk.
    ///
    /// # Errors
    /// Wrong answers.
    fn fill(&mut self) -> Result<(), Failure> {
        self.fill_by_inserts()
    }

    /// What `fill` does where nothing better is known.
    ///
    /// # Errors
    /// Wrong answers.
    fn fill_by_inserts(&mut self) -> Result<(), Failure> {
        if self.stream().missing(1) == 0 && !self.stream().in_order {
            return Ok(());
        }
        loop {
            let done = self.chunk(Operation::Insert, 4_096);
            faultless(done, "loading")?;
            if done.operations == 0 {
                break;
            }
        }
        let stream = self.stream();
        stream.filled_once = true;
        stream.cursor = 0;
        stream.random.shuffle(&mut stream.ids);
        stream.in_order = false;
        Ok(())
    }
}

fn faultless(done: Chunk, doing: &str) -> Result<(), Failure> {
    if done.faults == 0 {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{} wrong answers while {doing}",
        done.faults
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_draws_one_four_eight_and_sixty_four() {
        let mut stream = Stream::<u32>::direct(10_000, 3);
        (0..10_000).for_each(|id| stream.push(id));
        let mut counts = [0_usize; 4];
        for round in 0..77 * 10 {
            match stream.draw() {
                Draw::Delete(_) => counts[0] += 1,
                Draw::Update(..) => counts[1] += 1,
                Draw::Insert(_) => {
                    counts[2] += 1;
                    stream.place(10_000 + round);
                }
                Draw::Select(_) => counts[3] += 1,
            }
        }
        assert_eq!(counts, [10, 40, 80, 640]);
        assert_eq!(stream.live(), 10_070);
    }

    #[test]
    fn a_walk_visits_every_row_once_a_round_and_delete_ends() {
        let mut stream = Stream::<u32>::direct(100, 3);
        (0..100).for_each(|id| stream.push(id));
        let mut seen = Vec::new();
        while seen.len() < 100 {
            let span = stream.span(33);
            seen.extend_from_slice(&stream.ids()[span]);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
        assert_eq!(stream.doomed(70).len() + stream.doomed(70).len(), 100);
        assert!(stream.doomed(70).is_empty());
        stream.settle();
        assert_eq!((stream.live(), stream.missing(1_000)), (0, 100));
    }

    #[test]
    fn keys_of_deleted_rows_come_back_last() {
        let keys: Vec<u64> = (0..key_count(10) as u64).collect();
        let mut stream = Stream::<u64>::keyed(10, keys, 1);
        for _ in 0..10 {
            let key = stream.next_key();
            stream.push(key);
        }
        stream.clear();
        assert_eq!(stream.next_key(), 10);
    }
}
