//! The limit of access by key: a bare bucket table and a flat array of rows, key beside the row.
//!
//! A rolling window of three stages: the key's bucket is prefetched, later its tag is looked up and the
//! row prefetched, and last the key is compared and the operation done. A row takes an even number of words, since strides that share a large factor with
//! the cache line touch fewer lines.
#![expect(
    unsafe_code,
    reason = "the bare loop reads rows at places that are its own"
)]

use std::cmp::min;
use std::ops::Range;

use super::bucket::{Buckets, Home};
use super::{DISTANCES, Distances, Tuned, prefetch};
use crate::failure::Failure;
use crate::oracle::{Model, Oracle, Trust};
use crate::region::Region;
use crate::subject::Chunk;
use crate::workload::{
    CYCLE, Cycle, INSERTS, Operation, Part, SELECTS, Stream, UPDATES, brought, growth_max,
};

/// In the key's word of a deleted row; no key of the workload.
const DEAD: u64 = u64::MAX;

/// Operations under way at once: more than twice the longest distance, a power of two.
const WINDOW: usize = 256;

/// One core's rows, found by key.
pub struct Keyed<const N: usize> {
    buckets: Buckets,
    // `STRIDE` words a row: its key, its cells, perhaps one unused.
    words: Region<u64>,
    room: usize,
    // Places below were used at least once; every place in the table or in `free` is below.
    bump: usize,
    free: Vec<u32>,
    stream: Stream<u64>,
    distances: Distances,
    model: Option<Model<u64>>,
}

/// One cycle of MIXED on its way through the stages.
#[derive(Clone, Copy)]
struct Asked {
    cycle: Cycle<u64>,
    delete: Home,
    updates: [Home; UPDATES],
    inserts: [Home; INSERTS],
    selects: [Home; SELECTS],
    update_places: [u32; UPDATES],
    select_places: [u32; SELECTS],
}

impl Asked {
    fn new(cycle: Cycle<u64>) -> Self {
        Self {
            cycle,
            delete: Home::default(),
            updates: [Home::default(); UPDATES],
            inserts: [Home::default(); INSERTS],
            selects: [Home::default(); SELECTS],
            update_places: [0; UPDATES],
            select_places: [0; SELECTS],
        }
    }

    /// Prefetches the buckets of all keys.
    #[inline(always)]
    fn ask(&mut self, buckets: &Buckets) {
        self.delete = buckets.ask(self.cycle.delete);
        for (home, key) in self.updates.iter_mut().zip(self.cycle.updates) {
            *home = buckets.ask(key);
        }
        for (home, key) in self.inserts.iter_mut().zip(self.cycle.inserts) {
            *home = buckets.ask(key);
        }
        for (home, key) in self.selects.iter_mut().zip(self.cycle.selects) {
            *home = buckets.ask(key);
        }
    }
}

impl<const N: usize> Keyed<N> {
    const STRIDE: usize = (N + 2) & !1;

    /// Room for `rows` rows, of which the first get the first of `keys`, and what MIXED adds.
    ///
    /// # Errors
    /// When the system has no such memory.
    pub fn new(rows: usize, keys: Vec<u64>, seed: u64, checked: bool) -> Result<Self, Failure> {
        let room = rows + growth_max(rows) + WINDOW;
        let mut free = vec![0; room];
        free.clear();
        Ok(Self {
            buckets: Buckets::new(room)?,
            words: Region::new(room * Self::STRIDE)?,
            room,
            bump: 0,
            free,
            stream: Stream::keyed(rows, keys, seed),
            distances: DISTANCES[1],
            model: checked.then(Model::new),
        })
    }

    #[inline(always)]
    fn row(&self, place: u32) -> *const u64 {
        self.words
            .as_ptr()
            .wrapping_add(place as usize * Self::STRIDE)
    }

    #[inline(always)]
    fn row_mut(&mut self, place: u32) -> *mut u64 {
        self.words
            .as_mut_ptr()
            .wrapping_add(place as usize * Self::STRIDE)
    }

