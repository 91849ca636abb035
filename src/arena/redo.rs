//! The ranges that a scope changes, on their way into the journal.
//!
//! # The way of a change
//! Ranges are noted when they are told ([`Redo::change`]). The end of the scope stamps them with the
//! open epoch and hands them, with the content that they have then, to the journal's
//! [`Staging`]: one unit of change. Whatever happens to the process, a unit is replayed as a whole or
//! not at all.
//!
//! # Checkpoints
//! [`Redo::freeze`] takes the pages that differ from the last checkpoint. From then on a frozen page is
//! copied before it is changed for the first time, until the checkpoint has taken it
//! ([`Redo::take_frozen`]); so the shard goes on while its memory of one moment is written.

#![expect(unsafe_code, reason = "changed ranges are copied from arena memory")]

use std::ptr::NonNull;
use std::sync::Arc;

use super::extents::Extent;
use super::mutant::{self, Mutant};
use super::pages::PageSet;
use crate::journal::{Block, EpochClock, Epochs, Mark, Page, Report, Seal, Sizes, Staging, Tag};
use crate::limits::{PAGE_BYTES, SCOPE_BYTES_LONG};

/// Ranges of a scope after which it ends as soon as it may.
const RANGES_LONG: usize = 1 << 14;

/// A part of the arena, from its first byte to behind its last one.
#[derive(Clone, Copy)]
struct Range {
    start: u64,
    end: u64,
}

/// What keeps an arena's changes for its journal.
pub(crate) struct Redo {
    base: NonNull<u8>,
    shard: usize,
    /// Of the scope at hand.
    ranges: Vec<Range>,
    bytes: usize,
    /// Pages that differ from the last checkpoint.
    changed: PageSet,
    /// Pages that were changed since the arena was opened, as long as others are not loaded.
    opened: Option<PageSet>,
    /// Pages that a checkpoint under way has still to take, as they are.
    frozen: PageSet,
    /// Pages of it that were changed since, as they were.
    copies: Vec<(u64, Box<Page>)>,
    staging: Staging,
    sizes: Sizes,
    epochs: Epochs,
    clock: Arc<EpochClock>,
    /// Whether the clock knows that there is something to seal.
    is_flagged: bool,
    bar: Option<Bar>,
    /// There may soon be no room in the journal, until the writer has made some.
    is_short: bool,
}

/// Why nothing may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bar {
    /// The disk has no room for another segment of the journal, for now.
    NoSpace,
    /// The journal could not be written, and never will be by this process.
    Broken,
}

/// What a shard's redo begins with.
pub(crate) struct RedoStart {
    pub(crate) shard: usize,
    pub(crate) staging: Staging,
    pub(crate) sizes: Sizes,
    pub(crate) clock: Arc<EpochClock>,
    /// Pages that recovery has changed.
    pub(crate) changed: Vec<u64>,
}

impl Redo {
    /// With `is_loading`, pages that nobody has changed are still those of the image's file.
    pub(super) fn new(base: NonNull<u8>, start: RedoStart, is_loading: bool) -> Self {
        let mut changed = PageSet::default();
        start.changed.iter().for_each(|&page| changed.insert(page));
        let opened = is_loading.then(|| changed.clone());
        Self {
            base,
            shard: start.shard,
            ranges: Vec::new(),
            bytes: 0,
            changed,
            opened,
            frozen: PageSet::default(),
            copies: Vec::new(),
            epochs: Epochs::new(start.clock.open()),
            staging: start.staging,
            sizes: start.sizes,
            clock: start.clock,
            is_flagged: false,
            bar: None,
            is_short: false,
        }
    }

    /// Notes a range that is about to change.
    #[inline]
    pub(super) fn change(&mut self, offset: u64, bytes: usize) {
        let end = offset + bytes as u64;
        if mutant::is(Mutant::RangesForgotten) && offset.is_multiple_of(5) {
            return;
        }
        if !self.frozen.is_empty() {
            self.keep(offset, end);
        }
        if let Some(last) = self.ranges.last_mut()
            && last.start <= offset
            && offset <= last.end
        {
            if end > last.end {
                self.bytes += (end - last.end) as usize;
                last.end = end;
            }
            return;
        }
        self.bytes += bytes;
        self.ranges.push(Range { start: offset, end });
    }

    /// Notes that memory gets into use whose content may have been in use when it was frozen.
    #[inline]
    pub(super) fn take(&mut self, extent: Extent) {
        if !self.frozen.is_empty() {
            self.keep(extent.offset, extent.offset + extent.bytes);
        }
    }

    /// Copies frozen pages of a range, before it is changed.
    #[cold]
    #[inline(never)]
    fn keep(&mut self, start: u64, end: u64) {
        let (first, behind) = (start / PAGE_BYTES as u64, end.div_ceil(PAGE_BYTES as u64));
        for page in first..behind {
            if !mutant::is(Mutant::FrozenUnkept) && self.frozen.remove(page) {
                let copy = self.copy(page);
                self.copies.push((page, copy));
            }
        }
    }

    fn copy(&self, page: u64) -> Box<Page> {
        // SAFETY: pages that were changed lie in the arena, whose memory nobody writes meanwhile.
        let bytes = unsafe { self.base.add(page as usize * PAGE_BYTES).cast::<Page>() };
        // SAFETY: as above; any bytes make a page.
        Box::new(unsafe { bytes.read() })
    }

