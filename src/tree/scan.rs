//! Ranges of keys: visited in either direction, and counted.

use std::ops::ControlFlow;

use super::Tree;
use super::cursor::{Seek, check_order, locate, neighbour};
use super::error::Damaged;
use super::head::Head;
use super::page::View;
use super::path::Path;
use super::value::Value;
use crate::arena::Arena;

/// The order in which a range is visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From small keys to large ones.
    Forward,
    /// From large keys to small ones.
    Backward,
}

impl Tree {
    /// Visits the keys from `start` to below `end` (or to the last one) with their values, until
    /// `visit` breaks.
    pub(crate) fn scan(
        &self,
        arena: &Arena,
        start: &[u8],
        end: Option<&[u8]>,
        direction: Direction,
        visit: impl FnMut(&[u8], Value<'_>) -> ControlFlow<()>,
    ) -> Result<(), Damaged> {
        match direction {
            Direction::Forward => self.scan_forward(arena, start, end, visit),
            Direction::Backward => self.scan_backward(arena, start, end, visit),
        }
    }

    fn scan_forward(
        &self,
        arena: &Arena,
        start: &[u8],
        end: Option<&[u8]>,
        mut visit: impl FnMut(&[u8], Value<'_>) -> ControlFlow<()>,
    ) -> Result<(), Damaged> {
        let place = self.place;
        let mut path = Path::new();
        let (mut key, mut is_later) = (Vec::new(), false);
        let mut at = locate(arena, place, Seek::AtLeast(start), &mut path)?;
        while let Some((page, first)) = at {
            let leaf = View::open(arena, page, place.stamp, 0)?;
            if is_later {
                check_order(&leaf, first, &key, true)?;
            }
            is_later = true;
            let to = below(&leaf, end)?;
            key.clear();
            key.extend_from_slice(leaf.prefix());
            for index in first..to {
                let parts = leaf.key(index)?;
                key.truncate(leaf.prefix_bytes);
                key.extend_from_slice(parts.head());
                key.extend_from_slice(parts.tail);
                let value = Value::of(arena, place.stamp, &leaf, leaf.cell(index)?)?;
                if visit(&key, value).is_break() {
                    return Ok(());
                }
            }
            if to < leaf.count() {
                return Ok(());
            }
            let next = neighbour(arena, place, &mut path, true)?;
            at = next.map(|page| (page, 0));
        }
        Ok(())
    }

    fn scan_backward(
        &self,
        arena: &Arena,
        start: &[u8],
        end: Option<&[u8]>,
        mut visit: impl FnMut(&[u8], Value<'_>) -> ControlFlow<()>,
    ) -> Result<(), Damaged> {
        let place = self.place;
        let mut path = Path::new();
        let (mut key, mut is_later) = (Vec::new(), false);
        let mut at = locate(arena, place, end.map_or(Seek::Last, Seek::Below), &mut path)?;
        while let Some((page, last)) = at {
            let leaf = View::open(arena, page, place.stamp, 0)?;
            if is_later {
                check_order(&leaf, last, &key, false)?;
            }
            is_later = true;
            let from = leaf.search(start)?.index;
            key.clear();
            key.extend_from_slice(leaf.prefix());
            for index in (from..=last).rev() {
                let parts = leaf.key(index)?;
                key.truncate(leaf.prefix_bytes);
                key.extend_from_slice(parts.head());
                key.extend_from_slice(parts.tail);
                let value = Value::of(arena, place.stamp, &leaf, leaf.cell(index)?)?;
                if visit(&key, value).is_break() {
                    return Ok(());
                }
            }
            if from > 0 {
                return Ok(());
            }
            let Some(page) = neighbour(arena, place, &mut path, false)? else {
                return Ok(());
            };
            let leaf = View::open(arena, page, place.stamp, 0)?;
            let Some(last) = leaf.count().checked_sub(1) else {
                return leaf.damaged("it has no entries");
            };
            at = Some((page, last));
        }
        Ok(())
    }

    /// How many keys there are from `start` to below `end` (or to the last one). Of leaves within the
    /// range only the header is read.
    pub(crate) fn count_range(
        &self,
        arena: &Arena,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> Result<u64, Damaged> {
        if end.is_some_and(|end| end <= start) {
            return Ok(0);
        }
        let head = Head::read(arena, self.place)?;
        let mut pages = u64::from(head.pages);
        let bounds = (Some(start), end);
        self.count_page(arena, head.root, head.height - 1, bounds, &mut pages)
    }

    fn count_page(
        &self,
        arena: &Arena,
        page: u32,
        level: usize,
        (start, end): (Option<&[u8]>, Option<&[u8]>),
        pages: &mut u64,
    ) -> Result<u64, Damaged> {
        let view = View::open(arena, page, self.place.stamp, level)?;
        // In a damaged tree, a page may be reached many times.
        *pages = match pages.checked_sub(1) {
            Some(rest) => rest,
            None => return view.damaged("more pages are reached than the tree has"),
        };
        if level == 0 {
            let from = start.map_or(Ok(0), |start| view.search(start).map(|found| found.index))?;
            return Ok(below(&view, end)?.saturating_sub(from) as u64);
        }
        let first = start.map_or(Ok(0), |start| view.child_index(start))?;
        let last = match end {
            Some(end) => view.search(end)?.index,
            None => view.count(),
        };
        let mut count = 0;
        for child in first..=last {
            let start = start.filter(|_| child == first);
            let end = end.filter(|_| child == last);
            let bounds = (start, end);
            count += self.count_page(arena, view.child(child), level - 1, bounds, pages)?;
        }
        Ok(count)
    }
}

/// The first entry of a leaf that is not below `end`.
fn below(leaf: &View<'_>, end: Option<&[u8]>) -> Result<usize, Damaged> {
    match end {
        Some(end) => Ok(leaf.search(end)?.index),
        None => Ok(leaf.count()),
    }
}
