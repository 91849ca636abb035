//! Whole pages made of entries: for splits, merges, rewriting and loading.
//!
//! A page's prefix is chosen when the page is made: what its first and its last key have in common.

use std::ops::Range;

use super::error::Damaged;
use super::page::{CHAINED, Counts, HAS_CHAINS, HEADER, Kind, ROOM, VALUE_HEAD, View, word};
use super::parts::Parts;
use super::slot::{Shape, Slot, print};
use super::space::{Bytes, PageMut};
use crate::limits::{KEY_BYTES_MAX, PAGE_BYTES};

/// An entry on its way into a page.
#[derive(Clone, Copy)]
pub(super) struct Item<'a> {
    pub(super) key: Parts<'a>,
    /// Of a leaf's entry.
    pub(super) value: Stored<'a>,
    /// Of a branch's entry.
    pub(super) child: u32,
}

/// A value as a leaf's cell holds it.
#[derive(Clone, Copy)]
pub(super) struct Stored<'a> {
    pub(super) head: u16,
    pub(super) bytes: &'a [u8],
}

impl Stored<'_> {
    pub(super) const NONE: Self = Self {
        head: 0,
        bytes: &[],
    };

    pub(super) fn is_chained(self) -> bool {
        self.head & CHAINED != 0
    }

    /// The pages that hold it, if it is long.
    pub(super) fn chain_pages(self) -> usize {
        match self.bytes.first_chunk() {
            Some(&bytes) if self.is_chained() => {
                u32::from_le_bytes(bytes).div_ceil(ROOM as u32) as usize
            }
            _ => 0,
        }
    }
}

impl<'a> Item<'a> {
    /// An entry of a page.
    pub(super) fn of(view: &View<'a>, index: usize) -> Result<Self, Damaged> {
        let key = view.key(index)?;
        if !view.is_leaf {
            let child = view.child(index + 1);
            let value = Stored::NONE;
            return Ok(Self { key, value, child });
        }
        let cell = view.cell(index)?;
        let value = Stored {
            head: cell.head,
            bytes: &view.bytes[cell.value],
        };
        let child = 0;
        Ok(Self { key, value, child })
    }

    /// Appends all entries of a page, after a look at whether they are in order and add up: what is
    /// made of them relies on it.
    pub(super) fn collect(view: &View<'a>, items: &mut Vec<Self>) -> Result<(), Damaged> {
        items.reserve(view.count() + 1);
        let mut cells = view.counts.garbage;
        for index in 0..view.count() {
            cells += view.cell_range(index)?.len();
            let in_order = index == 0 || view.precedes(index - 1, index)?;
            if !in_order || !view.is_padded(index) {
                return view.damaged("its keys are not in ascending order");
            }
            let item = Self::of(view, index)?;
            if item.key.len() > KEY_BYTES_MAX {
                return view.damaged("a key is longer than any may be");
            }
            items.push(item);
        }
        if cells != PAGE_BYTES - view.counts.heap {
            return view.damaged("its cells do not add up");
        }
        Ok(())
    }

    /// Bytes of its slot and cell behind a prefix of this length.
    pub(super) fn bytes(&self, prefix: usize, is_leaf: bool) -> usize {
        let shape = Shape { is_leaf };
        let tail = shape.tail_bytes(self.key.len() - prefix);
        shape.fixed_bytes() + tail + self.value.bytes.len()
    }
}

