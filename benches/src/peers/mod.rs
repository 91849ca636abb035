//! Peers: other stores under the same workload, behind one trait.
//!
//! All threads share a peer, as its users would; each thread works on its own rows. Concurrent maps
//! get the same fast hasher and their full capacity before the clock starts. Transactional stores run
//! each operation as a transaction of its own, as the workload says, and once more in their best form:
//! many operations a transaction (`.../batch`). Nothing here is durable, and nothing syncs.

mod dash;
mod fjall_store;
mod lmdb;
mod mutexes;
mod redb_store;
mod scc_map;
mod slab;
mod sqlite;

use std::sync::Arc;

use crate::failure::Failure;
use crate::oracle::{Model, Oracle, Trust};
use crate::subject::{Budget, Chunk, Share, Slice, Subject, drive};
use crate::team::{self, Gate};
use crate::workload::{CYCLE, Draw, Operation, Part, Stream, row_of};

pub use dash::Dash;
pub use fjall_store::Fjall;
pub use lmdb::Lmdb;
pub use mutexes::Mutexes;
pub use redb_store::Redb;
pub use scc_map::Scc;
pub use slab::Slab;
pub use sqlite::Sqlite;

/// Operations a transaction in the batch form of the transactional stores.
pub const TRANSACTION_OPERATIONS: usize = 1_000;

/// Answer to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<const N: usize> {
    /// A row was read.
    Row([u64; N]),
    /// Done; for an insert the id by which the row is found from now on.
    Done(u64),
    /// There is no such row, or an insert found one.
    Refused,
}

/// A store of rows of N cells under keys, shared by threads.
pub trait Peer<const N: usize>: Send + Sync {
    /// Name in reports.
    fn name(&self) -> &'static str;

    /// Whether rows are found by an id of the peer's own making.
    fn has_own_ids(&self) -> bool {
        false
    }

    /// Whether operations are transactions (and the store far slower than a map).
    fn is_transactional(&self) -> bool {
        false
    }

    /// Inserts a row unless there is one; the id by which it is found.
    fn insert(&self, key: u64, row: &[u64; N]) -> Option<u64>;

    /// Copies a row out.
    fn select(&self, id: u64) -> Option<[u64; N]>;

    /// Writes all cells of a row that exists.
    fn update(&self, id: u64, row: &[u64; N]) -> bool;

    /// Deletes a row that exists.
    fn delete(&self, id: u64) -> bool;

    /// Rows there are, where the peer can say.
    fn count(&self) -> Option<usize>;

    /// Deletes all rows, by whatever is fastest.
    fn clear(&self);

    /// Runs `requests` in order as one transaction, where the peer has any.
    fn transaction(&self, requests: &[Draw<u64>], answers: &mut Vec<Answer<N>>) {
        answers.extend(requests.iter().map(|request| self.answer(*request)));
    }

    /// Runs one request as an operation of its own.
    #[inline(always)]
    fn answer(&self, request: Draw<u64>) -> Answer<N> {
        let done = |done: bool, id| {
            if done {
                Answer::Done(id)
            } else {
                Answer::Refused
            }
        };
        match request {
            Draw::Select(id) => self.select(id).map_or(Answer::Refused, Answer::Row),
            Draw::Update(id, seed) => done(self.update(id, &row_of(seed)), id),
            Draw::Delete(id) => done(self.delete(id), id),
            Draw::Insert(key) => self
                .insert(key, &row_of(key))
                .map_or(Answer::Refused, Answer::Done),
        }
    }
}

/// One thread's rows in a shared peer.
struct PeerPart<P, const N: usize> {
    peer: Arc<P>,
    stream: Stream<u64>,
    // Operations a transaction; 1 means none round the single operation.
    batch: usize,
    model: Option<Model<u64>>,
    requests: Vec<Draw<u64>>,
    answers: Vec<Answer<N>>,
}

impl<P: Peer<N>, const N: usize> PeerPart<P, N> {
    fn run(
        &mut self,
        operation: Operation,
        most: usize,
        oracle: &mut impl Oracle<u64, N>,
    ) -> Chunk {
        let mut chunk = Chunk::default();
        let (count, span) = match operation {
            Operation::Insert => (self.stream.missing(most), 0..0),
            Operation::Mixed => (self.stream.cycles_left(most) * CYCLE, 0..0),
            Operation::Delete => {
                let span = self.stream.doomed(most);
                (span.len(), span)
            }
            Operation::Select | Operation::Update => {
                let span = self.stream.span(most);
                (span.len(), span)
            }
        };
        for step in 0..count {
            let id = |stream: &Stream<u64>| stream.ids()[span.start + step];
            let request = match operation {
                Operation::Insert => Draw::Insert(self.stream.next_key()),
                Operation::Mixed => self.stream.draw(),
                Operation::Select => Draw::Select(id(&self.stream)),
                Operation::Delete => Draw::Delete(id(&self.stream)),
                Operation::Update => {
                    let seed = self.stream.next_seed();
                    Draw::Update(id(&self.stream), seed)
                }
            };
            if self.batch == 1 {
                let answer = self.peer.answer(request);
                self.judge(operation, request, answer, &mut chunk, oracle);
                continue;
            }
            self.requests.push(request);
            if self.requests.len() == self.batch || step + 1 == count {
                self.commit(operation, &mut chunk, oracle);
            }
        }
        chunk.operations = count as u64;
        chunk
    }

