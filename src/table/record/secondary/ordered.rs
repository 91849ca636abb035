//! The entries of an ordered index, in a tree of the shard's arena.
//!
//! # Room
//! A change has room made for it before anything is changed ([`make_room`](Ordered::make_room)). What a
//! transaction in this shard may have to put back, and what was prepared for one over several shards,
//! have pages kept for them from before the change, or the decision, on; the latter are not known any more
//! when the file is opened after a crash, but the pages are there, and nobody has taken them.
//!
//! # Damage
//! Who meets damage is told, and so is whoever wants to change records of the table afterwards: the index
//! may miss entries from then on.

use std::ops::ControlFlow;

use crate::arena::{Arena, Entry};
use crate::error::{ArenaFull, Error, Result};
use crate::id::ShardIndex;
use crate::limits::{PAGE_BYTES, SCOPE_BYTES_MIN};
use crate::table::Direction;
use crate::tree::{Damaged, Tree, TreeError, TreeName, TreeReport};

/// Which of the owner's trees: it has one.
const TREE: u32 = 0;

/// Bytes beside its key that an entry takes of a page, at most.
const ENTRY_BYTES: usize = 16;
/// Levels of a tree, and as many pages more, as a root may be split.
const HEIGHT_USUAL: u32 = 12;
/// A branch has room for so many separators of this length that it is split at most once where its
/// leaves are split several times.
const SHORT_KEY_BYTES: usize = 256;
/// Before-images of putting one entry back, but for its key and for new pages.
pub(super) const UNDO_BYTES: usize = 768;

pub(in crate::table::record) struct Ordered {
    tree: Tree,
    shard: ShardIndex,
    is_damaged: bool,
    /// Pages that are kept for the change at hand.
    ready: u32,
    /// Pages that are kept for taking back what a transaction in this shard has done.
    undo: u32,
    /// Bytes that may have to be put back, and for which no page is kept yet.
    undo_bytes: usize,
    /// Pages that are kept for what was prepared, and for how many changes.
    prepared: u32,
    changes: u32,
    /// A key on its way.
    pub(super) key: Vec<u8>,
}

impl Ordered {
    pub(super) fn new(arena: &mut Arena, owner: u32, shard: ShardIndex) -> Result<Self, ArenaFull> {
        match Tree::new(arena, TreeName { owner, tree: TREE }) {
            Ok(tree) => Ok(Self::at(tree, shard)),
            Err(TreeError::ArenaFull(full)) => Err(full),
            Err(error) => unreachable!("an empty tree was refused: {error}"),
        }
    }

    fn at(tree: Tree, shard: ShardIndex) -> Self {
        Self {
            tree,
            shard,
            is_damaged: false,
            ready: 0,
            undo: 0,
            undo_bytes: 0,
            prepared: 0,
            changes: 0,
            key: Vec::new(),
        }
    }

    /// The index that extents of an opened arena hold, or what is wrong with them.
    pub(super) fn open(
        arena: &Arena,
        owner: u32,
        shard: ShardIndex,
        extents: &[Entry],
    ) -> Result<Self, String> {
        let tree = Tree::of_extents(arena, TreeName { owner, tree: TREE }, extents)?;
        Ok(Self::at(tree, shard))
    }

    pub(super) fn release(self, arena: &mut Arena) {
        // What damage keeps from going back is found without an owner when the arena is opened again.
        let _ = self.tree.release(arena);
    }

    pub(super) fn bytes(&self, arena: &Arena) -> u64 {
        self.tree.bytes(arena).unwrap_or_default()
    }

    /// Before-images that a change may need.
    pub(super) fn change_bytes(&self, arena: &Arena) -> usize {
        self.tree.change_bytes(arena)
    }

    /// Whether changes are taken.
    pub(super) fn check_sound(&self) -> Result<()> {
        if self.is_damaged {
            Err(self.damaged())
        } else {
            Ok(())
        }
    }

    fn damaged(&self) -> Error {
        Error::Damaged { shard: self.shard }
    }

    fn asked<T>(&mut self, asked: Result<T, TreeError>) -> Result<T> {
        asked.map_err(|error| match error {
            TreeError::ArenaFull(full) => Error::ArenaFull(full),
            _ => {
                self.is_damaged = true;
                self.damaged()
            }
        })
    }

    /// Makes room for an entry with the key at hand, until [`insert`](Self::insert), or until room is made
    /// for another one.
    pub(super) fn make_room(&mut self, arena: &mut Arena) -> Result<()> {
        self.check_sound()?;
        self.tree.let_go(std::mem::take(&mut self.ready));
        arena.prepare_beside(self.change_bytes(arena))?;
        let held = self.tree.hold(arena, self.key.len(), 0);
        self.ready = self.asked(held)?;
        Ok(())
    }

    /// Adds the key at hand, for which there is room.
    pub(super) fn insert(&mut self, arena: &mut Arena) {
        self.tree.let_go(std::mem::take(&mut self.ready));
        if !self.is_damaged {
            let was_there = self.tree.insert(arena, &self.key, &[]);
            self.is_damaged = is_other(was_there, false);
        }
    }

