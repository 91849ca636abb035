//! Records in a transaction.

use super::Transaction;
use super::log::Wanted;
use crate::error::{Error, Result};
use crate::id::shard_of;
use crate::session::verbs::Verbs;
use crate::shard::Reach;
use crate::table::{Image, Key, Record, Records, are_equal, hash_of, write_wanted};

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
        let at = self.look_for(key)?;
        self.record(at)
    }

    /// Adds a record; [`Error::DuplicateKey`] if there is one with its key.
    pub fn insert(&mut self, record: &R) -> Result<()> {
        let (at, image) = self.look_to_write(record)?;
        self.transaction.draft.insert_record(at, image)
    }

    /// Replaces the record with the same key, or adds it; says whether there was one.
    pub fn upsert(&mut self, record: &R) -> Result<bool> {
        let (at, image) = self.look_to_write(record)?;
        Ok(self.transaction.draft.upsert(at, image))
    }

    /// Replaces the record with the same key; says whether there was one.
    pub fn replace(&mut self, record: &R) -> Result<bool> {
        let (at, image) = self.look_to_write(record)?;
        Ok(self.transaction.draft.update(at, image))
    }

    /// Changes the record with a key; says whether there was one. The key must stay as it is. That the
    /// record is still as it was is checked when the transaction commits, at every isolation.
    pub fn update(&mut self, key: impl Key, change: impl FnOnce(&mut R)) -> Result<bool> {
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
        self.transaction.draft.derive(at, after.into());
        Ok(true)
    }

    /// Removes the record with a key; says whether there was one.
    pub fn delete(&mut self, key: impl Key) -> Result<bool> {
        self.transaction.draft.check_change()?;
        let at = self.look_for(key)?;
        Ok(self.transaction.draft.delete(at))
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

    fn look_for(&mut self, key: impl Key) -> Result<usize> {
        let shape = self.records.shape();
        let mut wanted = Vec::new();
        write_wanted(shape, &shape.key, &key, &mut wanted)?;
        self.look(&wanted)
    }

    fn look_to_write(&mut self, record: &R) -> Result<(usize, Box<[u64]>)> {
        self.transaction.draft.check_change()?;
        let image = self.image(record)?;
        let shape = self.records.shape();
        let mut wanted = Vec::new();
        if let Some((image, _)) = Image::split(&image) {
            image.only(shape, &shape.key, &mut wanted);
        }
        Ok((self.look(&wanted)?, image.into()))
    }

    /// Looks a record up: what the transaction has read or changed before, or else what is committed.
    fn look(&mut self, wanted: &[u64]) -> Result<usize> {
        self.transaction.check_time()?;
        let (image, _) = Image::split(wanted).ok_or(Error::KeyShape)?;
        let hash = hash_of(&self.records.shape().key, &image);
        let wanted = Wanted {
            hash,
            image: wanted.into(),
        };
        let table = self.records.key();
        if let Some(at) = self.transaction.draft.known_record(table, &wanted) {
            return Ok(at);
        }
        let shards = self.transaction.session.port()?.0.peers().shards();
        let shard = shard_of(hash, shards);
        let image = &wanted.image;
        let sighting = self.transaction.ask(shard, Reach::Reads, move |context| {
            context.fetch_record(table, hash, image)
        })?;
        let draft = &mut self.transaction.draft;
        Ok(draft.learn_record(table, shard, wanted, sighting))
    }
}
