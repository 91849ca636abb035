//! A shard's memory: one contiguous reservation on the shard's own NUMA node, cut into extents.
//!
//! # Shape
//! The arena reserves its whole bound as address space when it is made; memory is used only where it
//! is touched. It never moves, so an offset names the same byte for as long as the arena lives, and
//! everything in it (slabs, index segments, free lists) refers by offset or by the address derived
//! from one.
//!
//! ```text
//! offset 0           top                         bound
//! | extents, in use and free  | never used        |
//! ```
//!
//! # Extents
//! Multiples of a page. A freed extent joins its free neighbours; the smallest free extent that fits
//! is given out first, else the arena grows at its top. The bound is a promise kept with an error,
//! [`ArenaFull`], before anything was changed.
//!
//! # Placement
//! The reservation asks for huge pages and is bound to its node with the *preferred* policy: on a
//! full node memory comes from the next one, where a strict policy would have the process killed.
//! What was obtained is read back page by page, never assumed ([`Arena::placement`]).
//!
//! # Files
//! An arena may live in a [`file`](mod@file), or have a [`journal`](mod@redo). Then every change is told before it
//! happens ([`Arena::before`]), so that a crash leaves either all or nothing of a [scope](trace), and every
//! extent is entered in a [`ledger`], from which the arena is opened again, at whatever address.

#[cfg(test)]
pub(crate) mod crash;
mod extents;
mod file;
mod head;
mod heap;
mod journaled;
mod ledger;
mod map;
pub(crate) mod mutant;
mod pages;
mod prefetch;
mod redo;
mod survey;
mod trace;
mod undo;
mod view;

use std::io;
use std::ptr::NonNull;

use crate::error::{ArenaFull, Error};
use crate::limits::{PAGE_BYTES, SCOPE_BYTES_MIN};
pub(crate) use extents::Extent;
use extents::Extents;
pub(crate) use file::{ArenaFile, FileError, is_in_memory, sync_directory};
pub(crate) use head::{FORMAT, HEAD_BYTES, Identity};
pub(crate) use heap::Heap;
pub(crate) use journaled::{JournaledArena, LoadError};
use ledger::Ledger;
pub(crate) use ledger::{Entry, ExtentKind, ExtentUse};
use map::Map;
#[cfg(test)]
pub(crate) use map::unmap_files;
pub(crate) use map::{Access, Binding, MapError, MapOptions, Pages, current_pu};
use mutant::Mutant;
pub(crate) use prefetch::{prefetch, prefetch_range};
pub(crate) use redo::{Bar, Redo, RedoStart};
pub(crate) use survey::Surveyed;
use trace::Trace;
pub(crate) use view::View;

/// Before-images of one operation's index entries, free list and heads, but for growth.
const INDEX_BYTES: usize = 256;

/// A shard's data memory.
pub(crate) struct Arena {
    map: Map,
    extents: Extents,
    /// Memory below this was made present beforehand.
    prefaulted: u64,
    /// Of an arena in a file: what is told of every change.
    log: Option<Box<Log>>,
}

/// What keeps a file whole.
struct Log {
    /// The file is only read.
    is_copy: bool,
    trace: Trace,
    ledger: Ledger,
    /// Bytes that undoing the scope's operations by others may need before-images of.
    debt: usize,
    /// Extents given back in the scope at hand. Its undoing would name them again, so they are not
    /// given out before it ends.
    released: Vec<Extent>,
    /// Owners whose heads have to be saved at the end of the scope.
    touched: Vec<u32>,
    #[cfg(test)]
    shard: u32,
}

impl Log {
    fn new(is_copy: bool, trace: Trace, ledger: Ledger, identity: Identity) -> Self {
        let _ = identity;
        Self {
            is_copy,
            trace,
            ledger,
            debt: 0,
            released: Vec::new(),
            touched: Vec::new(),
            #[cfg(test)]
            shard: identity.shard,
        }
    }

    fn check_writable(&self) -> Result<(), Error> {
        let bar = match &self.trace {
            Trace::Undo(_) => None,
            Trace::Redo(redo) => redo.bar(),
        };
        match bar {
            _ if self.is_copy => Err(Error::DatabaseReadOnly),
            None => Ok(()),
            Some(Bar::NoSpace) => Err(Error::JournalFull),
            Some(Bar::Broken) => Err(Error::JournalBroken),
        }
    }
}

impl Arena {
    /// Reserves `options.bytes` of address space, bound to `options.node`.
    pub(crate) fn new(options: &MapOptions) -> Result<Self, MapError> {
        let map = Map::new(options)?;
        let bound = map.bytes() as u64;
        Ok(Self {
            map,
            extents: Extents::new(0, bound),
            prefaulted: 0,
            log: None,
        })
    }

