//! The way from the root to a leaf.

use super::error::Damaged;
use super::head::{Head, Place};
use super::page::{HEIGHT_MAX, View};
use super::search::AHEAD_BYTES;
use super::space;
use crate::arena::Arena;

/// Pages from the root down to a leaf, and which child each step took.
#[derive(Clone)]
pub(super) struct Path {
    steps: [Step; HEIGHT_MAX],
    depth: usize,
}

/// A branch on the way, and the child that was taken.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) page: u32,
    pub(super) child: u16,
}

impl Path {
    pub(super) fn new() -> Self {
        let nowhere = Step { page: 0, child: 0 };
        Self {
            steps: [nowhere; HEIGHT_MAX],
            depth: 0,
        }
    }

    /// The branches, from the root down.
    pub(super) fn steps(&self) -> &[Step] {
        &self.steps[..self.depth]
    }

    pub(super) fn clear(&mut self) {
        self.depth = 0;
    }

    #[inline(always)]
    pub(super) fn push(&mut self, page: u32, child: usize) {
        // A head says at most so many levels.
        debug_assert!(self.depth < HEIGHT_MAX);
        self.steps[self.depth] = Step {
            page,
            child: child as u16,
        };
        self.depth += 1;
    }

    /// The lowest branch, and its level.
    pub(super) fn pop(&mut self) -> Option<Step> {
        self.depth = self.depth.checked_sub(1)?;
        Some(self.steps[self.depth])
    }
}

/// Goes down to the leaf that a key belongs to, and notes the way.
#[inline(always)]
pub(super) fn descend(
    arena: &Arena,
    place: Place,
    key: &[u8],
    path: &mut Path,
) -> Result<u32, Damaged> {
    path.clear();
    let head = Head::read(arena, place)?;
    let mut page = head.root;
    for level in (1..head.height).rev() {
        let branch = View::branch(arena, page, place.stamp, level)?;
        branch.prefetch_slots();
        let child = branch.child_index(key)?;
        path.push(page, child);
        page = branch.child(child);
        space::prefetch(arena, page, AHEAD_BYTES);
    }
    Ok(page)
}

/// Goes down to the leaf that a key belongs to.
#[inline(always)]
pub(super) fn leaf_of<'a>(arena: &'a Arena, place: Place, key: &[u8]) -> Result<View<'a>, Damaged> {
    let head = Head::read(arena, place)?;
    let mut page = head.root;
    for level in (1..head.height).rev() {
        let branch = View::branch(arena, page, place.stamp, level)?;
        branch.prefetch_slots();
        page = branch.child(branch.child_index(key)?);
        space::prefetch(arena, page, AHEAD_BYTES);
    }
    let leaf = View::open(arena, page, place.stamp, 0)?;
    leaf.prefetch_slots();
    Ok(leaf)
}
