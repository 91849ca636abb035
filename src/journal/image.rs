//! The image: the arena's pages as the checkpoint left them, and their checksums beside them.
//!
//! ```text
//! image        page 0 | page 1 | ...                 4096 bytes each
//! image.sums   sum of page 0 | sum of page 1 | ...   8 bytes each
//! ```
//! The sums lie in a file of their own, because a page that was written to another page's place is
//! whole by itself; each is bound to its page's number. A sum of zero means that the page was never
//! written: it reads as zeros, whatever the file holds.

use super::bytes::{checksum, u64_at};
use super::disk::{Disk, DiskError, DiskFile};
use super::error::RecoveryError;
use crate::limits::PAGE_BYTES;

/// A page's content.
pub(crate) type Page = [u8; PAGE_BYTES];

pub(super) const PAGES_NAME: &str = "image";
pub(super) const SUMS_NAME: &str = "image.sums";
const SUM_BYTES: usize = 8;
/// Sums that are read and written at once.
const SUMS_PER_CHUNK: u64 = (PAGE_BYTES / SUM_BYTES) as u64;

/// The open files.
pub(crate) struct Image {
    pages: Box<dyn DiskFile>,
    sums: Box<dyn DiskFile>,
    chunk: Option<(u64, Box<Page>)>,
}

/// The sum of a page that has this content.
pub(super) fn sum(page: u64, content: &[u8]) -> u64 {
    checksum(page, &[content]).max(1)
}

impl Image {
    /// An image without pages; its names are not durable yet.
    pub(super) fn create(disk: &dyn Disk) -> Result<(), DiskError> {
        disk.create(PAGES_NAME)?.sync()?;
        disk.create(SUMS_NAME)?.sync()
    }

    pub(super) fn open(disk: &dyn Disk) -> Result<Self, DiskError> {
        Ok(Self {
            pages: disk.open(PAGES_NAME)?,
            sums: disk.open(SUMS_NAME)?,
            chunk: None,
        })
    }

    /// Reads the pages from `first` on, as many as fit `into`, and compares them with their sums.
    pub(crate) fn read(&mut self, first: u64, into: &mut [u8]) -> Result<(), RecoveryError> {
        self.read_unchecked(first, into)?;
        for (page, content) in (first..).zip(into.chunks_exact_mut(PAGE_BYTES)) {
            match self.sum(page)? {
                0 => content.fill(0),
                found if found == sum(page, content) => {}
                _ => {
                    let offset = page * PAGE_BYTES as u64;
                    let what = format!("page {page} does not have its checksum");
                    return Err(RecoveryError::damaged(self.pages.path(), offset, what));
                }
            }
        }
        Ok(())
    }

    /// Writes pages that follow each other, at once.
    pub(super) fn write(&mut self, first: u64, contents: &[&Page]) -> Result<(), DiskError> {
        let offset = first * PAGE_BYTES as u64;
        if let [content] = contents {
            return self.pages.write_at(offset, &content[..]);
        }
        let parts: Vec<&[u8]> = contents.iter().map(|content| &content[..]).collect();
        self.pages.write_parts_at(offset, &parts)
    }

    /// Writes sums of pages; near ones at once if they come together.
    pub(super) fn write_sums(
        &mut self,
        sums: impl IntoIterator<Item = (u64, u64)>,
    ) -> Result<(), DiskError> {
        let mut is_changed = false;
        for (page, sum) in sums {
            let number = page / SUMS_PER_CHUNK;
            if self.chunk.as_ref().is_none_or(|(held, _)| *held != number) {
                if is_changed {
                    self.write_chunk()?;
                }
                self.hold(number)?;
            }
            if let Some((_, chunk)) = &mut self.chunk {
                let at = (page % SUMS_PER_CHUNK) as usize * SUM_BYTES;
                chunk[at..at + SUM_BYTES].copy_from_slice(&sum.to_le_bytes());
            }
            is_changed = true;
        }
        if is_changed {
            self.write_chunk()
        } else {
            Ok(())
        }
    }

    /// Makes pages and sums durable.
    pub(super) fn sync(&mut self) -> Result<(), DiskError> {
        self.pages.sync()?;
        self.sums.sync()
    }

    /// Forgets what is in memory of the sums, after a write that failed.
    pub(super) fn forget(&mut self) {
        self.chunk = None;
    }

    /// The pages as a file of the system, if they are one.
    pub(super) fn file(&self) -> Option<std::fs::File> {
        self.pages.file()
    }

    /// Pages that the file may have.
    pub(super) fn page_count(&self) -> Result<u64, DiskError> {
        Ok(self.sums.bytes()? / SUM_BYTES as u64)
    }

    /// The sum of a page; zero if it was never written.
    pub(super) fn sum(&mut self, page: u64) -> Result<u64, DiskError> {
        let number = page / SUMS_PER_CHUNK;
        if self.chunk.as_ref().is_none_or(|(held, _)| *held != number) {
            self.hold(number)?;
        }
        let at = (page % SUMS_PER_CHUNK) as usize * SUM_BYTES;
        Ok(self
            .chunk
            .as_ref()
            .map_or(0, |(_, chunk)| u64_at(&chunk[..], at)))
    }

    fn hold(&mut self, number: u64) -> Result<(), DiskError> {
        let mut chunk = self
            .chunk
            .take()
            .map_or_else(|| Box::new([0; PAGE_BYTES]), |(_, chunk)| chunk);
        read_or_zeros(
            &*self.sums,
            number.saturating_mul(PAGE_BYTES as u64),
            &mut *chunk,
        )?;
        self.chunk = Some((number, chunk));
        Ok(())
    }

    fn write_chunk(&mut self) -> Result<(), DiskError> {
        let Some((number, chunk)) = &self.chunk else {
            return Ok(());
        };
        self.sums.write_at(number * PAGE_BYTES as u64, &chunk[..])
    }

    pub(super) fn read_unchecked(&self, first: u64, into: &mut [u8]) -> Result<(), DiskError> {
        read_or_zeros(&*self.pages, first.saturating_mul(PAGE_BYTES as u64), into)
    }
}

/// Reads what the file has; behind its end there are zeros.
fn read_or_zeros(file: &dyn DiskFile, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
    let there = file.bytes()?.saturating_sub(offset).min(into.len() as u64) as usize;
    let (read, rest) = into.split_at_mut(there);
    rest.fill(0);
    if read.is_empty() {
        Ok(())
    } else {
        file.read_at(offset, read)
    }
}
