//! Sessions whose calls are futures, for any executor.
//!
//! A future does what can be done, asks the shard that it waits for to wake its task, and returns.
//! What it waits for is the same that a blocking client waits for: the answer to the oldest request of
//! a lane ([`wait`]), or the end of a proposal. No thread and no timer is needed.
//!
//! # Dropped futures
//! A block that was sent is executed, whoever waits for it; one that was being filled is thrown away.
//! What remains of a dropped future is left to the next use of its session, which waits for answers
//! that nobody took before it sends anything. Memory that shards may still touch belongs to the lane,
//! never to a future.

mod commit;
mod run;
mod transaction;
mod wait;

use std::marker::PhantomData;
use std::sync::Arc;

use super::link::{Link, Peers};
use super::operations::{
    Deletes, Inserts, KeyedWrites, Operations, Selects, Updates, Visited, first,
};
use super::transaction::TransactionOptions;
use crate::error::{Error, Result};
use crate::id::{DirectId, RowId, ShardIndex, SurrogateId};
use crate::shard::{Context, Reach};
use crate::table::{Batch, Row, Table, Verb};
pub use transaction::AsyncTransaction;
use wait::{begin, call, carry};

/// A task's access to an engine: a [`Session`](crate::Session) whose calls are futures.
///
/// They run on any executor, and many sessions may share a thread: a call that waits for a shard
/// leaves the thread to others. Calls of one session do not overlap; tasks that work at the same time
/// have a session each. Inside a shard they are refused ([`Error::InsideShard`]).
///
/// Its futures are `Send`; that of a transaction is seen to be so if its body owns what it uses
/// (`async move`).
///
/// **Dropped futures.** A future that is dropped, at any moment, leaves its session usable, and each
/// of its operations has happened once or not at all: what was sent happens, what was not sent does
/// not. A transaction happens as a whole or not at all: it does not if it is dropped before its commit
/// begins.
///
/// ```
/// use std::sync::Arc;
/// use std::task::{Context, Poll, Wake, Waker};
///
/// use ancile::{Engine, Schema, SurrogateId};
///
/// struct Unpark(std::thread::Thread);
/// impl Wake for Unpark {
///     fn wake(self: Arc<Self>) {
///         self.0.unpark();
///     }
/// }
///
/// fn block_on<T>(future: impl Future<Output = T>) -> T {
///     let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
///     let mut future = std::pin::pin!(future);
///     loop {
///         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
///             Poll::Ready(value) => return value,
///             Poll::Pending => std::thread::park(),
///         }
///     }
/// }
///
/// let engine = Engine::builder().shards(2).arena_bytes(64 << 20).build()?;
/// let accounts = engine.create_table::<[u64; 1]>("accounts", Schema::cells(1).keyed())?;
/// let mut session = engine.async_session()?;
/// block_on(async {
///     let (from, to) = (SurrogateId(1), SurrogateId(2));
///     session.insert_keyed_batch(&accounts, &[from, to], &[[100], [0]]).await?;
///     session
///         .transaction(async |transaction| {
///             let [balance] = transaction.select(&accounts, from).await?.unwrap_or_default();
///             transaction.update(&accounts, from, &[balance - 30]).await?;
///             transaction.update(&accounts, to, &[30]).await
///         })
///         .await?;
///     assert_eq!(session.select(&accounts, to).await?, Some([30]));
///     Ok::<(), ancile::Error>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AsyncSession {
    link: Link,
}

impl AsyncSession {
    pub(crate) fn new(peers: Arc<Peers>, turn: usize) -> Self {
        Self {
            link: Link::new(peers, turn),
        }
    }

    /// Adds a row, placed in the shards by turns.
    pub async fn insert<R: Row>(&mut self, table: &Table<R>, row: &R) -> Result<DirectId> {
        let mut ids = Vec::with_capacity(1);
        self.insert_batch(table, std::slice::from_ref(row), &mut ids)
            .await?;
        Ok(ids[0])
    }

    /// Adds a row with a key; [`Error::Duplicate`] if there is one.
    pub async fn insert_keyed<R: Row>(
        &mut self,
        table: &Table<R>,
        key: SurrogateId,
        row: &R,
    ) -> Result<DirectId> {
        let (keys, rows) = ([key], std::slice::from_ref(row));
        let writes = KeyedWrites::new(Verb::Insert, table, &keys, rows)?;
        let writes = self.keyed_writes(table, writes).await?;
        writes.last.ok_or(Error::Duplicate { key: key.0 })
    }

    /// Replaces the row of a key, or adds it; says whether there was one.
    pub async fn upsert<R: Row>(
        &mut self,
        table: &Table<R>,
        key: SurrogateId,
        row: &R,
    ) -> Result<bool> {
        let (keys, rows) = ([key], std::slice::from_ref(row));
        let writes = KeyedWrites::new(Verb::Upsert, table, &keys, rows)?;
        Ok(self.keyed_writes(table, writes).await?.inserted == 0)
    }

    /// The row, if there is one.
    pub async fn select<R: Row, I: RowId>(&mut self, table: &Table<R>, id: I) -> Result<Option<R>> {
        let mut found = None;
        let visit = |_, row: Option<&R>| found = row.cloned();
        self.select_each(table, &[id], visit).await?;
        Ok(found)
    }

