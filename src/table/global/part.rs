//! The globals of one shard: an ordered tree in its arena.
//!
//! # Damage
//! What a damaged file says is refused where it is met ([`Error::Damaged`]); a change that meets it
//! may have been done in part, so from then on all changes are refused, and what can be read is read.
//!
//! # Transactions
//! What is to be put back if a transaction fails needs pages, as does what was decided about one:
//! those are kept free from before the change or the decision on.

mod tidy;

use std::ops::ControlFlow;

use super::{GlobalLog, Routing, Strings};
use crate::arena::{Arena, Entry};
use crate::collation::Number;
use crate::error::{ArenaFull, Error, Result};
use crate::id::ShardIndex;
use crate::limits::PAGE_BYTES;
use crate::table::PartName;
use crate::tree::{Damaged, Direction, Packing, Seek, Tree, TreeError, TreeName, Value};

/// Which of the owner's trees: it has one.
pub(super) const TREE: u32 = 0;

/// Bytes beside key and value that an entry takes of a page, at most.
const ENTRY_BYTES: usize = 32;
/// Levels of a tree, and as many pages more, as a root may be split.
const HEIGHT_USUAL: u32 = 12;
/// A branch has room for so many separators of this length that it is split at most once where its
/// leaves are split several times.
const UNDONE_KEY_BYTES: usize = 256;
/// Before-images of putting one node back, but for new pages.
const UNDO_BYTES: usize = 768;

/// A shard's part of a set of globals.
pub(crate) struct GlobalPart {
    tree: Tree,
    name: PartName,
    shard: ShardIndex,
    routing: Routing,
    /// A change has met damage.
    is_damaged: bool,
    /// Pages that are kept for taking back what a transaction in this shard has done.
    undo_pages: u32,
    /// A value on its way.
    value: Vec<u8>,
    /// How far the nodes have been brought together, while that is under way.
    packing: Option<Packing>,
}

/// A range of keys: from `start` to below `end`, or to the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'a> {
    pub(crate) start: &'a [u8],
    pub(crate) end: Option<&'a [u8]>,
}

impl GlobalPart {
    /// No nodes yet.
    pub(crate) fn new(
        arena: &mut Arena,
        name: PartName,
        shard: ShardIndex,
        routing: Routing,
    ) -> Result<Self, ArenaFull> {
        let owner = name.serial;
        let made = Tree::new(arena, TreeName { owner, tree: TREE });
        match made {
            Ok(tree) => Ok(Self::at(tree, name, (shard, routing))),
            Err(TreeError::ArenaFull(full)) => Err(full),
            Err(error) => unreachable!("an empty tree was refused: {error}"),
        }
    }

    fn at(tree: Tree, name: PartName, (shard, routing): (ShardIndex, Routing)) -> Self {
        Self {
            tree,
            name,
            shard,
            routing,
            is_damaged: false,
            undo_pages: 0,
            value: Vec::new(),
            packing: None,
        }
    }

    /// The part that extents of an opened arena hold, or what is wrong with them.
    pub(crate) fn open(
        arena: &Arena,
        name: PartName,
        shard: ShardIndex,
        routing: Routing,
        extents: &[Entry],
    ) -> Result<Self, String> {
        let owner = name.serial;
        let tree = Tree::of_extents(arena, TreeName { owner, tree: TREE }, extents)?;
        Ok(Self::at(tree, name, (shard, routing)))
    }

    /// Gives all memory back.
    pub(crate) fn release(self, arena: &mut Arena) {
        // What damage keeps from going back is found without an owner when the arena is opened again.
        let _ = self.tree.release(arena);
    }

