//! What can be measured: the hardware limit, the engine and the peers behind one door.

use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::team::Gate;
use crate::workload::Operation;

/// How much one slice may take.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// A slice ends with the first chunk that passes this many nanoseconds.
    pub nanos: u64,
    /// Operations between two looks at the clock.
    pub chunk: usize,
    /// Whether every answer is compared with a model.
    pub checked: bool,
}

/// Something that runs the operations of the workload on its own threads.
pub trait Subject {
    /// Name in reports.
    fn name(&self) -> &str;

    /// Brings the rows into the state `operation` starts from. Never under the clock.
    ///
    /// # Errors
    /// Whatever keeps the subject from that state.
    fn prepare(&mut self, operation: Operation) -> Result<(), Failure>;

    /// Runs `operation` until the budget or the rows are used up.
    ///
    /// # Errors
    /// A wrong answer, or whatever the subject itself reports.
    fn slice(&mut self, operation: Operation, budget: Budget) -> Result<Slice, Failure>;

    /// Ends a cell: the subject is back in a whole state.
    ///
    /// # Errors
    /// A row count that is not the workload's.
    fn settle(&mut self, operation: Operation) -> Result<(), Failure>;

    /// What the subject itself has counted, in a line, if it counts.
    ///
    /// # Errors
    /// What the subject reports.
    fn counted(&self) -> Result<Option<String>, Failure> {
        Ok(None)
    }
}

/// What one chunk of operations did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Chunk {
    /// Operations done; none means that the rows are used up.
    pub operations: u64,
    /// Sum of what was read or written.
    pub checksum: u64,
    /// Operations that did not find their row, or rows whose cells do not belong together.
    pub faults: u64,
}

impl Chunk {
    /// Counts one row that was read, and checks that its cells are of one writing.
    #[inline(always)]
    pub fn count_row<const N: usize>(&mut self, row: &[u64; N]) {
        let first = std::hint::black_box(row)[0];
        self.checksum = self.checksum.wrapping_add(first);
        self.faults += u64::from(row[N - 1] != first.wrapping_add(N as u64 - 1));
    }
}

/// What one thread did in a slice.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// Operations done.
    pub operations: u64,
    /// When it passed the gate.
    pub started: Instant,
    /// From the common start to the end of the last chunk.
    pub nanos: u64,
    /// Sum of what was read or written.
    pub checksum: u64,
    /// Wrong answers.
    pub faults: u64,
    /// Whether the rows were used up.
    pub spent: bool,
}

/// What all threads did in a slice.
#[derive(Debug, Clone)]
pub struct Slice {
    /// One share a thread.
    pub shares: Vec<Share>,
    /// Whether any thread used up its rows.
    pub spent: bool,
}

impl Slice {
    /// Puts the threads' shares together.
    ///
    /// # Errors
    /// When an answer was wrong.
    pub fn of(name: &str, operation: Operation, shares: Vec<Share>) -> Result<Self, Failure> {
        let faults: u64 = shares.iter().map(|share| share.faults).sum();
        if faults > 0 {
            return Err(Failure::new(format!(
                "{name} gave {faults} wrong answers in {operation}"
            )));
        }
        let spent = shares.iter().any(|share| share.spent);
        Ok(Self { shares, spent })
    }

    /// Operations per second of all threads together.
    pub fn rate(&self) -> f64 {
        self.shares
            .iter()
            .map(|share| share.operations as f64 * 1e9 / share.nanos.max(1) as f64)
            .sum()
    }

    /// Operations per second from the first start to the last end. Unlike the sum of the threads'
    /// own rates it holds where threads take turns on a core, and each is fast while the others wait.
    pub fn rate_together(&self) -> f64 {
        let ends = |share: &Share| share.started + Duration::from_nanos(share.nanos);
        let first = self.shares.iter().map(|share| share.started).min();
        let last = self.shares.iter().map(ends).max();
        let seconds = first
            .zip(last)
            .map_or(0.0, |(first, last)| (last - first).as_secs_f64());
        self.operations() as f64 / seconds.max(1e-9)
    }

    /// Operations of all threads.
    pub fn operations(&self) -> u64 {
        self.shares.iter().map(|share| share.operations).sum()
    }

    /// The time of the thread that ended first.
    pub fn nanos_min(&self) -> u64 {
        self.shares.iter().map(|s| s.nanos).min().unwrap_or(0)
    }

    /// Sum over all threads.
    pub fn checksum(&self) -> u64 {
        self.shares
            .iter()
            .fold(0, |sum, share| sum.wrapping_add(share.checksum))
    }
}

/// Runs chunks on the calling thread from the common start until the budget or the rows are used up.
pub fn drive(gate: &Gate, budget: Budget, mut chunk: impl FnMut(usize) -> Chunk) -> Share {
    gate.pass();
    let start = Instant::now();
    let mut share = Share {
        operations: 0,
        started: start,
        nanos: 0,
        checksum: 0,
        faults: 0,
        spent: false,
    };
    while share.nanos < budget.nanos {
        let done = chunk(budget.chunk);
        share.spent = done.operations == 0;
        if share.spent {
            break;
        }
        share.operations += done.operations;
        share.checksum = share.checksum.wrapping_add(done.checksum);
        share.faults += done.faults;
        share.nanos = start.elapsed().as_nanos() as u64;
    }
    share
}
