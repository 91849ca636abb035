//! Slots: where the rows of a table lie.
//!
//! ```text
//! slot | header 8 | key 8 (keyed tables) | cells 8 x columns |
//!
//! header  63               23 22          1    0
//!         | version 41       | generation 22 | live |
//! ```
//! A slab is a power-of-two number of slots in one extent, so a slot's address is a shift, a mask
//! and one look into the array of slabs. Slots above `next` were never used. Freed slots wait on a
//! stack, whose order is known, so that the rows of coming inserts can be asked for in time; when
//! the arena has no room for the stack, they are linked through their own memory instead, so that a
//! delete never fails.
//!
//! The version counts the changes of the row at its place. The generation changes when the row is
//! deleted; a slot that has used up its generations is not given out again.

#![expect(unsafe_code, reason = "rows lie in arena memory")]

mod check;
mod tidy;

use std::ptr::NonNull;

use super::execute::RowPart;
use super::free::FreeSlots;
use super::stored::PartName;
use super::width::Width;
use crate::arena::{Arena, Entry, Extent, ExtentKind, ExtentUse, prefetch, prefetch_range};
use crate::error::Error;
use crate::id::{DirectId, ShardIndex};
use crate::limits::{GENERATION_MAX, PAGE_BYTES, SLAB_BYTES_MAX, SLOTS_MAX};

const LIVE: u64 = 1;
const GENERATION_SHIFT: u32 = 1;
const VERSION_SHIFT: u32 = 23;
const VERSION_ONE: u64 = 1 << VERSION_SHIFT;
/// Live bit and generation: what a direct id must match.
const IDENTITY_MASK: u64 = VERSION_ONE - 1;

const HEADER_BYTES: usize = 8;
const KEY_BYTES: usize = 8;

/// Rows of so many bytes are padded, by at most 6 % of their size.
const PADDED_BYTES_MIN: usize = 128;

/// How many inserts ahead a freed slot is asked for.
const REUSE_DISTANCE: usize = 16;

/// Marks the end of the linked list of freed slots.
const NO_SLOT: u32 = u32::MAX;

/// A slot and its address. Made only by [`Slots`], for a slot of its own; slabs never move, and are
/// released only with the whole table, after which no place is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    address: NonNull<u8>,
    slot: u32,
}

impl Place {
    pub(crate) fn slot(self) -> u32 {
        self.slot
    }

    fn header(self) -> NonNull<u64> {
        self.address.cast()
    }
}

/// What has to be known of the slots of an opened arena, beside their extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SavedSlots {
    pub(super) next: u64,
    pub(super) live: u64,
    pub(super) linked: u64,
    pub(super) free: u64,
}

pub(crate) struct Slots {
    /// The serial of the table, and its place in the catalog.
    owner: u32,
    number: u32,
    slabs: Vec<NonNull<u8>>,
    extents: Vec<Extent>,
    stride: usize,
    cells_offset: usize,
    slab_shift: u32,
    shard: u16,
    next: u32,
    live: u64,
    free: FreeSlots,
    /// The first of the freed slots that are linked through their own memory.
    linked: u32,
}

impl Slots {
    pub(super) fn new(name: PartName, shard: ShardIndex, columns: usize, keyed: bool) -> Self {
        let cells_offset = HEADER_BYTES + if keyed { KEY_BYTES } else { 0 };
        let stride = stride(cells_offset + columns * 8);
        Self {
            owner: name.serial,
            number: name.place,
            slabs: Vec::new(),
            extents: Vec::new(),
            stride,
            cells_offset,
            slab_shift: (SLAB_BYTES_MAX / stride).ilog2(),
            shard: shard as u16,
            next: 0,
            live: 0,
            free: FreeSlots::new(name.serial),
            linked: NO_SLOT,
        }
    }

    /// Takes what an opened arena holds for a new, empty value of the same shape.
    pub(super) fn open(
        mut self,
        arena: &Arena,
        saved: SavedSlots,
        slabs: &[Entry],
        free: &[Entry],
    ) -> Option<Self> {
        for (at, Entry { extent, use_ }) in slabs.iter().enumerate() {
            let bytes = (self.stride << self.slab_shift).next_multiple_of(PAGE_BYTES);
            if use_.number as usize != at || extent.bytes != bytes as u64 {
                return None;
            }
            self.slabs.push(arena.address(*extent));
            self.extents.push(*extent);
        }
        self.next = u32::try_from(saved.next).ok()?;
        self.linked = u32::try_from(saved.linked).ok()?;
        self.live = saved.live;
        self.free = FreeSlots::open(arena, self.owner, free, saved.free)?;
        let is_sound = saved.next <= (self.slabs.len() as u64) << self.slab_shift
            && self.live <= saved.next
            && (self.linked < self.next || self.linked == NO_SLOT);
        is_sound.then_some(self)
    }

