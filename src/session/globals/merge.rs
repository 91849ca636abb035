//! Copying a subtree below another node.

use std::ops::ControlFlow;

use super::GlobalVerbs;
use crate::collation::{GlobalEntries, GlobalKey, KeyError};
use crate::error::{Error, Result};
use crate::limits::{GLOBAL_BYTES_PER_CALL, GLOBALS_PER_CALL, KEY_BYTES_MAX};
use crate::session::verbs::Verbs;

impl<S: Verbs> GlobalVerbs<'_, S> {
    /// Copies a node and all below it to another place, where what is not overwritten stays: `MERGE`.
    /// Says how many nodes were copied. The place must not be within what is copied, nor the other way
    /// round ([`Error::MergeOverlap`]).
    ///
    /// Nodes are read and set by blocks; that all keys will be short enough is looked at before the
    /// first is set. Others' changes meanwhile may be copied or not, as a scan sees them.
    pub fn merge(&mut self, from: &GlobalKey, to: &GlobalKey) -> Result<u64> {
        let (old, new) = (from.prefix(), to.prefix());
        if old == new {
            return Ok(0);
        }
        if old.starts_with(new) || new.starts_with(old) {
            return Err(Error::MergeOverlap);
        }
        let longer = new.len().saturating_sub(old.len());
        if longer > 0 {
            let mut longest = 0;
            self.scan(from, |key, _| {
                longest = longest.max(key.as_bytes().len());
                ControlFlow::Continue(())
            })?;
            check_length(longest + longer)?;
        }
        let mut entries = GlobalEntries::new();
        let mut range = from.subtree();
        let mut key = Vec::new();
        let (routing, shards) = (self.globals.routing(), self.shards);
        let mut copied = 0;
        loop {
            let (mut count, mut bytes, mut result) = (0, 0, Ok(()));
            entries.clear();
            self.scan_range(&range, |old_key, value| {
                key.clear();
                key.extend_from_slice(new);
                key.extend_from_slice(&old_key.as_bytes()[old.len()..]);
                let made = check_length(key.len()).and_then(|()| {
                    // Only what is stored can be wrong with it.
                    let shard = routing.shard_of(old_key.as_bytes(), shards);
                    GlobalKey::from_bytes(&key).map_err(|_| Error::Damaged { shard })
                });
                match made {
                    Ok(made) => entries.push_key(&made, value),
                    Err(error) => result = Err(error),
                }
                (count, bytes) = (count + 1, bytes + value.len());
                if result.is_err() || count == GLOBALS_PER_CALL || bytes > GLOBAL_BYTES_PER_CALL {
                    key.clear();
                    key.extend_from_slice(old_key.as_bytes());
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
            result?;
            self.set_batch(&entries)?;
            copied += count as u64;
            if count < GLOBALS_PER_CALL && bytes <= GLOBAL_BYTES_PER_CALL {
                return Ok(copied);
            }
            range.start.clone_from(&key);
            range.start.push(0);
        }
    }
}

fn check_length(bytes: usize) -> Result<()> {
    if bytes > KEY_BYTES_MAX {
        return Err(KeyError::TooLong { bytes }.into());
    }
    Ok(())
}
