//! What can go wrong, one enum a phase: [`OpenError`] before there is an engine, [`TableError`]
//! while tables are made and opened, [`Error`] while they are used.

mod backup;
mod faults;

use std::path::PathBuf;

pub use backup::BackupError;
pub(crate) use faults::Faults;

use crate::collation::KeyError;
use crate::limits::{
    COLUMNS_MAX, INDEXES_MAX, NAME_BYTES_MAX, TABLES_MAX, TEXT_BYTES_MAX, VALUE_BYTES_MAX,
};

/// A shard's memory bound is reached. The operation changed nothing; delete rows, drop a table, or
/// open the engine with a larger `arena_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the shard's arena is full: {asked_bytes} bytes asked, {used_bytes} of {bound_bytes} in use; {}",
    if *is_disk {
        "the file system of its file has no room for them: make room there, or delete rows"
    } else {
        "delete rows, drop a table, or open the engine with a larger arena_bytes"
    }
)]
pub struct ArenaFull {
    /// Bytes that the operation needed.
    pub asked_bytes: u64,
    /// Bytes in use by tables and indexes of the shard.
    pub used_bytes: u64,
    /// The bound given at open.
    pub bound_bytes: u64,
    /// The bound is not reached, but the file system has no room for the arena's file.
    pub is_disk: bool,
}

