//! A proposal: what transactions want of each shard, and what has become of it so far.
//!
//! One proposal may carry many transactions with the same participants, so that a hop is shared by
//! all of them: each has its own verdict, and one that fails does not touch the others.

use super::EntryId;
use crate::arena::{Extent, prefetch_range};
use crate::error::Error;
use crate::id::{DirectId, ShardIndex, TableKey};

/// Transactions on their way over their participants.
#[derive(Default)]
pub(crate) struct Proposal {
    /// One for each participant, in ascending order of shards.
    pub(crate) parts: Vec<Part>,
    /// The part whose turn it is.
    pub(crate) step: usize,
    pub(crate) phase: Phase,
    pub(crate) purpose: Purpose,
    /// One for each transaction.
    pub(crate) verdicts: Vec<Verdict>,
    /// Reading of the engine's clock after which no more intents are waited for.
    pub(crate) deadline: u64,
    /// How long a lease lasts.
    pub(crate) lease_micros: u64,
    /// The parts' entries stand already, by a lease.
    pub(crate) is_leased: bool,
    /// A shard ended before it had applied what was decided.
    pub(crate) is_broken: bool,
    /// By what its parts and its decision know each other after a crash, once a part was prepared.
    pub(crate) ticket: Option<Ticket>,
    /// Whom a test's watch sees at work.
    #[cfg(test)]
    pub(crate) author: u64,
}

/// The name of a proposal under way, in a database that outlives its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ticket {
    /// The first participant, which gave the ticket out.
    pub(crate) shard: ShardIndex,
    pub(crate) number: u32,
    /// How often that number was given out.
    pub(crate) generation: u32,
}

impl Ticket {
    const NUMBER_BITS: u32 = 22;

    /// The ticket in one word.
    pub(crate) fn to_word(self) -> u64 {
        debug_assert!(self.number < 1 << Self::NUMBER_BITS);
        let place = (self.shard as u64) << Self::NUMBER_BITS | u64::from(self.number);
        place << 32 | u64::from(self.generation)
    }

    pub(crate) fn from_word(word: u64) -> Self {
        let place = word >> 32;
        Self {
            shard: (place >> Self::NUMBER_BITS) as usize,
            number: place as u32 & ((1 << Self::NUMBER_BITS) - 1),
            generation: word as u32,
        }
    }
}

/// No deadline.
pub(crate) const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    /// Towards the last participant: leave intents and check.
    Up,
    /// Back to the first: apply, or undo, and drop the intents.
    Down,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    #[default]
    /// Check and change.
    Commit,
    /// Only check: no intent stays, and the last participant answers.
    Validate,
    /// Leave intents for a while, so that the transaction's next try cannot fail.
    Lease,
}

/// What became of one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not decided yet: nothing speaks against it so far.
    Open,
    Committed,
    /// Others changed what it relies on; it may be tried again.
    Conflict(Cause),
    /// An operation found the row that it needs not there, or other than it needs it.
    Refused {
        operation: u32,
        found: Found,
    },
    /// It cannot be done. Boxed, so that a verdict is small where many travel together.
    Failed(Box<Error>),
}

/// Why a transaction met a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A row was changed since it was read.
    Changed,
    /// Two transactions of one proposal want the same row.
    Neighbour,
    /// A lease had ended, or did not cover what the transaction wanted.
    Lease,
}

/// What an operation found instead of what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// No row.
    Nothing,
    /// A row, where there must be none.
    Row,
    /// A column with another value.
    Other,
}

/// What a proposal wants of one shard.
pub(crate) struct Part {
    pub(crate) shard: ShardIndex,
    pub(crate) operations: Vec<Operation>,
    /// Rows that operations bring, and their lists of columns and values.
    pub(crate) cells: Vec<u64>,
    /// Where the operations' rows are. All that the shard writes is here, so that the lines of the
    /// operations go one way.
    pub(crate) spots: Vec<Spot>,
    /// The part's intents, while they stand.
    pub(crate) entry: EntryId,
    /// What the shard keeps of the part, in case the process ends before it is applied.
    pub(crate) kept: Option<Extent>,
}

/// Where an operation's row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    Nowhere,
    /// The slot of a row that was there.
    Found(u32),
    /// A slot that will hold a new row.
    Reserved(u32),
}

impl Part {
    pub(crate) fn new(shard: ShardIndex) -> Self {
        Self {
            shard,
            operations: Vec::new(),
            cells: Vec::new(),
            spots: Vec::new(),
            entry: EntryId::NONE,
            kept: None,
        }
    }

