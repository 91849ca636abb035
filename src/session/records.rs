//! Records, as sessions and residents use them: images are grouped by shard, travel there together,
//! and what is found comes back as images.

mod range;

use std::ops::ControlFlow;

use super::call::{call, call_each};
use super::transaction::TransactionRecords;
use super::verbs::Verbs;
use crate::error::{Error, Result};
use crate::id::{ShardIndex, shard_of};
use crate::limits::{RECORDS_PER_CALL, SCAN_SLOTS_PER_REQUEST};
use crate::shard::{Local, Reach, split};
use crate::table::{Image, IndexPlace, Key, Record, Records, are_equal, hash_of, write_wanted};

/// The verbs of a table of records: made by [`Verbs::records`].
///
/// Every operation is a transaction of its own, in the shard that its key decides, and acknowledged
/// when it returns. Batches go to all shards at once; when one returns an error, some of its operations
/// may have happened.
pub struct RecordVerbs<'s, S: Verbs, R: Record> {
    client: &'s mut S,
    records: &'s Records<R>,
    shards: usize,
}

/// The images for each shard, and which operations they are.
struct Batches {
    words: Vec<Vec<u64>>,
    numbers: Vec<Vec<usize>>,
    hashes: Vec<u64>,
}

impl Batches {
    fn new(shards: usize) -> Self {
        Self {
            words: vec![Vec::new(); shards],
            numbers: vec![Vec::new(); shards],
            hashes: Vec::new(),
        }
    }
}

impl<'s, S: Verbs, R: Record> RecordVerbs<'s, S, R> {
    pub(super) fn new(client: &'s mut S, records: &'s Records<R>) -> Self {
        let shards = client.port().map_or(1, |(link, _)| link.peers().shards());
        Self {
            client,
            records,
            shards,
        }
    }