/// An engine could not be opened. Nothing of it is left behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The machine could not be read, or the placement asks for what it does not have.
    #[error("no placement for the shards: {0}")]
    Placement(String),
    /// A setting is out of its bounds.
    #[error("{name} is {value}, but must be {bounds}")]
    Setting {
        /// The builder's method.
        name: &'static str,
        /// What was given.
        value: u64,
        /// What is accepted.
        bounds: String,
    },
    /// The system refused the memory of a shard.
    #[error("shard {shard}: {reason}; give a smaller arena_bytes, or fewer shards")]
    Memory {
        /// The shard.
        shard: usize,
        /// The system's answer.
        reason: String,
    },
    /// The directory, or a file in it, could not be used.
    #[error("{} could not be {doing}: {source}", path.display())]
    Directory {
        /// The directory or file.
        path: PathBuf,
        /// What was to be done.
        doing: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The directory is no database, or misses a part of one.
    #[error("{} is no database of this program: {reason}", path.display())]
    NoDatabase {
        /// The directory.
        path: PathBuf,
        /// What speaks against it.
        reason: String,
    },
    /// Another engine, of this process or another, has the database open. Close that one, or wait for
    /// it ([`EngineBuilder::lock_patience`](crate::EngineBuilder::lock_patience)).
    #[error(
        "{} is open already, {}", path.display(),
        match process {
            Some(id) if *id == std::process::id() => "in this process".to_owned(),
            Some(id) => format!("in process {id}"),
            None => "in another process".to_owned(),
        }
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The process that has it, if it has said so.
        process: Option<u32>,
    },
    /// A file was written by a version of another format. Use that version, and its dump.
    #[error("{} has format {found}, and this program reads format {reads}: use a version that does", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its major version.
        found: u32,
        /// The major version that this build reads.
        reads: u32,
    },
    /// A database has as many shards as it was made with. Open it with that number, or with none.
    #[error(
        "the database has {stored} shards, and cannot be opened with {asked}: open it with {stored}, or dump it and load it anew"
    )]
    ShardCount {
        /// Shards that it was made with.
        stored: usize,
        /// Shards asked for.
        asked: usize,
    },
    /// The database was open when the system went down, so its pages may be of different moments.
    /// `ancile salvage` saves what is whole.
    #[error("{} was open when the system went down, and parts of it may be missing: save what is whole with `ancile salvage`", path.display())]
    NeedsSalvage {
        /// The first such file.
        path: PathBuf,
    },
    /// What an interrupted change of a table's indexes has left could not be dropped.
    #[error("what an interrupted change of indexes has left could not be dropped: {0}")]
    Leftovers(String),
    /// The journals of the database could not be opened. They were not made worse.
    #[error("the database's journals could not be opened: {0}")]
    Recovery(String),
    /// The database has mapped files and no journals, so there is nothing to go back by.
    #[error(
        "{} has mapped files (Durability::Process), and no journals: there is no past to look at or to go back to", path.display()
    )]
    NoJournals {
        /// The directory.
        path: PathBuf,
    },
    /// The durability that was asked for is not that of the database's files.
    #[error("{} has {stored}, and cannot be opened with {asked}: open it with {opens_with}, or dump it and load it anew", path.display())]
    OtherDurability {
        /// The directory.
        path: PathBuf,
        /// What its files are.
        stored: &'static str,
        /// What was asked for.
        asked: &'static str,
        /// What it can be opened with.
        opens_with: &'static str,
    },
    /// A file contradicts itself. `ancile salvage` saves what is whole.
    #[error("{} is damaged: {reason}; save what is whole with `ancile salvage`", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What cannot be.
        reason: String,
    },
    /// The system refused a thread.
    #[error("shard {shard}: the system refused a thread: {source}")]
    Thread {
        /// The shard.
        shard: usize,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// A table could not be made, opened or dropped. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// A table of this name exists; open it, or choose another name.
    #[error("a table named {0:?} exists already")]
    Exists(String),
    /// No table has this name.
    #[error("there is no table named {0:?}")]
    Missing(String),
    /// A name is empty or too long.
    #[error("{0:?} is no name: names have 1 to {NAME_BYTES_MAX} bytes and do not begin with a NUL")]
    Name(String),
    /// A key or an index names a field that the record does not have.
    #[error("there is no field named {0:?} for the key or an index")]
    FieldMissing(String),
    /// Transactions that change the table's records are under way. Try again.
    #[error("transactions are under way in shard {shard}: try again")]
    Busy {
        /// The shard.
        shard: usize,
    },
    /// A record that is there has values that an ordered index has no room for.
    #[error(
        "a record's values of index {index:?} take {bytes} bytes: at most {limit} have a place in an ordered index"
    )]
    IndexedTooLong {
        /// The index.
        index: String,
        /// Bytes that the values take.
        bytes: usize,
        /// Bytes that they may take.
        limit: usize,
    },
    /// Two records that are there have the same values of an index that is to be unique. Change one of
    /// them, and try again.
    #[error(
        "index {index:?} cannot be unique: the records with keys {} and {} both have {values}",
        keys[0], keys[1]
    )]
    NotUnique {
        /// The index.
        index: String,
        /// The values.
        values: String,
        /// The keys of the records.
        keys: [String; 2],
    },
    /// The record that gives new fields their values is none itself.
    #[error("the template for new fields cannot be written: {0}")]
    Template(String),
    /// Records without a key are not supported; name one with `RecordSchema::key`.
    #[error("records need a key: name its fields with RecordSchema::key, or `key` in record!")]
    NoKey,
    /// A table of records has at most 64 indexes.
    #[error("records have at most {INDEXES_MAX} indexes beside their key, not {0}")]
    Indexes(usize),
    /// Two columns have the same name.
    #[error("two columns are named {0:?}")]
    ColumnTwice(String),
    /// A table has at least one column and at most 1,024.
    #[error("a table has 1 to {COLUMNS_MAX} columns, not {0}")]
    Columns(usize),
    /// The row type does not have the table's shape.
    #[error("rows of {row} do not fit table {table:?}: {difference}")]
    Shape {
        /// The table.
        table: String,
        /// The row type.
        row: String,
        /// What differs first.
        difference: String,
    },
    /// The engine has as many tables as it can.
    #[error("an engine has at most {TABLES_MAX} tables")]
    TooMany,
    /// A shard has no memory for the table.
    #[error("shard {shard}: {full}")]
    ArenaFull {
        /// The shard.
        shard: usize,
        /// Its bound and use.
        full: ArenaFull,
    },
    /// Tables are created and dropped by threads of the program, not inside a shard, which would
    /// have to wait for itself.
    #[error(
        "tables cannot be created or dropped inside a shard: do it from a thread of the program"
    )]
    InsideShard,
    /// The database is open for reading only.
    #[error("the database is open for reading only")]
    ReadOnly,
    /// The database's directory could not be written.
    #[error("{0}")]
    Storage(String),
    /// The engine is closed.
    #[error("the engine is closed")]
    Closed,
    /// The engine belongs to the process that this one was forked from.
    #[error(
        "the engine belongs to the process that this one was forked from: open another one here"
    )]
    Forked,
}

