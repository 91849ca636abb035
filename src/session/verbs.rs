//! What sessions and residents can do.

use std::marker::PhantomData;
use std::ops::ControlFlow;

use super::call::call;
use super::drive::drive;
use super::globals::GlobalVerbs;
use super::host::Host;
use super::link::Link;
use super::operations::{
    Deletes, Inserts, KeyedWrites, Operations, Selects, Updates, Visited, first,
};
use super::pipeline::Pipeline;
use super::records::RecordVerbs;
use super::settle;
use super::transaction::{self, Transaction, TransactionOptions, Transactions};
use crate::error::{Error, Result};
use crate::id::{DirectId, RowId, ShardIndex, SurrogateId};
use crate::limits::SCAN_SLOTS_PER_REQUEST;
use crate::shard::{Context, Reach, Rows};
use crate::table::{Batch, Compared, Globals, Outcome, Record, Records, Row, Table, Verb};

/// A client's lanes, and what it does while it waits.
pub(crate) trait Port {
    type Host<'a>: Host
    where
        Self: 'a;

    fn port(&mut self) -> Result<(&mut Link, Self::Host<'_>)>;
}

/// Begins a use of a client's lanes. What an earlier one has left behind is waited for and thrown
/// away, so that it is not taken for answers of this one.
#[inline]
pub(super) fn begin<P: Port>(client: &mut P) -> Result<(&mut Link, P::Host<'_>)> {
    let (link, mut host) = client.port()?;
    if link.begin() {
        let mut rounds = 0;
        while let Some(lane) = link.sweep() {
            host.pause(rounds, lane);
            rounds += 1;
        }
    }
    Ok((link, host))
}

/// Runs operations to their end.
#[inline]
fn run<R: Row, O: Operations>(
    client: &mut impl Port,
    table: &Table<R>,
    operations: O,
) -> Result<O> {
    let (link, mut host) = begin(client)?;
    let result = drive(link, &mut host, table, operations);
    link.end();
    result
}

/// The verbs of a [`Session`](crate::Session) and of a [`Resident`](crate::Resident).
///
/// Every operation is a transaction of its own, serial in its shard, and acknowledged when it
/// returns. `id` is a [`DirectId`] or, in keyed tables, a [`SurrogateId`]. Batches travel in blocks,
/// one stream to each shard: operations on the same shard happen in order, others in any order. When
/// a batch returns an error, some of its operations may have happened.
///
/// # Durability
/// A change returns when it has happened or, in a database with a journal, when it is on the disk: as
/// the engine's [`Durability`](crate::Durability) says, or
/// [`Session::set_acknowledge`](crate::Session::set_acknowledge). Reads never wait for the disk.
///
/// # Errors
/// Of any verb: [`Error::Closed`], [`Error::Forked`], [`Error::TableGone`], [`Error::ShardFailed`],
/// [`Error::Damaged`]; a session's inside a shard, [`Error::InsideShard`]. Of a verb with ids or keys:
/// [`Error::NotKeyed`], and [`Error::KeyNeeded`] where a keyed table gets a row without one. Of a verb
/// with rows or columns: [`Error::Width`], [`Error::Column`], [`Error::Lengths`]. Of one that changes
/// something: [`Error::ArenaFull`], [`Error::SlotsFull`], [`Error::DatabaseReadOnly`],
/// [`Error::JournalFull`], [`Error::JournalBroken`], and [`Error::NotDurable`], after which it has
/// happened all the same.
#[expect(private_bounds, reason = "sealed: an engine has two kinds of clients")]
pub trait Verbs: Port + Sized {
    /// Waits until all that has happened in the database so far is as durable as it will be: on the disk,
    /// if it has journals.
    fn flush(&mut self) -> Result<()> {
        let (link, mut host) = self.port()?;
        match link.peers().epochs.as_deref() {
            None => Ok(()),
            Some(clock) => settle::wait(clock, &mut host, clock.open()),
        }
    }

    /// Adds a row, placed in the own shard by a resident, in the shards by turns by a session.
    fn insert<R: Row>(&mut self, table: &Table<R>, row: &R) -> Result<DirectId> {
        let mut ids = [DirectId::from_u64(0)];
        insert_all(self, table, std::slice::from_ref(row), &mut ids)?;
        Ok(ids[0])
    }

    /// Adds a row with a key; [`Error::Duplicate`] if there is one.
    fn insert_keyed<R: Row>(
        &mut self,
        table: &Table<R>,
        key: SurrogateId,
        row: &R,
    ) -> Result<DirectId> {
        let keys = [key];
        let writes = keyed_writes(self, Verb::Insert, table, &keys, std::slice::from_ref(row))?;
        writes.last.ok_or(Error::Duplicate { key: key.0 })
    }

