//! One thread's rows in the engine: every operation of the workload, in batches and by single calls.

use ancile::{Batch, Outcome, Resident, SurrogateId, Table, Verbs};

use super::door::{Ahead, Door, Kind, Own, Routed, sure};
use crate::failure::Failure;
use crate::oracle::{Model, Oracle, Trust};
use crate::setup::{Route, Setup};
use crate::subject::Chunk;
use crate::workload::{CYCLE, Cycle, Draw, Operation, Part, Stream, UPDATES, row_of};

/// A walk and what it needs beside it.
pub(super) struct EnginePart<I, const N: usize> {
    stream: Stream<I>,
    table: Table<[u64; N]>,
    route: Route,
    // Operations a call.
    batch: usize,
    keyed: bool,
    model: Option<Model<I>>,
    // Whether the rows were dealt out since they were inserted.
    pub(super) dealt: bool,
    rows: Vec<[u64; N]>,
    spare: Vec<SurrogateId>,
    ids: Vec<I>,
}

impl<I: Kind<N>, const N: usize> EnginePart<I, N> {
    pub(super) fn new(stream: Stream<I>, setup: &Setup, table: &Table<[u64; N]>) -> Self {
        Self {
            stream,
            table: table.clone(),
            route: setup.route,
            batch: setup.batch * setup.window,
            keyed: I::KEYED,
            model: setup.checked.then(Model::new),
            dealt: false,
            rows: Vec::new(),
            spare: Vec::new(),
            ids: Vec::new(),
        }
    }

    pub(super) fn stream(&mut self) -> &mut Stream<I> {
        &mut self.stream
    }

    /// Starts again in an empty table.
    pub(super) fn reset(&mut self, table: &Table<[u64; N]>) {
        self.table = table.clone();
        self.stream.clear();
        self.dealt = false;
        if let Some(model) = &mut self.model {
            model.clear();
        }
    }

    /// A chunk by the verbs that route.
    pub(super) fn routed_chunk(
        &mut self,
        verbs: &mut impl Verbs,
        operation: Operation,
        most: usize,
    ) -> Chunk {
        let table = self.table.clone();
        let mut door = Routed {
            verbs,
            table: &table,
        };
        self.judged(&mut door, operation, most)
    }

    /// A chunk on the shard's own rows.
    fn own_chunk(
        &mut self,
        resident: &mut Resident<'_>,
        operation: Operation,
        most: usize,
    ) -> Chunk {
        let table = self.table.clone();
        let mut door = Own {
            resident,
            table: &table,
        };
        self.judged(&mut door, operation, most)
    }

    #[inline(always)]
    fn judged<D: Door<N>>(&mut self, door: &mut D, operation: Operation, most: usize) -> Chunk {
        match self.model.take() {
            None => self.run(door, operation, most, &mut Trust),
            Some(mut model) => {
                let chunk = self.run(door, operation, most, &mut model);
                self.model = Some(model);
                chunk
            }
        }
    }

    #[inline(always)]
    fn run(
        &mut self,
        door: &mut impl Door<N>,
        operation: Operation,
        most: usize,
        oracle: &mut impl Oracle<I, N>,
    ) -> Chunk {
        match operation {
            Operation::Insert => self.insert(door, most, oracle),
            Operation::Select => self.select(door, most, oracle),
            Operation::Update => self.update(door, most, oracle),
            Operation::Delete => self.delete(door, most, oracle),
            Operation::Mixed if self.batch == 1 => self.mixed_by_calls(door, most, oracle),
            Operation::Mixed if self.route == Route::Local => {
                self.mixed_by_cycles(door, most, oracle)
            }
            Operation::Mixed => self.mixed_by_batches(door, most, oracle),
        }
    }

