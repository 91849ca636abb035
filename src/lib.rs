//! A NUMA-aware, shard-per-core, embedded transactional database engine.

mod arena;
mod engine;
mod error;
mod id;
mod index;
mod limits;
mod ring;
mod session;
mod shard;
#[cfg(test)]
mod simulation;
mod table;
mod transaction;

pub use ancile_topology as topology;
pub use engine::{Engine, EngineBuilder, TableInfo, Task};
pub use error::{ArenaFull, Error, OpenError, Result, TableError};
pub use id::{DirectId, RowId, ShardIndex, SurrogateId};
pub use session::{Pipeline, Resident, Session, Ticket, Verbs};
pub use shard::{Context, Rows};
pub use table::{
    Batch, Cell, Column, Compared, Dynamic, Fixed, Kind, Outcome, Row, Schema, Table, Timestamp,
    Width,
};
