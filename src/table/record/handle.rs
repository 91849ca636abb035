//! What a program holds of a table of records.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::shape::{IndexKind, RecordSchema, Shape};
use super::typed::{Codec, Record};
use crate::error::{Error, Result};
use crate::id::TableKey;

/// A table of records of type `R`: made by
/// [`Engine::create_records`](crate::Engine::create_records) or
/// [`Engine::open_records`](crate::Engine::open_records), used with
/// [`Verbs::records`](crate::Verbs::records).
///
/// A handle is cheap to clone and may be shared by threads. After the table is dropped it finds nothing
/// ([`Error::TableGone`]), even when a table of the same name is created.
pub struct Records<R> {
    key: TableKey,
    facts: Arc<Facts>,
    record: PhantomData<fn() -> R>,
}

struct Facts {
    name: String,
    schema: RecordSchema,
    shape: Shape,
    uniques: Vec<Entries>,
}

/// The table of a unique index's entries.
#[derive(Debug)]
pub(crate) struct Entries {
    pub(crate) name: String,
    pub(crate) table: TableKey,
    pub(crate) shape: Shape,
}

/// Where an index finds its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexPlace {
    /// In every shard: the number of the index there.
    Local(usize),
    /// In a table of its own: the number among those.
    Unique(usize),
}

impl<R: Record> Records<R> {
    pub(crate) fn new(
        key: TableKey,
        name: &str,
        schema: &RecordSchema,
        uniques: &[TableKey],
    ) -> Self {
        let indexes = schema.indexes().iter();
        let unique = indexes.filter(|index| index.kind == IndexKind::Unique);
        let facts = Arc::new(Facts {
            name: name.to_owned(),
            schema: schema.clone(),
            shape: Shape::new(schema),
            uniques: unique
                .zip(uniques)
                .map(|(index, &table)| Entries {
                    name: index.name.clone(),
                    table,
                    shape: Shape::new(&schema.entries_of(index)),
                })
                .collect(),
        });
        Self {
            key,
            facts,
            record: PhantomData,
        }
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.facts.name
    }

    /// Fields, key and indexes.
    pub fn schema(&self) -> &RecordSchema {
        &self.facts.schema
    }

    pub(crate) fn key(&self) -> TableKey {
        self.key
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.facts.shape
    }

    pub(crate) fn codec(&self) -> Codec<'_, R> {
        Codec::new(self.shape())
    }

    /// The tables of the unique indexes.
    pub(crate) fn uniques(&self) -> &[Entries] {
        &self.facts.uniques
    }

    /// Where an index finds its records.
    pub(crate) fn index(&self, name: &str) -> Result<IndexPlace> {
        let (mut local, mut unique) = (0, 0);
        for index in self.facts.schema.indexes() {
            let (place, count) = match index.kind {
                IndexKind::Hash | IndexKind::Ordered => (IndexPlace::Local(local), &mut local),
                IndexKind::Unique => (IndexPlace::Unique(unique), &mut unique),
            };
            if index.name == name {
                return Ok(place);
            }
            *count += 1;
        }
        Err(Error::IndexMissing {
            name: name.to_owned(),
        })
    }
}

impl<R: Record> Records<R> {
    /// The number of an index whose records have an order.
    pub(crate) fn ordered(&self, name: &str) -> Result<usize> {
        let IndexPlace::Local(index) = self.index(name)? else {
            return Err(Error::IndexUnordered {
                name: name.to_owned(),
            });
        };
        match self.shape().index_kinds[index].1 {
            IndexKind::Ordered => Ok(index),
            IndexKind::Hash | IndexKind::Unique => Err(Error::IndexUnordered {
                name: name.to_owned(),
            }),
        }
    }
}

impl<R> Clone for Records<R> {
    fn clone(&self) -> Self {
        Self {
            key: self.key,
            facts: Arc::clone(&self.facts),
            record: PhantomData,
        }
    }
}

impl<R> fmt::Debug for Records<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records")
            .field("name", &self.facts.name)
            .field("schema", &self.facts.schema)
            .finish()
    }
}
