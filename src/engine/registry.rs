//! The names of the tables.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::TableError;
use crate::id::TableKey;
use crate::limits::TABLES_MAX;
use crate::table::{RecordSchema, Routing, Schema};

/// What a table is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub schema: TableSchema,
}

/// What a table holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableSchema {
    /// Rows of 8-byte columns.
    Rows(Schema),
    /// Records.
    Records(RecordSchema),
    /// Globals.
    Globals(Routing),
}

/// Stamps are unique in the process, so that no two tables of any engines share one.
static NEXT_STAMP: AtomicU32 = AtomicU32::new(1);

#[derive(Default)]
pub(super) struct Registry {
    /// Held while shards create or drop their parts, so that those happen one at a time. Never taken
    /// inside a shard, for which its holder may be waiting.
    changes: Mutex<Places>,
    /// Held for a look or an entry, and never while anything is waited for.
    tables: Mutex<BTreeMap<String, (TableKey, TableSchema)>>,
}

/// Places of the catalog.
#[derive(Default)]
struct Places {
    /// Places of dropped tables.
    free: Vec<u32>,
    /// Places given out so far.
    used: u32,
}

impl Places {
    fn take(&mut self) -> Result<u32, TableError> {
        if let Some(index) = self.free.pop() {
            return Ok(index);
        }
        if self.used as usize == TABLES_MAX {
            return Err(TableError::TooMany);
        }
        self.used += 1;
        Ok(self.used - 1)
    }
}

impl Registry {
    /// A registry of tables that exist; the key of each, in order.
    pub(super) fn of<'a>(
        tables: impl Iterator<Item = (&'a str, &'a TableSchema)>,
    ) -> Result<(Self, Vec<TableKey>), TableError> {
        let registry = Self::default();
        let mut keys = Vec::new();
        for (name, schema) in tables {
            keys.push(registry.create(name, schema, |_| Ok(()))?);
        }
        Ok((registry, keys))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (TableKey, TableSchema)>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> MutexGuard<'_, Places> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn create(
        &self,
        name: &str,
        schema: &TableSchema,
        make: impl FnOnce(TableKey) -> Result<(), TableError>,
    ) -> Result<TableKey, TableError> {
        let mut places = self.change();
        if self.lock().contains_key(name) {
            return Err(TableError::Exists(name.to_owned()));
        }
        let key = TableKey {
            index: places.take()?,
            stamp: NEXT_STAMP.fetch_add(1, Ordering::Relaxed),
        };
        if let Err(error) = make(key) {
            places.free.push(key.index);
            return Err(error);
        }
        self.lock().insert(name.to_owned(), (key, schema.clone()));
        Ok(key)
    }

    pub(super) fn find(&self, name: &str) -> Result<(TableKey, TableSchema), TableError> {
        self.lock()
            .get(name)
            .cloned()
            .ok_or_else(|| TableError::Missing(name.to_owned()))
    }

    /// Changes what a table holds, while no other is created or dropped; its key and schema are then
    /// what `change` says.
    pub(super) fn alter<T>(
        &self,
        name: &str,
        change: impl FnOnce(TableKey, &TableSchema) -> Result<(TableKey, TableSchema, T), TableError>,
    ) -> Result<T, TableError> {
        let _places = self.change();
        let (key, schema) = self.find(name)?;
        let (key, schema, value) = change(key, &schema)?;
        self.lock().insert(name.to_owned(), (key, schema));
        Ok(value)
    }

    /// A stamp that no table has had.
    pub(super) fn next_stamp() -> u32 {
        NEXT_STAMP.fetch_add(1, Ordering::Relaxed)
    }

    /// The name of the table at a place.
    pub(super) fn name_of(&self, index: u32) -> Option<String> {
        let tables = self.lock();
        let mut named = tables.iter().filter(|(_, (key, _))| key.index == index);
        named.next().map(|(name, _)| name.clone())
    }

    pub(super) fn remove(
        &self,
        name: &str,
        drop_parts: impl FnOnce(TableKey) -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        let mut places = self.change();
        let (key, _) = self.find(name)?;
        drop_parts(key)?;
        self.lock().remove(name);
        places.free.push(key.index);
        Ok(())
    }

    /// The names of all tables, those of entries among them.
    pub(super) fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    pub(super) fn tables(&self) -> Vec<TableInfo> {
        let tables = self.lock();
        tables
            .iter()
            .map(|(name, (_, schema))| TableInfo {
                name: name.clone(),
                schema: schema.clone(),
            })
            .collect()
    }
}
