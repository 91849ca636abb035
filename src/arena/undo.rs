//! What is told of every change before it happens, so that a killed process leaves nothing torn.
//!
//! # Scopes
//! Changes belong to a *scope*: an operation, a block of them, a transaction's part. Before memory in
//! use is changed for a scope, its words go into the undo pieces, which lie in the arena's own file;
//! the end of the scope empties them with one store. Whoever opens the file after a crash puts the
//! words back, the last one first, and finds the moment before the scope.
//!
//! ```text
//! undo piece | words 8 x n | offset 48, n 16 | words ... | offset, n |  ...
//!                                                                    ^ used, in the head
//! ```
//! The stores of a killed process are all in the file's pages, in the order of the program; so the
//! compiler's order is all that has to be kept. After a power cut that is not so: then the file is
//! refused.

#![expect(
    unsafe_code,
    reason = "before-images are copied from and to arena memory"
)]

use std::ptr::NonNull;
use std::sync::atomic::{Ordering, compiler_fence};

#[cfg(test)]
use super::crash;
use super::extents::Extent;
use super::head::{Head, UNDO_BYTES_FIRST, UNDO_PIECES};
use super::mutant::{self, Mutant};
use crate::limits::{PAGE_BYTES, SCOPE_BYTES_LONG};

const WORD: usize = size_of::<u64>();
/// Words of one record at most.
const RECORD_WORDS_MAX: usize = u16::MAX as usize;

pub(super) struct Undo {
    base: NonNull<u8>,
    head: Head,
    /// Where the next record goes.
    cursor: NonNull<u8>,
    /// Bytes from there to the end of its piece; 0 while no scope is open.
    room: usize,
    /// The count of bytes used of the piece.
    used: NonNull<u64>,
    /// The piece in use.
    piece: usize,
    /// Pieces that there are, and their lengths.
    pieces: Vec<Extent>,
}

impl Undo {
    /// The undo log of an arena whose undo pieces are empty.
    pub(super) fn new(base: NonNull<u8>) -> Result<Self, String> {
        let head = Head::at(base);
        let (offset, bytes) = head.undo_piece(0);
        let first = (PAGE_BYTES as u64, UNDO_BYTES_FIRST as u64);
        if (offset, bytes) != first {
            return Err("the first undo piece is not where it belongs".to_owned());
        }
        Ok(Self {
            base,
            head,
            cursor: base,
            room: 0,
            used: head.undo_used(0),
            piece: 0,
            pieces: vec![Extent { offset, bytes }],
        })
    }

    /// Keeps the words of a range that is about to change.
    #[inline]
    pub(super) fn before(&mut self, offset: u64, bytes: usize) {
        #[cfg(test)]
        crash::tell(crash::Moment::Between);
        let first = offset as usize & !(WORD - 1);
        let words = (offset as usize + bytes).next_multiple_of(WORD) - first;
        let words = words / WORD;
        if words <= RECORD_WORDS_MAX {
            self.keep(first, words);
        } else {
            for at in (0..words).step_by(RECORD_WORDS_MAX) {
                self.keep(first + at * WORD, (words - at).min(RECORD_WORDS_MAX));
            }
        }
    }

    #[inline]
    fn keep(&mut self, first: usize, words: usize) {
        let bytes = words * WORD;
        if self.room < bytes + WORD && !self.turn(bytes + WORD) {
            return;
        }
        // SAFETY: the range lies in the arena; the piece, which is no part of any extent that may
        // change, has room for the words and their header.
        unsafe {
            let from = self.base.add(first).cast::<u64>();
            let to = self.cursor.cast::<u64>();
            if words == 1 {
                to.write(from.read());
            } else {
                to.copy_from_nonoverlapping(from, words);
            }
            to.add(words).write((first as u64) << 16 | words as u64);
            self.cursor = self.cursor.add(bytes + WORD);
        }
        self.room -= bytes + WORD;
        compiler_fence(Ordering::Release);
        // SAFETY: a field of the head, which only this trace writes.
        unsafe {
            let used = self.used.read();
            self.used.write_volatile(used + (bytes + WORD) as u64);
        }
        compiler_fence(Ordering::Release);
    }

    /// Tells of memory that held nothing in use and was written: there is nothing to put back.
    #[inline]
    pub(super) fn fresh(&mut self, _offset: u64, _bytes: usize) {
        #[cfg(test)]
        crash::tell(crash::Moment::Between);
    }

    /// Opens a scope, or goes on to the next piece; false if nothing is to be kept.
    #[cold]
    #[inline(never)]
    fn turn(&mut self, needed: usize) -> bool {
        if mutant::keeps_nothing() {
            return false;
        }
        let mut next = if self.is_open() { self.piece + 1 } else { 0 };
        while self
            .pieces
            .get(next)
            .is_some_and(|piece| (piece.bytes as usize) < needed)
        {
            // A piece too short for this record stays empty.
            self.begin(next);
            next += 1;
        }
        assert!(
            next < self.pieces.len(),
            "a scope keeps no more before-images than it made room for"
        );
        self.begin(next);
        true
    }

