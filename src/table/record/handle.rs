//! What a program holds of a table of records.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::shape::{RecordSchema, Shape};
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
}

impl<R: Record> Records<R> {
    pub(crate) fn new(key: TableKey, name: &str, schema: &RecordSchema) -> Self {
        let facts = Arc::new(Facts {
            name: name.to_owned(),
            schema: schema.clone(),
            shape: Shape::new(schema),
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

    /// The number of an index.
    pub(crate) fn index(&self, name: &str) -> Result<usize> {
        let mut indexes = self.facts.schema.indexes().iter();
        indexes
            .position(|index| index.name == name)
            .ok_or_else(|| Error::IndexMissing {
                name: name.to_owned(),
            })
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