    /// An extent of at least `bytes`; its content is whatever was there.
    pub(crate) fn allocate(&mut self, bytes: usize, use_: ExtentUse) -> Result<Extent, ArenaFull> {
        if self.log.is_some() {
            self.make_room_in_ledger()?;
        }
        let extent = self.take(bytes)?;
        if let Some(log) = &mut self.log {
            log.ledger.add(&self.map, &mut log.trace, extent, use_);
        }
        Ok(extent)
    }

    /// As [`allocate`](Self::allocate), at the lowest place below an offset that has room, if one has.
    pub(crate) fn allocate_below(
        &mut self,
        bytes: usize,
        use_: ExtentUse,
        below: u64,
    ) -> Option<Extent> {
        if self.log.is_some() {
            self.make_room_in_ledger().ok()?;
        }
        let rounded = bytes.next_multiple_of(PAGE_BYTES) as u64;
        let extent = self.extents.allocate_below(rounded, below)?;
        let extent = self.taken(extent).ok()?;
        if let Some(log) = &mut self.log {
            log.ledger.add(&self.map, &mut log.trace, extent, use_);
        }
        Some(extent)
    }

    /// Space for an extent, in memory that is there.
    fn take(&mut self, bytes: usize) -> Result<Extent, ArenaFull> {
        let rounded = bytes.next_multiple_of(PAGE_BYTES) as u64;
        let extent = self
            .extents
            .allocate(rounded)
            .ok_or_else(|| self.full(rounded, None))?;
        self.taken(extent)
    }

    /// Sees to the memory of an extent that was just given out.
    fn taken(&mut self, extent: Extent) -> Result<Extent, ArenaFull> {
        if let Err(error) = self.map.ensure(extent.offset, extent.bytes) {
            self.extents.release(extent);
            return Err(self.full(extent.bytes, error.raw_os_error()));
        }
        if let Some(log) = &mut self.log {
            log.trace.taken(extent);
        }
        Ok(extent)
    }

    /// Why there is no room.
    #[cold]
    fn full(&self, asked_bytes: u64, errno: Option<i32>) -> ArenaFull {
        ArenaFull {
            asked_bytes,
            used_bytes: self.extents.used(),
            bound_bytes: self.extents.bound(),
            is_disk: errno.is_some(),
        }
    }

    #[cold]
    fn make_room_in_ledger(&mut self) -> Result<(), ArenaFull> {
        let Some(piece) = self.log.as_ref().and_then(|log| log.ledger.wants_piece()) else {
            return Ok(());
        };
        let extent = self.take(ledger::piece_bytes(piece))?;
        let is_added = self
            .log
            .as_mut()
            .is_some_and(|log| log.ledger.add_piece(&self.map, &mut log.trace, extent));
        if is_added {
            return Ok(());
        }
        self.extents.release(extent);
        Err(self.full(extent.bytes, None))
    }

    /// Gives an extent back.
    pub(crate) fn release(&mut self, extent: Extent) {
        match &mut self.log {
            None => self.extents.release(extent),
            Some(log) => {
                log.ledger.remove(&self.map, &mut log.trace, extent);
                if mutant::is(Mutant::ReusedTooSoon) {
                    self.extents.release(extent);
                } else {
                    log.released.push(extent);
                }
            }
        }
    }

    /// Copies what is in an extent to the lowest place below that has room; the old extent is released.
    /// Its owner has to be told, in the same scope.
    pub(crate) fn sink(&mut self, extent: Extent) -> Option<Extent> {
        let Extent { offset, bytes } = extent;
        let lower = self.extents.allocate_below(bytes, offset)?;
        if self.map.ensure(lower.offset, bytes).is_err() {
            self.extents.release(lower);
            return None;
        }
        self.fresh(self.address(lower), bytes as usize);
        self.map.copy(offset, lower.offset, bytes as usize);
        match &mut self.log {
            None => self.extents.release(extent),
            Some(log) => {
                log.ledger.rename(&self.map, &mut log.trace, extent, lower);
                log.released.push(extent);
            }
        }
        Some(lower)
    }

    /// Whether an extent of so many bytes would make the arena no longer.
    pub(crate) fn has_free(&self, bytes: usize) -> bool {
        let rounded = bytes.next_multiple_of(PAGE_BYTES) as u64;
        self.extents.has_free(rounded)
    }

    /// As [`release`](Self::release), of one of many extents that need not go at once: the scope may
    /// end between two.
    pub(crate) fn release_in_turn(&mut self, extent: Extent) {
        if self.is_scope_long() {
            self.end_scope();
        }
        self.release(extent);
    }