    fn insert(
        &mut self,
        door: &mut impl Door<N>,
        most: usize,
        oracle: &mut impl Oracle<I, N>,
    ) -> Chunk {
        let count = self.stream.missing(most);
        let mut chunk = Chunk {
            operations: count as u64,
            ..Chunk::default()
        };
        if self.batch == 1 {
            for _ in 0..count {
                let key = self.stream.next_key();
                let id = I::insert(door, key, &row_of(key));
                self.stream.push(id);
                chunk.checksum = chunk.checksum.wrapping_add(key);
                chunk.faults += u64::from(!oracle.inserted(id, key));
            }
            return chunk;
        }
        let mut left = count;
        let mut keys = self.next_keys(&mut left);
        while !keys.is_empty() {
            let next = self.next_keys(&mut left);
            self.rows.clear();
            self.rows.extend(keys.iter().map(|key| row_of::<N>(key.0)));
            self.ids.clear();
            let ahead = Ahead { next: &next };
            I::insert_batch(door, &keys, ahead, &self.rows, &mut self.ids);
            for (id, SurrogateId(key)) in self.ids.iter().zip(&keys) {
                self.stream.push(*id);
                chunk.checksum = chunk.checksum.wrapping_add(*key);
                chunk.faults += u64::from(!oracle.inserted(*id, *key));
            }
            self.spare = std::mem::replace(&mut keys, next);
        }
        self.spare = keys;
        chunk
    }

    /// Keys of the next batch, of at most `left` rows.
    fn next_keys(&mut self, left: &mut usize) -> Vec<SurrogateId> {
        let length = (*left).min(self.batch);
        *left -= length;
        let mut keys = std::mem::take(&mut self.spare);
        keys.clear();
        keys.extend((0..length).map(|_| SurrogateId(self.stream.next_key())));
        keys
    }

    fn select(
        &mut self,
        door: &mut impl Door<N>,
        most: usize,
        oracle: &mut impl Oracle<I, N>,
    ) -> Chunk {
        let span = self.stream.span(most);
        let mut chunk = Chunk {
            operations: span.len() as u64,
            ..Chunk::default()
        };
        let ids = &self.stream.ids()[span];
        if self.batch == 1 {
            for id in ids {
                let row = door.select(*id);
                judge_row(&mut chunk, *id, row.as_ref(), oracle);
            }
            return chunk;
        }
        for start in (0..ids.len()).step_by(self.batch) {
            let (ids, ahead) = batch_of(ids, start, self.batch);
            door.select_each(ids, ahead, |at, row| {
                let local = row.copied();
                judge_row(&mut chunk, ids[at], local.as_ref(), oracle);
            });
        }
        chunk
    }

    fn update(
        &mut self,
        door: &mut impl Door<N>,
        most: usize,
        oracle: &mut impl Oracle<I, N>,
    ) -> Chunk {
        let span = self.stream.span(most);
        let mut chunk = Chunk {
            operations: span.len() as u64,
            ..Chunk::default()
        };
        for start in (0..span.len()).step_by(self.batch) {
            let length = self.batch.min(span.len() - start);
            self.rows.clear();
            for place in 0..length {
                let seed = self.stream.next_seed();
                let id = self.stream.ids()[span.start + start + place];
                chunk.checksum = chunk.checksum.wrapping_add(seed);
                chunk.faults += u64::from(!oracle.updated(id, seed));
                self.rows.push(row_of(seed));
            }
            let (ids, ahead) = batch_of(&self.stream.ids()[span.clone()], start, self.batch);
            let updated = match (self.batch, ids) {
                (1, [id]) => usize::from(door.update(*id, &self.rows[0])),
                _ => door.update_batch(ids, ahead, &self.rows),
            };
            chunk.faults += (ids.len() - updated) as u64;
        }
        chunk
    }