    /// Runs one kind of operation over a stretch of the walk through the stages.
    ///
    /// With one kind of operation the loop has no branch but its own.
    #[inline(always)]
    fn sweep(
        &mut self,
        span: Range<usize>,
        row_bytes: usize,
        mut work: impl FnMut(&mut Self, u64, Home, u32),
    ) {
        let Distances { row, bucket } = self.distances;
        let count = span.len();
        let mut homes = [Home::default(); WINDOW];
        let mut candidates = [0_u32; WINDOW];
        let key_at = |this: &Self, step: usize| this.stream.ids()[span.start + step];
        let begin = |this: &Self, homes: &mut [Home; WINDOW], step: usize| {
            homes[step % WINDOW] = this.buckets.ask(key_at(this, step));
        };
        let look_up =
            |this: &Self, homes: &[Home; WINDOW], places: &mut [u32; WINDOW], step: usize| {
                let candidate = this.buckets.candidate(homes[step % WINDOW]);
                prefetch::row(this.row(candidate), row_bytes);
                places[step % WINDOW] = candidate;
            };
        for step in 0..min(row + bucket, count) {
            begin(self, &mut homes, step);
        }
        for step in 0..min(row, count) {
            look_up(self, &homes, &mut candidates, step);
        }
        let full = count.saturating_sub(row + bucket);
        for step in 0..full {
            begin(self, &mut homes, step + row + bucket);
            look_up(self, &homes, &mut candidates, step + row);
            let at = step % WINDOW;
            work(self, key_at(self, step), homes[at], candidates[at]);
        }
        for step in full..count {
            if step + row < count {
                look_up(self, &homes, &mut candidates, step + row);
            }
            let at = step % WINDOW;
            work(self, key_at(self, step), homes[at], candidates[at]);
        }
    }

    fn insert(&mut self, most: usize, oracle: &mut impl Oracle<u64, N>) -> Chunk {
        let count = self.stream.missing(most);
        let distance = self.distances.bucket;
        let mut chunk = Chunk::default();
        let mut window = [(0, Home::default()); WINDOW];
        for step in 0..count + distance {
            if step < count {
                let key = self.stream.next_key();
                window[step % WINDOW] = (key, self.buckets.ask(key));
            }
            if step >= distance {
                let (key, home) = window[(step - distance) % WINDOW];
                self.insert_row(key, home, &mut chunk, oracle);
                self.stream.push(key);
            }
        }
        chunk.operations = count as u64;
        chunk
    }

    /// While one cycle is executed, the rows of the next are looked up and prefetched, and the
    /// buckets of the one after it.
    fn mixed(&mut self, most: usize, oracle: &mut impl Oracle<u64, N>) -> Chunk {
        let count = self.stream.cycles_left(most);
        let mut chunk = Chunk::default();
        let Some(cycle) = self.stream.new_cycle() else {
            return chunk;
        };
        let mut cycles = [Asked::new(cycle); 3];
        for step in 0..count + 2 {
            if step < count {
                let asked = &mut cycles[step % 3];
                self.stream.draw_cycle(&mut asked.cycle);
                asked.ask(&self.buckets);
            }
            if step >= 1 && step - 1 < count {
                let asked = &mut cycles[(step - 1) % 3];
                for at in 0..UPDATES {
                    asked.update_places[at] = self.look_up(asked.updates[at]);
                }
                let delete = self.buckets.candidate(asked.delete);
                prefetch::line(self.row(delete));
            }
            if step >= 2 {
                let ahead = (step - 1 < count).then(|| cycles[(step - 1) % 3].selects);
                let mut places = [0; SELECTS];
                self.execute(
                    &cycles[(step - 2) % 3],
                    ahead,
                    &mut places,
                    &mut chunk,
                    oracle,
                );
                cycles[(step - 1) % 3].select_places = places;
            } else if step == 1 {
                let asked = &mut cycles[0];
                for at in 0..SELECTS {
                    asked.select_places[at] = self.look_up(asked.selects[at]);
                }
            }
        }
        chunk.operations = (count * CYCLE) as u64;
        chunk
    }

