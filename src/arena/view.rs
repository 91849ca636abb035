//! Reading arena memory while its owner works on other parts of it.

#![expect(unsafe_code, reason = "memory is read beside its owner")]

use std::ptr::NonNull;

/// Where an arena's memory is, for whoever reads parts that do not change meanwhile: texts and rows,
/// while an index grows.
#[derive(Clone, Copy)]
pub(crate) struct View {
    base: NonNull<u8>,
    bytes: u64,
}

impl View {
    pub(super) fn new(base: NonNull<u8>, bytes: u64) -> Self {
        Self { base, bytes }
    }

    /// Looks at so many bytes from an offset on; at none if they do not lie in the arena, as a damaged
    /// file may have it. The arena lives, and what is looked at changes only by the arena's one owner,
    /// who is looking.
    #[inline]
    pub(crate) fn with<T>(&self, offset: u64, bytes: usize, look: impl FnOnce(&[u8]) -> T) -> T {
        let is_inside = offset
            .checked_add(bytes as u64)
            .is_some_and(|end| end <= self.bytes);
        if !is_inside {
            return look(&[]);
        }
        // SAFETY: the range lies in the arena, whose memory is mapped as long as it lives; its owner is
        // the caller, on whose thread nothing is written while `look` runs.
        look(unsafe { std::slice::from_raw_parts(self.base.add(offset as usize).as_ptr(), bytes) })
    }
}
