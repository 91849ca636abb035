//! Removing entries, one or a range, and merging pages that have become small.
//!
//! A page that is less than a third full is merged with a neighbour under the same branch, if both
//! fit into seven eighths of a page; a leaf without entries goes. A neighbour that is too full is
//! left alone, so pages may be small beside full ones.
//!
//! A range is cut out of the tree: only the two leaves at its ends are changed entry by entry, what
//! lies between is freed page by page, and of leaves without long values only the header is read.

use super::Tree;
use super::build::{Frame, Image, Item, Stored, bytes_of, in_order_around};
use super::edit;
use super::error::{Damaged, TreeError};
use super::head::{self, Head, Place};
use super::page::{CHAINED, HAS_CHAINS, HEADER, ROOM, View};
use super::pages;
use super::path::{self, Path};
use super::space::{self, PageMut};
use super::value;
use crate::arena::Arena;

/// A page with fewer bytes in use is to be merged.
const MERGE_BELOW: usize = ROOM / 3;
/// Bytes of a merged page at most, so that it is not split again at once.
const MERGED_MAX: usize = ROOM / 8 * 7;

impl Tree {
    /// Removes a key; whether it was there. It needs no memory but for before-images.
    pub(crate) fn remove(&mut self, arena: &mut Arena, key: &[u8]) -> Result<bool, TreeError> {
        let place = self.place;
        let mut path = Path::new();
        let leaf = path::descend(arena, place, key, &mut path)?;
        let view = View::open(arena, leaf, place.stamp, 0)?;
        let Some(index) = view.find(key)? else {
            return Ok(false);
        };
        let chain = chain_of(&view, index)?;
        let chain_pages = chain
            .as_ref()
            .map_or(0, |chain| stored(chain).chain_pages());
        pages::check_chain(arena, place, leaf, chain_pages)?;
        let levels = path.steps().len() + 1;
        arena.prepare(space::log_bytes(levels, 1, chain_pages + levels + 1))?;
        self.changed();
        edit::remove(arena, place, leaf, 0, index..index + 1)?;
        head::add_entries(arena, place, -1)?;
        if let Some(chain) = chain {
            free_chain(arena, place, &chain)?;
        }
        tidy(arena, place, leaf, path, false)?;
        begin_anew(arena, place)?;
        Ok(true)
    }

