//! Building a tree of sorted entries: from the left to the right, every page full.
//!
//! Entries are gathered until they fill a leaf, which is written once; its separator goes to the
//! branch above in the same way. None of it is part of the tree before the last page is written, so
//! a load that fails leaves the tree as it was.

use std::ops::Range;

use super::Tree;
use super::build::{Frame, Image, Item, Stored};
use super::error::{Damaged, TreeError};
use super::head::{self, Head, Place};
use super::insert::check_lengths;
use super::page::{CHAINED, ROOM, SLACK};
use super::pages;
use super::parts::Parts;
use super::remove::free_subtree;
use super::slot::Shape;
use super::space::{self, PageMut};
use super::value::{self, chain_pages};
use crate::arena::Arena;

/// Bytes that a loaded page has in use at most.
const FULL: usize = ROOM - SLACK;

impl Tree {
    /// Fills an empty tree with entries in ascending order of distinct keys; into a tree that is not
    /// empty they are inserted one by one, in any order. How many there were.
    ///
    /// If it fails for any reason but damage, a tree that was empty still is.
    pub(crate) fn load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        arena: &mut Arena,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64, TreeError> {
        let mut count = 0;
        if self.len(arena)? > 0 {
            for (key, value) in entries {
                self.insert(arena, key.as_ref(), value.as_ref())?;
                count += 1;
            }
            return Ok(count);
        }
        self.changed();
        let mut loader = Loader {
            place: self.place,
            levels: vec![Level::new(0)],
            last: Vec::new(),
            count: 0,
            pages: 0,
        };
        for (key, value) in entries {
            if let Err(error) = loader.add(arena, key.as_ref(), value.as_ref()) {
                loader.give_up(arena)?;
                return Err(error);
            }
        }
        count = loader.count;
        if count > 0 {
            // Of each level what waits, and what that pushes out above; and maybe a new root.
            let pages = 2 * loader.levels.len() + 2;
            let prepared = loader
                .prepare(arena, pages)
                .and_then(|()| pages::reserve(arena, self.place, pages as u32));
            if let Err(error) = prepared {
                loader.give_up(arena)?;
                return Err(error);
            }
            let (root, height) = loader.finish(arena)?;
            let old = Head::read(arena, self.place)?.root;
            head::set_root(arena, self.place, root, height)?;
            pages::free(arena, self.place, old)?;
            head::add_entries(arena, self.place, count.cast_signed())?;
        }
        Ok(count)
    }
}

/// The pages of each level that are being filled.
struct Loader {
    place: Place,
    levels: Vec<Level>,
    /// The key added last.
    last: Vec<u8>,
    count: u64,
    /// Pages that were taken, at most.
    pages: usize,
}

impl Loader {
    fn add(&mut self, arena: &mut Arena, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        check_lengths(key, value)?;
        if self.count > 0 && key <= self.last.as_slice() {
            return Err(TreeError::Unsorted { index: self.count });
        }
        let chain_pages = chain_pages(key.len(), value.len());
        let levels = self.levels.len() as u32;
        let taken = (chain_pages + levels + 1) as usize;
        self.prepare(arena, taken)?;
        pages::reserve(arena, self.place, taken as u32)?;
        let reference;
        let stored = if chain_pages > 0 {
            reference = value::write_chain(arena, self.place, value)?;
            Stored {
                head: CHAINED,
                bytes: &reference,
            }
        } else {
            Stored {
                head: value.len() as u16,
                bytes: value,
            }
        };
        if !self.levels[0].has_room(key, stored.bytes.len()) {
            let shared = Parts::whole(&self.last).common(&Parts::whole(key));
            self.flush(arena, 0)?;
            self.levels[0].separator = key[..=shared].to_vec();
        }
        self.levels[0].push(key, stored, 0);
        self.last.clear();
        self.last.extend_from_slice(key);
        self.count += 1;
        Ok(())
    }

    /// Makes room for the before-images of taking so many pages, and of freeing all that were taken.
    fn prepare(&mut self, arena: &mut Arena, taken: usize) -> Result<(), TreeError> {
        self.pages += taken;
        Ok(arena.prepare(space::log_bytes(1, taken, self.pages))?)
    }

    /// Writes the page of a level, and names it to the level above.
    fn flush(&mut self, arena: &mut Arena, level: usize) -> Result<(), Damaged> {
        let page = self.levels[level].write(arena, self.place)?;
        let separator = std::mem::take(&mut self.levels[level].separator);
        self.levels[level].clear();
        self.add_child(arena, level + 1, separator, page)
    }

