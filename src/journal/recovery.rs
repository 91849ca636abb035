//! Opening a database: what is whole in all of its shards, and how to get there.
//!
//! # Steps
//! 1. [`Recovery::open`] reads the superblocks, brings images back from interrupted checkpoints,
//!    reads the journals from the checkpoints on, and finds the cut ([`cut`](super::cut)). A
//!    rollback that was interrupted is gone on with.
//! 2. If it is asked to, [`Recovery::rollback`] goes back in time.
//! 3. The caller loads the pages that it wants ([`Loader::read_pages`], or later, in the
//!    background), and changes the memory by the records ([`Loader::replay`]).
//! 4. [`Recovery::finish`] begins a new segment in every shard, which voids what lies behind the
//!    valid end and the epochs above the cut, and then writes the superblocks. Only then may
//!    anything new be done. Who only wants to read leaves it out.
//!
//! What was read may not be durable yet, if it was a process that ended and not the machine: it is
//! synced before anything is built on it. A crash in the midst of any of it is recovered from by the same steps, with the same result:
//! nothing that was read is written over.
//!
//! The time that this takes depends on the work since the last checkpoint, and on the length of one
//! segment, never on how much data there is.

use std::sync::Arc;

use super::Journal;
use super::before::BeforeImages;
use super::block::{Entry, Record, Seal};
use super::checkpoint::{Checkpoints, interrupted};
use super::cut::{Cut, Evidence, Missing, cut, is_void};
use super::disk::Disk;
use super::error::RecoveryError;
use super::image::{Image, Page};
use super::log::{Ids, Log, Sizes};
use super::mutant::{Mutant, is};
use super::rescue::LeftOut;
use super::scan::{Reader, entries};
use super::segment::{self, Void};
use super::staging::Staging;
use super::superblock::{Position, State, Superblock, Superblocks};

/// A database that is being opened.
pub(crate) struct Recovery {
    pub(super) shards: Vec<Found>,
    pub(super) cut: Cut,
    pub(super) voids: Vec<Void>,
    /// Whether the way back to an epoch is under way.
    pub(super) is_rollback: bool,
}

/// What was found of one shard.
pub(super) struct Found {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) superblocks: Superblocks,
    pub(super) image: Image,
    /// What an interrupted checkpoint has left, when the files are only looked at.
    pub(super) interrupted: Option<BeforeImages>,
    /// The valid end of the journal.
    pub(super) end: Position,
    pub(super) end_path: String,
    /// What was left out of damaged files, if that is allowed.
    pub(super) left_out: Option<LeftOut>,
}

impl Recovery {
    /// Finds what is whole in the directories of all shards, in their order.
    pub(crate) fn open(disks: Vec<Arc<dyn Disk>>) -> Result<Self, RecoveryError> {
        Self::find(disks, true)
    }

    /// As [`open`](Self::open), and writes nothing: what it gives can be loaded, and no more.
    pub(crate) fn look(disks: Vec<Arc<dyn Disk>>) -> Result<Self, RecoveryError> {
        Self::find(disks, false)
    }

    fn find(disks: Vec<Arc<dyn Disk>>, writes: bool) -> Result<Self, RecoveryError> {
        let mut shards = Vec::with_capacity(disks.len());
        let mut evidences = Vec::with_capacity(disks.len());
        let superblocks = open_superblocks(&disks)?;
        for (disk, mut superblocks) in disks.into_iter().zip(superblocks) {
            if writes {
                refuse_if_read_only(&superblocks)?;
            }
            let syncs = writes && !is(Mutant::ReadUnsynced);
            if syncs {
                disk.sync_directory()?;
                superblocks.sync()?;
            }
            let mut image = Image::open(&*disk)?;
            let mut interrupted = interrupted(&disk, &superblocks)?;
            if writes && let Some(before) = interrupted.take() {
                before.apply(&mut image)?;
            }
            let survey = survey(&disk, superblocks.newest())?;
            // All segments before it were synced before it was begun.
            if syncs {
                disk.open(&segment::name(survey.end.segment))?.sync()?;
            }
            evidences.push(survey.evidence);
            shards.push(Found {
                disk,
                superblocks,
                image,
                interrupted,
                end: survey.end,
                end_path: survey.end_path,
                left_out: None,
            });
        }
        let found = cut(&evidences).map_err(|missing| missing_epoch(missing, &shards))?;
        let voids = evidences
            .iter()
            .flat_map(|evidence| evidence.voids.iter().copied());
        let voids = Vec::from_iter(voids);
        let mut recovery = Self {
            shards,
            cut: found,
            voids,
            is_rollback: false,
        };
        recovery.go_on_back(writes)?;
        Ok(recovery)
    }

