//! LMDB through heed: a memory-mapped B+tree, one writer at a time.
//!
//! Look-ups of a stream share a snapshot until the stream changes something, which spares it most
//! of the cost of a read transaction. What other streams set meanwhile is then not seen, and some
//! steps are set twice. A thread has one such snapshot at a time.
#![expect(
    unsafe_code,
    reason = "opening a memory-mapped file is the caller's promise"
)]

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, RoTxn, RwTxn, WithTls};
use tempfile::TempDir;

use super::{Durability, Wanted, bytes_in};
use crate::failure::Failure;
use crate::threeen1::globals::{Globals, Name, Pairs, Stream};
use crate::threeen1::input::STREAMS_MAX;

/// Address space for the file, which has holes: three times what the largest published range takes.
const MAP_BYTES: usize = 16 << 30;

type Bag = Database<Bytes, Bytes>;

/// An environment in a directory of its own.
pub(super) struct Lmdb {
    steps: Bag,
    names: Bag,
    env: Env,
    directory: TempDir,
}

impl Lmdb {
    /// An empty store, and how it is set up.
    ///
    /// # Errors
    /// Those of LMDB.
    pub(super) fn new(durability: Durability, wanted: &Wanted) -> Result<(Self, String), Failure> {
        let (flags, setting) = match durability {
            Durability::None => (
                EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP,
                "NOSYNC, WRITEMAP, file in shared memory".to_owned(),
            ),
            Durability::Process => (
                EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP,
                "NOSYNC, WRITEMAP".to_owned(),
            ),
            Durability::Epoch => (
                EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP,
                format!(
                    "NOSYNC, WRITEMAP, synced every {:?}; a system that crashes between may leave \
                     a broken file",
                    wanted.epoch
                ),
            ),
            Durability::Commit => (EnvFlags::empty(), "synced at every commit".to_owned()),
        };
        let directory = wanted.directory(durability)?;
        let mut options = EnvOpenOptions::new();
        let readers = STREAMS_MAX as u32 + 16;
        options.map_size(MAP_BYTES).max_readers(readers).max_dbs(2);
        // SAFETY: the directory is new and nobody else's, so nothing changes the mapped file behind
        // LMDB; what a crash may cost is what the setting says.
        let env = unsafe {
            options.flags(flags);
            options.open(directory.path())?
        };
        let mut transaction = env.write_txn()?;
        let steps = env.create_database(&mut transaction, Some("steps"))?;
        let names = env.create_database(&mut transaction, Some("names"))?;
        transaction.commit()?;
        let globals = Self {
            steps,
            names,
            env,
            directory,
        };
        Ok((globals, setting))
    }
}

impl Globals for Lmdb {
    type Stream<'a> = Side<'a>;

    fn stream(&self) -> Result<Side<'_>, Failure> {
        Ok(Side {
            lmdb: self,
            snapshot: None,
        })
    }

    fn nodes(&self) -> Result<u64, Failure> {
        let transaction = self.env.read_txn()?;
        Ok(self.steps.len(&transaction)?)
    }

    fn stored_bytes(&self) -> Option<u64> {
        bytes_in(self.directory.path())
    }

    fn clear(&mut self) -> Result<(), Failure> {
        let mut transaction = self.env.write_txn()?;
        self.steps.clear(&mut transaction)?;
        self.names.clear(&mut transaction)?;
        Ok(transaction.commit()?)
    }

    fn end_epoch(&self) -> Result<(), Failure> {
        Ok(self.env.force_sync()?)
    }
}

/// One stream's side.
pub(super) struct Side<'a> {
    lmdb: &'a Lmdb,
    snapshot: Option<RoTxn<'a, WithTls>>,
}

impl Side<'_> {
    fn value(&mut self, bag: Bag, key: &[u8]) -> Result<Option<&[u8]>, Failure> {
        if self.snapshot.is_none() {
            self.snapshot = Some(self.lmdb.env.read_txn()?);
        }
        match &self.snapshot {
            Some(snapshot) => Ok(bag.get(snapshot, key)?),
            None => Ok(None),
        }
    }

    fn write<T>(
        &mut self,
        work: impl FnOnce(&Lmdb, &mut RwTxn) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.snapshot = None;
        let mut transaction = self.lmdb.env.write_txn()?;
        let done = work(self.lmdb, &mut transaction)?;
        transaction.commit()?;
        Ok(done)
    }
}

impl Stream for Side<'_> {
    fn exists(&mut self, key: &[u8]) -> Result<bool, Failure> {
        Ok(self.value(self.lmdb.steps, key)?.is_some())
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.value(self.lmdb.steps, key)?.map(<[u8]>::to_vec))
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.write(|lmdb, transaction| Ok(lmdb.steps.put(transaction, key, value)?))
    }

    fn set_path(&mut self, path: &Pairs, result: u64) -> Result<(), Failure> {
        self.write(|lmdb, transaction| {
            for (key, value) in path.iter() {
                lmdb.steps.put(transaction, key, value)?;
            }
            change(lmdb, transaction, [Name::Result], |[held]| {
                *held = result.max(*held);
            })?;
            Ok(())
        })
    }

    fn read(&mut self, name: Name) -> Result<Option<u64>, Failure> {
        let value = self.value(self.lmdb.names, &name.key())?;
        value.map(number).transpose()
    }

    fn change<const N: usize>(
        &mut self,
        names: [Name; N],
        work: impl Fn(&mut [u64; N]),
    ) -> Result<[u64; N], Failure> {
        self.write(|lmdb, transaction| change(lmdb, transaction, names, work))
    }
}

fn change<const N: usize>(
    lmdb: &Lmdb,
    transaction: &mut RwTxn,
    names: [Name; N],
    work: impl Fn(&mut [u64; N]),
) -> Result<[u64; N], Failure> {
    let mut held = [0; N];
    for (held, name) in held.iter_mut().zip(names) {
        let value = lmdb.names.get(transaction, &name.key())?;
        *held = value.map_or(Ok(0), number)?;
    }
    let mut values = held;
    work(&mut values);
    for (place, name) in names.into_iter().enumerate() {
        if values[place] != held[place] {
            let value = values[place].to_le_bytes();
            lmdb.names.put(transaction, &name.key(), &value)?;
        }
    }
    Ok(values)
}

fn number(bytes: &[u8]) -> Result<u64, Failure> {
    Ok(u64::from_le_bytes(bytes.try_into()?))
}
