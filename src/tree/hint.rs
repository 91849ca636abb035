//! Where entries were inserted last.

use super::page::{ROOM, VALUE_HEAD};
use super::slot::{BRANCH_SLOT, LEAF_SLOT};

/// Where entries were inserted last: `| run 7, signed | position 9 |`. Runs of insertions that
/// each go right behind (or right before) the last one are split so that pages stay full.
#[derive(Clone, Copy)]
pub(super) struct Hint {
    pub(super) position: usize,
    pub(super) run: i16,
}

const POSITION_BITS: u32 = 9;
const RUN_MAX: i16 = 63;
const _: () = assert!(ROOM / (LEAF_SLOT + VALUE_HEAD) < 1 << POSITION_BITS);
const _: () = assert!(ROOM / BRANCH_SLOT < 1 << POSITION_BITS);

impl Hint {
    pub(super) fn read(hint: u16) -> Self {
        Self {
            position: usize::from(hint & ((1 << POSITION_BITS) - 1)),
            run: hint.cast_signed() >> POSITION_BITS,
        }
    }

    /// After an insertion at `index`.
    pub(super) fn inserted(self, index: usize) -> Self {
        let run = if index == self.position + 1 {
            self.run.max(0) + 1
        } else if index == self.position {
            self.run.min(0) - 1
        } else {
            0
        };
        Self {
            position: index,
            run: run.clamp(-RUN_MAX, RUN_MAX),
        }
    }

    pub(super) fn to_u16(self) -> u16 {
        let position = self.position.min((1 << POSITION_BITS) - 1) as u16;
        (self.run << POSITION_BITS).cast_unsigned() | position
    }
}
