//! Transactions of a client: read anywhere, write to oneself, commit everywhere or nowhere.
//!
//! [`log`] keeps what a transaction has read and what it wants to change, [`draft`] what its verbs
//! mean; [`commit`] sends it over its participants and waits for the verdict; [`mod@run`] tries again
//! after conflicts. The chain itself is the shards' (`shard/chain.rs`).

mod commit;
mod declared;
mod draft;
mod globals;
mod log;
mod nodes;
mod options;
mod records;
mod run;

use super::call::call;
use super::host::Host;
use super::verbs::Verbs;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::id::{DirectId, RowId, ShardIndex, SurrogateId};
use crate::shard::{Context, Reach};
use crate::table::{Compared, Row, Table};
use crate::transaction::Proposal;
pub(super) use commit::{Ending, Sent, ending_of, leased, let_go};
pub use declared::{TransactionOutcome, Transactions};
pub(super) use declared::{finish_all, start_all};
pub(super) use draft::{Draft, Tries, cells_of, check_columns, deadline_of};
pub use globals::TransactionGlobals;
pub use options::{Isolation, TransactionOptions};
pub use records::TransactionRecords;
pub(super) use run::run;

/// A transaction over any tables and any shards of an engine.
///
/// What it changes stays with it, seen by its own reads alone, until it commits: then all of it
/// happens, or nothing. What it reads is what others have committed; see [`Isolation`] for how much
/// may change between two reads. Nobody waits for a transaction while it is being put together, and
/// dropping it changes nothing.
///
/// ```
/// use ancile::{Engine, Isolation, Schema, SurrogateId, TransactionOptions, Verbs};
/// let engine = Engine::builder().shards(2).arena_bytes(64 << 20).build()?;
/// let accounts = engine.create_table::<[u64; 1]>("accounts", Schema::cells(1).keyed())?;
/// let mut session = engine.session()?;
/// let (from, to) = (SurrogateId(1), SurrogateId(2));
/// session.insert_keyed(&accounts, from, &[100])?;
/// session.insert_keyed(&accounts, to, &[0])?;
///
/// let options = TransactionOptions::new(Isolation::Serializable);
/// session.transaction_with(options, |transaction| {
///     let [balance] = transaction.select(&accounts, from)?.unwrap_or_default();
///     let [other] = transaction.select(&accounts, to)?.unwrap_or_default();
///     transaction.update(&accounts, from, &[balance - 30])?;
///     transaction.update(&accounts, to, &[other + 30])?;
///     Ok::<_, ancile::Error>(())
/// })?;
/// assert_eq!(session.select(&accounts, to)?, Some([30]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Transaction<'s, S: Verbs> {
    session: &'s mut S,
    draft: Draft,
}

/// A moment of a transaction to which it can be taken back. One that was taken back itself, and one
/// of another transaction, mean nothing: rolling back to it takes back some of the latest changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint(pub(super) usize);

impl<'s, S: Verbs> Transaction<'s, S> {
    pub(super) fn begin(session: &'s mut S, options: TransactionOptions) -> Result<Self> {
        let deadline = deadline_of(session.port()?.0.peers(), options);
        Ok(Self::new(session, options, deadline, None))
    }

    fn new(
        session: &'s mut S,
        options: TransactionOptions,
        deadline: u64,
        lease: Option<Proposal>,
    ) -> Self {
        let draft = Draft::new(options, deadline, lease);
        Self { session, draft }
    }

    /// The row, as this transaction sees it.
    pub fn select<R: Row, I: RowId>(&mut self, table: &Table<R>, id: I) -> Result<Option<R>> {
        let at = self.look(table, id)?;
        Ok(self.draft.row(at))
    }

