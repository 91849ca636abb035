//! Whose memory the offsets of a journal's records are: by the shards' ledgers, at one moment.

use std::collections::BTreeMap;

use super::record::{JournalPart, JournalRecord};
use crate::arena::{Entry, Extent, ExtentKind, HEAD_BYTES, MapOptions};
use crate::engine::directory::{Directory, StoredTable};
use crate::engine::journaled::{load, read_tables};
use crate::engine::{TableSchema, indexed_table};
use crate::error::OpenError;
use crate::id::ShardIndex;
use crate::journal::{Record, Recovery};
use crate::table::{Shape, slot_at};

/// What the memory of all shards is used for.
pub(super) struct Owners {
    /// By the offset at which they begin.
    shards: Vec<BTreeMap<u64, Owned>>,
    /// By the serials of tables and indexes.
    tables: BTreeMap<u32, Owner>,
}

/// An extent in use.
struct Owned {
    end: u64,
    /// None for an extent of the ledger itself.
    entry: Option<Entry>,
}

struct Owner {
    name: String,
    /// It is an index, or the table of an index's entries.
    is_index: bool,
    /// Cells, and whether there are keys, of a table with rows.
    cells: usize,
    keyed: bool,
}

/// Whose a range is.
struct Place<'o> {
    table: Option<&'o str>,
    part: JournalPart,
    row: Option<u64>,
}

impl Owners {
    /// Looks at the memory of all shards as the recovery has it, and lets it go again.
    pub(super) fn load(recovery: &mut Recovery, directory: &Directory) -> Result<Self, OpenError> {
        let count = directory.shards().unwrap_or(0);
        let map = MapOptions {
            bytes: 0,
            node: None,
            huge_pages: false,
        };
        let arenas = load(recovery, &vec![map; count], 0)?;
        read_tables(directory, &arenas)?;
        let mut shards = Vec::with_capacity(count);
        for (shard, arena) in arenas.iter().enumerate() {
            let extents = arena.extents().map_err(|reason| OpenError::Damaged {
                path: directory.journal_path(shard),
                reason,
            })?;
            shards.push(owned(extents));
        }
        let mut tables = BTreeMap::new();
        for table in directory.tables() {
            let serials = table.index_serials.iter();
            let indexes = serials.map(|&serial| (serial, Owner::of_index(&table)));
            tables.extend(indexes);
            tables.insert(table.serial, Owner::of(&table));
        }
        Ok(Self { shards, tables })
    }

    /// A record in the words of tables.
    pub(super) fn tell<'r>(&'r self, shard: ShardIndex, record: &Record<'r>) -> JournalRecord<'r> {
        let Place { table, part, row } = self.place(shard, record.offset);
        JournalRecord {
            shard,
            epoch: record.epoch,
            is_first: record.is_first,
            table,
            part,
            row,
            offset: record.offset,
            bytes: record.bytes,
        }
    }

    fn place(&self, shard: ShardIndex, offset: u64) -> Place<'_> {
        let of = |part| Place {
            table: None,
            part,
            row: None,
        };
        if offset < HEAD_BYTES {
            return of(JournalPart::Memory);
        }
        let shard = self.shards.get(shard);
        let before = shard.and_then(|shard| shard.range(..=offset).next_back());
        let Some((&start, owned)) = before.filter(|(_, owned)| offset < owned.end) else {
            return of(JournalPart::Unused);
        };
        let Some(Entry { use_, .. }) = owned.entry else {
            return of(JournalPart::Memory);
        };
        let owner = self.tables.get(&use_.owner);
        let is_index = owner.is_some_and(|owner| owner.is_index);
        let part = match use_.kind {
            ExtentKind::Prepared | ExtentKind::Decided | ExtentKind::Reserved => {
                JournalPart::Transactions
            }
            ExtentKind::Tables => JournalPart::Tables,
            _ if is_index => JournalPart::Index,
            ExtentKind::Part => JournalPart::Heads,
            ExtentKind::Slab => JournalPart::Rows,
            ExtentKind::FreeSlots => JournalPart::FreeRows,
            ExtentKind::Segment | ExtentKind::Links => JournalPart::Index,
            ExtentKind::Tree => JournalPart::Tree,
            ExtentKind::Text => JournalPart::Texts,
        };
        let rows = owner.filter(|_| part == JournalPart::Rows);
        Place {
            table: owner.map(|owner| owner.name.as_str()),
            part,
            row: rows.map(|owner| slot_at(owner.cells, owner.keyed, use_.number, offset - start)),
        }
    }
}

fn owned((entries, own): (Vec<Entry>, Vec<Extent>)) -> BTreeMap<u64, Owned> {
    let own = own.into_iter().map(|extent| (extent, None));
    let entries = entries.into_iter().map(|entry| (entry.extent, Some(entry)));
    let owned = own.chain(entries).map(|(extent, entry)| {
        let end = extent.offset + extent.bytes;
        (extent.offset, Owned { end, entry })
    });
    owned.collect()
}

impl Owner {
    fn of(table: &StoredTable) -> Self {
        let (cells, keyed) = match &table.schema {
            TableSchema::Rows(schema) => (schema.columns().len(), schema.is_keyed()),
            TableSchema::Records(schema) => (Shape::new(schema).cells, false),
            // Its nodes lie in a tree, not in rows.
            TableSchema::Globals(_) => (0, false),
        };
        Self {
            cells,
            keyed,
            ..Self::named(&table.name)
        }
    }

    fn of_index(table: &StoredTable) -> Self {
        Self {
            is_index: true,
            ..Self::named(&table.name)
        }
    }

    /// The entries of a unique index are a table of their own.
    fn named(name: &str) -> Self {
        let indexed = indexed_table(name);
        Self {
            name: indexed.unwrap_or(name).to_owned(),
            is_index: indexed.is_some(),
            cells: 0,
            keyed: false,
        }
    }
}
