//! The records of a table in the shard at hand, with no hop.

mod range;

use crate::arena::Arena;
use crate::error::{Error, Result};
use crate::id::{ShardIndex, shard_of};
use crate::limits::{RECORD_DISTANCE, SCAN_WORDS_PER_REQUEST};
use crate::table::{
    Image, IndexPlace, Key, Place, Record, RecordPart, Records, Single, hash_of, write_row,
    write_wanted,
};
use crate::transaction::UndoLog;
pub(crate) use range::Ranked;

/// A table's records in one shard, for code that runs there.
///
/// In a transaction ([`Context::records`](crate::Context::records)) changes are undone with it; in
/// resident work ([`Resident::own_records`](crate::Resident::own_records)) each operation is a
/// transaction of its own. Keys of other shards find nothing here.
pub struct LocalRecords<'a, R: Record> {
    inner: Local<'a>,
    records: &'a Records<R>,
    /// The image at hand.
    words: Vec<u64>,
}

/// As [`LocalRecords`], of records that only their client knows the type of.
pub(crate) struct Local<'a> {
    part: &'a mut RecordPart,
    arena: &'a mut Arena,
    undo: Option<(&'a mut UndoLog, u32)>,
    shard: ShardIndex,
    shards: usize,
    /// Whether texts may be moved.
    may_tidy: bool,
}

/// Texts of so many times an image's bytes are moved at most when it is written.
const TIDY_TIMES: usize = 4;

/// Runs an operation with the images that its transaction needs, and ends its scope if it is alone.
macro_rules! with_images {
    ($local:expr, |$images:ident| $operation:expr) => {
        match &mut $local.undo {
            None => {
                let $images = &mut Single;
                let result = $operation;
                $local.part.end_scope($local.arena);
                result
            }
            Some((undo, table)) => {
                let shape = $local.part.shape();
                undo.reserve(shape.cells, shape.texts.len())?;
                let bytes = $local.part.record_bytes();
                $local.arena.prepare_undoable(bytes)?;
                let $images = &mut undo.of_table(*table);
                $operation
            }
        }
    };
}