    #[inline(always)]
    fn execute(
        &mut self,
        asked: &Asked,
        ahead: Option<[Home; SELECTS]>,
        places_ahead: &mut [u32; SELECTS],
        chunk: &mut Chunk,
        oracle: &mut impl Oracle<u64, N>,
    ) {
        let cycle = &asked.cycle;
        self.delete(cycle.delete, asked.delete, chunk, oracle);
        for (at, key) in cycle.updates.into_iter().enumerate() {
            let seed = self.stream.next_seed();
            let (home, place) = (asked.updates[at], asked.update_places[at]);
            self.update(key, seed, home, place, chunk, oracle);
        }
        for (at, key) in cycle.inserts.into_iter().enumerate() {
            self.insert_row(key, asked.inserts[at], chunk, oracle);
            self.stream.place(key);
        }
        match ahead {
            Some(ahead) => {
                for at in 0..SELECTS {
                    places_ahead[at] = self.look_up(ahead[at]);
                    let (home, place) = (asked.selects[at], asked.select_places[at]);
                    self.select(cycle.selects[at], home, place, chunk, oracle);
                }
            }
            None => {
                for at in 0..SELECTS {
                    let (home, place) = (asked.selects[at], asked.select_places[at]);
                    self.select(cycle.selects[at], home, place, chunk, oracle);
                }
            }
        }
    }

    /// The most likely place; its row is prefetched.
    #[inline(always)]
    fn look_up(&self, home: Home) -> u32 {
        let candidate = self.buckets.candidate(home);
        prefetch::row(self.row(candidate), Self::STRIDE * 8);
        candidate
    }

    #[inline(always)]
    fn select(
        &self,
        key: u64,
        home: Home,
        candidate: u32,
        chunk: &mut Chunk,
        oracle: &mut impl Oracle<u64, N>,
    ) {
        let Some(place) = self.place_of(key, home, candidate) else {
            chunk.faults += 1;
            return;
        };
        // SAFETY: places in the table are below `bump`, which never passes the array's end; cells
        // follow the key.
        let row = unsafe { self.row(place).add(1).cast::<[u64; N]>().read() };
        chunk.count_row(&row);
        chunk.faults += u64::from(!oracle.selected(key, &row));
    }

    #[inline(always)]
    fn update(
        &mut self,
        key: u64,
        seed: u64,
        home: Home,
        candidate: u32,
        chunk: &mut Chunk,
        oracle: &mut impl Oracle<u64, N>,
    ) {
        let Some(place) = self.place_of(key, home, candidate) else {
            chunk.faults += 1;
            return;
        };
        let cells = self.row_mut(place).wrapping_add(1).cast::<[u64; N]>();
        // SAFETY: as for SELECT; the array is borrowed exclusively.
        unsafe { cells.write(brought(seed)) };
        chunk.checksum = chunk.checksum.wrapping_add(seed);
        chunk.faults += u64::from(!oracle.updated(key, seed));
    }

    #[inline(always)]
    fn delete(
        &mut self,
        key: u64,
        home: Home,
        chunk: &mut Chunk,
        oracle: &mut impl Oracle<u64, N>,
    ) {
        chunk.faults += u64::from(!self.delete_row(key, home));
        chunk.faults += u64::from(!oracle.deleted(key));
        chunk.checksum = chunk.checksum.wrapping_add(key);
    }

    #[inline(always)]
    fn place_of(&self, key: u64, home: Home, candidate: u32) -> Option<u32> {
        if self.key_at(candidate) == key {
            return Some(candidate);
        }
        let found = self.buckets.find(home, |place| self.key_at(place) == key);
        found.map(|found| found.place)
    }