    pub(crate) fn serial(&self) -> u32 {
        self.name.serial
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(super) fn routing(&self) -> Routing {
        self.routing
    }

    pub(crate) fn shard(&self) -> ShardIndex {
        self.shard
    }

    /// Nodes.
    pub(crate) fn len(&self, arena: &Arena) -> Result<u64> {
        self.read(self.tree.len(arena))
    }

    /// Bytes of the arena.
    pub(crate) fn bytes(&self, arena: &Arena) -> Result<u64> {
        self.read(self.tree.bytes(arena))
    }

    fn damaged(&self) -> Error {
        Error::Damaged { shard: self.shard }
    }

    /// What was read, or that it is damaged.
    fn read<T>(&self, read: Result<T, Damaged>) -> Result<T> {
        read.map_err(|_| self.damaged())
    }

    /// What became of a change.
    fn changed<T>(&mut self, changed: Result<T, TreeError>) -> Result<T> {
        changed.map_err(|error| match error {
            TreeError::ArenaFull(full) => Error::ArenaFull(full),
            TreeError::ValueTooLong { bytes } => Error::ValueTooLong { bytes },
            TreeError::KeyTooLong { .. } | TreeError::Unsorted { .. } | TreeError::Damaged(_) => {
                self.is_damaged = true;
                self.damaged()
            }
        })
    }

    /// Whether changes are taken.
    pub(crate) fn check_writable(&self, arena: &Arena) -> Result<()> {
        arena.check_writable()?;
        if self.is_damaged {
            return Err(self.damaged());
        }
        Ok(())
    }

    /// Looks at the value of a key.
    #[inline]
    pub(crate) fn get<T>(
        &self,
        arena: &Arena,
        key: &[u8],
        look: impl FnOnce(Option<&[u8]>) -> T,
    ) -> Result<T> {
        match self.read(self.tree.get(arena, key))? {
            None => Ok(look(None)),
            Some(value) => self.with_value(value, |value| look(Some(value))),
        }
    }

    /// Lends a value in one piece.
    #[inline(always)]
    fn with_value<T>(&self, value: Value<'_>, look: impl FnOnce(&[u8]) -> T) -> Result<T> {
        match value.inline() {
            Some(bytes) => Ok(look(bytes)),
            None => self.read(value.to_vec()).map(|bytes| look(&bytes)),
        }
    }

    /// Looks at the values of some keys.
    #[inline]
    pub(crate) fn get_each(
        &self,
        arena: &Arena,
        keys: &[&[u8]],
        mut visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let mut failure = None;
        let read = self.tree.get_each(arena, keys, |at, value| match value {
            None => visit(at, None),
            Some(value) => {
                let visited = self.with_value(value, |value| visit(at, Some(value)));
                if let Err(error) = visited {
                    failure.get_or_insert(error);
                }
            }
        });
        self.read(read)?;
        failure.map_or(Ok(()), Err)
    }

    /// Sets a node; says whether it had a value before.
    #[inline]
    pub(crate) fn set(&mut self, arena: &mut Arena, key: &[u8], value: &[u8]) -> Result<bool> {
        let done = self.tree.insert(arena, key, value);
        self.changed(done)
    }

    /// Sets some nodes, each for itself; the first error, if there is one.
    #[inline]
    pub(crate) fn set_each(&mut self, arena: &mut Arena, entries: &[(&[u8], &[u8])]) -> Result<()> {
        let mut failure = None;
        let done = self.tree.insert_each(arena, entries, |_, done| {
            if let Err(error) = done {
                failure.get_or_insert(error);
            }
        });
        self.changed(done.map_err(TreeError::from))?;
        self.changed(failure.map_or(Ok(()), Err))
    }

    /// Removes one node; says whether it was there.
    pub(crate) fn remove(&mut self, arena: &mut Arena, key: &[u8]) -> Result<bool> {
        let done = self.tree.remove(arena, key);
        self.changed(done)
    }

    /// Removes a range of nodes; says how many there were.
    pub(crate) fn remove_span(&mut self, arena: &mut Arena, span: Span<'_>) -> Result<u64> {
        let done = self.tree.remove_range(arena, span.start, span.end);
        self.changed(done)
    }

    /// Adds to the number that a node is worth; the sum's text is left in `text`.
    pub(crate) fn sum(
        &self,
        arena: &Arena,
        key: &[u8],
        by: Number,
        text: &mut Vec<u8>,
    ) -> Result<Number> {
        let worth = self.get(arena, key, |value| {
            Number::of_value(value.unwrap_or_default())
        })?;
        let sum = worth?.plus(by)?;
        text.clear();
        sum.write(text);
        Ok(sum)
    }

    /// Nodes in a range.
    pub(crate) fn count(&self, arena: &Arena, span: Span<'_>) -> Result<u64> {
        self.read(self.tree.count_range(arena, span.start, span.end))
    }

    /// Finds the first key at or behind a place, within a range; written into `key`.
    pub(crate) fn first(&self, arena: &Arena, span: Span<'_>, key: &mut Vec<u8>) -> Result<bool> {
        let found = self.tree.find(arena, Seek::AtLeast(span.start), key);
        let found = self.read(found)?.is_some();
        Ok(found && span.end.is_none_or(|end| key.as_slice() < end))
    }

    /// Finds the last key of a range; written into `key`.
    pub(crate) fn last(&self, arena: &Arena, span: Span<'_>, key: &mut Vec<u8>) -> Result<bool> {
        let to = span.end.map_or(Seek::Last, Seek::Below);
        let found = self.read(self.tree.find(arena, to, key))?.is_some();
        Ok(found && key.as_slice() >= span.start)
    }

    /// Visits a range, in either direction.
    pub(crate) fn scan(
        &self,
        arena: &Arena,
        span: Span<'_>,
        direction: Direction,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut failure = None;
        let visit = |key: &[u8], value: Value<'_>| {
            let visited = self.with_value(value, |value| visit(key, value));
            visited.unwrap_or_else(|error| {
                failure = Some(error);
                ControlFlow::Break(())
            })
        };
        self.read(
            self.tree
                .scan(arena, span.start, span.end, direction, visit),
        )?;
        failure.map_or(Ok(()), Err)
    }

