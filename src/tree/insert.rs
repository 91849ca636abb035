//! Adding and replacing entries, and splitting pages that are full.
//!
//! # Where a page is split
//! In the middle, by bytes, moved a little to where the separator is short; but where a run of
//! insertions goes upwards (or downwards), at the place of the run, so that the pages behind it are
//! left full. A page that gains enough by a longer prefix, or by dropping garbage, is rewritten
//! instead.

use super::Tree;
use super::build::{Frame, Image, Item, Stored, bytes_of, in_order_around, prefix_of, split_point};
use super::edit::{self, Payload, Spot};
use super::error::{Damaged, TreeError};
use super::head::{self, Head, Place};
use super::hint::Hint;
use super::page::{CHAINED, ROOM, SLACK, View};
use super::pages;
use super::parts::Parts;
use super::path::{self, Path};
use super::search::Found;
use super::space::{self, PageMut};
use super::value::{self, chain_pages};
use crate::arena::Arena;
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Entries from which on a page is split rather than rewritten for the last few bytes.
const ENTRIES_SMALL: usize = 16;
/// The part of a page that rewriting must gain then.
const GAIN: usize = ROOM / 16;
/// Insertions in a row that make a run at a page's edge, and within a page.
const RUN_AT_EDGE: i16 = 4;
const RUN_WITHIN: i16 = 8;

