//! What is told of every change, and what becomes of it.
//!
//! # Scopes
//! Changes belong to a *scope*: an operation, a block of them, a transaction's part. It ends as a
//! whole: an arena in a mapped file keeps the words that were there before ([`Undo`]), so that an
//! interrupted scope can be taken back; an arena with a journal keeps the ranges that were changed
//! ([`Redo`]), whose content goes into the journal when the scope ends. Either way every change of
//! memory in use is told before it happens, and so is every write to memory that holds nothing.

use super::extents::Extent;
use super::redo::Redo;
use super::undo::Undo;

pub(super) enum Trace {
    Undo(Undo),
    Redo(Box<Redo>),
}

impl Trace {
    /// Tells of a range in use that is about to change.
    #[inline]
    pub(super) fn before(&mut self, offset: u64, bytes: usize) {
        match self {
            Self::Undo(undo) => undo.before(offset, bytes),
            Self::Redo(redo) => redo.change(offset, bytes),
        }
    }

    /// Tells of memory that holds nothing in use and is written.
    #[inline]
    pub(super) fn fresh(&mut self, offset: u64, bytes: usize) {
        match self {
            Self::Undo(undo) => undo.fresh(offset, bytes),
            Self::Redo(redo) => redo.change(offset, bytes),
        }
    }

    /// Tells that memory which held nothing is in use from now on.
    pub(super) fn taken(&mut self, extent: Extent) {
        if let Self::Redo(redo) = self {
            redo.take(extent);
        }
    }

    /// Whether the scope at hand should end as soon as it may.
    #[inline]
    pub(super) fn is_long(&self) -> bool {
        match self {
            Self::Undo(undo) => undo.is_long(),
            Self::Redo(redo) => redo.is_long(),
        }
    }

    /// The bytes of a further undo piece that is needed so that `bytes` more can be told.
    #[inline]
    pub(super) fn wants_piece(&self, bytes: usize) -> Option<usize> {
        match self {
            Self::Undo(undo) => undo.wants_piece(bytes),
            Self::Redo(_) => None,
        }
    }

    /// Adds an undo piece, if there may be another one.
    pub(super) fn add_piece(&mut self, extent: Extent) -> bool {
        match self {
            Self::Undo(undo) if undo.can_add() => {
                undo.add_piece(extent);
                true
            }
            _ => false,
        }
    }

    /// Ends the scope: its changes stay. Gives back the undo pieces that only it needed.
    #[inline]
    pub(super) fn end(&mut self) -> Option<Vec<Extent>> {
        match self {
            Self::Undo(undo) => undo.end(),
            Self::Redo(redo) => {
                redo.end();
                None
            }
        }
    }
}
