//! The tables of a shard, and the arena that they share.

mod compact;
mod survey;

use allocator_api2::vec::Vec;

use crate::arena::{Arena, Entry, Heap};
use crate::error::{ArenaFull, Error, Result};
use crate::id::{DirectId, ShardIndex, TableKey};
use std::sync::Arc;

use crate::table::{GlobalPart, PartName, RecordPart, RecordShape, Routing, TablePart};
use crate::transaction::{Changed, RowKey, Tables};

/// A table, as the catalog is told of it.
#[derive(Clone, Debug)]
pub(crate) struct TableShape {
    pub(crate) key: TableKey,
    /// Its number in its database.
    pub(crate) serial: u32,
    pub(crate) content: Content,
}

/// What a table holds.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Rows { columns: usize, keyed: bool },
    Records(Arc<RecordShape>),
    Globals(Routing),
}

pub(crate) use compact::Compaction;

pub(crate) struct Catalog {
    tables: Vec<Option<(u32, Part)>, Heap>,
    /// The original of a table that was just copied.
    aside: Option<(u32, Part)>,
    arena: Arena,
}

/// A shard's part of a table.
enum Part {
    Rows(TablePart),
    Records(RecordPart),
    Globals(GlobalPart),
}

impl Part {
    fn new(
        arena: &mut Arena,
        shape: &TableShape,
        shard: ShardIndex,
        rows_expected: u64,
    ) -> Result<Self, ArenaFull> {
        let name = shape.name();
        match &shape.content {
            Content::Rows { columns, keyed } => {
                TablePart::new(arena, name, shard, *columns, *keyed, rows_expected).map(Self::Rows)
            }
            Content::Records(records) => {
                let records = Arc::clone(records);
                RecordPart::new(arena, name, shard, records, rows_expected).map(Self::Records)
            }
            Content::Globals(routing) => {
                GlobalPart::new(arena, name, shard, *routing).map(Self::Globals)
            }
        }
    }

    fn open(
        arena: &Arena,
        shape: &TableShape,
        shard: ShardIndex,
        extents: &[Entry],
    ) -> Result<Self, String> {
        let name = shape.name();
        match &shape.content {
            Content::Rows { columns, keyed } => {
                TablePart::open(arena, name, shard, *columns, *keyed, extents).map(Self::Rows)
            }
            Content::Records(records) => {
                let records = Arc::clone(records);
                RecordPart::open(arena, name, shard, records, extents).map(Self::Records)
            }
            Content::Globals(routing) => {
                GlobalPart::open(arena, name, shard, *routing, extents).map(Self::Globals)
            }
        }
    }

    fn release(self, arena: &mut Arena) {
        match self {
            Self::Rows(part) => part.release(arena),
            Self::Records(part) => part.release(arena),
            Self::Globals(part) => part.release(arena),
        }
    }

    fn save(&mut self, arena: &mut Arena) {
        match self {
            Self::Rows(part) => part.save(arena),
            Self::Records(part) => part.save(arena),
            // All that a tree has is in the arena at any moment.
            Self::Globals(_) => {}
        }
    }
}

impl Catalog {
    pub(super) fn new(arena: Arena, heap: &Heap) -> Self {
        Self {
            tables: Vec::new_in(heap.clone()),
            aside: None,
            arena,
        }
    }

    pub(crate) fn create(
        &mut self,
        shape: &TableShape,
        shard: ShardIndex,
        rows_expected: u64,
    ) -> Result<(), ArenaFull> {
        let place = self.make_place(shape.key)?;
        let part = Part::new(&mut self.arena, shape, shard, rows_expected)?;
        self.tables[place] = Some((shape.key.stamp, part));
        self.end_scope();
        Ok(())
    }

    /// Takes the tables of an opened arena from its extents, and gives back those that belong to the
    /// shard. What belongs to a table that is not there is left over from its making or dropping, and
    /// goes.
    pub(crate) fn open(
        &mut self,
        shapes: &[TableShape],
        shard: ShardIndex,
        entries: std::vec::Vec<Entry>,
    ) -> Result<std::vec::Vec<Entry>, String> {
        let mut by_owner: hashbrown::HashMap<u32, std::vec::Vec<Entry>> = hashbrown::HashMap::new();
        for entry in entries {
            by_owner.entry(entry.use_.owner).or_default().push(entry);
        }
        for shape in shapes {
            let place = self
                .make_place(shape.key)
                .map_err(|full| full.to_string())?;
            let serials = std::iter::once(shape.serial).chain(shape.index_serials());
            let extents: std::vec::Vec<Entry> = serials
                .filter_map(|serial| by_owner.remove(&serial))
                .flatten()
                .collect();
            let part = Part::open(&self.arena, shape, shard, &extents)?;
            self.tables[place] = Some((shape.key.stamp, part));
        }
        let own = by_owner.remove(&0).unwrap_or_default();
        for entry in by_owner.into_values().flatten() {
            self.arena.release_in_turn(entry.extent);
        }
        self.end_scope();
        Ok(own)
    }

