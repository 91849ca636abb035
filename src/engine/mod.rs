//! The engine: shards on their threads, the tables that they share, and the way in and out.

mod alter;
mod backup;
mod builder;
mod database;
mod directory;
mod flushed;
mod globals;
mod journaled;
mod journals;
mod registry;
mod space;
mod stats;
mod survey;
mod task;
mod thread;
mod unique;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use ancile_topology::{Machine, Plan, Report, ShardVerification, Verification};

pub use alter::Progress;
use backup::Control;
pub use backup::{BackedUp, Restored, backup, restore, restore_with};
pub use builder::{Durability, EngineBuilder};
use directory::Directory;
use directory::StoredTable;
pub use flushed::Flushed;
use journaled::WriterThread;
pub use journals::{
    JournalPart, JournalRecord, JournalSpace, Journals, Reach, Recovered, RolledBack, SealedEpoch,
};
use registry::Registry;
pub use registry::{TableInfo, TableSchema};
pub use space::{ShardSpace, TableSpace, TreeShape};
pub use stats::{HotId, HotRow, ShardStats, Stats};
pub use survey::{
    CheckReport, CheckedTable, Finding, Salvage, SalvageCount, SalvagedRow, check, check_with,
};
pub use task::Task;
use thread::ShardThread;

use crate::error::{Error, Result, TableError};
use crate::id::{RowId, ShardIndex, SurrogateId, TableKey};
use crate::journal::WriterQueue;
use crate::limits::SLOTS_MAX;
use crate::session::{AsyncSession, Patience, Peers, Resident, Session, is_inside_shard};
use crate::shard::{Command, Inbox, Shard, TableShape};
use crate::table::{
    IndexKind, Record, RecordSchema, Records, Row, Schema, Shape, Table, Value, check_name,
};

/// An open engine: one shard a seat, each on a thread of its own.
///
/// An engine that was [built](EngineBuilder::build) keeps its rows in memory: they are gone when it is
/// closed or dropped. One that was [opened](Engine::open) keeps them in the files of a directory. An
/// engine may be shared by threads; each takes a [`Session`] of its own.
///
/// ```
/// use ancile::{Engine, Schema, SurrogateId, Verbs};
///
/// let engine = Engine::builder().shards(2).arena_bytes(64 << 20).build()?;
/// let accounts = engine.create_table::<[u64; 2]>("accounts", Schema::cells(2).keyed())?;
/// let mut session = engine.session()?;
/// session.insert_keyed(&accounts, SurrogateId(7), &[100, 0])?;
/// assert_eq!(session.select(&accounts, SurrogateId(7))?, Some([100, 0]));
/// engine.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Engine {
    peers: Arc<Peers>,
    threads: Vec<ShardThread>,
    writer: Option<WriterThread>,
    /// The way to it.
    queue: Option<Arc<WriterQueue>>,
    /// How often epochs are closed for whom nobody waits.
    interval: Duration,
    registry: Registry,
    directory: Option<Directory>,
    /// Where other processes ask for backups; or why they cannot.
    control: Option<Result<Control, String>>,
    machine: Machine,
    plan: Plan,
    patience: Patience,
    /// Spreads the sessions' first inserts over the shards.
    turn: AtomicUsize,
}

impl Engine {
    /// Settings for an engine; each has a default that fits the machine.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    /// Number of shards.
    pub fn shards(&self) -> usize {
        self.peers.shards()
    }

    /// The shard that a key of a keyed table belongs to.
    pub fn shard_of<R: Row>(&self, _table: &Table<R>, key: SurrogateId) -> ShardIndex {
        key.shard_of(self.shards())
    }

