//! The head of an arena that lives in a file.
//!
//! ```text
//! 0      magic 16 | major 4 | minor 4 | shard 4 | shards 4 | database 16 | check 8     never changes
//! 64     state 4 | 0 4 | boot 16 | 0 8
//! 96     undo pieces in use 8
//! 104    undo piece | offset 8 | bytes 8 | used 8 |  x 24
//! 680    ledger piece offset 8 x 24
//! 4096   the first undo piece, to 2 MiB, where extents begin
//! ```
//! Numbers are little-endian. The magic, as a number of this order, refuses files of another.

#![expect(unsafe_code, reason = "the head lies in arena memory")]

use std::ptr::NonNull;

use crate::limits::{HUGE_PAGE_BYTES, PAGE_BYTES};

pub(super) const UNDO_PIECES: usize = 24;
/// Bytes of the first undo piece.
pub(super) const UNDO_BYTES_FIRST: usize = if cfg!(test) {
    32 << 10
} else {
    Head::BYTES - PAGE_BYTES
};
pub(super) const LEDGER_PIECES: usize = 24;

const MAGIC: [u8; 16] = *b"ancile arena\r\n\x1a\0";

/// The version of the format that this build writes. A file of another major version is refused; one
/// of a later minor version is read.
pub(crate) const FORMAT_MAJOR: u32 = 1;
pub(crate) const FORMAT_MINOR: u32 = 0;

/// Both.
pub(crate) const FORMAT: (u32, u32) = (FORMAT_MAJOR, FORMAT_MINOR);

const STATE_CLEAN: u32 = 1;
const STATE_OPEN: u32 = 2;

/// What a file must be to belong to a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) database: [u8; 16],
    pub(crate) shard: u32,
    pub(crate) shards: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct UndoPiece {
    offset: u64,
    bytes: u64,
    used: u64,
}

#[repr(C)]
struct Layout {
    magic: [u8; 16],
    major: u32,
    minor: u32,
    shard: u32,
    shards: u32,
    database: [u8; 16],
    check: u64,
    _pad: u64,
    state: u32,
    _zero: u32,
    boot: [u8; 16],
    _zeros: u64,
    undo_active: u64,
    undo: [UndoPiece; UNDO_PIECES],
    ledger: [u64; LEDGER_PIECES],
}

const _: () = assert!(size_of::<Layout>() <= PAGE_BYTES);
const _: () = assert!(std::mem::offset_of!(Layout, state) == 64);
const _: () = assert!(std::mem::offset_of!(Layout, undo_active) == 96);
const _: () = assert!(std::mem::offset_of!(Layout, ledger) == 680);

/// Bytes before the first extent.
pub(crate) const HEAD_BYTES: u64 = Head::BYTES as u64;

/// The head of a mapped arena. Its memory is read and written field by field, as other code holds
/// addresses of its parts, too.
#[derive(Clone, Copy)]
pub(super) struct Head(NonNull<Layout>);

macro_rules! get {
    ($head:expr, $($field:tt)+) => {
        // SAFETY: a head's first page is mapped as long as the arena, and any bytes make a layout.
        // Volatile, as whoever comes after a crash reads the file, too.
        unsafe { (&raw const (*$head.0.as_ptr()).$($field)+).read_volatile() }
    };
}

macro_rules! set {
    ($head:expr, $($field:tt)+) => {
        |value| {
            // SAFETY: as in `get`; the arena's owner is the only writer.
            unsafe { (&raw mut (*$head.0.as_ptr()).$($field)+).write_volatile(value) }
        }
    };
}

impl Head {
    /// Bytes before the first extent.
    pub(super) const BYTES: usize = HUGE_PAGE_BYTES;

    /// The head of the arena that begins at this address, whose first page is mapped.
    pub(super) fn at(base: NonNull<u8>) -> Self {
        Self(base.cast())
    }

