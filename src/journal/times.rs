//! When epochs were sealed, as far as the journal is kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::block::{Entry, Seal};
use super::disk::Disk;
use super::error::RecoveryError;
use super::scan::{Reader, entries, oldest};
use super::superblock::Superblocks;

/// Adds when each epoch was sealed in a shard, in microseconds since 1970. Nothing is written.
pub(crate) fn times(
    disk: Arc<dyn Disk>,
    into: &mut BTreeMap<u64, u64>,
) -> Result<(), RecoveryError> {
    let superblocks = Superblocks::open(&*disk)?;
    let newest = superblocks.newest();
    let start = oldest(&*disk, &newest.identity, newest.start.segment)?;
    let mut reader = Reader::new(disk, &newest.identity, start.unwrap_or(newest.start))?;
    loop {
        let path = reader.path();
        let Some(block) = reader.next()? else {
            return Ok(());
        };
        for entry in entries(&block, || path.clone()) {
            if let Entry::Seal(Seal { epoch, micros, .. }) = entry? {
                into.insert(epoch, micros);
            }
        }
    }
}
