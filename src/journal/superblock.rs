//! The superblock: where a shard's checkpoint is, and what may be made of it.
//!
//! Two slots, at 0 and 4096 of the file `superblock`, are written in turns; the one with the higher
//! sequence that is whole is the one that counts. Each lies within one sector of 512 bytes: a slot
//! over two sectors can be put together from two attempts with the same sequence, each half of it
//! whole.
//!
//! ```text
//!   0 magic 8 | major 2 | minor 2 | page bytes 4 | features 8 (unknown ones: read only)
//!  24 database 16 | shard 4 | shards 4
//!  48 sequence 8 | lineage 8 | checkpoint 8 | epoch 8
//!  80 journal start: segment 8, offset 8, chain 8, block 8
//! 112 current segment 8 | arena bytes 8 | state 8 | epoch of a rollback 8
//! 144 zeros
//! 496 checksum of 0..496, 8 | lineage again 8
//! ```
//! What may change in a minor version: bytes 144..496. Magic and major stay where they are for ever.

use super::bytes::{checksum, put, u16_at, u32_at, u64_at};
use super::disk::{Disk, DiskError, DiskFile, SECTOR_BYTES};
use super::error::RecoveryError;
use super::mutant::{Mutant, is};
use crate::limits::PAGE_BYTES;

const MAGIC: &[u8; 8] = b"ancile\0S";
const MAJOR: u16 = 1;
const MINOR: u16 = 0;
/// Bits of features that this version knows.
const FEATURES: u64 = 0;
const SLOT_DISTANCE: u64 = 4096;
const CHECKSUM_AT: usize = 496;
pub(super) const NAME: &str = "superblock";
/// The name under which the file is made.
pub(super) const NAME_NEW: &str = "superblock.new";

/// Whose file something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Random number of the database, the same in all of its shards.
    pub(crate) database: u128,
    /// The shard.
    pub(crate) shard: u32,
    /// How many shards the database has.
    pub(crate) shards: u32,
}

/// A place between two blocks of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// Number of the segment.
    pub(crate) segment: u64,
    /// Bytes from the segment's start.
    pub(crate) offset: u64,
    /// Checksum of the block before.
    pub(crate) chain: u64,
    /// Number of the block that comes next.
    pub(crate) block: u64,
}

/// What state a shard's files were left in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Closed behind a checkpoint that holds everything.
    Clean,
    /// In use, or in use when it ended.
    Open,
    /// On the way back to an epoch; the way must be gone to its end before anything else.
    Rollback(u64),
}

/// What one slot says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) identity: Identity,
    /// Bits of features; the unknown ones forbid writing.
    pub(crate) features: u64,
    /// Counts the slots that were written.
    pub(crate) sequence: u64,
    /// Random number of the checkpoint: its number alone can be that of an abandoned future.
    pub(crate) lineage: u64,
    /// Number of the checkpoint in the image.
    pub(crate) checkpoint: u64,
    /// The newest epoch of which anything is in the image.
    pub(crate) epoch: u64,
    /// Where replay starts.
    pub(crate) start: Position,
    /// A segment that exists; there may be later ones.
    pub(crate) segment: u64,
    /// Length of the arena at the checkpoint.
    pub(crate) arena_bytes: u64,
    pub(crate) state: State,
}

impl Superblock {
    /// Whether this version may write the files.
    pub(crate) fn is_writable(&self) -> bool {
        self.features & !FEATURES == 0
    }