    pub(super) fn is_long(&self) -> bool {
        self.bytes > SCOPE_BYTES_LONG || self.ranges.len() > RANGES_LONG
    }

    /// Ends the scope: what it has changed becomes a unit of the journal.
    #[inline]
    pub(super) fn end(&mut self) {
        if !self.ranges.is_empty() {
            self.append();
        }
    }

    fn append(&mut self) {
        if !self.is_flagged {
            self.is_flagged = true;
            self.clock.flag(self.shard);
        }
        if !mutant::is(Mutant::ClockUnread) {
            self.epochs.receive(self.clock.open());
        }
        let epoch = self.epochs.change();
        let (base, changed, opened) = (self.base, &mut self.changed, &mut self.opened);
        let ranges = self.ranges.iter().map(|&Range { start, end }| {
            let pages = start / PAGE_BYTES as u64..end.div_ceil(PAGE_BYTES as u64);
            if let Some(opened) = opened {
                pages.clone().for_each(|page| opened.insert(page));
            }
            if !mutant::is(Mutant::PagesUnmarked) {
                pages.for_each(|page| changed.insert(page));
            }
            // SAFETY: ranges that were told lie in the arena, whose memory nobody writes meanwhile.
            let bytes = unsafe {
                let first = base.add(start as usize).as_ptr();
                std::slice::from_raw_parts(first, (end - start) as usize)
            };
            (start, bytes, Tag::default())
        });
        self.staging.append(epoch, ranges);
        self.ranges.clear();
        self.bytes = 0;
        self.is_short = self.staging.is_short_of_room(self.sizes.segment_bytes / 4);
    }

    /// Why nothing may be changed now.
    #[inline]
    pub(crate) fn bar(&self) -> Option<Bar> {
        // The writer may be gone, and tell nothing any more.
        let is_broken = self.bar.is_none() && self.clock.has_failed();
        self.bar.or(is_broken.then_some(Bar::Broken))
    }

    /// Whether so much waits for the disk that nothing should be added before it has caught up.
    #[inline]
    pub(crate) fn is_held_up(&self) -> bool {
        self.bar().is_none()
            && (self.is_short || self.staging.waiting_bytes() > self.sizes.staging_bytes)
    }

    /// Seals an epoch.
    pub(crate) fn seal(&mut self, seal: &Seal) {
        debug_assert!(self.ranges.is_empty(), "an epoch ends between two scopes");
        self.epochs.close(seal.epoch);
        self.staging.seal(seal);
        self.epochs.seal(seal.epoch);
        if self.is_flagged && self.epochs.is_clean() {
            self.is_flagged = false;
            self.clock.unflag(self.shard);
        }
    }

    /// A block for the disk: one that is full, or any, if all are wanted.
    pub(crate) fn next_block(&mut self, wants_all: bool) -> Option<Block> {
        if wants_all {
            self.staging.next_block()
        } else {
            self.staging.next_full()
        }
    }

    /// Takes back what the disk's side has done with.
    pub(crate) fn take_back(&mut self, report: &mut Report) {
        self.staging.take_back(report);
        self.staging.set_durable(self.clock.sealed());
        self.is_short = self.staging.is_short_of_room(self.sizes.segment_bytes / 4);
        self.bar = if self.staging.is_poisoned() {
            Some(Bar::Broken)
        } else if self.is_short && report.is_full {
            Some(Bar::NoSpace)
        } else {
            None
        };
    }

    /// Marks this place in the journal, and freezes the pages that differ from the last checkpoint.
    pub(crate) fn freeze(&mut self) -> (Mark, Vec<u64>) {
        debug_assert!(
            self.ranges.is_empty(),
            "memory is frozen between two scopes"
        );
        let mark = self.staging.mark();
        // Of a checkpoint that was given up, something may be left.
        self.copies.clear();
        self.frozen = std::mem::take(&mut self.changed);
        (mark, self.frozen.iter().collect())
    }

    /// Frozen pages that were not taken yet, at most `most` of them.
    pub(crate) fn take_frozen(&mut self, most: usize) -> Vec<(u64, Box<Page>)> {
        let mut taken = self
            .copies
            .split_off(self.copies.len().saturating_sub(most));
        while taken.len() < most
            && let Some(page) = self.frozen.pop()
        {
            taken.push((page, self.copy(page)));
        }
        taken
    }

    /// Gives up a checkpoint: its pages still differ from the last one.
    pub(crate) fn thaw(&mut self, pages: &[u64]) {
        self.frozen = PageSet::default();
        self.copies.clear();
        pages.iter().for_each(|&page| self.changed.insert(page));
    }

    /// Whether a page was changed since the arena was opened.
    pub(super) fn is_changed_since_opening(&self, page: u64) -> bool {
        self.opened
            .as_ref()
            .is_none_or(|opened| opened.contains(page))
    }

    /// Notes that all pages are loaded.
    pub(super) fn end_loading(&mut self) {
        self.opened = None;
    }

    /// Whether frozen pages wait to be taken.
    pub(super) fn is_frozen(&self) -> bool {
        !self.frozen.is_empty()
    }
}