    /// Forgets what was wanted; memory is kept.
    pub(crate) fn clear(&mut self) {
        self.operations.clear();
        self.cells.clear();
        self.spots.clear();
        self.kept = None;
    }
}

/// One operation of one transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// Which transaction of the proposal it belongs to, and which of its operations it is.
    pub(crate) member: u16,
    pub(crate) number: u32,
    pub(crate) table: TableKey,
    pub(crate) target: Target,
    pub(crate) expected: Expected,
    pub(crate) action: Action,
    /// The client had the slot reserved before, and gives it back itself.
    pub(crate) is_clients_slot: bool,
}

// Many travel together: less than a line each.
const _: () = assert!(size_of::<Operation>() <= 56);

/// How a row is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    Direct(DirectId),
    Key(u64),
    /// A new row in a table without keys: the shard finds a place.
    New,
    /// A new row whose place was found before.
    Reserved(DirectId),
    /// A record: at `start` of the cells is an image that has its key, and before it the key's hash.
    Record {
        start: u32,
    },
    /// A node of globals: see [`node`](super::node) for what the cells have at `start`.
    Node {
        start: u32,
    },
    /// A node of globals, and all below it: likewise, with no value.
    Subtree {
        start: u32,
    },
}

/// What must be true of the row for its transaction to commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Nothing.
    Any,
    Present,
    Absent,
    /// It is the row of the slot and with the header that the cells have at `start`: unchanged since
    /// it was read.
    Version {
        start: u32,
    },
    /// There is none, as when it was read.
    StillAbsent,
    /// These columns have these values: `count` pairs of column and value from `start` of the cells.
    Values {
        start: u32,
        count: u32,
    },
}

/// What to do with the row when the transaction commits. Rows begin at `start` of the part's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing: it was read.
    Check,
    Update {
        start: u32,
    },
    /// Sets `count` columns, pairs of column and value from `start`.
    Set {
        start: u32,
        count: u32,
    },
    Delete,
    Insert {
        start: u32,
    },
    /// Inserts the row, or replaces the one that is there.
    Upsert {
        start: u32,
    },
}

impl Action {
    pub(crate) fn changes(self) -> bool {
        self != Self::Check
    }
}

/// Starts reading a list.
fn ask<T>(list: &[T]) {
    if !list.is_empty() {
        prefetch_range(list.as_ptr().cast(), size_of_val(list));
    }
}

impl Verdict {
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    #[inline(always)]
    pub(crate) fn is_committed(&self) -> bool {
        matches!(self, Self::Committed)
    }

    pub(crate) fn failed(error: Error) -> Self {
        Self::Failed(Box::new(error))
    }
}

impl Proposal {
    pub(crate) fn new(purpose: Purpose) -> Self {
        Self {
            parts: Vec::new(),
            step: 0,
            phase: Phase::Up,
            purpose,
            verdicts: Vec::new(),
            deadline: NEVER,
            lease_micros: 0,
            is_leased: false,
            is_broken: false,
            ticket: None,
            #[cfg(test)]
            author: crate::table::watch::actor(),
        }
    }

    /// The part of a shard, made if there is none. Parts stay in ascending order.
    pub(crate) fn part(&mut self, shard: ShardIndex) -> &mut Part {
        let at = match self.parts.binary_search_by_key(&shard, |part| part.shard) {
            Ok(at) => at,
            Err(at) => {
                self.parts.insert(at, Part::new(shard));
                at
            }
        };
        &mut self.parts[at]
    }

    /// Starts reading what leads to the part at hand, once the proposal itself is near.
    pub(crate) fn ask_parts(&self) {
        ask(&self.parts);
        ask(&self.verdicts);
    }

    /// Starts reading the part at hand, once what leads there is near.
    pub(crate) fn ask_part(&self) {
        let part = &self.parts[self.step];
        ask(&part.operations);
        ask(&part.cells);
        ask(&part.spots);
    }

    /// The shard whose turn it is.
    pub(crate) fn shard(&self) -> ShardIndex {
        self.parts[self.step].shard
    }

    pub(crate) fn is_last(&self) -> bool {
        self.step + 1 == self.parts.len()
    }

    /// Whether a transaction may still commit.
    pub(crate) fn is_open(&self) -> bool {
        self.verdicts.iter().any(Verdict::is_open)
    }

    /// Fails every transaction that is not decided.
    pub(crate) fn fail(&mut self, error: &Error) {
        for verdict in &mut self.verdicts {
            if verdict.is_open() {
                *verdict = Verdict::failed(error.clone());
            }
        }
    }
}
