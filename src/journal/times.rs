//! When epochs were sealed, as far as the journals are kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::block::{Entry, Seal};
use super::cut::is_void;
use super::disk::Disk;
use super::error::RecoveryError;
use super::scan::{Reader, entries, oldest};
use super::segment::Void;
use super::superblock::Superblocks;

/// When each epoch was sealed, in microseconds since 1970, by the journals of all shards. Epochs that a
/// crash or rollback has voided are left out; one that is not sealed in all of its shards is not. Nothing
/// is written.
pub(crate) fn times(disks: &[Arc<dyn Disk>]) -> Result<BTreeMap<u64, u64>, RecoveryError> {
    let (mut times, mut voids) = (BTreeMap::new(), Vec::new());
    for disk in disks {
        read(disk, &mut times, &mut voids)?;
    }
    times.retain(|epoch, _| !is_void(&voids, *epoch));
    Ok(times)
}

fn read(
    disk: &Arc<dyn Disk>,
    times: &mut BTreeMap<u64, u64>,
    voids: &mut Vec<Void>,
) -> Result<(), RecoveryError> {
    let superblocks = Superblocks::open(&**disk)?;
    let newest = superblocks.newest();
    let start = oldest(&**disk, &newest.identity, newest.start.segment)?;
    let start = start.unwrap_or(newest.start);
    let mut reader = Reader::new(Arc::clone(disk), &newest.identity, start)?;
    voids.extend(reader.voids());
    loop {
        let path = reader.path();
        let Some(block) = reader.next()? else {
            return Ok(());
        };
        for entry in entries(&block, || path.clone()) {
            if let Entry::Seal(Seal { epoch, micros, .. }) = entry? {
                times.insert(epoch, micros);
            }
        }
    }
}
