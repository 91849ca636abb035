//! The verbs of a transaction, as futures.

use std::sync::Arc;

use super::AsyncSession;
use super::commit::{Reserved, commit, give_back};
use super::wait::{Way, call, end_of, send};
use crate::error::{Error, Result};
use crate::id::{DirectId, RowId, ShardIndex, SurrogateId};
use crate::session::transaction::{
    Draft, Ending, Savepoint, cells_of, check_columns, ending_of, let_go,
};
use crate::shard::{Context, Reach};
use crate::table::{Compared, Row, Table};

/// A transaction over any tables and any shards, put together by futures.
///
/// It is what a [`Transaction`](crate::Transaction) is to a session that waits: made by
/// [`AsyncSession::transaction`]. A verb whose future is dropped has changed nothing.
pub struct AsyncTransaction<'s> {
    session: &'s mut AsyncSession,
    pub(super) draft: Draft,
}

impl<'s> AsyncTransaction<'s> {
    pub(super) fn new(session: &'s mut AsyncSession, draft: Draft) -> Self {
        Self { session, draft }
    }

    /// The row, as this transaction sees it.
    pub async fn select<R: Row, I: RowId>(&mut self, table: &Table<R>, id: I) -> Result<Option<R>> {
        let at = self.look(table, id).await?;
        Ok(self.draft.row(at))
    }

