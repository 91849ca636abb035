//! A NUMA-aware, shard-per-core, embedded transactional database engine.
//!
//! # Where to begin
//! [`Engine::builder`] opens an engine in memory, [`Engine::open`] one whose rows live in files;
//! [`Engine::create_table`] makes a [`Table`] of 8-byte columns, [`Engine::create_records`] a table of
//! [`Records`] with texts and indexes, [`Engine::globals`] an ordered store of keys with any number of
//! subscripts ([`Globals`]); and a [`Session`] has the [`Verbs`]. Code that is to run beside its rows is shipped with
//! [`Verbs::on`] (one transaction) or [`Engine::spawn`] (long work). Tasks of an executor have an
//! [`AsyncSession`]. What the shards do is told by [`Engine::stats`].
//!
//! The book ([`doc`](mod@doc)) tells how the engine is built, what it promises, and how it is looked after.
//!
//! # What is fast
//! Batches: the memory of operation 48 is asked for while operation 0 runs. Work in a shard: no hop.
//! Row types whose width the compiler knows. Single calls from outside wait for a round trip each.
//!
//! # Cargo features
//! `hwloc` (default): topology through the system's hwloc; without it from the operating system's
//! own files. `mimalloc` (default): a heap per shard in memory of its node; without it the program's
//! allocator. `cli` (default): the `ancile` command.
//!
#![doc = include_str!("doc/tour.md")]
//!
//! # The readme
#![doc = include_str!("../README.md")]

mod arena;
mod collation;
pub mod doc;
mod doorbell;
mod engine;
mod error;
mod fork;
mod id;
mod index;
#[cfg(feature = "internals")]
pub mod internals;
#[allow(
    dead_code,
    unused_imports,
    reason = "its own tests drive the room by more than the writer needs"
)]
mod journal;
mod limits;
mod ring;
mod session;
mod shard;
#[cfg(test)]
mod simulation;
mod sync;
mod table;
mod transaction;
#[allow(
    dead_code,
    unused_imports,
    reason = "sorted loads and cursors are there for dumps that are loaded, and indexes that are built"
)]
mod tree;
mod writer;

pub use ancile_topology as topology;
pub use collation::{
    EntryList, GlobalEntries, GlobalKey, GlobalKeyRef, GlobalKeys, KeyError, KeyList, KeyRange,
    Number, Subscript, Subscripts,
};
pub use engine::{
    BackedUp, CheckReport, CheckedTable, Durability, Engine, EngineBuilder, Finding, Flushed,
    HotId, HotRow, JournalPart, JournalRecord, JournalSpace, Journals, Progress, Reach, Recovered,
    Restored, RolledBack, Salvage, SalvageCount, SalvagedRow, SealedEpoch, ShardSpace, ShardStats,
    Stats, TableInfo, TableSchema, TableSpace, Task, TreeShape, backup, check, check_with, restore,
    restore_with,
};
pub use error::{ArenaFull, BackupError, Error, OpenError, Result, TableError};
pub use id::{DirectId, RowId, ShardIndex, SurrogateId};
pub use limits::INDEXED_BYTES_MAX;
pub use session::{
    Acknowledge, AsyncSession, AsyncTransaction, GlobalVerbs, Isolation, Pipeline, RecordVerbs,
    Resident, Savepoint, Session, Ticket, Transaction, TransactionGlobals, TransactionOptions,
    TransactionOutcome, TransactionRecords, Transactions, Verbs,
};
pub use shard::{Context, LocalGlobals, LocalRecords, OperationStats, Rows, TransactionStats};
pub use table::{
    Batch, Cell, Column, Compared, Data, Dynamic, Field, FieldKind, FieldReader, FieldWriter,
    Fixed, FromField, Globals, IndexKind, IndexSchema, Key, KeyBounds, Kind, Outcome, Record,
    RecordSchema, Records, Routing, Row, Schema, Table, Timestamp, ToField, Value, Width,
};