impl<'a> Local<'a> {
    pub(super) fn new(
        (part, arena): (&'a mut RecordPart, &'a mut Arena),
        undo: Option<(&'a mut UndoLog, u32)>,
        shard: ShardIndex,
        shards: usize,
    ) -> Self {
        Self {
            part,
            arena,
            undo,
            shard,
            shards,
            may_tidy: false,
        }
    }

    /// Lets changes move texts, too, where that brings memory back.
    pub(super) fn tidying(self, may_tidy: bool) -> Self {
        Self { may_tidy, ..self }
    }

    /// Moves some texts after a change, if it is worth it.
    #[inline]
    fn tidy(&mut self, image: &Image<'_>) {
        if self.may_tidy && self.part.is_sparse() {
            let bytes = size_of_val(image.cells()) * TIDY_TIMES;
            self.part.tidy(self.arena, bytes);
        }
    }

    fn check_writable(&self) -> Result<()> {
        self.arena.check_writable()?;
        self.part.check_sound()
    }

    /// The hash of an image's key, which must belong to this shard.
    fn own_hash(&self, image: &Image<'_>) -> Result<u64> {
        let hash = hash_of(&self.part.shape().key, image);
        let owner = shard_of(hash, self.shards);
        if owner == self.shard {
            Ok(hash)
        } else {
            Err(Error::OtherShardsKey {
                owner,
                shard: self.shard,
            })
        }
    }

    fn insert(&mut self, image: &Image<'_>) -> Result<()> {
        self.check_writable()?;
        self.own_hash(image)?;
        with_images!(self, |images| self
            .part
            .insert(self.arena, image, images)
            .map(drop))?;
        self.tidy(image);
        Ok(())
    }

    /// Replaces the record with an image's key; says whether there was one.
    fn replace(&mut self, image: &Image<'_>) -> Result<bool> {
        self.check_writable()?;
        match self.find(image) {
            None => Ok(false),
            Some(place) => self.change(place, image).map(|()| true),
        }
    }

    fn change(&mut self, place: Place, image: &Image<'_>) -> Result<()> {
        with_images!(self, |images| self
            .part
            .update(self.arena, place, image, images))?;
        self.tidy(image);
        Ok(())
    }

    fn upsert(&mut self, image: &Image<'_>) -> Result<bool> {
        if self.replace(image)? {
            return Ok(true);
        }
        self.insert(image)?;
        Ok(false)
    }

    fn delete(&mut self, wanted: &Image<'_>) -> Result<bool> {
        self.check_writable()?;
        let Some(place) = self.find(wanted) else {
            return Ok(false);
        };
        with_images!(self, |images| self
            .part
            .delete_undoably(self.arena, place, images))?;
        Ok(true)
    }

    fn find(&self, wanted: &Image<'_>) -> Option<Place> {
        let hash = hash_of(&self.part.shape().key, wanted);
        self.part.find(self.arena, hash, wanted)
    }

    fn read(&self, place: Place, words: &mut Vec<u64>) {
        let row = self.part.values(self.arena, place);
        write_row(self.part.shape(), &row, words);
    }

    /// Visits images one behind the other, the index entries and records of those that follow asked for.
    fn each(
        &mut self,
        words: &[u64],
        mut visit: impl FnMut(&mut Self, &Image<'_>) -> Result<()>,
    ) -> Result<()> {
        let images: Vec<Image<'_>> = split(words).collect();
        let hashes: Vec<u64> = images
            .iter()
            .map(|image| hash_of(&self.part.shape().key, image))
            .collect();
        for (at, image) in images.iter().enumerate() {
            if at == 0 {
                for &hash in hashes.iter().take(2 * RECORD_DISTANCE) {
                    self.part.ask(hash, false);
                }
                for &hash in hashes.iter().take(RECORD_DISTANCE) {
                    self.part.ask(hash, true);
                }
            }
            if let Some(&hash) = hashes.get(at + 2 * RECORD_DISTANCE) {
                self.part.ask(hash, false);
            }
            if let Some(&hash) = hashes.get(at + RECORD_DISTANCE) {
                self.part.ask(hash, true);
            }
            visit(self, image)?;
        }
        Ok(())
    }

    /// Adds the records of images one behind the other, each for itself. Those whose key exists are
    /// left out; their numbers are told.
    pub(crate) fn insert_all(&mut self, words: &[u64]) -> Result<Vec<usize>> {
        let (mut number, mut refused) = (0, Vec::new());
        self.each(words, |local, image| {
            match local.insert(image) {
                Err(Error::DuplicateKey) => refused.push(number),
                other => other?,
            }
            number += 1;
            Ok(())
        })?;
        Ok(refused)
    }

    /// Adds records, or replaces those whose key exists; says how many were added.
    pub(crate) fn upsert_all(&mut self, words: &[u64]) -> Result<usize> {
        let mut inserted = 0;
        self.each(words, |local, image| {
            inserted += usize::from(!local.upsert(image)?);
            Ok(())
        })?;
        Ok(inserted)
    }

    /// Replaces records; says how many there were.
    pub(crate) fn replace_all(&mut self, words: &[u64]) -> Result<usize> {
        let mut replaced = 0;
        self.each(words, |local, image| {
            replaced += usize::from(local.replace(image)?);
            Ok(())
        })?;
        Ok(replaced)
    }

    /// Removes records; says how many there were.
    pub(crate) fn delete_all(&mut self, words: &[u64]) -> Result<usize> {
        let mut deleted = 0;
        self.each(words, |local, wanted| {
            deleted += usize::from(local.delete(wanted)?);
            Ok(())
        })?;
        Ok(deleted)
    }

    /// Writes the image of each record that is looked for, or a word that says there is none.
    pub(crate) fn get_all(&mut self, words: &[u64], found: &mut Vec<u64>) -> Result<()> {
        self.each(words, |local, wanted| {
            match local.find(wanted) {
                Some(place) => local.read(place, found),
                None => found.push(0),
            }
            Ok(())
        })
    }

    /// Writes, for each image with an index's fields, how many records have them, and their images.
    pub(crate) fn find_all(
        &mut self,
        index: usize,
        words: &[u64],
        found: &mut Vec<u64>,
    ) -> Result<()> {
        for wanted in split(words) {
            let at = found.len();
            found.push(0);
            for place in self.part.find_by(self.arena, index, &wanted)? {
                found[at] += 1;
                self.read(place, found);
            }
        }
        Ok(())
    }

    /// Writes the images of records in a range of slots, until they are many words; where to go on,
    /// and where all slots end.
    pub(crate) fn scan(&self, slots: std::ops::Range<u32>, found: &mut Vec<u64>) -> (u32, u32) {
        let (mut next, end) = (slots.end, self.part.slots_end());
        for place in self.part.scan(slots) {
            self.read(place, found);
            if found.len() > SCAN_WORDS_PER_REQUEST {
                next = place.slot() + 1;
                break;
            }
        }
        (next, end)
    }

    pub(crate) fn count(&self) -> u64 {
        self.part.len()
    }
}

/// Images one behind the other.
pub(crate) fn split(words: &[u64]) -> impl Iterator<Item = Image<'_>> {
    let mut rest = words;
    std::iter::from_fn(move || {
        let (image, behind) = Image::split(rest)?;
        rest = behind;
        Some(image)
    })
}

impl<'a, R: Record> LocalRecords<'a, R> {
    pub(super) fn new(inner: Local<'a>, records: &'a Records<R>) -> Self {
        Self {
            inner,
            records,
            words: Vec::new(),
        }
    }

