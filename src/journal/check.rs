//! Checking all files of a database, without changing any.

use std::sync::Arc;

use super::before::{self, BeforeImages};
use super::cut::cut;
use super::disk::Disk;
use super::error::RecoveryError;
use super::image::Image;
use super::recovery::{open_superblocks, survey};
use super::scan::{Reader, entries, oldest};
use super::superblock::{Superblock, Superblocks};
use crate::limits::PAGE_BYTES;

/// Something that is not as it should be.
#[derive(Debug)]
pub(crate) struct Finding {
    /// The shard.
    pub(crate) shard: usize,
    /// Whether the database can be opened nevertheless, without losing anything.
    pub(crate) is_harmless: bool,
    /// What it is.
    pub(crate) text: String,
}

/// Reads superblocks, journals, before-images and images of all shards, each to its end. `progress`
/// gets the number of bytes that were read since the last call. Files of a database that was not
/// closed are whole if nothing is found but what an interrupted checkpoint left in an image.
pub(crate) fn check(
    disks: &[Arc<dyn Disk>],
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<Finding>, RecoveryError> {
    let mut checker = Checker {
        findings: Vec::new(),
        shard: 0,
        progress,
    };
    let mut evidences = Vec::new();
    for (shard, superblocks) in open_superblocks(disks)?.iter().enumerate() {
        checker.shard = shard;
        checker.superblocks(superblocks);
        let newest = superblocks.newest();
        let surveyed = survey(&disks[shard], newest);
        evidences.extend(checker.note(surveyed).map(|survey| survey.evidence));
        let read = checker.journal(&disks[shard], newest);
        checker.note(read);
        let read = checker.before_images(&disks[shard], newest);
        checker.note(read);
        let read = checker.image(&disks[shard], newest);
        checker.note(read);
    }
    if evidences.len() == disks.len()
        && let Err(missing) = cut(&evidences)
    {
        checker.shard = missing.shard.unwrap_or(0);
        let text = format!(
            "epoch {} was durable and is not here any more",
            missing.epoch
        );
        checker.find(false, text);
    }
    Ok(checker.findings)
}

struct Checker<'p> {
    findings: Vec<Finding>,
    shard: usize,
    progress: &'p mut dyn FnMut(u64),
}

impl Checker<'_> {
    fn find(&mut self, is_harmless: bool, text: String) {
        let shard = self.shard;
        self.findings.push(Finding {
            shard,
            is_harmless,
            text,
        });
    }

    fn note<T>(&mut self, result: Result<T, RecoveryError>) -> Option<T> {
        result
            .map_err(|error| self.find(false, error.to_string()))
            .ok()
    }

    fn superblocks(&mut self, superblocks: &Superblocks) {
        if superblocks.slots_whole < 2 && superblocks.newest().sequence > 1 {
            let path = superblocks.path();
            self.find(true, format!("{path}: one of the two slots is not whole"));
        }
    }

    /// The part of the journal before the checkpoint, which only going back needs.
    fn journal(&mut self, disk: &Arc<dyn Disk>, newest: &Superblock) -> Result<(), RecoveryError> {
        let Some(start) = oldest(&**disk, &newest.identity, newest.start.segment)? else {
            return Ok(());
        };
        let mut reader = Reader::new(Arc::clone(disk), &newest.identity, start)?;
        loop {
            let path = reader.path();
            let Some(block) = reader.next()? else {
                return Ok(());
            };
            for entry in entries(&block, || path.clone()) {
                entry?;
            }
            (self.progress)(block.bytes() as u64);
        }
    }

    fn before_images(
        &mut self,
        disk: &Arc<dyn Disk>,
        newest: &Superblock,
    ) -> Result<(), RecoveryError> {
        for number in disk.list()?.iter().filter_map(|name| before::number(name)) {
            if let Some(before) = BeforeImages::open(disk, &newest.identity, number)? {
                before.verify()?;
                (self.progress)(before.bytes());
            }
        }
        Ok(())
    }

    fn image(&mut self, disk: &Arc<dyn Disk>, newest: &Superblock) -> Result<(), RecoveryError> {
        let next = newest.checkpoint.saturating_add(1);
        let interrupted = BeforeImages::open(disk, &newest.identity, next)?;
        let is_torn = interrupted.is_some_and(|before| before.parent.lineage == newest.lineage);
        let mut image = Image::open(&**disk)?;
        let pages = newest.arena_bytes.div_ceil(PAGE_BYTES as u64);
        let mut content = vec![0; PAGE_BYTES];
        for page in 0..pages.min(image.page_count()?) {
            match image.read(page, &mut content) {
                Err(RecoveryError::Damaged { file, what, .. }) => {
                    self.find(is_torn, format!("{file}: {what}"));
                }
                read => read?,
            }
            (self.progress)(PAGE_BYTES as u64);
        }
        Ok(())
    }
}