    /// Writes the head of a new file, which is all zeros.
    pub(super) fn create(self, identity: Identity) {
        set!(self, major)(FORMAT_MAJOR);
        set!(self, minor)(FORMAT_MINOR);
        set!(self, shard)(identity.shard);
        set!(self, shards)(identity.shards);
        set!(self, database)(identity.database);
        set!(self, check)(self.sum());
        self.set_first_undo_piece();
        set!(self, state)(STATE_CLEAN);
        // Last, so that a file whose making was interrupted is none.
        set!(self, magic)(MAGIC);
    }

    /// Names the first undo piece, which is empty.
    pub(super) fn set_first_undo_piece(self) {
        set!(self, undo[0])(UndoPiece {
            offset: PAGE_BYTES as u64,
            bytes: UNDO_BYTES_FIRST as u64,
            used: 0,
        });
    }

    /// A number that depends on all that never changes.
    fn sum(self) -> u64 {
        let mut sum = u64::from(get!(self, major)) << 32 | u64::from(get!(self, minor));
        sum = crate::id::hash(sum);
        let place = u64::from(get!(self, shard)) << 32 | u64::from(get!(self, shards));
        sum = crate::id::hash(sum ^ place);
        let database = u128::from_le_bytes(get!(self, database));
        sum = crate::id::hash(sum ^ database as u64);
        crate::id::hash(sum ^ (database >> 64) as u64)
    }

    /// Whether this is the head of a file made by this kind of program.
    pub(super) fn is_ours(self) -> bool {
        get!(self, magic) == MAGIC
    }

    pub(super) fn version(self) -> (u32, u32) {
        (get!(self, major), get!(self, minor))
    }

    /// What the file is, unless its head is damaged.
    pub(super) fn identity(self) -> Option<Identity> {
        (get!(self, check) == self.sum()).then(|| Identity {
            database: get!(self, database),
            shard: get!(self, shard),
            shards: get!(self, shards),
        })
    }

    /// The boot of the system in which the file was in use, if it was not closed.
    pub(super) fn unclosed(self) -> Option<[u8; 16]> {
        (get!(self, state) != STATE_CLEAN).then(|| get!(self, boot))
    }

    pub(super) fn set_open(self, boot: [u8; 16]) {
        set!(self, boot)(boot);
        set!(self, state)(STATE_OPEN);
    }

    pub(super) fn set_clean(self) {
        set!(self, state)(STATE_CLEAN);
    }

    /// Undo pieces in use.
    pub(super) fn undo_active(self) -> u64 {
        get!(self, undo_active)
    }

    pub(super) fn set_undo_active(self, pieces: u64) {
        set!(self, undo_active)(pieces);
    }

    /// Offset and length of an undo piece.
    pub(super) fn undo_piece(self, piece: usize) -> (u64, u64) {
        (
            get!(self, undo[piece].offset),
            get!(self, undo[piece].bytes),
        )
    }

    pub(super) fn set_undo_piece(self, piece: usize, offset: u64, bytes: u64) {
        set!(self, undo[piece].offset)(offset);
        set!(self, undo[piece].bytes)(bytes);
    }

    /// Where the number of bytes used of an undo piece is.
    pub(super) fn undo_used(self, piece: usize) -> NonNull<u64> {
        // SAFETY: as in `get`.
        let used = unsafe { &raw mut (*self.0.as_ptr()).undo[piece].used };
        NonNull::new(used).expect("a field of the head is not at address zero")
    }

    /// The offset of a piece of the ledger; 0 if there is none.
    pub(super) fn ledger(self, piece: usize) -> u64 {
        get!(self, ledger[piece])
    }

    pub(super) fn set_ledger(self, piece: usize, offset: u64) {
        set!(self, ledger[piece])(offset);
    }

    /// Where in the arena a ledger piece is named.
    pub(super) fn ledger_offset(piece: usize) -> u64 {
        (std::mem::offset_of!(Layout, ledger) + piece * size_of::<u64>()) as u64
    }
}
