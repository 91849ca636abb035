//! Going back in time: all shards together, to the end of an epoch.
//!
//! # Steps
//! 1. All that is needed is read and found whole, and what will be lost is given to the caller.
//! 2. Every superblock says that the way back to this epoch is to be gone. From the first of them
//!    on the rollback happens, whatever comes between: the next opening goes on with it.
//! 3. In every shard the image goes back, checkpoint by checkpoint, by their before-images, until
//!    its epoch is not above the one asked for; the superblock is rewritten at each.
//! 4. [`Recovery::finish`] voids the epochs above in every journal, and then takes the word from the
//!    superblocks again.
//!
//! The before-images of the abandoned future stay where they are until their numbers come again;
//! they name a parent that never comes back, by its lineage, and so they are never applied.

use super::before::BeforeImages;
use super::block::Record;
use super::checkpoint::past;
use super::error::RecoveryError;
use super::recovery::{Found, Recovery};
use super::scan::oldest;
use super::superblock::{Position, State, Superblock};

impl Recovery {
    /// The epochs that can be gone back to: the oldest and the newest.
    pub(crate) fn reach(&self) -> Result<(u64, u64), RecoveryError> {
        let mut first = 0;
        for found in &self.shards {
            let way = Way::of(found, 0)?;
            first = first.max(way.epoch);
        }
        Ok((first, self.cut.epoch))
    }

    /// Goes back to the end of `epoch` in all shards. `lost` gets all records that this takes back,
    /// with their shards; if it fails nothing was done.
    pub(crate) fn rollback(
        &mut self,
        epoch: u64,
        lost: impl FnMut(usize, &Record<'_>) -> Result<(), String>,
    ) -> Result<(), RecoveryError> {
        self.put_aside(epoch, lost)?;
        self.turn_back(epoch)
    }

    /// Reads all that is needed to go back to the end of `epoch`, and gives all records that this would
    /// take back, with their shards. Nothing is done yet.
    pub(crate) fn put_aside(
        &mut self,
        epoch: u64,
        mut lost: impl FnMut(usize, &Record<'_>) -> Result<(), String>,
    ) -> Result<(), RecoveryError> {
        let (oldest, newest) = self.reach()?;
        if !(oldest..=newest).contains(&epoch) {
            let asked = epoch;
            return Err(RecoveryError::OutOfReach {
                asked,
                oldest,
                newest,
            });
        }
        for (shard, loader) in self.loaders().enumerate() {
            let way = Way::of(loader.found, epoch)?;
            for number in way.numbers {
                before_images(loader.found, number)?.verify()?;
            }
            loader.each_record(way.start, &mut |record| {
                let is_lost = record.epoch > epoch;
                let taken = if is_lost { lost(shard, record) } else { Ok(()) };
                taken.map_err(RecoveryError::Sink)
            })?;
        }
        Ok(())
    }

    /// Goes back to the end of `epoch`, for which everything was found whole. What was put aside must be
    /// durable by now: a rollback that is interrupted is gone on with, and asks nobody.
    pub(crate) fn turn_back(&mut self, epoch: u64) -> Result<(), RecoveryError> {
        for found in &mut self.shards {
            let newest = *found.superblocks.newest();
            let state = State::Rollback(epoch);
            found.superblocks.write(Superblock { state, ..newest })?;
        }
        self.go_on_back(true)
    }

    /// Goes the way back that a superblock tells of, if one does.
    pub(super) fn go_on_back(&mut self, writes: bool) -> Result<(), RecoveryError> {
        let asked = |found: &Found| match found.superblocks.newest().state {
            State::Rollback(epoch) => Some(epoch),
            _ => None,
        };
        let Some(epoch) = self.shards.iter().find_map(asked) else {
            return Ok(());
        };
        if !writes {
            return Err(RecoveryError::Rollback { epoch });
        }
        if epoch > self.cut.epoch {
            let found = &self.shards[0];
            let what = format!("a rollback goes back to epoch {epoch}, which is not here any more");
            return Err(RecoveryError::damaged(
                &found.end_path,
                found.end.offset,
                what,
            ));
        }
        for found in &mut self.shards {
            go_back(found, epoch)?;
        }
        self.cut.epoch = epoch;
        self.is_rollback = true;
        Ok(())
    }
}

/// Takes a shard's image back to a checkpoint that is not above `epoch`.
fn go_back(found: &mut Found, epoch: u64) -> Result<(), RecoveryError> {
    loop {
        let newest = *found.superblocks.newest();
        if newest.epoch <= epoch {
            return Ok(());
        }
        let before = before_images(found, newest.checkpoint)?;
        before.apply(&mut found.image)?;
        found.superblocks.write(Superblock {
            sequence: newest.sequence,
            segment: newest.segment,
            state: State::Rollback(epoch),
            ..before.parent
        })?;
    }
}

/// The before-images that lead back from checkpoint `number`, which must be there.
fn before_images(found: &Found, number: u64) -> Result<BeforeImages, RecoveryError> {
    let identity = &found.superblocks.newest().identity;
    BeforeImages::open(&found.disk, identity, number)?.ok_or_else(|| {
        let path = found.disk.path(&super::before::name(number));
        RecoveryError::damaged(path, 0, "the before-images are not there any more")
    })
}

/// The way of one shard back to an epoch.
struct Way {
    /// Checkpoints whose before-images are applied.
    numbers: Vec<u64>,
    /// The epoch of the checkpoint that they lead to.
    epoch: u64,
    /// Where its replay starts.
    start: Position,
}

impl Way {
    /// The way to the newest checkpoint that is not above `epoch`, or as far as it goes.
    fn of(found: &Found, epoch: u64) -> Result<Self, RecoveryError> {
        let newest = found.superblocks.newest();
        let mut way = Self {
            numbers: Vec::new(),
            epoch: newest.epoch,
            start: newest.start,
        };
        let mut child = *newest;
        // A segment that was removed may be there again after a crash, without those after it.
        let kept = oldest(&*found.disk, &newest.identity, newest.start.segment)?;
        let kept = kept.map_or(newest.start.segment, |kept| kept.segment);
        for past in past(&found.disk, newest)? {
            if way.epoch <= epoch || past.segment < kept {
                break;
            }
            let before = before_images(found, child.checkpoint)?;
            way.numbers.push(child.checkpoint);
            child = before.parent;
            way.epoch = child.epoch;
            way.start = child.start;
        }
        Ok(way)
    }
}