    /// The row of each id, in order. Faster than one by one: a hop for each shard, not for each row.
    pub fn select_batch<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        ids: &[I],
    ) -> Result<Vec<Option<R>>> {
        table.check_id::<I>()?;
        self.check_time()?;
        self.fetch(table, ids)?;
        let row = |&id: &I| Ok(self.draft.row(self.draft.found(table, id)?));
        ids.iter().map(row).collect()
    }

    /// Some columns of a row, by number, in the order asked for.
    pub fn select_columns<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        id: I,
        columns: &[usize],
    ) -> Result<Option<Vec<u64>>> {
        check_columns(table, columns.iter().copied())?;
        let at = self.look(table, id)?;
        Ok(self.draft.columns(at, columns))
    }

    /// Adds a row to a table without keys, placed in the shards by turns. Nobody else finds it before
    /// the commit.
    pub fn insert<R: Row>(&mut self, table: &Table<R>, row: &R) -> Result<DirectId> {
        self.draft.check_change()?;
        table.check_insert::<DirectId>()?;
        let cells = cells_of(table, row)?;
        let shard = {
            let (link, host) = self.session.port()?;
            host.own().unwrap_or_else(|| link.next_shard())
        };
        let key = table.key();
        let id = self.ask(shard, Reach::Reads, move |context| {
            context.reserve_place(key)
        })?;
        self.draft.insert(key, shard, id, cells);
        Ok(id)
    }

    /// Adds a row with a key; [`Error::Duplicate`] if there is one.
    pub fn insert_keyed<R: Row>(
        &mut self,
        table: &Table<R>,
        key: SurrogateId,
        row: &R,
    ) -> Result<()> {
        table.check_insert::<SurrogateId>()?;
        let cells = cells_of(table, row)?;
        let at = self.look_to_change(table, key)?;
        self.draft.insert_keyed(at, key, cells)
    }

    /// Replaces the row of a key, or adds it; says whether there was one.
    pub fn upsert<R: Row>(&mut self, table: &Table<R>, key: SurrogateId, row: &R) -> Result<bool> {
        table.check_insert::<SurrogateId>()?;
        let cells = cells_of(table, row)?;
        let at = self.look_to_change(table, key)?;
        Ok(self.draft.upsert(at, cells))
    }

    /// Replaces a row; says whether there was one.
    pub fn update<R: Row, I: RowId>(&mut self, table: &Table<R>, id: I, row: &R) -> Result<bool> {
        let cells = cells_of(table, row)?;
        let at = self.look_to_change(table, id)?;
        Ok(self.draft.update(at, cells))
    }

    /// Sets some columns of a row, by number; says whether there was one.
    pub fn update_columns<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        id: I,
        values: &[(usize, u64)],
    ) -> Result<bool> {
        check_columns(table, values.iter().map(|&(column, _)| column))?;
        let at = self.look_to_change(table, id)?;
        Ok(self.draft.update_columns(at, values))
    }

    /// Sets some columns of a row if all of `expected` have these values. That they have is checked
    /// again when the transaction commits, at every isolation.
    pub fn update_if<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        id: I,
        expected: &[(usize, u64)],
        values: &[(usize, u64)],
    ) -> Result<Compared> {
        let columns = expected.iter().chain(values).map(|&(column, _)| column);
        check_columns(table, columns)?;
        let at = self.look_to_change(table, id)?;
        Ok(self.draft.update_if(at, expected, values))
    }

    /// Removes a row; says whether there was one.
    pub fn delete<R: Row, I: RowId>(&mut self, table: &Table<R>, id: I) -> Result<bool> {
        let at = self.look_to_change(table, id)?;
        Ok(self.draft.delete(at))
    }

    /// Marks this moment, to come back to with [`roll_back_to`](Self::roll_back_to).
    pub fn savepoint(&self) -> Savepoint {
        Savepoint(self.draft.log.moment())
    }

    /// Takes back every change since a savepoint, and with it the savepoints since then. What was read
    /// stays read.
    pub fn roll_back_to(&mut self, savepoint: Savepoint) {
        self.draft.log.roll_back_to(savepoint.0);
    }

    /// Runs a part of the transaction whose changes are taken back if it returns an error.
    pub fn nested<T, E>(&mut self, part: impl FnOnce(&mut Self) -> Result<T, E>) -> Result<T, E> {
        let savepoint = self.savepoint();
        let result = part(self);
        if result.is_err() {
            self.roll_back_to(savepoint);
        }
        result
    }

    /// Makes all changes happen, or none; [`Error::Conflict`] if others changed what it relies on.
    pub fn commit(mut self) -> Result<()> {
        self.finish()
    }

    /// Ends the transaction without any change; so does dropping it.
    pub fn roll_back(self) {}

    /// Looks a row up: what the transaction has read or changed before, or else what is committed.
    fn look<R: Row, I: RowId>(&mut self, table: &Table<R>, id: I) -> Result<usize> {
        table.check_id::<I>()?;
        self.check_time()?;
        if let Some(at) = self.draft.known(table, id) {
            return Ok(at);
        }
        self.fetch(table, &[id])?;
        self.draft.found(table, id)
    }

    fn look_to_change<R: Row, I: RowId>(&mut self, table: &Table<R>, id: I) -> Result<usize> {
        self.draft.check_change()?;
        self.look(table, id)
    }

    /// Reads rows that are not known from their shards, in one hop for each shard.
    fn fetch<R: Row, I: RowId>(&mut self, table: &Table<R>, ids: &[I]) -> Result<()> {
        let key = table.key();
        let shards = self.session.port()?.0.peers().shards();
        for (shard, ids) in self.draft.unread(table, ids, shards) {
            let found = self.ask(shard, Reach::Reads, |context| context.fetch(key, &ids))?;
            self.draft.learn(table, shard, &ids, found);
        }
        Ok(())
    }

    /// Runs a closure that changes no row in a shard.
    fn ask<T: Send>(
        &mut self,
        shard: ShardIndex,
        reach: Reach,
        closure: impl FnOnce(&mut Context<'_>) -> Result<T> + Send,
    ) -> Result<T> {
        let (link, mut host) = self.session.port()?;
        call(link, &mut host, shard, reach, closure)
    }

    fn check_time(&mut self) -> Result<()> {
        self.draft.check_time(self.session.port()?.0.peers())
    }
}

impl<S: Verbs> Drop for Transaction<'_, S> {
    fn drop(&mut self) {
        self.abandon();
    }
}
