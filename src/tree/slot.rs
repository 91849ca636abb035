//! Slots: what the array at the start of a page holds of each entry.
//!
//! See [`page`](super::page) for the bytes.

use super::page::VALUE_HEAD;
use crate::limits::{KEY_BYTES_MAX, PAGE_BYTES};

/// Bytes of a slot, the head included.
pub(super) const LEAF_SLOT: usize = 8;
pub(super) const BRANCH_SLOT: usize = 16;
/// Bytes of a key in a slot's head.
pub(super) const LEAF_HEAD: usize = 4;
pub(super) const BRANCH_HEAD: usize = 8;
/// Where a slot's head is.
pub(super) const LEAF_HEAD_AT: usize = 4;
pub(super) const BRANCH_HEAD_AT: usize = 8;

const CELL_BITS: u32 = 12;
pub(super) const KEY_BITS: u32 = 11;
const PRINT_BITS: u32 = 9;

const _: () = assert!(PAGE_BYTES == 1 << CELL_BITS && KEY_BYTES_MAX < 1 << KEY_BITS);
const _: () = assert!(CELL_BITS + KEY_BITS + PRINT_BITS == u32::BITS);

/// The first word of a slot.
#[derive(Clone, Copy)]
pub(super) struct Slot(u32);

impl Slot {
    pub(super) fn new(cell: usize, key_bytes: usize, print: u32) -> Self {
        debug_assert!(cell < 1 << CELL_BITS && key_bytes < 1 << KEY_BITS);
        let print = print << (CELL_BITS + KEY_BITS);
        Self(cell as u32 | (key_bytes as u32) << CELL_BITS | print)
    }

    /// The same slot with its cell in another place.
    pub(super) fn at(self, cell: usize) -> Self {
        debug_assert!(cell < 1 << CELL_BITS);
        Self(self.0 & !((1 << CELL_BITS) - 1) | cell as u32)
    }

    #[inline(always)]
    pub(super) fn cell(self) -> usize {
        (self.0 & ((1 << CELL_BITS) - 1)) as usize
    }

    #[inline(always)]
    pub(super) fn key_bytes(self) -> usize {
        (self.0 >> CELL_BITS & ((1 << KEY_BITS) - 1)) as usize
    }

    /// Length and fingerprint.
    #[inline(always)]
    pub(super) fn likeness(self) -> u32 {
        self.0 >> CELL_BITS
    }

    #[inline(always)]
    pub(super) fn from_u32(word: u32) -> Self {
        Self(word)
    }

    pub(super) fn to_bytes(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }
}

/// A slot of a leaf, with its head.
#[derive(Clone, Copy)]
pub(super) struct LeafSlot(u64);

impl LeafSlot {
    #[inline(always)]
    pub(super) fn of(bytes: [u8; LEAF_SLOT]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }

    #[inline(always)]
    pub(super) fn slot(self) -> Slot {
        Slot(self.0 as u32)
    }

    #[inline(always)]
    pub(super) fn head(self) -> u64 {
        self.0 >> 32
    }
}

/// A fingerprint of a key's tail: of its first and its last bytes.
#[inline(always)]
pub(super) fn print(tail: &[u8]) -> u32 {
    let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    let mixed = match (tail.first_chunk(), tail.last_chunk()) {
        (Some(first), Some(last)) => word(first) ^ word(last).rotate_left(29),
        _ => tail
            .iter()
            .fold(0, |mixed, &byte| mixed << 8 | u64::from(byte)),
    };
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - PRINT_BITS)) as u32
}

/// What the bytes of a slot are, the cell's place apart.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) is_leaf: bool,
}

impl Shape {
    #[inline(always)]
    pub(super) fn slot_bytes(self) -> usize {
        if self.is_leaf { LEAF_SLOT } else { BRANCH_SLOT }
    }

    /// Bytes of a key in a slot's head.
    #[inline(always)]
    pub(super) fn head_bytes(self) -> usize {
        if self.is_leaf { LEAF_HEAD } else { BRANCH_HEAD }
    }

    /// The bytes of a key's tail, given its length without the prefix.
    #[inline(always)]
    pub(super) fn tail_bytes(self, key_bytes: usize) -> usize {
        key_bytes.saturating_sub(self.head_bytes())
    }

    /// Bytes of an entry's slot, and of its cell but for tail and value.
    pub(super) fn fixed_bytes(self) -> usize {
        if self.is_leaf {
            LEAF_SLOT + VALUE_HEAD
        } else {
            BRANCH_SLOT
        }
    }

    /// A slot; `start` is the key behind the prefix, or as much of it as a head has.
    pub(super) fn slot(self, slot: Slot, child: u32, start: &[u8]) -> ([u8; BRANCH_SLOT], usize) {
        let mut bytes = [0; BRANCH_SLOT];
        bytes[..4].copy_from_slice(&slot.to_bytes());
        if self.is_leaf {
            let head = leaf_head(start);
            bytes[LEAF_HEAD_AT..LEAF_SLOT].copy_from_slice(&head.to_le_bytes());
        } else {
            bytes[4..8].copy_from_slice(&child.to_le_bytes());
            let head = branch_head(start);
            bytes[BRANCH_HEAD_AT..].copy_from_slice(&head.to_le_bytes());
        }
        (bytes, self.slot_bytes())
    }
}

/// The head of a leaf's key whose prefix was taken off.
#[inline(always)]
pub(super) fn leaf_head(suffix: &[u8]) -> u32 {
    match suffix.first_chunk() {
        Some(&head) => u32::from_be_bytes(head),
        None => (padded(suffix) >> 32) as u32,
    }
}

/// The head of a branch's key whose prefix was taken off.
#[inline(always)]
pub(super) fn branch_head(suffix: &[u8]) -> u64 {
    match suffix.first_chunk() {
        Some(&head) => u64::from_be_bytes(head),
        None => padded(suffix),
    }
}

/// Fewer than eight bytes as a number, zeros behind them.
#[inline(always)]
fn padded(bytes: &[u8]) -> u64 {
    let fold = |number: u64, &byte: &u8| number << 8 | u64::from(byte);
    let missing = 8 - bytes.len() as u32;
    bytes
        .iter()
        .fold(0, fold)
        .checked_shl(8 * missing)
        .unwrap_or(0)
}
