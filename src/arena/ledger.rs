//! The ledger: which extents are in use and what for, kept in the arena itself.
//!
//! An arena that lives in a file is opened by reading its ledger: every extent in it goes back to its
//! owner, and what no extent covers is free. So no memory is ever lost, whatever a crash interrupts.
//!
//! ```text
//! piece k    | record 32 x (2048 << k) |          at the offset that the head names, 0 if there is none
//! record     | page 4 | pages 4 | owner 4 | kind 4 | number 4 | detail 4 | 0 8 |      pages 0: free
//! ```
//! Pieces are extents themselves, named by the head instead of a record. A record is changed with a
//! before-image, as everything else.

#![expect(unsafe_code, reason = "records lie in arena memory")]

use std::ptr::NonNull;

use hashbrown::HashMap;

use super::extents::Extent;
use super::head::{Head, LEDGER_PIECES};
use super::map::Map;
use super::mutant::{self, Mutant};
use super::trace::Trace;
use crate::error::Faults;
use crate::limits::PAGE_BYTES;

/// Records of the first piece; each further one has twice as many.
const RECORDS_FIRST: usize = 2048;

/// What an extent is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ExtentUse {
    /// The serial of the table that it belongs to; 0 for the shard itself.
    pub(crate) owner: u32,
    pub(crate) kind: ExtentKind,
    /// Which of its kind.
    pub(crate) number: u32,
    /// What the kind wants to be told when it is opened again.
    pub(crate) detail: u32,
}

/// The kinds of extents. Their numbers are part of the file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub(crate) enum ExtentKind {
    /// The head of a table's part.
    Part = 1,
    /// Rows.
    Slab = 2,
    /// The stack of freed slots.
    FreeSlots = 3,
    /// Buckets of the hash index.
    Segment = 4,
    /// Pages of an ordered tree.
    Tree = 5,
    /// Strings and bytes.
    Text = 6,
    /// A proposal's part that waits for its decision.
    Prepared = 7,
    /// Decisions about proposals.
    Decided = 8,
    /// Slots that clients have reserved.
    Reserved = 9,
    /// Lists of records with the same value.
    Links = 10,
    /// The tables of a database with journals.
    Tables = 11,
}

impl ExtentKind {
    const ALL: [Self; 11] = [
        Self::Part,
        Self::Slab,
        Self::FreeSlots,
        Self::Segment,
        Self::Tree,
        Self::Text,
        Self::Prepared,
        Self::Decided,
        Self::Reserved,
        Self::Links,
        Self::Tables,
    ];
}

impl ExtentUse {
    /// An extent of a table's part.
    pub(crate) fn new(owner: u32, kind: ExtentKind, number: u32) -> Self {
        Self {
            owner,
            kind,
            number,
            detail: 0,
        }
    }

