//! Copying a shard's files, while its journal goes on.
//!
//! As long as no checkpoint is taken, image and superblock stay as they are, and the journal only grows
//! behind the place that is asked for: what is copied is the image, and the journal from its checkpoint
//! up to that place. The past before the checkpoint is left out. Pages are compared with their sums as
//! they are read; both slots of the copied superblock say the same, so that either may be lost.

use std::sync::Arc;

use super::bytes::RunningSum;
use super::disk::{Disk, DiskFile, SECTOR_BYTES};
use super::error::RecoveryError;
use super::image::{self, Image};
use super::segment::{self, Header};
use super::superblock::{self, Position, Superblock, Superblocks};
use crate::limits::PAGE_BYTES;

/// Bytes that are copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// A file that was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopiedFile {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) checksum: u64,
}

/// What is to be copied of a shard.
pub(crate) struct ShardCopy {
    disk: Arc<dyn Disk>,
    newest: Superblock,
    pages: u64,
    /// Each with how far it goes, in order.
    segments: Vec<(u64, u64)>,
}

/// Gets the bytes that were copied since the last call; an error ends the copying.
pub(crate) type Progress<'p> = &'p mut dyn FnMut(u64) -> Result<(), String>;

impl ShardCopy {
    /// What there is to copy of a shard up to `end`, a place behind a durable block.
    pub(crate) fn plan(disk: Arc<dyn Disk>, end: Position) -> Result<Self, RecoveryError> {
        let newest = *Superblocks::open(&*disk)?.newest();
        let pages = newest.arena_bytes.div_ceil(PAGE_BYTES as u64);
        let pages = pages.min(Image::open(&*disk)?.page_count()?);
        let mut segments = Vec::new();
        let (mut number, mut goes_to) = (end.segment, end.offset);
        loop {
            segments.push((number, goes_to));
            if number <= newest.start.segment {
                break;
            }
            let name = segment::name(number);
            let file = disk.open(&name)?;
            let header = Header::read(&*file, &newest.identity, number)?;
            let before = header
                .map(|header| header.end)
                .filter(|before| before.segment < number && before.segment > 0);
            let Some(before) = before else {
                let what = "the segment does not name the one before it";
                return Err(RecoveryError::damaged(disk.path(&name), 0, what));
            };
            (number, goes_to) = (before.segment, before.offset);
        }
        segments.reverse();
        Ok(Self {
            disk,
            newest,
            pages,
            segments,
        })
    }

    /// Bytes that there are to copy.
    pub(crate) fn bytes(&self) -> u64 {
        let segments: u64 = self.segments.iter().map(|(_, goes_to)| goes_to).sum();
        self.pages * (PAGE_BYTES as u64 + 8) + segments
    }

    /// Copies all of it into an empty directory, and makes it durable.
    pub(crate) fn copy(
        &self,
        target: &dyn Disk,
        progress: Progress<'_>,
    ) -> Result<Vec<CopiedFile>, RecoveryError> {
        let mut copied = vec![
            self.copy_pages(target, progress)?,
            self.copy_sums(target, progress)?,
        ];
        for &(number, goes_to) in &self.segments {
            copied.push(self.copy_segment(target, (number, goes_to), progress)?);
        }
        copied.push(self.write_superblock(target)?);
        target.sync_directory()?;
        Ok(copied)
    }

    fn copy_pages(
        &self,
        target: &dyn Disk,
        progress: Progress<'_>,
    ) -> Result<CopiedFile, RecoveryError> {
        let mut image = Image::open(&*self.disk)?;
        let mut copy = Copy::create(target, image::PAGES_NAME)?;
        let pages_at_once = (PIECE_BYTES / PAGE_BYTES) as u64;
        let mut piece = vec![0; PIECE_BYTES];
        for first in (0..self.pages).step_by(pages_at_once as usize) {
            let pages = pages_at_once.min(self.pages - first);
            let piece = &mut piece[..pages as usize * PAGE_BYTES];
            image.read(first, piece)?;
            copy.append(piece)?;
            progress(piece.len() as u64).map_err(RecoveryError::Sink)?;
        }
        copy.finish()
    }