    /// Replaces the row of a key, or adds it; says whether there was one.
    fn upsert<R: Row>(&mut self, table: &Table<R>, key: SurrogateId, row: &R) -> Result<bool> {
        let keys = [key];
        let writes = keyed_writes(self, Verb::Upsert, table, &keys, std::slice::from_ref(row))?;
        Ok(writes.inserted == 0)
    }

    /// The row, if there is one.
    fn select<R: Row, I: RowId>(&mut self, table: &Table<R>, id: I) -> Result<Option<R>> {
        let mut found = None;
        self.select_each(table, &[id], |_, row| found = row.cloned())?;
        Ok(found)
    }

    /// Replaces a row; says whether there was one.
    fn update<R: Row, I: RowId>(&mut self, table: &Table<R>, id: I, row: &R) -> Result<bool> {
        Ok(self.update_batch(table, &[id], std::slice::from_ref(row))? > 0)
    }

    /// Removes a row; says whether there was one.
    fn delete<R: Row, I: RowId>(&mut self, table: &Table<R>, id: I) -> Result<bool> {
        Ok(self.delete_batch(table, &[id])? > 0)
    }

    /// Some columns of a row, by number, in the order asked for.
    fn select_columns<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        id: I,
        columns: &[usize],
    ) -> Result<Option<Vec<u64>>> {
        table.check_id::<I>()?;
        at(self, table, id, Reach::Reads, |context| {
            context.rows(table)?.select_columns(id, columns)
        })
    }