    /// Whether a change stays in this shard.
    fn check_alone(&self) -> Result<()> {
        if self.records.uniques().is_empty() {
            Ok(())
        } else {
            Err(Error::UniqueElsewhere)
        }
    }

    /// Lends the image of a record.
    fn with_image<T>(
        &mut self,
        record: &R,
        work: impl FnOnce(&mut Local<'a>, &Image<'_>) -> Result<T>,
    ) -> Result<T> {
        self.words.clear();
        self.records.codec().write(record, &mut self.words)?;
        match Image::split(&self.words) {
            Some((image, _)) => work(&mut self.inner, &image),
            None => Err(Error::KeyShape),
        }
    }

    /// Lends an image with only a key.
    fn with_key<T>(
        &mut self,
        key: impl Key,
        work: impl FnOnce(&mut Local<'a>, &Image<'_>) -> Result<T>,
    ) -> Result<T> {
        self.words.clear();
        let shape = self.records.shape();
        write_wanted(shape, &shape.key, &key, &mut self.words)?;
        match Image::split(&self.words) {
            Some((image, _)) => work(&mut self.inner, &image),
            None => Err(Error::KeyShape),
        }
    }

    /// Adds a record; [`Error::DuplicateKey`] if there is one with its key, which must belong to this
    /// shard.
    pub fn insert(&mut self, record: &R) -> Result<()> {
        self.check_alone()?;
        self.with_image(record, |local, image| local.insert(image))
    }

    /// The record with a key, if there is one.
    pub fn get(&mut self, key: impl Key) -> Result<Option<R>> {
        let codec = self.records.codec();
        self.with_key(key, |local, wanted| match local.find(wanted) {
            Some(place) => codec.load(local.part.values(local.arena, place)).map(Some),
            None => Ok(None),
        })
    }

    /// Replaces the record with the same key; says whether there was one.
    pub fn replace(&mut self, record: &R) -> Result<bool> {
        self.check_alone()?;
        self.with_image(record, |local, image| local.replace(image))
    }

    /// Replaces the record with the same key, or adds it; says whether there was one.
    pub fn upsert(&mut self, record: &R) -> Result<bool> {
        self.check_alone()?;
        self.with_image(record, |local, image| local.upsert(image))
    }

    /// Changes the record with a key; says whether there was one. The key must stay as it is.
    pub fn update(&mut self, key: impl Key, change: impl FnOnce(&mut R)) -> Result<bool> {
        let Some(mut record) = self.get(key)? else {
            return Ok(false);
        };
        let before = self.key_of(&record)?;
        change(&mut record);
        if self.key_of(&record)? != before {
            return Err(Error::KeyChanged);
        }
        self.replace(&record)
    }

    /// The hash of a record's key: another key with the same one is not found, and so not changed.
    fn key_of(&mut self, record: &R) -> Result<u64> {
        self.with_image(record, |local, image| {
            Ok(hash_of(&local.part.shape().key, image))
        })
    }

    /// Removes the record with a key; says whether there was one.
    pub fn delete(&mut self, key: impl Key) -> Result<bool> {
        self.check_alone()?;
        self.with_key(key, |local, wanted| local.delete(wanted))
    }

    /// The records of this shard that have these values of an index's fields.
    pub fn find(&mut self, index: &str, values: impl Key) -> Result<Vec<R>> {
        let IndexPlace::Local(index) = self.records.index(index)? else {
            return Err(Error::UniqueElsewhere);
        };
        let (codec, shape) = (self.records.codec(), self.records.shape());
        self.words.clear();
        write_wanted(shape, &shape.indexes[index], &values, &mut self.words)?;
        let Some((wanted, _)) = Image::split(&self.words) else {
            return Ok(Vec::new());
        };
        let Local { part, arena, .. } = &self.inner;
        part.find_by(arena, index, &wanted)?
            .map(|place| codec.load(part.values(arena, place)))
            .collect()
    }

    /// Every record of this shard, in the order of their places.
    pub fn scan(&self) -> impl Iterator<Item = Result<R>> {
        let (codec, Local { part, arena, .. }) = (self.records.codec(), &self.inner);
        part.scan(0..u32::MAX)
            .map(move |place| codec.load(part.values(arena, place)))
    }

    /// Bytes of this table's records with their texts, and of its indexes, in this shard.
    pub fn bytes(&self) -> (u64, u64) {
        let space = self.inner.part.space(self.inner.arena);
        (space.row_bytes + space.text_bytes, space.index_bytes)
    }

    /// Records of this shard.
    pub fn count(&self) -> u64 {
        self.inner.count()
    }
}
