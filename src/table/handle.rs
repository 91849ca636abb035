//! What a program holds of a table.

use std::fmt;
use std::sync::Arc;

use super::{Row, Schema, Width};
use crate::error::{Error, Result, TableError};
use crate::id::{RowId, TableKey};

/// A table, with rows of type `R`: made by [`Engine::create_table`](crate::Engine::create_table) or
/// [`Engine::open_table`](crate::Engine::open_table), used with a session, a resident or a context.
///
/// A handle is cheap to clone and may be shared by threads. After the table is dropped it finds
/// nothing ([`Error::TableGone`]), even when a table of the same name is created.
pub struct Table<R: Row> {
    key: TableKey,
    width: R::Width,
    facts: Arc<Facts>,
}

struct Facts {
    name: String,
    schema: Schema,
}

impl<R: Row> Table<R> {
    pub(crate) fn new(key: TableKey, name: &str, schema: &Schema) -> Result<Self, TableError> {
        let width = schema.width_of::<R>(name)?;
        let facts = Arc::new(Facts {
            name: name.to_owned(),
            schema: schema.clone(),
        });
        Ok(Self { key, width, facts })
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.facts.name
    }

    /// The table's columns.
    pub fn schema(&self) -> &Schema {
        &self.facts.schema
    }

    #[inline]
    pub(crate) fn key(&self) -> TableKey {
        self.key
    }

    #[inline]
    pub(crate) fn width(&self) -> R::Width {
        self.width
    }

    #[inline]
    pub(crate) fn is_keyed(&self) -> bool {
        self.facts.schema.is_keyed()
    }

    /// Whether rows of this table have ids of this kind.
    #[inline]
    pub(crate) fn check_id<I: RowId>(&self) -> Result<()> {
        if I::KEYED && !self.is_keyed() {
            Err(Error::NotKeyed)
        } else {
            Ok(())
        }
    }

    /// Whether rows are inserted with ids of this kind.
    #[inline]
    pub(crate) fn check_insert<I: RowId>(&self) -> Result<()> {
        if !I::KEYED && self.is_keyed() {
            Err(Error::KeyNeeded)
        } else {
            self.check_id::<I>()
        }
    }

    /// Whether a row has the table's width, which only rows of dynamic width can lack.
    #[inline]
    pub(crate) fn check_row(&self, row: &R) -> Result<()> {
        let (given, columns) = (row.columns(), self.width.cells());
        if given == columns {
            Ok(())
        } else {
            Err(Error::Width { given, columns })
        }
    }
}

impl<R: Row> Clone for Table<R> {
    fn clone(&self) -> Self {
        Self {
            key: self.key,
            width: self.width,
            facts: Arc::clone(&self.facts),
        }
    }
}

impl<R: Row> fmt::Debug for Table<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("name", &self.facts.name)
            .field("schema", &self.facts.schema)
            .finish()
    }
}
