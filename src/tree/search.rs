//! The search in a page.
//!
//! In two halves, between which a batch does something else: slots alone tell the first entry whose head
//! is not below the key's; among entries of the same head, cells decide.

use std::cmp::Ordering;

use super::error::Damaged;
use super::page::View;
use super::slot::{KEY_BITS, LEAF_HEAD, print};
use super::space;

/// Bytes at the start of a page that are asked for before its header is known.
pub(super) const AHEAD_BYTES: usize = 512;
/// Cells of equal heads that are asked for before they are compared.
const CELLS_AHEAD: usize = 16;

/// What the slots of a page tell about a key: the first entry whose head is not below the key's, and
/// whether it is the same.
#[derive(Clone, Copy)]
pub(super) struct Start {
    index: u16,
    /// Where the entries of that head end, if that was looked at already; else 0.
    end: u16,
    is_alike: bool,
}

impl Start {
    pub(super) const NOWHERE: Self = Self {
        index: 0,
        end: 0,
        is_alike: false,
    };
}

/// Where a key is, or where it belongs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) index: usize,
    pub(super) exact: bool,
}

impl View<'_> {
    /// The first half of a search: what slots alone tell.
    #[inline(always)]
    pub(super) fn start(&self, key: &[u8]) -> Start {
        let prefix = self.prefix();
        let Some(suffix) = key.strip_prefix(prefix) else {
            let index = if key < prefix { 0 } else { self.counts.count };
            return Start {
                index: index as u16,
                ..Start::NOWHERE
            };
        };
        let head = self.head_of(suffix);
        let index = self.lower(head);
        Start {
            index: index as u16,
            end: 0,
            is_alike: index < self.counts.count && self.head(index) == head,
        }
    }

    /// Where the key is, or where it belongs.
    #[inline(always)]
    pub(super) fn search(&self, key: &[u8]) -> Result<Found, Damaged> {
        self.search_from(self.start(key), key)
    }

    /// The second half of a search.
    #[inline(always)]
    pub(super) fn search_from(&self, start: Start, key: &[u8]) -> Result<Found, Damaged> {
        let index = usize::from(start.index);
        match key.get(self.prefix_bytes..) {
            Some(suffix) if start.is_alike => self.search_equal(start, suffix),
            _ => Ok(Found {
                index,
                exact: false,
            }),
        }
    }

    /// The entry of a leaf with this key, if there is one.
    #[inline(always)]
    pub(super) fn find(&self, key: &[u8]) -> Result<Option<usize>, Damaged> {
        self.find_from(self.start(key), key)
    }

    /// The second half of a search for a key itself.
    #[inline(always)]
    pub(super) fn find_from(&self, start: Start, key: &[u8]) -> Result<Option<usize>, Damaged> {
        let suffix = match key.get(self.prefix_bytes..) {
            Some(suffix) if start.is_alike => suffix,
            _ => return Ok(None),
        };
        let tail = suffix.get(LEAF_HEAD..).unwrap_or(&[]);
        for index in self.alike(start, suffix, tail) {
            if tail.is_empty() || self.tail_of(self.slot(index))? == tail {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// The entries of a leaf that may have this key, to judge by what is in slots.
    #[inline(always)]
    fn alike(&self, start: Start, suffix: &[u8], tail: &[u8]) -> impl Iterator<Item = usize> {
        let head = self.head_of(suffix) >> 32;
        // Longer keys than can be have no likeness that any slot has.
        let likeness = suffix.len() as u32 | print(tail) << KEY_BITS;
        let is_possible = suffix.len() < 1 << KEY_BITS;
        let slots = self.leaf_slots(usize::from(start.index), self.counts.count);
        (usize::from(start.index)..)
            .zip(slots)
            .take_while(move |(_, slot)| is_possible && slot.head() == head)
            .filter(move |(_, slot)| slot.slot().likeness() == likeness)
            .map(|(index, _)| index)
    }

    /// Starts reading the cell of the entry of a leaf that may have this key; the search goes on there.
    #[inline(always)]
    pub(super) fn prefetch_value(&self, start: Start, key: &[u8], bytes: usize) -> Start {
        let Some(suffix) = key.get(self.prefix_bytes..).filter(|_| start.is_alike) else {
            return Start::NOWHERE;
        };
        let tail = suffix.get(LEAF_HEAD..).unwrap_or(&[]);
        let Some(index) = self.alike(start, suffix, tail).next() else {
            return Start::NOWHERE;
        };
        space::prefetch_at(self.bytes, self.slot(index).cell(), bytes);
        Start {
            index: index as u16,
            ..start
        }
    }

    /// Starts reading the cells among which a key's place is.
    #[inline(always)]
    pub(super) fn prefetch_equal(&self, start: Start) -> Start {
        if !start.is_alike {
            return start;
        }
        let end = self.end_of_equal(usize::from(start.index)) as u16;
        Start { end, ..start }
    }

    /// Where the entries end that have the same head as this one. Their cells are asked for.
    #[inline(always)]
    fn end_of_equal(&self, first: usize) -> usize {
        let head = self.head(first);
        let mut end = first;
        while end < self.counts.count && self.head(end) == head {
            if end - first < CELLS_AHEAD {
                space::prefetch_at(self.bytes, self.slot(end).cell(), 1);
            }
            end += 1;
        }
        end
    }

    /// Starts reading the slots beyond [`AHEAD_BYTES`].
    #[inline(always)]
    pub(super) fn prefetch_slots(&self) {
        let end = self.slots_end();
        if end > AHEAD_BYTES {
            space::prefetch_at(self.bytes, AHEAD_BYTES, end - AHEAD_BYTES);
        }
    }

    /// The first entry whose head is not below this one.
    #[inline(always)]
    fn lower(&self, head: u64) -> usize {
        // Told apart here, not in the loop.
        if self.is_leaf {
            let leaf = View {
                is_leaf: true,
                ..*self
            };
            leaf.bisect(head)
        } else {
            let branch = View {
                is_leaf: false,
                ..*self
            };
            branch.bisect(head)
        }
    }

    #[inline(always)]
    fn bisect(&self, head: u64) -> usize {
        let (mut low, mut rest) = (0, self.counts.count);
        // Halving without branches: which half is right cannot be predicted.
        while rest > 1 {
            let half = rest / 2;
            let is_below = self.head(low + half - 1) < head;
            low += if is_below { half } else { 0 };
            rest -= half;
        }
        low + usize::from(rest == 1 && self.head(low) < head)
    }

    /// Goes on among entries of the same head.
    fn search_equal(&self, start: Start, suffix: &[u8]) -> Result<Found, Damaged> {
        let tail = suffix.get(self.shape().head_bytes()..).unwrap_or(&[]);
        let mut low = usize::from(start.index);
        let mut high = match start.end {
            0 => self.end_of_equal(low),
            end => usize::from(end),
        };
        while low < high {
            let middle = low.midpoint(high);
            let slot = self.slot(middle);
            // Lengths decide only between keys of no tail; otherwise equal tails have one length.
            let order = self.tail_of(slot)?.cmp(tail);
            match order.then_with(|| slot.key_bytes().cmp(&suffix.len())) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => {
                    return Ok(Found {
                        index: middle,
                        exact: true,
                    });
                }
            }
        }
        Ok(Found {
            index: low,
            exact: false,
        })
    }

    /// The child of a branch that keys like this one belong to.
    #[inline(always)]
    pub(super) fn child_index(&self, key: &[u8]) -> Result<usize, Damaged> {
        let found = self.search(key)?;
        Ok(found.index + usize::from(found.exact))
    }
}
