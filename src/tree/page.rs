//! The layout of a page, and what can be read of one.
//!
//! ```text
//! 0   kind 8 | level 8 | prefix bytes 16 | stamp 32 |
//! 8   count 16 | heap 16 | garbage 16 | hint 16 |          the word that every change of entries changes
//! 16  delta 16 | flags 16 | first child 32 |
//! 24  prefix, padded to 8 bytes | slots ... | free | cells ... |  4096
//!
//! slot, leaf    | cell 12, key bytes 11, print 9 | head 32 |
//! slot, branch  | cell 12, key bytes 11, 0 9     | child 32 | head 64 |
//! cell, leaf    | value bytes 16 | tail | value |      top bit of value bytes: | bytes 32 | page 32 | instead
//! cell, branch  | tail |                               no cell where there is no tail
//! ```
//! Of a key, the page's common prefix is stored once, the next four bytes (in a branch, eight; as a
//! big-endian number, padded with zeros) in the slot's head, and the rest, the tail, in the cell. `key
//! bytes` is the length without the prefix. So a search compares numbers in one dense array, and
//! looks at a cell only where heads are equal. Whether a key is there is found out with one cell, or
//! none: among equal heads, only those of the same length and fingerprint (a hash of the tail) are
//! looked at.
//!
//! A branch of n separators has n + 1 children: the first one in the header, for keys below the
//! first separator, and one in each slot, for keys from that separator on.
//!
//! `heap` is where the cells begin, `garbage` the bytes of cells that no slot refers to, `delta` the
//! distance in pages to the first page of the extent.
//!
//! # What is trusted
//! Nothing. [`View::open`] checks the header once, so that all slots lie in the page; what slots say
//! is checked where it is used.

use std::ops::Range;

use super::error::Damaged;
use super::parts::Parts;
use super::slot::{
    BRANCH_HEAD, BRANCH_HEAD_AT, BRANCH_SLOT, LEAF_HEAD_AT, LEAF_SLOT, LeafSlot, Shape, Slot,
    branch_head, leaf_head, print,
};
use super::space::{self, Bytes};
use crate::arena::Arena;
use crate::limits::{KEY_BYTES_MAX, PAGE_BYTES};

pub(super) const HEADER: usize = 24;
/// Bytes of a page for prefix, slots and cells.
pub(super) const ROOM: usize = PAGE_BYTES - HEADER;
/// Levels of a tree at most: enough for 2^32 pages of two children each.
pub(super) const HEIGHT_MAX: usize = 32;
/// Bytes of a value's length in a leaf's cell.
pub(super) const VALUE_HEAD: usize = 2;
/// Marks a value that lies in pages of its own.
pub(super) const CHAINED: u16 = 0x8000;
/// Bytes that stand for such a value in its cell.
pub(super) const CHAIN_REF: usize = 8;
/// Bytes that stay free when an entry is added, so that a page whose prefix grows when it is
/// rewritten (which costs up to 8 bytes where no tail gets shorter) still fits.
pub(super) const SLACK: usize = 16;
/// Bytes of an entry with its slot, at most: two of them fit a page, whatever its prefix.
pub(super) const ENTRY_MAX: usize = ROOM / 2 - SLACK;

const _: () = assert!(BRANCH_SLOT + KEY_BYTES_MAX <= ENTRY_MAX);
const _: () = assert!(LEAF_SLOT + VALUE_HEAD + KEY_BYTES_MAX + CHAIN_REF <= ENTRY_MAX);
const _: () = assert!(ENTRY_MAX < CHAINED as usize && PAGE_BYTES <= u16::MAX as usize);

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Leaf = 1,
    Branch = 2,
    /// A part of a long value.
    Chain = 3,
    /// The first page of an extent, which says which of its pages are in use.
    Extent = 4,
}

/// Flag of a leaf: it may hold values that lie in pages of their own.
pub(super) const HAS_CHAINS: u16 = 1;

