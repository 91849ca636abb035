//! Carrying operations to their shards and results back, blocks at a time.
//!
//! Operations on the client's own shard are executed in place, 64 at a time, with their memory asked
//! for; they never become a block. The others fill one open block for each shard, which is sent when
//! it is full, and all are sent at the end. Answers are taken whenever a block has been sent, so a
//! client holds few results back, and whenever there is no room for a new one.

use crate::error::{Error, Result};
use crate::id::{RowId, ShardIndex};
use crate::shard::{Request, Shard};
use crate::table::{Means, Rolling, Row, Single, Table, Verb, Width};

use super::host::Host;
use super::link::Link;
use super::operations::Operations;

/// Operations on the own shard that are executed together; as many more are gathered before, so
/// that their memory is asked for meanwhile.
const OWN_OPERATIONS: usize = 64;

/// Runs operations to their end: each has its result, or the error says why some have none.
#[inline]
pub(super) fn drive<R: Row, O: Operations>(
    link: &mut Link,
    host: &mut impl Host,
    table: &Table<R>,
    operations: O,
) -> Result<O> {
    let own = Own {
        list: [0; 2 * OWN_OPERATIONS],
        ids: [0; 2 * OWN_OPERATIONS],
        count: 0,
    };
    let mut drive = Drive {
        table,
        cells: table.width().cells(),
        own,
        operations,
        failure: None,
    };
    drive.run(link, host);
    match drive.failure {
        None => Ok(drive.operations),
        Some(error) => Err(error),
    }
}

struct Drive<'a, R: Row, O> {
    table: &'a Table<R>,
    cells: usize,
    own: Own,
    operations: O,
    failure: Option<Error>,
}

/// Operations on the own shard that wait to be executed: their numbers, and their ids.
struct Own {
    list: [u32; 2 * OWN_OPERATIONS],
    ids: [u64; 2 * OWN_OPERATIONS],
    count: usize,
}

impl<R: Row, O: Operations> Drive<'_, R, O> {
    #[inline]
    fn run(&mut self, link: &mut Link, host: &mut impl Host) {
        let shards = link.peers().shards();
        let own = host.own();
        let mut anywhere = own;
        for at in 0..self.operations.count() {
            let id = self.operations.id(at);
            let is_anywhere = self.operations.is_anywhere(at);
            let shard = if is_anywhere {
                *anywhere.get_or_insert_with(|| link.next_shard())
            } else {
                id.shard_of(shards)
            };
            if own == Some(shard) {
                self.own.list[self.own.count] = at as u32;
                self.own.ids[self.own.count] = id.raw();
                self.own.count += 1;
                if self.own.count == 2 * OWN_OPERATIONS {
                    self.execute_own(host, OWN_OPERATIONS);
                }
                continue;
            }
            match self.push(link, host, shard, at) {
                // The next block of rows goes to the next shard, if there is one more.
                Ok(full) if full && is_anywhere => anywhere = own,
                Ok(_) => {}
                Err(error) => self.fail(error),
            }
        }
        self.execute_own(host, self.own.count);
        for shard in 0..shards {
            self.send(link, shard);
        }
        self.finish(link, host);
    }

    #[cold]
    fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    /// Adds an operation to its shard's block; says whether that is full now.
    #[inline(always)]
    fn push(
        &mut self,
        link: &mut Link,
        host: &mut impl Host,
        shard: ShardIndex,
        at: usize,
    ) -> Result<bool> {
        if link.block(shard).is_none() {
            self.next_block(link, host, shard)?;
        }
        let Some(block) = link.block(shard) else {
            return Ok(false);
        };
        let id = self.operations.id(at).raw();
        let row = block.push(self.operations.verb(at), id, at as u32);
        self.operations.fill(at, row);
        Ok(block.is_full())
    }

    /// Sends a shard's block, which is full, takes what answers there are, and opens another block
    /// when there is room.
    #[inline(never)]
    fn next_block(
        &mut self,
        link: &mut Link,
        host: &mut impl Host,
        shard: ShardIndex,
    ) -> Result<()> {
        self.send(link, shard);
        host.serve();
        self.take_answers(link);
        let operations = link.peers().block_operations.min(self.operations.count());
        let mut rounds = 0;
        while !link.open(shard, self.cells, operations)? {
            if self.take_answers(link) {
                rounds = 0;
            } else {
                host.pause(rounds, link.lane(shard)?);
                rounds += 1;
            }
        }
        Ok(())
    }

    /// Sends a shard's block, if there is one.
    fn send(&mut self, link: &mut Link, shard: ShardIndex) {
        let (key, width) = (self.table.key(), self.table.width());
        let sent = link.send(shard, |block| {
            Request::block::<R::Width, O::Id>(key, width, block)
        });
        if let Err(error) = sent {
            self.fail(error);
        }
    }

    /// Takes all answers that are there; says whether there was one.
    #[inline]
    fn take_answers(&mut self, link: &mut Link) -> bool {
        let Self {
            operations,
            failure,
            ..
        } = self;
        link.take_answers(|block, executed| match executed {
            Ok(()) => block
                .results(|tag, _, code, id, cells| operations.done(tag as usize, code, id, cells)),
            Err(error) => {
                failure.get_or_insert(error);
            }
        })
    }

    /// Waits for every answer.
    fn finish(&mut self, link: &mut Link, host: &mut impl Host) {
        let mut rounds = 0;
        loop {
            if self.take_answers(link) {
                rounds = 0;
            }
            let Some(lane) = link.pending_lane() else {
                return;
            };
            host.pause(rounds, lane);
            rounds += 1;
        }
    }

    /// Executes the first `count` of the gathered operations on the client's own shard.
    #[inline]
    fn execute_own(&mut self, host: &mut impl Host, count: usize) {
        if count == 0 {
            return;
        }
        let own = &self.own;
        let (list, ids) = (&own.list[..count], &own.ids[..count]);
        let next = &own.ids[count..own.count];
        let rolling = Rolling {
            next,
            ..Rolling::ALONE
        };
        let (table, operations) = (self.table, &mut self.operations);
        let work = |shard: &mut Shard| execute(shard, table, rolling, operations, list, ids);
        if let Some(Err(error)) = host.with_shard(work) {
            self.fail(error);
        }
        let own = &mut self.own;
        own.list.copy_within(count..own.count, 0);
        own.ids.copy_within(count..own.count, 0);
        own.count -= count;
    }
}

/// Executes listed operations in a shard, in order, each a transaction of its own.
#[inline]
fn execute<R: Row, O: Operations>(
    shard: &mut Shard,
    table: &Table<R>,
    rolling: Rolling<'_>,
    operations: &mut O,
    list: &[u32],
    ids: &[u64],
) -> Result<()> {
    let width = table.width();
    let (part, arena) = shard.catalog.table(table.key())?;
    shard.operations += list.len() as u64;
    let id_at = |k: usize| O::Id::from_raw(ids[k]);
    part.each(width, rolling, list.len(), id_at, |part, k, place| {
        let (at, id) = (list[k] as usize, ids[k]);
        let verb = operations.verb(at);
        let means = Means {
            arena,
            width,
            images: &mut Single,
        };
        let done = part.one(means, verb, O::Id::from_raw(id), place, |cells| {
            operations.fill(at, cells)
        });
        match (verb, place) {
            (Verb::Select, Some(place)) => {
                operations.done(at, done.code, id, part.cells(width, place))
            }
            _ => operations.done(at, done.code, done.id, &[done.detail]),
        }
    });
    Ok(())
}