    /// Makes sure that the catalog has a table's place.
    fn make_place(&mut self, key: TableKey) -> Result<usize, ArenaFull> {
        let at = key.index as usize;
        if at >= self.tables.len() {
            let more = at + 1 - self.tables.len();
            self.tables.try_reserve(more).map_err(|_| ArenaFull {
                asked_bytes: (more * size_of::<Option<(u32, Part)>>()) as u64,
                used_bytes: self.arena.used_bytes(),
                bound_bytes: self.arena.bound_bytes(),
                is_disk: false,
            })?;
            self.tables.resize_with(at + 1, || None);
        }
        debug_assert!(
            self.tables[at].is_none(),
            "the engine gives out free places"
        );
        Ok(at)
    }

    /// Ends a scope: what was changed since the last end stays, all of it, whatever becomes of the
    /// process.
    #[inline]
    pub(crate) fn end_scope(&mut self) {
        if self.arena.is_logged() {
            self.end_logged_scope();
        }
    }

    fn end_logged_scope(&mut self) {
        for place in self.arena.touched() {
            if let Some(Some((_, table))) = self.tables.get_mut(place as usize) {
                table.save(&mut self.arena);
            }
        }
        self.arena.end_scope();
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
            self.end_scope();
            self.arena.purge();
        }
    }

    /// The id of a row that is known by its number: its key, or the id of the row that is in its slot
    /// now; and whether it is a key.
    pub(super) fn id_of(&self, row: RowKey) -> Option<(bool, u64)> {
        let Some((_, Part::Rows(table))) = self.tables.get(row.table as usize)? else {
            return None;
        };
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
            Some(Some((stamp, Part::Rows(table)))) if *stamp == key.stamp => {
                Ok((table, &mut self.arena))
            }
            _ => Err(Error::TableGone),
        }
    }

    /// A table of records, with the arena that its changes draw on.
    pub(crate) fn records(&mut self, key: TableKey) -> Result<(&mut RecordPart, &mut Arena)> {
        match self.tables.get_mut(key.index as usize) {
            Some(Some((stamp, Part::Records(table)))) if *stamp == key.stamp => {
                Ok((table, &mut self.arena))
            }
            _ => Err(Error::TableGone),
        }
    }

    /// Globals, with the arena that their changes draw on.
    pub(crate) fn globals(&mut self, key: TableKey) -> Result<(&mut GlobalPart, &mut Arena)> {
        match self.tables.get_mut(key.index as usize) {
            Some(Some((stamp, Part::Globals(globals)))) if *stamp == key.stamp => {
                Ok((globals, &mut self.arena))
            }
            _ => Err(Error::TableGone),
        }
    }

    /// The globals with this number in their database.
    pub(super) fn globals_by_serial(
        &mut self,
        serial: u32,
    ) -> Option<(&mut GlobalPart, &mut Arena)> {
        let tables = self.tables.iter_mut().flatten();
        let mut globals = tables.filter_map(|(_, part)| match part {
            Part::Globals(globals) => Some(globals),
            Part::Rows(_) | Part::Records(_) => None,
        });
        let globals = globals.find(|globals| globals.serial() == serial)?;
        Some((globals, &mut self.arena))
    }

    /// Replaces a table of records by a copy with more fields, under another stamp: handles of the old
    /// one find nothing from now on. It is kept aside until [`settle_copy`](Self::settle_copy).
    pub(crate) fn copy_records(
        &mut self,
        key: TableKey,
        shape: &TableShape,
        shard: ShardIndex,
        template: &[u64],
    ) -> Result<()> {
        let (old, arena) = self.records(key)?;
        let mut made = Part::new(arena, shape, shard, old.len())?;
        let Part::Records(new) = &mut made else {
            return Err(Error::TableGone);
        };
        if let Err(error) = old.copy_into(arena, new, template) {
            made.release(&mut self.arena);
            self.end_scope();
            return Err(error);
        }
        self.end_scope();
        let place = &mut self.tables[key.index as usize];
        self.aside = place.replace((shape.key.stamp, made));
        Ok(())
    }

    /// Gives a table another stamp: handles with the old one find nothing from now on.
    pub(crate) fn restamp(&mut self, key: TableKey, new: TableKey) {
        if self.has(key)
            && let Some(Some((stamp, _))) = self.tables.get_mut(key.index as usize)
        {
            *stamp = new.stamp;
        }
    }

    /// Keeps the copy of a table, or goes back to the original.
    pub(crate) fn settle_copy(&mut self, key: TableKey, is_kept: bool) {
        let Some(aside) = self.aside.take() else {
            return;
        };
        let gone = if is_kept {
            Some(aside)
        } else {
            self.tables[key.index as usize].replace(aside)
        };
        if let Some((_, part)) = gone {
            part.release(&mut self.arena);
        }
        self.end_scope();
        self.arena.purge();
    }

    /// The number of a table in its database, and the direct id of what is in one of its slots.
    pub(super) fn name_of(&self, key: TableKey, slot: u32) -> (u32, DirectId) {
        let nothing = DirectId::from_u64(0);
        match self.tables.get(key.index as usize) {
            Some(Some((stamp, part))) if *stamp == key.stamp => match part {
                Part::Rows(table) if slot < table.slots_end() => {
                    (table.serial(), table.id(table.place(slot)))
                }
                Part::Records(table) if slot < table.slots_end() => {
                    (table.serial(), table.id(table.place(slot)))
                }
                Part::Rows(table) => (table.serial(), nothing),
                Part::Records(table) => (table.serial(), nothing),
                Part::Globals(globals) => (globals.serial(), nothing),
            },
            _ => (0, nothing),
        }
    }

    /// The table of records with this number in its database.
    pub(super) fn records_by_serial(
        &mut self,
        serial: u32,
    ) -> Option<(&mut RecordPart, &mut Arena)> {
        let tables = self.tables.iter_mut().flatten();
        let mut records = tables.filter_map(|(_, part)| match part {
            Part::Records(table) => Some(table),
            Part::Rows(_) | Part::Globals(_) => None,
        });
        let table = records.find(|table| table.serial() == serial)?;
        Some((table, &mut self.arena))
    }

    /// The table with this number in its database, while an opened arena is brought in order.
    pub(super) fn by_serial(&mut self, serial: u32) -> Option<(&mut TablePart, &mut Arena)> {
        let tables = self.tables.iter_mut().flatten();
        let mut rows = tables.filter_map(|(_, part)| match part {
            Part::Rows(table) => Some(table),
            Part::Records(_) | Part::Globals(_) => None,
        });
        let table = rows.find(|table| table.serial() == serial)?;
        Some((table, &mut self.arena))
    }

    pub(crate) fn arena(&mut self) -> &mut Arena {
        &mut self.arena
    }

    /// Whether so much waits for the journal that nothing should be added.
    #[inline]
    pub(super) fn is_held_up(&self) -> bool {
        self.arena.is_held_up()
    }
}

