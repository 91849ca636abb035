//! What the hardware allows: bare loops over the same rows, ids and copies, without an engine.
//!
//! One part a core, each on its own rows on huge pages, touched before. Rows are prefetched into the
//! second-level cache a fixed number of operations ahead of a rolling window (into the first level
//! they would be held up by its few miss buffers); the distance is tried out at the start. What the
//! loops leave out: schema, generations, bounds, undo, shards, messages. What they do as well: copy
//! every cell, mark a row dead in its own line, keep a list of free places, hold keys unique.

mod bucket;
mod direct;
mod prefetch;
mod surrogate;

use crate::failure::Failure;
use crate::subject::{Budget, Share, Slice, Subject, drive};
use crate::team::{self, Gate};
use crate::workload::{Operation, Part};

pub use direct::Flat;
pub use surrogate::Keyed;

/// How far ahead of its use something is prefetched, in operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Distances {
    /// A row ahead of its operation.
    pub row: usize,
    /// An index bucket ahead of its row.
    pub bucket: usize,
}

/// What is tried out.
pub const DISTANCES: [Distances; 6] = [
    Distances {
        row: 16,
        bucket: 16,
    },
    Distances {
        row: 32,
        bucket: 16,
    },
    Distances {
        row: 32,
        bucket: 32,
    },
    Distances {
        row: 64,
        bucket: 16,
    },
    Distances {
        row: 64,
        bucket: 32,
    },
    Distances {
        row: 64,
        bucket: 64,
    },
];

const TRIAL: Budget = Budget {
    nanos: 2_000_000,
    chunk: 4_096,
    checked: false,
};
const TRIAL_ROUNDS: usize = 5;

/// A part whose prefetch distance can be set.
pub trait Tuned: Part {
    /// How far ahead memory is prefetched.
    fn set_distances(&mut self, distances: Distances);

    /// Rows in the store itself, as it counts them.
    fn stored(&self) -> usize;
}

/// The bare loops of all cores.
pub struct Limit<P> {
    parts: Vec<P>,
    distances: Distances,
}

impl<P: Tuned + Send> Limit<P> {
    /// A limit of one part a core.
    pub fn new(parts: Vec<P>) -> Self {
        Self {
            parts,
            distances: DISTANCES[1],
        }
    }

    /// Tries all distances at SELECT and keeps the best.
    ///
    /// # Errors
    /// Those of a slice.
    pub fn tune(&mut self) -> Result<Distances, Failure> {
        self.prepare(Operation::Select)?;
        let mut rates = [0.0_f64; DISTANCES.len()];
        for _ in 0..TRIAL_ROUNDS {
            for (rate, distances) in rates.iter_mut().zip(DISTANCES) {
                self.set_distances(distances);
                *rate = rate.max(self.slice(Operation::Select, TRIAL)?.rate());
            }
        }
        let mut best = 0;
        for index in 0..rates.len() {
            if rates[index] > rates[best] {
                best = index;
            }
        }
        self.set_distances(DISTANCES[best]);
        Ok(DISTANCES[best])
    }

    fn set_distances(&mut self, distances: Distances) {
        self.distances = distances;
        for part in &mut self.parts {
            part.set_distances(distances);
        }
    }
}

impl<P: Tuned + Send> Subject for Limit<P> {
    fn name(&self) -> &str {
        "limit"
    }

    fn prepare(&mut self, operation: Operation) -> Result<(), Failure> {
        team::run(&mut self.parts, |_, part, _| part.prepare(operation))
            .into_iter()
            .collect()
    }

    fn slice(&mut self, operation: Operation, budget: Budget) -> Result<Slice, Failure> {
        let work = |_: usize, part: &mut P, gate: &Gate| -> Share {
            drive(gate, budget, |most| part.chunk(operation, most))
        };
        Slice::of("limit", operation, team::run(&mut self.parts, work))
    }

    fn settle(&mut self, operation: Operation) -> Result<(), Failure> {
        for part in &mut self.parts {
            let (stored, live) = (part.stored(), part.stream().live());
            if stored != live {
                return Err(Failure::new(format!(
                    "after {operation} the limit holds {stored} rows instead of {live}"
                )));
            }
        }
        Ok(())
    }
}
