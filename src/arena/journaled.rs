//! An arena with a journal: loaded from its image and its journal, and made when it is new.
//!
//! The memory is the process's own; what is on the disk is written by the journal's side of the disk
//! alone. It begins as the last checkpoint's image, page by page as it is touched, with the records
//! that came after it; whatever a crash has interrupted was never a unit of the journal.

#![expect(unsafe_code, reason = "records are copied into arena memory")]

use super::extents::Extent;
use super::file::{Opened, extents_around};
use super::head::{FORMAT_MAJOR, Head, Identity};
use super::ledger::{Entry, ExtentKind, ExtentUse, Ledger};
use super::map::{Access, Map, MapError, MapOptions};
use super::redo::{Redo, RedoStart};
use super::survey::Surveyed;
use super::trace::Trace;
use super::undo::Undo;
use super::{Arena, Log};
use crate::error::{ArenaFull, Faults};
use crate::journal::{Loader, RecoveryError};
use crate::limits::PAGE_BYTES;

/// Images up to this length are read when they are opened, and compared with their sums then.
const READ_BYTES_MAX: u64 = 32 << 20;
/// Bytes that are read at once.
const PIECE_BYTES: usize = 1 << 20;

/// The memory of an arena with a journal, as it was recovered.
pub(crate) struct JournaledArena {
    map: Map,
    /// Pages that differ from the image.
    changed: Vec<u64>,
    /// Nothing was ever written.
    is_new: bool,
    /// Pages from the first on that are those of the image's file until they are loaded.
    unloaded_pages: u64,
}

/// Memory could not be brought to what the journal says.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
}

impl JournaledArena {
    /// Loads a shard's memory, of the length that it had or that is asked for, if that is more.
    pub(crate) fn load(options: &MapOptions, loader: &mut Loader<'_>) -> Result<Self, LoadError> {
        let options = MapOptions {
            bytes: options.bytes.max(loader.superblock().arena_bytes),
            ..options.clone()
        };
        let image_bytes = loader.image_pages()? * PAGE_BYTES as u64;
        let mut unloaded_pages = 0;
        let (map, mut is_new) = match loader.image_file() {
            Some(file) if image_bytes > READ_BYTES_MAX || !loader.is_image_whole() => {
                unloaded_pages = image_bytes / PAGE_BYTES as u64;
                (Map::of_file(&options, file, Access::Copy)?, false)
            }
            _ => (Self::read(&options, loader, image_bytes)?, image_bytes == 0),
        };
        let bytes = map.bytes();
        loader.each_interrupted(|page, content| {
            if (page as usize + 1) * PAGE_BYTES <= bytes {
                let to = map.address(page as usize * PAGE_BYTES).cast();
                // SAFETY: the page lies in the mapping, as just checked, and nobody else uses it yet.
                unsafe { to.write(*content) };
            }
        })?;
        let bound = map.bytes() as u64;
        let mut changed = Vec::new();
        loader.replay(|record| {
            let end = record.offset.checked_add(record.bytes.len() as u64);
            let Some(end) = end.filter(|&end| end <= bound) else {
                return Err(format!(
                    "a record changes byte {} of {bound}",
                    record.offset
                ));
            };
            let to = map.address(record.offset as usize);
            // SAFETY: the range lies in the mapping, as just checked, and nobody else uses it yet.
            unsafe {
                let from = record.bytes.as_ptr();
                to.as_ptr()
                    .copy_from_nonoverlapping(from, record.bytes.len());
            }
            let pages = record.offset / PAGE_BYTES as u64..end.div_ceil(PAGE_BYTES as u64);
            changed.extend(pages);
            is_new = false;
            Ok(())
        })?;
        changed.sort_unstable();
        changed.dedup();
        #[cfg(test)]
        map.end_with_process();
        Ok(Self {
            map,
            changed,
            is_new,
            unloaded_pages,
        })
    }

    /// Pages from the first on that are to be loaded, once the arena is in use ([`Arena::load`]).
    pub(crate) fn unloaded_pages(&self) -> u64 {
        self.unloaded_pages
    }

    /// Reads a whole image.
    fn read(
        options: &MapOptions,
        loader: &mut Loader<'_>,
        image_bytes: u64,
    ) -> Result<Map, LoadError> {
        let options = MapOptions {
            bytes: options.bytes.max(image_bytes),
            ..options.clone()
        };
        let map = Map::new(&options)?;
        for at in (0..image_bytes as usize).step_by(PIECE_BYTES) {
            let bytes = PIECE_BYTES.min(image_bytes as usize - at);
            let first = map.address(at).as_ptr();
            // SAFETY: the range lies in the mapping, which is fresh memory of zeros that nobody uses.
            let piece = unsafe { std::slice::from_raw_parts_mut(first, bytes) };
            loader.read_pages((at / PAGE_BYTES) as u64, piece)?;
        }
        Ok(map)
    }

    /// What [`Arena::write_text`] has written into the only extent of a kind.
    pub(crate) fn text(&self, kind: ExtentKind) -> Result<Option<String>, String> {
        if self.is_new {
            return Ok(None);
        }
        let (_, entries, _) = Ledger::read(&self.map, self.map.bytes() as u64)?;
        let entry = entries.iter().find(|entry| entry.use_.kind == kind);
        entry.map(|entry| self.text_at(entry.extent)).transpose()
    }

