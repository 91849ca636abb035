//! The tables of a shard, and the arena that they share.

use allocator_api2::vec::Vec;

use crate::arena::{Arena, Heap};
use crate::error::{ArenaFull, Error, Result};
use crate::id::{ShardIndex, TableKey};
use crate::table::TablePart;
use crate::transaction::{RowKey, Tables};

pub(crate) struct Catalog {
    tables: Vec<Option<(u32, TablePart)>, Heap>,
    arena: Arena,
}

impl Catalog {
    pub(super) fn new(arena: Arena, heap: &Heap) -> Self {
        Self {
            tables: Vec::new_in(heap.clone()),
            arena,
        }
    }

    pub(crate) fn create(
        &mut self,
        key: TableKey,
        shard: ShardIndex,
        columns: usize,
        keyed: bool,
        rows_expected: u64,
    ) -> Result<(), ArenaFull> {
        let at = key.index as usize;
        if at >= self.tables.len() {
            let more = at + 1 - self.tables.len();
            self.tables.try_reserve(more).map_err(|_| ArenaFull {
                asked_bytes: (more * size_of::<Option<(u32, TablePart)>>()) as u64,
                used_bytes: self.arena.used_bytes(),
                bound_bytes: self.arena.bound_bytes(),
            })?;
            self.tables.resize_with(at + 1, || None);
        }
        debug_assert!(
            self.tables[at].is_none(),
            "the engine gives out free places"
        );
        let table = TablePart::new(&mut self.arena, shard, columns, keyed, rows_expected)?;
        self.tables[at] = Some((key.stamp, table));
        Ok(())
    }

    /// Places of the catalog in use or free.
    #[cfg(test)]
    pub(crate) fn table_count(&self) -> usize {
        self.tables.len()
    }

    /// Drops a table and returns its memory to the system.
    pub(crate) fn drop_table(&mut self, key: TableKey) {
        if self.has(key)
            && let Some((_, table)) = self.tables[key.index as usize].take()
        {
            table.release(&mut self.arena);
            self.arena.purge();
        }
    }

    /// The id of a row that is known by its number: its key, or the id of the row that is in its slot
    /// now; and whether it is a key.
    pub(super) fn id_of(&self, row: RowKey) -> Option<(bool, u64)> {
        let (_, table) = self.tables.get(row.table as usize)?.as_ref()?;
        if table.is_keyed() {
            return Some((true, row.row));
        }
        let slot = u32::try_from(row.row).ok()?;
        let is_used = slot < table.slots_end();
        is_used.then(|| (false, table.id(table.place(slot)).to_u64()))
    }

    #[inline]
    pub(crate) fn has(&self, key: TableKey) -> bool {
        matches!(self.tables.get(key.index as usize), Some(Some((stamp, _))) if *stamp == key.stamp)
    }

    /// A table, with the arena that its changes draw on.
    #[inline]
    pub(crate) fn table(&mut self, key: TableKey) -> Result<(&mut TablePart, &mut Arena)> {
        match self.tables.get_mut(key.index as usize) {
            Some(Some((stamp, table))) if *stamp == key.stamp => Ok((table, &mut self.arena)),
            _ => Err(Error::TableGone),
        }
    }

    pub(crate) fn arena(&mut self) -> &mut Arena {
        &mut self.arena
    }
}

impl Tables for Catalog {
    fn table(&mut self, index: u32) -> Option<(&mut TablePart, &mut Arena)> {
        let (_, table) = self.tables.get_mut(index as usize)?.as_mut()?;
        Some((table, &mut self.arena))
    }
}
