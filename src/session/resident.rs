//! Code that lives in a shard: its own rows without a hop, the others through the mesh.

use super::host::{Host, Inside, await_turn};
use super::link::Link;
use super::verbs::Port;
use crate::error::Result;
use crate::id::ShardIndex;
use crate::limits::OPERATIONS_PER_ROWS;
use crate::shard::{LocalGlobals, LocalRecords, Rows, Shard};
use crate::table::{Globals, Record, Records, Row, Table};

/// What resident work ([`Engine::spawn`](crate::Engine::spawn)) works with.
///
/// It has the verbs of a session ([`Verbs`](crate::Verbs)), where operations on the own shard are
/// done in place. The shard serves others while a verb waits, after each block that a verb sends and
/// each 64 operations that it does in place, at every eighth call of [`rows`](Self::rows), and at each
/// call of [`serve`](Self::serve); work that does none of these for long keeps everybody else waiting.
///
/// # Many streams in one shard
/// A program of many light streams of work, more than there are processors, needs no thread for each:
/// let each stream be a value that says which operations it wants next and goes on with their results,
/// and let one resident in each shard drive its share of them. In a round it gathers what all its
/// streams want into one batch, runs that, and hands the results out; so a hop, and the memory that is
/// asked for ahead, are shared by all of them. Streams that wait in calls of their own are for
/// [`AsyncSession`](crate::AsyncSession)s outside of shards.
pub struct Resident<'a> {
    inside: Inside<'a>,
    link: &'a mut Link,
}

impl<'a> Resident<'a> {
    pub(crate) fn new(inside: Inside<'a>, link: &'a mut Link) -> Self {
        Self { inside, link }
    }

    /// The shard.
    pub fn shard(&self) -> ShardIndex {
        self.inside.shard.index
    }

    /// Whether the engine is being closed: long work should end.
    pub fn is_closing(&self) -> bool {
        self.inside.shard.closing
    }

    /// Serves what others have sent, a bounded part of it; says whether there was something.
    pub fn serve(&mut self) -> bool {
        self.inside.shard.tick(self.inside.inbox) > 0
    }

    /// The rows of a table in this shard; others are served at every eighth call. Transactions that are
    /// being decided come to their end first. What is changed in place is not waited for, whatever the
    /// engine's [`Durability`](crate::Durability): see [`Verbs::flush`](crate::Verbs::flush).
    #[inline]
    pub fn rows<R: Row>(&mut self, table: &Table<R>) -> Result<Rows<'_, R>> {
        self.inside.worked(OPERATIONS_PER_ROWS);
        await_turn(&mut self.inside, Shard::claim_all);
        self.inside.shard.rows(table)
    }

    /// The records of a table in this shard; others are served as by [`rows`](Self::rows).
    pub fn own_records<'s, R: Record>(
        &'s mut self,
        records: &'s Records<R>,
    ) -> Result<LocalRecords<'s, R>> {
        self.inside.worked(OPERATIONS_PER_ROWS);
        await_turn(&mut self.inside, Shard::claim_all);
        self.inside.shard.records(records)
    }

    /// Globals in this shard; others are served as by [`rows`](Self::rows).
    pub fn own_globals<'s>(&'s mut self, globals: &'s Globals) -> Result<LocalGlobals<'s>> {
        self.inside.worked(OPERATIONS_PER_ROWS);
        await_turn(&mut self.inside, Shard::claim_all);
        self.inside.shard.globals(globals)
    }
}

impl<'r> Port for Resident<'r> {
    type Host<'a>
        = &'a mut Inside<'r>
    where
        Self: 'a;

    fn port(&mut self) -> Result<(&mut Link, &mut Inside<'r>)> {
        Ok((self.link, &mut self.inside))
    }
}
