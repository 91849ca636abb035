//! One shard's journal and checkpoints, as they are written.
//!
//! # A checkpoint
//! ```text
//! writer                           shard
//! freeze                    ---->  marks its journal, freezes the changed pages
//! (mark is durable)         <----  mark, page numbers
//! before-images are copied
//! pages                     ---->  copies of some of them      (again and again)
//! written                   <----
//! sums, superblock
//! ```
//! The shard goes on all the while. If the disk fails the checkpoint is given up, and the pages count
//! as changed again.

use std::sync::Arc;

use super::{RETRY, Rules};
use crate::journal::{
    Block, CheckpointError, Checkpoints, DiskSide, EpochClock, Frozen, Log, Mark, Page, Position,
    RecoveryError, Step, ToShard, WriteError, WriterQueue,
};
use crate::limits::{HUGE_PAGE_BYTES, PAGE_BYTES};
use crate::shard::Mailbox;

/// Pages of an image that are loaded at once: a huge page of them.
const LOAD_PAGES: u64 = (HUGE_PAGE_BYTES / PAGE_BYTES) as u64;

/// Bytes that wait to be synced at most, while nobody waits for them.
const UNSYNCED_BYTES_MAX: u64 = 1 << 20;

pub(super) struct Lane {
    log: Log,
    checkpoints: Checkpoints,
    pub(super) mailbox: Arc<Mailbox>,
    /// Blocks were handed over and not written.
    has_blocks: bool,
    unsynced_bytes: u64,
    /// Somebody waits for the sync.
    wants_sync: bool,
    /// Bytes written since the last checkpoint was begun.
    bytes: u64,
    phase: Phase,
    loading: Loading,
    /// Why frozen pages could not be written.
    failed: Option<CheckpointError>,
    /// The disk has refused to give more room.
    is_full: bool,
    /// When to try again what the disk has refused, in microseconds.
    retries: [Option<u64>; 3],
    /// The shard changes nothing any more.
    pub(super) is_ended: bool,
    end: End,
}

/// What the disk may refuse: while one waits, the others go on.
#[derive(Clone, Copy)]
enum Work {
    Journal,
    Spare,
    Image,
}

enum Phase {
    Idle,
    /// The shard was asked to freeze its memory.
    Freezing,
    /// It did, and its mark is to be durable.
    Marked {
        mark: Mark,
        position: Option<Position>,
        pages: Vec<u64>,
        arena_bytes: u64,
    },
    /// The checkpoint is being written; the shard was asked for pages, or not.
    Writing {
        pages: Vec<u64>,
        is_asked: bool,
    },
    /// There will be no more.
    Never,
}

/// Pages of the image on their way into the shard's memory.
struct Loading {
    next: u64,
    end: u64,
    /// The shard has so many, and has not said that they are loaded.
    under_way: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    NotYet,
    /// The last checkpoint is on its way.
    Last,
    Over,
}

/// What has become of blocks.
pub(super) struct Written {
    pub(super) sealed: Option<u64>,
    pub(super) poison: Option<String>,
}

impl Lane {
    pub(super) fn new(journal: DiskSide, mailbox: Arc<Mailbox>) -> Self {
        Self {
            log: journal.log,
            checkpoints: journal.checkpoints,
            mailbox,
            has_blocks: false,
            unsynced_bytes: 0,
            wants_sync: false,
            bytes: 0,
            phase: Phase::Idle,
            loading: Loading {
                next: 0,
                end: journal.unloaded_pages,
                under_way: 0,
            },
            failed: None,
            is_full: false,
            retries: [None; 3],
            is_ended: false,
            end: End::NotYet,
        }
    }

    /// When to look again.
    pub(super) fn retry(&self) -> Option<u64> {
        self.retries.iter().flatten().min().copied()
    }

    pub(super) fn is_over(&self) -> bool {
        self.end == End::Over
    }

    /// Takes a block.
    pub(super) fn push(&mut self, block: Block) {
        self.has_blocks = true;
        self.wants_sync |= block.is_awaited();
        self.unsynced_bytes += block.padded() as u64;
        self.log.push(block);
    }

    fn may_try(&mut self, work: Work, now: u64) -> bool {
        let retry = &mut self.retries[work as usize];
        match *retry {
            Some(time) if now < time => false,
            _ => {
                *retry = None;
                true
            }
        }
    }

    fn refused(&mut self, work: Work, now: u64) {
        self.retries[work as usize] = Some(now + RETRY.as_micros() as u64);
    }

    /// Whether there is something to write or to sync.
    pub(super) fn is_due(&mut self, now: u64) -> bool {
        (self.has_blocks || self.syncs()) && self.may_try(Work::Journal, now)
    }

