//! How a tree lies in its pages, without reading all of them.

use super::Tree;
use super::error::Damaged;
use super::head::Head;
use super::page::{HEADER, View};
use crate::arena::Arena;
use crate::id::hash;
use crate::limits::PAGE_BYTES;

/// Leaves that are looked at.
const LEAVES_SEEN: u64 = 64;

/// How a tree lies in its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeSpace {
    /// Levels, that of the leaves included.
    pub(crate) levels: u32,
    /// Pages that the tree has, those that are free included.
    pub(crate) pages: u64,
    pub(crate) free_pages: u64,
    /// How full leaves are: some were looked at.
    pub(crate) fill_percent: u32,
}

impl Tree {
    /// How the tree lies in its pages.
    pub(crate) fn space(&self, arena: &Arena) -> Result<TreeSpace, Damaged> {
        let (place, head) = (self.place, Head::read(arena, self.place)?);
        let mut bytes = 0;
        for number in 0..LEAVES_SEEN {
            let mut page = head.root;
            for level in (1..head.height).rev() {
                let branch = View::branch(arena, page, place.stamp, level)?;
                let children = branch.count() as u64 + 1;
                let child = hash(number << 8 | level as u64) % children;
                page = branch.child(child as usize);
            }
            bytes += HEADER + View::open(arena, page, place.stamp, 0)?.used();
        }
        Ok(TreeSpace {
            levels: head.height as u32,
            pages: u64::from(head.pages),
            free_pages: u64::from(head.free),
            fill_percent: (100 * bytes / (LEAVES_SEEN as usize * PAGE_BYTES)) as u32,
        })
    }
}
