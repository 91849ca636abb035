//! The calls that are timed, and the load beside them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ancile::{DirectId, Engine, Outcome, Session, Table, Verbs};

use super::timer::{Bound, Pace, Timer};
use super::{COLUMNS, Row};
use crate::failure::Failure;
use crate::workload::row_of;

/// Operations that are submitted at once where calls are pipelined.
pub(super) const PIPELINED: usize = 32;

/// Rows of a batch of the load.
const LOAD_BATCH: usize = 64;

/// What one call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// Resident work reads a row of its own shard.
    Own,
    /// A thread asks for a row and waits.
    Select,
    /// A thread changes a row and waits.
    Update,
    /// A thread submits 32 changes, and takes the answers as they come.
    Pipelined,
    /// A row is read and changed in a transaction.
    Transaction,
}

impl Call {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Own => "select in its shard",
            Self::Select => "select",
            Self::Update => "update",
            Self::Pipelined => "update, 32 at once",
            Self::Transaction => "transaction",
        }
    }
}

/// An engine of one shard with a full table.
pub(super) struct Loaded {
    pub(super) engine: Engine,
    pub(super) table: Table<Row>,
    /// All rows, in random order; which one a row is, is in its first column.
    pub(super) ids: Vec<DirectId>,
}

impl Loaded {
    /// Times calls; with a load, while another session changes rows in batches.
    pub(super) fn time(
        &self,
        call: Call,
        loaded: bool,
        pace: Pace,
        bound: Bound,
    ) -> Result<Timer, Failure> {
        if !loaded {
            return self.calls(call, pace, bound);
        }
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let load = scope.spawn(|| self.load_until(&done));
            let timer = self.calls(call, pace, bound);
            done.store(true, Ordering::Relaxed);
            load.join()
                .map_err(|_| Failure::new("the load has panicked"))??;
            timer
        })
    }

    fn calls(&self, call: Call, pace: Pace, bound: Bound) -> Result<Timer, Failure> {
        if call == Call::Own {
            return self.own(pace, bound);
        }
        let mut session = self.engine.session()?;
        Timer::run(pace, bound, |number, timer| match call {
            Call::Own | Call::Select => {
                let row = session.select(&self.table, self.id(number))?;
                timer.answered()?;
                is_there(row.is_some())
            }
            Call::Update => {
                let changed = session.update(&self.table, self.id(number), &row_of(7))?;
                timer.answered()?;
                is_there(changed)
            }
            Call::Pipelined => self.pipelined(&mut session, number, timer),
            Call::Transaction => {
                let id = self.id(number);
                let changed = session.transaction(|transaction| {
                    let row = transaction.select(&self.table, id)?;
                    transaction.update(&self.table, id, &row.unwrap_or_default())
                })?;
                timer.answered()?;
                is_there(changed)
            }
        })
    }

    fn pipelined(
        &self,
        session: &mut Session,
        number: usize,
        timer: &mut Timer,
    ) -> Result<(), Failure> {
        let mut pipeline = session.pipeline::<Row, DirectId>(&self.table);
        for place in 0..PIPELINED {
            pipeline.update(self.id(number * PIPELINED + place), &row_of(7))?;
        }
        while let Some((_, outcome)) = pipeline.wait()? {
            timer.answered()?;
            is_there(matches!(outcome, Outcome::Updated))?;
        }
        Ok(())
    }

    fn own(&self, pace: Pace, bound: Bound) -> Result<Timer, Failure> {
        let (table, ids) = (self.table.clone(), self.ids.clone());
        let task = self.engine.spawn(0, move |resident| {
            let rows = resident.rows(&table)?;
            Timer::run(pace, bound, |number, timer| {
                let row = rows.select(ids[number % ids.len()]);
                timer.answered()?;
                is_there(row.is_some())
            })
        })?;
        task.join()?
    }

    fn load_until(&self, done: &AtomicBool) -> Result<(), Failure> {
        let mut session = self.engine.session()?;
        let rows = vec![[3; COLUMNS]; LOAD_BATCH];
        for ids in self.ids.chunks_exact(LOAD_BATCH).cycle() {
            if done.load(Ordering::Relaxed) {
                break;
            }
            is_there(session.update_batch(&self.table, ids, &rows)? == LOAD_BATCH)?;
        }
        Ok(())
    }

    fn id(&self, number: usize) -> DirectId {
        self.ids[number % self.ids.len()]
    }
}

fn is_there(there: bool) -> Result<(), Failure> {
    if there {
        return Ok(());
    }
    Err(Failure::new("a row that was inserted is not there"))
}
