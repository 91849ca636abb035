//! Freed slots, the last one first.
//!
//! A stack in pieces of 64 KiB, so that it grows without moving and its order is known: the rows of
//! coming inserts can be asked for in time.

#![expect(unsafe_code, reason = "the stack lies in arena memory")]

use std::ptr::NonNull;

use crate::arena::{Arena, Entry, Extent, ExtentKind, ExtentUse};
use crate::error::ArenaFull;

/// Slots in one piece.
const PIECE_SLOTS: usize = 16 << 10;
const PIECE_BYTES: usize = PIECE_SLOTS * size_of::<u32>();

pub(super) struct FreeSlots {
    /// The serial of the table.
    owner: u32,
    pieces: Vec<(Extent, NonNull<u32>)>,
    /// The piece in use; those before it are full, those behind it empty.
    current: usize,
    /// Its first entry; dangling while there is no piece.
    base: NonNull<u32>,
    /// Entries of it in use.
    used: usize,
    /// Entries that it has room for; 0 while there is no piece.
    room: usize,
}

impl FreeSlots {
    pub(super) fn new(owner: u32) -> Self {
        Self {
            owner,
            pieces: Vec::new(),
            current: 0,
            base: NonNull::dangling(),
            used: 0,
            room: 0,
        }
    }

    /// Whether no slot is free.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.used == 0 && self.current == 0
    }

    /// The stack that extents of an opened arena hold, of so many slots; none, if they cannot be one.
    pub(super) fn open(arena: &Arena, owner: u32, extents: &[Entry], slots: u64) -> Option<Self> {
        let mut free = Self::new(owner);
        for (at, Entry { extent, use_ }) in extents.iter().enumerate() {
            if use_.number as usize != at || extent.bytes < PIECE_BYTES as u64 {
                return None;
            }
            free.pieces.push((*extent, arena.address(*extent).cast()));
        }
        let slots = usize::try_from(slots).ok()?;
        if slots > free.pieces.len() * PIECE_SLOTS {
            return None;
        }
        if let Some(last) = slots.checked_sub(1) {
            free.current = last / PIECE_SLOTS;
            free.used = slots - free.current * PIECE_SLOTS;
        }
        if let Some(&(_, base)) = free.pieces.get(free.current) {
            free.base = base;
            free.room = PIECE_SLOTS;
        }
        Some(free)
    }

    /// Free slots.
    pub(super) fn len(&self) -> usize {
        self.current * PIECE_SLOTS + self.used
    }

    /// The memory in use.
    pub(super) fn extents(&self) -> impl Iterator<Item = Extent> {
        self.pieces.iter().map(|&(extent, _)| extent)
    }

    /// Adds a slot, unless the arena has no room for it.
    #[inline(always)]
    pub(super) fn push(&mut self, arena: &mut Arena, slot: u32) -> bool {
        if self.used == self.room && self.next_piece(arena).is_err() {
            return false;
        }
        // SAFETY: `used` is below the length of the piece at `base`.
        let entry = unsafe { self.base.add(self.used) };
        // What was taken out in this scope lies there, too.
        arena.before(entry.cast(), size_of::<u32>());
        // SAFETY: as above.
        unsafe { entry.write(slot) };
        self.used += 1;
        true
    }

    #[cold]
    #[inline(never)]
    fn next_piece(&mut self, arena: &mut Arena) -> Result<(), ArenaFull> {
        let next = if self.pieces.is_empty() {
            0
        } else {
            self.current + 1
        };
        if next == self.pieces.len() {
            let use_ = ExtentUse::new(self.owner, ExtentKind::FreeSlots, next as u32);
            let extent = arena.allocate(PIECE_BYTES, use_)?;
            self.pieces.push((extent, arena.address(extent).cast()));
        }
        self.current = next;
        self.base = self.pieces[next].1;
        self.used = 0;
        self.room = PIECE_SLOTS;
        Ok(())
    }

    /// Takes the slot that was freed last.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<u32> {
        if self.used == 0 {
            if self.current == 0 {
                return None;
            }
            self.piece_before();
        }
        self.used -= 1;
        // SAFETY: entries below `used` were written by `push`.
        Some(unsafe { self.base.add(self.used).read() })
    }

    #[cold]
    #[inline(never)]
    fn piece_before(&mut self) {
        self.current -= 1;
        self.base = self.pieces[self.current].1;
        self.used = PIECE_SLOTS;
    }

    /// Moves a piece down, if the extent is one and there is room; says whether it did.
    pub(super) fn sink(&mut self, arena: &mut Arena, extent: Extent) -> bool {
        let mut pieces = self.pieces.iter();
        let Some(piece) = pieces.position(|(piece, _)| *piece == extent) else {
            return false;
        };
        let Some(lower) = arena.sink(extent) else {
            return false;
        };
        self.pieces[piece] = (lower, arena.address(lower).cast());
        if piece == self.current {
            self.base = self.pieces[piece].1;
        }
        true
    }

    /// Gives back the pieces behind the one in use.
    pub(super) fn shrink(&mut self, arena: &mut Arena) {
        let kept = if self.is_empty() { 0 } else { self.current + 1 };
        for (extent, _) in self.pieces.split_off(kept.min(self.pieces.len())) {
            arena.release(extent);
        }
        if self.pieces.is_empty() {
            *self = Self::new(self.owner);
        }
    }

    /// All slots of the stack.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.len()).map(|at| {
            let (_, base) = self.pieces[at / PIECE_SLOTS];
            // SAFETY: entries below the length were written by `push`, or lie in a piece that was opened.
            unsafe { base.add(at % PIECE_SLOTS).read() }
        })
    }

    /// A slot that comes out after `distance` others, if it is near enough to tell.
    #[inline(always)]
    pub(super) fn peek(&self, distance: usize) -> Option<u32> {
        if self.used <= distance {
            return None;
        }
        // SAFETY: entries below `used` were written by `push`.
        Some(unsafe { self.base.add(self.used - 1 - distance).read() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::MapOptions;

    #[test]
    fn slots_come_out_in_the_opposite_order_over_several_pieces() {
        let mut arena = Arena::new(&MapOptions {
            bytes: 4 << 20,
            node: None,
            huge_pages: false,
        })
        .unwrap();
        let mut free = FreeSlots::new(1);
        for round in 0..3 {
            assert!(
                free.is_empty() && free.pop().is_none() && free.peek(0).is_none(),
                "round {round}"
            );
            for slot in 0..50_000 {
                assert!(free.push(&mut arena, slot));
                assert_eq!(free.peek(0), Some(slot));
            }
            for slot in (0..50_000).rev() {
                if let Some(ahead) = free.peek(7) {
                    assert_eq!(ahead, slot - 7);
                }
                assert_eq!(free.pop(), Some(slot));
            }
        }
        assert_eq!(free.extents().count(), 4);
    }
}
