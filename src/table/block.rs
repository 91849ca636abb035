//! A block: operations side by side, as a shard executes them.
//!
//! ```text
//! ids      | u64 x n |   in: direct or surrogate ids     out: direct ids of inserted rows
//! verbs    | u8  x n |   in; one for all, where they do not differ
//! outcomes | u8  x n |   out
//! rows     | cells x n | in: rows of inserts, updates     out: rows of selects
//! ```
//! Structure of arrays: ids lie eight to a cache line, and what one side writes and the other reads
//! shares no line with what goes the other way.

use super::execute::Rolling;
use crate::error::{ArenaFull, Error};
use crate::limits::PAGE_BYTES;

/// What to do with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Verb {
    Select,
    Update,
    Insert,
    Delete,
    Upsert,
}

impl Verb {
    /// Whether the operation comes with a row.
    #[inline(always)]
    pub(crate) fn brings_row(self) -> bool {
        matches!(self, Self::Update | Self::Insert | Self::Upsert)
    }
}

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    /// Not executed yet.
    Pending,
    Done,
    /// An upsert that inserted.
    Inserted,
    NotFound,
    Duplicate,
    ArenaFull,
    /// As before, for want of room on the disk.
    DiskFull,
    SlotsFull,
    Damaged,
}

impl Code {
    /// The code of an insert's error; its details go to the operation's id and first cell.
    pub(super) fn of_error(error: &Error, id: &mut u64, cell: &mut u64) -> Self {
        match error {
            Error::ArenaFull(full) => {
                let pages = |bytes: u64| bytes / PAGE_BYTES as u64;
                *id = full.bound_bytes;
                *cell = pages(full.used_bytes) << 32 | pages(full.asked_bytes);
                if full.is_disk {
                    Self::DiskFull
                } else {
                    Self::ArenaFull
                }
            }
            Error::SlotsFull { shard } => {
                *id = *shard as u64;
                Self::SlotsFull
            }
            Error::Damaged { shard } => {
                *id = *shard as u64;
                Self::Damaged
            }
            Error::Duplicate { .. } => Self::Duplicate,
            other => {
                unreachable!("an insert fails for memory, slots, damage or its key, not: {other}")
            }
        }
    }

    /// The error that [`Code::of_error`] took apart.
    pub(crate) fn to_error(self, id: u64, cell: u64) -> Option<Error> {
        let bytes = |pages: u64| (pages & u64::from(u32::MAX)) * PAGE_BYTES as u64;
        match self {
            Self::ArenaFull | Self::DiskFull => Some(Error::ArenaFull(ArenaFull {
                asked_bytes: bytes(cell),
                used_bytes: bytes(cell >> 32),
                bound_bytes: id,
                is_disk: self == Self::DiskFull,
            })),
            Self::SlotsFull => Some(Error::SlotsFull { shard: id as usize }),
            Self::Damaged => Some(Error::Damaged { shard: id as usize }),
            Self::Duplicate => Some(Error::Duplicate { key: id }),
            Self::Pending | Self::Done | Self::Inserted | Self::NotFound => None,
        }
    }
}

/// The verbs of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verbs<'a> {
    /// One for all operations.
    All(Verb),
    /// One for each.
    Each(&'a [Verb]),
}

impl Verbs<'_> {
    #[inline(always)]
    pub(crate) fn of(self, at: usize) -> Verb {
        match self {
            Self::All(verb) => verb,
            Self::Each(verbs) => verbs[at],
        }
    }
}

/// A block in memory that both its author and the shard can reach, each in turn.
pub(crate) struct Block<'a> {
    pub(crate) ids: &'a mut [u64],
    pub(crate) verbs: Verbs<'a>,
    pub(crate) outcomes: &'a mut [Code],
    /// `ids.len()` rows of the table's width.
    pub(crate) rows: &'a mut [u64],
    /// How it joins the blocks before and after it.
    pub(crate) rolling: Rolling<'a>,
}
