//! Checkpoints: the image is brought up to a frozen state of the memory, so that replay starts there.
//!
//! # Steps
//! 1. The shard freezes its memory between two units of change: it marks the place in the journal
//!    ([`Staging::mark`](super::staging::Staging::mark)) and takes the list of pages that were
//!    changed since the last time. It goes on at once, and copies a frozen page before it first
//!    overwrites it.
//! 2. When everything before the mark is durable, [`Checkpoints::begin`]. Never sooner: the image
//!    must not hold what the cut may not.
//! 3. [`Checkpoints::step`] copies the old pages from the image into a before-image file and syncs
//!    it, until it wants the new pages.
//! 4. [`Checkpoints::write`] each of them, in any order.
//! 5. [`Checkpoints::step`] writes their sums, syncs the image, and flips the superblock.
//!
//! A crash before the flip leaves the old checkpoint, with a before-image file that brings the image
//! back; a crash after it leaves the new one. Nothing stops meanwhile: neither the shard, nor the
//! journal, nor other shards, whose checkpoints need not be of the same time.
//!
//! # What is kept
//! Before-images and the journal of the checkpoint before the last are always kept, for then the
//! loss of one superblock slot is no loss. How much more is the caller's [`Retention`].
//!
//! # Failures
//! If the disk fails before the image was touched, nothing has happened. If it fails later, the next
//! checkpoint first brings the image back. If it fails in the flip, nobody knows which of the two
//! counts, and the image is left alone until the files are opened again.

use std::sync::Arc;

use super::before::{self, BeforeImages, BeforeWriter, GROUP_PAGES};
use super::disk::{Disk, DiskError, remove_if_there};
use super::error::{CheckpointError, RecoveryError};
use super::image::{self, Image, Page};
use super::log::Ids;
use super::mutant::{Mutant, is};
use super::segment;
use super::staging::Mark;
use super::superblock::{Position, State, Superblock, Superblocks};

/// Pages whose sums are written in one step.
const SUMS_PER_STEP: usize = 4096;

/// What a checkpoint is to hold.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    /// Where the memory was frozen.
    pub(crate) mark: Mark,
    /// The mark's place on the disk, from a report.
    pub(crate) position: Position,
    /// Length of the arena.
    pub(crate) arena_bytes: u64,
    /// All pages that differ from the last checkpoint, in any order.
    pub(crate) pages: Vec<u64>,
}

/// What comes next in a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Another step.
    More,
    /// The content of pages that were not written yet.
    Pages,
    /// Nothing: the checkpoint counts.
    Done,
}

/// How much of the past is kept beyond the checkpoint before the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retention {
    /// Bytes of before-images and journal.
    pub(crate) bytes_max: u64,
    /// The oldest epoch that anybody may want to go back to.
    pub(crate) epoch_min: u64,
}

/// A state that the image can be taken back to, and what keeping it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Past {
    /// Number of the checkpoint.
    pub(crate) checkpoint: u64,
    /// Its epoch, the oldest that it can serve.
    pub(crate) epoch: u64,
    /// The first segment of the journal that it needs.
    pub(crate) segment: u64,
    /// Bytes of the before-images that lead to it from the next one.
    pub(crate) bytes: u64,
}

/// One shard's image and superblock, as they are written.
pub(crate) struct Checkpoints {
    disk: Arc<dyn Disk>,
    pub(super) superblocks: Superblocks,
    pub(super) image: Image,
    ids: Ids,
    phase: Phase,
    /// Whether the image holds some of a checkpoint that was given up.
    is_torn: bool,
    undecided: Option<String>,
}

enum Phase {
    Idle,
    /// Before-images of the first `copied` pages are written.
    Before {
        plan: Plan,
        writer: BeforeWriter,
        copied: usize,
    },
    /// `sums` of pages that were written; the others are zero.
    Pages {
        plan: Plan,
        sums: Vec<u64>,
        missing: usize,
    },
    /// The sums of the first `written` pages are written.
    Sums {
        plan: Plan,
        sums: Vec<u64>,
        written: usize,
    },
}

struct Plan {
    next: Superblock,
    /// In order.
    pages: Vec<u64>,
}