    /// Removes all keys from `start` to below `end`, or to the last one; how many there were.
    pub(crate) fn remove_range(
        &mut self,
        arena: &mut Arena,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> Result<u64, TreeError> {
        if end.is_some_and(|end| end <= start) {
            return Ok(0);
        }
        let place = self.place;
        let head = Head::read(arena, place)?;
        if arena.is_logged() {
            let mut pages = Pages {
                reached: 0,
                reached_max: head.pages as usize,
                chains: 0,
            };
            pages.count(arena, place, head.root, head.height - 1, (Some(start), end))?;
            let freed = pages.reached + pages.chains;
            arena.prepare(space::log_bytes(2 * head.height + 2, 1, freed + 1))?;
        }
        self.changed();
        let cut = cut(arena, place, head.root, head.height - 1, Some(start), end)?;
        if cut.is_empty && head.height > 1 {
            // The root lost all its children; it becomes a leaf.
            let delta = View::open(arena, head.root, place.stamp, head.height - 1)?.delta();
            make_empty_leaf(arena, place, head.root, delta)?;
            head::set_root(arena, place, head.root, 1)?;
        }
        head::add_entries(arena, place, -(cut.removed.cast_signed()))?;
        let mut path = Path::new();
        for seam in [Some(start), end].into_iter().flatten() {
            let leaf = path::descend(arena, place, seam, &mut path)?;
            tidy(arena, place, leaf, path.clone(), true)?;
        }
        begin_anew(arena, place)?;
        Ok(cut.removed)
    }
}

/// The pages that a range reaches, of which it frees most.
struct Pages {
    reached: usize,
    reached_max: usize,
    /// Pages of long values.
    chains: usize,
}

impl Pages {
    fn count(
        &mut self,
        arena: &Arena,
        place: Place,
        page: u32,
        level: usize,
        (start, end): (Option<&[u8]>, Option<&[u8]>),
    ) -> Result<(), Damaged> {
        let view = View::open(arena, page, place.stamp, level)?;
        self.reached += 1;
        if self.reached > self.reached_max {
            return view.damaged("more pages are reached than the tree has");
        }
        if level == 0 {
            let chained = 0..if view.flags() & HAS_CHAINS != 0 {
                view.count()
            } else {
                0
            };
            for index in chained {
                self.chains += Item::of(&view, index)?.value.chain_pages();
            }
            if self.chains > self.reached_max {
                return view.damaged("its long values have more pages than the tree");
            }
            return Ok(());
        }
        let first = start.map_or(Ok(0), |start| view.child_index(start))?;
        let last = match end {
            Some(end) => view.search(end)?.index,
            None => view.count(),
        };
        for child in first..=last {
            let start = start.filter(|_| child == first);
            let end = end.filter(|_| child == last);
            self.count(arena, place, view.child(child), level - 1, (start, end))?;
        }
        Ok(())
    }
}

/// Moves the root of a tree without entries into the extent of the head, and gives all others back, but for
/// pages that are kept: an empty tree is as small as a new one.
fn begin_anew(arena: &mut Arena, place: Place) -> Result<(), Damaged> {
    let head = Head::read(arena, place)?;
    if head.entries > 0 || head.height > 1 {
        return Ok(());
    }
    if pages::is_astray(arena, place, head.root)? {
        move_root(arena, place, head.root)?;
    }
    // Each comes to an end: an extent is one less.
    while pages::release_empty(arena, place)? {}
    Ok(())
}

/// Moves the root, which has no entries, into the extent of the head.
fn move_root(arena: &mut Arena, place: Place, from: u32) -> Result<(), Damaged> {
    let (root, delta) = pages::allocate_in(arena, place, place.head)?;
    let image = Image::new(leaf_frame(place, delta), &[]);
    image.write(&mut PageMut::open(arena, root)?);
    head::set_root(arena, place, root, 1)?;
    pages::free(arena, place, from)
}

/// Writes a leaf without entries in the place of a page that is in use.
fn make_empty_leaf(
    arena: &mut Arena,
    place: Place,
    number: u32,
    delta: u16,
) -> Result<(), Damaged> {
    let image = Image::new(leaf_frame(place, delta), &[]);
    let mut page = PageMut::open(arena, number)?;
    image.replace(
        &mut page,
        crate::limits::PAGE_BYTES,
        crate::limits::PAGE_BYTES,
    );
    Ok(())
}

/// The frame of a leaf of which nothing is known yet.
pub(super) fn leaf_frame(place: Place, delta: u16) -> Frame {
    Frame {
        stamp: place.stamp,
        level: 0,
        first_child: 0,
        delta,
        hint: 0,
    }
}

/// The reference to an entry's chain, if it has one.
fn chain_of(view: &View<'_>, index: usize) -> Result<Option<[u8; 8]>, Damaged> {
    let cell = view.cell(index)?;
    if cell.head & CHAINED == 0 {
        return Ok(None);
    }
    let mut chain = [0; 8];
    chain.copy_from_slice(&view.bytes[cell.value]);
    Ok(Some(chain))
}

fn free_chain(arena: &mut Arena, place: Place, chain: &[u8; 8]) -> Result<(), Damaged> {
    value::free_chain(arena, place, stored(chain))?;
    Ok(())
}

/// What a cell holds of a long value.
fn stored(chain: &[u8; 8]) -> Stored<'_> {
    Stored {
        head: CHAINED,
        bytes: chain,
    }
}

