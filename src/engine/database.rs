//! An engine whose rows live in files: opened, told of its tables, synced.

use std::path::Path;
use std::sync::Arc;

use super::directory::{Directory, StoredTable};
use super::journaled::Recovered;
use super::registry::{Registry, TableSchema};
use super::thread::Memory;
use super::{Durability, Engine, unanswered};
use crate::error::{Error, OpenError, Result, TableError};
use crate::id::TableKey;
use crate::session::Acknowledge;
use crate::shard::{Content, Decisions, TableShape};
use crate::table::{RecordShape, Shape};

impl Engine {
    /// Opens the database in a directory, or makes one there: [`Durability::Process`], and what is not
    /// set fits the machine. More is said at [`EngineBuilder::open`](crate::EngineBuilder::open).
    ///
    /// ```
    /// use ancile::{Engine, Schema, SurrogateId, Verbs};
    ///
    /// # let directory = std::env::temp_dir().join(format!("ancile-doc-{}", std::process::id()));
    /// # let settings = || Engine::builder().shards(2).arena_bytes(64 << 20);
    /// let engine = settings().open(&directory)?;
    /// let accounts = engine.create_table::<[u64; 2]>("accounts", Schema::cells(2).keyed())?;
    /// engine.session()?.insert_keyed(&accounts, SurrogateId(7), &[100, 0])?;
    /// engine.close()?;
    ///
    /// let engine = settings().open(&directory)?;
    /// let accounts = engine.open_table::<[u64; 2]>("accounts")?;
    /// assert_eq!(engine.session()?.select(&accounts, SurrogateId(7))?, Some([100, 0]));
    /// # engine.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder().open(path)
    }

    /// What the engine's changes survive.
    pub fn durability(&self) -> Durability {
        match &self.directory {
            None => Durability::None,
            Some(directory) if directory.has_journal() => match self.peers.acknowledge {
                Acknowledge::Durable => Durability::Commit,
                _ => Durability::Epoch(self.interval),
            },
            Some(_) => Durability::Process,
        }
    }

    /// What a user of the engine should know about where it lies: one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let lies = self.directory.as_ref();
        let lies = lies.map_or_else(Vec::new, Directory::warnings);
        let asked = self
            .control
            .as_ref()
            .and_then(|control| control.as_ref().err());
        lies.into_iter().chain(asked.cloned()).collect()
    }

    /// Waits until all that was acknowledged before is on the disk. A database that is not closed
    /// afterwards is refused all the same when the system goes down: copy its directory, if that is
    /// what you want to come back to.
    pub fn sync(&self) -> Result<()> {
        match &self.directory {
            None => return Ok(()),
            Some(directory) if directory.has_journal() => return self.flush(),
            Some(_) => {}
        }
        let synced = self.ask_every_shard(|shard| shard.sync());
        let synced = synced.map_err(unanswered)?;
        synced
            .into_iter()
            .collect::<Result<(), String>>()
            .map_err(Error::Storage)
    }

    /// The numbers that a new table, and its indexes, have for ever.
    pub(super) fn next_serials(&self, key: TableKey, count: usize) -> Result<Vec<u32>, TableError> {
        match &self.directory {
            // In memory nobody ever asks for them again.
            None => Ok(vec![key.stamp; count]),
            Some(directory) if directory.is_read_only() => Err(TableError::ReadOnly),
            Some(directory) => directory.next_serials(count),
        }
    }

    pub(super) fn note_created(&self, table: StoredTable) -> Result<(), TableError> {
        match &self.directory {
            None => Ok(()),
            Some(directory) => self.change_tables(directory, |tables| tables.push(table)),
        }
    }

    pub(super) fn note_dropped(&self, name: &str) -> Result<(), TableError> {
        match &self.directory {
            None => Ok(()),
            Some(directory) if directory.is_read_only() => Err(TableError::ReadOnly),
            Some(directory) => self.change_tables(directory, |tables| {
                tables.retain(|table| table.name != name)
            }),
        }
    }

    /// Changes the list of tables, where it is kept.
    pub(super) fn change_tables(
        &self,
        directory: &Directory,
        change: impl FnOnce(&mut Vec<StoredTable>),
    ) -> Result<(), TableError> {
        directory.change(change, |text| {
            let noted = self.ask_shard(0, move |shard| shard.note_tables(&text))?;
            noted.map_err(|full| TableError::ArenaFull { shard: 0, full })
        })?;
        self.flush()
            .map_err(|error| TableError::Storage(error.to_string()))
    }

    /// Brings what a crash has interrupted to its end.
    pub(super) fn finish_interrupted(&self) -> Result<(), OpenError> {
        self.resolve()?;
        match &self.directory {
            Some(directory) if !directory.is_read_only() => self
                .drop_orphans()
                .map_err(|error| OpenError::Leftovers(error.to_string())),
            _ => Ok(()),
        }
    }

    /// Brings transactions that a crash has interrupted to their end, in every shard the same.
    fn resolve(&self) -> Result<(), OpenError> {
        let Some(directory) = &self.directory else {
            return Ok(());
        };
        let closed = |error: TableError| OpenError::Placement(error.to_string());
        let told = self
            .ask_every_shard(|shard| shard.decisions())
            .map_err(closed)?;
        let mut decisions = Decisions::new();
        for (shard, told) in told.into_iter().enumerate() {
            for decision in told {
                decisions.insert((shard, decision.ticket), decision.members);
            }
        }
        let decisions = Arc::new(decisions);
        let resolved = self
            .ask_every_shard(move |shard| shard.resolve(&decisions))
            .map_err(closed)?;
        for (shard, resolved) in resolved.into_iter().enumerate() {
            if let Err(reason) = resolved {
                return Err(OpenError::Damaged {
                    path: directory.arena(shard).path,
                    reason,
                });
            }
        }
        // Only now does no shard ask for a decision any more, also after another crash.
        self.ask_every_shard(|shard| shard.forget_decisions())
            .map_err(closed)?;
        Ok(())
    }
}

