//! Reading a journal from a place on, block by block and segment by segment.
//!
//! # Where a journal ends
//! In a segment that has a successor, where the successor says: it was whole up to there when the
//! successor was begun, so anything that is not whole before is damage. In the last one, at the
//! first place that does not hold the next block. What lies behind that place may still be proof:
//! a block there that is whole tells which epochs were durable when it was written.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::block::{BlockView, Entry, HEAD_BYTES, length};
use super::disk::{Disk, DiskFile, SECTOR_BYTES};
use super::error::RecoveryError;
use super::mutant::{Mutant, is};
use super::segment::{self, BLOCKS_AT, Header, Void};
use super::superblock::{Identity, Position};

/// Bytes that are read at once, if there are so many.
const WINDOW_BYTES: u64 = 256 << 10;

/// A journal that is being read.
pub(super) struct Reader {
    disk: Arc<dyn Disk>,
    /// Of all segments from the first one that is read.
    headers: BTreeMap<u64, Header>,
    at: Position,
    salt: u64,
    window: Window,
}

/// A part of a file in memory.
struct Window {
    file: Box<dyn DiskFile>,
    file_bytes: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    fn new(file: Box<dyn DiskFile>) -> Result<Self, RecoveryError> {
        Ok(Self {
            file_bytes: file.bytes()?,
            file,
            start: 0,
            bytes: Vec::new(),
        })
    }

    /// Where the bytes from `offset` are in the window, after reading them if need be; none if the
    /// file ends before.
    fn hold(
        &mut self,
        offset: u64,
        bytes: usize,
    ) -> Result<Option<std::ops::Range<usize>>, RecoveryError> {
        let end = offset.saturating_add(bytes as u64);
        if end > self.file_bytes {
            return Ok(None);
        }
        if offset < self.start || end > self.start + self.bytes.len() as u64 {
            let wanted = WINDOW_BYTES.max(bytes as u64);
            self.bytes
                .resize(wanted.min(self.file_bytes - offset) as usize, 0);
            self.start = offset;
            if let Err(error) = self.file.read_at(offset, &mut self.bytes) {
                self.bytes.clear();
                return Err(error.into());
            }
        }
        let start = (offset - self.start) as usize;
        Ok(Some(start..start + bytes))
    }
}

