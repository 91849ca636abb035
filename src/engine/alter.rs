//! Changing what the records of a table are: more fields, more or fewer indexes.
//!
//! # Fields
//! A table with more fields is a copy, made shard by shard, each in one stop; the manifest then names
//! the copy instead of the original, so a crash leaves the one or the other.
//!
//! # Indexes
//! An index is built while others work: some slots at a time, and whoever changes a record enters it
//! where its slot is done already. It is in the manifest once it is whole. Unique ones are tables of their
//! own ([`unique`](super::unique)).

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::directory::StoredTable;
use super::registry::{Registry, TableSchema};
use super::{Engine, entry_tables};
use crate::error::{Error, TableError};
use crate::id::{ShardIndex, TableKey};
use crate::limits::BUILD_SLOTS;
use crate::shard::{Content, Shard, TableShape};
use crate::table::{IndexSchema, Record, RecordSchema, RecordShape, Records, Shape};

/// How often a moment without transactions under way is looked for in each shard, and how long others go
/// on meanwhile.
const BUSY_TRIES: u32 = 2_000;
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// How far a long change has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Units done: slots of records.
    pub done: u64,
    /// Units in all.
    pub total: u64,
}

impl Engine {
    /// Gives a table of records the fields and indexes of another type, and tells how far it has come.
    ///
    /// Fields may be added at the end; in the records that are there they have the values that they have
    /// in `template`. Indexes may be added and dropped; the key and the other fields stay as they are.
    /// While an index is built others work on; a table that gets more fields is copied, each shard in one
    /// stop, and needs room for both. A unique index is refused with [`TableError::NotUnique`] if two
    /// records have the same values; after one was added, or any index dropped, or fields added, old
    /// handles of the table find nothing ([`Error::TableGone`]). When a step fails, those before it stay:
    /// first indexes are dropped, then fields added, then indexes.
    pub fn alter_records<R: Record>(
        &self,
        name: &str,
        template: &R,
        mut progress: impl FnMut(Progress),
    ) -> Result<Records<R>, TableError> {
        self.check_usable()?;
        let wanted = R::schema();
        wanted.check()?;
        let dropped = self.registry.alter(name, |key, schema| {
            let TableSchema::Records(schema) = schema else {
                return Err(differs::<R>(name, "the table has rows, not records"));
            };
            if let Some(difference) = schema.hindrance(&wanted) {
                return Err(differs::<R>(name, &difference));
            }
            let mut altered = (key, self.stored(name, key, schema));
            let done = self.take_steps(&mut altered, schema, &wanted, template, &mut progress);
            let (key, table) = altered;
            let entries = |schema: &TableSchema| match schema {
                TableSchema::Records(schema) => entry_tables(name, schema).collect(),
                _ => Vec::new(),
            };
            let (before, after) = (entry_tables(name, schema), entries(&table.schema));
            let dropped: Vec<_> = before.filter(|entries| !after.contains(entries)).collect();
            Ok((key, table.schema, done.map(|()| dropped)))
        })??;
        for (entries, _) in dropped {
            self.drop_one(&entries)?;
        }
        for index in wanted.indexes() {
            if !index.kind.is_local() && !self.records_schema(name)?.indexes().contains(index) {
                self.add_unique(name, index, &mut progress)?;
            }
        }
        let (key, _) = self.registry.find(name)?;
        self.handle(key, name, &self.records_schema(name)?)
    }

    fn records_schema(&self, name: &str) -> Result<RecordSchema, TableError> {
        match self.registry.find(name)? {
            (_, TableSchema::Records(schema)) => Ok(schema),
            _ => Err(TableError::Missing(name.to_owned())),
        }
    }

    /// Takes one step after the other; those that are done are in `altered`.
    fn take_steps<R: Record>(
        &self,
        altered: &mut (TableKey, StoredTable),
        schema: &RecordSchema,
        wanted: &RecordSchema,
        template: &R,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), TableError> {
        for index in schema.indexes() {
            if !wanted.indexes().contains(index) {
                let mut table = altered.1.clone();
                *altered = (self.drop_index(altered.0, &mut table, index)?, table);
            }
        }
        if wanted.fields().len() > schema.fields().len() {
            let mut table = altered.1.clone();
            *altered = (
                self.add_fields(altered.0, &mut table, wanted, template)?,
                table,
            );
        }
        for index in wanted.indexes() {
            if index.kind.is_local() && !schema.indexes().contains(index) {
                self.add_index(altered.0, &mut altered.1, index, progress)?;
            }
        }
        Ok(())
    }