    /// The slot's bytes.
    pub(super) fn encode(&self) -> [u8; SECTOR_BYTES] {
        let mut slot = [0; SECTOR_BYTES];
        let (state, rollback) = match self.state {
            State::Clean => (0_u64, 0),
            State::Open => (1, 0),
            State::Rollback(epoch) => (2, epoch),
        };
        put(
            &mut slot,
            0,
            &[
                MAGIC,
                &MAJOR.to_le_bytes(),
                &MINOR.to_le_bytes(),
                &(PAGE_BYTES as u32).to_le_bytes(),
                &self.features.to_le_bytes(),
                &self.identity.database.to_le_bytes(),
                &self.identity.shard.to_le_bytes(),
                &self.identity.shards.to_le_bytes(),
            ],
        );
        let numbers = [
            self.sequence,
            self.lineage,
            self.checkpoint,
            self.epoch,
            self.start.segment,
            self.start.offset,
            self.start.chain,
            self.start.block,
            self.segment,
            self.arena_bytes,
            state,
            rollback,
        ];
        for (index, number) in numbers.iter().enumerate() {
            put(&mut slot, 48 + 8 * index, &[&number.to_le_bytes()]);
        }
        let sum = checksum(0, &[&slot[..CHECKSUM_AT]]);
        let lineage = self.lineage.to_le_bytes();
        put(&mut slot, CHECKSUM_AT, &[&sum.to_le_bytes(), &lineage]);
        slot
    }

    /// What a slot says, if it is whole.
    pub(super) fn decode(slot: &[u8]) -> Option<Self> {
        let number = |index: usize| u64_at(slot, 48 + 8 * index);
        let is_whole = slot.len() == SECTOR_BYTES
            && slot.starts_with(MAGIC)
            && u16_at(slot, 8) == MAJOR
            && u32_at(slot, 12) == PAGE_BYTES as u32
            && u64_at(slot, CHECKSUM_AT) == checksum(0, &[&slot[..CHECKSUM_AT]])
            && u64_at(slot, CHECKSUM_AT + 8) == number(1);
        if !is_whole {
            return None;
        }
        Some(Self {
            features: u64_at(slot, 16),
            identity: Identity {
                database: u128::from(u64_at(slot, 24)) | u128::from(u64_at(slot, 32)) << 64,
                shard: u32_at(slot, 40),
                shards: u32_at(slot, 44),
            },
            sequence: number(0),
            lineage: number(1),
            checkpoint: number(2),
            epoch: number(3),
            start: Position {
                segment: number(4),
                offset: number(5),
                chain: number(6),
                block: number(7),
            },
            segment: number(8),
            arena_bytes: number(9),
            state: match number(10) {
                0 => State::Clean,
                1 => State::Open,
                2 => State::Rollback(number(11)),
                _ => return None,
            },
        })
    }
}

/// The open file, and what counts of it.
pub(crate) struct Superblocks {
    file: Box<dyn DiskFile>,
    newest: Superblock,
    /// How many of the two slots were whole.
    pub(super) slots_whole: usize,
}

impl Superblocks {
    /// Makes the file under a name that does not count yet.
    pub(super) fn create(disk: &dyn Disk, first: &Superblock) -> Result<(), DiskError> {
        let mut file = disk.create(NAME_NEW)?;
        let zeros = [0; SLOT_DISTANCE as usize];
        file.write_at(0, &zeros)?;
        file.write_at(SLOT_DISTANCE, &zeros)?;
        put_slot(&mut *file, first)?;
        file.sync()
    }

    /// Reads both slots.
    pub(super) fn open(disk: &dyn Disk) -> Result<Self, RecoveryError> {
        let file = disk.open(NAME)?;
        let mut found: Option<Superblock> = None;
        let (mut slots_whole, mut stranger) = (0, None);
        for offset in [0, SLOT_DISTANCE] {
            let mut slot = [0; SECTOR_BYTES];
            match file.read_at(offset, &mut slot) {
                Err(DiskError::Short { .. }) => continue,
                read => read?,
            }
            let major = u16_at(&slot, 8);
            if slot.starts_with(MAGIC) && major != MAJOR {
                stranger = Some(major);
            }
            #[cfg(test)]
            two_sectors::read(&*file, offset, &mut slot)?;
            let read = Superblock::decode(&slot);
            slots_whole += usize::from(read.is_some());
            let sequence = |slot: &Option<Superblock>| slot.map(|slot| slot.sequence);
            if sequence(&read) > sequence(&found) {
                found = read;
            }
        }
        let file_name = file.path().to_owned();
        match (found, stranger) {
            (Some(newest), _) => Ok(Self {
                file,
                newest,
                slots_whole,
            }),
            (None, Some(major)) => Err(RecoveryError::Version {
                file: file_name,
                found: major,
                supported: MAJOR,
            }),
            (None, None) => Err(RecoveryError::NotADatabase { file: file_name }),
        }
    }