impl Tree {
    /// Puts a value under a key; whether there was one before.
    ///
    /// If it fails for any reason but damage, nothing has changed.
    pub(crate) fn insert(
        &mut self,
        arena: &mut Arena,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, TreeError> {
        check_lengths(key, value)?;
        let place = self.place;
        let mut path = Path::new();
        let leaf = path::descend(arena, place, key, &mut path)?;
        let leaf_view = View::open(arena, leaf, place.stamp, 0)?;
        let found = leaf_view.search(key)?;
        if let Some(replaced) = self.insert_here(arena, leaf, found, key, value)? {
            return Ok(replaced);
        }
        let spot = Spot {
            page: leaf,
            level: 0,
            index: found.index,
        };
        self.insert_slow(arena, key, value, found.exact, spot, path)
    }

    /// Puts a value into the leaf where it belongs, if that is all there is to do.
    #[inline(always)]
    pub(super) fn insert_here(
        &mut self,
        arena: &mut Arena,
        leaf: u32,
        found: Found,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<bool>, TreeError> {
        let place = self.place;
        if !value::is_inline(key.len(), value.len()) {
            return Ok(None);
        }
        arena.prepare(space::log_bytes(1, 0, 0))?;
        let spot = Spot {
            page: leaf,
            level: 0,
            index: found.index,
        };
        let stored = Stored {
            head: value.len() as u16,
            bytes: value,
        };
        if found.exact {
            let view = View::open(arena, leaf, place.stamp, 0)?;
            let is_chained = view.cell(found.index)?.head & CHAINED != 0;
            let is_done = !is_chained && edit::replace(arena, place, spot, stored)?;
            return Ok(is_done.then_some(true));
        }
        if !edit::add(arena, place, spot, key, Payload::Value(stored))? {
            return Ok(None);
        }
        self.changed();
        head::add_entries(arena, place, 1)?;
        Ok(Some(false))
    }

    /// Puts a value for which the leaf has to be changed in more than one place, or more than it.
    fn insert_slow(
        &mut self,
        arena: &mut Arena,
        key: &[u8],
        value: &[u8],
        exact: bool,
        spot: Spot,
        path: Path,
    ) -> Result<bool, TreeError> {
        let place = self.place;
        let chain_pages = chain_pages(key.len(), value.len());
        let (mut old, mut old_head) = ([0; 8], 0);
        if exact {
            let view = View::open(arena, spot.page, place.stamp, 0)?;
            let cell = view.cell(spot.index)?;
            old_head = cell.head;
            if old_head & CHAINED != 0 {
                old.copy_from_slice(&view.bytes[cell.value]);
            }
        }
        let old = Stored {
            head: old_head,
            bytes: &old,
        };
        pages::check_chain(arena, place, spot.page, old.chain_pages())?;
        let levels = path.steps().len() + 2;
        let log_bytes = space::log_bytes(levels, chain_pages as usize, old.chain_pages());
        arena.prepare(log_bytes)?;
        pages::reserve(arena, place, chain_pages + levels as u32)?;
        let reference;
        let stored = if chain_pages > 0 {
            reference = value::write_chain(arena, place, value)?;
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
        self.put(arena, key, exact, stored, spot, path)?;
        value::free_chain(arena, place, old)?;
        Ok(exact)
    }

    /// Puts an entry into its leaf, splitting what is full. Enough pages are reserved.
    fn put(
        &mut self,
        arena: &mut Arena,
        key: &[u8],
        exact: bool,
        stored: Stored<'_>,
        spot: Spot,
        path: Path,
    ) -> Result<(), Damaged> {
        let place = self.place;
        if exact && edit::replace(arena, place, spot, stored)? {
            return Ok(());
        }
        self.changed();
        if !exact {
            head::add_entries(arena, place, 1)?;
            if edit::add(arena, place, spot, key, Payload::Value(stored))? {
                return Ok(());
            }
        }
        let item = Item {
            key: Parts::whole(key),
            value: stored,
            child: 0,
        };
        let edge = Edge::of(arena, place, &path)?;
        self.shapes = self.shapes.wrapping_add(1);
        let split = rewrite(arena, place, spot, item, exact, edge)?;
        match split {
            Some(split) => self.put_separator(arena, split, path, edge),
            None => Ok(()),
        }
    }

    /// Tells the branches above of a page that was split.
    fn put_separator(
        &mut self,
        arena: &mut Arena,
        mut split: Split,
        mut path: Path,
        edge: Edge,
    ) -> Result<(), Damaged> {
        let place = self.place;
        let mut level = 0;
        while let Some(step) = path.pop() {
            level += 1;
            let spot = Spot {
                page: step.page,
                level,
                index: usize::from(step.child),
            };
            let key = std::mem::take(&mut split.separator);
            if edit::add(arena, place, spot, &key, Payload::Child(split.right))? {
                return Ok(());
            }
            let item = Item {
                key: Parts::whole(&key),
                value: Stored::NONE,
                child: split.right,
            };
            match rewrite(arena, place, spot, item, false, edge)? {
                Some(further) => split = further,
                None => return Ok(()),
            }
        }
        grow(arena, place, &split)
    }
}

pub(super) fn check_lengths(key: &[u8], value: &[u8]) -> Result<(), TreeError> {
    if key.len() > KEY_BYTES_MAX {
        return Err(TreeError::KeyTooLong { bytes: key.len() });
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(TreeError::ValueTooLong { bytes: value.len() });
    }
    Ok(())
}

/// A page was split: the new one, and what separates it from the old one.
struct Split {
    separator: Vec<u8>,
    right: u32,
}

/// Whether a leaf is the first or the last one of its tree.
#[derive(Clone, Copy)]
struct Edge {
    is_first: bool,
    is_last: bool,
}

impl Edge {
    fn of(arena: &Arena, place: Place, path: &Path) -> Result<Self, Damaged> {
        let mut edge = Self {
            is_first: true,
            is_last: true,
        };
        let height = path.steps().len();
        for (depth, step) in path.steps().iter().enumerate() {
            let branch = View::open(arena, step.page, place.stamp, height - depth)?;
            edge.is_first &= step.child == 0;
            edge.is_last &= usize::from(step.child) == branch.count();
        }
        Ok(edge)
    }
}

/// Makes a page anew with an entry added or replaced; it becomes one page or two.
fn rewrite(
    arena: &mut Arena,
    place: Place,
    spot: Spot,
    item: Item<'_>,
    replaces: bool,
    edge: Edge,
) -> Result<Option<Split>, Damaged> {
    let copy = *space::page(arena, spot.page)?;
    let view = View::of(&copy, spot.page, place.stamp, spot.level)?;
    let is_leaf = spot.level == 0;
    let mut items = Vec::new();
    Item::collect(&view, &mut items)?;
    let mut hint = Hint::read(view.counts.hint);
    if replaces {
        items[spot.index] = item;
    } else {
        items.insert(spot.index, item);
        hint = hint.inserted(spot.index);
    }
    if !in_order_around(&items, spot.index.saturating_sub(1)..spot.index + 2) {
        return view.damaged("its keys are not in ascending order");
    }
    let gain = if items.len() < ENTRIES_SMALL { 0 } else { GAIN };
    let frame = Frame {
        stamp: place.stamp,
        level: spot.level,
        first_child: if is_leaf { 0 } else { view.child(0) },
        delta: view.delta(),
        hint: hint.to_u16(),
    };
    if bytes_of(&items, is_leaf) + gain + SLACK <= ROOM {
        let mut page = PageMut::open(arena, spot.page)?;
        Image::new(frame, &items).replace(&mut page, view.slots_end(), view.counts.heap);
        return Ok(None);
    }
    if items.len() < 2 {
        return view.damaged("it is full, and has no entries to be split");
    }
    let run = if replaces { 0 } else { hint.run };
    let at = run_point(&items, is_leaf, spot.index, run, edge)
        .unwrap_or_else(|| split_point(&items, is_leaf));
    let old = Old {
        number: spot.page,
        slots_end: view.slots_end(),
        heap: view.counts.heap,
    };
    let keeps_left = is_leaf && !replaces && at == spot.index && at + 1 == items.len();
    let hint = Hint { run, ..hint };
    split(arena, place, frame, &items, at, hint, old, keeps_left).map(Some)
}

/// Where to split a page into which a run of insertions goes, if one does.
fn run_point(
    items: &[Item<'_>],
    is_leaf: bool,
    index: usize,
    run: i16,
    edge: Edge,
) -> Option<usize> {
    let last = items.len() - 1;
    let within = RUN_WITHIN.max((items.len() / 4) as i16);
    let ascends = index == last && (run >= RUN_AT_EDGE || edge.is_last && run > 0);
    let descends = index == 0 && (run <= -RUN_AT_EDGE || edge.is_first && run < 0);
    let fits = |items: &[Item<'_>], room: usize| bytes_of(items, is_leaf) <= room;
    let at = if is_leaf {
        match () {
            () if ascends => index,
            // Without what comes behind the run, the page may have room for more of it.
            () if run >= within && fits(&items[..=index], ROOM / 8 * 7) => index + 1,
            () if run >= within => index,
            () if descends || run <= -within => index + 1,
            () => return None,
        }
    } else {
        match () {
            () if ascends => last.checked_sub(1)?,
            () if descends => 1,
            () => return None,
        }
    };
    let right = if is_leaf { at } else { at + 1 };
    let is_possible = at > 0 && at <= last;
    (is_possible && fits(&items[..at], ROOM) && fits(&items[right..], ROOM)).then_some(at)
}

/// What is in use of a page that is made anew.
struct Old {
    number: u32,
    slots_end: usize,
    heap: usize,
}

/// Makes two pages of a full one: the old one keeps `at` entries, and is left as it is if those are
/// all it has.
#[expect(
    clippy::too_many_arguments,
    reason = "one step of `rewrite`, apart for its length"
)]
fn split(
    arena: &mut Arena,
    place: Place,
    frame: Frame,
    items: &[Item<'_>],
    at: usize,
    hint: Hint,
    old: Old,
    keeps_left: bool,
) -> Result<Split, Damaged> {
    let is_leaf = frame.level == 0;
    let (right, delta) = pages::allocate(arena, place)?;
    let part = |start: usize, end: usize| {
        let is_here = (start..end).contains(&hint.position);
        let position = hint.position.wrapping_sub(start);
        let hint = if is_here {
            Hint { position, ..hint }
        } else {
            Hint {
                position: 0,
                run: 0,
            }
        };
        Frame {
            hint: hint.to_u16(),
            ..frame
        }
    };
    let (first, separator) = if is_leaf {
        let shared = items[at - 1].key.common(&items[at].key);
        let mut separator = vec![0; shared + 1];
        items[at].key.copy(0, &mut separator);
        (at, separator)
    } else {
        let mut separator = Vec::with_capacity(items[at].key.len());
        items[at].key.append_to(&mut separator);
        (at + 1, separator)
    };
    let frame = Frame {
        delta,
        first_child: if is_leaf { 0 } else { items[at].child },
        ..part(first, items.len())
    };
    // A single entry shares with those to come, more likely than all of its key, what it shares
    // with the one before it.
    let prefix = match &items[first..] {
        [one] => items[first - 1].key.common(&one.key),
        several => prefix_of(several),
    };
    let image = Image::with_prefix(frame, &items[first..], prefix, is_leaf);
    image.write(&mut PageMut::open(arena, right)?);
    if !keeps_left {
        let image = Image::new(part(0, at), &items[..at]);
        let mut page = PageMut::open(arena, old.number)?;
        image.replace(&mut page, old.slots_end, old.heap);
    }
    Ok(Split { separator, right })
}

/// Puts a new root above an old one that was split.
fn grow(arena: &mut Arena, place: Place, split: &Split) -> Result<(), Damaged> {
    let head = Head::read(arena, place)?;
    let (root, delta) = pages::allocate(arena, place)?;
    let frame = Frame {
        stamp: place.stamp,
        level: head.height,
        first_child: head.root,
        delta,
        hint: 0,
    };
    let item = Item {
        key: Parts::whole(&split.separator),
        value: Stored::NONE,
        child: split.right,
    };
    Image::new(frame, &[item]).write(&mut PageMut::open(arena, root)?);
    if head.height == super::page::HEIGHT_MAX {
        return Err(Damaged {
            page: place.head,
            what: "the tree is higher than any can be",
        });
    }
    head::set_root(arena, place, root, head.height + 1)
}
