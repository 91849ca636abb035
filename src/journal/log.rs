//! The disk's side of the journal: blocks are put into segments here, and made durable.
//!
//! The caller drives it: [`Log::push`] what the shard's side closed, [`Log::write`], [`Log::sync`],
//! and give the [`Report`] back; [`Log::prepare`] now and then, so that there is always one segment
//! more than is in use.
//!
//! # Order
//! A segment is synced before the header of the next one is written. So a segment that has a
//! successor is whole up to the end that the successor names, and if it is not, that is damage.
//!
//! # When the disk fails
//! A sync that failed is never repeated on the same file. All blocks that are not durable are still
//! here; they get one try in another file, which names the last durable place as the end of its
//! predecessor. If that fails too the log is poisoned: nothing is written any more, and every later
//! call says so. Missing space is no failure: what was accepted waits for it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::block::Block;
use super::disk::{Disk, DiskError, DiskFile, remove_if_there};
use super::error::{RecoveryError, WriteError};
use super::mutant::{Mutant, is};
use super::segment::{self, BLOCKS_AT, Header, Void};
use super::staging::Report;
use super::superblock::{Identity, Position};
use crate::id::hash;

/// How long segments and blocks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Bytes of a segment.
    pub(crate) segment_bytes: u64,
    /// Bytes of a block at most.
    pub(crate) block_bytes: usize,
    /// Bytes of blocks that may wait for the disk.
    pub(crate) staging_bytes: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            segment_bytes: 16 << 20,
            block_bytes: 64 << 10,
            staging_bytes: 4 << 20,
        }
    }
}

impl Sizes {
    /// The smallest block, and the smallest number of blocks in a segment.
    const BLOCK_BYTES_MIN: usize = 1024;
    const SEGMENT_BLOCKS_MIN: u64 = 6;

    /// # Panics
    /// If nothing could be written with such sizes.
    pub(super) fn assert_usable(&self) {
        let blocks = self.segment_bytes.saturating_sub(BLOCKS_AT) / self.block_bytes as u64;
        assert!(
            (Self::BLOCK_BYTES_MIN..=super::block::BLOCK_BYTES_MAX).contains(&self.block_bytes)
                && self.block_bytes.is_multiple_of(super::disk::SECTOR_BYTES)
                && self
                    .segment_bytes
                    .is_multiple_of(super::disk::SECTOR_BYTES as u64)
                && blocks >= Self::SEGMENT_BLOCKS_MIN
                && self.staging_bytes >= 2 * self.block_bytes,
            "a journal cannot be written in {self:?}"
        );
    }
}

/// Numbers that are never the same twice, from a random one that the caller gives.
#[derive(Clone, Debug)]
pub(crate) struct Ids(u64);

impl Ids {
    pub(crate) fn new(random: u64) -> Self {
        Self(hash(random))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        hash(self.0)
    }

    /// Another source, for another user.
    pub(crate) fn split(&mut self) -> Self {
        Self::new(self.next())
    }
}

/// The journal's files, as they are written.
pub(crate) struct Log {
    disk: Arc<dyn Disk>,
    identity: Identity,
    sizes: Sizes,
    ids: Ids,
    file: Box<dyn DiskFile>,
    salt: u64,
    /// Behind the last block that was written.
    end: Position,
    /// Behind the last block that is durable.
    durable: Position,
    /// Blocks that are not durable; the first `written` of them are written.
    queue: VecDeque<(Block, Position)>,
    written: usize,
    /// Bytes of all blocks that have a place.
    placed_bytes: u64,
    spare: Spare,
    number_next: u64,
    /// A segment that nobody needs any more.
    retired: Option<u64>,
    report: Report,
}

enum Spare {
    Missing,
    /// Written with zeros up to `written`.
    Begun {
        number: u64,
        file: Box<dyn DiskFile>,
        written: u64,
    },
    Ready {
        number: u64,
        file: Box<dyn DiskFile>,
    },
}

/// Why blocks were not written: because there is no room for them yet, or because the disk failed.
enum Trouble {
    NoSpace(DiskError),
    Broken(DiskError),
}

/// Bytes of blocks that are written at once.
const AT_ONCE_BYTES: usize = 1 << 20;

/// Bytes of zeros that are written at once.
const ZEROS_BYTES: usize = 1 << 20;

