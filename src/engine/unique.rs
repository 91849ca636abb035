//! Making a unique index of a table in use.
//!
//! A unique index is a table of its own, whose records are the entries: the values, and the key of the
//! record that has them. While it is made,
//! 1. every shard notes the entries of records that change ([`watch`](crate::table)),
//! 2. the records are scanned, and their entries made,
//! 3. what was noted is looked up again, until little is new; an entry of what is not there any more goes,
//! 4. the table gets another stamp in every shard, so that nobody changes records without their entries
//!    any more; then the rest of what was noted is looked up, and the index counts.
//!
//! Entries are made and removed by this one thread, after what it has read of their records; so one that
//! is outdated has been noted since. The index is in the list of tables once it is whole: after a crash
//! before that, its entries are left over, and go when the database is opened ([`Engine::drop_orphans`]).

use std::ops::ControlFlow;
use std::sync::Arc;

use super::alter::{Progress, record_shape};
use super::directory::StoredTable;
use super::registry::{Registry, TableSchema};
use super::{ENTRIES, Engine, entry_tables, indexed_table};
use crate::error::{Error, TableError};
use crate::id::TableKey;
use crate::limits::RECORDS_PER_CALL;
use crate::session::{Isolation, Session, TransactionOptions, Verbs};
use crate::shard::split;
use crate::table::{Codec, IndexSchema, RecordSchema, Records, Shape, Value};

/// So few changes are looked up while nobody can make more.
const FEW: usize = 1_000;
/// How often what was noted is looked up before the end is made, however much it is.
const ROUNDS: usize = 64;

/// A record of unknown type, and an entry of an index: its values, and the key of its record.
type Values = Vec<Value>;

/// A unique index that is being made.
struct Making<'e> {
    engine: &'e Engine,
    index: &'e IndexSchema,
    /// Of the table with the index.
    schema: RecordSchema,
    /// The table, which has another key at the end.
    records: Records<Values>,
    entries: Records<Values>,
    session: Session,
}

impl Engine {
    /// Adds a unique index to a table of records, while others use it.
    pub(super) fn add_unique(
        &self,
        name: &str,
        index: &IndexSchema,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), TableError> {
        let (_, TableSchema::Records(mut schema)) = self.registry.find(name)? else {
            return Err(TableError::Missing(name.to_owned()));
        };
        schema.push_index(index.clone());
        let entries = format!("{ENTRIES}{name}{ENTRIES}{}", index.name);
        if self.registry.find(&entries).is_ok() {
            self.drop_one(&entries)?;
        }
        let entries_schema = schema.entries_of(index);
        let entries_key = self.create(&entries, TableSchema::Records(entries_schema.clone()), 0)?;
        let made = self.registry.alter(name, |key, found| {
            let is_same =
                matches!(found, TableSchema::Records(found) if found.is_all_but_last_of(&schema));
            if !is_same {
                return Err(TableError::Busy { shard: 0 });
            }
            let making = Making {
                engine: self,
                index,
                records: Records::new(key, name, &schema, &[]),
                entries: Records::new(entries_key, &entries, &entries_schema, &[]),
                schema,
                session: self.session().map_err(storage)?,
            };
            let (key, schema) = making.run(progress)?;
            Ok((key, TableSchema::Records(schema), ()))
        });
        if made.is_err() {
            self.drop_one(&entries)?;
        }
        made
    }

    /// Drops the entries of unique indexes that are none: their making, or dropping, was interrupted.
    pub(super) fn drop_orphans(&self) -> Result<(), TableError> {
        for name in self.registry.names() {
            let Some(table) = indexed_table(&name) else {
                continue;
            };
            let is_used = match self.registry.find(table) {
                Ok((_, TableSchema::Records(schema))) => {
                    entry_tables(table, &schema).any(|(entries, _)| entries == name)
                }
                _ => false,
            };
            if !is_used {
                self.drop_one(&name)?;
            }
        }
        Ok(())
    }
}

fn storage(error: Error) -> TableError {
    TableError::Storage(error.to_string())
}

