//! What is whole of a tree that is not trusted: entries, taken from the leaves where they lie.
//!
//! No way from the root is needed. A page is a leaf of the tree if its extent says that it is in use or, where that
//! is damaged, if a branch names it; and if it is whole in itself. Its keys must be where a branch says, if one
//! names it, and no other leaf may have keys between them.

use std::collections::HashMap;

use super::Tree;
use super::build::{Item, Stored};
use super::error::Damaged;
use super::head::{Head, Place, TreeName};
use super::page::{Kind, View};
use super::pages::Header;
use super::space;
use super::value::Value;
use crate::arena::{Arena, Entry, ExtentKind};
use crate::limits::PAGE_BYTES;

/// Why something was left out.
const EXTENT: &str = "extents with a damaged list of their pages";
const PAGE: &str = "damaged pages";
const ASTRAY: &str = "pages whose keys are not where they should be";
const VALUE: &str = "nodes whose long value is damaged";

/// What a salvage is told: why something was left out, and how often.
pub(crate) type Lost<'a> = dyn FnMut(&'static str, u64) + 'a;

/// Where the keys of a page begin and end, as a branch says.
type Bounds = (Option<Vec<u8>>, Option<Vec<u8>>);

struct Leaf {
    first: Vec<u8>,
    last: Vec<u8>,
    page: u32,
}

struct Wreck<'a> {
    arena: &'a Arena,
    stamp: u32,
    /// Pages of the tree, and whether they are known to be in use.
    pages: Vec<(u32, bool)>,
    bounds: HashMap<u32, Vec<Bounds>>,
}

/// Visits the entries that are whole of the tree with this name, which has these extents; in order. How many.
pub(crate) fn salvage(
    arena: &Arena,
    name: TreeName,
    extents: &[Entry],
    lost: &mut Lost<'_>,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> u64 {
    let stamp = name.stamp();
    let mut wreck = Wreck {
        arena,
        stamp,
        pages: Vec::new(),
        bounds: HashMap::new(),
    };
    let trees = extents.iter();
    for entry in trees.filter(|entry| entry.use_.kind == ExtentKind::Tree) {
        wreck.list(entry, lost);
    }
    wreck.read_branches();
    let mut leaves = wreck.leaves(lost);
    leaves.sort_unstable_by(|one, other| one.first.cmp(&other.first));
    let (mut last, mut found): (Option<&Leaf>, u64) = (None, 0);
    for leaf in &leaves {
        if last.is_some_and(|last| last.last >= leaf.first) {
            lost(ASTRAY, 1);
            continue;
        }
        last = Some(leaf);
        // It was read before.
        let read = wreck.entries(leaf.page, |key, value| match value {
            Some(value) => {
                found += 1;
                visit(key, value);
            }
            None => lost(VALUE, 1),
        });
        if read.is_err() {
            lost(PAGE, 1);
        }
    }
    found
}

impl Tree {
    /// How many entries the tree with this head says that it has, if that can be.
    pub(crate) fn entries_said(arena: &Arena, name: TreeName, extents: &[Entry]) -> Option<u64> {
        let trees = extents.iter();
        let mut trees = trees.filter(|entry| entry.use_.kind == ExtentKind::Tree);
        let head = trees.find(|entry| entry.use_.detail == 0)?;
        let bytes: u64 = extents.iter().map(|entry| entry.extent.bytes).sum();
        let place = Place {
            head: (head.extent.offset / PAGE_BYTES as u64) as u32,
            name,
            stamp: name.stamp(),
            held: 0,
        };
        if Head::name(arena, place.head).ok()? != name {
            return None;
        }
        let said = Head::read(arena, place).ok()?.entries;
        // Each has a slot and a cell of ten bytes at least.
        Some(said).filter(|&said| said <= bytes / 10)
    }
}

