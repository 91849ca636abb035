//! What can be had of files that are damaged.
//!
//! Each shard is brought as far as its own files go. Those whose journals are whole come to the end of
//! the same epoch, as in [`Recovery`](super::Recovery); one whose journal is damaged comes to the last
//! epoch that it has sealed before the damage, and holds nobody back. So what is loaded of a shard is
//! what it held at the end of some epoch, but for pages of its image that do not have their checksums:
//! those are zeros, with what the journal has of them. Nothing is written.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::checkpoint::interrupted;
use super::cut::{Cut, Evidence, Missing, reach};
use super::disk::Disk;
use super::error::RecoveryError;
use super::image::Image;
use super::recovery::{Found, Loader, Survey};
use super::segment::Void;
use super::superblock::{State, Superblocks};
use crate::limits::PAGE_BYTES;

/// A database of which something can be had.
pub(crate) struct Rescue {
    shards: Vec<Rescued>,
    voids: Vec<Void>,
}

/// What can be had of one shard.
struct Rescued {
    /// None, if nothing can.
    found: Option<Found>,
    evidence: Evidence,
    /// The epoch at whose end it is loaded.
    epoch: u64,
    /// What is wrong with its files.
    faults: Vec<String>,
}

/// What was left out of a shard's memory.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    pages: u64,
    /// Why the first of them was.
    first: Option<RecoveryError>,
    /// Why the journal was not followed further.
    journal: Option<String>,
    /// Pages whose content comes from before-images, whatever the image holds.
    replaced: BTreeSet<u64>,
}

impl Rescue {
    /// Looks at the files of all shards, in their order.
    pub(crate) fn open(disks: Vec<Result<Arc<dyn Disk>, String>>) -> Self {
        let count = disks.len();
        let mut database = None;
        let shards = disks.into_iter().enumerate();
        let mut shards: Vec<Rescued> = shards
            .map(|(shard, disk)| Rescued::open(disk, (shard, count), &mut database))
            .collect();
        let bound = common_epoch(&mut shards);
        for shard in &mut shards {
            shard.set_epoch(bound);
        }
        let voids = shards.iter().flat_map(|shard| &shard.evidence.voids);
        let voids = voids.copied().collect();
        Self { shards, voids }
    }

    /// What loads the memory of each shard of which there is something.
    pub(crate) fn loaders(&mut self) -> impl Iterator<Item = Option<Loader<'_>>> {
        let voids = &self.voids;
        self.shards.iter_mut().map(move |shard| {
            let cut = shard.epoch;
            let found = shard.found.as_mut()?;
            Some(Loader { found, cut, voids })
        })
    }

    /// What is wrong with a shard's files, as far as they were looked at and loaded.
    pub(crate) fn faults(&self, shard: usize) -> Vec<String> {
        let shard = &self.shards[shard];
        let mut faults = shard.faults.clone();
        let found = shard.found.as_ref();
        for fault in found
            .iter()
            .flat_map(|found| &found.left_out)
            .flat_map(LeftOut::told)
        {
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
        faults
    }
}

/// The epoch to whose end all shards with whole journals come; those that lack what was durable are
/// damaged, and told so.
fn common_epoch(shards: &mut [Rescued]) -> Option<u64> {
    loop {
        let evidences: Vec<Evidence> = shards.iter().map(|shard| shard.evidence.clone()).collect();
        if evidences.iter().all(|evidence| evidence.is_damaged) {
            return None;
        }
        let (Cut { epoch, .. }, missing) = reach(&evidences);
        let Some(Missing { epoch: lost, shard }) = missing else {
            return Some(epoch);
        };
        let what = format!("epoch {lost} was durable, and what it changed is not here any more");
        let Some(shard) = shard.and_then(|shard| shards.get_mut(shard)) else {
            shards
                .iter_mut()
                .for_each(|shard| shard.faults.push(what.clone()));
            return Some(epoch);
        };
        shard.faults.push(what);
        shard.evidence.is_damaged = true;
    }
}

