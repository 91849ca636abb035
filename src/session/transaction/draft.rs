//! A transaction as it is put together: what it has read, what it makes of it, what it will propose.
//!
//! Nothing here waits or talks to shards; that differs between clients, and is all that does.

use super::log::{Log, Touched, Wanted};
use super::{Isolation, TransactionOptions};
use crate::error::{Error, Result};
use crate::id::{DirectId, RowId, ShardIndex, SurrogateId, TableKey};
use crate::limits::{LEASE_DOUBLINGS_MAX, LEASE_MICROS, TRIES_BEFORE_LEASE};
use crate::session::link::Peers;
use crate::shard::Sighting;
use crate::table::{Compared, Row, Table, Width};
use crate::transaction::mutant::{self, Mutant};
use crate::transaction::{Action, NEVER, Proposal, Purpose, Verdict};

/// One try of a transaction.
pub(in crate::session) struct Draft {
    options: TransactionOptions,
    deadline: u64,
    pub(in crate::session) log: Log,
    /// The rows that it has to itself, after it failed too often.
    pub(in crate::session) lease: Option<Proposal>,
}

impl Draft {
    pub(in crate::session) fn new(
        options: TransactionOptions,
        deadline: u64,
        lease: Option<Proposal>,
    ) -> Self {
        Self {
            options,
            deadline,
            log: Log::default(),
            lease,
        }
    }

    pub(super) fn isolation(&self) -> Isolation {
        self.options.isolation
    }

    pub(in crate::session) fn check_change(&self) -> Result<()> {
        if self.options.is_read_only {
            return Err(Error::ReadOnly);
        }
        Ok(())
    }

    pub(in crate::session) fn check_time(&self, peers: &Peers) -> Result<()> {
        if self.options.timeout.is_some() && (peers.clock)() >= self.deadline {
            return Err(Error::TimedOut);
        }
        Ok(())
    }

    /// The entry of a row that need not be read again.
    pub(in crate::session) fn known<R: Row, I: RowId>(
        &self,
        table: &Table<R>,
        id: I,
    ) -> Option<usize> {
        self.log.find(table.key(), id).filter(|&at| {
            self.options.isolation == Isolation::Serializable || self.log.is_changed(at)
        })
    }

    /// The entry of a row that was read before.
    pub(in crate::session) fn found<R: Row, I: RowId>(
        &self,
        table: &Table<R>,
        id: I,
    ) -> Result<usize> {
        self.log.find(table.key(), id).ok_or(Error::TableGone)
    }

    /// Those rows that have to be read, with their shards.
    pub(in crate::session) fn unread<R: Row, I: RowId>(
        &self,
        table: &Table<R>,
        ids: &[I],
        shards: usize,
    ) -> Vec<(ShardIndex, Vec<I>)> {
        let mut by_shard: Vec<(ShardIndex, Vec<I>)> = Vec::new();
        for &id in ids.iter().filter(|&&id| self.known(table, id).is_none()) {
            let shard = id.shard_of(shards);
            match by_shard.iter_mut().find(|(other, _)| *other == shard) {
                Some((_, ids)) => ids.push(id),
                None => by_shard.push((shard, vec![id])),
            }
        }
        by_shard
    }