    fn copy_sums(
        &self,
        target: &dyn Disk,
        progress: Progress<'_>,
    ) -> Result<CopiedFile, RecoveryError> {
        let file = self.disk.open(image::SUMS_NAME)?;
        let mut copy = Copy::create(target, image::SUMS_NAME)?;
        copy.append_from(&*file, self.pages * 8, progress)?;
        copy.finish()
    }

    fn copy_segment(
        &self,
        target: &dyn Disk,
        (number, goes_to): (u64, u64),
        progress: Progress<'_>,
    ) -> Result<CopiedFile, RecoveryError> {
        let name = segment::name(number);
        let file = self.disk.open(&name)?;
        let mut copy = Copy::create(target, &name)?;
        copy.append_from(&*file, goes_to, progress)?;
        copy.append_zeros(file.bytes()?)?;
        copy.finish()
    }

    fn write_superblock(&self, target: &dyn Disk) -> Result<CopiedFile, RecoveryError> {
        Superblocks::create(target, &self.newest)?;
        let mut file = target.open(superblock::NAME_NEW)?;
        let before = Superblock {
            sequence: self.newest.sequence.saturating_sub(1),
            ..self.newest
        };
        superblock::put_slot(&mut *file, &before)?;
        file.sync()?;
        target.rename(superblock::NAME_NEW, superblock::NAME)?;
        let mut bytes = vec![0; file.bytes()? as usize];
        file.read_at(0, &mut bytes)?;
        let mut sum = RunningSum::new();
        sum.update(&bytes);
        Ok(CopiedFile {
            name: superblock::NAME.to_owned(),
            bytes: bytes.len() as u64,
            checksum: sum.finish(),
        })
    }
}

/// A file that is being written from its start to its end.
struct Copy {
    name: String,
    file: Box<dyn DiskFile>,
    bytes: u64,
    /// How much of the file there is: zeros behind that are not there yet.
    written: u64,
    sum: RunningSum,
}

impl Copy {
    fn create(target: &dyn Disk, name: &str) -> Result<Self, RecoveryError> {
        Ok(Self {
            name: name.to_owned(),
            file: target.create(name)?,
            bytes: 0,
            written: 0,
            sum: RunningSum::new(),
        })
    }

    fn append(&mut self, piece: &[u8]) -> Result<(), RecoveryError> {
        self.sum.update(piece);
        // Zeros need no room on the disk.
        if piece.iter().any(|&byte| byte != 0) {
            self.file.write_at(self.bytes, piece)?;
            self.written = self.bytes + piece.len() as u64;
        }
        self.bytes += piece.len() as u64;
        Ok(())
    }

    fn append_from(
        &mut self,
        file: &dyn DiskFile,
        bytes: u64,
        progress: Progress<'_>,
    ) -> Result<(), RecoveryError> {
        let mut piece = vec![0; PIECE_BYTES];
        while self.bytes < bytes {
            let length = (bytes - self.bytes).min(PIECE_BYTES as u64) as usize;
            file.read_at(self.bytes, &mut piece[..length])?;
            self.append(&piece[..length])?;
            progress(length as u64).map_err(RecoveryError::Sink)?;
        }
        Ok(())
    }

    fn append_zeros(&mut self, end: u64) -> Result<(), RecoveryError> {
        let zeros = vec![0; PIECE_BYTES];
        while self.bytes < end {
            let length = (end - self.bytes).min(PIECE_BYTES as u64) as usize;
            self.append(&zeros[..length])?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<CopiedFile, RecoveryError> {
        if self.written < self.bytes {
            let last = self.bytes.min(SECTOR_BYTES as u64);
            let zeros = [0; SECTOR_BYTES];
            self.file
                .write_at(self.bytes - last, &zeros[..last as usize])?;
        }
        self.file.sync()?;
        Ok(CopiedFile {
            name: self.name,
            bytes: self.bytes,
            checksum: self.sum.finish(),
        })
    }
}
