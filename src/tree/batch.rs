//! Many keys at once, their memory asked for in time.
//!
//! A group of keys goes down together, level by level: while what one level's search reads next is on
//! its way for all of them, none waits. Of a page, the first lines are asked for; then the rest of the
//! slots; then the cells that only comparing can tell apart; in the leaf at last the cell of the value.
//!
//! Insertions of a group go on from the leaves that were found for it, until one of them has to split
//! a leaf; those behind it find their leaves, whose memory is there, once more.

use super::Tree;
use super::error::{Damaged, TreeError};
use super::head::Head;
use super::insert::check_lengths;
use super::page::View;
use super::search::{AHEAD_BYTES, Start};
use super::space;
use super::value::Value;
use crate::arena::Arena;

/// Keys that go down together.
const GROUP: usize = 16;

/// Bytes of a cell that are asked for.
const CELL_BYTES: usize = 64;

/// A key on its way down: its page, and where in it the key would be.
#[derive(Clone, Copy)]
struct Stop<'a> {
    view: View<'a>,
    start: Start,
}

impl Tree {
    /// Looks for many keys; `visit` is told of each in turn.
    pub(crate) fn get_each<K: AsRef<[u8]>>(
        &self,
        arena: &Arena,
        keys: &[K],
        mut visit: impl FnMut(usize, Option<Value<'_>>),
    ) -> Result<(), Damaged> {
        for (group, keys) in keys.chunks(GROUP).enumerate() {
            let stops = self.descend_each(arena, keys)?;
            for (stop, key) in stops.iter().zip(keys) {
                stop.view
                    .prefetch_value(stop.start, key.as_ref(), CELL_BYTES);
            }
            for (at, (stop, key)) in stops.iter().zip(keys).enumerate() {
                let value = self.get_in(arena, stop.view, stop.start, key.as_ref())?;
                visit(group * GROUP + at, value);
            }
        }
        Ok(())
    }

    /// Inserts many entries in turn; `done` is told of each, as [`Tree::insert`] would tell.
    pub(crate) fn insert_each<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        arena: &mut Arena,
        entries: &[(K, V)],
        mut done: impl FnMut(usize, Result<bool, TreeError>),
    ) -> Result<(), Damaged> {
        let stamp = self.place.stamp;
        for (group, entries) in entries.chunks(GROUP).enumerate() {
            let keys: [&[u8]; GROUP] = std::array::from_fn(|at| match entries.get(at) {
                Some((key, _)) => key.as_ref(),
                None => &[],
            });
            let stops = self.descend_each(arena, &keys[..entries.len()])?;
            for stop in &stops[..entries.len()] {
                stop.view.prefetch_equal(stop.start);
            }
            let leaves = stops.map(|stop| stop.view.number);
            let shapes = self.shapes;
            for (at, (key, value)) in entries.iter().enumerate() {
                let (key, value) = (key.as_ref(), value.as_ref());
                let leaf = leaves[at];
                let mut result = Ok(None);
                if self.shapes == shapes && check_lengths(key, value).is_ok() {
                    // Slots may have moved since, the leaf has not.
                    let found = View::open(arena, leaf, stamp, 0)?.search(key)?;
                    result = self.insert_here(arena, leaf, found, key, value);
                }
                let result = match result {
                    Ok(Some(replaced)) => Ok(replaced),
                    Ok(None) => self.insert(arena, key, value),
                    Err(error) => Err(error),
                };
                done(group * GROUP + at, result);
            }
        }
        Ok(())
    }

    /// Finds the leaves of a group of keys, and where in them they would be.
    #[inline(always)]
    fn descend_each<'a, K: AsRef<[u8]>>(
        &self,
        arena: &'a Arena,
        keys: &[K],
    ) -> Result<[Stop<'a>; GROUP], Damaged> {
        let stamp = self.place.stamp;
        let head = Head::read(arena, self.place)?;
        let root = View::open(arena, head.root, stamp, head.height - 1)?;
        let start = Start::NOWHERE;
        let mut stops = [Stop { view: root, start }; GROUP];
        let mut pages = [head.root; GROUP];
        if head.height > 1 {
            // The root is in the cache, or will be after the first key.
            for (page, key) in pages.iter_mut().zip(keys) {
                *page = root.child(root.child_index(key.as_ref())?);
                space::prefetch(arena, *page, AHEAD_BYTES);
            }
        }
        for level in (1..head.height - 1).rev() {
            for (stop, page) in stops.iter_mut().zip(&pages[..keys.len()]) {
                stop.view = View::branch(arena, *page, stamp, level)?;
                stop.view.prefetch_slots();
            }
            for (stop, key) in stops.iter_mut().zip(keys) {
                stop.start = stop.view.prefetch_equal(stop.view.start(key.as_ref()));
            }
            for ((stop, page), key) in stops.iter().zip(&mut pages).zip(keys) {
                let found = stop.view.search_from(stop.start, key.as_ref())?;
                *page = stop.view.child(found.index + usize::from(found.exact));
                space::prefetch(arena, *page, AHEAD_BYTES);
            }
        }
        for (stop, page) in stops.iter_mut().zip(&pages[..keys.len()]) {
            stop.view = View::open(arena, *page, stamp, 0)?;
            stop.view.prefetch_slots();
        }
        for (stop, key) in stops.iter_mut().zip(keys) {
            stop.start = stop.view.start(key.as_ref());
        }
        Ok(stops)
    }
}
