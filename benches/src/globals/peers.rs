//! An ordered map and ordered stores, with the same encoded keys.
#![expect(
    unsafe_code,
    reason = "opening a memory-mapped file is the caller's promise"
)]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use ancile::GlobalKey;
use heed::types::Bytes;
use heed::{Database as Bag, Env, EnvFlags, EnvOpenOptions};
use redb::backends::InMemoryBackend;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use rusqlite::{Connection, OptionalExtension};
use tempfile::TempDir;

use super::{BATCH, Data, Measured, Phase, Store, sum_of};
use crate::failure::Failure;

/// Whether a key that was found behind another is on its level, below the same node.
fn is_sibling(key: &GlobalKey, found: &[u8]) -> bool {
    let bytes = key.as_bytes();
    let above = bytes[..bytes.len() - 2].iter().rposition(|&byte| byte == 0);
    above.is_some_and(|at| found.starts_with(&bytes[..=at]))
}

/// Times a phase.
fn timed(work: impl FnOnce() -> Result<u64, Failure>) -> Result<Measured, Failure> {
    let start = Instant::now();
    let sum = work()?;
    let time = start.elapsed();
    Ok(Measured { time, sum })
}

/// `std` BTreeMap.
#[derive(Default)]
pub(super) struct Map(BTreeMap<Box<[u8]>, Box<[u8]>>);

impl Store for Map {
    fn name(&self) -> &'static str {
        "BTreeMap"
    }

    fn run(&mut self, phase: Phase, data: &Arc<Data>) -> Result<Measured, Failure> {
        let map = &mut self.0;
        timed(|| {
            let mut sum: u64 = 0;
            match phase {
                Phase::Set | Phase::Replace => {
                    for (key, value) in &data.entries {
                        map.insert(key.as_bytes().into(), value.as_slice().into());
                    }
                }
                Phase::Get => {
                    for key in &data.lookups {
                        sum += map.get(key.as_bytes()).map_or(0, |value| sum_of(value));
                    }
                }
                Phase::Order => {
                    for key in &data.keys {
                        let behind = key.subtree().end;
                        let range = (Bound::Included(&behind[..]), Bound::Unbounded);
                        let next = map.range::<[u8], _>(range).next();
                        sum += u64::from(next.is_some_and(|(found, _)| is_sibling(key, found)));
                    }
                }
                Phase::Scan => {
                    for value in map.values() {
                        sum = sum.wrapping_add(sum_of(value));
                    }
                }
                Phase::Kill => {
                    for subtree in &data.subtrees {
                        let range = subtree.subtree();
                        let bounds = (
                            Bound::Included(&range.start[..]),
                            Bound::Excluded(&range.end[..]),
                        );
                        let keys = map.range::<[u8], _>(bounds).map(|(key, _)| key.clone());
                        for key in keys.collect::<Vec<_>>() {
                            map.remove(&key);
                            sum += 1;
                        }
                    }
                }
            }
            Ok(sum)
        })
    }
}

/// LMDB in shared memory, never synced.
pub(super) struct Lmdb {
    env: Env,
    bag: Bag<Bytes, Bytes>,
    _directory: TempDir,
}

impl Lmdb {
    pub(super) fn new() -> Result<Self, Failure> {
        let directory = tempfile::Builder::new()
            .prefix("ancile-globals.")
            .tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())?;
        let mut options = EnvOpenOptions::new();
        options.map_size(16 << 30);
        // SAFETY: the directory is new and nobody else's.
        let env = unsafe {
            options.flags(EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP);
            options.open(directory.path())?
        };
        let mut transaction = env.write_txn()?;
        let bag = env.create_database(&mut transaction, None)?;
        transaction.commit()?;
        Ok(Self {
            env,
            bag,
            _directory: directory,
        })
    }
}

impl Store for Lmdb {
    fn name(&self) -> &'static str {
        "LMDB, NOSYNC"
    }

    fn run(&mut self, phase: Phase, data: &Arc<Data>) -> Result<Measured, Failure> {
        let (env, bag) = (&self.env, self.bag);
        timed(|| {
            let mut sum: u64 = 0;
            match phase {
                Phase::Set | Phase::Replace => {
                    for entries in data.entries.chunks(BATCH) {
                        let mut transaction = env.write_txn()?;
                        for (key, value) in entries {
                            bag.put(&mut transaction, key.as_bytes(), value)?;
                        }
                        transaction.commit()?;
                    }
                }
                Phase::Get => {
                    for keys in data.lookups.chunks(BATCH) {
                        let transaction = env.read_txn()?;
                        for key in keys {
                            sum += bag.get(&transaction, key.as_bytes())?.map_or(0, sum_of);
                        }
                    }
                }
                Phase::Order => {
                    let transaction = env.read_txn()?;
                    for key in &data.keys {
                        let behind = key.subtree().end;
                        let next = bag.get_greater_than_or_equal_to(&transaction, &behind)?;
                        sum += u64::from(next.is_some_and(|(found, _)| is_sibling(key, found)));
                    }
                }
                Phase::Scan => {
                    let transaction = env.read_txn()?;
                    for entry in bag.iter(&transaction)? {
                        sum = sum.wrapping_add(sum_of(entry?.1));
                    }
                }
                Phase::Kill => {
                    for subtree in &data.subtrees {
                        let range = subtree.subtree();
                        let mut transaction = env.write_txn()?;
                        let bounds = (
                            Bound::Included(&range.start[..]),
                            Bound::Excluded(&range.end[..]),
                        );
                        sum += bag.delete_range(&mut transaction, &bounds)? as u64;
                        transaction.commit()?;
                    }
                }
            }
            Ok(sum)
        })
    }
}