    /// Whether somebody waits for a sync.
    pub(super) fn syncs(&self) -> bool {
        self.wants_sync || self.unsynced_bytes > UNSYNCED_BYTES_MAX
    }

    /// Writes what was handed over, and syncs it if somebody waits for that.
    pub(super) fn write(&mut self) -> Result<(), WriteError> {
        self.log.write()?;
        self.has_blocks = false;
        if self.syncs() {
            self.log.sync()?;
            self.bytes += self.unsynced_bytes;
            self.unsynced_bytes = 0;
            self.wants_sync = false;
        }
        Ok(())
    }

    /// Tells what has come of writing.
    pub(super) fn written(&mut self, written: &Result<(), WriteError>, now: u64) -> Written {
        match written {
            Ok(()) => {}
            Err(WriteError::NoSpace(_)) => {
                self.is_full = true;
                self.refused(Work::Journal, now);
            }
            Err(WriteError::Poisoned { .. }) => {
                self.has_blocks = false;
                self.wants_sync = false;
                self.unsynced_bytes = 0;
            }
        }
        self.report()
    }

    /// Tells the shard what has become of its blocks.
    fn report(&mut self) -> Written {
        let mut report = self.log.report();
        report.is_full = self.is_full;
        if let Phase::Marked { mark, position, .. } = &mut self.phase {
            let own = report.marks.iter().find(|(block, _)| *block == mark.block);
            *position = position.or(own.map(|&(_, position)| position));
        }
        let written = Written {
            sealed: report.sealed,
            poison: report.poison.clone(),
        };
        self.send(ToShard::Report(report));
        written
    }

    /// Sees to it that there is one segment more than is in use; a piece of that.
    pub(super) fn prepare(&mut self, now: u64) -> bool {
        if self.log.has_spare() || self.is_over() || !self.may_try(Work::Spare, now) {
            return false;
        }
        let prepared = self.log.prepare();
        self.is_full = prepared.is_err();
        if self.is_full {
            self.refused(Work::Spare, now);
        }
        if !prepared.is_ok_and(|more| more) {
            self.report();
        }
        true
    }

    /// Does a piece of a checkpoint, if it is time for one.
    pub(super) fn checkpoint(
        &mut self,
        now: u64,
        clock: &EpochClock,
        rules: &Rules,
        may_begin: bool,
    ) -> bool {
        match &mut self.phase {
            Phase::Idle => {
                let is_wanted = may_begin && self.bytes >= rules.checkpoint_bytes;
                if is_wanted && self.end == End::NotYet && self.may_try(Work::Image, now) {
                    self.freeze();
                    return true;
                }
                false
            }
            Phase::Freezing | Phase::Never => false,
            Phase::Marked { mark, position, .. } => {
                let epoch = mark.epoch;
                let is_there = position.is_some();
                // Nobody else may wait for its epoch.
                let is_durable = clock.durable() >= epoch || {
                    let _ = clock.ask(epoch);
                    false
                };
                is_there && is_durable && self.begin(now, clock.durable())
            }
            Phase::Writing { is_asked: true, .. } => false,
            Phase::Writing { .. } => self.go_on(now, rules),
        }
    }

    /// Reads a piece of the image for the shard, if it has not all of it, and compares it with its sums.
    pub(super) fn load(&mut self, now: u64) -> Result<bool, String> {
        let Loading {
            next,
            end,
            under_way,
        } = self.loading;
        // While the image is written, its sums are not those of its pages.
        let is_quiet = matches!(self.phase, Phase::Idle | Phase::Never) && self.end == End::NotYet;
        if next >= end || under_way > 0 || !is_quiet || !self.may_try(Work::Image, now) {
            return Ok(false);
        }
        let pages = (end - next).min(LOAD_PAGES);
        let mut content = vec![0; pages as usize * PAGE_BYTES];
        match self.checkpoints.image().read(next, &mut content) {
            Ok(()) => {}
            Err(RecoveryError::Disk(_)) => {
                self.refused(Work::Image, now);
                return Ok(true);
            }
            Err(damaged) => {
                self.loading.end = 0;
                return Err(damaged.to_string());
            }
        }
        self.loading.under_way = pages;
        let first = next;
        self.send(ToShard::Load { first, content });
        Ok(true)
    }

    /// The shard has loaded what it was sent.
    pub(super) fn loaded(&mut self, queue: &WriterQueue) {
        let Loading {
            next,
            end,
            under_way,
        } = &mut self.loading;
        if *under_way == 0 {
            return;
        }
        queue.count_pages(0, *under_way);
        *next += std::mem::take(under_way);
        if *next >= *end {
            let (first, content) = (*next, Vec::new());
            self.send(ToShard::Load { first, content });
        }
    }