    /// What counts.
    pub(crate) fn newest(&self) -> &Superblock {
        &self.newest
    }

    pub(super) fn path(&self) -> &str {
        self.file.path()
    }

    /// Makes what was read durable.
    pub(super) fn sync(&mut self) -> Result<(), DiskError> {
        self.file.sync()
    }

    /// Writes what is to count from now on over the slot that does not count, and syncs it. After an
    /// error nobody knows which of the two counts until the file is opened again.
    pub(super) fn write(&mut self, next: Superblock) -> Result<(), DiskError> {
        let sequence = self.newest.sequence.saturating_add(1);
        let next = Superblock { sequence, ..next };
        put_slot(&mut *self.file, &next)?;
        self.file.sync()?;
        self.newest = next;
        Ok(())
    }
}

/// Writes a slot where its turn is.
pub(super) fn put_slot(file: &mut dyn DiskFile, slot: &Superblock) -> Result<(), DiskError> {
    let turn = if is(Mutant::SingleSlot) {
        0
    } else {
        slot.sequence % 2
    };
    let offset = turn * SLOT_DISTANCE;
    #[cfg(test)]
    if is(Mutant::TwoSectorSuperblock) {
        return two_sectors::write(file, offset, slot);
    }
    file.write_at(offset, &slot.encode())
}

/// A fault of tests: the fields in two sectors, each with a checksum of its own.
#[cfg(test)]
mod two_sectors {
    use super::*;

    /// The fields from here on are those of the second sector.
    const SECOND: usize = 80;

    pub(super) fn write(
        file: &mut dyn DiskFile,
        at: u64,
        next: &Superblock,
    ) -> Result<(), DiskError> {
        let slot = next.encode();
        let mut both = [0; 2 * SECTOR_BYTES];
        both[..SECOND].copy_from_slice(&slot[..SECOND]);
        both[SECTOR_BYTES + 48..][..8].copy_from_slice(&slot[48..56]);
        both[SECTOR_BYTES + SECOND..].copy_from_slice(&slot[SECOND..]);
        for half in both.chunks_mut(SECTOR_BYTES) {
            let sum = checksum(0, &[&half[..CHECKSUM_AT]]);
            put(half, CHECKSUM_AT, &[&sum.to_le_bytes(), &[0; 8]]);
        }
        file.write_at(at, &both)
    }

    /// Puts the slot together as the fault has it; leaves it invalid if the halves are not whole.
    pub(super) fn read(
        file: &dyn DiskFile,
        at: u64,
        slot: &mut [u8; SECTOR_BYTES],
    ) -> Result<(), DiskError> {
        if !is(Mutant::TwoSectorSuperblock) {
            return Ok(());
        }
        slot.fill(0);
        let mut both = [0; 2 * SECTOR_BYTES];
        match file.read_at(at, &mut both) {
            Err(DiskError::Short { .. }) => return Ok(()),
            read => read?,
        }
        let is_whole = |half: &[u8]| {
            let sum = checksum(0, &[&half[..CHECKSUM_AT]]);
            u64_at(half, CHECKSUM_AT) == sum
        };
        let (first, second) = both.split_at(SECTOR_BYTES);
        if is_whole(first) && is_whole(second) && u64_at(first, 48) == u64_at(second, 48) {
            slot[..SECOND].copy_from_slice(&first[..SECOND]);
            slot[SECOND..].copy_from_slice(&second[SECOND..]);
            let sum = checksum(0, &[&slot[..CHECKSUM_AT]]);
            let lineage = u64_at(slot, 56).to_le_bytes();
            put(slot, CHECKSUM_AT, &[&sum.to_le_bytes(), &lineage]);
        }
        Ok(())
    }
}