    /// Runs work on the records of a shard.
    fn at<T: Send>(
        &mut self,
        shard: ShardIndex,
        reach: Reach,
        work: impl FnOnce(&mut Local<'_>) -> Result<T> + Send,
    ) -> Result<T> {
        let key = self.records.key();
        let (link, mut host) = self.client.port()?;
        call(link, &mut host, shard, reach, |context| {
            work(&mut context.local(key)?)
        })
    }

    /// Runs work on the records of some shards, at the same time, each with words of its own.
    fn at_each<T: Send>(
        &mut self,
        words: &[Vec<u64>],
        reach: Reach,
        work: impl Fn(&mut Local<'_>, &[u64]) -> Result<T> + Sync,
    ) -> Result<Vec<(ShardIndex, T)>> {
        let key = self.records.key();
        let (link, mut host) = self.client.port()?;
        let work = &work;
        let calls = words
            .iter()
            .enumerate()
            .filter(|(_, words)| !words.is_empty());
        let calls = calls
            .map(|(shard, words)| {
                let closure = move |context: &mut crate::shard::Context<'_>| {
                    let done = work(&mut context.local(key)?, words)?;
                    Ok::<_, Error>((shard, done))
                };
                (shard, closure)
            })
            .collect();
        call_each(link, &mut host, reach, calls)
            .into_iter()
            .collect()
    }

    /// What a change of some records waits for: transactions that are about to change the same one, or,
    /// if there are more, anything in their shards.
    fn reach_of(&self, batches: &Batches) -> Reach {
        let mut hashes = batches.hashes.iter();
        match (hashes.next(), hashes.next()) {
            (Some(&hash), None) => Reach::Record {
                table: self.records.key(),
                hash,
            },
            _ => Reach::All,
        }
    }

    /// Adds an image to those of its shard.
    fn route(&self, image: &[u64], number: usize, batches: &mut Batches) -> Result<()> {
        let (parsed, _) = Image::split(image).ok_or(Error::KeyShape)?;
        let hash = hash_of(&self.records.shape().key, &parsed);
        let shard = shard_of(hash, self.shards);
        batches.words[shard].extend_from_slice(image);
        batches.numbers[shard].push(number);
        batches.hashes.push(hash);
        Ok(())
    }

    fn batches_of_records(&self, first: usize, records: &[R]) -> Result<Batches> {
        let mut batches = Batches::new(self.shards);
        let mut image = Vec::new();
        for (at, record) in records.iter().enumerate() {
            image.clear();
            self.records.codec().write(record, &mut image)?;
            self.route(&image, first + at, &mut batches)?;
        }
        Ok(batches)
    }

    fn batches_of_keys<K: Key>(&self, first: usize, keys: &[K]) -> Result<Batches> {
        let mut batches = Batches::new(self.shards);
        let mut image = Vec::new();
        let shape = self.records.shape();
        for (at, key) in keys.iter().enumerate() {
            image.clear();
            write_wanted(shape, &shape.key, key, &mut image)?;
            self.route(&image, first + at, &mut batches)?;
        }
        Ok(batches)
    }

    /// Sends the images of records and sums up what the shards say.
    fn count_of(
        &mut self,
        records: &[R],
        work: impl Fn(&mut Local<'_>, &[u64]) -> Result<usize> + Sync,
    ) -> Result<usize> {
        let mut count = 0;
        for (at, records) in records.chunks(RECORDS_PER_CALL).enumerate() {
            let batches = self.batches_of_records(at * RECORDS_PER_CALL, records)?;
            let reach = self.reach_of(&batches);
            let told = self.at_each(&batches.words, reach, &work)?;
            count += told.iter().map(|(_, told)| told).sum::<usize>();
        }
        Ok(count)
    }

    /// Whether changes are transactions over shards, for the sake of unique indexes.
    fn has_uniques(&self) -> bool {
        !self.records.uniques().is_empty()
    }

    /// Runs a change as a transaction.
    fn transact<T>(
        &mut self,
        mut change: impl FnMut(&mut TransactionRecords<'_, '_, S, R>) -> Result<T>,
    ) -> Result<T> {
        let records = self.records;
        self.client
            .transaction(|transaction| change(&mut transaction.records(records)))
    }

    /// Adds a record; [`Error::DuplicateKey`] if there is one with its key, and
    /// [`Error::DuplicateValue`] if there is one with its values of a unique index.
    pub fn insert(&mut self, record: &R) -> Result<()> {
        if self.has_uniques() {
            return self.transact(|records| records.insert(record));
        }
        match self.insert_batch(std::slice::from_ref(record))? {
            0 => Err(Error::DuplicateKey),
            _ => Ok(()),
        }
    }

    /// Adds records; says how many were added. Those whose key exists are left out.
    pub fn insert_batch(&mut self, records: &[R]) -> Result<usize> {
        let mut refused = 0;
        self.insert_each(records, |_| refused += 1)?;
        Ok(records.len() - refused)
    }

    /// Adds records, but for those whose key exists: their numbers in `records` are told, not in order.
    pub fn insert_each(&mut self, records: &[R], mut refused: impl FnMut(usize)) -> Result<()> {
        if self.has_uniques() {
            for (number, record) in records.iter().enumerate() {
                match self.insert(record) {
                    Err(Error::DuplicateKey) => refused(number),
                    other => other?,
                }
            }
            return Ok(());
        }
        for (at, records) in records.chunks(RECORDS_PER_CALL).enumerate() {
            let first = at * RECORDS_PER_CALL;
            let batches = self.batches_of_records(first, records)?;
            let reach = self.reach_of(&batches);
            let told = self.at_each(&batches.words, reach, |local, words| {
                local.insert_all(words)
            })?;
            for (shard, numbers) in told {
                for number in numbers {
                    refused(batches.numbers[shard][number]);
                }
            }
        }
        Ok(())
    }

    /// Replaces the record with the same key, or adds it; says whether there was one.
    pub fn upsert(&mut self, record: &R) -> Result<bool> {
        Ok(self.upsert_batch(std::slice::from_ref(record))? == 0)
    }

    /// Replaces the records with the same keys, or adds them; says how many were added.
    pub fn upsert_batch(&mut self, records: &[R]) -> Result<usize> {
        if self.has_uniques() {
            let mut inserted = 0;
            for record in records {
                inserted += usize::from(!self.transact(|records| records.upsert(record))?);
            }
            return Ok(inserted);
        }
        self.count_of(records, |local, words| local.upsert_all(words))
    }

    /// Replaces the record with the same key; says whether there was one.
    pub fn replace(&mut self, record: &R) -> Result<bool> {
        Ok(self.replace_batch(std::slice::from_ref(record))? > 0)
    }

    /// Replaces the records with the same keys; says how many there were.
    pub fn replace_batch(&mut self, records: &[R]) -> Result<usize> {
        if self.has_uniques() {
            let mut replaced = 0;
            for record in records {
                replaced += usize::from(self.transact(|records| records.replace(record))?);
            }
            return Ok(replaced);
        }
        self.count_of(records, |local, words| local.replace_all(words))
    }

    /// The record with a key, if there is one.
    pub fn get(&mut self, key: impl Key) -> Result<Option<R>> {
        let mut found = None;
        self.get_each(&[key], |_, record| found = record)?;
        Ok(found)
    }

    /// The record of each key, in order.
    pub fn get_batch<K: Key>(&mut self, keys: &[K]) -> Result<Vec<Option<R>>> {
        let mut records: Vec<Option<R>> = keys.iter().map(|_| None).collect();
        self.get_each(keys, |at, record| records[at] = record)?;
        Ok(records)
    }

    /// Visits the record of each key, with the key's number in `keys`; not in order.
    pub fn get_each<K: Key>(
        &mut self,
        keys: &[K],
        mut visit: impl FnMut(usize, Option<R>),
    ) -> Result<()> {
        for (at, keys) in keys.chunks(RECORDS_PER_CALL).enumerate() {
            let batches = self.batches_of_keys(at * RECORDS_PER_CALL, keys)?;
            let found = self.at_each(&batches.words, Reach::Reads, |local, words| {
                let mut found = Vec::with_capacity(2 * words.len());
                local.get_all(words, &mut found)?;
                Ok(found)
            })?;
            for (shard, found) in found {
                let mut rest = &found[..];
                for &number in &batches.numbers[shard] {
                    let (image, behind) = next_image(rest);
                    rest = behind;
                    let record = image.map(|image| self.records.codec().read(image));
                    visit(number, record.transpose()?);
                }
            }
        }
        Ok(())
    }

    /// Changes the record with a key, so that nobody comes between; says whether there was one. The key
    /// must stay as it is. With unique indexes, `change` is called again when others came between.
    pub fn update<F>(&mut self, key: impl Key, mut change: F) -> Result<bool>
    where
        F: FnMut(&mut R) + Send,
    {
        if self.has_uniques() {
            return self.transact(|records| records.update_by(&key, &mut change));
        }
        let batches = self.batches_of_keys(0, &[key])?;
        let Some(shard) = batches.words.iter().position(|words| !words.is_empty()) else {
            return Ok(false);
        };
        let (records, wanted) = (self.records, &batches.words[shard]);
        self.at(shard, self.reach_of(&batches), move |local| {
            let mut found = Vec::new();
            local.get_all(wanted, &mut found)?;
            let (Some(image), _) = next_image(&found) else {
                return Ok(false);
            };
            let mut record = records.codec().read(image)?;
            change(&mut record);
            let mut changed = Vec::new();
            records.codec().write(&record, &mut changed)?;
            let spots = &records.shape().key;
            let is_same = Image::split(&changed)
                .is_some_and(|(changed, _)| are_equal(spots, &changed, &image));
            if !is_same {
                return Err(Error::KeyChanged);
            }
            Ok(local.replace_all(&changed)? > 0)
        })
    }

    /// Removes the record with a key; says whether there was one.
    pub fn delete(&mut self, key: impl Key) -> Result<bool> {
        Ok(self.delete_batch(&[key])? > 0)
    }

    /// Removes the record of each key; says how many there were.
    pub fn delete_batch<K: Key>(&mut self, keys: &[K]) -> Result<usize> {
        let mut deleted = 0;
        if self.has_uniques() {
            for key in keys {
                deleted += usize::from(self.transact(|records| records.delete_by(key))?);
            }
            return Ok(deleted);
        }
        for (at, keys) in keys.chunks(RECORDS_PER_CALL).enumerate() {
            let batches = self.batches_of_keys(at * RECORDS_PER_CALL, keys)?;
            let reach = self.reach_of(&batches);
            let told = self.at_each(&batches.words, reach, |local, words| {
                local.delete_all(words)
            })?;
            deleted += told.iter().map(|(_, told)| told).sum::<usize>();
        }
        Ok(deleted)
    }

    /// The records that have these values of an index's fields, in no order. Every shard is asked, or, by
    /// a unique index, the values' and the record's.
    pub fn find(&mut self, index: &str, values: impl Key) -> Result<Vec<R>> {
        let mut found = Vec::new();
        self.find_each(index, &[values], |_, record| found.push(record))?;
        Ok(found)
    }

    /// Visits the records that have each of these values of an index's fields, with the number of the
    /// values; not in order. Every shard is asked.
    pub fn find_each<K: Key>(
        &mut self,
        index: &str,
        values: &[K],
        mut visit: impl FnMut(usize, R),
    ) -> Result<()> {
        let IndexPlace::Local(index) = self.records.index(index)? else {
            for (at, values) in values.iter().enumerate() {
                if let Some(record) = self.transact(|records| records.find_by(index, values))? {
                    visit(at, record);
                }
            }
            return Ok(());
        };
        let shape = self.records.shape();
        for (at, values) in values.chunks(RECORDS_PER_CALL).enumerate() {
            let mut words = Vec::new();
            for value in values {
                write_wanted(shape, &shape.indexes[index], value, &mut words)?;
            }
            let words = vec![words; self.shards];
            let found = self.at_each(&words, Reach::Reads, |local, words| {
                let mut found = Vec::new();
                local.find_all(index, words, &mut found)?;
                Ok(found)
            })?;
            for (_, found) in found {
                let mut rest = &found[..];
                for number in 0..values.len() {
                    let Some((&count, behind)) = rest.split_first() else {
                        break;
                    };
                    rest = behind;
                    for _ in 0..count {
                        let (image, behind) = next_image(rest);
                        rest = behind;
                        if let Some(image) = image {
                            let record = self.records.codec().read(image)?;
                            visit(at * RECORDS_PER_CALL + number, record);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Visits every record, shard by shard in the order of their places, until `visit` breaks.
    ///
    /// Others work on meanwhile: a record that is there throughout is visited once, as it was at one
    /// moment; one that comes or goes may be visited or not.
    pub fn scan(&mut self, mut visit: impl FnMut(R) -> ControlFlow<()>) -> Result<()> {
        for shard in 0..self.shards {
            let (mut from, mut first_end) = (0_u32, None);
            loop {
                let to = from
                    .saturating_add(SCAN_SLOTS_PER_REQUEST)
                    .min(first_end.unwrap_or(u32::MAX));
                let (found, next, end) = self.at(shard, Reach::Reads, |local| {
                    let mut found = Vec::new();
                    let (next, end) = local.scan(from..to, &mut found);
                    Ok((found, next, end))
                })?;
                for image in split(&found) {
                    if visit(self.records.codec().read(image)?).is_break() {
                        return Ok(());
                    }
                }
                if next >= *first_end.get_or_insert(end) {
                    break;
                }
                from = next;
            }
        }
        Ok(())
    }

    /// Records of the table, over all shards. Those that others add or remove meanwhile may be counted
    /// or not.
    pub fn count(&mut self) -> Result<u64> {
        (0..self.shards)
            .map(|shard| self.at(shard, Reach::Reads, |local| Ok(local.count())))
            .sum()
    }
}

/// The next image of an answer, or none where a record was not found, and what follows.
fn next_image(words: &[u64]) -> (Option<Image<'_>>, &[u64]) {
    match words.split_first() {
        Some((0, rest)) => (None, rest),
        _ => match Image::split(words) {
            Some((image, rest)) => (Some(image), rest),
            None => (None, &[]),
        },
    }
}