    /// A table, as the manifest has it.
    pub(super) fn stored(&self, name: &str, key: TableKey, schema: &RecordSchema) -> StoredTable {
        let directory = self.directory.as_ref();
        directory
            .and_then(|directory| directory.table(name))
            .unwrap_or_else(|| StoredTable {
                name: name.to_owned(),
                serial: key.stamp,
                schema: TableSchema::Records(schema.clone()),
                index_serials: vec![key.stamp; Shape::new(schema).indexes.len()],
            })
    }

    pub(super) fn note_altered(&self, table: &StoredTable) -> Result<(), TableError> {
        match &self.directory {
            None => Ok(()),
            Some(directory) => self.change_tables(directory, |tables| {
                if let Some(old) = tables.iter_mut().find(|old| old.name == table.name) {
                    *old = table.clone();
                }
            }),
        }
    }

    fn drop_index(
        &self,
        key: TableKey,
        table: &mut StoredTable,
        index: &IndexSchema,
    ) -> Result<TableKey, TableError> {
        let TableSchema::Records(schema) = &mut table.schema else {
            return Ok(key);
        };
        let Some(number) = schema.remove_index(index) else {
            return Ok(key);
        };
        let is_local = index.kind.is_local();
        if is_local {
            table.index_serials.remove(number);
        }
        let shape = record_shape(table);
        // Old handles know the indexes by other numbers. Whoever has prepared something has done so for the
        // table as it was: nobody may have, when it gets its new stamp.
        let new = TableKey {
            stamp: Registry::next_stamp(),
            ..key
        };
        let noted = self
            .ask_unclaimed(move |shard| shard.catalog.restamp(key, new))
            .and_then(|()| self.note_altered(table));
        if let Err(error) = noted {
            self.ask_every_shard(move |shard| shard.catalog.restamp(new, key))?;
            return Err(error);
        }
        self.ask_every_shard(move |shard| match shard.catalog.records(new) {
            Ok((part, arena)) if is_local => part.drop_index(arena, number, Arc::clone(&shape)),
            Ok((part, _)) => part.set_shape(Arc::clone(&shape)),
            Err(_) => {}
        })?;
        Ok(new)
    }

    fn add_index(
        &self,
        key: TableKey,
        table: &mut StoredTable,
        index: &IndexSchema,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), TableError> {
        let serial = self.next_serials(key, 1)?;
        let TableSchema::Records(schema) = &mut table.schema else {
            return Ok(());
        };
        schema.push_index(index.clone());
        let number = table.index_serials.len();
        table.index_serials.extend(serial);
        let shape = record_shape(table);
        let built = self
            .begin_index(key, &shape)
            .and_then(|()| self.build(key, progress))
            .and_then(|()| self.note_altered(table));
        if built.is_ok() {
            return built;
        }
        if let TableSchema::Records(schema) = &mut table.schema {
            schema.remove_index(index);
        }
        table.index_serials.truncate(number);
        let shape = record_shape(table);
        self.ask_every_shard(move |shard| {
            if let Ok((part, arena)) = shard.catalog.records(key)
                && part.indexes() > number
            {
                part.drop_index(arena, number, Arc::clone(&shape));
            }
        })?;
        built
    }

    /// Adds the last index of a shape in every shard, without records, at a moment when nothing is
    /// prepared there: what is, has not been measured for an index that is not there yet.
    fn begin_index(&self, key: TableKey, shape: &Arc<RecordShape>) -> Result<(), TableError> {
        let shape = Arc::clone(shape);
        self.each_shard_unclaimed(move |shard| {
            let (part, arena) = shard.catalog.records(key)?;
            part.add_index(arena, Arc::clone(&shape))?;
            part.end_scope(arena);
            Ok(())
        })
    }

    /// Builds the index that was added last, in every shard.
    fn build(&self, key: TableKey, progress: &mut impl FnMut(Progress)) -> Result<(), TableError> {
        let mut total = 0;
        loop {
            let left = self.each_shard(move |shard| {
                let (part, arena) = shard.catalog.records(key)?;
                part.build(arena, BUILD_SLOTS)
            })?;
            let left: u64 = left.into_iter().map(u64::from).sum();
            total = total.max(left);
            let done = total - left;
            progress(Progress { done, total });
            if left == 0 {
                return Ok(());
            }
        }
    }

