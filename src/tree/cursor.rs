//! A place in the order of keys, which outlives changes.
//!
//! A cursor holds the key that it stands on, and where that was found. Nothing is borrowed between
//! its calls: if entries came or went meanwhile, it finds its key's place anew, so that it goes on
//! to the next key that is there *then*. It never gives a key twice, nor keys out of order, and
//! keys that are there all the time are all given.

use super::Tree;
use super::error::Damaged;
use super::head::{Head, Place};
use super::page::View;
use super::parts::Parts;
use super::path::Path;
use super::space;
use super::value::Value;
use crate::arena::Arena;
use crate::limits::PAGE_BYTES;

/// Where to go in the order of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seek<'k> {
    /// To the first key.
    First,
    /// To the last key.
    Last,
    /// To the smallest key that is this one or above it.
    AtLeast(&'k [u8]),
    /// To the smallest key above this one.
    Above(&'k [u8]),
    /// To the largest key that is this one or below it.
    AtMost(&'k [u8]),
    /// To the largest key below this one.
    Below(&'k [u8]),
}

impl Seek<'_> {
    fn is_forward(self) -> bool {
        matches!(self, Self::First | Self::AtLeast(_) | Self::Above(_))
    }
}

/// A place in the order of a tree's keys; see the module.
pub(crate) struct Cursor {
    path: Path,
    leaf: u32,
    index: usize,
    key: Vec<u8>,
    /// Whether the cursor is on a key.
    is_on: bool,
    /// The tree's count of changes when the place was found.
    changes: u64,
}

impl Cursor {
    /// A cursor that is on no key yet.
    pub(crate) fn new() -> Self {
        Self {
            path: Path::new(),
            leaf: 0,
            index: 0,
            key: Vec::new(),
            is_on: false,
            changes: 0,
        }
    }

    /// The key that the cursor is on.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.is_on.then_some(&self.key)
    }

    /// The value of the key that the cursor is on, unless the key was removed meanwhile.
    pub(crate) fn value<'a>(
        &self,
        tree: &Tree,
        arena: &'a Arena,
    ) -> Result<Option<Value<'a>>, Damaged> {
        if !self.is_on {
            return Ok(None);
        }
        if self.changes != tree.changes {
            return tree.get(arena, &self.key);
        }
        let stamp = tree.place.stamp;
        let leaf = View::open(arena, self.leaf, stamp, 0)?;
        if self.index >= leaf.count() {
            return leaf.damaged("it has fewer entries than a moment ago");
        }
        Value::of(arena, stamp, &leaf, leaf.cell(self.index)?).map(Some)
    }

    /// Goes to a key; whether there is one. If not, the cursor is on none.
    pub(crate) fn seek(
        &mut self,
        tree: &Tree,
        arena: &Arena,
        to: Seek<'_>,
    ) -> Result<bool, Damaged> {
        self.is_on = false;
        self.changes = tree.changes;
        let found = locate(arena, tree.place, to, &mut self.path)?;
        let Some((leaf, index)) = found else {
            return Ok(false);
        };
        self.stand(arena, tree.place, leaf, index)
    }

    /// Goes to the next key; whether there is one. If not, the cursor stays, and may go on when there
    /// is one. On no key, it goes to the first one.
    pub(crate) fn next(&mut self, tree: &Tree, arena: &Arena) -> Result<bool, Damaged> {
        self.step(tree, arena, true)
    }

    /// Goes to the key before; whether there is one. If not, the cursor stays. On no key, it goes to
    /// the last one.
    pub(crate) fn previous(&mut self, tree: &Tree, arena: &Arena) -> Result<bool, Damaged> {
        self.step(tree, arena, false)
    }

    fn step(&mut self, tree: &Tree, arena: &Arena, forward: bool) -> Result<bool, Damaged> {
        if !self.is_on {
            return self.seek(tree, arena, if forward { Seek::First } else { Seek::Last });
        }
        if self.changes != tree.changes {
            let key = std::mem::take(&mut self.key);
            let to = if forward {
                Seek::Above(&key)
            } else {
                Seek::Below(&key)
            };
            let found = self.seek(tree, arena, to);
            if !matches!(found, Ok(true)) {
                // The place is to be found anew again, whatever the number of changes is then.
                self.key = key;
                self.is_on = true;
                self.changes = tree.changes.wrapping_sub(1);
            }
            return found;
        }
        let leaf = View::open(arena, self.leaf, tree.place.stamp, 0)?;
        let index = if forward {
            Some(self.index + 1).filter(|&index| index < leaf.count())
        } else {
            self.index.checked_sub(1)
        };
        if let Some(index) = index {
            return self.stand(arena, tree.place, self.leaf, index);
        }
        let mut path = self.path.clone();
        match neighbour(arena, tree.place, &mut path, forward)? {
            Some(leaf) => {
                let view = View::open(arena, leaf, tree.place.stamp, 0)?;
                let index = if forward {
                    0
                } else {
                    view.count().saturating_sub(1)
                };
                check_order(&view, index, &self.key, forward)?;
                self.path = path;
                self.stand(arena, tree.place, leaf, index)
            }
            None => Ok(false),
        }
    }

    /// Stands on an entry.
    fn stand(
        &mut self,
        arena: &Arena,
        place: Place,
        leaf: u32,
        index: usize,
    ) -> Result<bool, Damaged> {
        let view = View::open(arena, leaf, place.stamp, 0)?;
        if index >= view.count() {
            return view.damaged("it has fewer entries than a moment ago");
        }
        let key = view.key(index)?;
        self.key.clear();
        key.append_to(&mut self.key);
        (self.leaf, self.index, self.is_on) = (leaf, index, true);
        Ok(true)
    }
}

