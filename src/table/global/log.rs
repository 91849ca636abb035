//! What nodes were before a transaction of one shard changed them.

use allocator_api2::vec::Vec;

use super::GlobalPart;
use crate::arena::{Arena, Heap};
use crate::error::Result;

/// Bytes beyond which the log's memory is given back instead of kept.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// One node: its bytes lie in the log's memory, key first.
#[derive(Clone, Copy, Debug)]
struct Before {
    table: u32,
    key_bytes: u32,
    /// `None`: there was no such node.
    value_bytes: Option<u32>,
}

/// The nodes that a transaction has changed, as they were.
pub(crate) struct GlobalLog {
    entries: Vec<Before, Heap>,
    bytes: Vec<u8, Heap>,
}

impl GlobalLog {
    pub(crate) fn new(heap: &Heap) -> Self {
        Self {
            entries: Vec::new_in(heap.clone()),
            bytes: Vec::new_in(heap.clone()),
        }
    }

    /// Makes room for some more nodes; an error says how many bytes were asked for in vain.
    pub(crate) fn reserve(&mut self, nodes: usize, bytes: usize) -> Result<(), usize> {
        let more = nodes.max(2 * self.entries.capacity()) * size_of::<Before>();
        self.entries.try_reserve(nodes).map_err(|_| more)?;
        let more = bytes.max(2 * self.bytes.capacity());
        self.bytes.try_reserve(bytes).map_err(|_| more)
    }

    /// Notes a node as it is. Room was made.
    pub(crate) fn note(&mut self, table: u32, key: &[u8], value: Option<&[u8]>) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.entries.push(Before {
            table,
            key_bytes: key.len() as u32,
            value_bytes: value.map(|value| value.len() as u32),
        });
    }

    /// The table of the node that was noted last.
    pub(crate) fn last_table(&self) -> Option<u32> {
        self.entries.last().map(|before| before.table)
    }

    /// Puts the node that was noted last back, if its table is still there.
    pub(crate) fn put_back(&mut self, part: Option<(&mut GlobalPart, &mut Arena)>) -> Result<()> {
        let Some(before) = self.entries.pop() else {
            return Ok(());
        };
        let value_bytes = before.value_bytes.unwrap_or(0) as usize;
        let start = self.bytes.len() - before.key_bytes as usize - value_bytes;
        let (key, value) = self.bytes[start..].split_at(before.key_bytes as usize);
        let result = match part {
            None => Ok(()),
            Some((part, arena)) => {
                let value = before.value_bytes.map(|_| value);
                part.put_back(arena, key, value)
            }
        };
        self.bytes.truncate(start);
        result
    }

    /// The tables of what was noted; some of them several times.
    pub(crate) fn tables(&self) -> impl Iterator<Item = u32> {
        let changes = self.entries.chunk_by(|one, next| one.table == next.table);
        changes.map(|changes| changes[0].table)
    }

    /// Forgets what was noted, for good.
    pub(crate) fn clear(&mut self) {
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.entries = Vec::new_in(self.entries.allocator().clone());
            self.bytes = Vec::new_in(self.bytes.allocator().clone());
        }
        self.entries.clear();
        self.bytes.clear();
    }
}
