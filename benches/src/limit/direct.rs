//! The limit of access by place: one flat array of rows.
//!
//! A free place is found on a stack, or behind the last row ever used. A deleted row carries a mark
//! in its first cell. All reads are prefetched `distance` ids ahead; inserts at the end need no
//! hint, since the processor follows the stream by itself.
#![expect(
    unsafe_code,
    reason = "the bare loop reads rows at places that are its own"
)]

use super::{Distances, Tuned, prefetch};
use crate::failure::Failure;
use crate::oracle::{Model, Oracle, Trust};
use crate::region::Region;
use crate::subject::Chunk;
use crate::workload::{CYCLE, Cycle, Operation, Part, Stream, brought, growth_max};

/// In the first cell of a deleted row; seeds never reach it.
const DEAD: u64 = u64::MAX;

/// One core's rows in a flat array.
pub struct Flat<const N: usize> {
    rows: Region<[u64; N]>,
    // Places below were used at least once; every place in `stream` and `free` is below.
    bump: usize,
    free: Vec<u32>,
    stream: Stream<u32>,
    distance: usize,
    model: Option<Model<u32>>,
}

impl<const N: usize> Flat<N> {
    /// Room for `rows` rows and what MIXED adds.
    ///
    /// # Errors
    /// When the system has no such memory.
    pub fn new(rows: usize, seed: u64, checked: bool) -> Result<Self, Failure> {
        let room = rows + growth_max(rows);
        Ok(Self {
            rows: Region::new(room)?,
            bump: 0,
            free: vec![0; room],
            stream: Stream::direct(rows, seed),
            distance: 32,
            model: checked.then(Model::new),
        }
        .emptied())
    }

    fn emptied(mut self) -> Self {
        self.free.clear();
        self
    }

    fn insert_row(&mut self, seed: u64) -> u32 {
        let slot = self.free.pop().unwrap_or(self.bump as u32);
        if slot as usize == self.bump {
            self.bump += 1;
        }
        assert!(self.bump <= self.rows.len(), "the flat array is full");
        self.rows[slot as usize] = brought(seed);
        slot
    }

    fn insert(&mut self, most: usize, oracle: &mut impl Oracle<u32, N>) -> Chunk {
        let count = self.stream.missing(most);
        let mut chunk = Chunk::default();
        for _ in 0..count {
            let seed = self.stream.next_key();
            let slot = self.insert_row(seed);
            self.stream.push(slot);
            chunk.faults += u64::from(!oracle.inserted(slot, seed));
            chunk.checksum = chunk.checksum.wrapping_add(seed);
        }
        chunk.operations = count as u64;
        chunk
    }

    fn select(&mut self, most: usize, oracle: &mut impl Oracle<u32, N>) -> Chunk {
        let span = self.stream.span(most);
        let mut chunk = Chunk::default();
        let (ids, rows) = (self.stream.ids(), self.rows.as_ptr());
        for place in span.clone() {
            prefetch::row(
                rows.wrapping_add(ids[ahead(place, self.distance, ids)] as usize),
                N * 8,
            );
            let id = ids[place];
            // SAFETY: every id of the walk is a place below `bump`, which never passes the array's end.
            let row = unsafe { rows.add(id as usize).read() };
            chunk.count_row(&row);
            chunk.faults += u64::from(!oracle.selected(id, &row));
        }
        chunk.operations = span.len() as u64;
        chunk
    }

    fn update(&mut self, most: usize, oracle: &mut impl Oracle<u32, N>) -> Chunk {
        let span = self.stream.span(most);
        let mut chunk = Chunk::default();
        for place in span.clone() {
            let seed = self.stream.next_seed();
            let ids = self.stream.ids();
            let rows = self.rows.as_mut_ptr();
            prefetch::row(
                rows.wrapping_add(ids[ahead(place, self.distance, ids)] as usize),
                N * 8,
            );
            let id = ids[place];
            // SAFETY: as in `select`; the array is borrowed exclusively.
            unsafe { rows.add(id as usize).write(brought(seed)) };
            chunk.faults += u64::from(!oracle.updated(id, seed));
            chunk.checksum = chunk.checksum.wrapping_add(seed);
        }
        chunk.operations = span.len() as u64;
        chunk
    }

    fn delete(&mut self, most: usize, oracle: &mut impl Oracle<u32, N>) -> Chunk {
        let span = self.stream.doomed(most);
        let mut chunk = Chunk::default();
        for place in span.clone() {
            let ids = self.stream.ids();
            let (id, next) = (ids[place], ids[ahead(place, self.distance, ids)]);
            prefetch::line(self.rows.as_ptr().wrapping_add(next as usize));
            self.delete_row(id, &mut chunk, oracle);
        }
        chunk.operations = span.len() as u64;
        chunk
    }

