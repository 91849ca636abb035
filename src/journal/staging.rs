//! The shard's side of the journal: changes are gathered into blocks here.
//!
//! # The way of a change
//! [`Staging::admit`] before anything is changed: it refuses what there is no room for, in memory or
//! on the disk. Then the change, and [`Staging::append`], which never fails. Blocks that are full,
//! or wanted, go to the side of the disk ([`Log`](super::log::Log)) and come back with its
//! [`Report`] when they are durable. Both sides may be one thread, or two with two rings between.
//!
//! # Order
//! The records of a shard are physical: each means the bytes that the ones before it left. So they
//! are replayed in the order in which they were appended, as far as the cut; and therefore epochs
//! never decrease in a journal.
//!
//! # Seals
//! A seal is always accepted: some of the room is kept for it, so that the epoch under way becomes
//! durable even when nothing new is admitted.

use std::collections::VecDeque;

use super::block::{Block, HEAD_BYTES, PIECE_BYTES_MIN, RECORD_BYTES, Record, Seal, ShardSet, Tag};
use super::disk::SECTOR_BYTES;
use super::error::Refusal;
use super::mutant::{Mutant, is};
use super::superblock::Position;

/// Bytes of a block that may be neither content nor heads of records.
const WASTE_BYTES: usize = HEAD_BYTES + RECORD_BYTES + PIECE_BYTES_MIN + SECTOR_BYTES;
/// Blocks whose memory is kept for later ones.
const SPARE_BLOCKS_MAX: usize = 8;

/// A place in the journal, not on the disk yet: what a shard's memory was when it was frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The newest epoch of which anything is before it.
    pub(crate) epoch: u64,
    /// Number of the block that comes next.
    pub(crate) block: u64,
}

/// What the side of the disk tells the shard's side.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Blocks that are durable; their memory is used again.
    pub(crate) blocks: Vec<Block>,
    /// The newest epoch that is sealed durably in this shard.
    pub(crate) sealed: Option<u64>,
    /// Places of marks that are durable, by the number of the block that follows.
    pub(crate) marks: Vec<(u64, Position)>,
    /// How many bytes of blocks the journal has room for, counted from when it was opened.
    pub(crate) room: u64,
    /// The disk has refused to give more room.
    pub(crate) is_full: bool,
    /// Why nothing can be written any more.
    pub(crate) poison: Option<String>,
}

/// Changes that wait for the disk.
#[derive(Debug)]
pub(crate) struct Staging {
    open: Block,
    closed: VecDeque<Block>,
    spares: Vec<Block>,
    block_bytes: usize,
    bound_bytes: usize,
    /// Bytes of all blocks that were begun and are not durable, but for the open one.
    waiting_bytes: usize,
    /// Bytes of all blocks that were ever closed.
    closed_bytes: u64,
    /// As the last report has it.
    room: u64,
    poison: Option<String>,
    /// Of the newest record.
    epoch: u64,
    durable: u64,
}

impl Staging {
    /// Block `block` is the next one; nothing newer than `epoch` has been written.
    pub(super) fn new(
        block: u64,
        epoch: u64,
        block_bytes: usize,
        bound_bytes: usize,
        room: u64,
    ) -> Self {
        Self {
            open: Block::begin(Block::default(), block, epoch, block_bytes),
            closed: VecDeque::new(),
            spares: Vec::new(),
            block_bytes,
            bound_bytes,
            waiting_bytes: 0,
            closed_bytes: 0,
            room,
            poison: None,
            epoch,
            durable: epoch,
        }
    }

    /// Whether a change of up to so many ranges with so many bytes may be made.
    #[inline]
    pub(crate) fn admit(&self, ranges: usize, bytes: usize) -> Result<(), Refusal> {
        let content = bytes + ranges * RECORD_BYTES;
        let block = self.block_bytes - WASTE_BYTES;
        // Nearly all changes are small, and a division is not.
        let blocks = if content <= block {
            2
        } else {
            content / block + 2
        };
        let asked = content + blocks * WASTE_BYTES;
        let staged_bytes = self.waiting_bytes + self.open.used();
        // Two blocks of the room are kept for seals and marks.
        let needed = self.closed_bytes + (self.open.padded() + asked + 2 * self.block_bytes) as u64;
        let is_full = staged_bytes + asked > self.bound_bytes && staged_bytes > HEAD_BYTES;
        if self.poison.is_none() && !is_full && needed <= self.room {
            return Ok(());
        }
        Err(self.refusal(staged_bytes, is_full))
    }