/// An operation failed. It changed nothing, unless the variant says otherwise; of a batch, others may
/// have succeeded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine is closed, or closed while the operation was under way (then it may have happened).
    #[error("the engine is closed")]
    Closed,
    /// The engine belongs to the process that this one was forked from, and works on there. A child can
    /// open engines of its own: a database, once its parent has closed it.
    #[error(
        "the engine belongs to the process that this one was forked from: open another one here"
    )]
    Forked,
    /// The table was dropped, or the handle belongs to another engine. Open it again.
    #[error("the table of this handle is gone: it was dropped, or belongs to another engine")]
    TableGone,
    /// The shard's memory bound is reached.
    #[error(transparent)]
    ArenaFull(#[from] ArenaFull),
    /// A table holds at most 2^32 - 1 rows in one shard.
    #[error("the table has used all its slots in shard {shard}")]
    SlotsFull {
        /// The shard.
        shard: usize,
    },
    /// What the shard's file says about its own memory cannot be. Nothing was changed; `ancile salvage`
    /// saves what can be read.
    #[error("the file of shard {shard} is damaged: save what can be read with `ancile salvage`")]
    Damaged {
        /// The shard.
        shard: usize,
    },
    /// The database is open for reading only.
    #[error(
        "the database is open for reading only: open it without EngineBuilder::read_only to change it"
    )]
    DatabaseReadOnly,
    /// The disk has no room for another segment of the journal, so nothing is changed. Free some space
    /// there; writing goes on by itself then, and reading goes on all the time.
    #[error(
        "the disk gives no room for more of the journal: see that its directory is there and free some space; writing goes on by itself then"
    )]
    JournalFull,
    /// The journal could not be written, and never will be by this process. Reading goes on. Close the
    /// database, see to the disk, and open it again: what was acknowledged as durable is there.
    #[error(
        "the journal cannot be written any more: reads go on; close the database, see to the disk, and open it again"
    )]
    JournalBroken,
    /// The operation happened, but it is not known to be on the disk, and never will be by this
    /// process: the journal could not be written. What is found after opening the database again is
    /// what was durable.
    #[error(
        "done, but not known to be on the disk: {0}; close the database, see to the disk, and open it again"
    )]
    NotDurable(String),
    /// A file could not be written to its disk; what it holds lives on in memory.
    #[error("{0}")]
    Storage(String),
    /// A row with this key exists; use `upsert`, or another key.
    #[error("a row with SurrogateId {key} exists already")]
    Duplicate {
        /// The key.
        key: u64,
    },
    /// A record with this key exists; use `upsert`, or another key.
    #[error("a record with this key exists already")]
    DuplicateKey,
    /// Another record has the same values of a unique index.
    #[error("another record has these values of the unique index {index:?}")]
    DuplicateValue {
        /// The index.
        index: String,
    },
    /// Code in a shard was to change a record of a table with unique indexes, whose entries live in
    /// other shards. Use a session, a resident's verbs, or a transaction.
    #[error(
        "records with unique indexes cannot be changed inside a shard alone: use a transaction"
    )]
    UniqueElsewhere,
    /// A record was to be replaced by one with another key. Delete the one and insert the other.
    #[error("a record cannot be given another key: delete it and insert another one")]
    KeyChanged,
    /// A key of the ordered store is not legal; nothing has been read or written.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A value of the ordered store is longer than 16 MiB; nothing has been written.
    #[error("a value of {bytes} bytes is too long: at most {VALUE_BYTES_MAX} are kept")]
    ValueTooLong {
        /// Its length.
        bytes: usize,
    },
    /// A subtree was to be merged into itself, or into what it is a part of.
    #[error("a subtree cannot be merged below itself, nor into what it is a part of")]
    MergeOverlap,
    /// A text is longer than 16 MiB.
    #[error("a text of {bytes} bytes is too long: at most {TEXT_BYTES_MAX} are kept")]
    TextTooLong {
        /// Its length.
        bytes: usize,
    },
    /// What a file holds of a record is no record of this kind; `ancile check` tells more.
    #[error("field {number} of a record, counted from 1, is damaged in the file")]
    FieldDamaged {
        /// The field's number, counted from 1.
        number: usize,
    },
    /// The record's key belongs to another shard than the one that the code runs in.
    #[error(
        "the record's key belongs to shard {owner}, not to shard {shard}: insert it there, or through a session"
    )]
    OtherShardsKey {
        /// The key's shard.
        owner: usize,
        /// The shard at hand.
        shard: usize,
    },
    /// A record, or a key, was given another number of values than it has fields.
    #[error("{given} values were given for {fields} fields")]
    FieldCount {
        /// Values given.
        given: usize,
        /// Fields that they are for.
        fields: usize,
    },
    /// A value is not of its field's kind.
    #[error("field {field:?} holds {holds}, and was given {given}")]
    FieldValue {
        /// The field.
        field: String,
        /// What it holds.
        holds: &'static str,
        /// What was given.
        given: &'static str,
    },
    /// The values of a key, or of an index, are not as many as its fields, or of other kinds.
    #[error("the values do not have the number and kinds of the fields that they are for")]
    KeyShape,
    /// A range was asked for by an index that finds records by equal values only. Make it an
    /// `ordered_index`.
    #[error("index {name:?} has no order: records are found in ranges by an ordered_index")]
    IndexUnordered {
        /// The name.
        name: String,
    },
    /// The values of a record take more bytes than an ordered index has room for; nothing has been
    /// changed. Shorten them, or index other fields.
    #[error(
        "the values of index {index:?} take {bytes} bytes: at most {limit} have a place in an ordered index"
    )]
    IndexedTooLong {
        /// The index.
        index: String,
        /// Bytes that the values take.
        bytes: usize,
        /// Bytes that they may take.
        limit: usize,
    },
    /// The table has no index of this name.
    #[error("there is no index named {name:?}")]
    IndexMissing {
        /// The name.
        name: String,
    },
    /// A keyed verb was used on a table without keys.
    #[error("the table has no SurrogateId: create it with Schema::keyed, or use DirectId")]
    NotKeyed,
    /// A row was inserted without a key into a table with keys.
    #[error("the table is keyed: insert with a SurrogateId (insert_keyed)")]
    KeyNeeded,
    /// The key belongs to another shard than the one that the code runs in.
    #[error(
        "SurrogateId {key} belongs to shard {owner}, not to shard {shard}: insert it there, or through a session"
    )]
    OtherShard {
        /// The key.
        key: u64,
        /// Its shard.
        owner: usize,
        /// The shard at hand.
        shard: usize,
    },
    /// A row, or a list of columns, does not have the table's width.
    #[error("the row has {given} columns, the table {columns}")]
    Width {
        /// Columns given.
        given: usize,
        /// Columns of the table.
        columns: usize,
    },
    /// A column number is not one of the table's.
    #[error("there is no column {column}: the table has {columns}, counted from 0")]
    Column {
        /// The number given.
        column: usize,
        /// Columns of the table.
        columns: usize,
    },
    /// Slices that belong together differ in length.
    #[error("{what}: {left} and {right} differ in length")]
    Lengths {
        /// What was given.
        what: &'static str,
        /// Length of the first.
        left: usize,
        /// Length of the second.
        right: usize,
    },
    /// The rows that transactions under way want of a shard are more than it can remember. Nothing
    /// has happened; try again, with smaller transactions or fewer of them.
    #[error("shard {shard} has no memory for more transactions under way: try again later")]
    TooManyIntents {
        /// The shard.
        shard: usize,
    },
    /// Others changed rows that the transaction relies on, each time it was tried. Nothing has
    /// happened; it may be tried again.
    #[error("the transaction met conflicts with others in all of its {tries} tries")]
    Conflict {
        /// How often it was tried.
        tries: u32,
    },
    /// The transaction's time was over before it could be decided. Nothing has happened.
    #[error("the transaction's time was over before it could be decided: nothing has happened")]
    TimedOut,
    /// A declared transaction has an operation on this row already; put both into one, or into two
    /// transactions.
    #[error("the transaction has an operation on this row already: a declared one has one a row")]
    RowTwice,
    /// The declared transactions were run, or started; begin another one, or clear them.
    #[error("the transaction was run already: begin the next one, or clear them all")]
    AlreadyRun,
    /// A read-only transaction was asked to change something.
    #[error("the transaction is read-only: begin it without TransactionOptions::read_only")]
    ReadOnly,
    /// There is no such shard.
    #[error("there is no shard {shard}: the engine has {shards}, counted from 0")]
    Shard {
        /// The number given.
        shard: usize,
        /// Shards of the engine.
        shards: usize,
    },
    /// A session was used inside a shard's own thread, where waiting would stop the shard. Use the
    /// context or resident that the code was given.
    #[error(
        "a session cannot wait inside a shard: use the context or resident that your code was given"
    )]
    InsideShard,
    /// The caller's code panicked. Its transaction is undone; the shard lives on.
    #[error("the code panicked: {message}; its transaction is undone")]
    Panicked {
        /// The panic's message.
        message: String,
    },
    /// The shard's thread has stopped on a broken invariant of the engine. Its rows are out of
    /// reach; close the engine and report this.
    #[error("shard {shard} has failed: {message}")]
    ShardFailed {
        /// The shard.
        shard: usize,
        /// The broken invariant.
        message: String,
    },
}

/// The result of most calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;
