//! Which ordering of a hand-over publishes what to whom.

use std::sync::atomic::Ordering;

use crate::sync::pick;

/// Baton, at the end: all that was done to the proposal is complete for the stub that sees the end
/// with [`see_end`]; and whoever finds that it is awaited sees the waker set before [`wait`].
#[inline(always)]
pub(super) fn end() -> Ordering {
    pick("end", Ordering::AcqRel)
}

/// Stub, before it takes the proposal: pairs with [`end`].
#[inline(always)]
pub(super) fn see_end() -> Ordering {
    pick("see_end", Ordering::Acquire)
}

/// Stub, after it has set its waker: pairs with [`end`].
#[inline(always)]
pub(super) fn wait() -> Ordering {
    Ordering::AcqRel
}