    /// The row of each id, in order. Faster than one by one: a hop for each shard, not for each row.
    pub async fn select_batch<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        ids: &[I],
    ) -> Result<Vec<Option<R>>> {
        table.check_id::<I>()?;
        self.check_time()?;
        self.fetch(table, ids).await?;
        let row = |&id: &I| Ok(self.draft.row(self.draft.found(table, id)?));
        ids.iter().map(row).collect()
    }

    /// Some columns of a row, by number, in the order asked for.
    pub async fn select_columns<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        id: I,
        columns: &[usize],
    ) -> Result<Option<Vec<u64>>> {
        check_columns(table, columns.iter().copied())?;
        let at = self.look(table, id).await?;
        Ok(self.draft.columns(at, columns))
    }

    /// Adds a row to a table without keys, placed in the shards by turns. Nobody else finds it before
    /// the commit.
    pub async fn insert<R: Row>(&mut self, table: &Table<R>, row: &R) -> Result<DirectId> {
        self.draft.check_change()?;
        table.check_insert::<DirectId>()?;
        let cells = cells_of(table, row)?;
        let (shard, key) = (self.session.link.next_shard(), table.key());
        let peers = Arc::clone(self.session.link.peers());
        let reserve = move |context: &mut Context<'_>| {
            let id = context.reserve_place(key)?;
            Ok(Reserved::new(peers, (key, shard, id)))
        };
        let reserved = self.ask(shard, reserve).await?;
        let (_, _, id) = reserved.keep().ok_or(Error::Closed)?;
        self.draft.insert(key, shard, id, cells);
        Ok(id)
    }

    /// Adds a row with a key; [`Error::Duplicate`] if there is one.
    pub async fn insert_keyed<R: Row>(
        &mut self,
        table: &Table<R>,
        key: SurrogateId,
        row: &R,
    ) -> Result<()> {
        table.check_insert::<SurrogateId>()?;
        let cells = cells_of(table, row)?;
        let at = self.look_to_change(table, key).await?;
        self.draft.insert_keyed(at, key, cells)
    }

    /// Replaces the row of a key, or adds it; says whether there was one.
    pub async fn upsert<R: Row>(
        &mut self,
        table: &Table<R>,
        key: SurrogateId,
        row: &R,
    ) -> Result<bool> {
        table.check_insert::<SurrogateId>()?;
        let cells = cells_of(table, row)?;
        let at = self.look_to_change(table, key).await?;
        Ok(self.draft.upsert(at, cells))
    }

    /// Replaces a row; says whether there was one.
    pub async fn update<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        id: I,
        row: &R,
    ) -> Result<bool> {
        let cells = cells_of(table, row)?;
        let at = self.look_to_change(table, id).await?;
        Ok(self.draft.update(at, cells))
    }

    /// Sets some columns of a row, by number; says whether there was one.
    pub async fn update_columns<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        id: I,
        values: &[(usize, u64)],
    ) -> Result<bool> {
        check_columns(table, values.iter().map(|&(column, _)| column))?;
        let at = self.look_to_change(table, id).await?;
        Ok(self.draft.update_columns(at, values))
    }

    /// Sets some columns of a row if all of `expected` have these values. That they have is checked
    /// again when the transaction commits, at every isolation.
    pub async fn update_if<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        id: I,
        expected: &[(usize, u64)],
        values: &[(usize, u64)],
    ) -> Result<Compared> {
        let columns = expected.iter().chain(values).map(|&(column, _)| column);
        check_columns(table, columns)?;
        let at = self.look_to_change(table, id).await?;
        Ok(self.draft.update_if(at, expected, values))
    }

    /// Removes a row; says whether there was one.
    pub async fn delete<R: Row, I: RowId>(&mut self, table: &Table<R>, id: I) -> Result<bool> {
        let at = self.look_to_change(table, id).await?;
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

    /// Runs a part of the transaction whose changes are taken back if it returns an error, or if the
    /// future is dropped.
    pub async fn nested<T, E>(
        &mut self,
        part: impl AsyncFnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let savepoint = self.savepoint();
        let mut nested = Nested {
            transaction: self,
            undo: Some(savepoint),
        };
        let result = part(nested.transaction).await;
        nested.undo = nested.undo.filter(|_| result.is_err());
        result
    }

    /// Commits, and waits for the verdict.
    pub(super) async fn commit(&mut self) -> Result<Ending> {
        commit(&mut self.session.link, &mut self.draft).await
    }

    /// Whether what was read is still so: whatever the transaction's code made of it, was made of
    /// rows that were there together.
    pub(super) async fn is_consistent(&mut self) -> Result<bool> {
        let Some(proposal) = self.draft.check_proposal() else {
            return Ok(true);
        };
        let link = &mut self.session.link;
        let mut sent = Some(send(link, proposal).await?);
        let proposal = end_of(link, &mut sent).await?;
        Ok(matches!(ending_of(&proposal)?, Ending::Committed))
    }

    /// Looks a row up: what the transaction has read or changed before, or else what is committed.
    async fn look<R: Row, I: RowId>(&mut self, table: &Table<R>, id: I) -> Result<usize> {
        table.check_id::<I>()?;
        self.check_time()?;
        if let Some(at) = self.draft.known(table, id) {
            return Ok(at);
        }
        self.fetch(table, &[id]).await?;
        self.draft.found(table, id)
    }

    async fn look_to_change<R: Row, I: RowId>(&mut self, table: &Table<R>, id: I) -> Result<usize> {
        self.draft.check_change()?;
        self.look(table, id).await
    }

    /// Reads rows that are not known from their shards, in one hop for each shard.
    async fn fetch<R: Row, I: RowId>(&mut self, table: &Table<R>, ids: &[I]) -> Result<()> {
        let key = table.key();
        let shards = self.session.link.peers().shards();
        for (shard, ids) in self.draft.unread(table, ids, shards) {
            let fetch = move |context: &mut Context<'_>| {
                let found = context.fetch(key, &ids)?;
                Ok((ids, found))
            };
            let (ids, found) = self.ask(shard, fetch).await?;
            self.draft.learn(table, shard, &ids, found);
        }
        Ok(())
    }

    /// Runs a closure that changes no row in a shard.
    async fn ask<T: Send + 'static>(
        &mut self,
        shard: ShardIndex,
        closure: impl FnOnce(&mut Context<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        call(&mut self.session.link, shard, Reach::Reads, closure).await
    }

    fn check_time(&self) -> Result<()> {
        self.draft.check_time(self.session.link.peers())
    }
}

impl Drop for AsyncTransaction<'_> {
    fn drop(&mut self) {
        let link = &mut self.session.link;
        if let Some(lease) = self.draft.lease.take() {
            let_go(&mut Way(link), lease);
        }
        give_back(link.peers(), self.draft.log.unused_places(false));
    }
}

/// A part of a transaction, which is taken back when this is dropped, unless it came to its end.
struct Nested<'a, 's> {
    transaction: &'a mut AsyncTransaction<'s>,
    undo: Option<Savepoint>,
}

impl Drop for Nested<'_, '_> {
    fn drop(&mut self) {
        if let Some(savepoint) = self.undo {
            self.transaction.roll_back_to(savepoint);
        }
    }
}