    /// The extents in use, and those of the ledger itself.
    pub(crate) fn extents(&self) -> Result<(Vec<Entry>, Vec<Extent>), String> {
        if self.is_new {
            return Ok((Vec::new(), Vec::new()));
        }
        let (_, entries, own) = Ledger::read(&self.map, self.map.bytes() as u64)?;
        Ok((entries, own))
    }

    fn text_at(&self, extent: Extent) -> Result<String, String> {
        let first = self.map.address(extent.offset as usize).as_ptr();
        // SAFETY: the ledger names only extents that lie in the mapping, which nobody uses yet.
        let bytes = unsafe { std::slice::from_raw_parts(first, extent.bytes as usize) };
        let text = bytes.split_first_chunk::<8>().and_then(|(length, rest)| {
            let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
            rest.get(..length)
        });
        let text = text.and_then(|text| String::from_utf8(text.to_vec()).ok());
        text.ok_or_else(|| "the list of its tables is no text".to_owned())
    }

    /// The arena, with the extents that it has; or what is wrong with it.
    pub(crate) fn finish(self, identity: Identity, mut start: RedoStart) -> Result<Opened, String> {
        let Self {
            map,
            changed,
            is_new,
            unloaded_pages,
        } = self;
        start.changed = changed;
        let base = map.address(0);
        let mut trace = Trace::Redo(Box::new(Redo::new(base, start, unloaded_pages > 0)));
        let head = Head::at(base);
        let (ledger, entries, own) = if is_new {
            trace.before(0, PAGE_BYTES);
            head.create(identity);
            (Ledger::new(), Vec::new(), Vec::new())
        } else {
            check_head(head, identity)?;
            Ledger::read(&map, map.bytes() as u64)?
        };
        let extents = extents_around(&map, &own, &entries)?;
        let mut arena = Arena {
            map,
            extents,
            prefaulted: 0,
            log: Some(Box::new(Log::new(false, trace, ledger, identity))),
        };
        arena.end_scope();
        Ok(Opened { arena, entries })
    }
}

impl JournaledArena {
    /// The arena as a private copy: what is changed in it is lost with it.
    pub(crate) fn finish_copy(self, identity: Identity) -> Result<Opened, String> {
        let Self { map, is_new, .. } = self;
        let head = Head::at(map.address(0));
        let (ledger, entries, own) = if is_new {
            head.create(identity);
            (Ledger::new(), Vec::new(), Vec::new())
        } else {
            check_head(head, identity)?;
            Ledger::read(&map, map.bytes() as u64)?
        };
        let extents = extents_around(&map, &own, &entries)?;
        // The head names a piece of its own, as that of a file does, which nobody has used.
        let undo = Undo::new(map.address(0))?;
        let log = Log::new(true, Trace::Undo(undo), ledger, identity);
        let arena = Arena {
            map,
            extents,
            prefaulted: 0,
            log: Some(Box::new(log)),
        };
        Ok(Opened { arena, entries })
    }

    /// As [`finish_copy`](Self::finish_copy), whatever is wrong with it.
    pub(crate) fn survey(self, identity: Identity) -> Result<Surveyed, String> {
        let Self { map, is_new, .. } = self;
        let head = Head::at(map.address(0));
        if is_new {
            head.create(identity);
        }
        check_head(head, identity)?;
        let bytes = map.bytes() as u64;
        Surveyed::of(map, bytes, identity, Faults::default())
    }
}

impl Arena {
    /// Takes pages of the image into memory of the arena's own kind, but for those that were changed
    /// since it was opened. They are a part of one huge page; without any, all are loaded.
    pub(crate) fn load(&mut self, first: u64, content: &[u8]) {
        let Self { map, log, .. } = self;
        let Some(Trace::Redo(redo)) = log.as_deref_mut().map(|log| &mut log.trace) else {
            return;
        };
        if content.is_empty() {
            redo.end_loading();
            return;
        }
        let is_changed = |page: usize| redo.is_changed_since_opening(first + page as u64);
        map.replace(first as usize * PAGE_BYTES, content, is_changed);
    }

    /// Writes a text into an extent of its own.
    pub(crate) fn write_text(&mut self, text: &str, use_: ExtentUse) -> Result<Extent, ArenaFull> {
        let bytes = size_of::<u64>() + text.len();
        let extent = self.allocate(bytes, use_)?;
        let first = self.address(extent);
        self.fresh(first, bytes);
        // SAFETY: the extent is ours, and long enough.
        unsafe {
            let length = (text.len() as u64).to_le_bytes();
            first.cast().write(length);
            let rest = first.add(length.len()).as_ptr();
            rest.copy_from_nonoverlapping(text.as_ptr(), text.len());
        }
        Ok(extent)
    }
}

fn check_head(head: Head, identity: Identity) -> Result<(), String> {
    let (major, _) = head.version();
    if !head.is_ours() || head.identity() != Some(identity) {
        return Err("its image is not that of this shard".to_owned());
    }
    if major != FORMAT_MAJOR {
        return Err(format!(
            "its image has format {major}, and this program reads format {FORMAT_MAJOR}"
        ));
    }
    Ok(())
}
