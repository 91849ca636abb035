//! The only place where a tree touches memory: pages of the arena by their numbers.
//!
//! Reading gives a borrowed page; every byte pattern is one, and whoever reads it checks what it
//! finds. Writing goes through [`PageMut`], which cannot write without telling the arena: memory in
//! use is named *before* it changes, memory that held nothing in use when it is written.
//!
//! # The rule that makes undo right
//! Bytes that leave use are named at that moment, although they do not change then: the slots at the
//! end of an array that shrinks, the whole of a page that is rewritten, a page that is given out
//! again. So what later counts as free, and is written without a before-image, either was free when
//! the scope began or has its image in the scope already. Cells of removed entries are the
//! exception, and so their bytes are not used again before the page is rewritten.
//!
//! Before-images need room, which is asked for before a change begins ([`log_bytes`]).

#![expect(unsafe_code, reason = "pages lie in arena memory")]

use std::ops::Range;
use std::ptr::NonNull;

use super::error::Damaged;
use super::head::TreeName;
#[cfg(test)]
use super::trace;
use crate::arena::{
    Arena, Extent, ExtentKind, ExtentUse, prefetch as prefetch_line, prefetch_range,
};
use crate::error::ArenaFull;
use crate::limits::PAGE_BYTES;

/// The bytes of a page.
pub(super) type Bytes = [u8; PAGE_BYTES];

/// Whether the arena has a page of this number.
#[inline(always)]
fn address(arena: &Arena, number: u32) -> Result<NonNull<u8>, Damaged> {
    let offset = u64::from(number) * PAGE_BYTES as u64;
    if !arena.has(offset, PAGE_BYTES) {
        return Err(Damaged {
            page: number,
            what: "it lies outside the arena",
        });
    }
    Ok(arena.at(offset))
}

/// A page, to be read.
#[inline(always)]
pub(super) fn page(arena: &Arena, number: u32) -> Result<&Bytes, Damaged> {
    let at = address(arena, number)?;
    // SAFETY: the page lies in the arena's mapping, which lives as long as the arena; pages are only
    // written through `PageMut`, which borrows the arena mutably, or by rooms whose thread is this one.
    Ok(unsafe { at.cast::<Bytes>().as_ref() })
}

/// Starts reading the first `bytes` of a page; any number is harmless.
#[inline(always)]
pub(super) fn prefetch(arena: &Arena, number: u32, bytes: usize) {
    if let Ok(at) = address(arena, number) {
        prefetch_range(at.as_ptr(), bytes);
    }
}

/// Starts reading a few bytes within a page, at least one.
#[inline(always)]
pub(super) fn prefetch_at(page: &Bytes, at: usize, bytes: usize) {
    let address = page.as_ptr().wrapping_add(at);
    if bytes == 1 {
        prefetch_line(address);
    } else {
        prefetch_range(address, bytes);
    }
}

/// Takes an extent of so many pages, the tree's `number`th; the number of its first page.
pub(super) fn take(
    arena: &mut Arena,
    pages: u32,
    name: TreeName,
    number: u32,
) -> Result<u32, ArenaFull> {
    let use_ = ExtentUse::new(name.owner, ExtentKind::Tree, name.tree).detail(number);
    let extent = arena.allocate(pages as usize * PAGE_BYTES, use_)?;
    #[cfg(test)]
    trace::taken(extent);
    Ok((extent.offset / PAGE_BYTES as u64) as u32)
}

/// As [`take`], below a page, if there is room.
pub(super) fn take_below(
    arena: &mut Arena,
    pages: u32,
    name: TreeName,
    number: u32,
    below: u32,
) -> Option<u32> {
    let use_ = ExtentUse::new(name.owner, ExtentKind::Tree, name.tree).detail(number);
    let below = u64::from(below) * PAGE_BYTES as u64;
    let extent = arena.allocate_below(pages as usize * PAGE_BYTES, use_, below)?;
    #[cfg(test)]
    trace::taken(extent);
    Some((extent.offset / PAGE_BYTES as u64) as u32)
}

/// Gives an extent back.
pub(super) fn give_back(arena: &mut Arena, first: u32, pages: u32) {
    let extent = Extent {
        offset: u64::from(first) * PAGE_BYTES as u64,
        bytes: u64::from(pages) * PAGE_BYTES as u64,
    };
    #[cfg(test)]
    if trace::given_back(extent) {
        return;
    }
    arena.release(extent);
}

/// Gives an extent of a tree that goes back; the scope may end after it.
pub(super) fn give_back_in_turn(arena: &mut Arena, first: u32, pages: u32) {
    arena.release_in_turn(Extent {
        offset: u64::from(first) * PAGE_BYTES as u64,
        bytes: u64::from(pages) * PAGE_BYTES as u64,
    });
}