impl Log {
    /// Begins a segment behind `end`, and makes it durable: all behind `end` is void from then on,
    /// and so are the epochs of `void`.
    pub(super) fn start(
        disk: Arc<dyn Disk>,
        identity: Identity,
        sizes: Sizes,
        mut ids: Ids,
        end: Position,
        void: Void,
    ) -> Result<Self, RecoveryError> {
        sizes.assert_usable();
        let (spare, number_next) = find_spare(&*disk, &identity, &sizes, end.segment)?;
        // The file in use is one that is about to be replaced.
        let (number, file) = match spare {
            Some(spare) => spare,
            None => (number_next, create_whole(&*disk, &sizes, number_next)?),
        };
        let salt = ids.next();
        let mut log = Self {
            disk,
            identity,
            sizes,
            ids,
            file,
            salt,
            end,
            durable: end,
            queue: VecDeque::new(),
            written: 0,
            placed_bytes: 0,
            spare: Spare::Missing,
            number_next: number_next.max(number.saturating_add(1)),
            retired: None,
            report: Report::default(),
        };
        #[cfg(test)]
        if is(Mutant::StaleTailReused) && end.segment > 0 {
            log.reuse_tail()?;
            return Ok(log);
        }
        log.write_header(number, void)?;
        if !is(Mutant::SegmentHeaderUnsynced) || end.segment == 0 {
            log.file.sync()?;
        }
        log.durable = log.end;
        log.disk.sync_directory()?;
        Ok(log)
    }

    /// A fault of tests: goes on in the segment that was in use.
    #[cfg(test)]
    fn reuse_tail(&mut self) -> Result<(), RecoveryError> {
        self.file = self.disk.open(&segment::name(self.end.segment))?;
        let header = Header::read(&*self.file, &self.identity, self.end.segment)?;
        self.salt = header.map_or(0, |header| header.salt);
        Ok(())
    }

    /// Takes a block. It is durable when a report has it.
    pub(crate) fn push(&mut self, block: Block) {
        self.queue.push_back((block, Position::default()));
    }

    /// Whether there is anything to write or to sync.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Writes all blocks that were pushed.
    pub(crate) fn write(&mut self) -> Result<(), WriteError> {
        self.refuse_if_poisoned()?;
        match self.place_all() {
            Ok(()) => Ok(()),
            Err(Trouble::NoSpace(error)) => Err(WriteError::NoSpace(error)),
            Err(Trouble::Broken(error)) => self.rescue(&error),
        }
    }

    /// Makes all blocks that were written durable.
    pub(crate) fn sync(&mut self) -> Result<(), WriteError> {
        self.refuse_if_poisoned()?;
        match self.sync_written() {
            Ok(()) => Ok(()),
            Err(error) => self.rescue(&error),
        }
    }

    /// What has happened since the last report; also after an error.
    pub(crate) fn report(&mut self) -> Report {
        let poison = self.report.poison.clone();
        let room = self.room();
        let next = Report {
            poison,
            ..Report::default()
        };
        let report = std::mem::replace(&mut self.report, next);
        Report { room, ..report }
    }

    /// Whether there is one segment more than is in use.
    pub(crate) fn has_spare(&self) -> bool {
        matches!(self.spare, Spare::Ready { .. })
    }

    /// Does a piece of the work of having one more segment ready; says whether there is more to do.
    /// Without space it fails, and is to be tried again later.
    pub(crate) fn prepare(&mut self) -> Result<bool, DiskError> {
        let prepared = self.prepare_piece();
        if prepared.is_err() {
            if let Spare::Begun { number, .. } = self.spare {
                // What could not be made is no use to anybody; if it stays, the next start removes it.
                let _ = self.disk.remove(&segment::name(number));
            }
            self.spare = Spare::Missing;
        }
        prepared
    }

    /// Segments that no checkpoint needs: they are used again, or removed.
    pub(crate) fn retire(
        &mut self,
        numbers: impl IntoIterator<Item = u64>,
    ) -> Result<(), DiskError> {
        for number in numbers {
            // One is enough to be the next spare.
            if *self.retired.get_or_insert(number) != number {
                remove_if_there(&*self.disk, &segment::name(number))?;
            }
        }
        Ok(())
    }

