//! What memory and files are used for.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::directory::Directory;
use super::{Engine, indexed_table, unanswered};
use crate::arena::FORMAT;
use crate::error::{Error, Result};
use crate::id::ShardIndex;
use crate::shard::Compaction;
use crate::table::PartSpace;

/// What a shard's memory is used for, and the file that it lives in: [`Engine::space`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardSpace {
    /// The shard.
    pub shard: ShardIndex,
    /// Bytes of its file; none for an engine in memory.
    pub file_bytes: Option<u64>,
    /// Bytes in use by tables, and by what the shard keeps of transactions.
    pub used_bytes: u64,
    /// Bytes that were in use before, and are free for what comes.
    pub free_bytes: u64,
    /// Bytes that the shard may use.
    pub bound_bytes: u64,
    /// The tables, by name.
    pub tables: Vec<TableSpace>,
}

/// What a shard's part of a table uses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableSpace {
    /// The table.
    pub table: String,
    /// Rows, or records.
    pub rows: u64,
    /// Bytes of rows, and of the list of free places.
    pub row_bytes: u64,
    /// Bytes of texts that do not fit their rows.
    pub text_bytes: u64,
    /// Bytes of indexes, that of the key among them.
    pub index_bytes: u64,
    /// Of a set of globals: how its nodes, which are counted as rows, lie in their pages.
    pub tree: Option<TreeShape>,
}

/// How a shard's globals lie in their pages of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeShape {
    /// Levels of the ordered tree, that of the leaves included.
    pub levels: u32,
    /// Pages, those that are free included.
    pub pages: u64,
    /// Pages that are free.
    pub free_pages: u64,
    /// About how full the leaves are: some of them were looked at.
    pub fill_percent: u32,
}

impl Engine {
    /// The version of the file format that this build writes: files of the same major version are read.
    pub const FORMAT: (u32, u32) = FORMAT;

    /// What the shards' memory is used for. Each shard answers between two requests.
    pub fn space(&self) -> Result<Vec<ShardSpace>> {
        let told = self.ask_every_shard(|shard| {
            let tables = shard.catalog.space();
            let arena = shard.catalog.arena();
            let bytes = (arena.used_bytes(), arena.free_bytes(), arena.bound_bytes());
            (tables, bytes, arena.file_bytes())
        });
        let shards = told.map_err(unanswered)?.into_iter().enumerate();
        let shards = shards.map(
            |(shard, (tables, (used_bytes, free_bytes, bound_bytes), file))| {
                let named = tables
                    .into_iter()
                    .filter_map(|(place, space)| Some((self.registry.name_of(place)?, space)));
                let mut tables = tables_of(named.collect());
                tables.sort_by(|one, other| one.table.cmp(&other.table));
                ShardSpace {
                    shard,
                    file_bytes: file,
                    used_bytes,
                    free_bytes,
                    bound_bytes,
                    tables,
                }
            },
        );
        Ok(shards.collect())
    }
}

/// How long transactions under way are waited for.
const COMPACT_TRIES: u32 = 2_000;
const COMPACT_PAUSE: Duration = Duration::from_millis(1);

impl Engine {
    /// Brings everything together, and gives memory and file space that is not needed back to the system:
    /// texts move out of memory that is mostly free, nodes of globals into fewer pages, indexes shrink, and
    /// files are cut where nothing is left. Places of deleted rows stay, so that ids of those rows find nothing for ever; the next rows
    /// get them.
    ///
    /// The shards serve others meanwhile, between steps of about a millisecond. A shard in which
    /// transactions are under way is waited for, up to some seconds, and left as it is then.
    pub fn compact(&self) -> Result<()> {
        if self.directory.as_ref().is_some_and(Directory::is_read_only) {
            return Err(Error::DatabaseReadOnly);
        }
        let mut steps = vec![Compaction::Begin; self.shards()];
        let mut tries = 0;
        while steps.iter().any(|step| *step != Compaction::Done) && tries < COMPACT_TRIES {
            let before = Arc::new(steps);
            let asked = Arc::clone(&before);
            let taken = self.ask_every_shard(move |shard| {
                let step = asked.get(shard.index).copied().unwrap_or_default();
                match step {
                    Compaction::Done => Some(step),
                    step => shard.compact(step),
                }
            });
            let taken = taken.map_err(unanswered)?;
            let waits = taken.iter().any(Option::is_none);
            let next = taken.into_iter().zip(before.iter());
            steps = next
                .map(|(taken, before)| taken.unwrap_or(*before))
                .collect();
            if waits {
                tries += 1;
                thread::sleep(COMPACT_PAUSE);
            }
        }
        let shrunk = self.ask_every_shard(|shard| {
            let result = shard.catalog.arena().shrink();
            result.map_err(|error| format!("the file of shard {}: {error}", shard.index))
        });
        let shrunk: Result<(), String> = shrunk.map_err(unanswered)?.into_iter().collect();
        shrunk.map_err(Error::Storage)
    }
}

/// What each table uses, the entries of its unique indexes counted with its indexes.
fn tables_of(parts: Vec<(String, PartSpace)>) -> Vec<TableSpace> {
    let is_entries = |(name, _): &(String, PartSpace)| indexed_table(name).is_some();
    let (entries, own): (Vec<_>, Vec<_>) = parts.into_iter().partition(is_entries);
    let tables = own.into_iter().map(|(table, space)| {
        let entries = entries.iter();
        let entries = entries.filter(|(name, _)| indexed_table(name) == Some(&table));
        let unique: u64 = entries
            .map(|(_, entry)| entry.row_bytes + entry.text_bytes + entry.index_bytes)
            .sum();
        TableSpace {
            table,
            rows: space.rows,
            row_bytes: space.row_bytes,
            text_bytes: space.text_bytes,
            index_bytes: space.index_bytes + unique,
            tree: space.tree.map(|tree| TreeShape {
                levels: tree.levels,
                pages: tree.pages,
                free_pages: tree.free_pages,
                fill_percent: tree.fill_percent,
            }),
        }
    });
    tables.collect()
}
