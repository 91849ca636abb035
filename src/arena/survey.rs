//! Opening a file that is not trusted: everything that is wrong is told, and what is left is opened.
//!
//! The file is mapped as a private copy. What an interrupted scope has left is undone as far as it can
//! be; extents that lie outside the file, or on each other, are left out.

use std::fs::OpenOptions;

use super::extents::{Extent, Extents};
use super::file::{ArenaFile, FileError, boot_id};
use super::head::{FORMAT_MAJOR, Head, Identity};
use super::ledger::{Entry, Ledger};
use super::map::{Access, Map, MapOptions};
use super::trace::Trace;
use super::undo::Undo;
use super::{Arena, Log};
use crate::error::Faults;
use crate::limits::PAGE_BYTES;

/// Address space behind the file, for what bringing transactions to their end may need.
const SPARE_BYTES: u64 = 64 << 20;

/// A file that was opened without trust.
pub(crate) struct Surveyed {
    /// A private copy.
    pub(crate) arena: Arena,
    /// Extents that lie in the file, each for itself.
    pub(crate) entries: Vec<Entry>,
    pub(crate) faults: Faults,
}

impl ArenaFile {
    /// Opens the file, whatever is wrong with it, unless it is no arena of this database at all.
    pub(crate) fn survey(&self) -> Result<Surveyed, FileError> {
        debug_assert!(self.access == Access::Copy);
        let file = OpenOptions::new()
            .read(true)
            .open(&self.path)
            .map_err(self.io("opened"))?;
        let mut faults = Faults::default();
        let length = file.metadata().map_err(self.io("looked at"))?.len();
        let bytes = length - length % PAGE_BYTES as u64;
        if bytes < Head::BYTES as u64 {
            return Err(self.damaged(format!("it has only {length} bytes")));
        }
        if bytes < length {
            faults.note(
                "file",
                format!("its length, {length} bytes, is no number of pages"),
            );
        }
        let options = MapOptions {
            bytes: length + SPARE_BYTES,
            node: None,
            huge_pages: false,
        };
        let map = Map::of_file(&options, file, Access::Copy)?;
        let head = Head::at(map.address(0));
        self.check_head(head)?;
        if let Some(boot) = head.unclosed() {
            if boot != boot_id() {
                faults.note("file", "it was open when the system went down");
            }
            if let Err(reason) = Undo::undo(map.address(0), bytes) {
                faults.note("undo pieces", reason);
                head.set_undo_active(0);
            }
        }
        Surveyed::of(map, bytes, self.identity, faults).map_err(|reason| self.damaged(reason))
    }

    /// Whether the file is the one that it should be.
    fn check_head(&self, head: Head) -> Result<(), FileError> {
        let path = self.path.clone();
        if !head.is_ours() {
            return Err(FileError::Foreign { path });
        }
        let (found, _minor) = head.version();
        if found != FORMAT_MAJOR {
            return Err(FileError::Version {
                path,
                found,
                reads: FORMAT_MAJOR,
            });
        }
        match head.identity() {
            None => Err(self.damaged("its head does not have the sum that it should")),
            Some(identity) if identity != self.identity => Err(FileError::Misplaced { path }),
            Some(_) => Ok(()),
        }
    }
}

impl Surveyed {
    /// What the first `bytes` of a private copy hold, whose head is that of this arena.
    pub(super) fn of(
        map: Map,
        bytes: u64,
        identity: Identity,
        mut faults: Faults,
    ) -> Result<Self, String> {
        let head = Head::at(map.address(0));
        let undo = Undo::new(map.address(0)).or_else(|reason| {
            faults.note("undo pieces", reason);
            head.set_first_undo_piece();
            Undo::new(map.address(0))
        })?;
        let (ledger, entries, own) = Ledger::survey(&map, bytes, &mut faults);
        let entries = without_overlaps(entries, &own, &mut faults);
        let whole = Extent {
            offset: Head::BYTES as u64,
            bytes: bytes - Head::BYTES as u64,
        };
        let extents = Extents::around(Head::BYTES as u64, map.bytes() as u64, vec![whole])
            .map_err(|_| "its extents overlap".to_owned())?;
        let log = Log::new(true, Trace::Undo(undo), ledger, identity);
        let arena = Arena {
            map,
            extents,
            prefaulted: 0,
            log: Some(Box::new(log)),
        };
        Ok(Self {
            arena,
            entries,
            faults,
        })
    }
}

/// Leaves out extents that lie on others, and tells of them.
fn without_overlaps(mut entries: Vec<Entry>, own: &[Extent], faults: &mut Faults) -> Vec<Entry> {
    entries.sort_by_key(|entry| entry.extent.offset);
    let mut all: Vec<(Extent, Option<usize>)> = entries
        .iter()
        .enumerate()
        .map(|(at, entry)| (entry.extent, Some(at)))
        .chain(own.iter().map(|&extent| (extent, None)))
        .collect();
    all.sort_by_key(|(extent, _)| extent.offset);
    let mut is_out = vec![false; entries.len()];
    // The one that reaches farthest so far.
    let mut before: Option<(Extent, Option<usize>)> = None;
    for (extent, at) in all {
        let end = extent.offset + extent.bytes;
        if let Some((other, other_at)) = before {
            if other.offset + other.bytes > extent.offset {
                let place = format!("extents at {} and {}", other.offset, extent.offset);
                faults.note(place, "they overlap");
                for at in [at, other_at].into_iter().flatten() {
                    is_out[at] = true;
                }
            }
            if other.offset + other.bytes >= end {
                continue;
            }
        }
        before = Some((extent, at));
    }
    let mut is_out = is_out.into_iter();
    entries.retain(|_| is_out.next() == Some(false));
    entries
}
