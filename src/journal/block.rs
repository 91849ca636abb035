//! Blocks and the records in them.
//!
//! ```text
//!  0 magic 4 | bytes of the block 4 | block number 8
//! 16 lowest epoch 8 | highest epoch 8 | durable epoch 8
//! 40 records 4 | flags 4 | chain: checksum of the block before 8
//! 56 checksum of all else, bound to the segment's salt 8
//! 64 records, then zeros up to a multiple of 512
//!
//! record: arena offset 8 | number 8 | length 4 | table 2 | kind 1 | epoch 1 | the new bytes
//! ```
//! A record's epoch is counted from the block's lowest one. The highest bit of the kind marks the
//! first record of a unit of change. A seal is a record too: its number is the epoch, its bytes the
//! set of shards that have a seal of it, and its offset when it was sealed, in microseconds since 1970.
//!
//! # Why the sum is the block's
//! A checksum of each record costs 30 to 50 ns a record, one of the block nothing that can be
//! measured; and a block is whole or it is not. The chain makes a block the successor of one block
//! only: the same place of a file may have held another block of the same number.

use super::bytes::{checksum, put, u16_at, u32_at, u64_at};
use super::disk::SECTOR_BYTES;
use super::mutant::{Mutant, is};
use crate::limits::SHARDS_MAX;

const MAGIC: u32 = 0x4b4c_4241;
const CHECKSUM_AT: usize = 56;
/// Bytes before the first record.
pub(super) const HEAD_BYTES: usize = 64;
/// Bytes of a record before its content.
pub(super) const RECORD_BYTES: usize = 24;
/// No block is longer, whatever its header says.
pub(super) const BLOCK_BYTES_MAX: usize = 1 << 20;
/// A shorter piece of a range is not worth being cut off.
pub(super) const PIECE_BYTES_MIN: usize = 64;
const KIND_SEAL: u8 = 0x7f;
const FIRST: u8 = 0x80;

/// What a range belongs to, for those who read the journal; replay needs only its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tag {
    /// The table, as the caller counts them.
    pub(crate) table: u16,
    /// What was changed, as the caller names it: below 127.
    pub(crate) kind: u8,
    /// The slot, or any other number.
    pub(crate) number: u64,
}

/// One changed range, with its new content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'b> {
    pub(crate) epoch: u64,
    /// Whether a unit of change begins with it.
    pub(crate) is_first: bool,
    /// Where in the arena.
    pub(crate) offset: u64,
    pub(crate) bytes: &'b [u8],
    pub(crate) tag: Tag,
}

/// The end of an epoch in one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal {
    pub(crate) epoch: u64,
    /// The shards that have changed something in it.
    pub(crate) dirty: ShardSet,
    /// When it was sealed, by the system's clock: microseconds since 1970.
    pub(crate) micros: u64,
}

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry<'b> {
    Record(Record<'b>),
    Seal(Seal),
}

/// A set of shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShardSet([u64; SHARDS_MAX / 64]);

impl ShardSet {
    /// The shards below `shards`.
    pub(crate) fn all(shards: usize) -> Self {
        let mut set = Self::default();
        (0..shards).for_each(|shard| set.insert(shard));
        set
    }

    pub(crate) fn insert(&mut self, shard: usize) {
        self.0[shard / 64] |= 1 << (shard % 64);
    }

    pub(crate) fn remove(&mut self, shard: usize) {
        self.0[shard / 64] &= !(1 << (shard % 64));
    }

    pub(crate) fn contains(&self, shard: usize) -> bool {
        self.0
            .get(shard / 64)
            .is_some_and(|word| word >> (shard % 64) & 1 == 1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..SHARDS_MAX).filter(|shard| self.contains(*shard))
    }

    pub(super) fn unite(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word |= other;
        }
    }

    /// As bytes, without the zeros at the end.
    fn encode(&self) -> ([u8; SHARDS_MAX / 8], usize) {
        let mut bytes = [0; SHARDS_MAX / 8];
        for (word, bytes) in self.0.iter().zip(bytes.chunks_mut(8)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let used = bytes.iter().rposition(|byte| *byte != 0);
        (bytes, used.map_or(0, |last| last + 1))
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut all = [0; SHARDS_MAX / 8];
        all.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let mut set = Self::default();
        for (index, word) in set.0.iter_mut().enumerate() {
            *word = u64_at(&all, 8 * index);
        }
        Some(set)
    }
}