impl Making<'_> {
    /// Makes the index; the table's key and schema then.
    fn run(
        mut self,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(TableKey, RecordSchema), TableError> {
        let old = self.records.key();
        let new = TableKey {
            stamp: Registry::next_stamp(),
            ..old
        };
        let made = self.watch().and_then(|()| self.make(new, progress));
        let kept = if made.is_ok() { new } else { old };
        self.engine.ask_every_shard(move |shard| {
            shard.catalog.restamp(new, kept);
            if let Ok((part, _)) = shard.catalog.records(kept) {
                part.end_watch();
            }
        })?;
        made.map(|()| (new, self.schema))
    }

    fn make(
        &mut self,
        new: TableKey,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), TableError> {
        self.scan(progress)?;
        for _ in 0..ROUNDS {
            if self.look_up_noted()? < FEW {
                break;
            }
        }
        let old = self.records.key();
        self.engine
            .ask_unclaimed(move |shard| shard.catalog.restamp(old, new))?;
        self.records = Records::new(new, self.records.name(), &self.schema, &[]);
        self.look_up_noted()?;
        let table = StoredTable {
            schema: TableSchema::Records(self.schema.clone()),
            ..self.stored(old)
        };
        let shape = record_shape(&table);
        self.engine.note_altered(&table)?;
        self.engine.ask_every_shard(move |shard| {
            if let Ok((part, _)) = shard.catalog.records(new) {
                part.set_shape(Arc::clone(&shape));
            }
        })?;
        Ok(())
    }

    /// The table without the index, as the list of tables has it.
    fn stored(&self, key: TableKey) -> StoredTable {
        let mut schema = self.schema.clone();
        schema.remove_index(self.index);
        self.engine.stored(self.records.name(), key, &schema)
    }

    fn watch(&self) -> Result<(), TableError> {
        let spots = self.records.shape().uniques.last().cloned();
        let (spots, shape) = (spots.unwrap_or_default(), self.entries.shape().clone());
        let key = self.records.key();
        self.engine.ask_unclaimed(move |shard| {
            if let Ok((part, _)) = shard.catalog.records(key) {
                part.watch(&spots, &shape);
            }
        })
    }

    /// Makes the entries of all records.
    fn scan(&mut self, progress: &mut impl FnMut(Progress)) -> Result<(), TableError> {
        let mut reader = self.engine.session().map_err(storage)?;
        let records = self.records.clone();
        let mut records = reader.records(&records);
        let total = records.count().map_err(storage)?;
        let (mut done, mut entries, mut made) = (0, Vec::new(), Ok(()));
        progress(Progress { done, total });
        let scanned = records.scan(|record| {
            done += 1;
            entries.extend(self.entry_of(&record));
            if entries.len() < RECORDS_PER_CALL {
                return ControlFlow::Continue(());
            }
            made = self.add(&mut entries);
            progress(Progress {
                done: done.min(total),
                total,
            });
            match made {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });
        scanned.map_err(storage)?;
        made?;
        self.add(&mut entries)?;
        progress(Progress { done: total, total });
        Ok(())
    }

    /// The entry of a record, if it has one.
    fn entry_of(&self, record: &Values) -> Option<Values> {
        let of_index = self.index.fields.iter();
        let has_all = of_index
            .clone()
            .all(|&field| record[field] != Value::Nothing);
        let fields = of_index.chain(self.schema.key_fields());
        has_all.then(|| fields.map(|&field| record[field].clone()).collect())
    }

    /// Adds entries that may be outdated.
    fn add(&mut self, entries: &mut Vec<Values>) -> Result<(), TableError> {
        let mut refused = Vec::new();
        let mut added = self.session.records(&self.entries);
        added
            .insert_each(entries, |number| refused.push(number))
            .map_err(storage)?;
        for number in refused {
            self.look_up(&entries[number])?;
        }
        entries.clear();
        Ok(())
    }

    /// Looks up the records whose entries were noted; says how many there were.
    fn look_up_noted(&mut self) -> Result<usize, TableError> {
        let key = self.records.key();
        let noted = self.engine.ask_every_shard(move |shard| {
            let part = shard.catalog.records(key);
            part.map_or_else(|_| Vec::new(), |(part, _)| part.take_noted())
        })?;
        let shape: Shape = self.entries.shape().clone();
        let codec = Codec::<Values>::new(&shape);
        let mut count = 0;
        for words in noted {
            for image in split(&words) {
                let entry = codec.read(image).map_err(storage)?;
                self.look_up(&entry)?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Brings the entries in line with the record that an entry names, as it is now: the given one goes
    /// if it is not the record's, and the one that is comes.
    fn look_up(&mut self, entry: &Values) -> Result<(), TableError> {
        let (values, key) = entry.split_at(self.index.fields.len());
        let record = self.session.records(&self.records).get(key);
        let current = record.map_err(storage)?;
        let current = current.and_then(|record| self.entry_of(&record));
        if current.as_ref() != Some(entry) {
            let mut entries = self.session.records(&self.entries);
            if entries.get(values).map_err(storage)?.as_ref() == Some(entry) {
                entries.delete(values).map_err(storage)?;
            }
        }
        let Some(current) = current else {
            return Ok(());
        };
        let (values, _) = current.split_at(self.index.fields.len());
        let found = self.session.records(&self.entries).get(values);
        match found.map_err(storage)? {
            Some(found) if found == current => return Ok(()),
            Some(found) => self.check_unique(&current, &found)?,
            None => {}
        }
        let mut entries = self.session.records(&self.entries);
        entries.upsert(&current).map(drop).map_err(storage)
    }

    /// Whether two records, by their entries, have the same values at one moment.
    fn check_unique(&mut self, one: &Values, other: &Values) -> Result<(), TableError> {
        let count = self.index.fields.len();
        let (values, one_key) = one.split_at(count);
        let (_, other_key) = other.split_at(count);
        let options = TransactionOptions::new(Isolation::Serializable);
        let records = &self.records;
        let both = self.session.transaction_with(options, |transaction| {
            let mut records = transaction.records(records);
            Ok::<_, Error>([records.get(one_key)?, records.get(other_key)?])
        });
        let has_values = |record: &Option<Values>| {
            let entry = record.as_ref().and_then(|record| self.entry_of(record));
            entry.is_some_and(|entry| entry[..count] == *values)
        };
        if both.map_err(storage)?.iter().all(has_values) {
            return Err(TableError::NotUnique {
                index: self.index.name.clone(),
                values: shown(values),
                keys: [shown(one_key), shown(other_key)],
            });
        }
        Ok(())
    }
}

/// Values, for people.
fn shown(values: &[Value]) -> String {
    const LETTERS_MAX: usize = 100;
    let values: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    let shown = values.join(", ");
    match shown.char_indices().nth(LETTERS_MAX) {
        Some((end, _)) => format!("{}..", &shown[..end]),
        None => shown,
    }
}
