//! What can go wrong with a tree.

use crate::error::ArenaFull;
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// A page does not hold what a tree's page holds. A change that meets one may have been done in
/// part: undo its scope, and take no more changes before the arena was checked or restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "page {page} of an ordered tree is damaged: {what}; restore the shard from before the damage"
)]
pub(crate) struct Damaged {
    /// The page's number in the arena.
    pub(crate) page: u32,
    /// What is wrong there.
    pub(crate) what: &'static str,
}

/// A change was refused. Unless the tree is damaged, nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TreeError {
    /// The arena has no room.
    #[error(transparent)]
    ArenaFull(#[from] ArenaFull),
    /// The tree's memory is damaged.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// The key is too long.
    #[error("a key has at most {KEY_BYTES_MAX} bytes, not {bytes}")]
    KeyTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The value is too long.
    #[error("a value has at most {VALUE_BYTES_MAX} bytes, not {bytes}")]
    ValueTooLong {
        /// Its length.
        bytes: usize,
    },
    /// Entries to be loaded are not in ascending order of distinct keys.
    #[error("entry {index} of a load does not come after the one before it")]
    Unsorted {
        /// The entry that is out of order, counted from 0.
        index: u64,
    },
}
