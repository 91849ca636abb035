//! LMDB through heed: memory-mapped B+trees that are not synced.
//!
//! Two trees: name -> address and telephone, telephone -> name. A single call is a transaction of its
//! own, and so is every look-up. What was committed survives the process, for the system holds the
//! pages; it does not survive the system.
#![expect(
    unsafe_code,
    reason = "opening a memory-mapped file is the caller's promise"
)]

use std::path::Path;

use heed::types::{Bytes, Str};
use heed::{Database, Env, EnvFlags, EnvOpenOptions, Error, MdbError, PutFlags, RoTxn, RwTxn};

use super::book::{Book, Record};
use crate::failure::Failure;

/// Room for a row in both trees, whose pages are half full when keys come in no order, and for the
/// pages that transactions have freed.
const ROW_BYTES: u64 = 800;

/// How pages get into the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// Written at commit, never synced.
    NoSync,
    /// Changed in the map itself, synced by the system when it likes.
    MapAsync,
}

/// An environment of one or two trees.
pub struct Lmdb {
    people: Database<Str, Bytes>,
    names: Option<Database<Str, Str>>,
    env: Env,
    value: Vec<u8>,
}

impl Lmdb {
    /// An empty book for `rows` rows in a new file.
    ///
    /// # Errors
    /// Those of LMDB.
    pub fn new(
        directory: &Path,
        setting: Setting,
        rows: u64,
        indexes: u8,
    ) -> Result<Self, Failure> {
        let flags = match setting {
            Setting::NoSync => EnvFlags::NO_SYNC | EnvFlags::NO_META_SYNC,
            Setting::MapAsync => EnvFlags::WRITE_MAP | EnvFlags::MAP_ASYNC,
        };
        let bytes = (rows * ROW_BYTES).next_multiple_of(1 << 20) + (64 << 20);
        let mut options = EnvOpenOptions::new();
        options.map_size(bytes as usize).max_dbs(2);
        // SAFETY: the directory is new and nobody else's, so nothing changes the mapped file behind
        // LMDB; losing the file in a crash of the system is what these settings are for.
        let env = unsafe { options.flags(flags).open(directory)? };
        let mut transaction = env.write_txn()?;
        let people = env.create_database(&mut transaction, Some("people"))?;
        let names = match indexes {
            2 => Some(env.create_database(&mut transaction, Some("names"))?),
            _ => None,
        };
        transaction.commit()?;
        Ok(Self {
            people,
            names,
            env,
            value: Vec::new(),
        })
    }

    fn enter(&mut self, transaction: &mut RwTxn<'_>, record: Record<'_>) -> Result<bool, Failure> {
        self.value.clear();
        self.value.push(u8::try_from(record.address.len())?);
        self.value.extend_from_slice(record.address.as_bytes());
        self.value.extend_from_slice(record.telephone.as_bytes());
        let flags = PutFlags::NO_OVERWRITE;
        let people = &self.people;
        let entered = people.put_with_flags(transaction, flags, record.name, &self.value);
        if !is_new(entered)? {
            return Ok(false);
        }
        let Some(names) = &self.names else {
            return Ok(true);
        };
        is_new(names.put_with_flags(transaction, flags, record.telephone, record.name))
    }

    fn remove(&self, transaction: &mut RwTxn<'_>, name: &str) -> Result<bool, Failure> {
        if let Some(names) = &self.names {
            let Some(value) = self.people.get(transaction, name)? else {
                return Ok(false);
            };
            // The value is gone with the next change.
            let telephone = unpack(name, value)?.telephone.to_owned();
            if !names.delete(transaction, &telephone)? {
                return Ok(false);
            }
        }
        Ok(self.people.delete(transaction, name)?)
    }

    fn find<'t>(
        &self,
        transaction: &'t RoTxn<'_>,
        name: &'t str,
    ) -> Result<Option<Record<'t>>, Failure> {
        let value = self.people.get(transaction, name)?;
        value.map(|value| unpack(name, value)).transpose()
    }

    fn find_by_telephone<'t>(
        &self,
        transaction: &'t RoTxn<'_>,
        telephone: &str,
    ) -> Result<Option<Record<'t>>, Failure> {
        let Some(names) = &self.names else {
            return Ok(None);
        };
        match names.get(transaction, telephone)? {
            Some(name) => self.find(transaction, name),
            None => Ok(None),
        }
    }
}

fn is_new(entered: heed::Result<()>) -> Result<bool, Failure> {
    match entered {
        Ok(()) => Ok(true),
        Err(Error::Mdb(MdbError::KeyExist)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn unpack<'t>(name: &'t str, value: &'t [u8]) -> Result<Record<'t>, Failure> {
    let texts = std::str::from_utf8(value.get(1..).unwrap_or_default())?;
    let split = value.first().map_or(0, |length| usize::from(*length));
    let (address, telephone) = texts
        .split_at_checked(split)
        .ok_or_else(|| Failure::new("LMDB holds a value of another form"))?;
    Ok(Record {
        name,
        address,
        telephone,
    })
}

impl Book for Lmdb {
    fn create(&mut self, record: Record<'_>) -> Result<bool, Failure> {
        Ok(self.create_batch(&[record])? == 1)
    }

    fn by_name(&mut self, name: &str, found: impl FnOnce(Record<'_>)) -> Result<(), Failure> {
        let transaction = self.env.read_txn()?;
        self.find(&transaction, name)?.map(found);
        Ok(())
    }

    fn by_telephone(
        &mut self,
        telephone: &str,
        found: impl FnOnce(Record<'_>),
    ) -> Result<(), Failure> {
        let transaction = self.env.read_txn()?;
        self.find_by_telephone(&transaction, telephone)?.map(found);
        Ok(())
    }

    fn delete(&mut self, name: &str) -> Result<bool, Failure> {
        Ok(self.delete_batch(&[name])? == 1)
    }

    fn counts(&mut self) -> Result<Vec<u64>, Failure> {
        let transaction = self.env.read_txn()?;
        let mut counts = vec![self.people.len(&transaction)?];
        if let Some(names) = &self.names {
            counts.push(names.len(&transaction)?);
        }
        Ok(counts)
    }

    fn create_batch(&mut self, records: &[Record<'_>]) -> Result<usize, Failure> {
        let env = self.env.clone();
        let mut transaction = env.write_txn()?;
        let mut created = 0;
        for record in records {
            created += usize::from(self.enter(&mut transaction, *record)?);
        }
        transaction.commit()?;
        Ok(created)
    }

    fn by_name_batch(
        &mut self,
        names: &[&str],
        mut found: impl FnMut(usize, Record<'_>),
    ) -> Result<(), Failure> {
        let transaction = self.env.read_txn()?;
        for (index, name) in names.iter().enumerate() {
            if let Some(record) = self.find(&transaction, name)? {
                found(index, record);
            }
        }
        Ok(())
    }

    fn by_telephone_batch(
        &mut self,
        telephones: &[&str],
        mut found: impl FnMut(usize, Record<'_>),
    ) -> Result<(), Failure> {
        let transaction = self.env.read_txn()?;
        for (index, telephone) in telephones.iter().enumerate() {
            if let Some(record) = self.find_by_telephone(&transaction, telephone)? {
                found(index, record);
            }
        }
        Ok(())
    }

    fn delete_batch(&mut self, names: &[&str]) -> Result<usize, Failure> {
        let mut transaction = self.env.write_txn()?;
        let mut deleted = 0;
        for name in names {
            deleted += usize::from(self.remove(&mut transaction, name)?);
        }
        transaction.commit()?;
        Ok(deleted)
    }
}