impl Rescued {
    fn open(
        disk: Result<Arc<dyn Disk>, String>,
        place: (usize, usize),
        database: &mut Option<u128>,
    ) -> Self {
        let mut rescued = Self {
            found: None,
            evidence: Evidence {
                is_damaged: true,
                ..Evidence::default()
            },
            epoch: 0,
            faults: Vec::new(),
        };
        let found = disk.and_then(|disk| rescued.find(disk, place, database));
        rescued.faults.extend(found.err());
        rescued
    }

    /// An error says why nothing can be had of the shard.
    fn find(
        &mut self,
        disk: Arc<dyn Disk>,
        (shard, count): (usize, usize),
        database: &mut Option<u128>,
    ) -> Result<(), String> {
        let told = |error: RecoveryError| error.to_string();
        let superblocks = Superblocks::open(&*disk).map_err(told)?;
        let newest = *superblocks.newest();
        let identity = newest.identity;
        let own = *database.get_or_insert(identity.database);
        if (identity.shard as usize, identity.shards as usize) != (shard, count)
            || identity.database != own
        {
            let path = superblocks.path();
            return Err(format!("{path} is of another shard or database"));
        }
        let image = Image::open(&*disk).map_err(|error| error.to_string())?;
        let interrupted = self.note(interrupted(&disk, &superblocks)).flatten();
        let mut left_out = LeftOut::default();
        if let Some(before) = &interrupted {
            let replaced = &mut left_out.replaced;
            let read = before.each_page(|page, _| {
                replaced.insert(page);
            });
            self.note(read);
        }
        if let State::Rollback(epoch) = newest.state {
            let what = format!("a rollback to the end of epoch {epoch} was interrupted");
            self.faults.push(what);
        }
        let (survey, damage) = Survey::of(&disk, &newest);
        let is_damaged = damage.is_some();
        self.faults.extend(damage.map(told));
        self.evidence = Evidence {
            is_damaged,
            ..survey.evidence
        };
        self.found = Some(Found {
            disk,
            superblocks,
            image,
            interrupted,
            end: survey.end,
            end_path: survey.end_path,
            left_out: Some(left_out),
        });
        Ok(())
    }

    fn note<T>(&mut self, result: Result<T, RecoveryError>) -> Option<T> {
        result
            .map_err(|error| self.faults.push(error.to_string()))
            .ok()
    }

    /// How far the shard is loaded, if those whose journals are whole go as far as `bound`.
    fn set_epoch(&mut self, bound: Option<u64>) {
        let Evidence {
            is_damaged,
            checkpoint_epoch,
            ..
        } = self.evidence;
        let own = self.evidence.sealed.last().copied().unwrap_or(0);
        let own = own.max(checkpoint_epoch);
        self.epoch = match bound {
            Some(bound) if is_damaged => own.min(bound),
            Some(bound) => bound,
            None => own,
        };
        if is_damaged && self.found.is_some() {
            let epoch = self.epoch.max(checkpoint_epoch);
            let what = format!("what it changed after epoch {epoch} is lost");
            self.faults.push(what);
        }
    }
}

impl LeftOut {
    /// Reads pages; those that cannot be read, or do not have their checksums, are zeros.
    pub(super) fn read_pages(&mut self, image: &mut Image, first: u64, into: &mut [u8]) {
        if image.read(first, into).is_ok() {
            return;
        }
        for (page, content) in (first..).zip(into.chunks_mut(PAGE_BYTES)) {
            if let Err(error) = image.read(page, content) {
                content.fill(0);
                if !self.replaced.contains(&page) {
                    self.pages += 1;
                    self.first.get_or_insert(error);
                }
            }
        }
    }

    /// The journal, or the before-images, were not followed to their end.
    pub(super) fn end(&mut self, why: &RecoveryError) {
        self.journal = Some(why.to_string());
    }

    fn told(&self) -> Vec<String> {
        let pages = self.first.as_ref().map(|first| {
            let pages = self.pages;
            format!("{pages} pages of the image were left out, the first because {first}")
        });
        self.journal.iter().cloned().chain(pages).collect()
    }
}