    fn delete(
        &mut self,
        door: &mut impl Door<N>,
        most: usize,
        oracle: &mut impl Oracle<I, N>,
    ) -> Chunk {
        let span = self.stream.doomed(most);
        let mut chunk = Chunk {
            operations: span.len() as u64,
            ..Chunk::default()
        };
        let doomed = &self.stream.ids()[span];
        for start in (0..doomed.len()).step_by(self.batch) {
            let (ids, ahead) = batch_of(doomed, start, self.batch);
            let deleted = match (self.batch, ids) {
                (1, [id]) => usize::from(door.delete(*id)),
                _ => door.delete_batch(ids, ahead),
            };
            chunk.checksum = chunk.checksum.wrapping_add(deleted as u64);
            chunk.faults += (ids.len() - deleted) as u64;
            for id in ids {
                chunk.faults += u64::from(!oracle.deleted(*id));
            }
        }
        chunk
    }

    /// One call an operation.
    fn mixed_by_calls(
        &mut self,
        door: &mut impl Door<N>,
        most: usize,
        oracle: &mut impl Oracle<I, N>,
    ) -> Chunk {
        let count = self.stream.cycles_left(most) * CYCLE;
        let mut chunk = Chunk {
            operations: count as u64,
            ..Chunk::default()
        };
        for _ in 0..count {
            let draw = self.stream.draw();
            self.call(door, draw, &mut chunk, oracle);
        }
        chunk
    }

    /// Batches of each kind, cycle by cycle; the selects roll into those of the next cycle.
    fn mixed_by_cycles(
        &mut self,
        door: &mut impl Door<N>,
        most: usize,
        oracle: &mut impl Oracle<I, N>,
    ) -> Chunk {
        let count = self.stream.cycles_left(most);
        let mut chunk = Chunk {
            operations: (count * CYCLE) as u64,
            ..Chunk::default()
        };
        let Some(mut cycle) = self.stream.new_cycle() else {
            return chunk;
        };
        if count > 0 {
            self.stream.draw_cycle(&mut cycle);
        }
        let mut next = cycle;
        for index in 0..count {
            let is_last = index + 1 == count;
            if !is_last {
                self.stream.draw_cycle(&mut next);
            }
            self.write_cycle(door, &cycle, &mut chunk, oracle);
            let ahead = Ahead {
                next: if is_last { &[] } else { &next.selects[..] },
            };
            I::prepare_writes(door, &next);
            door.select_each(&cycle.selects, ahead, |at, row| {
                let local = row.copied();
                judge_row(&mut chunk, cycle.selects[at], local.as_ref(), oracle);
            });
            cycle = next;
        }
        chunk
    }

    /// The delete, updates and inserts of a cycle.
    #[inline(always)]
    fn write_cycle(
        &mut self,
        door: &mut impl Door<N>,
        cycle: &Cycle<I>,
        chunk: &mut Chunk,
        oracle: &mut impl Oracle<I, N>,
    ) {
        let right = door.delete(cycle.delete) && oracle.deleted(cycle.delete);
        chunk.faults += u64::from(!right);
        let seeds: [u64; UPDATES] = std::array::from_fn(|_| self.stream.next_seed());
        let updated = door.update_batch(&cycle.updates, Ahead::alone(), &seeds.map(row_of::<N>));
        chunk.faults += (UPDATES - updated) as u64;
        for (id, seed) in cycle.updates.into_iter().zip(seeds) {
            chunk.faults += u64::from(!oracle.updated(id, seed));
        }
        self.ids.clear();
        let (keys, rows) = (
            cycle.inserts.map(SurrogateId),
            cycle.inserts.map(row_of::<N>),
        );
        I::insert_batch(door, &keys, Ahead::alone(), &rows, &mut self.ids);
        for (id, key) in self.ids.iter().zip(cycle.inserts) {
            self.stream.place(*id);
            chunk.faults += u64::from(!oracle.inserted(*id, key));
        }
    }

