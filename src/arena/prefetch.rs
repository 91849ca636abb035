//! The one hint that hides memory latency: start reading a line into the second-level cache.
//!
//! Into the second level, not the first: the first level's miss buffers admit some sixteen lines at
//! a time, the second level's several times as many, which doubles the rate of random row reads.

#![expect(unsafe_code, reason = "the prefetch hint is an intrinsic")]

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Starts reading the line at `address`. Any address is harmless.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults and changes no memory.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Starts reading every line of a range of at least one byte.
#[inline(always)]
pub(crate) fn prefetch_range(address: *const u8, bytes: usize) {
    let mut at = 0;
    while at < bytes {
        prefetch(address.wrapping_add(at));
        at += LINE_BYTES;
    }
    prefetch(address.wrapping_add(bytes - 1));
}