impl Checkpoints {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        superblocks: Superblocks,
        image: Image,
        ids: Ids,
    ) -> Self {
        Self {
            disk,
            superblocks,
            image,
            ids,
            phase: Phase::Idle,
            is_torn: false,
            undecided: None,
        }
    }

    /// Begins a checkpoint; `durable` is the newest epoch that is durable in all shards.
    ///
    /// # Panics
    /// If one is under way.
    pub(crate) fn begin(&mut self, frozen: Frozen, durable: u64) -> Result<(), CheckpointError> {
        assert!(
            matches!(self.phase, Phase::Idle),
            "a checkpoint is under way"
        );
        if let Some(reason) = &self.undecided {
            let reason = reason.clone();
            return Err(CheckpointError::Undecided { reason });
        }
        let epoch = frozen.mark.epoch;
        if epoch > durable && !is(Mutant::CheckpointTooSoon) {
            return Err(CheckpointError::NotDurable { epoch, durable });
        }
        if self.is_torn {
            self.bring_back()?;
        }
        let parent = *self.superblocks.newest();
        let next = Superblock {
            lineage: self.ids.next(),
            checkpoint: parent.checkpoint.saturating_add(1),
            epoch,
            start: frozen.position,
            segment: parent.segment.max(frozen.position.segment),
            arena_bytes: frozen.arena_bytes,
            state: State::Open,
            ..parent
        };
        let mut pages = frozen.pages;
        pages.sort_unstable();
        pages.dedup();
        let writer = BeforeWriter::create(&*self.disk, &parent, &next)?;
        let plan = Plan { next, pages };
        let copied = 0;
        self.phase = Phase::Before {
            plan,
            writer,
            copied,
        };
        Ok(())
    }

    /// Does a piece of the work. After an error the checkpoint is given up.
    pub(crate) fn step(&mut self) -> Result<Step, CheckpointError> {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Idle => Ok(Step::Done),
            Phase::Before {
                plan,
                writer,
                copied,
            } => Ok(self.step_before(plan, writer, copied)?),
            Phase::Pages {
                plan,
                sums,
                missing,
            } if missing > 0 => {
                self.phase = Phase::Pages {
                    plan,
                    sums,
                    missing,
                };
                Ok(Step::Pages)
            }
            Phase::Pages { plan, sums, .. } => self.step_sums(plan, sums, 0),
            Phase::Sums {
                plan,
                sums,
                written,
            } => self.step_sums(plan, sums, written),
        }
    }

    /// Writes the frozen contents of pages that follow each other. After an error the checkpoint is given
    /// up.
    ///
    /// # Panics
    /// If a page is none of the frozen ones, or pages are not wanted.
    pub(crate) fn write(&mut self, first: u64, contents: &[&Page]) -> Result<(), CheckpointError> {
        let Phase::Pages {
            plan,
            sums,
            missing,
        } = &mut self.phase
        else {
            panic!("no pages are wanted now");
        };
        let index = plan.pages.binary_search(&first);
        let index = index.expect("the page is not one of the frozen ones");
        let pages = plan.pages[index..].iter().zip(first..);
        let follow = pages.take_while(|(page, next)| *page == next);
        assert!(
            follow.count() >= contents.len(),
            "a page is not one of the frozen ones"
        );
        if let Err(error) = self.image.write(first, contents) {
            return Err(self.give_up(error));
        }
        let sums = sums[index..].iter_mut().zip(first..).zip(contents);
        for ((place, page), content) in sums {
            *missing -= usize::from(*place == 0);
            *place = image::sum(page, &content[..]);
        }
        Ok(())
    }

    /// Whether a checkpoint is under way.
    pub(crate) fn is_busy(&self) -> bool {
        !matches!(self.phase, Phase::Idle)
    }

    /// What counts now.
    pub(crate) fn superblock(&self) -> &Superblock {
        self.superblocks.newest()
    }

    /// The pages of the last checkpoint, to be read while none is under way.
    pub(crate) fn image(&mut self) -> &mut Image {
        &mut self.image
    }

    /// Gives up what is under way.
    pub(crate) fn cancel(&mut self) {
        self.is_torn |= matches!(self.phase, Phase::Pages { .. } | Phase::Sums { .. });
        self.image.forget();
        self.phase = Phase::Idle;
    }

    /// Sees to it that the image is what the superblock says, while no checkpoint is under way.
    pub(crate) fn settle(&mut self) -> Result<(), CheckpointError> {
        if let Some(reason) = &self.undecided {
            let reason = reason.clone();
            return Err(CheckpointError::Undecided { reason });
        }
        if self.is_torn {
            self.bring_back()?;
        }
        Ok(())
    }

    /// Says that the files were closed behind a checkpoint that holds everything.
    pub(crate) fn close(&mut self) -> Result<(), CheckpointError> {
        self.cancel();
        self.settle()?;
        let state = State::Clean;
        let newest = *self.superblocks.newest();
        Ok(self.superblocks.write(Superblock { state, ..newest })?)
    }

    /// Forgets the past that the rule does not keep; gives the segments that nobody needs any more.
    pub(crate) fn retain(&mut self, rule: &Retention) -> Result<Vec<u64>, RecoveryError> {
        let newest = *self.superblocks.newest();
        let mut oldest = (newest.checkpoint, newest.start.segment);
        let mut bytes = 0;
        let mut epoch_after = u64::MAX;
        for (index, past) in past(&self.disk, &newest)?.iter().enumerate() {
            bytes += past.bytes;
            let is_wanted = bytes <= rule.bytes_max && epoch_after > rule.epoch_min;
            if index > 0 && !is_wanted {
                break;
            }
            oldest = (past.checkpoint, past.segment);
            epoch_after = past.epoch;
        }
        for name in self.disk.list()? {
            // The file of the next checkpoint may be what the image is to be brought back with.
            let is_kept =
                |number: u64| oldest.0 < number && number <= newest.checkpoint.saturating_add(1);
            if before::number(&name).is_some_and(|number| !is_kept(number)) {
                remove_if_there(&*self.disk, &name)?;
            }
        }
        let numbers = segment::numbers(&*self.disk)?;
        Ok(Vec::from_iter(
            numbers.into_iter().filter(|number| *number < oldest.1),
        ))
    }

    /// The states that the image can be taken back to, the newest first.
    pub(crate) fn past(&self) -> Result<Vec<Past>, RecoveryError> {
        past(&self.disk, self.superblocks.newest())
    }

    fn step_before(
        &mut self,
        plan: Plan,
        mut writer: BeforeWriter,
        copied: usize,
    ) -> Result<Step, DiskError> {
        let rest = &plan.pages[copied..];
        if rest.is_empty() {
            writer.finish(&*self.disk)?;
            let missing = plan.pages.len();
            let sums = vec![0; missing];
            self.phase = Phase::Pages {
                plan,
                sums,
                missing,
            };
            return Ok(if missing > 0 { Step::Pages } else { Step::More });
        }
        let group = &rest[..rest.len().min(GROUP_PAGES)];
        writer.copy(&mut self.image, group)?;
        let copied = copied + group.len();
        self.phase = Phase::Before {
            plan,
            writer,
            copied,
        };
        Ok(Step::More)
    }

    fn step_sums(
        &mut self,
        plan: Plan,
        sums: Vec<u64>,
        written: usize,
    ) -> Result<Step, CheckpointError> {
        let end = plan.pages.len().min(written + SUMS_PER_STEP);
        if written < end {
            let sums_now = plan.pages[written..end].iter().copied();
            let sums_now = sums_now.zip(sums[written..end].iter().copied());
            if let Err(error) = self.image.write_sums(sums_now) {
                return Err(self.give_up(error));
            }
            let written = end;
            self.phase = Phase::Sums {
                plan,
                sums,
                written,
            };
            return Ok(Step::More);
        }
        if !is(Mutant::ImageUnsynced)
            && let Err(error) = self.image.sync()
        {
            return Err(self.give_up(error));
        }
        if let Err(error) = self.superblocks.write(plan.next) {
            let reason = error.to_string();
            self.undecided = Some(reason.clone());
            return Err(CheckpointError::Undecided { reason });
        }
        Ok(Step::Done)
    }

    fn give_up(&mut self, error: DiskError) -> CheckpointError {
        self.image.forget();
        self.phase = Phase::Idle;
        self.is_torn = true;
        error.into()
    }

    /// Undoes what a checkpoint that was given up has written.
    fn bring_back(&mut self) -> Result<(), CheckpointError> {
        let undone = undo_interrupted(&self.disk, &self.superblocks, &mut self.image);
        undone.map_err(|error| match error {
            RecoveryError::Disk(error) => CheckpointError::Disk(error),
            other => CheckpointError::Damaged(other.to_string()),
        })?;
        self.is_torn = false;
        Ok(())
    }
}