    /// What is kept of the slots in the head of their part.
    pub(super) fn saved(&self) -> SavedSlots {
        SavedSlots {
            next: u64::from(self.next),
            live: self.live,
            linked: u64::from(self.linked),
            free: self.free.len() as u64,
        }
    }

    /// Gives all memory back, of a part that no catalog names any more: it need not go at once.
    pub(super) fn release(self, arena: &mut Arena) {
        for extent in self.free.extents().chain(self.extents.iter().copied()) {
            arena.release_in_turn(extent);
        }
    }

    /// A slab has `1 << slab_shift` slots.
    pub(super) fn slab_shift(&self) -> u32 {
        self.slab_shift
    }

    pub(super) fn shard(&self) -> ShardIndex {
        usize::from(self.shard)
    }

    /// The serial of the table.
    pub(super) fn owner(&self) -> u32 {
        self.owner
    }

    /// Bytes of a row, and from one to the next.
    #[inline(always)]
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// Rows.
    pub(super) fn live(&self) -> u64 {
        self.live
    }

    /// Slots ever used; scans end here.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Bytes of slabs and free stack.
    pub(super) fn bytes(&self) -> u64 {
        self.extents
            .iter()
            .copied()
            .chain(self.free.extents())
            .map(|extent| extent.bytes)
            .sum()
    }

    /// Whether a number names a slot that was used before.
    #[inline(always)]
    pub(super) fn has_slot(&self, slot: u32) -> bool {
        slot < self.next
    }

    fn is_keyed(&self) -> bool {
        self.cells_offset > HEADER_BYTES
    }

    /// The place of a slot that was used before.
    #[inline(always)]
    pub(super) fn place(&self, slot: u32) -> Place {
        debug_assert!(slot < self.next);
        let slab = slot as usize >> self.slab_shift;
        let within = slot as usize & ((1 << self.slab_shift) - 1);
        // SAFETY: a used slot's slab is in the array, and the slab has room for `1 << slab_shift` strides.
        unsafe {
            let address = self.slabs.get_unchecked(slab).add(within * self.stride);
            Place { address, slot }
        }
    }

    /// Starts reading a slot's memory; any number is harmless.
    #[inline(always)]
    pub(super) fn ask<W: Width>(&self, width: W, part: RowPart, slot: u32) -> Option<Place> {
        if slot >= self.next {
            return None;
        }
        let place = self.place(slot);
        match part {
            RowPart::Head => prefetch_range(place.address.as_ptr(), self.cells_offset),
            RowPart::Whole => {
                prefetch_range(
                    place.address.as_ptr(),
                    self.cells_offset + width.cells() * 8,
                );
            }
        }
        Some(place)
    }

    /// Starts reading the line with a slot's header and key.
    #[inline(always)]
    pub(super) fn prefetch_head(&self, slot: u32) {
        if slot < self.next {
            prefetch(self.place(slot).address.as_ptr());
        }
    }

    /// The row that a direct id names, if it still lives.
    #[inline(always)]
    pub(super) fn find(&self, id: DirectId) -> Option<Place> {
        // One comparison for both: whether the row is in this shard, and in a slot that was used.
        let slot = id.slot_in(usize::from(self.shard));
        if slot >= u64::from(self.next) {
            return None;
        }
        let place = self.place(slot as u32);
        let identity = u64::from(id.generation()) << GENERATION_SHIFT | LIVE;
        (self.header(place) & IDENTITY_MASK == identity).then_some(place)
    }

    /// The slot that an id names, if it was ever used.
    pub(super) fn slot_of(&self, id: DirectId) -> Option<u32> {
        let slot = id.slot_in(usize::from(self.shard));
        (slot < u64::from(self.next)).then_some(slot as u32)
    }

    /// The place that an id names, if it is reserved for a row that is not there yet.
    pub(super) fn find_reserved(&self, id: DirectId) -> Option<Place> {
        let place = self.place(self.slot_of(id)?);
        let identity = u64::from(id.generation()) << GENERATION_SHIFT;
        (self.header(place) & IDENTITY_MASK == identity).then_some(place)
    }

