//! Carrying operations to their shards and results back, blocks at a time.
//!
//! Operations on the client's own shard are executed in place, 64 at a time, with their memory asked
//! for; they never become a block. The others fill one open block for each shard, which is sent when
//! it is full, and all are sent at the end. Answers are taken whenever a block has been sent, so a
//! client holds few results back, and whenever there is no room for a new one.
//!
//! A [`Drive`] never waits: it says whom it waits for, and is stepped again. So a blocking client and
//! one that is polled share it, and differ in what they do meanwhile.

use crate::error::{Error, Result};
use crate::id::{RowId, ShardIndex};
use crate::shard::{Request, Shard};
use crate::table::{Means, Rolling, Row, Single, Table, Verb, Width};

use super::host::{Host, await_turn};
use super::link::Link;
use super::operations::Operations;
use super::settle::settle;

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
    let mut own = Own::<{ 2 * OWN_OPERATIONS }>::new();
    let mut drive = Drive::new(table, operations, host.own());
    let mut rounds = 0;
    while let Some(wait) = drive.step(link, host, &mut own) {
        if wait.has_moved {
            rounds = 0;
        }
        if let Ok(lane) = link.lane(wait.shard) {
            host.pause(rounds, lane);
        }
        rounds += 1;
    }
    let changes = drive.changes();
    let operations = drive.into_result()?;
    if changes {
        settle(link, host)?;
    }
    Ok(operations)
}

/// Operations on their way: it is stepped until it has nothing to wait for.
pub(super) struct Drive<'a, R: Row, O> {
    table: &'a Table<R>,
    cells: usize,
    operations: O,
    failure: Option<Error>,
    /// The first operation that is neither in a block nor gathered.
    next: usize,
    /// Where rows go now that may be placed anywhere.
    anywhere: Option<ShardIndex>,
    /// All blocks are sent: what remains is to take the answers.
    is_sent: bool,
}

/// Why a drive cannot go on.
pub(super) struct Wait {
    /// Whose lane has a request that is not answered.
    pub(super) shard: ShardIndex,
    /// Something was done since the last wait.
    pub(super) has_moved: bool,
}

/// Operations on the own shard that wait to be executed: their numbers, and their ids. A client that
/// is not in a shard has none.
pub(super) struct Own<const N: usize> {
    list: [u32; N],
    ids: [u64; N],
    count: usize,
}

impl<const N: usize> Own<N> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self {
            list: [0; N],
            ids: [0; N],
            count: 0,
        }
    }
}

impl<'a, R: Row, O: Operations> Drive<'a, R, O> {
    /// Operations of a client that is in the shard `own`, if in any.
    #[inline]
    pub(super) fn new(table: &'a Table<R>, operations: O, own: Option<ShardIndex>) -> Self {
        Self {
            table,
            cells: table.width().cells(),
            operations,
            failure: None,
            next: 0,
            anywhere: own,
            is_sent: false,
        }
    }

    /// Whether any operation may change something.
    #[inline]
    pub(super) fn changes(&self) -> bool {
        self.operations.only_verb() != Some(Verb::Select)
    }

    /// What has become of the operations, after the last step.
    #[inline]
    pub(super) fn into_result(self) -> Result<O> {
        match self.failure {
            None => Ok(self.operations),
            Some(error) => Err(error),
        }
    }

    /// Does all that can be done without waiting; `None` when that was everything.
    #[inline]
    pub(super) fn step<const N: usize>(
        &mut self,
        link: &mut Link,
        host: &mut impl Host,
        own: &mut Own<N>,
    ) -> Option<Wait> {
        let mut has_moved = false;
        if !self.is_sent {
            let from = self.next;
            if let Some(shard) = self.push_all(link, host, own, &mut has_moved) {
                has_moved |= self.next > from;
                return Some(Wait { shard, has_moved });
            }
            self.execute_own(host, own, own.count);
            for shard in 0..link.peers().shards() {
                self.send(link, shard);
            }
            (self.is_sent, has_moved) = (true, true);
        }
        has_moved |= self.take_answers(link);
        let shard = link.pending_shard()?;
        Some(Wait { shard, has_moved })
    }

