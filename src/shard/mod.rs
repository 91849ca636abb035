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
mod chain;
mod context;
mod globals;
mod inbox;
mod journaled;
mod kept;
mod lane;
mod nodes;
mod outbox;
mod parcel;
mod records;
mod request;
mod rows;
mod tally;

use crate::arena::{Arena, Heap};
use crate::error::Result;
use std::sync::Arc;

use crate::id::{DirectId, RowId, ShardIndex, TableKey};
use crate::table::{Globals, Record, Records, Row, Table};
use crate::transaction::mutant::{self, Mutant};
use crate::transaction::{EntryId, Intents, IntentsFull, Mode, NEVER, RowKey, UndoLog};
pub(crate) use catalog::{Catalog, Compaction, Content, TableShape};
use chain::Holder;
pub use context::Context;
pub(crate) use context::{Fetched, Reach, Shipped, Sighting, panic_message};
pub use globals::LocalGlobals;
pub(crate) use globals::{LocalTree, Step, span_of};
pub(crate) use inbox::Delivery;
use inbox::Prompt;
pub(crate) use inbox::{Command, Inbox, Mailbox};
use journaled::Journaled;
pub(crate) use kept::Decisions;
use kept::Kept;
pub(crate) use lane::{LaneMemory, ServerLane, Status};
pub(crate) use nodes::NodeSighting;
pub(crate) use outbox::{Outbox, Relay};
pub(crate) use parcel::Parcel;
pub use records::LocalRecords;
pub(crate) use records::{Local, Ranked, split};
pub(crate) use request::{BlockLayout, BlockMemory, Call, Request};
pub use rows::Rows;
pub(crate) use rows::check_lengths;
use tally::Tally;
pub(crate) use tally::{HotCount, Told};
pub use tally::{OperationStats, TransactionStats};

/// The state of one shard. Made, used and dropped on its own thread.
pub(crate) struct Shard {
    pub(crate) index: ShardIndex,
    /// Shards of the engine.
    pub(crate) shards: usize,
    pub(crate) catalog: Catalog,
    undo: UndoLog,
    kept: Kept,
    /// The one who writes the shard's journal, if it has one.
    writer: Option<Journaled>,
    intents: Intents<Holder>,
    outbox: Outbox,
    clock: Clock,
    /// Reading of the clock at which the first lease or deadline ends.
    next_expiry: u64,
    /// Guests whose turn it is, and who have not taken it.
    called: usize,
    /// Set by [`Command::Close`].
    pub(crate) closing: bool,
    /// Takes nothing from clients any more: the shard only helps others to their end.
    pub(crate) is_retired: bool,
    pub(crate) tally: Tally,
}

/// Nothing in the way, or an entry that waits for what is; an error if there is no memory to wait with.
pub(crate) type Claim = Result<Option<EntryId>, IntentsFull>;

/// Microseconds since some moment of the engine's life.
pub(crate) type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

impl Shard {
    pub(crate) fn new(
        index: ShardIndex,
        mailboxes: &[Arc<Mailbox>],
        clock: Clock,
        arena: Arena,
        heap: &Heap,
    ) -> Self {
        let tally = Tally::new(clock());
        Self {
            index,
            shards: mailboxes.len(),
            catalog: Catalog::new(arena, heap),
            undo: UndoLog::new(heap),
            kept: Kept::default(),
            writer: None,
            intents: Intents::new(heap),
            outbox: Outbox::new(mailboxes, false),
            clock,
            next_expiry: NEVER,
            called: 0,
            closing: false,
            is_retired: false,
            tally,
        }
    }

    /// Serves what waits in the inbox, a bounded part of it; says how many requests it served.
    #[inline]
    pub(crate) fn tick(&mut self, inbox: &mut Inbox) -> usize {
        self.step(inbox, &mut Prompt)
    }

    /// As [`Shard::tick`], of what has arrived.
    #[cfg(test)]
    pub(crate) fn tick_delayed(
        &mut self,
        inbox: &mut Inbox,
        delivery: &mut impl Delivery,
    ) -> usize {
        self.step(inbox, delivery)
    }

    #[inline]
    fn step(&mut self, inbox: &mut Inbox, delivery: &mut impl Delivery) -> usize {
        self.let_go_on();
        let served = inbox.serve(self, delivery);
        self.let_go_on();
        if self.next_expiry != NEVER && self.now() >= self.next_expiry {
            self.expire();
        }
        self.outbox.flush();
        self.hand_over(false);
        served
    }

    fn now(&self) -> u64 {
        (self.clock)()
    }

    /// Whether there is something to do at once.
    pub(crate) fn has_work(&self, inbox: &Inbox) -> bool {
        inbox.is_ready(self.is_held_up())
            || self.intents.has_granted()
            || self.called > 0
            || self.outbox.is_held_up()
    }

    /// Microseconds after which a lease or a deadline ends, if there is one.
    pub(crate) fn patience(&self) -> Option<u64> {
        (self.next_expiry != NEVER).then(|| self.next_expiry.saturating_sub(self.now()).max(1))
    }

    /// Whether nothing stands between this shard and its end.
    pub(crate) fn is_idle(&self) -> bool {
        self.intents.is_empty()
    }

    /// The shard's end of the ways to others, once the shard itself is of no more use.
    pub(crate) fn into_outbox(self) -> Outbox {
        self.outbox
    }