/// A block that is being filled, or waits to be durable.
#[derive(Debug, Default)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    bytes_max: usize,
    records: u32,
    pub(super) number: u64,
    pub(super) epoch_low: u64,
    pub(super) epoch_high: u64,
    /// The newest epoch known to be durable when the block was closed.
    pub(super) durable: u64,
    /// The newest epoch that is sealed in it.
    pub(super) seal: Option<u64>,
    /// Whether the place behind it is where a checkpoint's replay starts.
    pub(super) is_mark: bool,
}

impl Block {
    /// An empty block over a used one's memory.
    pub(super) fn begin(used: Self, number: u64, epoch: u64, bytes_max: usize) -> Self {
        let mut bytes = used.bytes;
        bytes.clear();
        bytes.reserve_exact(bytes_max);
        bytes.resize(HEAD_BYTES, 0);
        Self {
            bytes,
            bytes_max,
            number,
            epoch_low: epoch,
            epoch_high: epoch,
            ..Self::default()
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Bytes filled.
    pub(super) fn used(&self) -> usize {
        self.bytes.len()
    }

    /// Whether somebody waits for it: it seals an epoch, or marks a checkpoint.
    pub(crate) fn is_awaited(&self) -> bool {
        self.seal.is_some() || self.is_mark
    }

    /// Bytes on the disk.
    pub(crate) fn padded(&self) -> usize {
        self.bytes.len().next_multiple_of(SECTOR_BYTES)
    }

    /// How long the content of another record of this epoch may be.
    pub(super) fn room(&self, epoch: u64) -> Option<usize> {
        let is_near = self.is_empty() || epoch - self.epoch_low <= u64::from(u8::MAX);
        let room = self.bytes_max.checked_sub(self.bytes.len() + RECORD_BYTES);
        room.filter(|_| is_near)
    }

    /// Puts a record behind the others; there must be room.
    #[inline]
    pub(super) fn push(&mut self, record: &Record<'_>) {
        let first = if record.is_first { FIRST } else { 0 };
        debug_assert!(record.tag.kind < KIND_SEAL, "this kind is the seals'");
        self.push_entry(
            record.epoch,
            record.tag.kind | first,
            record.offset,
            record.tag,
            record.bytes,
        );
    }

    /// Puts a seal behind the records; there must be room. `epoch` is that of the record before.
    pub(super) fn push_seal(&mut self, epoch: u64, seal: &Seal) {
        let (bytes, used) = seal.dirty.encode();
        let tag = Tag {
            number: seal.epoch,
            ..Tag::default()
        };
        self.push_entry(epoch, KIND_SEAL, seal.micros, tag, &bytes[..used]);
        self.seal = Some(seal.epoch);
    }

    #[inline]
    fn push_entry(&mut self, epoch: u64, kind: u8, offset: u64, tag: Tag, content: &[u8]) {
        debug_assert!(self.room(epoch).is_some_and(|room| room >= content.len()));
        if self.is_empty() {
            self.epoch_low = epoch;
        }
        let mut head = [0; RECORD_BYTES];
        head[..8].copy_from_slice(&offset.to_le_bytes());
        head[8..16].copy_from_slice(&tag.number.to_le_bytes());
        head[16..20].copy_from_slice(&(content.len() as u32).to_le_bytes());
        head[20..22].copy_from_slice(&tag.table.to_le_bytes());
        head[22] = kind;
        head[23] = (epoch - self.epoch_low) as u8;
        self.bytes.extend_from_slice(&head);
        self.bytes.extend_from_slice(content);
        self.epoch_high = epoch;
        self.records += 1;
    }

    /// Makes the block ready for a place in a segment; gives its checksum. May be done again for
    /// another place.
    pub(super) fn finish(&mut self, salt: u64, chain: u64) -> u64 {
        self.bytes.resize(self.padded(), 0);
        let length = self.bytes.len() as u32;
        put(
            &mut self.bytes,
            0,
            &[
                &MAGIC.to_le_bytes(),
                &length.to_le_bytes(),
                &self.number.to_le_bytes(),
                &self.epoch_low.to_le_bytes(),
                &self.epoch_high.to_le_bytes(),
                &self.durable.to_le_bytes(),
                &self.records.to_le_bytes(),
                &[0; 4],
                &chain.to_le_bytes(),
            ],
        );
        let sum = block_checksum(salt, &self.bytes);
        put(&mut self.bytes, CHECKSUM_AT, &[&sum.to_le_bytes()]);
        sum
    }

    /// The bytes of a finished block.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

fn block_checksum(salt: u64, bytes: &[u8]) -> u64 {
    let salt = if is(Mutant::Unchained) { 0 } else { salt };
    checksum(salt, &[&bytes[..CHECKSUM_AT], &bytes[HEAD_BYTES..]])
}

/// How long the block is that begins with `head`, if a block may begin so.
pub(super) fn length(head: &[u8]) -> Option<usize> {
    let bytes = u32_at(head, 4) as usize;
    let is_block = head.len() >= HEAD_BYTES
        && u32_at(head, 0) == MAGIC
        && bytes.is_multiple_of(SECTOR_BYTES)
        && (SECTOR_BYTES..=BLOCK_BYTES_MAX).contains(&bytes);
    is_block.then_some(bytes)
}

/// A whole block of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockView<'b> {
    bytes: &'b [u8],
}

impl<'b> BlockView<'b> {
    /// The block, if `bytes` are all of it and whole, whatever came before it.
    pub(super) fn new(bytes: &'b [u8], salt: u64) -> Option<Self> {
        let is_whole = length(bytes) == Some(bytes.len())
            && u64_at(bytes, CHECKSUM_AT) == block_checksum(salt, bytes)
            && u32_at(bytes, 44) == 0;
        is_whole.then_some(Self { bytes })
    }

    /// Whether the block is the one that follows `chain` as number `number`.
    pub(super) fn follows(&self, chain: u64, number: u64) -> bool {
        is(Mutant::Unchained) || self.number() == number && u64_at(self.bytes, 48) == chain
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn number(&self) -> u64 {
        u64_at(self.bytes, 8)
    }

    pub(super) fn epoch_high(&self) -> u64 {
        u64_at(self.bytes, 24)
    }

    pub(super) fn durable(&self) -> u64 {
        u64_at(self.bytes, 32)
    }

    pub(super) fn checksum(&self) -> u64 {
        u64_at(self.bytes, CHECKSUM_AT)
    }

    /// The records; `None` among them if the block does not hold what it says.
    pub(super) fn entries(&self) -> impl Iterator<Item = Option<Entry<'b>>> + use<'b> {
        let (bytes, low) = (self.bytes, u64_at(self.bytes, 16));
        let mut at = HEAD_BYTES;
        (0..u32_at(bytes, 40)).map_while(move |_| {
            // After a record that is not there the iteration ends.
            let start = (at != usize::MAX).then_some(at)?;
            let entry = entry(bytes, start, low);
            at = entry.map_or(usize::MAX, |(_, end)| end);
            Some(entry.map(|(entry, _)| entry))
        })
    }
}

/// The entry from `at`, and where it ends.
fn entry(bytes: &[u8], at: usize, low: u64) -> Option<(Entry<'_>, usize)> {
    let head = bytes.get(at..at.checked_add(RECORD_BYTES)?)?;
    let start = at + RECORD_BYTES;
    let end = start.checked_add(u32_at(head, 16) as usize)?;
    let content = bytes.get(start..end)?;
    let epoch = low.checked_add(u64::from(head[23]))?;
    let number = u64_at(head, 8);
    let entry = match head[22] {
        KIND_SEAL => Entry::Seal(Seal {
            epoch: number,
            dirty: ShardSet::decode(content)?,
            micros: u64_at(head, 0),
        }),
        kind => Entry::Record(Record {
            epoch,
            is_first: kind & FIRST != 0,
            offset: u64_at(head, 0),
            bytes: content,
            tag: Tag {
                table: u16_at(head, 20),
                kind: kind & !FIRST,
                number,
            },
        }),
    };
    Some((entry, end))
}
