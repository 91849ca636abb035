//! The journal: what makes a shard's memory outlive crashes, and go back in time.
//!
//! # What it is below
//! A shard's data is one flat image, its arena. Whatever changes it hands the changed ranges, with
//! their new content, to this room: the records are physical, so one mechanism carries rows, strings,
//! indexes and the catalog, and it knows none of them. It knows bytes, epochs and shards.
//!
//! # What it promises
//! An epoch that was called durable is there after any crash; what is there is the end of exactly one
//! epoch, the same one in all shards, and that is a consistent cut. Opening takes a time that depends
//! on the work since the last checkpoint. Bytes that were durable and are not any more are reported,
//! never skipped. A state of the past that is kept can be gone back to.
//!
//! # The files of a shard
//! ```text
//! superblock            two slots: which checkpoint counts, where replay starts
//! image, image.sums     the arena's pages at that checkpoint, and their checksums
//! pre.<n>               pages as they were before checkpoint n
//! segment.<n>           the journal
//! ```
//! # The parts
//! On the shard's side [`Staging`] gathers changes into blocks, and [`Epochs`] counts; both only touch
//! memory. On the disk's side [`Log`] writes the blocks and [`Checkpoints`] the image; both only do
//! what they are told to, when they are. [`Recovery`] opens the files. Nothing in this room has a
//! thread, a clock or a source of random numbers: they are the caller's, so that one seeded thread
//! can run it over the simulated disk of its tests, which loses, tears and reorders.
//!
//! # The way of a change
//! ```text
//! shard                                          disk
//! staging.admit(ranges, bytes)?  nothing yet
//! change the memory
//! epoch = epochs.change()
//! staging.append(epoch, ranges)
//! staging.next_full(), next_block()   --blocks-> log.push(block), write(), sync()
//! staging.take_back(report)           <-report-- log.report(), and log.prepare() in between
//! report.sealed                       --------> coordinator.sealed(shard, epoch)
//! epochs.durable(epoch), staging.set_durable(epoch): answers that waited for the epoch go out
//! ```
//! And of a checkpoint: `mark = staging.mark()` between two units of change, and the changed pages
//! frozen; when a report has the mark's position and its epoch is durable, `checkpoints.begin`, then
//! `step` and `write` until it is done, `retain`, and what that gives to `log.retire`.
//!
//! # The ideas
//! Before-images on disk and a journal, recovered backward or forward, are GT.M's; so is the wish
//! that neither needs the other shards to stop. Epochs of group commit are Silo's (Tu et al., SOSP
//! 2013), their stamps Lamport's (CACM 1978), and that a failed sync is not repeated is Rebello et
//! al. (ATC 2020).
//!
//! # What is absent on purpose
//! Transactions: a shard keeps what it needs to decide them in its arena, and the consistent cut does
//! the rest. Shared mappings: the image is written by this room alone, because nobody can say when
//! the system writes a mapped page back.

mod before;
mod block;
mod bytes;
mod check;
mod checkpoint;
mod clock;
mod copy;
mod create;
mod cut;
mod disk;
mod epochs;
mod error;
mod extract;
mod image;
mod log;
mod mutant;
mod queue;
mod recovery;
mod rescue;
mod rollback;
mod scan;
mod segment;
mod staging;
mod superblock;
#[cfg(test)]
mod test;
mod times;

pub(crate) use block::{Block, Record, Seal, ShardSet, Tag};
pub(crate) use bytes::RunningSum;
pub(crate) use check::{Finding, check};
pub(crate) use checkpoint::{Checkpoints, Frozen, Past, Retention, Step};
pub(crate) use clock::{Durable, EpochClock};
pub(crate) use copy::{CopiedFile, ShardCopy};
pub(crate) use create::create;
#[cfg(test)]
pub(crate) use disk::simulated;
pub(crate) use disk::{DirectAccess, Disk, DiskError, DiskFile, FileDisk};
pub(crate) use epochs::{Call, Coordinator, Epochs};
pub(crate) use error::{CheckpointError, RecoveryError, Refusal, WriteError};
pub(crate) use extract::Extract;
pub(crate) use image::Page;
pub(crate) use log::{Ids, Log, Sizes};
pub(crate) use queue::{Halt, Order, ToShard, ToWriter, WriterQueue};
pub(crate) use recovery::{Loader, Recovery, segment_bytes};
pub(crate) use rescue::Rescue;
pub(crate) use staging::{Mark, Report, Staging};
pub(crate) use superblock::{Identity, Position, State, Superblock};
pub(crate) use times::times;

/// The disk's side of a shard's journal.
pub(crate) struct DiskSide {
    pub(crate) log: Log,
    pub(crate) checkpoints: Checkpoints,
    /// Pages of the image that the shard has not loaded.
    pub(crate) unloaded_pages: u64,
}

/// One shard's journal, open for writing. The parts may be taken apart, and used by two threads.
pub(crate) struct Journal {
    /// The shard's side.
    pub(crate) staging: Staging,
    /// The disk's side: the journal.
    pub(crate) log: Log,
    /// The disk's side: the image.
    pub(crate) checkpoints: Checkpoints,
    /// The first epoch of this life.
    pub(crate) epoch_first: u64,
}

impl Journal {
    /// The shard's side, and the disk's.
    pub(crate) fn split(self) -> (Staging, DiskSide) {
        let side = DiskSide {
            log: self.log,
            checkpoints: self.checkpoints,
            unloaded_pages: 0,
        };
        (self.staging, side)
    }

    /// Writes and syncs everything that was appended, if both sides are one thread; gives what has
    /// become durable. What is known before an error is known after it, too.
    pub(crate) fn flush(&mut self, report: &mut Report) -> Result<(), WriteError> {
        while let Some(block) = self.staging.next_block() {
            self.log.push(block);
        }
        let written = self.log.write().and_then(|()| self.log.sync());
        *report = self.log.report();
        self.staging.take_back(report);
        written
    }
}