const NODES: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("n");

/// redb in memory.
pub(super) struct Redb(Database);

impl Redb {
    pub(super) fn new() -> Result<Self, Failure> {
        let mut builder = Database::builder();
        builder.set_cache_size(4 << 30);
        let database = builder.create_with_backend(InMemoryBackend::new())?;
        let transaction = database.begin_write()?;
        transaction.open_table(NODES)?;
        transaction.commit()?;
        Ok(Self(database))
    }
}

impl Store for Redb {
    fn name(&self) -> &'static str {
        "redb, in memory"
    }

    fn run(&mut self, phase: Phase, data: &Arc<Data>) -> Result<Measured, Failure> {
        let database = &self.0;
        timed(|| {
            let mut sum: u64 = 0;
            match phase {
                Phase::Set | Phase::Replace => {
                    for entries in data.entries.chunks(BATCH) {
                        let mut transaction = database.begin_write()?;
                        transaction.set_durability(Durability::None)?;
                        let mut table = transaction.open_table(NODES)?;
                        for (key, value) in entries {
                            table.insert(key.as_bytes(), &value[..])?;
                        }
                        drop(table);
                        transaction.commit()?;
                    }
                }
                Phase::Get => {
                    for keys in data.lookups.chunks(BATCH) {
                        let table = database.begin_read()?.open_table(NODES)?;
                        for key in keys {
                            let value = table.get(key.as_bytes())?;
                            sum += value.map_or(0, |value| sum_of(value.value()));
                        }
                    }
                }
                Phase::Order => {
                    let table = database.begin_read()?.open_table(NODES)?;
                    for key in &data.keys {
                        let behind = key.subtree().end;
                        let next = table.range(&behind[..]..)?.next().transpose()?;
                        let is_next = next.is_some_and(|(found, _)| is_sibling(key, found.value()));
                        sum += u64::from(is_next);
                    }
                }
                Phase::Scan => {
                    let table = database.begin_read()?.open_table(NODES)?;
                    for entry in table.iter()? {
                        sum = sum.wrapping_add(sum_of(entry?.1.value()));
                    }
                }
                Phase::Kill => {
                    for subtree in &data.subtrees {
                        let range = subtree.subtree();
                        let mut transaction = database.begin_write()?;
                        transaction.set_durability(Durability::None)?;
                        let mut table = transaction.open_table(NODES)?;
                        table.retain_in(&range.start[..]..&range.end[..], |_, _| {
                            sum += 1;
                            false
                        })?;
                        drop(table);
                        transaction.commit()?;
                    }
                }
            }
            Ok(sum)
        })
    }
}

/// SQLite in memory.
pub(super) struct Sqlite(Connection);

impl Sqlite {
    pub(super) fn new() -> Result<Self, Failure> {
        let connection = Connection::open_in_memory()?;
        connection.execute_batch(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -4194304;
             CREATE TABLE n (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
        )?;
        Ok(Self(connection))
    }
}

impl Store for Sqlite {
    fn name(&self) -> &'static str {
        "SQLite, in memory"
    }

    fn run(&mut self, phase: Phase, data: &Arc<Data>) -> Result<Measured, Failure> {
        let connection = &mut self.0;
        timed(|| {
            let mut sum: u64 = 0;
            match phase {
                Phase::Set | Phase::Replace => {
                    for entries in data.entries.chunks(BATCH) {
                        let transaction = connection.transaction()?;
                        let mut set = transaction
                            .prepare_cached("INSERT OR REPLACE INTO n VALUES (?1, ?2)")?;
                        for (key, value) in entries {
                            set.execute((key.as_bytes(), value))?;
                        }
                        drop(set);
                        transaction.commit()?;
                    }
                }
                Phase::Get => {
                    let mut get = connection.prepare("SELECT value FROM n WHERE key = ?1")?;
                    for key in &data.lookups {
                        let value = get.query_row([key.as_bytes()], |row| {
                            Ok(row.get_ref(0)?.as_blob().map_or(0, sum_of))
                        });
                        sum += value.optional()?.unwrap_or(0);
                    }
                }
                Phase::Order => {
                    let next = "SELECT key FROM n WHERE key >= ?1 ORDER BY key LIMIT 1";
                    let mut next = connection.prepare(next)?;
                    for key in &data.keys {
                        let found = next.query_row([key.subtree().end], |row| {
                            let found = row.get_ref(0)?.as_blob();
                            Ok(found.is_ok_and(|found| is_sibling(key, found)))
                        });
                        sum += u64::from(found.optional()?.unwrap_or(false));
                    }
                }
                Phase::Scan => {
                    let mut all = connection.prepare("SELECT value FROM n ORDER BY key")?;
                    let mut rows = all.query([])?;
                    while let Some(row) = rows.next()? {
                        sum = sum.wrapping_add(row.get_ref(0)?.as_blob().map_or(0, sum_of));
                    }
                }
                Phase::Kill => {
                    for subtree in &data.subtrees {
                        let range = subtree.subtree();
                        let kill = "DELETE FROM n WHERE key >= ?1 AND key < ?2";
                        let mut kill = connection.prepare_cached(kill)?;
                        sum += kill.execute((&range.start, &range.end))? as u64;
                    }
                }
            }
            Ok(sum)
        })
    }
}