    /// Batches of any mixture.
    fn mixed_by_batches(
        &mut self,
        door: &mut impl Door<N>,
        most: usize,
        oracle: &mut impl Oracle<I, N>,
    ) -> Chunk {
        let count = self.stream.cycles_left(most) * CYCLE;
        let mut chunk = Chunk {
            operations: count as u64,
            ..Chunk::default()
        };
        let mut left = count;
        let (mut now, mut next) = (
            Drawn::new(&self.table, self.batch),
            Drawn::new(&self.table, self.batch),
        );
        now.draw(&mut self.stream, &mut left, self.batch);
        while !now.draws.is_empty() {
            next.draw(&mut self.stream, &mut left, self.batch);
            door.run_each(&now.batch, &next.batch, |at, outcome| {
                judge(&mut self.stream, now.draws[at], outcome, &mut chunk, oracle);
            });
            std::mem::swap(&mut now, &mut next);
        }
        chunk
    }

    #[inline(always)]
    fn call(
        &mut self,
        door: &mut impl Door<N>,
        draw: Draw<I>,
        chunk: &mut Chunk,
        oracle: &mut impl Oracle<I, N>,
    ) {
        let right = match draw {
            Draw::Select(id) => {
                let row = door.select(id);
                judge_row(chunk, id, row.as_ref(), oracle);
                true
            }
            Draw::Update(id, seed) => door.update(id, &row_of(seed)) && oracle.updated(id, seed),
            Draw::Delete(id) => door.delete(id) && oracle.deleted(id),
            Draw::Insert(key) => {
                let id = I::insert(door, key, &row_of(key));
                self.stream.place(id);
                oracle.inserted(id, key)
            }
        };
        chunk.faults += u64::from(!right);
    }
}

/// Operations drawn, and the batch of them.
struct Drawn<I: Kind<N>, const N: usize> {
    draws: Vec<Draw<I>>,
    batch: Batch<[u64; N], I>,
}

impl<I: Kind<N>, const N: usize> Drawn<I, N> {
    fn new(table: &Table<[u64; N]>, length: usize) -> Self {
        Self {
            draws: Vec::with_capacity(length),
            batch: Batch::new(table, length),
        }
    }

    /// Draws the next operations, at most `most` of the `left`.
    fn draw(&mut self, stream: &mut Stream<I>, left: &mut usize, most: usize) {
        let length = most.min(*left);
        *left -= length;
        self.draws.clear();
        self.batch.clear();
        for _ in 0..length {
            let draw = stream.draw();
            self.draws.push(draw);
            match draw {
                Draw::Select(id) => sure(self.batch.select(id)),
                Draw::Update(id, seed) => sure(self.batch.update(id, &row_of(seed))),
                Draw::Delete(id) => sure(self.batch.delete(id)),
                Draw::Insert(key) => I::push_insert(&mut self.batch, key, &row_of(key)),
            }
        }
    }
}

#[inline(always)]
fn judge<I: Kind<N>, const N: usize>(
    stream: &mut Stream<I>,
    draw: Draw<I>,
    outcome: Outcome<&[u64; N]>,
    chunk: &mut Chunk,
    oracle: &mut impl Oracle<I, N>,
) {
    let right = match (draw, outcome) {
        (Draw::Select(id), Outcome::Selected(row)) => {
            let local = *row;
            judge_row(chunk, id, Some(&local), oracle);
            true
        }
        (Draw::Update(id, seed), Outcome::Updated) => oracle.updated(id, seed),
        (Draw::Delete(id), Outcome::Deleted) => oracle.deleted(id),
        (Draw::Insert(key), Outcome::Inserted(id)) => {
            let id = I::inserted(id, key);
            stream.place(id);
            oracle.inserted(id, key)
        }
        _ => false,
    };
    chunk.faults += u64::from(!right);
}

/// The batch that starts at `start`, and what it knows of its neighbours.
#[inline(always)]
fn batch_of<I>(ids: &[I], start: usize, batch: usize) -> (&[I], Ahead<'_, I>) {
    let (these, rest) = ids[start..].split_at(batch.min(ids.len() - start));
    let next = &rest[..batch.min(rest.len())];
    (these, Ahead { next })
}

