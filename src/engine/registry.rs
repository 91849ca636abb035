//! The names of the tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::TableError;
use crate::id::TableKey;
use crate::limits::TABLES_MAX;
use crate::table::Schema;

/// What a table is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Its name.
    pub name: String,
    /// Its columns.
    pub schema: Schema,
}

/// Stamps are unique in the process, so that no two tables of any engines share one.
static NEXT_STAMP: AtomicU32 = AtomicU32::new(1);

#[derive(Default)]
pub(super) struct Registry {
    /// Held while shards create or drop their parts, so that those happen one at a time. Never taken
    /// inside a shard, for which its holder may be waiting.
    changes: Mutex<()>,
    /// Held for a look or an entry, and never while anything is waited for.
    tables: Mutex<BTreeMap<String, (TableKey, Schema)>>,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (TableKey, Schema)>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn create(
        &self,
        name: &str,
        schema: &Schema,
        make: impl FnOnce(TableKey) -> Result<(), TableError>,
    ) -> Result<TableKey, TableError> {
        let _change = self.change();
        let key = TableKey {
            index: self.free_index(name)?,
            stamp: NEXT_STAMP.fetch_add(1, Ordering::Relaxed),
        };
        make(key)?;
        self.lock().insert(name.to_owned(), (key, schema.clone()));
        Ok(key)
    }

    /// A place in the catalog for a table of this name, if there is none.
    fn free_index(&self, name: &str) -> Result<u32, TableError> {
        let tables = self.lock();
        if tables.contains_key(name) {
            return Err(TableError::Exists(name.to_owned()));
        }
        let used: BTreeSet<u32> = tables.values().map(|(key, _)| key.index).collect();
        let free = (0..TABLES_MAX as u32).find(|index| !used.contains(index));
        free.ok_or(TableError::TooMany)
    }

    pub(super) fn find(&self, name: &str) -> Result<(TableKey, Schema), TableError> {
        self.lock()
            .get(name)
            .cloned()
            .ok_or_else(|| TableError::Missing(name.to_owned()))
    }

    pub(super) fn remove(
        &self,
        name: &str,
        drop_parts: impl FnOnce(TableKey) -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        let _change = self.change();
        let (key, _) = self.find(name)?;
        drop_parts(key)?;
        self.lock().remove(name);
        Ok(())
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