impl Catalog {
    /// Whether a table's part could be opened; if not, why.
    pub(crate) fn try_open(
        &self,
        shape: &TableShape,
        shard: ShardIndex,
        entries: &[Entry],
    ) -> Result<(), String> {
        let entries = entries.iter().copied();
        let own: std::vec::Vec<Entry> = entries.filter(|entry| shape.owns(entry)).collect();
        Part::open(&self.arena, shape, shard, &own).map(drop)
    }
}

impl TableShape {
    /// Whether an extent belongs to the table, or to one of its indexes.
    pub(crate) fn owns(&self, entry: &Entry) -> bool {
        let owner = entry.use_.owner;
        owner == self.serial || self.index_serials().any(|serial| serial == owner)
    }

    /// Whether it is a table of rows with keys.
    pub(crate) fn is_keyed(&self) -> bool {
        matches!(self.content, Content::Rows { keyed: true, .. })
    }

    /// The numbers of the table's indexes in its database.
    fn index_serials(&self) -> impl Iterator<Item = u32> {
        let serials: &[u32] = match &self.content {
            Content::Rows { .. } | Content::Globals(_) => &[],
            Content::Records(records) => &records.index_serials,
        };
        serials.iter().copied()
    }

    pub(crate) fn name(&self) -> PartName {
        PartName {
            place: self.key.index,
            serial: self.serial,
        }
    }
}

impl Tables for Catalog {
    fn changed(&mut self, index: u32) -> Option<(Changed<'_>, &mut Arena)> {
        let (_, part) = self.tables.get_mut(index as usize)?.as_mut()?;
        let changed = match part {
            Part::Rows(table) => Changed::Rows(table),
            Part::Records(table) => Changed::Records(table),
            Part::Globals(globals) => Changed::Globals(globals),
        };
        Some((changed, &mut self.arena))
    }
}
