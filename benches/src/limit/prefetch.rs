//! Prefetch hints for whole rows.
#![expect(
    unsafe_code,
    reason = "the processor's prefetch instruction takes an address"
)]

use std::cmp::min;

const LINE_BYTES: usize = 64;

/// Asks for the cache line of `address` in the second-level cache. Any address is allowed.
#[inline(always)]
pub(super) fn line<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch is a hint; the processor ignores it where the address is not mapped.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Asks for all lines of the `bytes` bytes at `address`, whose alignment is 8 bytes at least.
///
/// A row that starts anywhere in its line covers up to `lines_of(bytes)` lines; as many evenly
/// spread addresses, first and last byte included, meet all of them.
#[inline(always)]
pub(super) fn row<T>(address: *const T, bytes: usize) {
    let mut index = 0;
    while index < lines_of(bytes) {
        line(address.cast::<u8>().wrapping_add(offset(bytes, index)));
        index += 1;
    }
}

/// Lines that a row of `bytes` touches at most, in a flat array that starts on a line.
#[inline(always)]
fn lines_of(bytes: usize) -> usize {
    // The largest power of two that divides both the row's length and the line's.
    let common = 1 << min(bytes.trailing_zeros(), LINE_BYTES.trailing_zeros());
    (bytes + LINE_BYTES - common).div_ceil(LINE_BYTES)
}

#[inline(always)]
fn offset(bytes: usize, index: usize) -> usize {
    match lines_of(bytes) {
        0 | 1 => 0,
        lines => (bytes - 1) * index / (lines - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_every_row_is_asked_for() {
        for cells in 1..=128_usize {
            let bytes = cells * 8;
            for row in 0..64 {
                let start = row * bytes;
                let asked: Vec<usize> = (0..lines_of(bytes))
                    .map(|index| (start + offset(bytes, index)) / LINE_BYTES)
                    .collect();
                for line in start / LINE_BYTES..=(start + bytes - 1) / LINE_BYTES {
                    assert!(
                        asked.contains(&line),
                        "{cells} cells, row {row}, line {line}"
                    );
                }
            }
        }
    }
}