    fn add_child(
        &mut self,
        arena: &mut Arena,
        level: usize,
        separator: Vec<u8>,
        child: u32,
    ) -> Result<(), Damaged> {
        if level == self.levels.len() {
            self.levels.push(Level::new(level));
        }
        let above = &self.levels[level];
        if above.first_child.is_some() {
            if above.has_room(&separator, 0) {
                self.levels[level].push(&separator, Stored::NONE, child);
                return Ok(());
            }
            self.flush(arena, level)?;
        }
        self.levels[level].first_child = Some(child);
        self.levels[level].separator = separator;
        Ok(())
    }

    /// Writes what is not full; the root and the tree's height.
    fn finish(&mut self, arena: &mut Arena) -> Result<(u32, usize), Damaged> {
        let mut level = 0;
        while level + 1 < self.levels.len() {
            self.flush(arena, level)?;
            level += 1;
        }
        let root = self.levels[level].write(arena, self.place)?;
        Ok((root, level + 1))
    }

    /// Frees all that was written.
    fn give_up(&mut self, arena: &mut Arena) -> Result<(), Damaged> {
        for level in &self.levels {
            for item in level.items() {
                if level.level == 0 {
                    value::free_chain(arena, self.place, item.value)?;
                } else {
                    free_subtree(arena, self.place, item.child, level.level - 1)?;
                }
            }
            if let Some(child) = level.first_child {
                free_subtree(arena, self.place, child, level.level - 1)?;
            }
        }
        Ok(())
    }
}

/// Entries that wait for their page.
struct Level {
    level: usize,
    /// What separates the page from the one before it.
    separator: Vec<u8>,
    /// Of a branch: the child before the first entry.
    first_child: Option<u32>,
    /// Keys and values, one behind the other.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    key_bytes: usize,
    /// The shortest key.
    key_bytes_min: usize,
}

struct Entry {
    key: Range<usize>,
    value: Range<usize>,
    value_head: u16,
    child: u32,
}

impl Level {
    fn new(level: usize) -> Self {
        Self {
            level,
            separator: Vec::new(),
            first_child: None,
            bytes: Vec::new(),
            entries: Vec::new(),
            key_bytes: 0,
            key_bytes_min: usize::MAX,
        }
    }

    fn push(&mut self, key: &[u8], stored: Stored<'_>, child: u32) {
        let start = self.bytes.len();
        let middle = start + key.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(stored.bytes);
        self.entries.push(Entry {
            key: start..middle,
            value: middle..self.bytes.len(),
            value_head: stored.head,
            child,
        });
        self.key_bytes += key.len();
        self.key_bytes_min = self.key_bytes_min.min(key.len());
    }

    fn items(&self) -> Vec<Item<'_>> {
        let item = |entry: &Entry| Item {
            key: Parts::whole(&self.bytes[entry.key.clone()]),
            value: Stored {
                head: entry.value_head,
                bytes: &self.bytes[entry.value.clone()],
            },
            child: entry.child,
        };
        self.entries.iter().map(item).collect()
    }

    /// Whether one more entry fits the page.
    fn has_room(&self, key: &[u8], value_bytes: usize) -> bool {
        let Some(first) = self.entries.first() else {
            return true;
        };
        let first = Parts::whole(&self.bytes[first.key.clone()]);
        let prefix = first.common(&Parts::whole(key));
        let count = self.entries.len() + 1;
        let shape = Shape {
            is_leaf: self.level == 0,
        };
        let fixed = shape.fixed_bytes();
        let values = self.bytes.len() - self.key_bytes + value_bytes;
        // What is beyond the prefix and the slot's head; simple where that is some of every key.
        let in_head = prefix + shape.head_bytes();
        let tails = if self.key_bytes_min.min(key.len()) >= in_head {
            self.key_bytes + key.len() - count * in_head
        } else {
            let lengths = self.entries.iter().map(|entry| entry.key.len());
            let tails = lengths
                .chain([key.len()])
                .map(|bytes| shape.tail_bytes(bytes - prefix));
            tails.sum()
        };
        prefix.next_multiple_of(8) + count * fixed + values + tails <= FULL
    }

    fn write(&self, arena: &mut Arena, place: Place) -> Result<u32, Damaged> {
        let (page, delta) = pages::allocate(arena, place)?;
        let frame = Frame {
            stamp: place.stamp,
            level: self.level,
            first_child: self.first_child.unwrap_or(0),
            delta,
            hint: 0,
        };
        Image::new(frame, &self.items()).write(&mut PageMut::open(arena, page)?);
        Ok(page)
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.first_child = None;
        self.key_bytes = 0;
        self.key_bytes_min = usize::MAX;
    }
}
