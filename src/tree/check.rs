//! Every invariant of a tree, looked at.

use hashbrown::HashSet;

use super::Tree;
use super::build::{Item, Stored};
use super::error::Damaged;
use super::head::Head;
use super::page::{HAS_CHAINS, HEADER, View};
use super::pages::{Header, NONE};
use super::value;
use crate::arena::Arena;
use crate::limits::PAGE_BYTES;

/// What a sound tree consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreeReport {
    pub(crate) entries: u64,
    pub(crate) height: usize,
    pub(crate) leaves: u64,
    pub(crate) branches: u64,
    /// Pages of long values.
    pub(crate) chain_pages: u64,
    pub(crate) extents: u64,
    /// All pages that the tree has, in use or not.
    pub(crate) pages: u64,
    /// Bytes in use in leaves, headers included.
    pub(crate) leaf_bytes: u64,
}

impl Tree {
    /// Looks at all pages: order within and between them, prefixes, heads, cells that overlap,
    /// counts, levels, chains, and that every page in use is reached once, and every page reached
    /// is in use.
    pub(crate) fn check(&self, arena: &Arena) -> Result<TreeReport, Damaged> {
        let head = Head::read(arena, self.place)?;
        let mut walk = Walk {
            arena,
            stamp: self.place.stamp,
            extents: HashSet::new(),
            reached: HashSet::new(),
            report: TreeReport::default(),
        };
        walk.report.height = head.height;
        let used = walk.extents(&head, self.place.head)?;
        let bounds = Bounds {
            low: None,
            high: None,
        };
        walk.page(head.root, head.height - 1, &bounds, true)?;
        if walk.reached.len() as u64 != used {
            return self.head_damaged("pages are in use that nothing refers to");
        }
        if walk.report.entries != head.entries {
            return self.head_damaged("there are not as many entries as it says");
        }
        Ok(walk.report)
    }

    fn head_damaged<T>(&self, what: &'static str) -> Result<T, Damaged> {
        let page = self.place.head;
        Err(Damaged { page, what })
    }
}

/// Where the keys of a page must lie.
struct Bounds {
    low: Option<Vec<u8>>,
    high: Option<Vec<u8>>,
}

struct Walk<'a> {
    arena: &'a Arena,
    stamp: u32,
    extents: HashSet<u32>,
    reached: HashSet<u32>,
    report: TreeReport,
}