#[inline(always)]
pub(super) fn u16_at(bytes: &Bytes, at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
pub(super) fn u32_at(bytes: &Bytes, at: usize) -> u32 {
    u32::from_le_bytes(chunk(bytes, at))
}

#[inline(always)]
pub(super) fn u64_at(bytes: &Bytes, at: usize) -> u64 {
    u64::from_le_bytes(chunk(bytes, at))
}

/// So many bytes of a page, in one check and one load.
#[inline(always)]
fn chunk<const N: usize>(bytes: &Bytes, at: usize) -> [u8; N] {
    match bytes.get(at..).and_then(<[u8]>::first_chunk) {
        Some(chunk) => *chunk,
        None => beyond(at),
    }
}

/// Offsets are checked when they are read.
#[cold]
#[inline(never)]
fn beyond(at: usize) -> ! {
    panic!("byte {at} is beyond the page")
}

/// The first word of a header.
#[inline(always)]
pub(super) fn word(kind: Kind, level: u8, prefix: usize, stamp: u32) -> u64 {
    kind as u64 | u64::from(level) << 8 | (prefix as u64) << 16 | u64::from(stamp) << 32
}

/// The counts in a page's header, of which every change changes some.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub(super) count: usize,
    pub(super) heap: usize,
    pub(super) garbage: usize,
    /// Where entries were inserted last; see `Hint`.
    pub(super) hint: u16,
}

impl Counts {
    /// Where they are.
    pub(super) const AT: usize = 8;

    pub(super) fn to_bytes(self) -> [u8; 8] {
        let word = self.count as u64
            | (self.heap as u64) << 16
            | (self.garbage as u64) << 32
            | u64::from(self.hint) << 48;
        word.to_le_bytes()
    }
}

/// A leaf or branch whose header was checked.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) bytes: &'a Bytes,
    pub(super) number: u32,
    pub(super) counts: Counts,
    pub(super) prefix_bytes: usize,
    pub(super) is_leaf: bool,
}

impl<'a> View<'a> {
    /// The page of this number, which is to be on this level of the tree with this stamp.
    #[inline(always)]
    pub(super) fn open(
        arena: &'a Arena,
        number: u32,
        stamp: u32,
        level: usize,
    ) -> Result<Self, Damaged> {
        Self::of(space::page(arena, number)?, number, stamp, level)
    }

    /// A page above the leaves: as [`View::open`], for loops in which that is all there is.
    #[inline(always)]
    pub(super) fn branch(
        arena: &'a Arena,
        number: u32,
        stamp: u32,
        level: usize,
    ) -> Result<Self, Damaged> {
        Self::checked(space::page(arena, number)?, number, stamp, level, false)
    }

    #[inline(always)]
    pub(super) fn of(
        bytes: &'a Bytes,
        number: u32,
        stamp: u32,
        level: usize,
    ) -> Result<Self, Damaged> {
        Self::checked(bytes, number, stamp, level, level == 0)
    }

    #[inline(always)]
    fn checked(
        bytes: &'a Bytes,
        number: u32,
        stamp: u32,
        level: usize,
        is_leaf: bool,
    ) -> Result<Self, Damaged> {
        let damaged = |what| Err(Damaged { page: number, what });
        let first = u64_at(bytes, 0);
        let kind = if is_leaf { Kind::Leaf } else { Kind::Branch };
        let prefix_bytes = (first >> 16 & 0xffff) as usize;
        if first != word(kind, level as u8, prefix_bytes, stamp) {
            return damaged("its header is not of the kind, level and tree expected");
        }
        let second = u64_at(bytes, Counts::AT);
        let counts = Counts {
            count: (second & 0xffff) as usize,
            heap: (second >> 16 & 0xffff) as usize,
            garbage: (second >> 32 & 0xffff) as usize,
            hint: (second >> 48) as u16,
        };
        let view = Self {
            bytes,
            number,
            counts,
            prefix_bytes,
            is_leaf,
        };
        let is_sound = prefix_bytes <= KEY_BYTES_MAX
            && view.slots_end() <= counts.heap
            && counts.heap <= PAGE_BYTES
            && counts.garbage <= PAGE_BYTES - counts.heap;
        if !is_sound {
            return damaged("the counts of its header do not fit a page");
        }
        Ok(view)
    }