    /// Replaces a row; says whether there was one.
    pub async fn update<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        id: I,
        row: &R,
    ) -> Result<bool> {
        let rows = std::slice::from_ref(row);
        Ok(self.update_batch(table, &[id], rows).await? > 0)
    }

    /// Removes a row; says whether there was one.
    pub async fn delete<R: Row, I: RowId>(&mut self, table: &Table<R>, id: I) -> Result<bool> {
        Ok(self.delete_batch(table, &[id]).await? > 0)
    }

    /// Visits the row of each id, with the id's number in `ids`; not in order.
    pub async fn select_each<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        ids: &[I],
        visit: impl FnMut(usize, Option<&R>),
    ) -> Result<()> {
        table.check_id::<I>()?;
        let row = PhantomData;
        self.carry(table, Selects { ids, visit, row }).await?;
        Ok(())
    }

    /// The row of each id, in order.
    pub async fn select_batch<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        ids: &[I],
    ) -> Result<Vec<Option<R>>> {
        let mut rows = vec![None; ids.len()];
        let visit = |at: usize, row: Option<&R>| rows[at] = row.cloned();
        self.select_each(table, ids, visit).await?;
        Ok(rows)
    }

    /// Replaces the row of each id; says how many there were.
    pub async fn update_batch<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        ids: &[I],
        rows: &[R],
    ) -> Result<usize> {
        let updates = Updates::new(table, ids, rows)?;
        Ok(self.carry(table, updates).await?.updated)
    }

    /// Removes the row of each id; says how many there were.
    pub async fn delete_batch<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        ids: &[I],
    ) -> Result<usize> {
        table.check_id::<I>()?;
        Ok(self
            .carry(table, Deletes { ids, deleted: 0 })
            .await?
            .deleted)
    }

    /// Adds rows; their ids are appended to `ids`, in order. After an error these are the ids of the
    /// rows that were added all the same; a dropped future appends nothing.
    pub async fn insert_batch<R: Row>(
        &mut self,
        table: &Table<R>,
        rows: &[R],
        ids: &mut Vec<DirectId>,
    ) -> Result<()> {
        if let Err(error) = table.check_insert::<DirectId>() {
            // A table that is gone says that first.
            return self.count(table).await.and(Err(error));
        }
        let mut added = vec![DirectId::from_u64(0); rows.len()];
        let inserts = Inserts::new(table, rows, &mut added)?;
        let result = match self.carry(table, inserts).await {
            Ok(inserts) => first(inserts.error),
            Err(error) => Err(error),
        };
        // No direct id is 0.
        ids.extend(added.into_iter().filter(|id| id.to_u64() != 0));
        result
    }

    /// Adds rows with keys; says how many were added. Rows whose key exists are left out.
    pub async fn insert_keyed_batch<R: Row>(
        &mut self,
        table: &Table<R>,
        keys: &[SurrogateId],
        rows: &[R],
    ) -> Result<usize> {
        let writes = KeyedWrites::new(Verb::Insert, table, keys, rows)?;
        Ok(self.keyed_writes(table, writes).await?.inserted)
    }

    /// Runs a mixture of operations; [`Batch::outcomes`] tells what became of each, and nothing if the
    /// future is dropped.
    pub async fn run<R: Row, I: RowId>(&mut self, batch: &mut Batch<R, I>) -> Result<()> {
        let mut outcomes = batch.begin_outcomes();
        let (table, operations) = batch.view();
        let visited = Visited {
            operations,
            visit: |at: usize, outcome: crate::table::Outcome<&R>| outcomes[at] = outcome.cloned(),
            row: PhantomData,
        };
        let result = self.carry(table, visited).await.map(drop);
        batch.end_outcomes(outcomes);
        result
    }

    /// Rows of a table over all shards. Rows that others add or remove meanwhile may be counted or not.
    pub async fn count<R: Row>(&mut self, table: &Table<R>) -> Result<u64> {
        let mut sum = 0;
        for shard in 0..self.link.peers().shards() {
            let table = table.clone();
            let count =
                move |context: &mut Context<'_>| Ok::<_, Error>(context.rows(&table)?.count());
            sum += call(&mut self.link, shard, Reach::Reads, count).await?;
        }
        Ok(sum)
    }

    /// Runs a closure in a shard as one transaction: all of it happens, or, after `Err` or a panic,
    /// nothing. The closure runs to its end without interruption; others wait for it. Once it was sent
    /// it runs, also if the future is dropped.
    pub async fn on<T, E, F>(&mut self, shard: ShardIndex, closure: F) -> Result<T, E>
    where
        F: FnOnce(&mut Context<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        call(&mut self.link, shard, Reach::All, closure).await
    }

    /// Runs a transaction over any tables and shards, as
    /// [`Verbs::transaction`](crate::Verbs::transaction): `body` is called again after conflicts.
    pub async fn transaction<T, E: From<Error>>(
        &mut self,
        body: impl AsyncFnMut(&mut AsyncTransaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        run::run(self, TransactionOptions::default(), body).await
    }

    /// Runs a transaction, as [`transaction`](Self::transaction), of any isolation.
    pub async fn transaction_with<T, E: From<Error>>(
        &mut self,
        options: TransactionOptions,
        body: impl AsyncFnMut(&mut AsyncTransaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        run::run(self, options, body).await
    }

    /// Carries operations to their end.
    async fn carry<R: Row, O: Operations>(&mut self, table: &Table<R>, operations: O) -> Result<O> {
        begin(&mut self.link).await?;
        let result = carry(&mut self.link, table, operations).await;
        self.link.end();
        result
    }

    async fn keyed_writes<'a, R: Row>(
        &mut self,
        table: &Table<R>,
        writes: KeyedWrites<'a, R>,
    ) -> Result<KeyedWrites<'a, R>> {
        let mut writes = self.carry(table, writes).await?;
        first(writes.error.take())?;
        Ok(writes)
    }
}