    /// Asks for the shard alone: `None` if it is free, or the entry that waits for it.
    pub(crate) fn claim_all(&mut self) -> Claim {
        if !self.intents.bars_alone() || mutant::is(Mutant::ClosuresUnguarded) {
            return Ok(None);
        }
        let entry = self.intents.begin(Mode::Write)?;
        self.intents.seal(entry, Holder::GUEST);
        self.note_parked_request(entry);
        Ok(Some(entry))
    }

    /// Asks to change rows of a table: `None` if all are free, or the entry that waits for them.
    pub(crate) fn claim<I: RowId>(
        &mut self,
        table: TableKey,
        ids: impl Iterator<Item = u64> + Clone,
    ) -> Claim {
        let Ok((part, _)) = self.catalog.table(table) else {
            return Ok(None);
        };
        let keys = ids.map(|id| {
            // No direct id is 0: that is a row whose place is still to be found.
            let row = match id {
                _ if I::KEYED => Some(id),
                0 => None,
                _ => part.row_number(DirectId::from_u64(id)),
            };
            row.map(|row| RowKey {
                table: table.index,
                row,
            })
        });
        let claim = claim_rows(&mut self.intents, keys)?;
        Ok(claim.inspect(|&entry| self.note_parked_request(entry)))
    }

    /// Asks to change the record whose key has this hash.
    pub(crate) fn claim_record(&mut self, table: TableKey, hash: u64) -> Claim {
        let key = RowKey {
            table: table.index,
            row: hash,
        };
        let claim = claim_rows(&mut self.intents, std::iter::once(Some(key)))?;
        Ok(claim.inspect(|&entry| self.note_parked_request(entry)))
    }

    /// Asks to change the node of globals whose key has this hash.
    pub(crate) fn claim_node(&mut self, table: TableKey, hash: u64) -> Claim {
        let (node, all) = (RowKey::node(table.index, hash), RowKey::all(table.index));
        let is_barred = self.intents.bars_write(Some(node)) || self.intents.is_about_to_change(all);
        if !is_barred || mutant::is(Mutant::SinglesUnguarded) {
            return Ok(None);
        }
        let entry = self.intents.begin(Mode::Read)?;
        for (key, mode) in [(all, Mode::Read), (node, Mode::Write)] {
            if let Err(full) = self.intents.add(entry, key, mode, 0) {
                self.intents.release(entry);
                return Err(full);
            }
        }
        self.intents.seal(entry, Holder::GUEST);
        self.note_parked_request(entry);
        Ok(Some(entry))
    }

    /// Whether a claim has been granted.
    pub(crate) fn is_granted(&self, claim: EntryId) -> bool {
        self.intents.is_granted(claim)
    }

    /// Ends a claim whose turn it is. Whatever the shard does next, before it serves anybody, is as
    /// if the claim still stood.
    pub(crate) fn take_turn(&mut self, claim: EntryId) {
        debug_assert!(self.is_granted(claim));
        if let Some(Holder::Guest { is_called: true }) = self.intents.release(claim) {
            self.called -= 1;
        }
    }

    /// Whether nobody has intents in this shard.
    #[inline(always)]
    pub(crate) fn is_unclaimed(&self) -> bool {
        self.intents.is_empty()
    }

    /// The records of a table in this shard; each change is a transaction of its own.
    pub(crate) fn records<'a, R: Record>(
        &'a mut self,
        records: &'a Records<R>,
    ) -> Result<LocalRecords<'a, R>> {
        Ok(LocalRecords::new(self.local(records.key())?, records))
    }

    /// As [`records`](Self::records), of records of any type.
    fn local(&mut self, table: TableKey) -> Result<Local<'_>> {
        // Those who hold the places of texts have intents.
        let may_tidy = self.intents.is_empty();
        let part = self.catalog.records(table)?;
        Ok(Local::new(part, None, self.index, self.shards).tidying(may_tidy))
    }

    /// Takes a step of bringing all tables together; none, while transactions are under way.
    pub(crate) fn compact(&mut self, step: Compaction) -> Option<Compaction> {
        self.intents.is_empty().then(|| self.catalog.compact(step))
    }

    /// Globals in this shard; each change is a transaction of its own.
    pub(crate) fn globals<'a>(&'a mut self, globals: &'a Globals) -> Result<LocalGlobals<'a>> {
        let shards = self.shards;
        Ok(LocalGlobals::new(
            self.tree(globals.key())?,
            globals,
            shards,
        ))
    }

    /// As [`globals`](Self::globals), of encoded keys that were routed.
    fn tree(&mut self, table: TableKey) -> Result<LocalTree<'_>> {
        Ok(LocalTree::new(self.catalog.globals(table)?, None))
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

/// Asks to change rows, each known by its key, or not there yet.
fn claim_rows(
    intents: &mut Intents<Holder>,
    keys: impl Iterator<Item = Option<RowKey>> + Clone,
) -> Claim {
    let is_barred = keys.clone().any(|key| intents.bars_write(key));
    if !is_barred || mutant::is(Mutant::SinglesUnguarded) {
        return Ok(None);
    }
    let entry = intents.begin(Mode::Read)?;
    for key in keys.flatten() {
        if let Err(full) = intents.add(entry, key, Mode::Write, 0) {
            intents.release(entry);
            return Err(full);
        }
    }
    intents.seal(entry, Holder::GUEST);
    Ok(Some(entry))
}