    /// Notes what was read of rows.
    pub(in crate::session) fn learn<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        shard: ShardIndex,
        ids: &[I],
        found: Vec<Sighting>,
    ) {
        let is_repeatable = self.options.isolation == Isolation::Serializable;
        for (&id, sighting) in ids.iter().zip(found) {
            let touched = Touched::new(table.key(), shard, table.is_keyed(), sighting);
            self.log.learn(id, touched, is_repeatable);
        }
    }

    /// The entry of a record that need not be read again.
    pub(in crate::session) fn known_record(
        &self,
        table: TableKey,
        wanted: &Wanted,
    ) -> Option<usize> {
        let is_repeatable = self.options.isolation == Isolation::Serializable;
        let at = self.log.find_record(table, wanted).ok()?;
        (is_repeatable || self.log.is_changed(at)).then_some(at)
    }

    /// Notes what was read of a record; its entry.
    pub(in crate::session) fn learn_record(
        &mut self,
        table: TableKey,
        shard: ShardIndex,
        wanted: Wanted,
        sighting: Sighting,
    ) -> usize {
        let is_repeatable = self.options.isolation == Isolation::Serializable;
        let touched = Touched::of_record(table, shard, wanted, sighting);
        self.log.learn_record(touched, is_repeatable)
    }

    /// The image of a record, as the transaction sees it.
    pub(in crate::session) fn image(&self, at: usize) -> Option<&[u64]> {
        self.log.row(at)
    }

    pub(in crate::session) fn insert_record(&mut self, at: usize, image: Box<[u64]>) -> Result<()> {
        if self.log.row(at).is_some() {
            return Err(Error::DuplicateKey);
        }
        self.log.write(at, image);
        Ok(())
    }

    pub(in crate::session) fn row<R: Row>(&self, at: usize) -> Option<R> {
        self.log.row(at).map(R::load)
    }

    pub(in crate::session) fn columns(&self, at: usize, columns: &[usize]) -> Option<Vec<u64>> {
        let cells = self.log.row(at)?;
        Some(columns.iter().map(|&column| cells[column]).collect())
    }

    /// Notes a row whose place was reserved for it.
    pub(in crate::session) fn insert(
        &mut self,
        table: TableKey,
        shard: ShardIndex,
        id: DirectId,
        cells: Box<[u64]>,
    ) {
        self.log.reserved(table, shard, id, cells);
    }

    pub(in crate::session) fn insert_keyed(
        &mut self,
        at: usize,
        key: SurrogateId,
        cells: Box<[u64]>,
    ) -> Result<()> {
        if self.log.row(at).is_some() {
            return Err(Error::Duplicate { key: key.0 });
        }
        self.log.write(at, cells);
        Ok(())
    }

    pub(in crate::session) fn upsert(&mut self, at: usize, cells: Box<[u64]>) -> bool {
        let was_there = self.log.row(at).is_some();
        self.log.write(at, cells);
        was_there
    }

    pub(in crate::session) fn update(&mut self, at: usize, cells: Box<[u64]>) -> bool {
        let is_there = self.log.row(at).is_some();
        if is_there {
            self.log.write(at, cells);
        }
        is_there
    }

    /// Writes what was made of a row as it was seen: that it is still so is checked when the transaction
    /// commits, at every isolation.
    pub(in crate::session) fn derive(&mut self, at: usize, cells: Box<[u64]>) {
        self.log.derive(at, cells);
    }

    /// A row must still be as it was seen when the transaction commits, at every isolation.
    pub(in crate::session) fn rely_on(&mut self, at: usize) {
        self.log.rely_on(at);
    }

    pub(in crate::session) fn update_columns(
        &mut self,
        at: usize,
        values: &[(usize, u64)],
    ) -> bool {
        let is_there = self.log.row(at).is_some();
        if is_there {
            self.log.set(at, &[], values);
        }
        is_there
    }

    pub(in crate::session) fn update_if(
        &mut self,
        at: usize,
        expected: &[(usize, u64)],
        values: &[(usize, u64)],
    ) -> Compared {
        let Some(cells) = self.log.row(at) else {
            return Compared::NotFound;
        };
        if expected
            .iter()
            .any(|&(column, value)| cells[column] != value)
        {
            return Compared::Differs;
        }
        self.log.set(at, expected, values);
        Compared::Updated
    }

    pub(in crate::session) fn delete(&mut self, at: usize) -> bool {
        let is_there = self.log.row(at).is_some();
        if is_there {
            self.log.delete(at);
        }
        is_there
    }

    /// What is to be sent to commit, if anything has to be.
    pub(in crate::session) fn commit_proposal(&mut self) -> Option<Proposal> {
        self.proposal(self.log.has_changes())
    }

    /// Whether anything is to be changed.
    pub(in crate::session) fn has_changes(&self) -> bool {
        self.log.has_changes()
    }

    /// What is to be sent to see whether what was read is still so; `None` if that makes no
    /// difference, or cannot be otherwise.
    pub(in crate::session) fn check_proposal(&mut self) -> Option<Proposal> {
        if self.options.isolation == Isolation::ReadCommitted {
            return None;
        }
        let mut proposal = self.proposal(false)?;
        for part in &mut proposal.parts {
            part.operations
                .iter_mut()
                .for_each(|operation| operation.action = Action::Check);
        }
        Some(proposal)
    }

    fn proposal(&mut self, has_changes: bool) -> Option<Proposal> {
        let isolation = self.options.isolation;
        let mut proposal = match self.lease.take() {
            Some(lease) => lease,
            None if !has_changes
                && (isolation == Isolation::ReadCommitted || self.log.is_of_one_moment()) =>
            {
                return None;
            }
            None if has_changes => Proposal::new(Purpose::Commit),
            None => Proposal::new(Purpose::Validate),
        };
        proposal.deadline = self.deadline;
        proposal.verdicts = vec![Verdict::Open];
        self.log.propose(&mut proposal, isolation);
        // A row that is absent again may have come and gone meanwhile, so that it was absent at the one
        // moment and the other rows were as they were read at another: then all have to be so at once.
        if proposal.purpose == Purpose::Validate
            && proposal.parts.len() > 1
            && self.log.has_seen_absence()
            && !mutant::is(Mutant::AbsenceUnguarded)
        {
            proposal.purpose = Purpose::Commit;
        }
        (!proposal.parts.is_empty()).then_some(proposal)
    }

    /// The rows that the transaction has to do with, to be had to itself.
    pub(in crate::session) fn footprint(&self, lease_micros: u64) -> Proposal {
        let mut footprint = Proposal::new(Purpose::Lease);
        footprint.lease_micros = lease_micros;
        footprint.deadline = self.deadline;
        footprint.verdicts = vec![Verdict::Open];
        self.log.propose(&mut footprint, Isolation::Serializable);
        footprint
    }
}