/// Sees to the pages on the way to a leaf that has become smaller: from there upwards, what is empty
/// goes, and what is small is merged.
/// `to_root`: also where nothing was merged below, as after a range has gone.
pub(super) fn tidy(
    arena: &mut Arena,
    place: Place,
    leaf: u32,
    mut path: Path,
    to_root: bool,
) -> Result<(), Damaged> {
    let (mut page, mut level) = (leaf, 0);
    let mut is_gone = View::open(arena, leaf, place.stamp, 0)?.count() == 0;
    while let Some(step) = path.pop() {
        let child = usize::from(step.child);
        if is_gone {
            pages::free(arena, place, page)?;
            // A branch whose only child has gone goes, too; the root has more than one.
            is_gone = View::open(arena, step.page, place.stamp, level + 1)?.count() == 0;
            if !is_gone {
                edit::remove_children(arena, place, step.page, level + 1, child..child + 1)?;
            }
        } else {
            let is_small = View::open(arena, page, place.stamp, level)?.used() < MERGE_BELOW;
            let is_merged = is_small && merge_child(arena, place, step.page, level + 1, child)?;
            if !is_merged && !to_root {
                break;
            }
        }
        page = step.page;
        level += 1;
    }
    shrink(arena, place)
}

/// Takes roots off that have only one child.
fn shrink(arena: &mut Arena, place: Place) -> Result<(), Damaged> {
    loop {
        let head = Head::read(arena, place)?;
        if head.height == 1 {
            return Ok(());
        }
        let root = View::open(arena, head.root, place.stamp, head.height - 1)?;
        if root.count() > 0 {
            return Ok(());
        }
        let child = root.child(0);
        head::set_root(arena, place, child, head.height - 1)?;
        pages::free(arena, place, head.root)?;
    }
}

/// Merges a child of a branch with the one behind it or before it; whether one fitted.
fn merge_child(
    arena: &mut Arena,
    place: Place,
    branch: u32,
    level: usize,
    child: usize,
) -> Result<bool, Damaged> {
    let last = View::open(arena, branch, place.stamp, level)?.count();
    if child < last && merge(arena, place, branch, level, child)? {
        return Ok(true);
    }
    Ok(child > 0 && child <= last && merge(arena, place, branch, level, child - 1)?)
}

/// Merges two neighbouring children of a branch, if they fit; the right one goes.
pub(super) fn merge(
    arena: &mut Arena,
    place: Place,
    branch: u32,
    level: usize,
    left: usize,
) -> Result<bool, Damaged> {
    let parent = View::open(arena, branch, place.stamp, level)?;
    let (left_page, right_page) = (parent.child(left), parent.child(left + 1));
    if left_page == right_page {
        return parent.damaged("two of its children are one page");
    }
    let view = |page| View::open(arena, page, place.stamp, level - 1);
    let (left_view, right_view) = (view(left_page)?, view(right_page)?);
    if left_view.used() + right_view.used() > MERGED_MAX {
        return Ok(false);
    }
    // The entries point into copies, as the left page is about to be written.
    let parent_copy = *parent.bytes;
    let (left_copy, right_copy) = (*left_view.bytes, *right_view.bytes);
    let stamp = place.stamp;
    let parent = View::of(&parent_copy, branch, stamp, level)?;
    let left_view = View::of(&left_copy, left_page, stamp, level - 1)?;
    let right_view = View::of(&right_copy, right_page, stamp, level - 1)?;
    let is_leaf = level == 1;
    let mut items = Vec::with_capacity(left_view.count() + right_view.count() + 1);
    Item::collect(&left_view, &mut items)?;
    let border = items.len();
    if !is_leaf {
        items.push(Item {
            key: parent.key(left)?,
            value: Stored::NONE,
            child: right_view.child(0),
        });
    }
    Item::collect(&right_view, &mut items)?;
    if !in_order_around(&items, border.saturating_sub(1)..border + 2) {
        return parent.damaged("the keys of two of its children are not in ascending order");
    }
    if bytes_of(&items, is_leaf) > MERGED_MAX {
        return Ok(false);
    }
    let frame = Frame {
        stamp,
        level: level - 1,
        first_child: if is_leaf { 0 } else { left_view.child(0) },
        delta: left_view.delta(),
        hint: 0,
    };
    let mut page = PageMut::open(arena, left_page)?;
    Image::new(frame, &items).replace(&mut page, left_view.slots_end(), left_view.counts.heap);
    edit::remove(arena, place, branch, level, left..left + 1)?;
    pages::free(arena, place, right_page)?;
    Ok(true)
}

