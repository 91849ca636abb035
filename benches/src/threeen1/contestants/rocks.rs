//! RocksDB: a log-structured merge tree, any number of writers.
//!
//! Steps are plain puts. Names change in optimistic transactions, tried again after conflicts.
//! Bloom filters, since most look-ups find nothing; a block cache that holds everything; no
//! compression.

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ErrorKind, IteratorMode, OptimisticTransactionDB,
    Options, SingleThreaded, Transaction, WriteOptions,
};
use tempfile::TempDir;

use super::{Durability, Wanted, bytes_in};
use crate::failure::Failure;
use crate::threeen1::globals::{Globals, Name, Pairs, Stream};

const CACHE_BYTES: usize = 1 << 30;
const BLOOM_BITS_PER_KEY: f64 = 10.0;
/// Memory of the writes that are not in a sorted file yet.
const WRITE_BUFFER_BYTES: usize = 128 << 20;

const STEPS: &str = "steps";
const NAMES: &str = "names";

type Database = OptimisticTransactionDB<SingleThreaded>;

/// A database in a directory of its own.
pub(super) struct Rocks {
    database: Database,
    durability: Durability,
    options: Options,
    directory: TempDir,
}

impl Rocks {
    /// An empty store, and how it is set up.
    ///
    /// # Errors
    /// Those of RocksDB.
    pub(super) fn new(durability: Durability, wanted: &Wanted) -> Result<(Self, String), Failure> {
        let setting = match durability {
            Durability::None => "no write-ahead log, files in shared memory".to_owned(),
            Durability::Process => "write-ahead log, not synced".to_owned(),
            Durability::Epoch => format!("write-ahead log, synced every {:?}", wanted.epoch),
            Durability::Commit => "write-ahead log, synced at every commit".to_owned(),
        };
        let directory = wanted.directory(durability)?;
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&Cache::new_lru_cache(CACHE_BYTES));
        blocks.set_bloom_filter(BLOOM_BITS_PER_KEY, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&blocks);
        options.set_write_buffer_size(WRITE_BUFFER_BYTES);
        let mut database = Database::open(&options, directory.path())?;
        database.create_cf(STEPS, &options)?;
        database.create_cf(NAMES, &options)?;
        let globals = Self {
            database,
            durability,
            options,
            directory,
        };
        Ok((globals, setting))
    }

    fn family(&self, name: &str) -> Result<&ColumnFamily, Failure> {
        let family = self.database.cf_handle(name);
        family.ok_or_else(|| Failure::new(format!("RocksDB lost its family \"{name}\"")))
    }

    fn write_options(&self) -> WriteOptions {
        let mut options = WriteOptions::new();
        options.disable_wal(self.durability == Durability::None);
        options.set_sync(self.durability == Durability::Commit);
        options
    }
}

impl Globals for Rocks {
    type Stream<'a> = Side<'a>;

    fn stream(&self) -> Result<Side<'_>, Failure> {
        Ok(Side {
            rocks: self,
            steps: self.family(STEPS)?,
            names: self.family(NAMES)?,
            write: self.write_options(),
        })
    }

    fn nodes(&self) -> Result<u64, Failure> {
        let steps = self.family(STEPS)?;
        let mut nodes = 0;
        for pair in self.database.iterator_cf(steps, IteratorMode::Start) {
            pair?;
            nodes += 1;
        }
        Ok(nodes)
    }

    fn stored_bytes(&self) -> Option<u64> {
        bytes_in(self.directory.path())
    }

    fn clear(&mut self) -> Result<(), Failure> {
        for family in [STEPS, NAMES] {
            self.database.drop_cf(family)?;
            self.database.create_cf(family, &self.options)?;
        }
        Ok(())
    }

    fn end_epoch(&self) -> Result<(), Failure> {
        Ok(self.database.flush_wal(true)?)
    }
}

/// One stream's side.
pub(super) struct Side<'a> {
    rocks: &'a Rocks,
    steps: &'a ColumnFamily,
    names: &'a ColumnFamily,
    write: WriteOptions,
}

impl Side<'_> {
    /// Runs a transaction until it commits without a conflict.
    fn transact<T>(
        &self,
        work: impl Fn(&Transaction<'_, Database>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        loop {
            let options = rocksdb::OptimisticTransactionOptions::default();
            let transaction = self.rocks.database.transaction_opt(&self.write, &options);
            let done = work(&transaction)?;
            match transaction.commit() {
                Ok(()) => return Ok(done),
                Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::TryAgain) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn change_in<const N: usize>(
        &self,
        transaction: &Transaction<'_, Database>,
        names: [Name; N],
        work: impl Fn(&mut [u64; N]),
    ) -> Result<[u64; N], Failure> {
        let mut held = [0; N];
        for (held, name) in held.iter_mut().zip(names) {
            let value = transaction.get_for_update_cf(self.names, name.key(), true)?;
            *held = value.map_or(Ok(0), |value| number(&value))?;
        }
        let mut values = held;
        work(&mut values);
        for (place, name) in names.into_iter().enumerate() {
            if values[place] != held[place] {
                transaction.put_cf(self.names, name.key(), values[place].to_le_bytes())?;
            }
        }
        Ok(values)
    }
}

impl Stream for Side<'_> {
    fn exists(&mut self, key: &[u8]) -> Result<bool, Failure> {
        let value = self.rocks.database.get_pinned_cf(self.steps, key)?;
        Ok(value.is_some())
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.rocks.database.get_cf(self.steps, key)?)
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        let database = &self.rocks.database;
        Ok(database.put_cf_opt(self.steps, key, value, &self.write)?)
    }

    fn set_path(&mut self, path: &Pairs, result: u64) -> Result<(), Failure> {
        self.transact(|transaction| {
            for (key, value) in path.iter() {
                transaction.put_cf(self.steps, key, value)?;
            }
            self.change_in(transaction, [Name::Result], |[held]| {
                *held = result.max(*held)
            })?;
            Ok(())
        })
    }

    fn read(&mut self, name: Name) -> Result<Option<u64>, Failure> {
        let value = self.rocks.database.get_cf(self.names, name.key())?;
        value.map(|value| number(&value)).transpose()
    }

    fn change<const N: usize>(
        &mut self,
        names: [Name; N],
        work: impl Fn(&mut [u64; N]),
    ) -> Result<[u64; N], Failure> {
        self.transact(|transaction| self.change_in(transaction, names, &work))
    }
}

fn number(bytes: &[u8]) -> Result<u64, Failure> {
    Ok(u64::from_le_bytes(bytes.try_into()?))
}
