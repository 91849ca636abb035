//! An ordered tree of byte strings in a shard's arena: the ordered store, and ordered indexes.
//!
//! # Shape
//! A B+tree (Bayer and McCreight 1972; Comer, Computing Surveys 1979) of 4 KiB pages. Leaves hold
//! keys and values in order, branches hold separators: the shortest byte strings that tell two
//! neighbouring leaves apart (Bayer and Unterauer, TODS 1977). Of the keys of a page, what all have in
//! common is stored once, and the next four bytes lie in an array beside each other (Graefe and
//! Larson, ICDE 2001), where most searches end. See `page` for the bytes.
//!
//! ```text
//! Tree (handle) -> head -> root branch -> ... -> leaf -> chain of pages, for a long value
//!                  first page of the first extent
//! ```
//! Pages are named by their number in the arena, so a tree is the same wherever the arena is
//! mapped. The handle holds the number of the head's page and nothing else that lasts:
//! [`Tree::open`] is all it takes to have a tree back.
//!
//! # Limits
//! Keys have at most [`KEY_BYTES_MAX`](crate::limits::KEY_BYTES_MAX) bytes, values 16 MiB; both may be
//! empty. A value lies in its leaf if the entry takes less than half a page, else in pages of its own.
//!
//! # Changes
//! One owner changes a tree; there are no locks. Memory is asked for before anything is changed, so
//! a change that is refused has not happened. Every byte that changes is told to the arena, so that
//! a scope can be undone and redone: an insertion into a page with room tells of the slots that move,
//! the new cell, and two words. When the arena has undone a scope, [`Tree::undone`] must be told.
//!
//! # Damage
//! Nothing read from a page is trusted: offsets are checked against the page, page numbers against
//! the arena, kinds, levels and the tree's stamp against what is expected. Damage gives [`Damaged`],
//! never a panic, an endless loop or a wrong access. [`Tree::check`] looks at everything.
//!
//! # What is absent on purpose
//! Links between leaves: a scan knows the branches above it, which also tells it early which leaf
//! comes next; and splitting a page never touches a third one. Redistribution between neighbours, but
//! where a tree is brought together (`pack`). Latches.

mod batch;
mod build;
mod check;
mod cursor;
mod edit;
mod error;
mod head;
mod hint;
mod insert;
mod load;
mod pack;
mod page;
mod pages;
mod parts;
mod path;
mod remove;
mod report;
mod salvage;
mod scan;
mod search;
mod settle;
mod slot;
mod space;
mod value;

#[cfg(test)]
mod test;
#[cfg(test)]
mod trace;

use crate::arena::{Arena, Entry, ExtentKind};
use build::Image;
pub(crate) use check::TreeReport;
pub(crate) use cursor::{Cursor, Seek};
pub(crate) use error::{Damaged, TreeError};
pub(crate) use head::TreeName;
use head::{Head, Place};
pub(crate) use pack::Packing;
use page::View;
pub(crate) use report::TreeSpace;
pub(crate) use salvage::salvage;
pub(crate) use scan::Direction;
use search::Start;
use space::PageMut;
pub(crate) use value::Value;

/// A handle to an ordered tree.
pub(crate) struct Tree {
    place: Place,
    /// How often entries came or went since the handle was made: tells cursors whether the place that
    /// they remember is still right.
    changes: u64,
    /// How often pages were made or went: tells a batch whether the leaves that it has found are right.
    shapes: u64,
}

impl Tree {
    /// Makes an empty tree.
    pub(crate) fn new(arena: &mut Arena, name: TreeName) -> Result<Self, TreeError> {
        arena.prepare(space::log_bytes(1, 1, 0))?;
        let place = pages::create(arena, name)?;
        let (root, delta) = pages::allocate(arena, place)?;
        let image = Image::new(remove::leaf_frame(place, delta), &[]);
        image.write(&mut PageMut::open(arena, root)?);
        head::set_root(arena, place, root, 1)?;
        Ok(Self::at(place))
    }

    fn at(place: Place) -> Self {
        Self {
            place,
            changes: 0,
            shapes: 0,
        }
    }

    /// The tree whose head is in this page.
    pub(crate) fn open(arena: &Arena, head: u32) -> Result<Self, Damaged> {
        let name = Head::name(arena, head)?;
        let stamp = name.stamp();
        let place = Place {
            head,
            name,
            stamp,
            held: 0,
        };
        let read = Head::read(arena, place)?;
        pages::Header::read(arena, head, stamp)?;
        View::open(arena, read.root, stamp, read.height - 1)?;
        Ok(Self::at(place))
    }