/// What was cut out of a part of the tree.
struct Cut {
    removed: u64,
    /// Nothing is left in the page; a branch is to be freed as it is.
    is_empty: bool,
}

/// Cuts the keys from `start` (or the first one) to below `end` (or to the last one) out of a page
/// and what is below it.
fn cut(
    arena: &mut Arena,
    place: Place,
    page: u32,
    level: usize,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> Result<Cut, Damaged> {
    if level == 0 {
        return cut_leaf(arena, place, page, start, end);
    }
    let branch = View::open(arena, page, place.stamp, level)?;
    let count = branch.count();
    let first = match start {
        Some(start) => branch.child_index(start)?,
        None => 0,
    };
    let last = match end {
        Some(end) => branch.search(end)?.index,
        None => count,
    };
    if first > last {
        return branch.damaged("its separators are not in order");
    }
    let children: Vec<u32> = (first..=last).map(|child| branch.child(child)).collect();
    let mut removed = 0;
    // Children of which nothing is left: all between the first and the last, and maybe those.
    let mut gone = first + 1..last;
    for (at, &child) in children.iter().enumerate() {
        let (is_first, is_last) = (at == 0, at == children.len() - 1);
        let start = start.filter(|_| is_first);
        let end = end.filter(|_| is_last);
        if start.is_none() && end.is_none() {
            removed += free_subtree(arena, place, child, level - 1)?;
        } else {
            let cut = cut(arena, place, child, level - 1, start, end)?;
            removed += cut.removed;
            if !cut.is_empty {
                continue;
            }
            free_page(arena, place, child, level - 1)?;
        }
        if is_first {
            gone.start = first;
        }
        if is_last {
            gone.end = last + 1;
        }
    }
    // Where the first one stays and is the last one, too, nothing goes.
    let gone = gone.start..gone.end.max(gone.start);
    let is_empty = gone == (0..count + 1);
    if !is_empty {
        edit::remove_children(arena, place, page, level, gone)?;
    }
    Ok(Cut { removed, is_empty })
}

fn cut_leaf(
    arena: &mut Arena,
    place: Place,
    page: u32,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> Result<Cut, Damaged> {
    let leaf = View::open(arena, page, place.stamp, 0)?;
    let count = leaf.count();
    let from = match start {
        Some(start) => leaf.search(start)?.index,
        None => 0,
    };
    let to = match end {
        Some(end) => leaf.search(end)?.index,
        None => count,
    };
    if from > to {
        return leaf.damaged("its keys are not in order");
    }
    let mut chains = Vec::new();
    if leaf.flags() & HAS_CHAINS != 0 {
        for index in from..to {
            chains.extend(chain_of(&leaf, index)?);
        }
    }
    edit::remove(arena, place, page, 0, from..to)?;
    for chain in &chains {
        free_chain(arena, place, chain)?;
    }
    Ok(Cut {
        removed: (to - from) as u64,
        is_empty: to - from == count,
    })
}

/// Frees a page that nothing is left of.
fn free_page(arena: &mut Arena, place: Place, page: u32, level: usize) -> Result<(), Damaged> {
    // That it is a page of this level keeps a damaged tree from freeing something else.
    View::open(arena, page, place.stamp, level)?;
    pages::free(arena, place, page)
}

/// Frees a page and all below it; how many entries there were.
pub(super) fn free_subtree(
    arena: &mut Arena,
    place: Place,
    page: u32,
    level: usize,
) -> Result<u64, Damaged> {
    let view = View::open(arena, page, place.stamp, level)?;
    let mut removed = 0;
    if level == 0 {
        removed = view.count() as u64;
        if view.flags() & HAS_CHAINS != 0 {
            cut_leaf(arena, place, page, None, None)?;
        }
    } else {
        let children: Vec<u32> = (0..=view.count()).map(|child| view.child(child)).collect();
        for &child in &children {
            space::prefetch(arena, child, HEADER);
        }
        for child in children {
            removed += free_subtree(arena, place, child, level - 1)?;
        }
    }
    pages::free(arena, place, page)?;
    Ok(removed)
}
