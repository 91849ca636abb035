//! The head of a tree: all that is to be known to open it, in the first page of its first extent.
//!
//! ```text
//! 128  magic 32 | version 32 | owner 32 | tree 32 |
//! 144  entries 64 |
//! 152  root 32 | height 32 |
//! 160  free pages 32 | pages 32 |
//! 168  first extent 32 | last extent 32 |
//! 176  extents 32 | next extent's number 32 |
//! ```
//! It is read from there by every operation, so that a tree whose changes were taken back is right again
//! at once.

use super::error::Damaged;
use super::page::{HEIGHT_MAX, u32_at, u64_at};
use super::space::{self, PageMut};
use crate::arena::Arena;

pub(super) const HEAD: usize = 128;
const ENTRIES: usize = 144;
const ROOT: usize = 152;
pub(super) const FREE: usize = 160;
pub(super) const ENDS: usize = 168;
pub(super) const EXTENTS: usize = 176;

/// Its length.
pub(super) const HEAD_BYTES: usize = EXTENTS + 8 - HEAD;

pub(super) const MAGIC: u32 = u32::from_le_bytes(*b"tree");
pub(super) const VERSION: u32 = 1;

/// What a tree belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeName {
    /// The table, or other owner, as the arena knows it.
    pub(crate) owner: u32,
    /// Which of the owner's trees.
    pub(crate) tree: u32,
}

impl TreeName {
    /// What every page of the tree carries.
    pub(super) fn stamp(self) -> u32 {
        (crate::id::hash(u64::from(self.owner) << 32 | u64::from(self.tree)) >> 32) as u32
    }
}

/// Where a tree's pages are found: what its handle holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The page with the head.
    pub(super) head: u32,
    pub(super) name: TreeName,
    pub(super) stamp: u32,
    /// Free pages that are kept for changes to come: no other change has them, and no extent goes back
    /// that they are in.
    pub(super) held: u32,
}

/// The head, read out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) entries: u64,
    pub(super) root: u32,
    pub(super) height: usize,
    pub(super) free: u32,
    pub(super) pages: u32,
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) extents: u32,
    pub(super) next_number: u32,
}

impl Head {
    #[inline(always)]
    pub(super) fn read(arena: &Arena, place: Place) -> Result<Self, Damaged> {
        let bytes = space::page(arena, place.head)?;
        let head = Self {
            entries: u64_at(bytes, ENTRIES),
            root: u32_at(bytes, ROOT),
            height: u32_at(bytes, ROOT + 4) as usize,
            free: u32_at(bytes, FREE),
            pages: u32_at(bytes, FREE + 4),
            first: u32_at(bytes, ENDS),
            last: u32_at(bytes, ENDS + 4),
            extents: u32_at(bytes, EXTENTS),
            next_number: u32_at(bytes, EXTENTS + 4),
        };
        if head.height == 0 || head.height > HEIGHT_MAX {
            return Err(Damaged {
                page: place.head,
                what: "the tree's height is impossible",
            });
        }
        Ok(head)
    }

    /// The name in the head of this page, if it is one.
    pub(super) fn name(arena: &Arena, page: u32) -> Result<TreeName, Damaged> {
        let bytes = space::page(arena, page)?;
        let damaged = |what| Err(Damaged { page, what });
        if u32_at(bytes, HEAD) != MAGIC {
            return damaged("it is not the head of a tree");
        }
        if u32_at(bytes, HEAD + 4) != VERSION {
            return damaged("the tree is of a version that this program does not know");
        }
        Ok(TreeName {
            owner: u32_at(bytes, HEAD + 8),
            tree: u32_at(bytes, HEAD + 12),
        })
    }
}

/// Changes a pair of numbers in the head, or a number of 64 bits.
pub(super) fn write_head(
    arena: &mut Arena,
    place: Place,
    at: usize,
    low: u32,
    high: u32,
) -> Result<(), Damaged> {
    let pair = u64::from(low) | u64::from(high) << 32;
    PageMut::open(arena, place.head)?.write(at, &pair.to_le_bytes());
    Ok(())
}

pub(super) fn set_root(
    arena: &mut Arena,
    place: Place,
    root: u32,
    height: usize,
) -> Result<(), Damaged> {
    write_head(arena, place, ROOT, root, height as u32)
}

/// Counts entries that came or went.
#[inline]
pub(super) fn add_entries(arena: &mut Arena, place: Place, change: i64) -> Result<(), Damaged> {
    if change == 0 {
        return Ok(());
    }
    let mut page = PageMut::open(arena, place.head)?;
    let entries = u64_at(page.bytes(), ENTRIES).wrapping_add_signed(change);
    page.write(ENTRIES, &entries.to_le_bytes());
    Ok(())
}