    /// The tree of this name among the extents of an opened arena, of which it has all; or what is wrong with
    /// them.
    pub(crate) fn of_extents(
        arena: &Arena,
        name: TreeName,
        extents: &[Entry],
    ) -> Result<Self, String> {
        let is_head =
            |entry: &&Entry| entry.use_.kind == ExtentKind::Tree && entry.use_.detail == 0;
        let mut heads = extents.iter().filter(is_head);
        let (Some(head), None) = (heads.next(), heads.next()) else {
            return Err("a tree has no head, or several".to_owned());
        };
        let page = (head.extent.offset / crate::limits::PAGE_BYTES as u64) as u32;
        let tree = Self::open(arena, page).map_err(|damaged| damaged.to_string())?;
        if tree.name() != name {
            return Err("the head of a tree is another one's".to_owned());
        }
        Ok(tree)
    }

    /// The page by which the tree can be opened again.
    pub(crate) fn head(&self) -> u32 {
        self.place.head
    }

    /// What the tree belongs to.
    pub(crate) fn name(&self) -> TreeName {
        self.place.name
    }

    /// Gives all memory back, extent by extent; the scope may end between two.
    pub(crate) fn release(self, arena: &mut Arena) -> Result<(), Damaged> {
        pages::release_all(arena, self.place)
    }

    /// Keeps as many pages for one more change as the insertion of a value needs at most, whatever
    /// others do before it: [`let_go`](Self::let_go) of them before that change. Also makes room for
    /// its before-images, if it happens in the scope at hand. How many pages are kept.
    pub(crate) fn hold(
        &mut self,
        arena: &mut Arena,
        key_bytes: usize,
        value_bytes: usize,
    ) -> Result<u32, TreeError> {
        let height = Head::read(arena, self.place)?.height as u32;
        // One more level, by others, and a root above it.
        let pages = height + 3 + value::chain_pages(key_bytes, value_bytes);
        self.hold_pages(arena, pages)
    }

    /// Keeps some pages; how many.
    pub(crate) fn hold_pages(&mut self, arena: &mut Arena, pages: u32) -> Result<u32, TreeError> {
        pages::reserve(arena, self.place, pages)?;
        self.place.held += pages;
        Ok(pages)
    }

    /// Before-images that removing one key and adding another one, both without long values, may need.
    pub(crate) fn change_bytes(&self, arena: &Arena) -> usize {
        let height = Head::read(arena, self.place).map_or(page::HEIGHT_MAX, |head| head.height);
        space::log_bytes(2 * height + 2, 0, height)
    }

    /// Lets go of pages that were kept.
    pub(crate) fn let_go(&mut self, pages: u32) {
        debug_assert!(pages <= self.place.held);
        self.place.held = self.place.held.saturating_sub(pages);
    }

    /// Notes that the arena has taken changes back: cursors find their places anew.
    pub(crate) fn undone(&mut self) {
        self.changed();
    }

    fn changed(&mut self) {
        self.changes = self.changes.wrapping_add(1);
    }

    /// Entries.
    pub(crate) fn len(&self, arena: &Arena) -> Result<u64, Damaged> {
        Ok(Head::read(arena, self.place)?.entries)
    }

    /// Bytes of the arena that the tree has.
    pub(crate) fn bytes(&self, arena: &Arena) -> Result<u64, Damaged> {
        let pages = Head::read(arena, self.place)?.pages;
        Ok(u64::from(pages) * crate::limits::PAGE_BYTES as u64)
    }

    /// The value of a key.
    #[inline]
    pub(crate) fn get<'a>(
        &self,
        arena: &'a Arena,
        key: &[u8],
    ) -> Result<Option<Value<'a>>, Damaged> {
        let leaf = path::leaf_of(arena, self.place, key)?;
        self.get_in(arena, leaf, leaf.start(key), key)
    }

    #[inline(always)]
    fn get_in<'a>(
        &self,
        arena: &'a Arena,
        leaf: View<'a>,
        start: Start,
        key: &[u8],
    ) -> Result<Option<Value<'a>>, Damaged> {
        let Some(index) = leaf.find_from(start, key)? else {
            return Ok(None);
        };
        Value::of(arena, self.place.stamp, &leaf, leaf.cell(index)?).map(Some)
    }

    /// Whether there is a value under a key.
    #[inline]
    pub(crate) fn contains(&self, arena: &Arena, key: &[u8]) -> Result<bool, Damaged> {
        let leaf = path::leaf_of(arena, self.place, key)?;
        Ok(leaf.find(key)?.is_some())
    }

    /// The key that is sought, written into `key`, and its value.
    pub(crate) fn find<'a>(
        &self,
        arena: &'a Arena,
        to: Seek<'_>,
        key: &mut Vec<u8>,
    ) -> Result<Option<Value<'a>>, Damaged> {
        let found = cursor::locate(arena, self.place, to, &mut path::Path::new())?;
        let Some((page, index)) = found else {
            return Ok(None);
        };
        let leaf = View::open(arena, page, self.place.stamp, 0)?;
        key.clear();
        leaf.key(index)?.append_to(key);
        Value::of(arena, self.place.stamp, &leaf, leaf.cell(index)?).map(Some)
    }
}
