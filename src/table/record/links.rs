//! Records with the same value, as a list: for each slot, the next one and the one before.
//!
//! An index by equal values names the first record of each value; the others hang on it. So a value
//! that a million records have costs the index one entry, and adding or removing one of them touches
//! its neighbours only.

#![expect(unsafe_code, reason = "links lie in arena memory")]

use std::ptr::NonNull;

use crate::arena::{Arena, Entry, Extent, ExtentKind, ExtentUse};
use crate::error::ArenaFull;
use crate::limits::PAGE_BYTES;

/// Marks the end of a list.
const NONE: u32 = u32::MAX;

/// A slot's neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Link {
    next: u32,
    before: u32,
}

pub(super) struct Links {
    owner: u32,
    shift: u32,
    pieces: Vec<NonNull<Link>>,
    extents: Vec<Extent>,
}

impl Links {
    /// Links in pieces of `1 << shift` slots.
    pub(super) fn new(owner: u32, shift: u32) -> Self {
        Self {
            owner,
            shift,
            pieces: Vec::new(),
            extents: Vec::new(),
        }
    }

    /// The links that extents of an opened arena hold, in order; none, if they cannot be.
    pub(super) fn open(arena: &Arena, owner: u32, shift: u32, entries: &[Entry]) -> Option<Self> {
        let mut links = Self::new(owner, shift);
        for (at, Entry { extent, use_ }) in entries.iter().enumerate() {
            if use_.number as usize != at || extent.bytes < links.piece_bytes() as u64 {
                return None;
            }
            links.add(arena, *extent);
        }
        Some(links)
    }

    fn piece_bytes(&self) -> usize {
        (size_of::<Link>() << self.shift).next_multiple_of(PAGE_BYTES)
    }

    fn add(&mut self, arena: &Arena, extent: Extent) {
        self.pieces.push(arena.address(extent).cast());
        self.extents.push(extent);
    }

    pub(super) fn release(self, arena: &mut Arena) {
        for extent in self.extents {
            arena.release_in_turn(extent);
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.bytes).sum()
    }

    /// The extents that may move.
    pub(super) fn movable(&self) -> impl Iterator<Item = Extent> {
        self.extents.iter().copied()
    }

    /// Moves an extent down, if it is ours and there is room; says whether it did.
    pub(super) fn sink(&mut self, arena: &mut Arena, extent: Extent) -> bool {
        let Some(piece) = self.extents.iter().position(|piece| *piece == extent) else {
            return false;
        };
        let Some(lower) = arena.sink(extent) else {
            return false;
        };
        self.extents[piece] = lower;
        self.pieces[piece] = arena.address(lower).cast();
        true
    }

    /// Makes sure that there is a link for a slot.
    pub(super) fn reach(&mut self, arena: &mut Arena, slot: u32) -> Result<(), ArenaFull> {
        while (slot >> self.shift) as usize >= self.pieces.len() {
            let number = self.pieces.len() as u32;
            let use_ = ExtentUse::new(self.owner, ExtentKind::Links, number);
            let extent = arena.allocate(self.piece_bytes(), use_)?;
            self.add(arena, extent);
        }
        Ok(())
    }

    fn address(&self, slot: u32) -> Option<NonNull<Link>> {
        let piece = self.pieces.get((slot >> self.shift) as usize)?;
        let at = slot & ((1 << self.shift) - 1);
        // SAFETY: a piece has room for `1 << shift` links.
        Some(unsafe { piece.add(at as usize) })
    }

    fn read(&self, slot: u32) -> Link {
        match self.address(slot) {
            // SAFETY: the link lies in a piece of ours, and any bytes make one.
            Some(address) => unsafe { address.read() },
            None => Link {
                next: NONE,
                before: NONE,
            },
        }
    }

    /// The next slot in a slot's list, and the one before.
    pub(super) fn neighbours(&self, slot: u32) -> (Option<u32>, Option<u32>) {
        let Link { next, before } = self.read(slot);
        let some = |slot| (slot != NONE).then_some(slot);
        (some(next), some(before))
    }

    fn write(&mut self, arena: &mut Arena, slot: u32, link: Link) {
        let Some(address) = self.address(slot) else {
            return;
        };
        arena.before(address.cast(), size_of::<Link>());
        // SAFETY: as in `read`; `&mut self` excludes readers.
        unsafe { address.write(link) };
    }

    fn change(&mut self, arena: &mut Arena, slot: u32, change: impl FnOnce(&mut Link)) {
        if slot != NONE {
            let mut link = self.read(slot);
            change(&mut link);
            self.write(arena, slot, link);
        }
    }

    /// Puts a slot into a list of its own.
    pub(super) fn begin(&mut self, arena: &mut Arena, slot: u32) {
        let link = Link {
            next: NONE,
            before: NONE,
        };
        self.write(arena, slot, link);
    }

    /// Puts a slot into a list, behind its first one.
    pub(super) fn join(&mut self, arena: &mut Arena, first: u32, slot: u32) {
        let next = self.read(first).next;
        let link = Link {
            next,
            before: first,
        };
        self.write(arena, slot, link);
        self.change(arena, first, |link| link.next = slot);
        self.change(arena, next, |link| link.before = slot);
    }

    /// Takes a slot out of its list.
    pub(super) fn leave(&mut self, arena: &mut Arena, slot: u32) -> Left {
        let Link { next, before } = self.read(slot);
        self.change(arena, next, |link| link.before = before);
        self.change(arena, before, |link| link.next = next);
        match (before, next) {
            (NONE, NONE) => Left::Last,
            (NONE, next) => Left::First { next },
            _ => Left::Other,
        }
    }

    /// The slots of a list, from its first one.
    pub(super) fn list(&self, first: u32) -> impl Iterator<Item = u32> {
        // As many steps as there are links: a damaged list may be a circle.
        let steps = self.pieces.len() << self.shift;
        std::iter::successors(Some(first), |&slot| {
            let next = self.read(slot).next;
            (next != NONE).then_some(next)
        })
        .take(steps.max(1))
    }
}

/// What a list has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Its first slot; this one is first now.
    First {
        next: u32,
    },
    /// Its last slot: there is no list any more.
    Last,
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::MapOptions;

    #[test]
    fn list_holds_what_joined_and_did_not_leave() {
        let mut arena = Arena::new(&MapOptions {
            bytes: 4 << 20,
            node: None,
            huge_pages: false,
        })
        .unwrap();
        let mut links = Links::new(1, 4);
        links.reach(&mut arena, 40).unwrap();
        links.begin(&mut arena, 7);
        let mut members = vec![7];
        for slot in [8, 30, 40, 1] {
            links.join(&mut arena, 7, slot);
            members.push(slot);
        }
        for (leaves, left) in [
            (30, Left::Other),
            (7, Left::First { next: 1 }),
            (8, Left::Other),
            (1, Left::First { next: 40 }),
            (40, Left::Last),
        ] {
            let first = if members.contains(&7) {
                7
            } else if members.contains(&1) {
                1
            } else {
                40
            };
            let mut listed: Vec<u32> = links.list(first).collect();
            listed.sort_unstable();
            members.sort_unstable();
            assert_eq!(listed, members);
            assert_eq!(links.leave(&mut arena, leaves), left);
            members.retain(|&member| member != leaves);
        }
    }
}