    pub(crate) fn detail(self, detail: u32) -> Self {
        Self { detail, ..self }
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Record {
    page: u32,
    pages: u32,
    owner: u32,
    kind: u32,
    number: u32,
    detail: u32,
    zero: u64,
}

const _: () = assert!(size_of::<Record>() == 32);

/// Bytes of a piece.
pub(super) fn piece_bytes(piece: usize) -> usize {
    size_of::<Record>() * (RECORDS_FIRST << piece)
}

pub(super) struct Ledger {
    pieces: Vec<NonNull<Record>>,
    /// Free records below `next`.
    free: Vec<u32>,
    next: u32,
    /// The record of the extent at an offset.
    by_offset: HashMap<u64, u32>,
}

impl Ledger {
    pub(super) fn new() -> Self {
        Self {
            pieces: Vec::new(),
            free: Vec::new(),
            next: 0,
            by_offset: HashMap::new(),
        }
    }

    /// The piece that is to be added before the next record, if one is.
    pub(super) fn wants_piece(&self) -> Option<usize> {
        let is_full = self.free.is_empty() && self.next as usize == self.records();
        is_full.then_some(self.pieces.len())
    }

    fn records(&self) -> usize {
        RECORDS_FIRST * ((1 << self.pieces.len()) - 1)
    }

    /// Adds a piece in an extent of its own; false if there are as many as there can be.
    pub(super) fn add_piece(&mut self, map: &Map, trace: &mut Trace, extent: Extent) -> bool {
        let piece = self.pieces.len();
        if piece == LEDGER_PIECES {
            return false;
        }
        let address = map.address(extent.offset as usize);
        // SAFETY: the extent was just allocated for this piece.
        unsafe { address.write_bytes(0, piece_bytes(piece)) };
        trace.fresh(extent.offset, piece_bytes(piece));
        trace.before(Head::ledger_offset(piece), size_of::<u64>());
        Head::at(map.address(0)).set_ledger(piece, extent.offset);
        self.pieces.push(address.cast());
        true
    }

    /// Notes an extent; there is room.
    pub(super) fn add(&mut self, map: &Map, trace: &mut Trace, extent: Extent, use_: ExtentUse) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        let record = Record {
            page: (extent.offset / PAGE_BYTES as u64) as u32,
            pages: (extent.bytes / PAGE_BYTES as u64) as u32,
            owner: use_.owner,
            kind: use_.kind as u32,
            number: use_.number,
            detail: use_.detail,
            zero: 0,
        };
        self.write(map, trace, number, record);
        self.by_offset.insert(extent.offset, number);
    }

    /// Notes that what was in an extent is in another one now.
    pub(super) fn rename(&mut self, map: &Map, trace: &mut Trace, old: Extent, new: Extent) {
        let Some(number) = self.by_offset.remove(&old.offset) else {
            return;
        };
        // SAFETY: the record is ours (see `address`).
        let record = unsafe { self.address(number).read() };
        let moved = Record {
            page: (new.offset / PAGE_BYTES as u64) as u32,
            pages: (new.bytes / PAGE_BYTES as u64) as u32,
            ..record
        };
        self.write(map, trace, number, moved);
        self.by_offset.insert(new.offset, number);
    }

    /// Forgets an extent.
    pub(super) fn remove(&mut self, map: &Map, trace: &mut Trace, extent: Extent) {
        if let Some(number) = self.by_offset.remove(&extent.offset) {
            let record = Record {
                page: 0,
                pages: 0,
                owner: 0,
                kind: 0,
                number: 0,
                detail: 0,
                zero: 0,
            };
            self.write(map, trace, number, record);
            self.free.push(number);
        }
    }

    /// Owners of extents in use.
    #[cfg(test)]
    pub(super) fn owners(&self) -> Vec<u32> {
        let numbers = self.by_offset.values();
        // SAFETY: the record is ours (see `address`).
        let owner = |&number| unsafe { self.address(number).read() }.owner;
        numbers.map(owner).collect()
    }

    fn address(&self, number: u32) -> NonNull<Record> {
        let (piece, at) = split(number);
        // SAFETY: the number is below `records`, so it lies in that piece.
        unsafe { self.pieces[piece].add(at) }
    }

    fn write(&mut self, map: &Map, trace: &mut Trace, number: u32, record: Record) {
        let address = self.address(number);
        if !mutant::is(Mutant::LedgerUntold) {
            trace.before(map.offset(address.cast()), size_of::<Record>());
        }
        // SAFETY: the record is ours (see `address`), and `&mut self` excludes readers.
        unsafe { address.write(record) };
    }

    /// Reads the ledger of a file: pieces and extents. Nothing in it is trusted.
    pub(super) fn read(map: &Map, bytes: u64) -> Result<(Self, Vec<Entry>, Vec<Extent>), String> {
        let mut faults = Faults::default();
        let read = Self::survey(map, bytes, &mut faults);
        faults.first().map_or(Ok(read), Err)
    }

    /// As [`read`](Self::read), of a file of which any part may be damaged: what is, is told and left
    /// out.
    pub(super) fn survey(
        map: &Map,
        bytes: u64,
        faults: &mut Faults,
    ) -> (Self, Vec<Entry>, Vec<Extent>) {
        let head = Head::at(map.address(0));
        let mut ledger = Self::new();
        let (mut entries, mut own) = (Vec::new(), Vec::new());
        for piece in 0..LEDGER_PIECES {
            let offset = head.ledger(piece);
            if offset == 0 {
                break;
            }
            let extent = Extent {
                offset,
                bytes: piece_bytes(piece) as u64,
            };
            if let Err(reason) = check_extent(extent, bytes) {
                faults.note(format!("piece {piece} of the ledger"), reason);
                break;
            }
            own.push(extent);
            ledger.pieces.push(map.address(offset as usize).cast());
        }
        ledger.next = ledger.records() as u32;
        for number in 0..ledger.next {
            // SAFETY: the record lies in a piece that was just found to lie in the file; any bytes
            // make a record.
            let record = unsafe { ledger.address(number).read() };
            if record.pages == 0 {
                ledger.free.push(number);
                continue;
            }
            match record.entry(bytes) {
                Ok(entry) => {
                    ledger.by_offset.insert(entry.extent.offset, number);
                    entries.push(entry);
                }
                Err(reason) => faults.note(format!("record {number} of the ledger"), reason),
            }
        }
        ledger.free.reverse();
        (ledger, entries, own)
    }
}

impl Record {
    /// The extent in a file of so many bytes, or what is wrong with it.
    fn entry(&self, bytes: u64) -> Result<Entry, String> {
        let extent = Extent {
            offset: u64::from(self.page) * PAGE_BYTES as u64,
            bytes: u64::from(self.pages) * PAGE_BYTES as u64,
        };
        check_extent(extent, bytes)?;
        let kind = ExtentKind::ALL
            .into_iter()
            .find(|&kind| kind as u32 == self.kind)
            .ok_or_else(|| format!("an extent is of unknown kind {}", self.kind))?;
        let use_ = ExtentUse {
            owner: self.owner,
            kind,
            number: self.number,
            detail: self.detail,
        };
        Ok(Entry { extent, use_ })
    }
}

/// An extent of a reopened arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) extent: Extent,
    pub(crate) use_: ExtentUse,
}

fn check_extent(extent: Extent, bytes: u64) -> Result<(), String> {
    let end = extent.offset.checked_add(extent.bytes);
    let is_inside = extent.offset.is_multiple_of(PAGE_BYTES as u64)
        && extent.offset >= Head::BYTES as u64
        && end.is_some_and(|end| end <= bytes);
    if is_inside {
        Ok(())
    } else {
        Err(format!(
            "an extent of {} bytes at {} lies outside the file of {bytes} bytes",
            extent.bytes, extent.offset
        ))
    }
}

/// The piece of a record, and its place there.
fn split(number: u32) -> (usize, usize) {
    let at = number as usize + RECORDS_FIRST;
    let piece = (at / RECORDS_FIRST).ilog2() as usize;
    (piece, at - (RECORDS_FIRST << piece))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_numbers_fall_into_pieces_of_doubling_length() {
        assert_eq!(split(0), (0, 0));
        assert_eq!(split(2047), (0, 2047));
        assert_eq!(split(2048), (1, 0));
        assert_eq!(split(2048 + 4095), (1, 4095));
        assert_eq!(split(2048 + 4096), (2, 0));
    }
}