    fn begin(&mut self, piece: usize) {
        let Extent { offset, bytes } = self.pieces[piece];
        self.piece = piece;
        self.used = self.head.undo_used(piece);
        // SAFETY: a field of the head, which only this trace writes.
        unsafe { self.used.write_volatile(0) };
        compiler_fence(Ordering::Release);
        #[cfg(test)]
        crash::tell(crash::Moment::Between);
        self.head.set_undo_active(piece as u64 + 1);
        compiler_fence(Ordering::Release);
        // SAFETY: pieces lie in the arena.
        self.cursor = unsafe { self.base.add(offset as usize) };
        self.room = bytes as usize;
    }

    /// Whether anything was kept since the last end.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.head.undo_active() != 0
    }

    /// Whether much of the first piece is used.
    #[inline]
    pub(super) fn is_long(&self) -> bool {
        self.is_open() && (self.piece > 0 || self.room < UNDO_BYTES_FIRST - SCOPE_BYTES_LONG)
    }

    /// The length of a further piece that is needed so that `bytes` more can be kept.
    pub(super) fn wants_piece(&self, bytes: usize) -> Option<usize> {
        let rest = if self.is_open() {
            self.room
        } else {
            self.pieces[0].bytes as usize
        };
        let begun = if self.is_open() { self.piece + 1 } else { 1 };
        let further = self
            .pieces
            .iter()
            .skip(begun)
            .map(|piece| piece.bytes as usize);
        // A record may not fit the end of a piece, so a piece counts only for itself.
        let has_room = std::iter::once(rest)
            .chain(further)
            .any(|room| room >= bytes);
        let doubled = self
            .pieces
            .last()
            .map_or(0, |piece| 2 * piece.bytes as usize);
        (!has_room).then(|| bytes.max(doubled))
    }

    /// Whether another piece may be added.
    pub(super) fn can_add(&self) -> bool {
        self.pieces.len() < UNDO_PIECES
    }

    /// Adds a piece.
    pub(super) fn add_piece(&mut self, extent: Extent) {
        self.head
            .set_undo_piece(self.pieces.len(), extent.offset, extent.bytes);
        self.pieces.push(extent);
    }

    /// Ends the scope: its changes stay. Gives back the pieces that only it needed.
    pub(super) fn end(&mut self) -> Option<Vec<Extent>> {
        if self.is_open() {
            #[cfg(test)]
            crash::tell(crash::Moment::Between);
            compiler_fence(Ordering::Release);
            self.head.set_undo_active(0);
            compiler_fence(Ordering::Release);
            self.room = 0;
        }
        (self.pieces.len() > 1).then(|| self.pieces.split_off(1))
    }

    /// Puts back what an interrupted scope has changed in the first `bytes` of an arena. Nothing in
    /// the file is trusted.
    pub(super) fn undo(base: NonNull<u8>, bytes: u64) -> Result<(), String> {
        let head = Head::at(base);
        let active = usize::try_from(head.undo_active()).unwrap_or(usize::MAX);
        if active > UNDO_PIECES {
            return Err(format!("{active} undo pieces are said to be in use"));
        }
        for piece in (0..active).rev() {
            let (offset, length) = head.undo_piece(piece);
            // SAFETY: a field of the head.
            let used = unsafe { head.undo_used(piece).read() };
            let is_inside = offset.checked_add(length).is_some_and(|end| end <= bytes);
            if !is_inside || used > length || !offset.is_multiple_of(8) || !used.is_multiple_of(8) {
                return Err(format!("undo piece {piece} lies outside the file"));
            }
            Self::undo_piece(base, bytes, offset as usize, used as usize)?;
        }
        compiler_fence(Ordering::Release);
        head.set_undo_active(0);
        Ok(())
    }

    fn undo_piece(base: NonNull<u8>, bytes: u64, offset: usize, used: usize) -> Result<(), String> {
        let mut end = used;
        if mutant::is(Mutant::UndoForwards) {
            Self::turn_round(base, offset, used);
        }
        while end > 0 {
            // SAFETY: the piece lies in the file, and `end` within the piece, at least one word.
            let header = unsafe { base.add(offset + end - WORD).cast::<u64>().read() };
            let (to, words) = ((header >> 16) as usize, (header & 0xffff) as usize);
            let length = words * WORD;
            if end < length + WORD || (to + length) as u64 > bytes || !to.is_multiple_of(WORD) {
                return Err("a before-image does not fit the file".to_owned());
            }
            end -= length + WORD;
            // SAFETY: source and target lie in the file, as just checked. They overlap only in a
            // damaged one, where any bytes will do.
            unsafe {
                let from = base.add(offset + end).cast::<u64>();
                base.add(to).cast::<u64>().copy_from(from, words);
            }
        }
        Ok(())
    }

    /// Turns the records of a piece round, each whole: a fault of tests.
    #[cold]
    fn turn_round(base: NonNull<u8>, offset: usize, used: usize) {
        // SAFETY: the piece was written by this process's own test.
        let words: &mut [u64] = unsafe {
            std::slice::from_raw_parts_mut(base.add(offset).cast().as_ptr(), used / WORD)
        };
        let (mut turned, mut end) = (Vec::new(), words.len());
        while end > 0 {
            let length = 1 + (words[end - 1] & 0xffff) as usize;
            turned.extend_from_slice(&words[end - length..end]);
            end -= length;
        }
        words.copy_from_slice(&turned);
    }
}