    /// Behind the last block that was written.
    pub(crate) fn end(&self) -> Position {
        self.end
    }

    /// Behind the last block that is durable.
    pub(crate) fn durable(&self) -> Position {
        self.durable
    }

    /// Bytes of blocks that there is room for, counted from the start. Each block may waste as much
    /// of a segment's end as it is long.
    fn room(&self) -> u64 {
        let block = self.sizes.block_bytes as u64;
        let rest = (self.sizes.segment_bytes - self.end.offset).saturating_sub(block);
        let spare = match self.spare {
            Spare::Ready { .. } => self.sizes.segment_bytes - BLOCKS_AT - block,
            _ => 0,
        };
        self.placed_bytes + rest + spare
    }

    fn refuse_if_poisoned(&self) -> Result<(), WriteError> {
        match &self.report.poison {
            Some(reason) => Err(WriteError::Poisoned {
                reason: reason.clone(),
            }),
            None => Ok(()),
        }
    }

    fn place_all(&mut self) -> Result<(), Trouble> {
        while self.written < self.queue.len() {
            let bytes = self.queue[self.written].0.padded() as u64;
            if self.end.offset + bytes > self.sizes.segment_bytes {
                self.switch()?;
            }
            self.place_some()?;
        }
        Ok(())
    }

    /// Writes blocks that follow each other in the segment, as many as go at once.
    fn place_some(&mut self) -> Result<(), Trouble> {
        let (mut end, mut bytes) = (self.end, 0);
        let mut count = 0;
        for (block, place) in self.queue.range_mut(self.written..) {
            let padded = block.padded();
            let fits = end.offset + padded as u64 <= self.sizes.segment_bytes;
            if count > 0 && (!fits || bytes + padded > AT_ONCE_BYTES) {
                break;
            }
            end.chain = block.finish(self.salt, end.chain);
            end.offset += padded as u64;
            end.block = block.number + 1;
            *place = end;
            bytes += padded;
            count += 1;
        }
        let blocks = self.queue.range(self.written..self.written + count);
        let parts: Vec<&[u8]> = blocks.map(|(block, _)| block.bytes()).collect();
        let written = self.file.write_parts_at(self.end.offset, &parts);
        written.map_err(|error| match error.is_no_space() {
            true => Trouble::NoSpace(error),
            false => Trouble::Broken(error),
        })?;
        self.end = end;
        self.placed_bytes += bytes as u64;
        self.written += count;
        Ok(())
    }

    fn sync_written(&mut self) -> Result<(), DiskError> {
        if self.written == 0 {
            return Ok(());
        }
        self.file.sync()?;
        for (block, place) in self.queue.drain(..self.written) {
            self.durable = place;
            self.report.sealed = self.report.sealed.max(block.seal);
            if block.is_mark {
                self.report.marks.push((place.block, place));
            }
            self.report.blocks.push(block);
        }
        self.written = 0;
        Ok(())
    }

    /// Goes on in the next segment.
    fn switch(&mut self) -> Result<(), Trouble> {
        self.sync_written().map_err(Trouble::Broken)?;
        let (number, file) = self
            .take_spare()
            .map_err(|error| match error.is_no_space() {
                true => Trouble::NoSpace(error),
                false => Trouble::Broken(error),
            })?;
        self.file = file;
        self.salt = self.ids.next();
        let written = self.write_header(number, Void::default());
        written.map_err(Trouble::Broken)
    }

    /// Puts all that is not durable into another file, once.
    fn rescue(&mut self, error: &DiskError) -> Result<(), WriteError> {
        let moved = self.move_on();
        moved.map_err(|second| {
            let reason = format!("{error}; and in another file: {second}");
            self.report.poison = Some(reason.clone());
            WriteError::Poisoned { reason }
        })
    }

    fn move_on(&mut self) -> Result<(), DiskError> {
        let placed = self.queue.iter().take(self.written);
        self.placed_bytes -= placed.map(|(block, _)| block.padded() as u64).sum::<u64>();
        self.written = 0;
        self.end = self.durable;
        let (number, file) = self.take_spare()?;
        self.file = file;
        self.salt = self.ids.next();
        self.write_header(number, Void::default())?;
        match self.place_all() {
            Ok(()) => self.sync_written(),
            Err(Trouble::NoSpace(error) | Trouble::Broken(error)) => Err(error),
        }
    }