impl Reader {
    /// Reads from `start` on.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        identity: &Identity,
        start: Position,
    ) -> Result<Self, RecoveryError> {
        let mut headers = BTreeMap::new();
        for number in segment::numbers(&*disk)? {
            if number >= start.segment {
                let file = disk.open(&segment::name(number))?;
                let header = Header::read(&*file, identity, number)?;
                headers.extend(header.map(|header| (number, header)));
            }
        }
        let path = segment::name(start.segment);
        let Some(header) = headers.get(&start.segment) else {
            let what =
                "the segment that the checkpoint needs is not there, or its header is damaged";
            return Err(RecoveryError::damaged(disk.path(&path), 0, what));
        };
        let salt = header.salt;
        let window = Window::new(disk.open(&path)?)?;
        Ok(Self {
            disk,
            headers,
            at: start,
            salt,
            window,
        })
    }

    /// The place behind the last block that was read.
    pub(super) fn position(&self) -> Position {
        self.at
    }

    /// The file that is being read.
    pub(super) fn path(&self) -> String {
        self.disk.path(&segment::name(self.at.segment))
    }

    /// What is void by the headers of the segments that were or will be read.
    pub(super) fn voids(&self) -> impl Iterator<Item = Void> + '_ {
        self.headers.values().map(|header| header.void)
    }

    /// The next block, or none at the end.
    pub(super) fn next(&mut self) -> Result<Option<BlockView<'_>>, RecoveryError> {
        let range = loop {
            let successor = self.successor();
            let limit = successor.filter(|_| !is(Mutant::EndLimitIgnored));
            if let Some(next) = limit.filter(|next| next.end.offset <= self.at.offset) {
                if next.end != self.at {
                    return Err(self.damaged("the segment does not end as the one after it says"));
                }
                self.follow(&next)?;
                continue;
            }
            match (self.valid()?, successor) {
                (Some(range), _) => break range,
                (None, None) => return Ok(None),
                (None, Some(next)) if is(Mutant::EndLimitIgnored) => self.follow(&next)?,
                (None, Some(_)) => return Err(self.damaged("a block is not what was written")),
            }
        };
        let bytes = &self.window.bytes[range];
        let Some(block) = BlockView::new(bytes, self.salt) else {
            return Ok(None);
        };
        self.at.offset += block.bytes() as u64;
        self.at.chain = block.checksum();
        self.at.block = block.number().saturating_add(1);
        Ok(Some(block))
    }

    /// Visits blocks behind the end that are whole nevertheless.
    pub(super) fn strays(
        &mut self,
        mut visit: impl FnMut(&BlockView<'_>),
    ) -> Result<(), RecoveryError> {
        let mut offset = self.at.offset;
        while offset < self.window.file_bytes {
            let mut step = SECTOR_BYTES;
            if let Some(range) = self.whole(offset)? {
                let block = BlockView::new(&self.window.bytes[range], self.salt);
                if let Some(block) = block.filter(|block| block.number() >= self.at.block) {
                    visit(&block);
                    step = block.bytes();
                }
            }
            offset += step as u64;
        }
        Ok(())
    }

    /// The segment that follows the one at hand: the last one that says so, for what was begun
    /// before it was given up.
    fn successor(&self) -> Option<Header> {
        let claims = |header: &&Header| header.end.segment == self.at.segment;
        self.headers.values().rfind(claims).copied()
    }

    fn follow(&mut self, next: &Header) -> Result<(), RecoveryError> {
        self.at.segment = next.number;
        self.at.offset = BLOCKS_AT;
        self.salt = next.salt;
        let file = self.disk.open(&segment::name(next.number))?;
        self.window = Window::new(file)?;
        Ok(())
    }

    /// Where in the window the block at hand is, if it is the one that belongs there.
    fn valid(&mut self) -> Result<Option<std::ops::Range<usize>>, RecoveryError> {
        let range = self.whole(self.at.offset)?;
        Ok(range.filter(|range| {
            let block = BlockView::new(&self.window.bytes[range.clone()], self.salt);
            block.is_some_and(|block| block.follows(self.at.chain, self.at.block))
        }))
    }

    /// Where in the window a block is that begins at `offset`; it may not be whole.
    fn whole(&mut self, offset: u64) -> Result<Option<std::ops::Range<usize>>, RecoveryError> {
        let Some(head) = self.window.hold(offset, HEAD_BYTES)? else {
            return Ok(None);
        };
        match length(&self.window.bytes[head]) {
            Some(bytes) => self.window.hold(offset, bytes),
            None => Ok(None),
        }
    }

    pub(super) fn damaged(&self, what: &str) -> RecoveryError {
        RecoveryError::damaged(self.path(), self.at.offset, what)
    }
}

/// The entries of a block; what is not there although the block is whole is damage.
pub(super) fn entries<'b>(
    block: &BlockView<'b>,
    path: impl Fn() -> String,
) -> impl Iterator<Item = Result<Entry<'b>, RecoveryError>> {
    let what = "a block does not hold the records that it counts";
    block
        .entries()
        .map(move |entry| entry.ok_or_else(|| RecoveryError::damaged(path(), 0, what)))
}

/// The place from which all that is kept of a journal can be read: back from segment `newest` as far
/// as segments are there.
pub(super) fn oldest(
    disk: &dyn Disk,
    identity: &Identity,
    newest: u64,
) -> Result<Option<Position>, RecoveryError> {
    let (mut oldest, mut number) = (None, newest);
    while let Some(header) = header(disk, identity, number)? {
        oldest = Some(Position {
            segment: header.number,
            offset: BLOCKS_AT,
            ..header.end
        });
        if header.end.segment >= number {
            break;
        }
        number = header.end.segment;
    }
    Ok(oldest)
}

fn header(
    disk: &dyn Disk,
    identity: &Identity,
    number: u64,
) -> Result<Option<Header>, RecoveryError> {
    match disk.open(&segment::name(number)) {
        Err(error) if error.is_not_found() => Ok(None),
        opened => Header::read(&*opened?, identity, number),
    }
}