    fn add_fields<R: Record>(
        &self,
        key: TableKey,
        table: &mut StoredTable,
        wanted: &RecordSchema,
        template: &R,
    ) -> Result<TableKey, TableError> {
        let TableSchema::Records(schema) = &mut table.schema else {
            return Ok(key);
        };
        schema.take_fields(wanted);
        let mut serials = self.next_serials(key, 1 + table.index_serials.len())?;
        table.serial = serials.remove(0);
        table.index_serials = serials;
        let mut words = Vec::new();
        let own = Shape::new(wanted);
        crate::table::Codec::new(&own)
            .write(template, &mut words)
            .map_err(|error| TableError::Template(error.to_string()))?;
        let new = TableKey {
            stamp: Registry::next_stamp(),
            ..key
        };
        let shape = TableShape {
            key: new,
            serial: table.serial,
            content: Content::Records(record_shape(table)),
        };
        let words: Arc<[u64]> = words.into();
        let copied = self
            .each_shard_unclaimed(move |shard| {
                let index = shard.index;
                shard.catalog.copy_records(key, &shape, index, &words)
            })
            .and_then(|()| self.note_altered(table));
        let is_kept = copied.is_ok();
        self.ask_every_shard(move |shard| shard.catalog.settle_copy(key, is_kept))?;
        copied.map(|()| new)
    }

    /// As [`ask_every_shard`](Self::ask_every_shard), where a shard may fail.
    fn each_shard<T: Send + 'static>(
        &self,
        question: impl Fn(&mut Shard) -> Result<T, Error> + Send + Sync + Clone + 'static,
    ) -> Result<Vec<T>, TableError> {
        let answers = self.ask_every_shard(question)?;
        let answers = answers.into_iter().enumerate();
        answers
            .map(|(shard, answer)| answer.map_err(|error| refused(shard, error)))
            .collect()
    }

    /// Runs something once on every shard, each at a moment when no transaction has anything prepared there.
    /// An error is of the first shard where it fails, or where there is no such moment; others may have
    /// done it.
    fn each_shard_unclaimed(
        &self,
        question: impl Fn(&mut Shard) -> Result<(), Error> + Send + Sync + Clone + 'static,
    ) -> Result<(), TableError> {
        let mut left = vec![true; self.shards()];
        for _ in 0..BUSY_TRIES {
            let (question, asked) = (question.clone(), left.clone());
            let answers = self.ask_every_shard(move |shard| {
                let is_time = asked[shard.index] && shard.is_unclaimed();
                is_time.then(|| question(shard))
            })?;
            for (shard, answer) in answers.into_iter().enumerate() {
                if let Some(answer) = answer {
                    left[shard] = false;
                    answer.map_err(|error| refused(shard, error))?;
                }
            }
            if !left.contains(&true) {
                return Ok(());
            }
            thread::sleep(BUSY_PAUSE);
        }
        let shard = left.iter().position(|is_left| *is_left).unwrap_or(0);
        Err(TableError::Busy { shard })
    }

    /// As [`each_shard_unclaimed`](Self::each_shard_unclaimed), of what cannot fail.
    pub(super) fn ask_unclaimed(
        &self,
        question: impl Fn(&mut Shard) + Send + Sync + Clone + 'static,
    ) -> Result<(), TableError> {
        self.each_shard_unclaimed(move |shard| {
            question(shard);
            Ok(())
        })
    }
}

/// Why a shard did not change a table.
fn refused(shard: ShardIndex, error: Error) -> TableError {
    match error {
        Error::ArenaFull(full) => TableError::ArenaFull { shard, full },
        Error::TableGone => TableError::Closed,
        Error::IndexedTooLong {
            index,
            bytes,
            limit,
        } => TableError::IndexedTooLong {
            index,
            bytes,
            limit,
        },
        other => TableError::Storage(other.to_string()),
    }
}

fn differs<R>(name: &str, difference: &str) -> TableError {
    TableError::Shape {
        table: name.to_owned(),
        row: std::any::type_name::<R>().to_owned(),
        difference: difference.to_owned(),
    }
}

pub(super) fn record_shape(table: &StoredTable) -> Arc<RecordShape> {
    let shape = match &table.schema {
        TableSchema::Records(schema) => Shape::new(schema),
        TableSchema::Rows(_) | TableSchema::Globals(_) => Shape::new(&RecordSchema::new()),
    };
    Arc::new(RecordShape {
        shape,
        index_serials: table.index_serials.clone(),
    })
}
