//! Records in a transaction.

use super::Transaction;
use super::log::Wanted;
use crate::error::{Error, Result};
use crate::id::{TableKey, shard_of};
use crate::session::verbs::Verbs;
use crate::shard::Reach;
use crate::table::{
    Entries, Image, IndexPlace, Key, Record, Records, Shape, Values, are_equal, hash_of,
    write_wanted,
};

/// A table of records, as a transaction sees it: made by [`Transaction::records`].
pub struct TransactionRecords<'t, 's, S: Verbs, R: Record> {
    transaction: &'t mut Transaction<'s, S>,
    records: &'t Records<R>,
}

impl<'s, S: Verbs> Transaction<'s, S> {
    /// The records of a table. Changes are part of the transaction.
    pub fn records<'t, R: Record>(
        &'t mut self,
        records: &'t Records<R>,
    ) -> TransactionRecords<'t, 's, S, R> {
        TransactionRecords {
            transaction: self,
            records,
        }
    }
}

impl<S: Verbs, R: Record> TransactionRecords<'_, '_, S, R> {
    /// The record with a key, as this transaction sees it.
    pub fn get(&mut self, key: impl Key) -> Result<Option<R>> {
        let at = self.look_for(&key)?;
        self.record(at)
    }

    /// The record with these values of a unique index, as this transaction sees it.
    pub fn find(&mut self, index: &str, values: impl Key) -> Result<Option<R>> {
        self.find_by(index, &values)
    }

    pub(in crate::session) fn find_by(
        &mut self,
        index: &str,
        values: &(impl Key + ?Sized),
    ) -> Result<Option<R>> {
        let IndexPlace::Unique(unique) = self.records.index(index)? else {
            return Err(Error::IndexMissing {
                name: index.to_owned(),
            });
        };
        let Entries { table, shape, .. } = &self.records.uniques()[unique];
        let mut wanted = Vec::new();
        write_wanted(shape, &shape.key, values, &mut wanted)?;
        let at = self.transaction.look_record(*table, shape, &wanted)?;
        let Some((entry, _)) = self.transaction.draft.image(at).and_then(Image::split) else {
            return Ok(None);
        };
        let own = self.records.shape();
        let mut key = Vec::new();
        entry.carry(&shape.spots[shape.key.len()..], own, &own.key, &mut key);
        let at = self
            .transaction
            .look_record(self.records.key(), own, &key)?;
        self.record(at)
    }

    /// Adds a record; [`Error::DuplicateKey`] if there is one with its key,
    /// [`Error::DuplicateValue`] if there is one with its values of a unique index.
    pub fn insert(&mut self, record: &R) -> Result<()> {
        let (at, image) = self.look_to_write(record)?;
        if self.transaction.draft.image(at).is_some() {
            return Err(Error::DuplicateKey);
        }
        self.keep_uniques(at, Some(&image))?;
        self.transaction.draft.insert_record(at, image)
    }

    /// Replaces the record with the same key, or adds it; says whether there was one.
    pub fn upsert(&mut self, record: &R) -> Result<bool> {
        let (at, image) = self.look_to_write(record)?;
        self.keep_uniques(at, Some(&image))?;
        Ok(self.write(at, image))
    }

    /// Replaces the record with the same key; says whether there was one.
    pub fn replace(&mut self, record: &R) -> Result<bool> {
        let (at, image) = self.look_to_write(record)?;
        if self.transaction.draft.image(at).is_none() {
            return Ok(false);
        }
        self.keep_uniques(at, Some(&image))?;
        Ok(self.write(at, image))
    }

    /// Writes an image; where entries of unique indexes were changed with it, the record must still be
    /// as it was.
    fn write(&mut self, at: usize, image: Box<[u64]>) -> bool {
        let draft = &mut self.transaction.draft;
        let was_there = draft.image(at).is_some();
        if self.records.uniques().is_empty() {
            draft.upsert(at, image);
        } else {
            draft.derive(at, image);
        }
        was_there
    }

    /// Changes the record with a key; says whether there was one. The key must stay as it is. That the
    /// record is still as it was is checked when the transaction commits, at every isolation.
    pub fn update(&mut self, key: impl Key, change: impl FnOnce(&mut R)) -> Result<bool> {
        self.update_by(&key, change)
    }

    pub(in crate::session) fn update_by(
        &mut self,
        key: &(impl Key + ?Sized),
        change: impl FnOnce(&mut R),
    ) -> Result<bool> {
        self.transaction.draft.check_change()?;
        let at = self.look_for(key)?;
        let Some(mut record) = self.record(at)? else {
            return Ok(false);
        };
        let before = self.image(&record)?;
        change(&mut record);
        let after = self.image(&record)?;
        let key = &self.records.shape().key;
        let is_same = match (Image::split(&before), Image::split(&after)) {
            (Some((before, _)), Some((after, _))) => are_equal(key, &before, &after),
            _ => false,
        };
        if !is_same {
            return Err(Error::KeyChanged);
        }
        self.keep_uniques(at, Some(&after))?;
        self.transaction.draft.derive(at, after.into());
        Ok(true)
    }