    #[inline(always)]
    fn key_at(&self, place: u32) -> u64 {
        // SAFETY: places in buckets, even stale ones, were below `bump` once, so inside the array.
        unsafe { *self.row(place) }
    }

    #[inline(always)]
    fn delete_row(&mut self, key: u64, home: Home) -> bool {
        let Some(found) = self.buckets.find(home, |place| self.key_at(place) == key) else {
            return false;
        };
        self.buckets.remove(home, found);
        // SAFETY: as in `key_at`; the array is borrowed exclusively.
        unsafe { self.row_mut(found.place).write(DEAD) };
        self.free.push(found.place);
        true
    }

    #[inline(always)]
    fn insert_row(
        &mut self,
        key: u64,
        home: Home,
        chunk: &mut Chunk,
        oracle: &mut impl Oracle<u64, N>,
    ) {
        if self
            .buckets
            .find(home, |place| self.key_at(place) == key)
            .is_some()
        {
            chunk.faults += 1;
            return;
        }
        let place = self.free.pop().unwrap_or(self.bump as u32);
        if place as usize == self.bump {
            self.bump += 1;
        }
        assert!(self.bump <= self.room, "the flat array is full");
        let row = self.row_mut(place);
        // SAFETY: `place` is below `bump`, which was just checked against the array's end.
        unsafe {
            row.write(key);
            row.add(1).cast::<[u64; N]>().write(brought(key));
        }
        self.buckets.insert(home, place);
        chunk.faults += u64::from(!oracle.inserted(key, key));
        chunk.checksum = chunk.checksum.wrapping_add(key);
    }

    fn run(
        &mut self,
        operation: Operation,
        most: usize,
        oracle: &mut impl Oracle<u64, N>,
    ) -> Chunk {
        let mut chunk = Chunk::default();
        let span = match operation {
            Operation::Insert => return self.insert(most, oracle),
            Operation::Mixed => return self.mixed(most, oracle),
            Operation::Select | Operation::Update => self.stream.span(most),
            Operation::Delete => self.stream.doomed(most),
        };
        chunk.operations = span.len() as u64;
        match operation {
            Operation::Update => {
                self.sweep(span, Self::STRIDE * 8, |this, key, home, candidate| {
                    let seed = this.stream.next_seed();
                    this.update(key, seed, home, candidate, &mut chunk, oracle);
                })
            }
            Operation::Delete => self.sweep(span, 8, |this, key, home, _| {
                this.delete(key, home, &mut chunk, oracle);
            }),
            _ => self.sweep(span, Self::STRIDE * 8, |this, key, home, candidate| {
                this.select(key, home, candidate, &mut chunk, oracle);
            }),
        }
        chunk
    }
}

impl<const N: usize> Part for Keyed<N> {
    type Id = u64;

    fn stream(&mut self) -> &mut Stream<u64> {
        &mut self.stream
    }

    fn chunk(&mut self, operation: Operation, most: usize) -> Chunk {
        match self.model.take() {
            None => self.run(operation, most, &mut Trust),
            Some(mut model) => {
                let chunk = self.run(operation, most, &mut model);
                self.model = Some(model);
                chunk
            }
        }
    }

    fn remove(&mut self, ids: &[u64]) -> Chunk {
        let mut chunk = Chunk::default();
        for key in ids {
            let home = self.buckets.home(*key);
            let known = match &mut self.model {
                Some(model) => Oracle::<u64, N>::deleted(model, *key),
                None => true,
            };
            chunk.faults += u64::from(!known) + u64::from(!self.delete_row(*key, home));
        }
        chunk
    }

    fn clear(&mut self) -> Result<(), Failure> {
        self.buckets.clear();
        self.bump = 0;
        self.free.clear();
        if let Some(model) = &mut self.model {
            model.clear();
        }
        Ok(())
    }
}

impl<const N: usize> Tuned for Keyed<N> {
    fn set_distances(&mut self, distances: Distances) {
        self.distances = distances;
    }

    fn stored(&self) -> usize {
        self.bump - self.free.len()
    }
}