/// The before-images that a change may need: of `levels` levels on which pages are split or merged,
/// of `taken` other pages that are given out, which may hold what was freed in the same scope, and of
/// `freed` pages.
pub(super) fn log_bytes(levels: usize, taken: usize, freed: usize) -> usize {
    (3 * levels + taken) * LOGGED_PAGE + freed * LOGGED_FREED
}

/// A page's image in records, and those of what tells that it is in use.
const LOGGED_PAGE: usize = PAGE_BYTES + 512;
/// What tells that a page is free, and now and then that an extent is empty.
const LOGGED_FREED: usize = 256;

/// A page, to be changed.
pub(super) struct PageMut<'a> {
    /// Held so that nobody reads a page meanwhile.
    arena: &'a mut Arena,
    at: NonNull<u8>,
}

impl<'a> PageMut<'a> {
    pub(super) fn open(arena: &'a mut Arena, number: u32) -> Result<Self, Damaged> {
        let at = address(arena, number)?;
        Ok(Self { arena, at })
    }

    #[inline(always)]
    pub(super) fn bytes(&self) -> &Bytes {
        // SAFETY: as in `page`; `&self` excludes writing through this value.
        unsafe { self.at.cast::<Bytes>().as_ref() }
    }

    /// Where a range that was checked to lie in the page begins.
    #[inline(always)]
    fn place(&self, at: usize, bytes: usize) -> NonNull<u8> {
        assert!(at <= PAGE_BYTES && bytes <= PAGE_BYTES - at);
        // SAFETY: `at` lies within the page, or is its end.
        unsafe { self.at.add(at) }
    }

    /// Tells that a range in use is about to change, or to leave use.
    #[inline(always)]
    pub(super) fn before(&mut self, range: Range<usize>) {
        let bytes = range.end.saturating_sub(range.start);
        let place = self.place(range.start, bytes);
        if bytes > 0 {
            before(self.arena, place, bytes);
        }
    }

    #[inline(always)]
    fn put(&mut self, place: NonNull<u8>, bytes: &[u8]) {
        // SAFETY: `place` checked that so many bytes lie in the page; `bytes` cannot be part of the
        // arena's pages that are reachable, as those are borrowed mutably.
        unsafe { place.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }

    /// Changes memory in use.
    #[inline(always)]
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        let place = self.place(at, bytes.len());
        before(self.arena, place, bytes.len());
        self.put(place, bytes);
    }

    /// Writes memory that holds nothing in use.
    #[inline(always)]
    pub(super) fn write_fresh(&mut self, at: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let place = self.place(at, bytes.len());
        self.put(place, bytes);
        fresh(self.arena, place, bytes.len());
    }

    /// Writes several parts, one behind the other, where nothing is in use.
    #[inline(always)]
    pub(super) fn write_fresh_parts(&mut self, at: usize, parts: [&[u8]; 3]) {
        let bytes = parts.iter().map(|part| part.len()).sum();
        let start = self.place(at, bytes);
        let mut to = at;
        for part in parts {
            let place = self.place(to, part.len());
            self.put(place, part);
            to += part.len();
        }
        if bytes > 0 {
            fresh(self.arena, start, bytes);
        }
    }

    /// Puts bytes before a range in use, whose end moves into free memory.
    #[inline(always)]
    pub(super) fn insert(&mut self, range: Range<usize>, bytes: &[u8]) {
        let (moved, by) = (range.len(), bytes.len());
        self.before(range.clone());
        let (from, to) = (
            self.place(range.start, moved),
            self.place(range.start + by, moved),
        );
        // SAFETY: both ranges lie in the page; they may overlap.
        unsafe { from.copy_to(to, moved) };
        self.put(from, bytes);
        let end = self.place(range.end, by);
        fresh(self.arena, end, by);
    }

    /// Takes the first `by` bytes out of a range in use, whose end leaves use.
    #[inline(always)]
    pub(super) fn remove(&mut self, range: Range<usize>, by: usize) {
        let moved = range.len() - by;
        self.before(range.clone());
        let (from, to) = (
            self.place(range.start + by, moved),
            self.place(range.start, moved),
        );
        // SAFETY: both ranges lie in the page; they may overlap.
        unsafe { from.copy_to(to, moved) };
    }
}

#[inline(always)]
fn before(arena: &mut Arena, at: NonNull<u8>, bytes: usize) {
    arena.before(at, bytes);
    #[cfg(test)]
    trace::before(at, bytes);
}

#[inline(always)]
fn fresh(arena: &mut Arena, at: NonNull<u8>, bytes: usize) {
    arena.fresh(at, bytes);
    #[cfg(test)]
    trace::fresh(at, bytes);
}