    /// Writes keys and values of a range in turn, as long as they are not too many; whether those are
    /// all.
    pub(crate) fn collect(
        &self,
        arena: &Arena,
        span: Span<'_>,
        direction: Direction,
        (nodes_max, bytes_max): (usize, usize),
        found: &mut Strings,
    ) -> Result<bool> {
        let mut is_all = true;
        self.scan(arena, span, direction, |key, value| {
            if found.len() >= 2 * nodes_max || found.bytes() >= bytes_max {
                is_all = false;
                return ControlFlow::Break(());
            }
            found.push(key);
            found.push(value);
            ControlFlow::Continue(())
        })?;
        Ok(is_all)
    }

    /// Notes a node as it is, before it is given another value of so many bytes or, with `None`, is
    /// removed.
    pub(crate) fn note(
        &mut self,
        arena: &mut Arena,
        (log, table): (&mut GlobalLog, u32),
        key: &[u8],
        new_bytes: Option<usize>,
    ) -> Result<()> {
        let mut value = std::mem::take(&mut self.value);
        value.clear();
        let is_there = self.get(arena, key, |old| {
            value.extend_from_slice(old.unwrap_or_default());
            old.is_some()
        });
        let noted = is_there.and_then(|is_there| {
            let old = is_there.then_some(&value[..]);
            reserve(log, arena, 1, key.len() + value.len())?;
            arena.prepare_undoable(UNDO_BYTES + 2 * value.len())?;
            // What is no shorter makes room for what was there.
            let fits_again = new_bytes.is_some_and(|new| {
                key.len() + new.max(value.len()) <= PAGE_BYTES / 4 && new >= value.len()
            });
            if is_there && !fits_again {
                let pages = match key.len() {
                    ..=UNDONE_KEY_BYTES => 2,
                    _ => HEIGHT_USUAL,
                };
                self.hold_to_undo(arena, pages + (value.len() / PAGE_BYTES * 2) as u32)?;
            }
            log.note(table, key, old);
            Ok(())
        });
        self.value = value;
        noted
    }

    /// Notes all nodes of a range, before they are removed.
    pub(crate) fn note_span(
        &mut self,
        arena: &mut Arena,
        (log, table): (&mut GlobalLog, u32),
        span: Span<'_>,
    ) -> Result<()> {
        let (mut nodes, mut bytes) = (0, 0);
        self.scan(arena, span, Direction::Forward, |key, value| {
            nodes += 1;
            bytes += key.len() + value.len();
            ControlFlow::Continue(())
        })?;
        if nodes == 0 {
            return Ok(());
        }
        reserve(log, arena, nodes, bytes)?;
        arena.prepare_undoable(UNDO_BYTES * nodes + 2 * bytes)?;
        // Pages are a third full at least, or hold a part of a long value.
        let pages = 3 * (bytes + ENTRY_BYTES * nodes) / PAGE_BYTES;
        self.hold_to_undo(arena, pages as u32)?;
        self.scan(arena, span, Direction::Forward, |key, value| {
            log.note(table, key, Some(value));
            ControlFlow::Continue(())
        })
    }

    /// Keeps pages for putting back what was noted, beside those that the last insertion of all asks
    /// for.
    fn hold_to_undo(&mut self, arena: &mut Arena, pages: u32) -> Result<()> {
        let base = if self.undo_pages == 0 {
            HEIGHT_USUAL
        } else {
            0
        };
        let held = self.tree.hold_pages(arena, base + pages);
        self.undo_pages += self.changed(held)?;
        Ok(())
    }

    /// Lets go of the pages that were kept for taking changes back: because they stay, or are about to be
    /// taken back.
    pub(crate) fn end_undo(&mut self) {
        self.tree.let_go(std::mem::take(&mut self.undo_pages));
    }

    /// Puts a node back as it was.
    pub(crate) fn put_back(
        &mut self,
        arena: &mut Arena,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        match value {
            Some(value) => self.set(arena, key, value).map(drop),
            None => self.remove(arena, key).map(drop),
        }
    }

    /// Keeps pages for a node that will be set, whatever comes before.
    pub(crate) fn hold(&mut self, arena: &mut Arena, key: &[u8], value: &[u8]) -> Result<u32> {
        let held = self.tree.hold(arena, key.len(), value.len());
        self.changed(held)
    }

    /// Lets go of pages that were kept.
    pub(crate) fn let_go(&mut self, pages: u32) {
        self.tree.let_go(pages);
    }
}

/// Makes room in the log, which is in the shard's heap.
fn reserve(log: &mut GlobalLog, arena: &Arena, nodes: usize, bytes: usize) -> Result<()> {
    log.reserve(nodes, bytes).map_err(|asked| {
        Error::ArenaFull(ArenaFull {
            asked_bytes: asked as u64,
            used_bytes: arena.used_bytes(),
            bound_bytes: arena.bound_bytes(),
            is_disk: false,
        })
    })
}
