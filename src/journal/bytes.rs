//! Little-endian fields of fixed places in a sector, and the one checksum of all files.
//!
//! The checksum is CRC-64/NVME. It is seeded with what the bytes must belong to (a salt, a page's
//! number), so that the right bytes in the wrong place do not pass.

use crc_fast::{CrcAlgorithm, Digest};

/// The checksum of `parts`, bound to `seed`.
pub(super) fn checksum(seed: u64, parts: &[&[u8]]) -> u64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    digest.update(&seed.to_le_bytes());
    for part in parts {
        digest.update(part);
    }
    digest.finalize()
}

/// The checksum of a file's bytes, piece by piece.
pub(crate) struct RunningSum(Digest);

impl RunningSum {
    pub(crate) fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc64Nvme))
    }

    pub(crate) fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    pub(crate) fn finish(self) -> u64 {
        self.0.finalize()
    }
}

/// The number in the eight bytes from `at`; a range that does not exist reads as zero.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let field = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    field.map_or(0, |field| u64::from_le_bytes(*field))
}

/// The number in the four bytes from `at`; a range that does not exist reads as zero.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let field = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    field.map_or(0, |field| u32::from_le_bytes(*field))
}

/// The number in the two bytes from `at`; a range that does not exist reads as zero.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    let field = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    field.map_or(0, |field| u16::from_le_bytes(*field))
}

/// Puts `fields` one behind the other from `at`; they must fit.
pub(super) fn put(bytes: &mut [u8], mut at: usize, fields: &[&[u8]]) {
    for field in fields {
        bytes[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_depends_on_its_seed_and_every_part() {
        let sum = checksum(1, &[b"ab", b"c"]);
        assert_eq!(sum, checksum(1, &[b"a", b"bc"]));
        assert_ne!(sum, checksum(2, &[b"ab", b"c"]));
        assert_ne!(sum, checksum(1, &[b"ab", b"d"]));
    }

    #[test]
    fn fields_behind_the_end_read_as_zero() {
        assert_eq!(u64_at(&[1; 9], 1), 0x0101_0101_0101_0101);
        assert_eq!(u64_at(&[1; 9], 2), 0);
        assert_eq!(u32_at(&[1; 9], usize::MAX), 0);
        assert_eq!(u16_at(&[], 0), 0);
    }
}