#[inline(always)]
fn judge_row<I, const N: usize>(
    chunk: &mut Chunk,
    id: I,
    row: Option<&[u64; N]>,
    oracle: &mut impl Oracle<I, N>,
) {
    match row {
        Some(row) => {
            chunk.count_row(row);
            chunk.faults += u64::from(!oracle.selected(id, row));
        }
        None => chunk.faults += 1,
    }
}

/// Gives every part its dealt rows, and its model what it must know of them.
pub(super) fn deal<I: Kind<N>, const N: usize>(parts: &mut [EnginePart<I, N>], dealt: Vec<Vec<I>>) {
    let mut all: Option<Model<I>> = None;
    for part in parts.iter_mut() {
        if let Some(model) = part.model.take() {
            all.get_or_insert_default().absorb(model);
        }
    }
    for (part, ids) in parts.iter_mut().zip(dealt) {
        part.model = all.as_mut().map(|all| all.split_off(&ids));
        part.stream.deal(ids);
        part.dealt = true;
    }
}

/// A part at work inside a shard.
pub(super) struct Working<'p, 'r, 'e, I, const N: usize> {
    part: &'p mut EnginePart<I, N>,
    resident: &'r mut Resident<'e>,
    is_filling: bool,
}

impl<'p, 'r, 'e, I: Kind<N>, const N: usize> Working<'p, 'r, 'e, I, N> {
    /// While a table is made full: rows known by place go into the own shard, whatever the route.
    pub(super) fn filling(part: &'p mut EnginePart<I, N>, resident: &'r mut Resident<'e>) -> Self {
        Self {
            part,
            resident,
            is_filling: true,
        }
    }

    /// While the clock runs.
    pub(super) fn measuring(
        part: &'p mut EnginePart<I, N>,
        resident: &'r mut Resident<'e>,
    ) -> Self {
        Self {
            part,
            resident,
            is_filling: false,
        }
    }
}

impl<I: Kind<N>, const N: usize> Working<'_, '_, '_, I, N> {
    /// A chunk under the clock: a function of its own, so that its instructions can be counted
    /// apart from loading and waiting. See [`crate::sweep::count`].
    #[inline(never)]
    pub(super) fn timed_chunk(&mut self, operation: Operation, most: usize) -> Chunk {
        self.chunk(operation, most)
    }
}

impl<I: Kind<N>, const N: usize> Part for Working<'_, '_, '_, I, N> {
    type Id = I;

    fn stream(&mut self) -> &mut Stream<I> {
        &mut self.part.stream
    }

    fn chunk(&mut self, operation: Operation, most: usize) -> Chunk {
        let is_local = self.part.route == Route::Local || self.is_filling && !self.part.keyed;
        if is_local {
            self.part.own_chunk(self.resident, operation, most)
        } else {
            self.part.routed_chunk(self.resident, operation, most)
        }
    }

    fn remove(&mut self, ids: &[I]) -> Chunk {
        let mut chunk = Chunk::default();
        for ids in ids.chunks(1_024) {
            let deleted = sure(self.resident.delete_batch(&self.part.table, ids));
            chunk.faults += (ids.len() - deleted) as u64;
        }
        if let Some(model) = &mut self.part.model {
            for id in ids {
                chunk.faults += u64::from(!Oracle::<I, N>::deleted(model, *id));
            }
        }
        chunk
    }

    /// Nothing: the table is made anew from outside, for all parts at once.
    fn clear(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn fill(&mut self) -> Result<(), Failure> {
        if self.part.stream.missing(1) > 0 {
            self.part.dealt = false;
        }
        let batch = std::mem::replace(&mut self.part.batch, 64);
        let filled = self.fill_by_inserts();
        self.part.batch = batch;
        filled
    }
}