    /// The row in a slot that was used before, if one lives there.
    #[inline(always)]
    pub(super) fn find_slot(&self, slot: u32) -> Option<Place> {
        let place = self.place(slot);
        self.is_live(place).then_some(place)
    }

    /// Whether a row lives in a slot.
    #[inline(always)]
    pub(super) fn is_live(&self, place: Place) -> bool {
        self.header(place) & LIVE != 0
    }

    /// The direct id of a living row.
    #[inline(always)]
    pub(super) fn id(&self, place: Place) -> DirectId {
        let generation = (self.header(place) >> GENERATION_SHIFT) as u32 & GENERATION_MAX;
        DirectId::new(usize::from(self.shard), place.slot, generation)
    }

    #[inline(always)]
    pub(super) fn header(&self, place: Place) -> u64 {
        // SAFETY: a place is the aligned address of a slot of ours (see `Place`).
        unsafe { place.header().read() }
    }

    /// Writes the header of a slot whose change was told.
    #[inline(always)]
    fn set_header(&mut self, place: Place, header: u64) {
        // SAFETY: as above; `&mut self` excludes other references.
        unsafe { place.header().write(header) };
    }

    /// Tells that a slot's header is about to change, and with it the part's head.
    #[inline(always)]
    fn before_header(&mut self, arena: &mut Arena, place: Place) {
        arena.before(place.address, HEADER_BYTES);
        arena.touch(self.number);
    }

    /// Tells that a whole slot is about to change.
    #[inline(always)]
    pub(super) fn before_row(&mut self, arena: &mut Arena, place: Place) {
        arena.before(place.address, self.stride);
    }

    /// The word behind a slot's header: the key, the first cell, or, of a linked slot, the next one.
    fn second_word(&self, place: Place) -> u64 {
        // SAFETY: a slot has at least eight bytes behind its header (see `Place`).
        unsafe { place.header().add(1).read() }
    }

    /// The key of a slot of a keyed table.
    #[inline(always)]
    pub(super) fn key(&self, place: Place) -> u64 {
        debug_assert!(self.is_keyed());
        // SAFETY: slots of keyed tables have a key behind the header.
        unsafe { place.header().add(1).read() }
    }

    #[inline(always)]
    pub(super) fn cells<W: Width>(&self, width: W, place: Place) -> &[u64] {
        debug_assert_eq!(stride(self.cells_offset + width.cells() * 8), self.stride);
        // SAFETY: the slot has the table's cells behind header and key; slab memory is initialised
        // (zeros from the kernel, or earlier content), and `&self` excludes writers.
        unsafe {
            let cells = place.address.add(self.cells_offset).cast::<u64>();
            std::slice::from_raw_parts(cells.as_ptr(), width.cells())
        }
    }

    #[inline(always)]
    pub(super) fn cells_mut<W: Width>(&mut self, width: W, place: Place) -> &mut [u64] {
        debug_assert_eq!(stride(self.cells_offset + width.cells() * 8), self.stride);
        // SAFETY: as in `cells`; `&mut self` excludes every other reference.
        unsafe {
            let cells = place.address.add(self.cells_offset).cast::<u64>();
            std::slice::from_raw_parts_mut(cells.as_ptr(), width.cells())
        }
    }

    /// Puts another value into a cell, which means the same: no change of the row is counted.
    pub(super) fn set_cell(&mut self, arena: &mut Arena, place: Place, cell: usize, value: u64) {
        let at = self.cells_offset + cell * size_of::<u64>();
        assert!(at < self.stride, "a cell lies in its row");
        // SAFETY: the cell lies in the slot (see `Place`).
        let address = unsafe { place.address.add(at) };
        arena.before(address, size_of::<u64>());
        // SAFETY: as above; `&mut self` excludes readers.
        unsafe { address.cast::<u64>().write(value) };
    }

    /// Counts a change of a living row, which was told.
    #[inline(always)]
    pub(super) fn touch(&mut self, place: Place) {
        let header = self.header(place);
        self.set_header(place, header.wrapping_add(VERSION_ONE));
    }

    /// Takes a slot for a new row. The row is not there before [`Slots::enliven`].
    #[inline(always)]
    pub(super) fn reserve(&mut self, arena: &mut Arena) -> Result<Place, Error> {
        arena.touch(self.number);
        if let Some(slot) = self.free.pop() {
            if let Some(ahead) = self
                .free
                .peek(REUSE_DISTANCE)
                .filter(|&slot| slot < self.next)
            {
                prefetch_range(self.place(ahead).address.as_ptr(), self.stride);
            }
            let place = self.dead_place(slot)?;
            // A row may have lived there when the scope began.
            self.before_row(arena, place);
            return Ok(place);
        }
        self.reserve_fresh(arena)
    }