/// Whether the entry of another leaf comes after (or before) a key: without this, the pages of a
/// damaged tree could be gone through for ever.
pub(super) fn check_order(
    view: &View<'_>,
    index: usize,
    key: &[u8],
    forward: bool,
) -> Result<(), Damaged> {
    if index >= view.count() {
        return view.damaged("it has no entries");
    }
    let there = view.key(index)?;
    let here = Parts::whole(key);
    let is_right = if forward {
        here.precedes(&there)
    } else {
        there.precedes(&here)
    };
    if is_right {
        return Ok(());
    }
    view.damaged("its keys are not where the order of the tree has them")
}

/// Where a key is that is sought.
pub(super) fn locate(
    arena: &Arena,
    place: Place,
    to: Seek<'_>,
    path: &mut Path,
) -> Result<Option<(u32, usize)>, Damaged> {
    path.clear();
    let head = Head::read(arena, place)?;
    let mut page = head.root;
    for level in (1..head.height).rev() {
        let branch = View::branch(arena, page, place.stamp, level)?;
        let child = match to {
            Seek::First => 0,
            Seek::Last => branch.count(),
            Seek::AtLeast(key) | Seek::Above(key) | Seek::AtMost(key) => branch.child_index(key)?,
            Seek::Below(key) => branch.search(key)?.index,
        };
        path.push(page, child);
        page = branch.child(child);
    }
    let leaf = View::open(arena, page, place.stamp, 0)?;
    // The first entry that a forward search may give; backwards, the one behind it.
    let index = match to {
        Seek::First => 0,
        Seek::Last => leaf.count(),
        Seek::AtLeast(key) | Seek::Below(key) => leaf.search(key)?.index,
        Seek::Above(key) | Seek::AtMost(key) => {
            let found = leaf.search(key)?;
            found.index + usize::from(found.exact)
        }
    };
    let forward = to.is_forward();
    let here = if forward {
        Some(index).filter(|&index| index < leaf.count())
    } else {
        index.checked_sub(1)
    };
    if let Some(index) = here {
        return Ok(Some((page, index)));
    }
    let Some(page) = neighbour(arena, place, path, forward)? else {
        return Ok(None);
    };
    let leaf = View::open(arena, page, place.stamp, 0)?;
    let index = if forward {
        Some(0).filter(|_| leaf.count() > 0)
    } else {
        leaf.count().checked_sub(1)
    };
    match index {
        Some(index) => Ok(Some((page, index))),
        None => leaf.damaged("it has no entries"),
    }
}

/// The leaf behind (or before) the one that a path leads to; the path then leads there. The leaf
/// after that is asked for.
pub(super) fn neighbour(
    arena: &Arena,
    place: Place,
    path: &mut Path,
    forward: bool,
) -> Result<Option<u32>, Damaged> {
    let mut level = 0;
    let (mut page, mut child) = loop {
        let Some(step) = path.pop() else {
            return Ok(None);
        };
        level += 1;
        let branch = View::branch(arena, step.page, place.stamp, level)?;
        let child = usize::from(step.child);
        let next = if forward {
            Some(child + 1).filter(|&child| child <= branch.count())
        } else {
            child
                .checked_sub(1)
                .filter(|&child| child <= branch.count())
        };
        if let Some(next) = next {
            break (step.page, next);
        }
    };
    loop {
        let branch = View::branch(arena, page, place.stamp, level)?;
        path.push(page, child);
        page = branch.child(child);
        level -= 1;
        if level == 0 {
            let further = if forward {
                Some(child + 1).filter(|&child| child <= branch.count())
            } else {
                child.checked_sub(1)
            };
            if let Some(further) = further {
                space::prefetch(arena, branch.child(further), PAGE_BYTES);
            }
            return Ok(Some(page));
        }
        let below = View::open(arena, page, place.stamp, level)?;
        child = if forward { 0 } else { below.count() };
    }
}