    /// Sets some columns of a row, by number; says whether there was one.
    fn update_columns<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        id: I,
        values: &[(usize, u64)],
    ) -> Result<bool> {
        at(self, table, id, Reach::row(table.key(), id), |context| {
            context.rows(table)?.update_columns(id, values)
        })
    }

    /// Sets some columns of a row if all of `expected` have these values.
    fn update_if<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        id: I,
        expected: &[(usize, u64)],
        values: &[(usize, u64)],
    ) -> Result<Compared> {
        at(self, table, id, Reach::row(table.key(), id), |context| {
            context.rows(table)?.update_if(id, expected, values)
        })
    }

    /// Visits the row of each id, with the id's number in `ids`; not in order.
    #[inline]
    fn select_each<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        ids: &[I],
        visit: impl FnMut(usize, Option<&R>),
    ) -> Result<()> {
        table.check_id::<I>()?;
        let row = PhantomData;
        run(self, table, Selects { ids, visit, row })?;
        Ok(())
    }

    /// The row of each id, in order.
    fn select_batch<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        ids: &[I],
    ) -> Result<Vec<Option<R>>> {
        let mut rows = vec![None; ids.len()];
        self.select_each(table, ids, |at, row| rows[at] = row.cloned())?;
        Ok(rows)
    }

    /// Replaces the row of each id; says how many there were.
    #[inline]
    fn update_batch<R: Row, I: RowId>(
        &mut self,
        table: &Table<R>,
        ids: &[I],
        rows: &[R],
    ) -> Result<usize> {
        Ok(run(self, table, Updates::new(table, ids, rows)?)?.updated)
    }

    /// Removes the row of each id; says how many there were.
    #[inline]
    fn delete_batch<R: Row, I: RowId>(&mut self, table: &Table<R>, ids: &[I]) -> Result<usize> {
        table.check_id::<I>()?;
        Ok(run(self, table, Deletes { ids, deleted: 0 })?.deleted)
    }

    /// Adds rows; their ids are appended to `ids`, in order. After an error these are the ids of the
    /// rows that were added all the same.
    #[inline]
    fn insert_batch<R: Row>(
        &mut self,
        table: &Table<R>,
        rows: &[R],
        ids: &mut Vec<DirectId>,
    ) -> Result<()> {
        let before = ids.len();
        ids.resize(before + rows.len(), DirectId::from_u64(0));
        let result = insert_all(self, table, rows, &mut ids[before..]);
        if result.is_err() {
            // No direct id is 0.
            let added = ids.split_off(before);
            ids.extend(added.into_iter().filter(|id| id.to_u64() != 0));
        }
        result
    }

    /// Adds rows with keys; says how many were added. Rows whose key exists are left out.
    #[inline]
    fn insert_keyed_batch<R: Row>(
        &mut self,
        table: &Table<R>,
        keys: &[SurrogateId],
        rows: &[R],
    ) -> Result<usize> {
        Ok(keyed_writes(self, Verb::Insert, table, keys, rows)?.inserted)
    }

    /// Runs a mixture of operations; [`Batch::outcomes`] tells what became of each.
    #[inline]
    fn run<R: Row, I: RowId>(&mut self, batch: &mut Batch<R, I>) -> Result<()> {
        batch.keep_outcomes(|batch, keep| self.run_each(batch, keep))
    }

    /// Runs a mixture of operations and visits what became of each, with its number in the batch; not
    /// in order. The batch stays as it is, and can be run again.
    #[inline]
    fn run_each<R: Row, I: RowId>(
        &mut self,
        batch: &Batch<R, I>,
        visit: impl FnMut(usize, Outcome<&R>),
    ) -> Result<()> {
        let (table, operations) = batch.view();
        let visited = Visited {
            operations,
            visit,
            row: PhantomData,
        };
        run(self, table, visited)?;
        Ok(())
    }

    /// The verbs of a table of records.
    fn records<'s, R: Record>(&'s mut self, records: &'s Records<R>) -> RecordVerbs<'s, Self, R> {
        RecordVerbs::new(self, records)
    }

    /// The verbs of a set of globals.
    fn globals<'s>(&'s mut self, globals: &'s Globals) -> GlobalVerbs<'s, Self> {
        GlobalVerbs::new(self, globals)
    }

    /// Submits operations now and completes them later.
    fn pipeline<R: Row, I: RowId>(&mut self, table: &Table<R>) -> Pipeline<'_, Self, R, I> {
        Pipeline::new(self, table)
    }

    /// The rows of these ids, read ahead in batches. An error is the last item.
    fn select_iter<'a, R: Row, I: RowId>(
        &'a mut self,
        table: &'a Table<R>,
        ids: impl IntoIterator<Item = I, IntoIter: 'a>,
    ) -> impl Iterator<Item = Result<Option<R>>> + 'a {
        let mut ids = ids.into_iter();
        let mut ahead = Vec::new().into_iter();
        let mut has_failed = false;
        std::iter::from_fn(move || {
            if ahead.len() == 0 && !has_failed {
                let operations = self.port().map(|(link, _)| {
                    let peers = link.peers();
                    peers.block_operations * peers.shards()
                });
                let rows = operations.and_then(|operations| {
                    let next: Vec<I> = ids.by_ref().take(operations).collect();
                    self.select_batch(table, &next)
                });
                match rows {
                    Ok(rows) => ahead = rows.into_iter(),
                    Err(error) => {
                        has_failed = true;
                        return Some(Err(error));
                    }
                }
            }
            ahead.next().map(Ok)
        })
    }

    /// Rows of a table over all shards. Rows that others add or remove meanwhile may be counted or not.
    fn count<R: Row>(&mut self, table: &Table<R>) -> Result<u64> {
        let shards = self.port()?.0.peers().shards();
        (0..shards)
            .map(|shard| {
                on(self, shard, Reach::Reads, |context| {
                    Ok::<_, Error>(context.rows(table)?.count())
                })
            })
            .sum()
    }

    /// Visits every row, shard by shard in the order of their places, until `visit` breaks.
    ///
    /// Others work on meanwhile: a row that is there throughout is visited once, with the values of
    /// one moment; a row that comes or goes may be visited or not. `visit` may change the table: a
    /// shard's scan ends where its rows ended when it began. Rows that `visit` inserts into shards
    /// whose turn comes later are visited, too.
    fn scan<R: Row>(
        &mut self,
        table: &Table<R>,
        mut visit: impl FnMut(&mut Self, DirectId, R) -> ControlFlow<()>,
    ) -> Result<()> {
        scan_slots(
            self,
            table,
            |rows, slots| rows.scan_slots(slots).collect(),
            |client, (id, row)| visit(client, id, row),
        )
    }

    /// Visits every row of a keyed table, as [`scan`](Self::scan), with its key.
    fn scan_keyed<R: Row>(
        &mut self,
        table: &Table<R>,
        mut visit: impl FnMut(&mut Self, SurrogateId, R) -> ControlFlow<()>,
    ) -> Result<()> {
        table.check_id::<SurrogateId>()?;
        scan_slots(
            self,
            table,
            |rows, slots| rows.scan_keyed_slots(slots).collect(),
            |client, (key, row)| visit(client, key, row),
        )
    }

    /// Runs a transaction over any tables and shards, reading what is committed: the changes of `body`
    /// all happen, or none. `body` is called again when others came between
    /// ([`TransactionOptions::tries`]), so it should change nothing else; after its `Err` or panic
    /// nothing has happened.
    fn transaction<T, E: From<Error>>(
        &mut self,
        body: impl FnMut(&mut Transaction<'_, Self>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transaction_with(TransactionOptions::default(), body)
    }

    /// Runs a transaction, as [`transaction`](Self::transaction), of any isolation.
    fn transaction_with<T, E: From<Error>>(
        &mut self,
        options: TransactionOptions,
        body: impl FnMut(&mut Transaction<'_, Self>) -> Result<T, E>,
    ) -> Result<T, E> {
        transaction::run(self, options, body)
    }

    /// Runs transactions that were declared beforehand, each all or nothing; says how many committed.
    /// [`Transactions::outcomes`] tells what became of each. After an error some may have happened.
    fn run_transactions(&mut self, transactions: &mut Transactions) -> Result<usize> {
        transaction::finish_all(self, transactions)
    }

    /// Sends declared transactions on their way and waits for as few as it can;
    /// [`run_transactions`](Self::run_transactions) waits for the rest. They may happen at any moment
    /// from now on, also when nobody waits for them.
    fn start_transactions(&mut self, transactions: &mut Transactions) -> Result<()> {
        transaction::start_all(self, transactions)
    }

    /// Begins a transaction that is put together step by step, and tried once.
    fn begin(&mut self, options: TransactionOptions) -> Result<Transaction<'_, Self>> {
        Transaction::begin(self, options)
    }

    /// Runs a closure in a shard as one transaction: all of it happens, or, after `Err` or a panic,
    /// nothing. The closure runs to its end without interruption; others wait for it.
    fn on<T, E, F>(&mut self, shard: ShardIndex, closure: F) -> Result<T, E>
    where
        F: FnOnce(&mut Context<'_>) -> Result<T, E> + Send,
        T: Send,
        E: From<Error> + Send,
    {
        on(self, shard, Reach::All, closure)
    }

    /// Runs a closure, as [`on`](Self::on), in the shard that holds a row.
    fn at_row<R: Row, I: RowId, T, E, F>(
        &mut self,
        table: &Table<R>,
        id: I,
        closure: F,
    ) -> Result<T, E>
    where
        F: FnOnce(&mut Context<'_>) -> Result<T, E> + Send,
        T: Send,
        E: From<Error> + Send,
    {
        at(self, table, id, Reach::All, closure)
    }
}

/// Visits what is told of every row, a bounded part of a shard at a time.
fn scan_slots<S: Verbs, R: Row, T: Send>(
    client: &mut S,
    table: &Table<R>,
    tell: impl Fn(&Rows<'_, R>, std::ops::Range<u32>) -> Vec<T> + Sync,
    mut visit: impl FnMut(&mut S, T) -> ControlFlow<()>,
) -> Result<()> {
    let shards = client.port()?.0.peers().shards();
    for shard in 0..shards {
        let mut from = 0_u32;
        let mut first_end = None;
        loop {
            let to = from
                .saturating_add(SCAN_SLOTS_PER_REQUEST)
                .min(first_end.unwrap_or(u32::MAX));
            let tell = &tell;
            let (rows, end) = on(client, shard, Reach::Reads, move |context| {
                let rows = context.rows(table)?;
                Ok::<_, Error>((tell(&rows, from..to), rows.slots_end()))
            })?;
            for row in rows {
                if visit(client, row).is_break() {
                    return Ok(());
                }
            }
            if to >= *first_end.get_or_insert(end) {
                break;
            }
            from = to;
        }
    }
    Ok(())
}

/// Runs a closure in a shard.
fn on<T, E, F>(client: &mut impl Verbs, shard: ShardIndex, reach: Reach, closure: F) -> Result<T, E>
where
    F: FnOnce(&mut Context<'_>) -> Result<T, E> + Send,
    T: Send,
    E: From<Error> + Send,
{
    let (link, mut host) = client.port()?;
    call(link, &mut host, shard, reach, closure)
}

/// Runs a closure in the shard that holds a row.
fn at<R: Row, I: RowId, T, E, F>(
    client: &mut impl Verbs,
    table: &Table<R>,
    id: I,
    reach: Reach,
    closure: F,
) -> Result<T, E>
where
    F: FnOnce(&mut Context<'_>) -> Result<T, E> + Send,
    T: Send,
    E: From<Error> + Send,
{
    table.check_id::<I>()?;
    let shard = id.shard_of(client.port()?.0.peers().shards());
    on(client, shard, reach, closure)
}

impl<P: Port> Verbs for P {}

fn insert_all<R: Row>(
    client: &mut impl Verbs,
    table: &Table<R>,
    rows: &[R],
    ids: &mut [DirectId],
) -> Result<()> {
    if let Err(error) = table.check_insert::<DirectId>() {
        // A table that is gone says that first.
        return client.count(table).and(Err(error));
    }
    first(run(client, table, Inserts::new(table, rows, ids)?)?.error)
}

fn keyed_writes<'a, R: Row>(
    client: &mut impl Verbs,
    verb: Verb,
    table: &Table<R>,
    keys: &'a [SurrogateId],
    rows: &'a [R],
) -> Result<KeyedWrites<'a, R>> {
    let mut writes = run(client, table, KeyedWrites::new(verb, table, keys, rows)?)?;
    first(writes.error.take())?;
    Ok(writes)
}