/// Whether the entries next to one another within a range, as far as there are any, are in order: to
/// be asked where one of them has come in or changed, for all that is made of a page relies on it.
pub(super) fn in_order_around(items: &[Item<'_>], range: Range<usize>) -> bool {
    items[range.start..range.end.min(items.len())]
        .windows(2)
        .all(|pair| pair[0].key.precedes(&pair[1].key))
}

/// The longest prefix that these entries, which are in order, can have.
pub(super) fn prefix_of(items: &[Item<'_>]) -> usize {
    match items {
        [] => 0,
        [one] => one.key.len(),
        [first, .., last] => first.key.common(&last.key),
    }
}

/// Bytes that these entries take of a page, the prefix included.
pub(super) fn bytes_of(items: &[Item<'_>], is_leaf: bool) -> usize {
    let prefix = prefix_of(items);
    let entries: usize = items.iter().map(|item| item.bytes(prefix, is_leaf)).sum();
    prefix.next_multiple_of(8) + entries
}

/// What else a page has to say.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) stamp: u32,
    pub(super) level: usize,
    pub(super) first_child: u32,
    pub(super) delta: u16,
    pub(super) hint: u16,
}

/// A page that was made and has no place yet.
pub(super) struct Image {
    bytes: Bytes,
    slots_end: usize,
    heap: usize,
}

impl Image {
    /// A page of these entries, which fit.
    pub(super) fn new(frame: Frame, items: &[Item<'_>]) -> Self {
        let is_leaf = frame.level == 0;
        Self::with_prefix(frame, items, prefix_of(items), is_leaf)
    }

    /// A page of these entries with a prefix that all of them have.
    pub(super) fn with_prefix(
        frame: Frame,
        items: &[Item<'_>],
        prefix: usize,
        is_leaf: bool,
    ) -> Self {
        let mut bytes = [0; PAGE_BYTES];
        let shape = Shape { is_leaf };
        let slot_bytes = shape.slot_bytes();
        let slots = HEADER + prefix.next_multiple_of(8);
        let slots_end = slots + items.len() * slot_bytes;
        let cells: usize = items.iter().map(|item| item.bytes(prefix, is_leaf)).sum();
        let heap = PAGE_BYTES - (cells - items.len() * slot_bytes);
        debug_assert!(slots_end <= heap);
        if let Some(first) = items.first() {
            first.key.copy(0, &mut bytes[HEADER..HEADER + prefix]);
        }
        let (mut at, mut flags) = (heap, 0);
        for (index, item) in items.iter().enumerate() {
            let key_bytes = item.key.len() - prefix;
            let (cell, tail_bytes) = (at, shape.tail_bytes(key_bytes));
            if is_leaf {
                bytes[at..at + VALUE_HEAD].copy_from_slice(&item.value.head.to_le_bytes());
                at += VALUE_HEAD;
                if item.value.is_chained() {
                    flags |= HAS_CHAINS;
                }
            }
            let tail = at..at + tail_bytes;
            item.key
                .copy(item.key.len() - tail_bytes, &mut bytes[tail.clone()]);
            at += tail_bytes;
            bytes[at..at + item.value.bytes.len()].copy_from_slice(item.value.bytes);
            at += item.value.bytes.len();
            let print = if is_leaf { print(&bytes[tail]) } else { 0 };
            let cell = if cell == at { 0 } else { cell };
            let mut start = [0; 8];
            let start = &mut start[..shape.head_bytes().min(key_bytes)];
            item.key.copy(prefix, start);
            let slot = Slot::new(cell, key_bytes, print);
            let (slot, slot_bytes) = shape.slot(slot, item.child, start);
            bytes[slots + index * slot_bytes..][..slot_bytes].copy_from_slice(&slot[..slot_bytes]);
        }
        let kind = if is_leaf { Kind::Leaf } else { Kind::Branch };
        let first = word(kind, frame.level as u8, prefix, frame.stamp);
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        let counts = Counts {
            count: items.len(),
            heap,
            garbage: 0,
            hint: frame.hint,
        };
        bytes[8..16].copy_from_slice(&counts.to_bytes());
        bytes[16..18].copy_from_slice(&frame.delta.to_le_bytes());
        bytes[18..20].copy_from_slice(&flags.to_le_bytes());
        bytes[20..24].copy_from_slice(&frame.first_child.to_le_bytes());
        Self {
            bytes,
            slots_end,
            heap,
        }
    }

    /// Puts the page where none is.
    pub(super) fn write(&self, page: &mut PageMut<'_>) {
        page.write_fresh(0, &self.bytes[..self.slots_end]);
        page.write_fresh(self.heap, &self.bytes[self.heap..]);
    }

    /// Puts the page in the place of another one, of which these parts are in use.
    pub(super) fn replace(&self, page: &mut PageMut<'_>, slots_end: usize, heap: usize) {
        page.before(0..slots_end);
        page.before(heap..PAGE_BYTES);
        self.write(page);
    }
}

/// Where a full page is best split: the left part gets so many entries. Both parts fit a page, and
/// are about equal; near the middle, the place is taken that makes the shortest separator. Of a
/// branch, the entry at that place goes up instead of right.
pub(super) fn split_point(items: &[Item<'_>], is_leaf: bool) -> usize {
    let count = items.len();
    let right_from = |at: usize| if is_leaf { at } else { at + 1 };
    let left = |at: usize| bytes_of(&items[..at], is_leaf);
    let right = |at: usize| bytes_of(&items[right_from(at)..], is_leaf);
    let larger = |at: usize| left(at).max(right(at));
    let (mut low, mut high) = (1, count - 1);
    while low < high {
        let middle = low.midpoint(high);
        if left(middle) < right(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let best = if low > 1 && larger(low - 1) < larger(low) {
        low - 1
    } else {
        low
    };
    if larger(best) > ROOM {
        // Rounding can mislead the search by a few bytes, where pages are full to the last of them.
        return (1..count).min_by_key(|&at| larger(at)).unwrap_or(best);
    }
    if !is_leaf {
        return best;
    }
    let window = count / 16;
    let near = best.saturating_sub(window).max(1)..(best + window + 1).min(count);
    let separator = |at: usize| items[at - 1].key.common(&items[at].key);
    let shortest = near.min_by_key(|&at| (separator(at), at.abs_diff(best)));
    match shortest {
        Some(at) if separator(at) < separator(best) && larger(at) <= ROOM => at,
        _ => best,
    }
}