    /// Removes the key at hand.
    pub(super) fn remove(&mut self, arena: &mut Arena) {
        if !self.is_damaged {
            let was_there = self.tree.remove(arena, &self.key);
            self.is_damaged = is_other(was_there, true);
        }
    }

    /// Sees to it that an insertion, or, of a key of so many bytes, a removal, can be taken back until
    /// [`end_undo`](Self::end_undo).
    pub(super) fn expect_undo(&mut self, arena: &mut Arena, removed: Option<usize>) -> Result<()> {
        self.check_sound()?;
        if self.undo == 0 {
            arena.prepare_undoable(self.change_bytes(arena) + SCOPE_BYTES_MIN)?;
            let held = self.tree.hold_pages(arena, HEIGHT_USUAL);
            self.undo = self.asked(held)?;
        }
        let Some(key_bytes) = removed else {
            arena.prepare_undoable(UNDO_BYTES)?;
            return Ok(());
        };
        arena.prepare_undoable(UNDO_BYTES + 2 * key_bytes)?;
        // Who puts back what was there, and takes out what came instead, fills no more pages than there
        // were, but they may be a third full, and of long keys a few fill one.
        self.undo_bytes += key_bytes + ENTRY_BYTES;
        let pages = match key_bytes {
            ..=SHORT_KEY_BYTES => (3 * self.undo_bytes / PAGE_BYTES) as u32,
            _ => 2,
        };
        if pages > 0 {
            self.undo_bytes = 0;
            let held = self.tree.hold_pages(arena, pages);
            self.undo += self.asked(held)?;
        }
        Ok(())
    }

    /// Lets go of the pages that were kept for taking changes back: because they stay, or are about to be
    /// taken back.
    pub(super) fn end_undo(&mut self) {
        self.tree.let_go(std::mem::take(&mut self.undo));
        self.undo_bytes = 0;
    }

    /// Keeps pages for adding the key at hand, once that is decided.
    pub(super) fn prepare(&mut self, arena: &mut Arena) -> Result<()> {
        self.check_sound()?;
        arena.prepare_beside(self.change_bytes(arena))?;
        let base = if self.changes == 0 { HEIGHT_USUAL } else { 0 };
        let held = self.tree.hold_pages(arena, base + pages_of(self.key.len()));
        self.prepared += self.asked(held)?;
        self.changes += 1;
        Ok(())
    }

    /// Adds the key at hand, for which pages were kept, or, if it is not to be, lets go of them.
    pub(super) fn conclude(&mut self, arena: &mut Arena, is_added: bool) {
        let pages = pages_of(self.key.len());
        self.changes = self.changes.saturating_sub(1);
        let rest = match self.changes {
            0 => 0,
            _ => self.prepared.saturating_sub(pages),
        };
        self.tree.let_go(std::mem::take(&mut self.prepared));
        if is_added {
            self.insert(arena);
        }
        // What was kept beyond the pages of each change may have been used.
        let held = self.tree.hold_pages(arena, rest).or_else(|_| {
            let rest = rest.saturating_sub(HEIGHT_USUAL);
            self.tree.hold_pages(arena, rest)
        });
        self.prepared = held.unwrap_or_default();
    }

    /// Visits the keys of a range, in either direction.
    pub(in crate::table::record) fn scan(
        &self,
        arena: &Arena,
        (start, end): (&[u8], Option<&[u8]>),
        direction: Direction,
        mut visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.tree
            .scan(arena, start, end, direction, |key, _| visit(key))
            .map_err(|_| self.damaged())
    }

    /// Keys in a range.
    pub(in crate::table::record) fn count(
        &self,
        arena: &Arena,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> Result<u64> {
        self.tree
            .count_range(arena, start, end)
            .map_err(|_| self.damaged())
    }

    pub(in crate::table::record) fn len(&self, arena: &Arena) -> Result<u64> {
        self.tree.len(arena).map_err(|_| self.damaged())
    }

    /// Looks at the tree itself.
    pub(in crate::table::record) fn check(&self, arena: &Arena) -> Result<TreeReport, Damaged> {
        self.tree.check(arena)
    }
}

/// Whether a change has met damage: a key was there, or not, against what it should be. What is missing for
/// a change was made sure of before: a shard in which it fails all the same cannot go on, and is whole again
/// when its file is opened.
fn is_other(was_there: Result<bool, TreeError>, expected: bool) -> bool {
    match was_there {
        Ok(was_there) => was_there != expected,
        Err(TreeError::Damaged(_)) => true,
        Err(error) => panic!("an ordered index cannot follow its records: {error}"),
    }
}

/// Pages that adding a key takes, beside those for splitting the root.
fn pages_of(key_bytes: usize) -> u32 {
    match key_bytes {
        ..=SHORT_KEY_BYTES => 2,
        _ => HEIGHT_USUAL,
    }
}
