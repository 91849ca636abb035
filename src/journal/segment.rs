//! Segments: the files that a journal is written into, one after the other.
//!
//! A segment is written with zeros to its full length before it is used, because a disk makes bytes
//! of a file durable twice as fast when it need not make the file longer as well. Until then it is a
//! *spare*: its name is there, its header is not valid.
//!
//! ```text
//!    0 magic 8 | major 2 | minor 2 | zeros 4
//!   16 database 16 | shard 4 | shards 4
//!   40 number 8 | predecessor 8 | its end 8 | its chain 8
//!   72 first block 8 | salt 8
//!   88 void above 8 | first epoch 8
//!  104 zeros
//!  504 checksum of 0..504
//!  512 the same again
//! 1024 blocks
//! ```
//! The header is there twice because one bad sector would hide all blocks behind it.
//!
//! # What a header voids
//! A segment that was begun after a recovery says where its predecessor's valid end is: whatever
//! lies behind is void, at once and without having been touched. And it says which epochs are void:
//! those above the recovered cut and below the first epoch of the new life. Records of such an epoch
//! may lie before the valid end, because the blocks that sealed the cut came behind them; they must
//! not come back when a later recovery's cut is above their number.
//!
//! # Recycling
//! A segment that no checkpoint needs becomes a spare by being renamed. Its old header names another
//! number, so it does not count; its old blocks were made with another salt, so they do not either.

use super::bytes::{checksum, put, u16_at, u32_at, u64_at};
use super::disk::{Disk, DiskError, DiskFile, SECTOR_BYTES};
use super::error::RecoveryError;
use super::superblock::{Identity, Position};

const MAGIC: &[u8; 8] = b"ancile\0J";
const MAJOR: u16 = 1;
const MINOR: u16 = 0;
const CHECKSUM_AT: usize = 504;
/// Where blocks begin.
pub(super) const BLOCKS_AT: u64 = 2 * SECTOR_BYTES as u64;
const PREFIX: &str = "segment.";

/// The file name of a segment.
pub(super) fn name(number: u64) -> String {
    format!("{PREFIX}{number:010}")
}

/// The number in a segment's file name.
pub(super) fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?;
    let is_plain = digits.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|number| is_plain && *number > 0)
}

/// Epochs that never happened: those above one number and below another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Void {
    /// The cut of the recovery or rollback.
    pub(super) above: u64,
    /// The first epoch of the life after it; zero if nothing is void.
    pub(super) first: u64,
}

impl Void {
    /// Whether an epoch is void.
    pub(super) fn holds(&self, epoch: u64) -> bool {
        self.above < epoch && epoch < self.first
    }
}

/// What a segment's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) identity: Identity,
    pub(super) number: u64,
    /// Where the segment before ends, with its chain and the number of this one's first block;
    /// segment zero if this is the first.
    pub(super) end: Position,
    pub(super) salt: u64,
    pub(super) void: Void,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; SECTOR_BYTES * 2] {
        let mut both = [0; SECTOR_BYTES * 2];
        let (sector, copy) = both.split_at_mut(SECTOR_BYTES);
        put(
            sector,
            0,
            &[
                MAGIC,
                &MAJOR.to_le_bytes(),
                &MINOR.to_le_bytes(),
                &[0; 4],
                &self.identity.database.to_le_bytes(),
                &self.identity.shard.to_le_bytes(),
                &self.identity.shards.to_le_bytes(),
                &self.number.to_le_bytes(),
                &self.end.segment.to_le_bytes(),
                &self.end.offset.to_le_bytes(),
                &self.end.chain.to_le_bytes(),
                &self.end.block.to_le_bytes(),
                &self.salt.to_le_bytes(),
                &self.void.above.to_le_bytes(),
                &self.void.first.to_le_bytes(),
            ],
        );
        let sum = checksum(0, &[&sector[..CHECKSUM_AT]]);
        put(sector, CHECKSUM_AT, &[&sum.to_le_bytes()]);
        copy.copy_from_slice(sector);
        both
    }

    fn decode(sector: &[u8]) -> Option<Self> {
        let is_whole = sector.len() == SECTOR_BYTES
            && sector.starts_with(MAGIC)
            && u16_at(sector, 8) == MAJOR
            && u64_at(sector, CHECKSUM_AT) == checksum(0, &[&sector[..CHECKSUM_AT]]);
        is_whole.then(|| Self {
            identity: Identity {
                database: u128::from(u64_at(sector, 16)) | u128::from(u64_at(sector, 24)) << 64,
                shard: u32_at(sector, 32),
                shards: u32_at(sector, 36),
            },
            number: u64_at(sector, 40),
            end: Position {
                segment: u64_at(sector, 48),
                offset: u64_at(sector, 56),
                chain: u64_at(sector, 64),
                block: u64_at(sector, 72),
            },
            salt: u64_at(sector, 80),
            void: Void {
                above: u64_at(sector, 88),
                first: u64_at(sector, 96),
            },
        })
    }

    /// The header of a file that is to be segment `number` of `identity`; none if it is a spare.
    pub(super) fn read(
        file: &dyn DiskFile,
        identity: &Identity,
        number: u64,
    ) -> Result<Option<Self>, RecoveryError> {
        for copy in 0..2 {
            let mut sector = [0; SECTOR_BYTES];
            match file.read_at(copy * SECTOR_BYTES as u64, &mut sector) {
                Err(DiskError::Short { .. }) => return Ok(None),
                read => read?,
            }
            let Some(header) = Self::decode(&sector).filter(|header| header.number == number)
            else {
                continue;
            };
            if header.identity != *identity {
                return Err(RecoveryError::Stranger {
                    file: file.path().to_owned(),
                    difference: format!("it is of {:?}, not of {identity:?}", header.identity),
                });
            }
            return Ok(Some(header));
        }
        Ok(None)
    }
}

/// The numbers of all files that are named as segments, in order.
pub(super) fn numbers(disk: &dyn Disk) -> Result<Vec<u64>, DiskError> {
    let mut numbers = Vec::from_iter(disk.list()?.iter().filter_map(|name| number(name)));
    numbers.sort_unstable();
    Ok(numbers)
}