    /// Puts all operations into blocks, and sends those that are full; gives the shard whose lane has
    /// no room, if that is in the way.
    #[inline]
    fn push_all<const N: usize>(
        &mut self,
        link: &mut Link,
        host: &mut impl Host,
        own: &mut Own<N>,
        has_moved: &mut bool,
    ) -> Option<ShardIndex> {
        let shards = link.peers().shards();
        let home = host.own();
        let mut anywhere = self.anywhere;
        for at in self.next..self.operations.count() {
            let id = self.operations.id(at);
            let is_anywhere = self.operations.is_anywhere(at);
            let shard = if is_anywhere {
                *anywhere.get_or_insert_with(|| link.next_shard())
            } else {
                id.shard_of(shards)
            };
            if home == Some(shard) {
                own.list[own.count] = at as u32;
                own.ids[own.count] = id.raw();
                own.count += 1;
                if own.count == 2 * OWN_OPERATIONS {
                    self.execute_own(host, own, OWN_OPERATIONS);
                }
                continue;
            }
            match self.push(link, host, shard, at, has_moved) {
                // The next block of rows goes to the next shard, if there is one more.
                Ok(Pushed::Last) if is_anywhere => anywhere = home,
                Ok(Pushed::Last | Pushed::One) => {}
                Ok(Pushed::NoRoom) => {
                    (self.next, self.anywhere) = (at, anywhere);
                    return Some(shard);
                }
                Err(error) => self.fail(error),
            }
        }
        None
    }

    #[cold]
    fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    /// Adds an operation to its shard's block.
    #[inline(always)]
    fn push(
        &mut self,
        link: &mut Link,
        host: &mut impl Host,
        shard: ShardIndex,
        at: usize,
        has_moved: &mut bool,
    ) -> Result<Pushed> {
        if link.block(shard).is_none() && !self.next_block(link, host, shard, has_moved)? {
            return Ok(Pushed::NoRoom);
        }
        let Some(block) = link.block(shard) else {
            return Ok(Pushed::NoRoom);
        };
        let id = self.operations.id(at).raw();
        let row = block.push(self.operations.verb(at), id, at as u32);
        self.operations.fill(at, row);
        Ok(if block.is_full() {
            Pushed::Last
        } else {
            Pushed::One
        })
    }

    /// Sends a shard's block, which is full, takes what answers there are, and opens another block;
    /// says whether there was room for it.
    #[inline(never)]
    fn next_block(
        &mut self,
        link: &mut Link,
        host: &mut impl Host,
        shard: ShardIndex,
        has_moved: &mut bool,
    ) -> Result<bool> {
        if link.has_open(shard) {
            self.send(link, shard);
            host.serve();
        }
        *has_moved |= self.take_answers(link);
        let operations = link.peers().block_operations.min(self.operations.count());
        link.open(shard, self.cells, operations)
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

    /// Executes the first `count` of the gathered operations on the client's own shard.
    #[inline]
    fn execute_own<const N: usize>(
        &mut self,
        host: &mut impl Host,
        own: &mut Own<N>,
        count: usize,
    ) {
        if count == 0 {
            return;
        }
        let (list, ids) = (&own.list[..count], &own.ids[..count]);
        let next = &own.ids[count..own.count];
        let rolling = Rolling {
            next,
            ..Rolling::ALONE
        };
        let (table, operations) = (self.table, &mut self.operations);
        await_turn(host, |shard| {
            let is_change = |at: &u32| operations.verb(*at as usize) != Verb::Select;
            let changes = list.iter().zip(ids).filter(|(at, _)| is_change(at));
            shard.claim::<O::Id>(table.key(), changes.map(|(_, id)| *id))
        });
        let work = |shard: &mut Shard| execute(shard, table, rolling, operations, list, ids);
        if let Some(Err(error)) = host.with_shard(work) {
            self.fail(error);
        }
        host.worked(count);
        own.list.copy_within(count..own.count, 0);
        own.ids.copy_within(count..own.count, 0);
        own.count -= count;
    }
}

/// What has become of an operation that is to be sent.
enum Pushed {
    One,
    /// Its block is full now.
    Last,
    /// There is no room for a block.
    NoRoom,
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
    if operations.only_verb() != Some(Verb::Select) {
        arena.check_writable()?;
    }
    if shard.tally.count(operations.only_verb(), list.len() as u64) {
        shard.tally.sample::<O::Id>(table.key(), part, ids);
    }
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
    part.end_scope(arena);
    Ok(())
}
