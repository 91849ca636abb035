//! An arena in a file: made, opened, closed.
//!
//! # What opening finds
//! A file that was closed is as it was. One that was not, in the same run of the system, is as its
//! process left it: the pages are the system's, so a killed process loses none, and the scope that it
//! was in is undone from its [trace](super::undo). After another start of the system nobody knows
//! which pages had reached the disk: such a file is refused ([`FileError::NeedsSalvage`]).

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use super::extents::{Extent, Extents};
use super::head::{FORMAT_MAJOR, Head, Identity};
use super::ledger::{Entry, Ledger};
use super::map::{Access, Map, MapError, MapOptions};
use super::trace::Trace;
use super::undo::Undo;
use super::{Arena, Log};

/// A file that an arena lives in.
#[derive(Clone, Debug)]
pub(crate) struct ArenaFile {
    pub(crate) path: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) access: Access,
    /// Opens what is refused otherwise: a file whose pages may be of different moments.
    pub(crate) is_salvage: bool,
}

/// An arena that was opened, and what is in it.
pub(crate) struct Opened {
    pub(crate) arena: Arena,
    pub(crate) entries: Vec<Entry>,
}

/// A file was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("{} could not be {doing}: {source}", path.display())]
    Io {
        path: PathBuf,
        doing: &'static str,
        source: io::Error,
    },
    #[error("{} is no arena of this kind of program", path.display())]
    Foreign { path: PathBuf },
    #[error("{} has format {found}, and this program reads format {reads}", path.display())]
    Version {
        path: PathBuf,
        found: u32,
        reads: u32,
    },
    #[error("{} belongs to another database, or to another shard", path.display())]
    Misplaced { path: PathBuf },
    #[error("{} is damaged: {reason}", path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error("{} was in use when the system went down", path.display())]
    NeedsSalvage { path: PathBuf },
    #[error(transparent)]
    Map(#[from] MapError),
}

impl ArenaFile {
    pub(super) fn io(&self, doing: &'static str) -> impl Fn(io::Error) -> FileError {
        let path = self.path.clone();
        move |source| FileError::Io {
            path: path.clone(),
            doing,
            source,
        }
    }

    pub(super) fn damaged(&self, reason: impl Into<String>) -> FileError {
        FileError::Damaged {
            path: self.path.clone(),
            reason: reason.into(),
        }
    }

    /// Makes the file, which must not exist.
    pub(crate) fn create(&self, options: &MapOptions) -> Result<Opened, FileError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&self.path)
            .map_err(self.io("created"))?;
        let mut map = Map::of_file(options, file, Access::Shared)?;
        map.ensure(0, Head::BYTES as u64)
            .map_err(self.io("given its first blocks"))?;
        Head::at(map.address(0)).create(self.identity);
        self.finish(map, Ledger::new(), &[], Vec::new())
    }

    /// Opens the file, undoing what was interrupted.
    pub(crate) fn open(&self, options: &MapOptions) -> Result<Opened, FileError> {
        let file = OpenOptions::new()
            .read(true)
            .write(self.access == Access::Shared)
            .open(&self.path)
            .map_err(self.io("opened"))?;
        let bytes = file.metadata().map_err(self.io("looked at"))?.len();
        if bytes < Head::BYTES as u64 {
            return Err(self.damaged(format!("it has only {bytes} bytes")));
        }
        if !bytes.is_multiple_of(crate::limits::PAGE_BYTES as u64) {
            return Err(self.damaged(format!("its length, {bytes} bytes, is no number of pages")));
        }
        let map = Map::of_file(options, file, self.access)?;
        let head = Head::at(map.address(0));
        if !head.is_ours() {
            return Err(FileError::Foreign {
                path: self.path.clone(),
            });
        }
        let (major, _minor) = head.version();
        if major != FORMAT_MAJOR {
            return Err(FileError::Version {
                path: self.path.clone(),
                found: major,
                reads: FORMAT_MAJOR,
            });
        }
        match head.identity() {
            None => return Err(self.damaged("its head does not have the sum that it should")),
            Some(identity) if identity != self.identity => {
                return Err(FileError::Misplaced {
                    path: self.path.clone(),
                });
            }
            Some(_) => {}
        }
        self.undo(head, map.address(0), bytes)?;
        let (ledger, entries, own) =
            Ledger::read(&map, bytes).map_err(|reason| self.damaged(reason))?;
        self.finish(map, ledger, &own, entries)
    }

    /// Undoes what an interrupted process has left.
    fn undo(&self, head: Head, base: NonNull<u8>, bytes: u64) -> Result<(), FileError> {
        let Some(boot) = head.unclosed() else {
            return Ok(());
        };
        if boot != boot_id() && !self.is_salvage {
            return Err(FileError::NeedsSalvage {
                path: self.path.clone(),
            });
        }
        Undo::undo(base, bytes).map_err(|reason| self.damaged(reason))
    }

    fn finish(
        &self,
        map: Map,
        ledger: Ledger,
        own: &[Extent],
        entries: Vec<Entry>,
    ) -> Result<Opened, FileError> {
        let extents = extents_around(&map, own, &entries).map_err(|reason| self.damaged(reason))?;
        let base = map.address(0);
        Head::at(base).set_open(boot_id());
        let undo = Undo::new(base).map_err(|reason| self.damaged(reason))?;
        let is_copy = self.access == Access::Copy;
        let log = Log::new(is_copy, Trace::Undo(undo), ledger, self.identity);
        let arena = Arena {
            map,
            extents,
            prefaulted: 0,
            log: Some(Box::new(log)),
        };
        Ok(Opened { arena, entries })
    }
}

/// The space that the extents of an opened arena leave free.
pub(super) fn extents_around(
    map: &Map,
    own: &[Extent],
    entries: &[Entry],
) -> Result<Extents, String> {
    let used = entries.iter().map(|entry| entry.extent);
    let used = used.chain(own.iter().copied()).collect();
    let around = Extents::around(Head::BYTES as u64, map.bytes() as u64, used);
    around.map_err(|(one, other)| {
        let (one, other) = (one.offset, other.offset);
        format!("the extents at {one} and {other} overlap")
    })
}

impl Arena {
    /// Marks the file as closed, once all of it is on its disk. Nothing may be changed afterwards.
    pub(crate) fn close(&mut self) -> Result<(), io::Error> {
        if self.log.is_none() || self.is_copy() {
            return Ok(());
        }
        self.end_scope();
        self.sync()?;
        Head::at(self.map.address(0)).set_clean();
        self.map.sync(Head::BYTES as u64)
    }
}

/// What is different after each start of the system; all zeros where the system does not tell, so
/// that a file from before is taken as of now only by a system that never tells.
pub(super) fn boot_id() -> [u8; 16] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_le_bytes()
}

/// Waits until a directory's entries are on its disk.
pub(crate) fn sync_directory(path: &Path) -> Result<(), io::Error> {
    File::open(path)?.sync_all()
}

/// Whether a directory's files live in memory, so that nobody writes them back to a disk.
pub(crate) fn is_in_memory(path: &Path) -> Result<bool, io::Error> {
    super::map::is_in_memory(&File::open(path)?)
}