/// Where the shards' rows live, and the tables that are there.
pub(super) struct Contents {
    pub(super) registry: Registry,
    tables: Arc<[TableShape]>,
    /// The database is being made.
    pub(super) creates: bool,
    /// The shards' memory, of a database with journals.
    recovered: Option<Arc<Recovered>>,
}

impl Contents {
    /// What a directory holds; nothing, without one.
    pub(super) fn of(
        directory: Option<&Directory>,
        creates: bool,
        recovered: Option<Arc<Recovered>>,
    ) -> Result<Self, OpenError> {
        let stored: Vec<StoredTable> = directory.map_or_else(Vec::new, Directory::tables);
        let names = stored.iter().map(|table| (&*table.name, &table.schema));
        let (registry, keys) =
            Registry::of(names).map_err(|error| OpenError::Placement(error.to_string()))?;
        let shape = |(table, key): (&StoredTable, TableKey)| table.shape(key);
        Ok(Self {
            registry,
            tables: stored.iter().zip(keys).map(shape).collect(),
            creates,
            recovered,
        })
    }

    /// Where the rows of a shard live.
    pub(super) fn memory(&self, directory: Option<&Directory>, shard: usize) -> Memory {
        match directory {
            None => Memory::Own,
            Some(directory) if directory.has_journal() => match &self.recovered {
                Some(recovered) => Memory::Journaled(
                    Arc::clone(recovered),
                    directory.identity(shard),
                    Arc::clone(&self.tables),
                ),
                None => Memory::Own,
            },
            Some(directory) if self.creates => Memory::NewFile(directory.arena(shard)),
            Some(directory) => Memory::File(directory.arena(shard), Arc::clone(&self.tables)),
        }
    }
}

impl StoredTable {
    /// The table, as its shards are told of it.
    pub(super) fn shape(&self, key: TableKey) -> TableShape {
        let content = match &self.schema {
            TableSchema::Rows(schema) => Content::Rows {
                columns: schema.columns().len(),
                keyed: schema.is_keyed(),
            },
            TableSchema::Records(schema) => Content::Records(Arc::new(RecordShape {
                shape: Shape::new(schema),
                index_serials: self.index_serials.clone(),
            })),
            TableSchema::Globals(routing) => Content::Globals(*routing),
        };
        TableShape {
            key,
            serial: self.serial,
            content,
        }
    }
}
