//! Reading all that is kept of one shard's journal, for people and programs.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::block::{Entry, Record, Tag};
use super::cut::is_void;
use super::disk::Disk;
use super::error::RecoveryError;
use super::recovery::survey;
use super::scan::{Reader, entries, oldest};
use super::segment::Void;
use super::superblock::Superblocks;

/// A record with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extracted {
    /// Its epoch.
    pub(crate) epoch: u64,
    /// Whether a unit of change begins with it.
    pub(crate) is_first: bool,
    /// Where in the arena.
    pub(crate) offset: u64,
    /// The new content.
    pub(crate) bytes: Vec<u8>,
    /// What it belongs to.
    pub(crate) tag: Tag,
}

impl Extracted {
    /// The record, as others are.
    pub(crate) fn as_record(&self) -> Record<'_> {
        Record {
            epoch: self.epoch,
            is_first: self.is_first,
            offset: self.offset,
            bytes: &self.bytes,
            tag: self.tag,
        }
    }
}

/// The records of a range of epochs, in order, from the oldest segment that is kept. Nothing is
/// written. Records that a crash or rollback has voided are left out; those of an epoch that is not
/// sealed in all shards are not: one shard cannot tell.
pub(crate) struct Extract {
    reader: Reader,
    epochs: RangeInclusive<u64>,
    voids: Vec<Void>,
    waiting: VecDeque<Extracted>,
    is_over: bool,
}

impl Extract {
    /// Opens a shard's directory for reading.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        epochs: RangeInclusive<u64>,
    ) -> Result<Self, RecoveryError> {
        let superblocks = Superblocks::open(&*disk)?;
        let newest = superblocks.newest();
        let start = oldest(&*disk, &newest.identity, newest.start.segment)?;
        let survey = survey(&disk, newest)?;
        let reader = Reader::new(disk, &newest.identity, start.unwrap_or(newest.start))?;
        let mut voids = survey.evidence.voids;
        voids.extend(reader.voids());
        Ok(Self {
            reader,
            epochs,
            voids,
            waiting: VecDeque::new(),
            is_over: false,
        })
    }

    /// Takes the records of the next block that has any; none at the end.
    fn next_block(&mut self) -> Result<(), RecoveryError> {
        while self.waiting.is_empty() {
            let path = self.reader.path();
            let Some(block) = self.reader.next()? else {
                self.is_over = true;
                return Ok(());
            };
            for entry in entries(&block, || path.clone()) {
                let Entry::Record(record) = entry? else {
                    continue;
                };
                if self.epochs.contains(&record.epoch) && !is_void(&self.voids, record.epoch) {
                    self.waiting.push_back(Extracted {
                        epoch: record.epoch,
                        is_first: record.is_first,
                        offset: record.offset,
                        bytes: record.bytes.to_vec(),
                        tag: record.tag,
                    });
                }
            }
        }
        Ok(())
    }
}

impl Iterator for Extract {
    type Item = Result<Extracted, RecoveryError>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.is_over
            && let Err(error) = self.next_block()
        {
            self.is_over = true;
            return Some(Err(error));
        }
        self.waiting.pop_front().map(Ok)
    }
}