/// Brings the image back to the checkpoint that counts, if a later one was begun.
fn undo_interrupted(
    disk: &Arc<dyn Disk>,
    superblocks: &Superblocks,
    image: &mut Image,
) -> Result<(), RecoveryError> {
    match interrupted(disk, superblocks)? {
        Some(before) => before.apply(image),
        None => Ok(()),
    }
}

/// What brings the image back to the checkpoint that counts, if a later one was begun.
pub(super) fn interrupted(
    disk: &Arc<dyn Disk>,
    superblocks: &Superblocks,
) -> Result<Option<BeforeImages>, RecoveryError> {
    let newest = superblocks.newest();
    let Some(next) = newest.checkpoint.checked_add(1) else {
        return Ok(None);
    };
    let before = BeforeImages::open(disk, &newest.identity, next)?;
    Ok(before
        .filter(|before| before.parent.lineage == newest.lineage || is(Mutant::LineageUnchecked)))
}

/// The states that an image can be taken back to from `newest`, the newest first.
pub(super) fn past(disk: &Arc<dyn Disk>, newest: &Superblock) -> Result<Vec<Past>, RecoveryError> {
    let mut past = Vec::new();
    let mut child = *newest;
    while let Some(before) = BeforeImages::open(disk, &newest.identity, child.checkpoint)? {
        if before.child_lineage != child.lineage && !is(Mutant::LineageUnchecked) {
            break;
        }
        child = before.parent;
        past.push(Past {
            checkpoint: child.checkpoint,
            epoch: child.epoch,
            segment: child.start.segment,
            bytes: before.bytes(),
        });
    }
    Ok(past)
}
