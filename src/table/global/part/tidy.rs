//! Bringing the nodes of a part together, so that memory goes back.

use super::GlobalPart;
use crate::arena::Arena;
use crate::tree::{Packing, TreeError};

impl GlobalPart {
    /// Plans to bring all nodes together, which [`tidy`](Self::tidy) then does.
    pub(crate) fn plan_all(&mut self) {
        self.packing = Some(Packing::new());
    }

    /// Moves nodes and pages of at most about so many bytes; says how many bytes it was. Each move stays,
    /// whatever happens afterwards. No transaction may be under way.
    pub(crate) fn tidy(&mut self, arena: &mut Arena, bytes: usize) -> usize {
        let mut moved = 0;
        let Some(mut packing) = self.packing.take() else {
            return moved;
        };
        while self.check_writable(arena).is_ok() {
            if moved >= bytes {
                self.packing = Some(packing);
                break;
            }
            let step = self.tree.pack(arena, &mut packing);
            if arena.is_logged() {
                arena.end_scope();
            }
            match step {
                Ok(Some(bytes)) => moved += bytes,
                Ok(None) => break,
                Err(error) => {
                    // Where there is no room for before-images, all stays as it is.
                    self.is_damaged |= matches!(error, TreeError::Damaged(_));
                    break;
                }
            }
        }
        moved
    }
}