    fn commit(
        &mut self,
        operation: Operation,
        chunk: &mut Chunk,
        oracle: &mut impl Oracle<u64, N>,
    ) {
        let mut answers = std::mem::take(&mut self.answers);
        let requests = std::mem::take(&mut self.requests);
        answers.clear();
        self.peer.transaction(&requests, &mut answers);
        for (request, answer) in requests.iter().zip(&answers) {
            self.judge(operation, *request, *answer, chunk, oracle);
        }
        self.answers = answers;
        self.requests = requests;
        self.requests.clear();
    }

    #[inline(always)]
    fn judge(
        &mut self,
        operation: Operation,
        request: Draw<u64>,
        answer: Answer<N>,
        chunk: &mut Chunk,
        oracle: &mut impl Oracle<u64, N>,
    ) {
        let right = match (request, answer) {
            (Draw::Select(id), Answer::Row(row)) => {
                chunk.count_row(&row);
                oracle.selected(id, &row)
            }
            (Draw::Update(id, seed), Answer::Done(_)) => {
                chunk.checksum = chunk.checksum.wrapping_add(seed);
                oracle.updated(id, seed)
            }
            (Draw::Delete(id), Answer::Done(_)) => {
                chunk.checksum = chunk.checksum.wrapping_add(id);
                oracle.deleted(id)
            }
            (Draw::Insert(key), Answer::Done(id)) => {
                chunk.checksum = chunk.checksum.wrapping_add(key);
                match operation {
                    Operation::Mixed => self.stream.place(id),
                    _ => self.stream.push(id),
                }
                oracle.inserted(id, key)
            }
            _ => false,
        };
        chunk.faults += u64::from(!right);
    }
}

impl<P: Peer<N>, const N: usize> Part for PeerPart<P, N> {
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
        let requests: Vec<_> = ids.iter().map(|id| Draw::Delete(*id)).collect();
        for requests in requests.chunks(TRANSACTION_OPERATIONS) {
            self.answers.clear();
            self.peer.transaction(requests, &mut self.answers);
            let refused = self
                .answers
                .iter()
                .filter(|answer| **answer == Answer::Refused);
            chunk.faults += refused.count() as u64;
        }
        if let Some(model) = &mut self.model {
            for id in ids {
                chunk.faults += u64::from(!Oracle::<u64, N>::deleted(model, *id));
            }
        }
        chunk
    }

    fn clear(&mut self) -> Result<(), Failure> {
        if self.peer.has_own_ids() {
            let ids = self.stream.ids().to_vec();
            ids.iter().for_each(|id| _ = self.peer.delete(*id));
        } else {
            // Every part clears all rows: that is right only because all parts clear together.
            self.peer.clear();
        }
        if let Some(model) = &mut self.model {
            model.clear();
        }
        Ok(())
    }

    fn fill(&mut self) -> Result<(), Failure> {
        let batch = std::mem::replace(&mut self.batch, TRANSACTION_OPERATIONS);
        let filled = self.fill_by_inserts();
        self.batch = batch;
        filled
    }
}

/// A peer and the threads that use it.
pub struct PeerSubject<P, const N: usize> {
    name: String,
    peer: Arc<P>,
    parts: Vec<PeerPart<P, N>>,
}

impl<P: Peer<N> + 'static, const N: usize> PeerSubject<P, N> {
    /// `threads` threads on one peer; thread `t` gets `keys[t]`.
    pub fn new(peer: P, rows: usize, keys: Vec<Vec<u64>>, batch: usize, checked: bool) -> Self {
        let name = match batch {
            1 => peer.name().to_owned(),
            _ => format!("{}/batch", peer.name()),
        };
        let peer = Arc::new(peer);
        let parts = keys
            .into_iter()
            .enumerate()
            .map(|(thread, keys)| PeerPart {
                peer: Arc::clone(&peer),
                stream: if peer.has_own_ids() {
                    Stream::direct(rows, thread as u64)
                } else {
                    Stream::keyed(rows, keys, thread as u64)
                },
                batch,
                model: checked.then(Model::new),
                requests: Vec::new(),
                answers: Vec::new(),
            })
            .collect();
        Self { name, peer, parts }
    }
}

impl<P: Peer<N>, const N: usize> Subject for PeerSubject<P, N> {
    fn name(&self) -> &str {
        &self.name
    }