    /// Makes `self.file` segment `number`, which follows the end of the one before.
    fn write_header(&mut self, number: u64, void: Void) -> Result<(), DiskError> {
        let header = Header {
            identity: self.identity,
            number,
            end: self.end,
            salt: self.salt,
            void,
        };
        self.file.write_at(0, &header.encode())?;
        self.end.segment = number;
        self.end.offset = BLOCKS_AT;
        Ok(())
    }

    fn take_spare(&mut self) -> Result<(u64, Box<dyn DiskFile>), DiskError> {
        loop {
            match std::mem::replace(&mut self.spare, Spare::Missing) {
                Spare::Ready { number, file } => return Ok((number, file)),
                other => self.spare = other,
            }
            self.prepare()?;
        }
    }

    fn prepare_piece(&mut self) -> Result<bool, DiskError> {
        match &mut self.spare {
            Spare::Ready { .. } => {}
            Spare::Missing => {
                let number = self.number_next;
                self.number_next = number.saturating_add(1);
                if let Some(file) = self.recycle(number) {
                    self.spare = Spare::Ready { number, file };
                } else {
                    self.spare = Spare::Begun {
                        number,
                        file: self.disk.create(&segment::name(number))?,
                        written: 0,
                    };
                }
            }
            Spare::Begun {
                number,
                file,
                written,
            } => {
                if *written < self.sizes.segment_bytes {
                    *written += write_zeros(&mut **file, *written, self.sizes.segment_bytes)?;
                    return Ok(true);
                }
                file.sync()?;
                self.disk.sync_directory()?;
                let number = *number;
                if let Spare::Begun { file, .. } =
                    std::mem::replace(&mut self.spare, Spare::Missing)
                {
                    self.spare = Spare::Ready { number, file };
                }
            }
        }
        Ok(!matches!(self.spare, Spare::Ready { .. }))
    }

    /// A retired segment under a new name, if there is one that can be used again.
    fn recycle(&mut self, number: u64) -> Option<Box<dyn DiskFile>> {
        let old = segment::name(self.retired.take()?);
        let new = segment::name(number);
        self.disk.rename(&old, &new).ok()?;
        let file = self.disk.open(&new).ok()?;
        let is_usable = file
            .bytes()
            .is_ok_and(|bytes| bytes == self.sizes.segment_bytes)
            && self.disk.sync_directory().is_ok();
        if !is_usable {
            // Another number is used then; the name of this one is taken.
            let _ = self.disk.remove(&new);
        }
        is_usable.then_some(file)
    }
}

/// Writes a piece of zeros; says how long it was.
fn write_zeros(file: &mut dyn DiskFile, from: u64, to: u64) -> Result<u64, DiskError> {
    let bytes = (to - from).min(ZEROS_BYTES as u64);
    file.write_at(from, &vec![0; bytes as usize])?;
    Ok(bytes)
}

fn create_whole(
    disk: &dyn Disk,
    sizes: &Sizes,
    number: u64,
) -> Result<Box<dyn DiskFile>, DiskError> {
    let mut file = disk.create(&segment::name(number))?;
    let mut written = 0;
    while written < sizes.segment_bytes {
        written += write_zeros(&mut *file, written, sizes.segment_bytes)?;
    }
    file.sync()?;
    Ok(file)
}

/// A file behind segment `last`, by number, that can be the next one.
type Found = (u64, Box<dyn DiskFile>);

/// A file that was made ready for use but not used, and the first number that no file has. Files
/// that were not made to their end are removed.
fn find_spare(
    disk: &dyn Disk,
    identity: &Identity,
    sizes: &Sizes,
    last: u64,
) -> Result<(Option<Found>, u64), RecoveryError> {
    let (mut spare, mut number_next) = (None, last.saturating_add(1));
    for number in segment::numbers(disk)? {
        if number <= last {
            continue;
        }
        number_next = number_next.max(number.saturating_add(1));
        let file = disk.open(&segment::name(number))?;
        if Header::read(&*file, identity, number)?.is_some() {
            continue;
        }
        if spare.is_none() && file.bytes()? == sizes.segment_bytes {
            spare = Some((number, file));
        } else {
            disk.remove(&segment::name(number))?;
        }
    }
    Ok((spare, number_next))
}
