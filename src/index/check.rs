//! Whether an index is what it should be.

use super::{HashIndex, Keys};
use crate::error::Faults;

impl HashIndex {
    /// Visits the slot of every entry; tells of entries that are wrong in themselves. Whether every row
    /// is found is for the caller to try.
    pub(crate) fn check(&self, keys: &impl Keys, faults: &mut Faults, mut visit: impl FnMut(u32)) {
        for (number, segment) in (0_u32..).zip(&self.segments) {
            let is_own = |probe| self.entry(probe).segment == number;
            segment.check(keys, is_own, faults, &mut visit);
        }
    }
}