    fn prepare(&mut self, operation: Operation) -> Result<(), Failure> {
        team::run(&mut self.parts, |_, part, gate| {
            // One after the other would do; together, so that no part clears what another filled.
            let full = part.prepare_full(operation);
            gate.pass();
            full.and_then(|()| part.prepare_empty(operation))
        })
        .into_iter()
        .collect()
    }

    fn slice(&mut self, operation: Operation, budget: Budget) -> Result<Slice, Failure> {
        let chunk = if self.peer.is_transactional() {
            budget.chunk.min(64)
        } else {
            budget.chunk
        };
        let budget = Budget {
            chunk: chunk.max(self.parts[0].batch),
            ..budget
        };
        let work = |_: usize, part: &mut PeerPart<P, N>, gate: &Gate| -> Share {
            drive(gate, budget, |most| part.chunk(operation, most))
        };
        Slice::of(&self.name, operation, team::run(&mut self.parts, work))
    }

    fn settle(&mut self, operation: Operation) -> Result<(), Failure> {
        let live: usize = self.parts.iter_mut().map(|part| part.stream().live()).sum();
        let stored = self.peer.count().unwrap_or(live);
        if stored == live {
            return Ok(());
        }
        Err(Failure::new(format!(
            "after {operation} {} holds {stored} rows instead of {live}",
            self.name
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::key_of;
    use crate::workload::key_count;

    fn every_answer_agrees_with_the_model(peer: impl Peer<4> + 'static, batch: usize) {
        const ROWS: usize = 300;
        let keys = |thread: u64| {
            let ordinals = 0..key_count(ROWS) as u64;
            ordinals
                .map(|ordinal| key_of(2 * ordinal + thread) >> 1)
                .collect()
        };
        let mut subject = PeerSubject::<_, 4>::new(peer, ROWS, vec![keys(0), keys(1)], batch, true);
        let budget = Budget {
            nanos: 20_000_000,
            chunk: 64,
            checked: true,
        };
        for operation in Operation::ALL {
            subject.prepare(operation).unwrap();
            let slice = subject.slice(operation, budget).unwrap();
            assert!(slice.operations() > 0);
            subject.settle(operation).unwrap();
        }
    }

    #[test]
    fn maps_agree_with_the_model() {
        every_answer_agrees_with_the_model(Dash::new(1_000), 1);
        every_answer_agrees_with_the_model(Mutexes::new(1_000), 1);
        every_answer_agrees_with_the_model(Scc::new(1_000), 1);
        every_answer_agrees_with_the_model(Slab::new(), 1);
    }

    #[test]
    fn transactional_stores_agree_with_the_model() {
        for batch in [1, 100] {
            every_answer_agrees_with_the_model(Lmdb::new(1_000).unwrap(), batch);
            every_answer_agrees_with_the_model(Fjall::new().unwrap(), batch);
            every_answer_agrees_with_the_model(Redb::new().unwrap(), batch);
            every_answer_agrees_with_the_model(Sqlite::new().unwrap(), batch);
        }
    }

    /// Says that it updates, and does not.
    struct Forgetful(Dash<4>);

    impl Peer<4> for Forgetful {
        fn name(&self) -> &'static str {
            "forgetful"
        }
        fn insert(&self, key: u64, row: &[u64; 4]) -> Option<u64> {
            self.0.insert(key, row)
        }
        fn select(&self, id: u64) -> Option<[u64; 4]> {
            self.0.select(id)
        }
        fn update(&self, id: u64, _row: &[u64; 4]) -> bool {
            self.0.select(id).is_some()
        }
        fn delete(&self, id: u64) -> bool {
            self.0.delete(id)
        }
        fn count(&self) -> Option<usize> {
            self.0.count()
        }
        fn clear(&self) {
            self.0.clear();
        }
    }

    #[test]
    #[should_panic(expected = "wrong answers")]
    fn a_store_that_forgets_updates_is_found_out() {
        every_answer_agrees_with_the_model(Forgetful(Dash::new(1_000)), 1);
    }

    #[test]
    fn a_second_row_under_a_key_is_refused() {
        let row = row_of::<4>(1);
        let peers: [Box<dyn Peer<4>>; 7] = [
            Box::new(Dash::new(10)),
            Box::new(Mutexes::new(10)),
            Box::new(Scc::new(10)),
            Box::new(Lmdb::new(10).unwrap()),
            Box::new(Fjall::new().unwrap()),
            Box::new(Redb::new().unwrap()),
            Box::new(Sqlite::new().unwrap()),
        ];
        for peer in peers {
            assert_eq!(peer.insert(7, &row), Some(7), "{}", peer.name());
            assert_eq!(peer.insert(7, &row), None, "{}", peer.name());
            assert!(!peer.update(8, &row) && !peer.delete(8), "{}", peer.name());
            assert_eq!(peer.select(8), None, "{}", peer.name());
        }
    }
}