impl Wreck<'_> {
    /// Notes the pages of an extent.
    fn list(&mut self, entry: &Entry, lost: &mut Lost<'_>) {
        let first = (entry.extent.offset / PAGE_BYTES as u64) as u32;
        let pages = (entry.extent.bytes / PAGE_BYTES as u64) as u32;
        let header = Header::read(self.arena, first, self.stamp);
        let sound = header.ok().filter(|header| {
            let used = (0..pages).filter(|&index| header.is_used(index));
            header.pages == pages && header.is_used(0) && used.count() as u32 == header.used
        });
        if sound.is_none() {
            lost(EXTENT, 1);
        }
        for index in 1..pages {
            match &sound {
                Some(header) if !header.is_used(index) => {}
                _ => self.pages.push((first + index, sound.is_some())),
            }
        }
    }

    /// The kind of a page.
    fn kind(&self, page: u32) -> u8 {
        space::page(self.arena, page).map_or(0, |bytes| bytes[0])
    }

    /// Notes where the leaves' keys are to be, by the branches above them that are whole.
    fn read_branches(&mut self) {
        for &(page, _) in &self.pages {
            let Ok(view) = View::open(self.arena, page, self.stamp, 1) else {
                continue;
            };
            let mut items = Vec::new();
            if Item::collect(&view, &mut items).is_err() {
                continue;
            }
            let key = |at: usize| {
                items.get(at).map(|item| {
                    let mut key = Vec::new();
                    item.key.append_to(&mut key);
                    key
                })
            };
            for child in 0..=items.len() {
                let low = child.checked_sub(1).and_then(key);
                let bounds = self.bounds.entry(view.child(child)).or_default();
                bounds.push((low, key(child)));
            }
        }
    }

    /// The leaves that are whole, and whose keys are where they should be.
    fn leaves(&self, lost: &mut Lost<'_>) -> Vec<Leaf> {
        let mut leaves = Vec::new();
        for &(page, is_used) in &self.pages {
            let bounds = self.bounds.get(&page);
            if !is_used && bounds.is_none() {
                continue;
            }
            let kind = self.kind(page);
            if kind == Kind::Branch as u8 || kind == Kind::Chain as u8 {
                continue;
            }
            match self.leaf(page) {
                Err(_) => lost(PAGE, 1),
                Ok(None) => {}
                Ok(Some(leaf)) => {
                    let fits = |(low, high): &Bounds| {
                        low.as_ref().is_none_or(|low| *low <= leaf.first)
                            && high.as_ref().is_none_or(|high| leaf.last < *high)
                    };
                    if bounds.is_none_or(|bounds| bounds.iter().any(fits)) {
                        leaves.push(leaf);
                    } else {
                        lost(ASTRAY, 1);
                    }
                }
            }
        }
        leaves
    }

    /// A leaf; none, if it has no entries.
    fn leaf(&self, page: u32) -> Result<Option<Leaf>, Damaged> {
        let view = View::open(self.arena, page, self.stamp, 0)?;
        let mut items = Vec::new();
        Item::collect(&view, &mut items)?;
        for index in 0..items.len() {
            if !view.is_printed(index)? {
                return view.damaged("the fingerprint of a key is another key's");
            }
        }
        let (Some(first), Some(last)) = (items.first(), items.last()) else {
            return Ok(None);
        };
        let key = |item: &Item<'_>| {
            let mut key = Vec::new();
            item.key.append_to(&mut key);
            key
        };
        let (first, last) = (key(first), key(last));
        Ok(Some(Leaf { first, last, page }))
    }

    /// Visits the entries of a leaf; those whose value is damaged without it.
    fn entries(
        &self,
        page: u32,
        mut visit: impl FnMut(&[u8], Option<&[u8]>),
    ) -> Result<(), Damaged> {
        let view = View::open(self.arena, page, self.stamp, 0)?;
        let mut key = Vec::new();
        for index in 0..view.count() {
            key.clear();
            view.key(index)?.append_to(&mut key);
            let cell = view.cell(index)?;
            let stored = Stored {
                head: cell.head,
                bytes: &view.bytes[cell.value.clone()],
            };
            if stored.chain_pages() > self.pages.len() {
                visit(&key, None);
                continue;
            }
            let value = Value::of(self.arena, self.stamp, &view, cell)?;
            match value.inline() {
                Some(bytes) => visit(&key, Some(bytes)),
                None => visit(&key, value.to_vec().ok().as_deref()),
            }
        }
        Ok(())
    }
}