    /// The epoch that all shards are brought to: everything up to it, nothing after it.
    pub(crate) fn cut(&self) -> u64 {
        self.cut.epoch
    }

    /// Loads no more than the epochs up to this one, where a checkpoint does not hold more already. Only
    /// for looking.
    pub(crate) fn stop_at(&mut self, epoch: u64) {
        self.cut.epoch = self.cut.epoch.min(epoch);
    }

    /// What loads one shard's memory.
    pub(crate) fn loader(&mut self, shard: usize) -> Loader<'_> {
        let (cut, voids) = (self.cut.epoch, &self.voids);
        let found = &mut self.shards[shard];
        Loader { found, cut, voids }
    }

    /// What loads the memory of each shard, for as many threads as the caller likes.
    pub(crate) fn loaders(&mut self) -> impl Iterator<Item = Loader<'_>> {
        let (cut, voids) = (self.cut.epoch, &self.voids);
        let loader = move |found| Loader { found, cut, voids };
        self.shards.iter_mut().map(loader)
    }

    /// Makes the cut the state of the files: what is beyond it is void from then on. `random` must
    /// be a new random number.
    pub(crate) fn finish(self, sizes: Sizes, random: u64) -> Result<Vec<Journal>, RecoveryError> {
        let mut ids = Ids::new(random);
        let mut void = Void {
            above: self.cut.epoch,
            first: self.cut.first,
        };
        if is(Mutant::EpochsReused) {
            void = Void::default();
        }
        let mut shards = Vec::with_capacity(self.shards.len());
        for found in self.shards {
            let identity = found.superblocks.newest().identity;
            let disk = Arc::clone(&found.disk);
            let log = Log::start(disk, identity, sizes, ids.split(), found.end, void)?;
            shards.push((found, log));
        }
        // Everything beyond the cut is void in every shard before any shard counts as opened.
        let (epoch, is_rollback) = (self.cut.epoch, self.is_rollback);
        let open = |(mut found, mut log): (Found, Log)| {
            let next = Superblock {
                state: State::Open,
                segment: log.end().segment,
                ..*found.superblocks.newest()
            };
            found.superblocks.write(next)?;
            if is_rollback {
                // The slot before says that there is a way back to go: it must not count again.
                found.superblocks.write(next)?;
            }
            let report = log.report();
            let (block, bound) = (found.end.block, sizes.staging_bytes);
            let staging = Staging::new(block, epoch, sizes.block_bytes, bound, report.room);
            let checkpoints =
                Checkpoints::new(found.disk, found.superblocks, found.image, ids.split());
            Ok(Journal {
                staging,
                log,
                checkpoints,
                epoch_first: if is(Mutant::EpochsReused) {
                    epoch + 1
                } else {
                    self.cut.first
                },
            })
        };
        shards.into_iter().map(open).collect()
    }
}

/// Loads one shard's memory: its pages, and then the records that change them.
pub(crate) struct Loader<'r> {
    pub(super) found: &'r mut Found,
    pub(super) cut: u64,
    pub(super) voids: &'r [Void],
}