    /// The place of a slot that a list names as free; a damaged file may have any number there.
    #[inline(always)]
    fn dead_place(&self, slot: u32) -> Result<Place, Error> {
        if slot < self.next && self.find_slot(slot).is_none() {
            Ok(self.place(slot))
        } else {
            Err(self.damaged())
        }
    }

    #[cold]
    fn damaged(&self) -> Error {
        Error::Damaged {
            shard: usize::from(self.shard),
        }
    }

    #[inline]
    fn reserve_fresh(&mut self, arena: &mut Arena) -> Result<Place, Error> {
        if self.linked != NO_SLOT {
            let place = self.dead_place(self.linked)?;
            let next = self.second_word(place) as u32;
            if next >= self.next && next != NO_SLOT {
                return Err(self.damaged());
            }
            self.linked = next;
            self.before_row(arena, place);
            return Ok(place);
        }
        if self.next as usize >= self.slabs.len() << self.slab_shift {
            self.add_slab(arena)?;
        }
        self.next += 1;
        let place = self.place(self.next - 1);
        arena.fresh(place.address, self.stride);
        // The first generation is 1, so that no direct id is 0.
        self.set_header(place, 1 << GENERATION_SHIFT);
        Ok(place)
    }

    /// Fresh slots that lie in a row where the next insert goes: at most `wanted`.
    #[inline(always)]
    pub(super) fn fresh_run(&self, wanted: usize) -> usize {
        if !self.free.is_empty() || self.linked != NO_SLOT {
            return 0;
        }
        wanted
            .min((self.slabs.len() << self.slab_shift) - self.next as usize)
            .min((1 << self.slab_shift) - (self.next as usize & ((1 << self.slab_shift) - 1)))
    }

    /// Makes rows of a [`Slots::fresh_run`], for tables without keys. If `fill` unwinds, the rows
    /// before it are there.
    #[inline(always)]
    pub(super) fn fill_run<W: Width>(
        &mut self,
        arena: &mut Arena,
        width: W,
        run: usize,
        fill: impl Fn(usize, &mut [u64]),
        mut made: impl FnMut(usize, DirectId),
    ) {
        debug_assert!(!self.is_keyed() && run <= self.fresh_run(run));
        let first = self.next;
        self.next += run as u32;
        self.live += run as u64;
        let mut place = self.place(first);
        arena.touch(self.number);
        arena.fresh(place.address, run * self.stride);
        let mut rest = Rest {
            slots: self,
            rows: run as u32,
        };
        for k in 0..run {
            let slots = &mut *rest.slots;
            slots.set_header(place, VERSION_ONE | 1 << GENERATION_SHIFT | LIVE);
            fill(k, slots.cells_mut(width, place));
            rest.rows -= 1;
            made(
                k,
                DirectId::new(usize::from(rest.slots.shard), place.slot, 1),
            );
            // SAFETY: the run lies in one slab; behind its last slot is at most the slab's end.
            place.address = unsafe { place.address.add(stride(HEADER_BYTES + width.cells() * 8)) };
            place.slot = place.slot.wrapping_add(1);
        }
    }

    #[cold]
    fn add_slab(&mut self, arena: &mut Arena) -> Result<(), Error> {
        let slots = 1_u64 << self.slab_shift;
        if (self.slabs.len() as u64 + 1) * slots > SLOTS_MAX {
            return Err(Error::SlotsFull {
                shard: usize::from(self.shard),
            });
        }
        let use_ = ExtentUse::new(self.owner, ExtentKind::Slab, self.slabs.len() as u32);
        let extent = arena.allocate(self.stride << self.slab_shift, use_)?;
        self.slabs.push(arena.address(extent));
        self.extents.push(extent);
        Ok(())
    }

    /// Names the row that a slot just reserved, of a keyed table, is for.
    pub(super) fn set_key(&mut self, place: Place, key: u64) {
        debug_assert!(self.is_keyed());
        // SAFETY: slots of keyed tables have a key behind the header.
        unsafe { place.header().add(1).write(key) };
    }

    /// Makes a slot that was reserved in an earlier scope a row.
    pub(super) fn confirm(&mut self, arena: &mut Arena, place: Place) {
        self.before_header(arena, place);
        self.enliven(place, None);
    }