    /// Removes the record with a key; says whether there was one.
    pub fn delete(&mut self, key: impl Key) -> Result<bool> {
        self.delete_by(&key)
    }

    pub(in crate::session) fn delete_by(&mut self, key: &(impl Key + ?Sized)) -> Result<bool> {
        self.transaction.draft.check_change()?;
        let at = self.look_for(key)?;
        self.keep_uniques(at, None)?;
        if !self.records.uniques().is_empty() {
            self.transaction.draft.rely_on(at);
        }
        Ok(self.transaction.draft.delete(at))
    }

    /// Brings the entries of the unique indexes in line with what a record is to be. Nothing is changed
    /// if another record has its values.
    fn keep_uniques(&mut self, at: usize, new: Option<&[u64]>) -> Result<()> {
        let own = self.records.shape();
        let mut entries = Vec::new();
        for (Entries { table, shape, name }, spots) in
            self.records.uniques().iter().zip(&own.uniques)
        {
            let fields = || spots.iter().chain(&own.key).copied();
            let entry_of = |image: Option<&[u64]>| {
                let mut entry = Vec::new();
                let (image, _) = image.and_then(Image::split)?;
                image
                    .pick(fields(), spots.len(), shape, &mut entry)
                    .then_some(entry)
            };
            let old_entry = entry_of(self.transaction.draft.image(at));
            let new_entry = entry_of(new);
            if old_entry == new_entry {
                continue;
            }
            let old_at = match old_entry {
                Some(entry) => Some(self.transaction.look_entry(*table, shape, &entry)?),
                None => None,
            };
            let new_at = match new_entry {
                Some(entry) => {
                    let entry_at = self.transaction.look_entry(*table, shape, &entry)?;
                    let is_own = old_at == Some(entry_at);
                    if !is_own && self.transaction.draft.image(entry_at).is_some() {
                        return Err(Error::DuplicateValue {
                            index: name.clone(),
                        });
                    }
                    Some((entry_at, entry))
                }
                None => None,
            };
            entries.push((old_at, new_at));
        }
        for (old_at, new_at) in entries {
            if let Some(old_at) = old_at {
                self.transaction.draft.delete(old_at);
            }
            if let Some((new_at, entry)) = new_at {
                self.transaction.draft.upsert(new_at, entry.into());
            }
        }
        Ok(())
    }

    fn image(&self, record: &R) -> Result<Vec<u64>> {
        let mut image = Vec::new();
        self.records.codec().write(record, &mut image)?;
        Ok(image)
    }

    fn record(&self, at: usize) -> Result<Option<R>> {
        let image = self.transaction.draft.image(at).and_then(Image::split);
        image
            .map(|(image, _)| self.records.codec().read(image))
            .transpose()
    }

    fn look_for(&mut self, key: &(impl Key + ?Sized)) -> Result<usize> {
        let shape = self.records.shape();
        let mut wanted = Vec::new();
        write_wanted(shape, &shape.key, key, &mut wanted)?;
        self.transaction
            .look_record(self.records.key(), shape, &wanted)
    }

    fn look_to_write(&mut self, record: &R) -> Result<(usize, Box<[u64]>)> {
        self.transaction.draft.check_change()?;
        let image = self.image(record)?;
        let (table, shape) = (self.records.key(), self.records.shape());
        let at = self.transaction.look_entry(table, shape, &image)?;
        Ok((at, image.into()))
    }
}

impl<S: Verbs> Transaction<'_, S> {
    /// Looks up the record that has the same key as an image.
    fn look_entry(&mut self, table: TableKey, shape: &Shape, image: &[u64]) -> Result<usize> {
        let mut wanted = Vec::new();
        let (image, _) = Image::split(image).ok_or(Error::KeyShape)?;
        image.carry(&shape.key, shape, &shape.key, &mut wanted);
        self.look_record(table, shape, &wanted)
    }

    /// Looks a record up by an image with its key: what the transaction has read or changed before, or
    /// else what is committed.
    fn look_record(&mut self, table: TableKey, shape: &Shape, wanted: &[u64]) -> Result<usize> {
        self.check_time()?;
        let (image, _) = Image::split(wanted).ok_or(Error::KeyShape)?;
        let hash = hash_of(&shape.key, &image);
        let wanted = Wanted {
            hash,
            image: wanted.into(),
        };
        if let Some(at) = self.draft.known_record(table, &wanted) {
            return Ok(at);
        }
        let shards = self.session.port()?.0.peers().shards();
        let shard = shard_of(hash, shards);
        let image = &wanted.image;
        let sighting = self.ask(shard, Reach::Reads, move |context| {
            context.fetch_record(table, hash, image)
        })?;
        Ok(self.draft.learn_record(table, shard, wanted, sighting))
    }
}