    /// While one cycle is executed, the rows of the next are prefetched.
    fn mixed(&mut self, most: usize, oracle: &mut impl Oracle<u32, N>) -> Chunk {
        let count = self.stream.cycles_left(most);
        let mut chunk = Chunk::default();
        let Some(mut cycle) = self.stream.new_cycle() else {
            return chunk;
        };
        if count > 0 {
            self.stream.draw_cycle(&mut cycle);
        }
        let mut next = cycle;
        for index in 0..count {
            if index + 1 < count {
                self.stream.draw_cycle(&mut next);
            }
            self.execute(&cycle, &next, &mut chunk, oracle);
            cycle = next;
        }
        chunk.operations = (count * CYCLE) as u64;
        chunk
    }

    #[inline(always)]
    fn execute(
        &mut self,
        cycle: &Cycle<u32>,
        next: &Cycle<u32>,
        chunk: &mut Chunk,
        oracle: &mut impl Oracle<u32, N>,
    ) {
        let rows = self.rows.as_mut_ptr();
        prefetch::line(rows.wrapping_add(next.delete as usize));
        self.delete_row(cycle.delete, chunk, oracle);
        for (id, ahead) in cycle.updates.iter().zip(next.updates) {
            prefetch::row(rows.wrapping_add(ahead as usize), N * 8);
            let seed = self.stream.next_seed();
            // SAFETY: as in `update`.
            unsafe { rows.add(*id as usize).write(brought(seed)) };
            chunk.faults += u64::from(!oracle.updated(*id, seed));
        }
        for seed in cycle.inserts {
            let slot = self.insert_row(seed);
            self.stream.place(slot);
            chunk.faults += u64::from(!oracle.inserted(slot, seed));
        }
        for (id, ahead) in cycle.selects.iter().zip(next.selects) {
            prefetch::row(rows.wrapping_add(ahead as usize), N * 8);
            // SAFETY: as in `select`.
            let row = unsafe { rows.add(*id as usize).read() };
            chunk.count_row(&row);
            chunk.faults += u64::from(!oracle.selected(*id, &row));
        }
    }

    #[inline(always)]
    fn delete_row(&mut self, id: u32, chunk: &mut Chunk, oracle: &mut impl Oracle<u32, N>) {
        let rows = self.rows.as_mut_ptr();
        // SAFETY: as in `update`; the first cell lies at the row's address.
        let first = unsafe { &mut *rows.add(id as usize).cast::<u64>() };
        chunk.checksum = chunk.checksum.wrapping_add(*first);
        chunk.faults += u64::from(*first == DEAD) + u64::from(!oracle.deleted(id));
        *first = DEAD;
        self.free.push(id);
    }

    fn run(
        &mut self,
        operation: Operation,
        most: usize,
        oracle: &mut impl Oracle<u32, N>,
    ) -> Chunk {
        match operation {
            Operation::Insert => self.insert(most, oracle),
            Operation::Select => self.select(most, oracle),
            Operation::Update => self.update(most, oracle),
            Operation::Delete => self.delete(most, oracle),
            Operation::Mixed => self.mixed(most, oracle),
        }
    }
}

/// The place `distance` ahead, or the first one past the end: only a hint depends on it.
#[inline(always)]
fn ahead(place: usize, distance: usize, ids: &[u32]) -> usize {
    let ahead = place + distance;
    if ahead < ids.len() { ahead } else { 0 }
}

impl<const N: usize> Part for Flat<N> {
    type Id = u32;

    fn stream(&mut self) -> &mut Stream<u32> {
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

    fn remove(&mut self, ids: &[u32]) -> Chunk {
        let mut chunk = Chunk::default();
        let mut model = self.model.take();
        for id in ids {
            match &mut model {
                Some(model) => self.delete_row(*id, &mut chunk, model),
                None => self.delete_row(*id, &mut chunk, &mut Trust),
            }
        }
        self.model = model;
        chunk
    }

    fn clear(&mut self) -> Result<(), Failure> {
        self.bump = 0;
        self.free.clear();
        if let Some(model) = &mut self.model {
            model.clear();
        }
        Ok(())
    }
}

impl<const N: usize> Tuned for Flat<N> {
    fn set_distances(&mut self, distances: Distances) {
        self.distance = distances.row;
    }

    fn stored(&self) -> usize {
        self.bump - self.free.len()
    }
}