    /// A new session, for one thread at a time; there may be any number. It places rows without keys in the
    /// shards by turns.
    pub fn session(&self) -> Result<Session> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        Ok(Session::new(Arc::clone(&self.peers), turn, self.patience))
    }

    /// A new session whose calls are futures.
    pub fn async_session(&self) -> Result<AsyncSession> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        Ok(AsyncSession::new(Arc::clone(&self.peers), turn))
    }

    /// Runs code inside a shard, until it returns: resident work. Each shard runs one at a time, the
    /// others wait their turn. [`Task::join`] has what it returns, or [`Error::Panicked`]; its changes are not
    /// one transaction. [`Error::Shard`] if there is no such shard.
    pub fn spawn<T, F>(&self, shard: ShardIndex, work: F) -> Result<Task<T>>
    where
        T: Send + 'static,
        F: FnOnce(&mut Resident<'_>) -> T + Send + 'static,
    {
        self.peers.check_home()?;
        let mailbox = self.peers.mailbox(shard)?;
        if mailbox.has_ended() {
            return Err(self.peers.ended(shard));
        }
        Ok(self.threads[shard].spawn(mailbox, work))
    }

    /// Runs the same code inside every shard, at the same time, and waits for all.
    pub fn on_every_shard<T, F>(&self, work: F) -> Result<Vec<T>>
    where
        T: Send + 'static,
        F: Fn(&mut Resident<'_>) -> T + Send + Sync + 'static,
    {
        if is_inside_shard() {
            return Err(Error::InsideShard);
        }
        let work = Arc::new(work);
        let tasks: Vec<Task<T>> = (0..self.shards())
            .map(|shard| {
                let work = Arc::clone(&work);
                self.spawn(shard, move |resident| work(resident))
            })
            .collect::<Result<_>>()?;
        tasks.into_iter().map(Task::join).collect()
    }

    /// Creates a table in every shard. Of a database with journals, that is on the disk when this returns,
    /// whatever its [`Durability`].
    ///
    /// # Errors
    /// [`TableError::Exists`], [`TableError::Name`], [`TableError::Columns`], [`TableError::ColumnTwice`],
    /// [`TableError::Shape`] if rows of `R` do not have the schema's columns, [`TableError::ArenaFull`],
    /// [`TableError::TooMany`]; nothing is created then.
    pub fn create_table<R: Row>(&self, name: &str, schema: Schema) -> Result<Table<R>, TableError> {
        self.check_usable()?;
        schema.check(name)?;
        schema.width_of::<R>(name)?;
        let rows_expected = schema.rows_expected();
        let key = self.create(name, TableSchema::Rows(schema.clone()), rows_expected)?;
        Table::new(key, name, &schema)
    }

    /// Creates a table of records in every shard, with the fields, key and indexes of the type: durable and
    /// refused as by [`create_table`](Self::create_table); also [`TableError::NoKey`] and
    /// [`TableError::Indexes`].
    pub fn create_records<R: Record>(&self, name: &str) -> Result<Records<R>, TableError> {
        self.create_records_of(name, &R::schema())
    }

    /// Creates a table of records whose fields the program learns as it runs; its records are lists of
    /// [`Value`]s.
    pub fn create_records_with(
        &self,
        name: &str,
        schema: RecordSchema,
    ) -> Result<Records<Vec<Value>>, TableError> {
        self.create_records_of(name, &schema)
    }

    fn create_records_of<R: Record>(
        &self,
        name: &str,
        schema: &RecordSchema,
    ) -> Result<Records<R>, TableError> {
        self.check_usable()?;
        check_name(name)?;
        schema.check()?;
        if self.registry.find(name).is_ok() {
            return Err(TableError::Exists(name.to_owned()));
        }
        let mut uniques = Vec::new();
        for (entries, schema) in entry_tables(name, schema) {
            // What an interrupted creation has left.
            if self.registry.find(&entries).is_ok() {
                self.drop_one(&entries)?;
            }
            uniques.push(self.create(&entries, TableSchema::Records(schema), 0)?);
        }
        let key = self.create(name, TableSchema::Records(schema.clone()), 0)?;
        Ok(Records::new(key, name, schema, &uniques))
    }

    /// Opens a table of records that exists, whatever its fields; [`Records::schema`] tells them.
    pub fn open_records_with(&self, name: &str) -> Result<Records<Vec<Value>>, TableError> {
        match self.registry.find(name)? {
            (key, TableSchema::Records(schema)) => self.handle(key, name, &schema),
            (_, TableSchema::Rows(_)) => Err(TableError::Shape {
                table: name.to_owned(),
                row: "lists of values".to_owned(),
                difference: "the table has rows, not records: open it with open_table".to_owned(),
            }),
            (_, TableSchema::Globals(_)) => Err(TableError::Shape {
                table: name.to_owned(),
                row: "lists of values".to_owned(),
                difference: "it has globals, not records: open it with open_globals".to_owned(),
            }),
        }
    }

    /// Opens a table of records that exists and whose records have the fields, key and indexes of this
    /// type: [`TableError::Missing`] if there is none, [`TableError::Shape`] if they differ.
    pub fn open_records<R: Record>(&self, name: &str) -> Result<Records<R>, TableError> {
        let wanted = R::schema();
        let (key, schema) = self.registry.find(name)?;
        let difference = match &schema {
            TableSchema::Rows(_) => Some("the table has rows, not records".to_owned()),
            TableSchema::Globals(_) => Some("the table has globals, not records".to_owned()),
            TableSchema::Records(schema) => schema.difference(&wanted),
        };
        match (difference, &schema) {
            // The table's own schema has its indexes in the order that the shards have them.
            (None, TableSchema::Records(schema)) => self.handle(key, name, schema),
            (difference, _) => Err(TableError::Shape {
                table: name.to_owned(),
                row: std::any::type_name::<R>().to_owned(),
                difference: difference.unwrap_or_default(),
            }),
        }
    }

    /// A handle of a table, with those of its unique indexes.
    fn handle<R: Record>(
        &self,
        key: TableKey,
        name: &str,
        schema: &RecordSchema,
    ) -> Result<Records<R>, TableError> {
        let uniques = entry_tables(name, schema)
            .map(|(entries, _)| Ok(self.registry.find(&entries)?.0))
            .collect::<Result<Vec<TableKey>, TableError>>()?;
        Ok(Records::new(key, name, schema, &uniques))
    }

    /// Makes a table's parts in every shard.
    fn create(
        &self,
        name: &str,
        schema: TableSchema,
        rows_expected: u64,
    ) -> Result<TableKey, TableError> {
        let indexes = match &schema {
            TableSchema::Rows(_) | TableSchema::Globals(_) => 0,
            TableSchema::Records(schema) => Shape::new(schema).indexes.len(),
        };
        self.registry.create(name, &schema, |key| {
            let mut serials = self.next_serials(key, 1 + indexes)?;
            let table = StoredTable {
                name: name.to_owned(),
                serial: serials.remove(0),
                index_serials: serials,
                schema: schema.clone(),
            };
            self.create_parts(table.shape(key), rows_expected)?;
            self.note_created(table).or_else(|error| {
                self.drop_parts(key)?;
                Err(error)
            })
        })
    }

    fn create_parts(&self, shape: TableShape, rows_expected: u64) -> Result<(), TableError> {
        // Keys fall on shards by chance: four standard deviations above the mean are enough.
        let mean = rows_expected as f64 / self.shards() as f64;
        let rows_expected = ((mean + 4.0 * mean.sqrt()).ceil() as u64).min(SLOTS_MAX);
        let key = shape.key;
        let created = self.ask_every_shard(move |shard| {
            shard.catalog.create(&shape, shard.index, rows_expected)
        })?;
        match created
            .into_iter()
            .enumerate()
            .find_map(|(shard, result)| Some((shard, result.err()?)))
        {
            None => Ok(()),
            Some((shard, full)) => {
                self.drop_parts(key)?;
                Err(TableError::ArenaFull { shard, full })
            }
        }
    }

    fn drop_parts(&self, key: TableKey) -> Result<(), TableError> {
        self.ask_every_shard(move |shard| shard.drop_table(key))
            .map(drop)
    }

    /// Opens a table that exists, with rows of a type that fits its columns: [`TableError::Missing`] if
    /// there is none, [`TableError::Shape`] if the type does not fit.
    pub fn open_table<R: Row>(&self, name: &str) -> Result<Table<R>, TableError> {
        match self.registry.find(name)? {
            (key, TableSchema::Rows(schema)) => Table::new(key, name, &schema),
            (_, TableSchema::Records(_)) => Err(TableError::Shape {
                table: name.to_owned(),
                row: std::any::type_name::<R>().to_owned(),
                difference: "the table has records, not rows: open it with open_records".to_owned(),
            }),
            (_, TableSchema::Globals(_)) => Err(TableError::Shape {
                table: name.to_owned(),
                row: std::any::type_name::<R>().to_owned(),
                difference: "the table has globals, not rows: open it with open_globals".to_owned(),
            }),
        }
    }

    /// Drops a table in every shard and returns its memory to the system. Handles of it find nothing
    /// from then on: [`Error::TableGone`]. [`TableError::Missing`] if there is none.
    pub fn drop_table(&self, name: &str) -> Result<(), TableError> {
        self.check_usable()?;
        let (_, schema) = self.registry.find(name)?;
        self.drop_one(name)?;
        if let TableSchema::Records(schema) = schema {
            for (entries, _) in entry_tables(name, &schema) {
                self.drop_one(&entries)?;
            }
        }
        Ok(())
    }

    fn drop_one(&self, name: &str) -> Result<(), TableError> {
        self.registry.remove(name, |key| {
            self.note_dropped(name)?;
            self.drop_parts(key)
        })
    }

    /// The tables, by name.
    pub fn tables(&self) -> Vec<TableInfo> {
        let mut tables = self.registry.tables();
        tables.retain(|table| !table.name.starts_with(ENTRIES));
        tables
    }

    /// Machine, plan, and for each shard what was asked of the system and what was read back now.
    pub fn report(&self) -> Result<Report> {
        let shards = self.ask_every_shard(thread::verify).map_err(unanswered)?;
        let shards: Vec<ShardVerification> = shards
            .into_iter()
            .zip(&self.threads)
            .zip(&self.plan.seats)
            .map(|((read, thread), seat)| thread.verification(seat, read))
            .collect();
        let report = Report::new(self.machine.clone(), self.plan.clone());
        Ok(report.with_verification(Verification { shards }))
    }

    /// What the shards have done, and have to do now.
    pub fn stats(&self) -> Result<Stats> {
        let told = self.ask_every_shard_within(|shard, inbox| shard.tell(inbox));
        let told = told.map_err(unanswered)?.into_iter().enumerate();
        let shards = told.map(|(shard, told)| ShardStats::new(shard, told, &self.registry));
        Ok(Stats {
            shards: shards.collect(),
        })
    }

    /// Whether shards share processors, by an explicit wish for more shards than there are.
    pub fn is_oversubscribed(&self) -> bool {
        self.plan.oversubscribed
    }

    /// Makes memory present for each shard's next `bytes` of rows and indexes, so that growing into
    /// them meets no page fault.
    pub fn prefault(&self, bytes: u64) -> Result<()> {
        self.ask_every_shard(move |shard| shard.catalog.arena().prefault(bytes))
            .map_err(unanswered)?;
        Ok(())
    }

    /// Bytes in use by tables and indexes, shard by shard.
    pub fn used_bytes(&self) -> Result<Vec<u64>> {
        self.ask_every_shard(|shard| shard.catalog.arena().used_bytes())
            .map_err(unanswered)
    }

    /// Closes the engine: what was sent is executed, resident work runs to its end, the threads end,
    /// and files are written to their disk and marked as closed. Dropping the engine does the same, and
    /// cannot tell of a file that could not be written.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if self.peers.home.is_elsewhere() {
            // What a child has copied has no threads to wait for.
            std::mem::forget(std::mem::take(&mut self.threads));
            self.control = None;
            return Err(Error::Forked);
        }
        if let Some(Ok(control)) = self.control.take() {
            control.stop();
        }
        for mailbox in &self.peers.mailboxes {
            mailbox.send(Command::Close);
        }
        if is_inside_shard() {
            return Ok(());
        }
        let mut result = Ok(());
        for thread in &mut self.threads {
            result = result.and(thread.join().map_err(Error::Storage));
        }
        if let Some(writer) = self.writer.take() {
            writer.join();
        }
        result
    }

    /// Who waits for every shard must not be one, and be where they are.
    fn check_usable(&self) -> Result<(), TableError> {
        if is_inside_shard() {
            return Err(TableError::InsideShard);
        }
        self.peers.check_home().map_err(|_| TableError::Forked)
    }

    /// Runs something on every shard's thread, outside the operation path.
    fn ask_every_shard<T: Send + 'static>(
        &self,
        question: impl Fn(&mut Shard) -> T + Send + Sync + Clone + 'static,
    ) -> Result<Vec<T>, TableError> {
        self.ask_every_shard_within(move |shard, _| question(shard))
    }

    /// Runs something on a shard's thread, outside the operation path.
    fn ask_shard<T: Send + 'static>(
        &self,
        shard: ShardIndex,
        question: impl FnOnce(&mut Shard) -> T + Send + 'static,
    ) -> Result<T, TableError> {
        self.check_usable()?;
        let (sender, receiver) = mpsc::sync_channel(1);
        let mailbox = &self.peers.mailboxes[shard];
        mailbox.send(Command::Run(Box::new(move |shard, _| {
            // The receiver waits for this; it is gone only if its thread has unwound.
            let _ = sender.send(question(shard));
        })));
        receiver.recv().map_err(|_| TableError::Closed)
    }

    /// As [`ask_every_shard`](Self::ask_every_shard), with what waits for each shard.
    fn ask_every_shard_within<T: Send + 'static>(
        &self,
        question: impl Fn(&mut Shard, &Inbox) -> T + Send + Sync + Clone + 'static,
    ) -> Result<Vec<T>, TableError> {
        self.check_usable()?;
        let mut answers = Vec::new();
        for mailbox in &self.peers.mailboxes {
            let (sender, receiver) = mpsc::sync_channel(1);
            let question = question.clone();
            mailbox.send(Command::Run(Box::new(move |shard, inbox| {
                // The receiver waits for this; it is gone only if its thread has unwound.
                let _ = sender.send(question(shard, inbox));
            })));
            answers.push(receiver);
        }
        answers
            .into_iter()
            .map(|answer| answer.recv().map_err(|_| TableError::Closed))
            .collect()
    }
}

/// How the names of tables begin that hold the entries of unique indexes: no other table's does.
const ENTRIES: char = '\0';

/// The table whose unique index has its entries in this one.
fn indexed_table(entries: &str) -> Option<&str> {
    let (table, _) = entries.strip_prefix(ENTRIES)?.rsplit_once(ENTRIES)?;
    Some(table)
}

/// The tables of a record schema's unique indexes.
fn entry_tables(name: &str, schema: &RecordSchema) -> impl Iterator<Item = (String, RecordSchema)> {
    let indexes = schema.indexes().iter();
    let unique = indexes.filter(|index| index.kind == IndexKind::Unique);
    unique.map(move |index| {
        let entries = format!("{ENTRIES}{name}{ENTRIES}{}", index.name);
        (entries, schema.entries_of(index))
    })
}

/// Why shards did not answer a question that is not about tables.
fn unanswered(error: TableError) -> Error {
    match error {
        TableError::InsideShard => Error::InsideShard,
        TableError::Forked => Error::Forked,
        _ => Error::Closed,
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // What could not be written is found open by whoever opens it next.
        let _ = self.end();
    }
}