    #[cold]
    fn refusal(&self, staged_bytes: usize, is_full: bool) -> Refusal {
        match &self.poison {
            Some(reason) => Refusal::Poisoned {
                reason: reason.clone(),
            },
            None if is_full => Refusal::Full {
                staged_bytes,
                bound_bytes: self.bound_bytes,
            },
            None => Refusal::NoSpace,
        }
    }

    /// Takes a unit of change: ranges of the arena with their new content.
    ///
    /// # Panics
    /// If an epoch is lower than one before.
    #[inline]
    pub(crate) fn append<'r>(
        &mut self,
        epoch: u64,
        ranges: impl IntoIterator<Item = (u64, &'r [u8], Tag)>,
    ) {
        assert!(epoch >= self.epoch, "epochs never decrease in a journal");
        self.epoch = epoch;
        let mut is_first = true;
        for (offset, bytes, tag) in ranges {
            let record = Record {
                epoch,
                is_first,
                offset,
                bytes,
                tag,
            };
            match self.open.room(epoch) {
                Some(room) if bytes.len() <= room => self.open.push(&record),
                _ => self.append_pieces(record),
            }
            is_first = false;
        }
    }

    /// Splits a range over blocks.
    #[cold]
    fn append_pieces(&mut self, mut record: Record<'_>) {
        while !record.bytes.is_empty() {
            let room = self.open.room(record.epoch).unwrap_or(0);
            if room < record.bytes.len().min(PIECE_BYTES_MIN) {
                self.close();
                continue;
            }
            let (piece, rest) = record.bytes.split_at(room.min(record.bytes.len()));
            self.open.push(&Record {
                bytes: piece,
                ..record
            });
            record.offset += piece.len() as u64;
            record.bytes = rest;
            record.is_first = false;
        }
    }

    /// Seals an epoch in which the shards `dirty` have changed something. Everything of it must have
    /// been appended before; what comes next is of a later one.
    pub(crate) fn seal(&mut self, seal: &Seal) {
        let room = self.open.room(self.epoch);
        if room.is_none_or(|room| room < size_of::<ShardSet>()) {
            self.close();
        }
        let dirty = match is(Mutant::SealWithoutDirtySet) {
            true => ShardSet::default(),
            false => seal.dirty,
        };
        self.open.push_seal(self.epoch, &Seal { dirty, ..*seal });
    }

    /// Marks this place in the journal, where a checkpoint of the memory as it is now would have its
    /// replay start. Its position comes with a report.
    pub(crate) fn mark(&mut self) -> Mark {
        self.open.is_mark = true;
        self.close();
        Mark {
            epoch: self.epoch,
            block: self.open.number,
        }
    }

    /// Whether there may soon be no room for what is changed: so many bytes are left, or fewer.
    pub(crate) fn is_short_of_room(&self, margin_bytes: u64) -> bool {
        self.closed_bytes + self.open.padded() as u64 + margin_bytes > self.room
    }

    /// Whether nothing can be written any more.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poison.is_some()
    }

    /// What is known to be durable in all shards; the blocks that are closed from now on say so.
    pub(crate) fn set_durable(&mut self, epoch: u64) {
        self.durable = self.durable.max(epoch);
    }

    /// The newest epoch that is known to be durable.
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// Bytes that are not durable yet.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes + self.open.used() - HEAD_BYTES
    }

    /// A full block for the side of the disk.
    pub(crate) fn next_full(&mut self) -> Option<Block> {
        self.closed.pop_front()
    }

    /// A block for the side of the disk, full or not.
    pub(crate) fn next_block(&mut self) -> Option<Block> {
        if self.closed.is_empty() && !self.open.is_empty() {
            self.close();
        }
        self.closed.pop_front()
    }

    /// Takes back what the side of the disk has done with.
    pub(crate) fn take_back(&mut self, report: &mut Report) {
        for block in report.blocks.drain(..) {
            self.waiting_bytes -= block.padded();
            if self.spares.len() < SPARE_BLOCKS_MAX {
                self.spares.push(block);
            }
        }
        self.room = report.room;
        if self.poison.is_none() {
            self.poison.clone_from(&report.poison);
        }
    }

    #[cold]
    fn close(&mut self) {
        let used = self.spares.pop().unwrap_or_default();
        let number = self.open.number + 1;
        let next = Block::begin(used, number, self.epoch, self.block_bytes);
        let mut block = std::mem::replace(&mut self.open, next);
        block.durable = self.durable;
        self.waiting_bytes += block.padded();
        self.closed_bytes += block.padded() as u64;
        self.closed.push_back(block);
    }
}
