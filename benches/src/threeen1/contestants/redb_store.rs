//! redb: a copy-on-write B+tree in pure Rust, one writer at a time.
//!
//! Look-ups of a stream share a snapshot until the stream changes something, as with LMDB.

use std::fs::OpenOptions;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use redb::backends::{FileBackend, InMemoryBackend};
use redb::{Database, Durability as Commit, ReadOnlyTable, ReadableDatabase, ReadableTable};
use redb::{ReadableTableMetadata, StorageBackend, TableDefinition, WriteTransaction};
use tempfile::TempDir;

use super::{Durability, Wanted, bytes_in};
use crate::failure::Failure;
use crate::threeen1::globals::{Globals, Name, Pairs, Stream};

type Steps = TableDefinition<'static, &'static [u8], &'static [u8]>;

const STEPS: Steps = TableDefinition::new("steps");
const NAMES: TableDefinition<[u8; 9], u64> = TableDefinition::new("names");

/// Every so many commits one is durable where nothing is to survive: only such give freed pages back.
const COMMITS_PER_DURABLE: u32 = 1_000;

const CACHE_BYTES: usize = 1 << 30;

/// A database in memory, or in a directory of its own.
pub(super) struct Redb {
    database: Database,
    durability: Durability,
    commits: AtomicU32,
    directory: Option<TempDir>,
}

impl Redb {
    /// An empty store, and how it is set up.
    ///
    /// # Errors
    /// Those of redb.
    pub(super) fn new(durability: Durability, wanted: &Wanted) -> Result<(Self, String), Failure> {
        let setting = match durability {
            Durability::None => format!(
                "in memory, Durability::None, one commit in {COMMITS_PER_DURABLE} Immediate"
            ),
            Durability::Process => "Durability::Immediate on a file that is not synced".to_owned(),
            Durability::Epoch => format!(
                "Durability::None, an Immediate commit every {:?}; a process that crashes is set \
                 back to that, too",
                wanted.epoch
            ),
            Durability::Commit => "Durability::Immediate".to_owned(),
        };
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        let (database, directory) = match durability {
            Durability::None => (builder.create_with_backend(InMemoryBackend::new())?, None),
            _ => {
                let directory = wanted.directory(durability)?;
                let path = directory.path().join("threeen1.redb");
                let database = match durability {
                    Durability::Process => {
                        let mut options = OpenOptions::new();
                        let file = options.read(true).write(true).create_new(true).open(path)?;
                        builder.create_with_backend(Unsynced(FileBackend::new(file)?))?
                    }
                    _ => builder.create(path)?,
                };
                (database, Some(directory))
            }
        };
        let globals = Self {
            database,
            durability,
            commits: AtomicU32::new(0),
            directory,
        };
        globals.make_tables()?;
        Ok((globals, setting))
    }

    fn make_tables(&self) -> Result<(), Failure> {
        self.write(|transaction| {
            transaction.open_table(STEPS)?;
            transaction.open_table(NAMES)?;
            Ok(())
        })
    }

    fn write<T>(
        &self,
        work: impl FnOnce(&WriteTransaction) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(match self.durability {
            Durability::Process | Durability::Commit => Commit::Immediate,
            Durability::Epoch => Commit::None,
            Durability::None => {
                let commits = self.commits.fetch_add(1, Ordering::Relaxed);
                match commits.is_multiple_of(COMMITS_PER_DURABLE) {
                    true => Commit::Immediate,
                    false => Commit::None,
                }
            }
        })?;
        let done = work(&transaction)?;
        transaction.commit()?;
        Ok(done)
    }
}

impl Globals for Redb {
    type Stream<'a> = Side<'a>;

    fn stream(&self) -> Result<Side<'_>, Failure> {
        Ok(Side {
            redb: self,
            snapshot: None,
        })
    }

    fn nodes(&self) -> Result<u64, Failure> {
        Ok(self.database.begin_read()?.open_table(STEPS)?.len()?)
    }

    fn stored_bytes(&self) -> Option<u64> {
        bytes_in(self.directory.as_ref()?.path())
    }

    fn clear(&mut self) -> Result<(), Failure> {
        self.write(|transaction| {
            transaction.delete_table(STEPS)?;
            transaction.delete_table(NAMES)?;
            Ok(())
        })?;
        self.make_tables()?;
        self.end_epoch()
    }

    fn end_epoch(&self) -> Result<(), Failure> {
        // A commit without a change makes those before it durable.
        Ok(self.database.begin_write()?.commit()?)
    }
}

/// One stream's side.
pub(super) struct Side<'a> {
    redb: &'a Redb,
    snapshot: Option<Snapshot>,
}

struct Snapshot {
    steps: ReadOnlyTable<&'static [u8], &'static [u8]>,
    names: ReadOnlyTable<[u8; 9], u64>,
}

impl Side<'_> {
    fn snapshot(&mut self) -> Result<&Snapshot, Failure> {
        let fresh = match self.snapshot.take() {
            Some(snapshot) => snapshot,
            None => {
                let transaction = self.redb.database.begin_read()?;
                Snapshot {
                    steps: transaction.open_table(STEPS)?,
                    names: transaction.open_table(NAMES)?,
                }
            }
        };
        Ok(self.snapshot.insert(fresh))
    }

    fn write<T>(
        &mut self,
        work: impl FnOnce(&WriteTransaction) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.snapshot = None;
        self.redb.write(work)
    }
}

impl Stream for Side<'_> {
    fn exists(&mut self, key: &[u8]) -> Result<bool, Failure> {
        Ok(self.snapshot()?.steps.get(key)?.is_some())
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let value = self.snapshot()?.steps.get(key)?;
        Ok(value.map(|value| value.value().to_vec()))
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.write(|transaction| {
            transaction.open_table(STEPS)?.insert(key, value)?;
            Ok(())
        })
    }

    fn set_path(&mut self, path: &Pairs, result: u64) -> Result<(), Failure> {
        self.write(|transaction| {
            let mut steps = transaction.open_table(STEPS)?;
            for (key, value) in path.iter() {
                steps.insert(key, value)?;
            }
            change(transaction, [Name::Result], |[held]| {
                *held = result.max(*held)
            })?;
            Ok(())
        })
    }

    fn read(&mut self, name: Name) -> Result<Option<u64>, Failure> {
        let value = self.snapshot()?.names.get(name.key())?;
        Ok(value.map(|value| value.value()))
    }

    fn change<const N: usize>(
        &mut self,
        names: [Name; N],
        work: impl Fn(&mut [u64; N]),
    ) -> Result<[u64; N], Failure> {
        self.write(|transaction| change(transaction, names, work))
    }
}

fn change<const N: usize>(
    transaction: &WriteTransaction,
    names: [Name; N],
    work: impl Fn(&mut [u64; N]),
) -> Result<[u64; N], Failure> {
    let mut table = transaction.open_table(NAMES)?;
    let mut held = [0; N];
    for (held, name) in held.iter_mut().zip(names) {
        *held = table.get(name.key())?.map_or(0, |value| value.value());
    }
    let mut values = held;
    work(&mut values);
    for (place, name) in names.into_iter().enumerate() {
        if values[place] != held[place] {
            table.insert(name.key(), values[place])?;
        }
    }
    Ok(values)
}

/// A file that is written and never synced: a crash of the process loses nothing.
#[derive(Debug)]
struct Unsynced(FileBackend);

impl StorageBackend for Unsynced {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }
}
