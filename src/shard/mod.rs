//! A shard: the tables of one core, and the state machine that serves them.
//!
//! A shard is stepped: [`Shard::tick`] takes a bounded number of requests from its [`Inbox`] and
//! answers them. It has no thread, no clock and no file of its own; the pinned thread is a thin
//! shell round it (`engine/thread.rs`), and the simulation steps many shards from one thread.
//!
//! # The way of a request
//! A client fills a block in its own memory ([`lane`]), and sends one cache line about it through a
//! ring. The shard calls the function that the request names, compiled for the row type and the
//! kind of id ([`request`]); the function reads the block, executes it in the table, and writes what
//! became of it into the same memory. The reply is one word, on a line of its own; it also tells
//! the client that the block may be used again. So a batch of 64 costs the lines of its ids, rows
//! and outcomes, and two more.
//!
//! # What is absent on purpose
//! Locks and waiting: a shard never waits for a client, another shard or memory.

mod catalog;
mod context;
mod inbox;
mod lane;
mod request;
mod rows;

use crate::arena::{Arena, Heap};
use crate::error::Result;
use crate::id::ShardIndex;
use crate::table::{Row, Table};
use crate::transaction::UndoLog;
pub(crate) use catalog::Catalog;
pub use context::Context;
pub(crate) use context::{Shipped, panic_message};
#[cfg(test)]
pub(crate) use inbox::Delivery;
use inbox::Prompt;
pub(crate) use inbox::{Command, Inbox, Mailbox};
pub(crate) use lane::{LaneMemory, ServerLane, Status};
pub(crate) use request::{BlockLayout, BlockMemory, Request};
pub use rows::Rows;
pub(crate) use rows::check_lengths;

/// The state of one shard. Made, used and dropped on its own thread.
pub(crate) struct Shard {
    pub(crate) index: ShardIndex,
    /// Shards of the engine.
    pub(crate) shards: usize,
    pub(crate) catalog: Catalog,
    undo: UndoLog,
    /// Set by [`Command::Close`].
    pub(crate) closing: bool,
    pub(crate) operations: u64,
}

impl Shard {
    pub(crate) fn new(index: ShardIndex, shards: usize, arena: Arena, heap: &Heap) -> Self {
        Self {
            index,
            shards,
            catalog: Catalog::new(arena, heap),
            undo: UndoLog::new(heap),
            closing: false,
            operations: 0,
        }
    }

    /// Serves what waits in the inbox, a bounded part of it; says how many requests it served.
    #[inline]
    pub(crate) fn tick(&mut self, inbox: &mut Inbox) -> usize {
        inbox.serve(self, &mut Prompt)
    }

    /// As [`Shard::tick`], of what has arrived.
    #[cfg(test)]
    pub(crate) fn tick_delayed(
        &mut self,
        inbox: &mut Inbox,
        delivery: &mut impl Delivery,
    ) -> usize {
        inbox.serve(self, delivery)
    }

    /// The rows of a table in this shard; each change is a transaction of its own.
    #[inline]
    pub(crate) fn rows<R: Row>(&mut self, table: &Table<R>) -> Result<Rows<'_, R>> {
        Rows::new(
            table,
            self.catalog.table(table.key())?,
            None,
            self.index,
            self.shards,
        )
    }
}