impl Loader<'_> {
    /// What counts of the shard.
    pub(crate) fn superblock(&self) -> &Superblock {
        self.found.superblocks.newest()
    }

    /// Pages that the image may have. Before the first checkpoint, or back there, it has none, whatever a
    /// later one has left in the file.
    pub(crate) fn image_pages(&self) -> Result<u64, RecoveryError> {
        match self.superblock().checkpoint {
            0 => Ok(0),
            _ => Ok(self.found.image.page_count()?),
        }
    }

    /// The image as a file of the system, if it is one: to be mapped, and read as it is touched. What
    /// it holds is not compared with its sums then.
    pub(crate) fn image_file(&self) -> Option<std::fs::File> {
        match self.found.left_out {
            None => self.found.image.file(),
            // Every page is compared.
            Some(_) => None,
        }
    }

    /// Visits the pages that an interrupted checkpoint has written over, as they were before; pages that
    /// were never written are left out.
    pub(crate) fn each_interrupted(
        &mut self,
        mut visit: impl FnMut(u64, &Page),
    ) -> Result<(), RecoveryError> {
        let read = match &self.found.interrupted {
            Some(before) => before.each_page(|page, content| visit(page, content)),
            None => Ok(()),
        };
        self.unless_left_out(read)
    }

    /// Whether the image is as the checkpoint has left it.
    pub(crate) fn is_image_whole(&self) -> bool {
        self.found.interrupted.is_none() || self.superblock().checkpoint == 0
    }

    /// Reads pages of the checkpoint from `first` on, and compares them with their sums, unless an
    /// interrupted checkpoint has written over some.
    pub(crate) fn read_pages(&mut self, first: u64, into: &mut [u8]) -> Result<(), RecoveryError> {
        if let Some(left_out) = &mut self.found.left_out {
            left_out.read_pages(&mut self.found.image, first, into);
            return Ok(());
        }
        if self.found.interrupted.is_some() {
            return Ok(self.found.image.read_unchecked(first, into)?);
        }
        self.found.image.read(first, into)
    }

    /// Visits the records that lead from the checkpoint to the cut, in order. If the visitor cannot
    /// use one it says why, and that is damage.
    pub(crate) fn replay(
        &mut self,
        mut visit: impl FnMut(&Record<'_>) -> Result<(), String>,
    ) -> Result<(), RecoveryError> {
        let read = self.each_record(self.superblock().start, &mut |record| {
            visit(record).map_err(|what| {
                let Found { end, end_path, .. } = &*self.found;
                RecoveryError::damaged(end_path, end.offset, format!("before it, {what}"))
            })
        });
        self.unless_left_out(read)
    }

    /// Where what is damaged may be left out, it is no error.
    fn unless_left_out(&mut self, read: Result<(), RecoveryError>) -> Result<(), RecoveryError> {
        match (read, &mut self.found.left_out) {
            (Err(damage), Some(left_out)) => {
                left_out.end(&damage);
                Ok(())
            }
            (read, _) => read,
        }
    }

    /// Visits the records from a place on, as far as the cut.
    pub(super) fn each_record(
        &self,
        start: Position,
        visit: &mut dyn FnMut(&Record<'_>) -> Result<(), RecoveryError>,
    ) -> Result<(), RecoveryError> {
        let identity = &self.superblock().identity;
        let mut reader = Reader::new(Arc::clone(&self.found.disk), identity, start)?;
        let mut voids = self.voids.to_vec();
        voids.extend(reader.voids().filter(|void| void.first > 0));
        loop {
            let path = reader.path();
            let Some(block) = reader.next()? else {
                break;
            };
            for entry in entries(&block, || path.clone()) {
                if let Entry::Record(record) = entry?
                    && record.epoch <= self.cut
                    && !is_void(&voids, record.epoch)
                {
                    visit(&record)?;
                }
            }
        }
        if reader.position() != self.found.end {
            return Err(reader.damaged("the journal went on from here before"));
        }
        Ok(())
    }
}

/// Bytes of the segments that a shard's journal was last written in, if that one is there.
pub(crate) fn segment_bytes(disk: &dyn Disk) -> Result<Option<u64>, RecoveryError> {
    let superblocks = Superblocks::open(disk)?;
    match disk.open(&segment::name(superblocks.newest().segment)) {
        Err(error) if error.is_not_found() => Ok(None),
        opened => Ok(Some(opened?.bytes()?)),
    }
}

/// The superblocks of all shards, which must be those of one database in their order.
pub(super) fn open_superblocks(disks: &[Arc<dyn Disk>]) -> Result<Vec<Superblocks>, RecoveryError> {
    let mut all = Vec::<Superblocks>::with_capacity(disks.len());
    for (shard, disk) in disks.iter().enumerate() {
        let superblocks = Superblocks::open(&**disk)?;
        let found = superblocks.newest().identity;
        let first = all.first().map_or(found, |first| first.newest().identity);
        let difference = if found.shards as usize != disks.len() {
            format!(
                "its database has {} shards, not {}",
                found.shards,
                disks.len()
            )
        } else if found.shard as usize != shard {
            format!("it is of shard {}, not {shard}", found.shard)
        } else if found.database != first.database {
            "it is of another database than shard 0".to_owned()
        } else {
            all.push(superblocks);
            continue;
        };
        let file = superblocks.path().to_owned();
        return Err(RecoveryError::Stranger { file, difference });
    }
    Ok(all)
}

fn refuse_if_read_only(superblocks: &Superblocks) -> Result<(), RecoveryError> {
    let newest = superblocks.newest();
    if newest.is_writable() {
        return Ok(());
    }
    Err(RecoveryError::ReadOnly {
        file: superblocks.path().to_owned(),
        features: newest.features,
    })
}

fn missing_epoch(missing: Missing, shards: &[Found]) -> RecoveryError {
    let found = &shards[missing.shard.unwrap_or(0).min(shards.len() - 1)];
    let what = format!(
        "epoch {} was durable, and what it changed is not here any more",
        missing.epoch
    );
    RecoveryError::damaged(&found.end_path, found.end.offset, what)
}

/// What a shard's journal says.
pub(super) struct Survey {
    pub(super) evidence: Evidence,
    pub(super) end: Position,
    pub(super) end_path: String,
}

/// Reads a journal from the checkpoint to its end, and what lies behind the end.
pub(super) fn survey(disk: &Arc<dyn Disk>, newest: &Superblock) -> Result<Survey, RecoveryError> {
    match Survey::of(disk, newest) {
        (survey, None) => Ok(survey),
        (_, Some(damage)) => Err(damage),
    }
}

impl Survey {
    /// What can be read of a journal, and why no more, if it is not whole.
    pub(super) fn of(disk: &Arc<dyn Disk>, newest: &Superblock) -> (Self, Option<RecoveryError>) {
        let evidence = Evidence {
            checkpoint_epoch: newest.epoch,
            epoch_max: newest.epoch,
            ..Evidence::default()
        };
        let mut survey = Self {
            evidence,
            end: newest.start,
            end_path: disk.path(&segment::name(newest.start.segment)),
        };
        let damage = survey.read(disk, newest).err();
        (survey, damage)
    }

    fn read(&mut self, disk: &Arc<dyn Disk>, newest: &Superblock) -> Result<(), RecoveryError> {
        let mut reader = Reader::new(Arc::clone(disk), &newest.identity, newest.start)?;
        let evidence = &mut self.evidence;
        evidence.voids = Vec::from_iter(reader.voids().filter(|void| void.first > 0));
        loop {
            (self.end, self.end_path) = (reader.position(), reader.path());
            let Some(block) = reader.next()? else {
                break;
            };
            evidence.durable = evidence.durable.max(block.durable());
            evidence.epoch_max = evidence.epoch_max.max(block.epoch_high());
            for entry in entries(&block, || self.end_path.clone()) {
                if let Entry::Seal(Seal { epoch, dirty, .. }) = entry? {
                    evidence.seals.insert(epoch, dirty);
                    evidence.sealed.insert(epoch);
                    evidence.epoch_max = evidence.epoch_max.max(epoch);
                }
            }
        }
        (self.end, self.end_path) = (reader.position(), reader.path());
        if self.end.segment < newest.segment {
            let what = format!(
                "the journal ends here, but segment {} was begun after it",
                newest.segment
            );
            let end = &self.end_path;
            return Err(RecoveryError::damaged(end, self.end.offset, what));
        }
        // Behind the end of what was closed there is nothing to look for.
        if newest.state == State::Clean && self.end == newest.start {
            return Ok(());
        }
        reader.strays(|block| {
            evidence.durable = evidence.durable.max(block.durable());
            evidence.epoch_max = evidence.epoch_max.max(block.epoch_high());
            for entry in block.entries().flatten() {
                if let Entry::Seal(Seal { epoch, dirty, .. }) = entry {
                    evidence.seals.entry(epoch).or_insert(dirty);
                    evidence.epoch_max = evidence.epoch_max.max(epoch);
                }
            }
        })
    }
}