    /// Whether the file is only read: changes are lost with the process.
    pub(crate) fn is_copy(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.is_copy)
    }

    /// Whether anything may be changed, and if not, why.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        match &self.log {
            Some(log) => log.check_writable(),
            None => Ok(()),
        }
    }

    /// What keeps the changes for the journal, if there is one.
    #[inline]
    pub(crate) fn redo(&mut self) -> Option<&mut Redo> {
        match self.log.as_deref_mut() {
            Some(Log {
                trace: Trace::Redo(redo),
                ..
            }) => Some(redo),
            _ => None,
        }
    }

    /// Whether so much waits for the journal that nothing should be added before it has caught up.
    #[inline]
    pub(crate) fn is_held_up(&self) -> bool {
        match self.log.as_deref() {
            Some(Log {
                trace: Trace::Redo(redo),
                ..
            }) => redo.is_held_up(),
            _ => false,
        }
    }

    /// Whether changes are told, because they are to outlive the process.
    #[inline(always)]
    pub(crate) fn is_logged(&self) -> bool {
        self.log.is_some()
    }

    /// Tells that memory in use is about to change.
    #[inline(always)]
    pub(crate) fn before(&mut self, at: NonNull<u8>, bytes: usize) {
        if let Some(log) = &mut self.log {
            log.trace.before(self.map.offset(at), bytes);
        }
    }

    /// Tells of memory that held nothing in use, and is written now.
    #[inline(always)]
    pub(crate) fn fresh(&mut self, at: NonNull<u8>, bytes: usize) {
        if let Some(log) = &mut self.log {
            log.trace.fresh(self.map.offset(at), bytes);
        }
    }

    /// Whether the scope at hand should end as soon as it may.
    #[inline(always)]
    pub(crate) fn is_scope_long(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.trace.is_long())
    }

    /// Makes sure that an operation which changes `bytes` of memory in use, beside what every
    /// operation does to indexes and heads, can be told whole.
    #[inline(always)]
    pub(crate) fn prepare(&mut self, bytes: usize) -> Result<(), ArenaFull> {
        match &self.log {
            None => Ok(()),
            Some(log) => match log.trace.wants_piece(bytes + SCOPE_BYTES_MIN) {
                None => Ok(()),
                Some(piece) => self.add_undo_piece(piece),
            },
        }
    }

    /// As [`prepare`](Self::prepare), of an operation that may be undone by others of its kind before
    /// the scope ends.
    #[inline]
    pub(crate) fn prepare_undoable(&mut self, bytes: usize) -> Result<(), ArenaFull> {
        let Some(log) = &mut self.log else {
            return Ok(());
        };
        let debt = log.debt + bytes + INDEX_BYTES;
        self.prepare(debt)?;
        if let Some(log) = &mut self.log {
            log.debt = debt;
        }
        Ok(())
    }

    /// As [`prepare`](Self::prepare), beside what undoing the scope's operations may change.
    #[inline]
    pub(crate) fn prepare_beside(&mut self, bytes: usize) -> Result<(), ArenaFull> {
        match &self.log {
            None => Ok(()),
            Some(log) => {
                let bytes = log.debt + bytes;
                self.prepare(bytes)
            }
        }
    }

    #[cold]
    fn add_undo_piece(&mut self, bytes: usize) -> Result<(), ArenaFull> {
        let extent = self.take(bytes)?;
        let log = self.log.as_mut();
        if log.is_some_and(|log| log.trace.add_piece(extent)) {
            return Ok(());
        }
        self.extents.release(extent);
        Err(self.full(extent.bytes, None))
    }

    /// Notes that an owner's head has to be saved before the scope ends.
    #[inline(always)]
    pub(crate) fn touch(&mut self, owner: u32) {
        if let Some(log) = &mut self.log
            && log.touched.last() != Some(&owner)
        {
            log.touched.push(owner);
        }
    }

    /// The owners whose heads are to be saved now.
    pub(crate) fn touched(&mut self) -> Vec<u32> {
        let Some(log) = &mut self.log else {
            return Vec::new();
        };
        let mut touched = std::mem::take(&mut log.touched);
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    /// Ends the scope: what was changed since the last end stays, whatever happens to the process.
    #[inline]
    pub(crate) fn end_scope(&mut self) {
        let Some(log) = &mut self.log else { return };
        log.touched.clear();
        log.debt = 0;
        let pieces = log.trace.end();
        #[cfg(test)]
        {
            crash::tell(crash::Moment::Ended(log.shard));
            crash::tell(crash::Moment::Between);
        }
        if !log.released.is_empty() || pieces.is_some() {
            let released = log.released.drain(..);
            for extent in released.chain(pieces.into_iter().flatten()) {
                self.extents.release(extent);
            }
        }
    }

    /// Returns the memory of all free extents to the system; their address space stays.
    pub(crate) fn purge(&mut self) {
        if self.redo().is_some_and(|redo| redo.is_frozen()) {
            // What a checkpoint has still to take may have been in use when it was frozen.
            return;
        }
        for extent in self.extents.free() {
            self.map
                .discard(extent.offset as usize, extent.bytes as usize);
        }
    }

    /// Returns file space: of free extents, and behind the last one.
    pub(crate) fn shrink(&mut self) -> Result<(), io::Error> {
        self.purge();
        self.map.shorten(self.extents.top())
    }

    /// Waits until all is on the disk, of an arena that lives in a file.
    pub(crate) fn sync(&self) -> Result<(), io::Error> {
        self.map.sync(self.extents.top())
    }

    /// The address of an extent, valid while the arena lives and the extent is not released.
    pub(crate) fn address(&self, extent: Extent) -> NonNull<u8> {
        self.map.address(extent.offset as usize)
    }

    /// The address of an offset, valid as that of the extent that it lies in.
    #[inline(always)]
    pub(crate) fn at(&self, offset: u64) -> NonNull<u8> {
        self.map.address(offset as usize)
    }

    /// A look at the arena's memory, for whoever reads beside its owner.
    #[inline]
    pub(crate) fn view(&self) -> View {
        View::new(self.map.address(0), self.extents.top())
    }

    /// Whether a range lies in memory that extents may have; a damaged file may name any.
    #[inline]
    pub(crate) fn has(&self, offset: u64, bytes: usize) -> bool {
        offset
            .checked_add(bytes as u64)
            .is_some_and(|end| end <= self.extents.top())
    }

    /// Makes memory present for the next `bytes` above the top, so that growing into them meets no
    /// page fault.
    pub(crate) fn prefault(&mut self, bytes: u64) {
        let top = self.extents.top();
        let end = self.extents.bound().min(top.saturating_add(bytes));
        // A file that cannot grow so far is prefaulted as far as it reaches.
        let _ = self.map.ensure(top, end - top);
        self.map.populate(top as usize, (end - top) as usize);
        self.prefaulted = self.prefaulted.max(end);
    }

    /// Bytes in use by extents.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.extents.used()
    }

    /// Bytes of the file below, if there is one.
    pub(crate) fn file_bytes(&self) -> Option<u64> {
        self.is_logged().then(|| self.map.file_bytes())
    }

    /// Bytes that extents had, and that are free.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.extents.free_bytes()
    }

    /// The bound.
    pub(crate) fn bound_bytes(&self) -> u64 {
        self.extents.bound()
    }

    /// Owners of extents in use, one for each extent.
    #[cfg(test)]
    pub(crate) fn owners(&self) -> Vec<u32> {
        let ledger = self.log.as_ref().map(|log| &log.ledger);
        ledger.map_or_else(Vec::new, Ledger::owners)
    }

    /// What the system answered when the arena was bound.
    pub(crate) fn binding(&self) -> &Binding {
        self.map.binding()
    }

    /// Where the arena's pages are, read back from the system.
    pub(crate) fn placement(&self) -> Pages {
        self.map
            .pages(self.extents.top().max(self.prefaulted) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: ExtentUse = ExtentUse {
        owner: 1,
        kind: ExtentKind::Slab,
        number: 0,
        detail: 0,
    };

    fn arena(bytes: u64) -> Arena {
        Arena::new(&MapOptions {
            bytes,
            node: None,
            huge_pages: true,
        })
        .unwrap()
    }

    #[test]
    fn full_arena_names_its_bound_and_serves_again_after_a_release() {
        let mut arena = arena(4 << 20);
        let first = arena.allocate(3 << 20, ROWS).unwrap();
        let full = arena.allocate(2 << 20, ROWS).unwrap_err();
        assert_eq!(
            (full.bound_bytes, full.used_bytes, full.asked_bytes),
            (4 << 20, 3 << 20, 2 << 20)
        );
        arena.release(first);
        arena.allocate(4 << 20, ROWS).unwrap();
    }

    #[test]
    fn purge_returns_memory_and_leaves_zeros() {
        let mut arena = arena(8 << 20);
        let extent = arena.allocate(4 << 20, ROWS).unwrap();
        arena.prefault(1 << 20);
        map::fill(arena.address(extent), extent.bytes as usize, 7);
        arena.release(extent);
        arena.purge();
        let extent = arena.allocate(4 << 20, ROWS).unwrap();
        assert!(map::all(arena.address(extent), extent.bytes as usize, 0));
    }

    #[test]
    fn placement_counts_the_touched_pages() {
        let mut arena = arena(8 << 20);
        let extent = arena.allocate(2 << 20, ROWS).unwrap();
        map::fill(arena.address(extent), extent.bytes as usize, 1);
        let pages = arena.placement();
        if pages.error.is_none() {
            assert!(pages.by_node.values().sum::<u64>() > 0, "{pages:?}");
        }
    }
}