/// Reading of the engine's clock at which a transaction that begins now has to be over.
pub(in crate::session) fn deadline_of(peers: &Peers, options: TransactionOptions) -> u64 {
    let Some(timeout) = options.timeout else {
        return NEVER;
    };
    let micros = u64::try_from(timeout.as_micros()).unwrap_or(NEVER);
    (peers.clock)().saturating_add(micros)
}

/// The tries of a transaction that were in vain.
#[derive(Clone, Copy)]
pub(in crate::session) struct Tries {
    made: u32,
    max: u32,
}

impl Tries {
    pub(in crate::session) fn new(options: TransactionOptions) -> Self {
        Self {
            made: 0,
            max: options.tries,
        }
    }

    /// Counts one more; an error if it was the last.
    pub(in crate::session) fn count(&mut self) -> Result<()> {
        self.made += 1;
        if self.made >= self.max {
            return Err(Error::Conflict { tries: self.made });
        }
        Ok(())
    }

    pub(in crate::session) fn made(self) -> u32 {
        self.made
    }

    /// For how long the next try is to have its rows to itself, if it is. Not each is, and for longer
    /// each time, as a transaction that takes longer than its lease has had it for nothing.
    pub(in crate::session) fn lease(self) -> Option<u64> {
        let since = self.made.checked_sub(TRIES_BEFORE_LEASE)?;
        let leases = since / 2;
        since
            .is_multiple_of(2)
            .then(|| LEASE_MICROS << leases.min(LEASE_DOUBLINGS_MAX))
    }
}

/// A row's cells, as they travel.
pub(in crate::session) fn cells_of<R: Row>(table: &Table<R>, row: &R) -> Result<Box<[u64]>> {
    table.check_row(row)?;
    let mut cells = vec![0; table.width().cells()];
    row.store(&mut cells);
    Ok(cells.into())
}

pub(in crate::session) fn check_columns<R: Row>(
    table: &Table<R>,
    mut columns: impl Iterator<Item = usize>,
) -> Result<()> {
    let count = table.width().cells();
    match columns.find(|&column| column >= count) {
        None => Ok(()),
        Some(column) => Err(Error::Column {
            column,
            columns: count,
        }),
    }
}
