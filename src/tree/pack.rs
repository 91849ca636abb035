//! Bringing a tree together, in small steps between which others work: leaves are filled from those behind
//! them, then pages leave the extents that lie highest, which go back to the arena.
//!
//! # Steps
//! 1. From the first leaf to the last, each takes entries of its right neighbour under the same branch, until it
//!    is nearly full; a neighbour that fits goes.
//! 2. Of the extents, the lowest that have room for all pages are kept; see [`settle`](super::settle) for how
//!    pages leave the others.
//!
//! Each step leaves a sound tree, and goes on from a key: whatever others do meanwhile. What they put where
//! the steps have been stays as it is.

use super::Tree;
use super::build::{Frame, Image, Item, bytes_of, in_order_around};
use super::error::{Damaged, TreeError};
use super::head::Place;
use super::page::{ROOM, SLACK, View};
use super::parts::Parts;
use super::path::{self, Path};
use super::remove::{merge, tidy};
use super::settle::Settling;
use super::space::{self, PageMut};
use crate::arena::Arena;
use crate::limits::PAGE_BYTES;

/// A leaf with as many bytes in use is left alone.
const FULL_FROM: usize = ROOM / 4 * 3;
/// Bytes in use of a leaf that was filled.
const FILLED_MAX: usize = ROOM / 16 * 15;

/// What looking at a leaf that stays costs, in bytes moved.
pub(super) const LOOK_BYTES: usize = 256;

/// How far a tree has been brought together.
pub(crate) enum Packing {
    /// Leaves from this key on are to be filled.
    Filling(Vec<u8>),
    /// Pages leave extents.
    Settling(Settling),
}

/// What became of a leaf.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filled {
    /// It has all entries of its neighbour, which is gone.
    All,
    /// It has some of them.
    Some,
    Nothing,
}

impl Packing {
    pub(crate) fn new() -> Self {
        Self::Filling(Vec::new())
    }
}

impl Tree {
    /// Takes a step: about how many bytes were moved, or nothing, if that was the last one. An error but for
    /// damage leaves all as it was.
    pub(crate) fn pack(
        &mut self,
        arena: &mut Arena,
        packing: &mut Packing,
    ) -> Result<Option<usize>, TreeError> {
        match packing {
            Packing::Filling(from) => {
                let step = self.fill(arena, from)?;
                if step.is_some() {
                    return Ok(step);
                }
                *packing = Packing::Settling(Settling::plan(arena, self.place)?);
                Ok(Some(LOOK_BYTES))
            }
            Packing::Settling(settling) => self.settle(arena, settling),
        }
    }

    /// Fills the leaf of a key, or goes on to the next one.
    fn fill(&mut self, arena: &mut Arena, from: &mut Vec<u8>) -> Result<Option<usize>, TreeError> {
        let place = self.place;
        let mut path = Path::new();
        let leaf = path::descend(arena, place, from, &mut path)?;
        let Some(step) = path.steps().last().copied() else {
            return Ok(None);
        };
        let left = usize::from(step.child);
        let mut filled = Filled::Nothing;
        if left < View::open(arena, step.page, place.stamp, 1)?.count() {
            let levels = path.steps().len() + 1;
            arena.prepare(space::log_bytes(levels, 1, levels + 1))?;
            filled = fill_leaf(arena, place, step.page, left)?;
        }
        if filled != Filled::Nothing {
            self.reshaped();
        }
        if filled == Filled::All {
            tidy(arena, place, leaf, path, true)?;
            return Ok(Some(3 * PAGE_BYTES));
        }
        if !go_on(arena, place, &path, from)? {
            return Ok(None);
        }
        Ok(Some(match filled {
            Filled::Nothing => LOOK_BYTES,
            _ => 3 * PAGE_BYTES,
        }))
    }

    /// Notes that entries are in other pages now.
    pub(super) fn reshaped(&mut self) {
        self.changed();
        self.shapes = self.shapes.wrapping_add(1);
    }
}

/// Takes a key to where the leaf at the end of a path ends; whether there is one behind it.
pub(super) fn go_on(
    arena: &Arena,
    place: Place,
    path: &Path,
    key: &mut Vec<u8>,
) -> Result<bool, Damaged> {
    let height = path.steps().len();
    for (depth, step) in path.steps().iter().enumerate().rev() {
        let branch = View::open(arena, step.page, place.stamp, height - depth)?;
        let child = usize::from(step.child);
        if child >= branch.count() {
            continue;
        }
        let mut next = Vec::with_capacity(key.len());
        branch.key(child)?.append_to(&mut next);
        if next <= *key {
            return branch.damaged("its separators are not in order");
        }
        *key = next;
        return Ok(true);
    }
    Ok(false)
}

/// Gives a leaf what it has room for of the leaf behind it.
fn fill_leaf(arena: &mut Arena, place: Place, branch: u32, left: usize) -> Result<Filled, Damaged> {
    if merge(arena, place, branch, 1, left)? {
        return Ok(Filled::All);
    }
    // The entries point into copies, as the pages are about to be written.
    let stamp = place.stamp;
    let parent_copy = *space::page(arena, branch)?;
    let parent = View::of(&parent_copy, branch, stamp, 1)?;
    let (left_page, right_page) = (parent.child(left), parent.child(left + 1));
    let (left_copy, right_copy) = (
        *space::page(arena, left_page)?,
        *space::page(arena, right_page)?,
    );
    let left_view = View::of(&left_copy, left_page, stamp, 0)?;
    let right_view = View::of(&right_copy, right_page, stamp, 0)?;
    if left_view.used() >= FULL_FROM {
        return Ok(Filled::Nothing);
    }
    let mut items = Vec::with_capacity(left_view.count() + right_view.count());
    Item::collect(&left_view, &mut items)?;
    let border = items.len();
    Item::collect(&right_view, &mut items)?;
    if border == 0 || border == items.len() {
        return parent.damaged("one of its children has no entries");
    }
    if !in_order_around(&items, border - 1..border + 1) {
        return parent.damaged("the keys of two of its children are not in ascending order");
    }
    let at = filled_point(&items, border);
    if at == border || bytes_of(&items[at..], true) > ROOM {
        return Ok(Filled::Nothing);
    }
    let mut separator = vec![0; items[at - 1].key.common(&items[at].key) + 1];
    items[at].key.copy(0, &mut separator);
    let mut separators = Vec::new();
    Item::collect(&parent, &mut separators)?;
    separators[left].key = Parts::whole(&separator);
    if !in_order_around(&separators, left.saturating_sub(1)..left + 2) {
        return parent.damaged("one of its children has keys beyond its separators");
    }
    if bytes_of(&separators, false) + SLACK > ROOM {
        return Ok(Filled::Nothing);
    }
    for (view, items) in [
        (&left_view, &items[..at]),
        (&right_view, &items[at..]),
        (&parent, &separators[..]),
    ] {
        let frame = Frame {
            stamp,
            level: usize::from(!view.is_leaf),
            first_child: if view.is_leaf { 0 } else { view.child(0) },
            delta: view.delta(),
            hint: 0,
        };
        let mut page = PageMut::open(arena, view.number)?;
        Image::new(frame, items).replace(&mut page, view.slots_end(), view.counts.heap);
    }
    Ok(Filled::Some)
}

/// How many entries a leaf gets that had the first `border` of them; the one behind it keeps some.
fn filled_point(items: &[Item<'_>], border: usize) -> usize {
    let (mut low, mut high) = (border, items.len() - 1);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if bytes_of(&items[..middle], true) <= FILLED_MAX {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}
