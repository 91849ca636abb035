//! Making the files of a new database.
//!
//! The superblocks get their names last, and shard 0's last of all: it is what says that there is a
//! database. Files of a creation that was interrupted are removed by the next one.

use std::sync::Arc;

use super::before;
use super::disk::{Disk, DiskError, remove_if_there};
use super::error::RecoveryError;
use super::image::{self, Image};
use super::log::{Ids, Log, Sizes};
use super::segment::{self, BLOCKS_AT, Void};
use super::superblock::{self, Identity, Position, State, Superblock, Superblocks};

/// Makes the files of a database with one shard per disk. `random` must be a new random number.
pub(crate) fn create(
    disks: &[Arc<dyn Disk>],
    arena_bytes: u64,
    sizes: Sizes,
    random: u64,
) -> Result<(), RecoveryError> {
    let mut ids = Ids::new(random);
    let database = u128::from(ids.next()) << 64 | u128::from(ids.next());
    for (shard, disk) in disks.iter().enumerate() {
        refuse_if_used(&**disk, shard)?;
    }
    for (shard, disk) in disks.iter().enumerate() {
        let identity = Identity {
            database,
            shard: shard as u32,
            shards: disks.len() as u32,
        };
        remove_all(&**disk)?;
        create_shard(disk, identity, arena_bytes, sizes, &mut ids)?;
    }
    for disk in disks.iter().rev() {
        disk.rename(superblock::NAME_NEW, superblock::NAME)?;
        disk.sync_directory()?;
    }
    Ok(())
}

/// Refuses to write over a database, or a shard of one that has been opened.
fn refuse_if_used(disk: &dyn Disk, shard: usize) -> Result<(), RecoveryError> {
    match Superblocks::open(disk) {
        Err(RecoveryError::Disk(error)) if error.is_not_found() => Ok(()),
        Ok(superblocks) if shard > 0 && superblocks.newest().sequence == 1 => Ok(()),
        Err(RecoveryError::Disk(error)) => Err(error.into()),
        _ => {
            let file = disk.path(superblock::NAME);
            Err(DiskError::Exists { file }.into())
        }
    }
}

/// Removes the files of a database that was never finished.
fn remove_all(disk: &dyn Disk) -> Result<(), DiskError> {
    let own = [
        superblock::NAME,
        superblock::NAME_NEW,
        image::PAGES_NAME,
        image::SUMS_NAME,
    ];
    for name in disk.list()? {
        let is_numbered = segment::number(&name).is_some() || before::number(&name).is_some();
        if is_numbered || own.contains(&name.as_str()) {
            remove_if_there(disk, &name)?;
        }
    }
    disk.sync_directory()
}

fn create_shard(
    disk: &Arc<dyn Disk>,
    identity: Identity,
    arena_bytes: u64,
    sizes: Sizes,
    ids: &mut Ids,
) -> Result<(), RecoveryError> {
    let nothing = Position {
        block: 1,
        ..Position::default()
    };
    let log = Log::start(
        Arc::clone(disk),
        identity,
        sizes,
        ids.split(),
        nothing,
        Void::default(),
    )?;
    Image::create(&**disk)?;
    let first = Superblock {
        identity,
        features: 0,
        sequence: 1,
        lineage: ids.next(),
        checkpoint: 0,
        epoch: 0,
        start: Position {
            segment: log.end().segment,
            offset: BLOCKS_AT,
            ..nothing
        },
        segment: log.end().segment,
        arena_bytes,
        state: State::Clean,
    };
    Superblocks::create(&**disk, &first)?;
    Ok(disk.sync_directory()?)
}