    /// Makes a slot that was just reserved a row: version and live bit. Key and cells are the caller's
    /// to write.
    #[inline(always)]
    pub(super) fn enliven(&mut self, place: Place, key: Option<u64>) {
        let header = self.header(place);
        self.set_header(place, header.wrapping_add(VERSION_ONE) | LIVE);
        if let Some(key) = key {
            self.set_key(place, key);
        }
        self.live = self.live.wrapping_add(1);
    }

    /// Ends a row's life; its slot is not given out before [`Slots::give_back`].
    #[inline(always)]
    pub(super) fn kill(&mut self, arena: &mut Arena, place: Place) {
        self.before_header(arena, place);
        let header = self.header(place);
        // The carry of the last generation would go into the version; it is never reached.
        self.set_header(
            place,
            header.wrapping_add((1 << GENERATION_SHIFT) + VERSION_ONE) & !LIVE,
        );
        // The count of a damaged file may be any.
        self.live = self.live.wrapping_sub(1);
    }

    /// Undoes a [`Slots::kill`] whose slot was not given back.
    pub(super) fn revive(&mut self, arena: &mut Arena, place: Place, header: u64) {
        self.before_header(arena, place);
        self.set_header(place, header);
        self.live = self.live.wrapping_add(1);
    }

    /// Puts back a header as it was before a change that is undone, and was told.
    pub(super) fn restore(&mut self, place: Place, header: u64) {
        self.set_header(place, header);
    }

    /// Takes back a reservation whose id may be known: it will find nothing, as if the row had lived.
    pub(super) fn cancel(&mut self, arena: &mut Arena, place: Place) {
        self.before_header(arena, place);
        let header = self.header(place);
        let next = header.wrapping_add((1 << GENERATION_SHIFT) + VERSION_ONE);
        self.set_header(place, next);
        self.give_back(arena, place);
    }

    /// Lets a later insert have the slot of a row that was killed, unless its generations are spent.
    #[inline(always)]
    pub(super) fn give_back(&mut self, arena: &mut Arena, place: Place) {
        arena.touch(self.number);
        let generation = self.header(place) & IDENTITY_MASK & !LIVE;
        if generation < u64::from(GENERATION_MAX) << GENERATION_SHIFT
            && !self.free.push(arena, place.slot)
        {
            self.link(arena, place);
        }
    }

    /// The slots that wait to be used again.
    #[cfg(test)]
    pub(super) fn free_slots(&self) -> Vec<u32> {
        let mut slots: Vec<u32> = self.free.iter().collect();
        let mut linked = self.linked;
        while linked != NO_SLOT && slots.len() <= self.next as usize {
            slots.push(linked);
            let place = self.place(linked);
            // SAFETY: a linked slot's first bytes behind the header hold the next one.
            linked = unsafe { place.header().add(1).read() } as u32;
        }
        slots
    }

    #[cold]
    #[inline(never)]
    fn link(&mut self, arena: &mut Arena, place: Place) {
        arena.before(place.address, HEADER_BYTES + size_of::<u64>());
        // SAFETY: a dead slot's memory behind the header is nobody's, and has at least eight bytes.
        unsafe { place.header().add(1).write(u64::from(self.linked)) };
        self.linked = place.slot;
    }
}

/// The distance from row to row. Wide rows are padded to a multiple of 16 bytes, so that fewer of
/// them reach into one more cache line than they must; narrow ones would lose more by growing.
/// The slot that a byte of a slab belongs to, in a table of such rows.
pub(crate) fn slot_at(columns: usize, keyed: bool, slab: u32, byte: u64) -> u64 {
    let key_bytes = if keyed { KEY_BYTES } else { 0 };
    let stride = stride(HEADER_BYTES + key_bytes + columns * 8);
    let slab_shift = (SLAB_BYTES_MAX / stride).ilog2();
    (u64::from(slab) << slab_shift) + byte / stride as u64
}

fn stride(bytes: usize) -> usize {
    if bytes >= PADDED_BYTES_MIN {
        bytes.next_multiple_of(16)
    } else {
        bytes
    }
}

/// The rows of a run that are not made yet. If the run unwinds, they never were.
struct Rest<'a> {
    slots: &'a mut Slots,
    rows: u32,
}

impl Drop for Rest<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.slots.next -= self.rows;
        self.slots.live -= u64::from(self.rows);
    }
}