impl Walk<'_> {
    /// Looks at the extents; how many pages they have in use, their first pages not counted.
    fn extents(&mut self, head: &Head, head_page: u32) -> Result<u64, Damaged> {
        let (mut used, mut free, mut pages) = (0, 0, 0);
        let (mut before, mut next) = (NONE, head.first);
        let mut was_full = false;
        while next != NONE {
            let header = Header::read(self.arena, next, self.stamp)?;
            if !self.extents.insert(next) || header.before != before {
                return header.damaged("the extents are not linked as they should be");
            }
            let bits = (0..header.pages).filter(|&index| header.is_used(index));
            if bits.count() as u32 != header.used || !header.is_used(0) {
                return header.damaged("it does not have as many pages in use as it says");
            }
            if was_full && !header.is_full() {
                return header.damaged("an extent with free pages comes after a full one");
            }
            was_full = header.is_full();
            used += u64::from(header.used) - 1;
            free += u64::from(header.pages - header.used);
            pages += u64::from(header.pages);
            (before, next) = (next, header.next);
        }
        let is_right = head.last == before
            && self.extents.contains(&head_page)
            && self.extents.len() as u64 == u64::from(head.extents)
            && (free, pages) == (u64::from(head.free), u64::from(head.pages));
        if !is_right {
            return Err(Damaged {
                page: head_page,
                what: "its extents are not those that it says",
            });
        }
        self.report.extents = self.extents.len() as u64;
        self.report.pages = pages;
        Ok(used)
    }

    /// Notes that a page is referred to.
    fn reach(&mut self, page: u32) -> Result<(), Damaged> {
        let damaged = |what| Err(Damaged { page, what });
        let bytes = super::space::page(self.arena, page)?;
        let delta = u32::from(super::page::u16_at(bytes, 16));
        let first = page.wrapping_sub(delta);
        if delta == 0 || !self.extents.contains(&first) {
            return damaged("it lies in no extent of the tree");
        }
        if !Header::read(self.arena, first, self.stamp)?.is_used(delta) {
            return damaged("it is referred to, and free");
        }
        if !self.reached.insert(page) {
            return damaged("it is referred to twice");
        }
        Ok(())
    }

    fn page(
        &mut self,
        page: u32,
        level: usize,
        bounds: &Bounds,
        is_root: bool,
    ) -> Result<(), Damaged> {
        self.reach(page)?;
        let view = View::open(self.arena, page, self.stamp, level)?;
        let keys = self.entries(&view, bounds)?;
        if level == 0 {
            if keys.is_empty() && !is_root {
                return view.damaged("it has no entries");
            }
            self.report.leaves += 1;
            self.report.entries += keys.len() as u64;
            self.report.leaf_bytes += (HEADER + view.used()) as u64;
            return self.chains(&view);
        }
        if keys.is_empty() && is_root {
            return view.damaged("the root has only one child");
        }
        self.report.branches += 1;
        for child in 0..=keys.len() {
            let bound = |at: Option<usize>, outer: &Option<Vec<u8>>| match at {
                Some(at) => keys.get(at).cloned().or_else(|| outer.clone()),
                None => outer.clone(),
            };
            let bounds = Bounds {
                low: bound(child.checked_sub(1), &bounds.low),
                high: bound(Some(child), &bounds.high),
            };
            self.page(view.child(child), level - 1, &bounds, false)?;
        }
        Ok(())
    }

    /// Looks at the entries of a page; their keys.
    fn entries(&self, view: &View<'_>, bounds: &Bounds) -> Result<Vec<Vec<u8>>, Damaged> {
        let mut keys: Vec<Vec<u8>> = Vec::with_capacity(view.count());
        let mut cells = Vec::with_capacity(view.count());
        for index in 0..view.count() {
            let cell = view.cell_range(index)?;
            if !cell.is_empty() {
                cells.push(cell);
            }
            let mut key = Vec::new();
            view.key(index)?.append_to(&mut key);
            if keys.last().is_some_and(|last| last >= &key) {
                return view.damaged("its keys are not in ascending order");
            }
            if !view.is_padded(index) {
                return view.damaged("the head of a key has bytes beyond the key");
            }
            if !view.is_printed(index)? {
                return view.damaged("the fingerprint of a key is another key's");
            }
            keys.push(key);
        }
        cells.sort_by_key(|cell| cell.start);
        if cells.windows(2).any(|pair| pair[0].end > pair[1].start) {
            return view.damaged("its cells overlap");
        }
        let cell_bytes: usize = cells.iter().map(|cell| cell.len()).sum();
        if cell_bytes + view.counts.garbage != PAGE_BYTES - view.counts.heap {
            return view.damaged("its cells do not add up");
        }
        let below = |low: &Vec<u8>| keys.first().is_some_and(|first| first < low);
        let above = |high: &Vec<u8>| keys.last().is_some_and(|last| last >= high);
        if bounds.low.as_ref().is_some_and(below) || bounds.high.as_ref().is_some_and(above) {
            return view.damaged("its keys are not where the branch above says");
        }
        Ok(keys)
    }

    /// Looks at the long values of a leaf.
    fn chains(&mut self, view: &View<'_>) -> Result<(), Damaged> {
        for index in 0..view.count() {
            let item = Item::of(view, index)?;
            let Stored { head, bytes } = item.value;
            if !item.value.is_chained() {
                continue;
            }
            if view.flags() & HAS_CHAINS == 0 {
                return view.damaged("it has a long value, and says that it has none");
            }
            let (arena, stamp) = (self.arena, self.stamp);
            let mut pages = 0;
            value::visit_chain(arena, stamp, Stored { head, bytes }, |page| {
                pages += 1;
                self.reach(page)
            })?;
            self.report.chain_pages += pages;
        }
        Ok(())
    }
}