    pub(super) fn damaged<T>(&self, what: &'static str) -> Result<T, Damaged> {
        let page = self.number;
        Err(Damaged { page, what })
    }

    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.counts.count
    }

    #[inline(always)]
    pub(super) fn shape(&self) -> Shape {
        let is_leaf = self.is_leaf;
        Shape { is_leaf }
    }

    #[inline(always)]
    pub(super) fn slot_bytes(&self) -> usize {
        self.shape().slot_bytes()
    }

    #[inline(always)]
    pub(super) fn slots_start(&self) -> usize {
        HEADER + self.prefix_bytes.next_multiple_of(8)
    }

    #[inline(always)]
    pub(super) fn slots_end(&self) -> usize {
        self.slots_start() + self.counts.count * self.slot_bytes()
    }

    #[inline(always)]
    pub(super) fn slot_at(&self, index: usize) -> usize {
        self.slots_start() + index * self.slot_bytes()
    }

    /// Bytes between slots and cells.
    pub(super) fn gap(&self) -> usize {
        self.counts.heap - self.slots_end()
    }

    /// Bytes of prefix, slots and cells.
    pub(super) fn used(&self) -> usize {
        self.slots_end() - HEADER + PAGE_BYTES - self.counts.heap - self.counts.garbage
    }

    #[inline(always)]
    pub(super) fn prefix(&self) -> &'a [u8] {
        &self.bytes[HEADER..][..self.prefix_bytes]
    }

    pub(super) fn delta(&self) -> u16 {
        u16_at(self.bytes, 16)
    }

    pub(super) fn flags(&self) -> u16 {
        u16_at(self.bytes, 18)
    }

    /// The slot of an entry; `index` is below the count.
    #[inline(always)]
    pub(super) fn slot(&self, index: usize) -> Slot {
        debug_assert!(index < self.counts.count);
        Slot::from_u32(u32_at(self.bytes, self.slot_at(index)))
    }

    /// Some slots of a leaf.
    #[inline(always)]
    pub(super) fn leaf_slots(&self, from: usize, to: usize) -> impl Iterator<Item = LeafSlot> {
        let range = self.slot_at(from.min(to))..self.slot_at(to);
        let (slots, _) = self.bytes[range].as_chunks();
        slots.iter().map(|slot| LeafSlot::of(*slot))
    }

    /// The head of an entry, in either kind of page its bytes from the highest on.
    #[inline(always)]
    pub(super) fn head(&self, index: usize) -> u64 {
        if self.is_leaf {
            u64::from(u32_at(self.bytes, self.slot_at(index) + LEAF_HEAD_AT)) << 32
        } else {
            u64_at(self.bytes, self.slot_at(index) + BRANCH_HEAD_AT)
        }
    }

    /// The head that a key has in this page, its prefix taken off.
    #[inline(always)]
    pub(super) fn head_of(&self, suffix: &[u8]) -> u64 {
        if self.is_leaf {
            u64::from(leaf_head(suffix)) << 32
        } else {
            branch_head(suffix)
        }
    }

    #[inline(always)]
    fn range(&self, start: usize, bytes: usize) -> Result<&'a [u8], Damaged> {
        match self.bytes.get(start..start + bytes) {
            Some(range) => Ok(range),
            None => self.damaged("a cell reaches beyond the page"),
        }
    }

    #[inline(always)]
    pub(super) fn tail_of(&self, slot: Slot) -> Result<&'a [u8], Damaged> {
        let bytes = self.shape().tail_bytes(slot.key_bytes());
        let before = if self.is_leaf { VALUE_HEAD } else { 0 };
        if bytes == 0 {
            return Ok(&[]);
        }
        self.range(slot.cell() + before, bytes)
    }

    /// The key of an entry.
    #[inline(always)]
    pub(super) fn key(&self, index: usize) -> Result<Parts<'a>, Damaged> {
        let slot = self.slot(index);
        Ok(Parts {
            prefix: self.prefix(),
            head: self.head(index).to_be_bytes(),
            head_bytes: slot.key_bytes().min(self.shape().head_bytes()) as u8,
            tail: self.tail_of(slot)?,
        })
    }

    /// Where the cell of a leaf's entry is: its head, its tail and its value.
    #[inline(always)]
    pub(super) fn cell(&self, index: usize) -> Result<Cell, Damaged> {
        let slot = self.slot(index);
        let start = slot.cell();
        let tail = self.shape().tail_bytes(slot.key_bytes());
        if start + VALUE_HEAD > PAGE_BYTES {
            return self.damaged("a cell reaches beyond the page");
        }
        let head = u16_at(self.bytes, start);
        let value = if head & CHAINED == 0 {
            usize::from(head)
        } else {
            CHAIN_REF
        };
        let end = start + VALUE_HEAD + tail + value;
        if end > PAGE_BYTES || start < self.counts.heap {
            return self.damaged("a cell reaches beyond the page");
        }
        Ok(Cell {
            start,
            value: end - value..end,
            head,
        })
    }

    /// Where the cell of an entry of either kind is.
    pub(super) fn cell_range(&self, index: usize) -> Result<Range<usize>, Damaged> {
        if self.is_leaf {
            let cell = self.cell(index)?;
            return Ok(cell.start..cell.value.end);
        }
        let slot = self.slot(index);
        let bytes = self.shape().tail_bytes(slot.key_bytes());
        if bytes == 0 {
            return Ok(0..0);
        }
        if slot.cell() < self.counts.heap || slot.cell() + bytes > PAGE_BYTES {
            return self.damaged("a cell reaches beyond the page");
        }
        Ok(slot.cell()..slot.cell() + bytes)
    }

    /// Child `index` of a branch, of `count + 1`.
    #[inline(always)]
    pub(super) fn child(&self, index: usize) -> u32 {
        debug_assert!(!self.is_leaf && index <= self.counts.count);
        if index == 0 {
            u32_at(self.bytes, 20)
        } else {
            u32_at(self.bytes, self.slot_at(index - 1) + 4)
        }
    }

    /// Whether the head of an entry's key has only bytes of the key.
    pub(super) fn is_padded(&self, index: usize) -> bool {
        let bits = 8 * self.slot(index).key_bytes().min(BRANCH_HEAD) as u32;
        self.head(index).checked_shl(bits).unwrap_or(0) == 0
    }

    /// Whether the fingerprint of a leaf's entry is that of its tail.
    pub(super) fn is_printed(&self, index: usize) -> Result<bool, Damaged> {
        let slot = self.slot(index);
        let print = if self.is_leaf {
            print(self.tail_of(slot)?)
        } else {
            0
        };
        Ok(Slot::new(0, slot.key_bytes(), print).likeness() == slot.likeness())
    }

    /// Whether the key of one entry comes before that of another.
    pub(super) fn precedes(&self, first: usize, second: usize) -> Result<bool, Damaged> {
        let order = self.head(first).cmp(&self.head(second));
        if order.is_ne() {
            return Ok(order.is_lt());
        }
        let (first, second) = (self.slot(first), self.slot(second));
        let order = self.tail_of(first)?.cmp(self.tail_of(second)?);
        Ok(order
            .then(first.key_bytes().cmp(&second.key_bytes()))
            .is_lt())
    }
}

/// The cell of a leaf's entry.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) start: usize,
    pub(super) value: Range<usize>,
    /// The value's length or mark.
    pub(super) head: u16,
}