    fn freeze(&mut self) {
        self.phase = Phase::Freezing;
        self.bytes = 0;
        self.send(ToShard::Freeze);
    }

    /// Whether a checkpoint is under way.
    pub(super) fn is_at_work(&self) -> bool {
        !matches!(self.phase, Phase::Idle | Phase::Never)
    }

    /// Sees to it that the image is that of the last checkpoint; how far the journal is durable.
    pub(super) fn settle(&mut self) -> Result<Position, String> {
        if self.is_ended {
            return Err("the database is being closed".to_owned());
        }
        let settled = self.checkpoints.settle();
        settled.map_err(|error| error.to_string())?;
        Ok(self.log.durable())
    }

    /// The shard has frozen its memory.
    pub(super) fn frozen(&mut self, mark: Mark, pages: Vec<u64>, arena_bytes: u64) {
        self.phase = Phase::Marked {
            mark,
            position: None,
            pages,
            arena_bytes,
        };
    }

    fn begin(&mut self, now: u64, durable: u64) -> bool {
        let Phase::Marked {
            mark,
            position: Some(position),
            pages,
            arena_bytes,
        } = std::mem::replace(&mut self.phase, Phase::Idle)
        else {
            return false;
        };
        let frozen = Frozen {
            mark,
            position,
            arena_bytes,
            pages: pages.clone(),
        };
        let begun = self.checkpoints.begin(frozen, durable);
        self.phase = Phase::Writing {
            pages,
            is_asked: false,
        };
        if let Err(error) = begun {
            self.give_up_checkpoint(now, &error);
        }
        true
    }

    fn go_on(&mut self, now: u64, rules: &Rules) -> bool {
        let step = match self.failed.take() {
            Some(error) => Err(error),
            None => self.checkpoints.step(),
        };
        match step {
            Ok(Step::More) => {}
            Ok(Step::Pages) => {
                if let Phase::Writing { is_asked, .. } = &mut self.phase {
                    *is_asked = true;
                }
                self.send(ToShard::Pages);
            }
            Ok(Step::Done) => {
                self.phase = Phase::Idle;
                // What cannot be forgotten now is tried again after the next checkpoint.
                if let Ok(numbers) = self.checkpoints.retain(&rules.retention) {
                    let _ = self.log.retire(numbers);
                }
            }
            Err(error) => self.give_up_checkpoint(now, &error),
        }
        true
    }

    /// Writes frozen pages.
    pub(super) fn take_pages(&mut self, mut taken: Vec<(u64, Box<Page>)>) {
        let Phase::Writing { is_asked, .. } = &mut self.phase else {
            return;
        };
        *is_asked = false;
        taken.sort_unstable_by_key(|(page, _)| *page);
        for run in taken.chunk_by(|(page, _), (next, _)| page + 1 == *next) {
            let contents: Vec<&Page> = run.iter().map(|(_, content)| &**content).collect();
            if let Err(error) = self.checkpoints.write(run[0].0, &contents) {
                self.failed = Some(error);
                return;
            }
        }
    }

    fn give_up_checkpoint(&mut self, now: u64, error: &CheckpointError) {
        let phase = match error {
            CheckpointError::Undecided { .. } | CheckpointError::Damaged(_) => Phase::Never,
            CheckpointError::NotDurable { .. } | CheckpointError::Disk(_) => Phase::Idle,
        };
        if let Phase::Writing { pages, .. } = std::mem::replace(&mut self.phase, phase) {
            self.send(ToShard::Thaw(pages));
        }
        self.refused(Work::Image, now);
    }

    /// The shard has failed: its files are left as they are.
    pub(super) fn give_up(&mut self) {
        self.end = End::Over;
    }

    /// Takes the last checkpoint, and closes the files; says whether it did a piece of that.
    pub(super) fn end(&mut self, failure: Option<&str>) -> bool {
        let result = match (self.end, &self.phase) {
            (End::Over, _) => return false,
            _ if failure.is_some() => Err(failure.unwrap_or_default().to_owned()),
            (End::NotYet, Phase::Idle) => {
                self.end = End::Last;
                self.freeze();
                return true;
            }
            (End::Last, Phase::Idle) => {
                let closed = self.checkpoints.close();
                closed.map_err(|error| error.to_string())
            }
            (_, Phase::Never) => Err("no more checkpoints could be taken".to_owned()),
            _ => return false,
        };
        self.end = End::Over;
        self.send(ToShard::Closed(result));
        true
    }
}
