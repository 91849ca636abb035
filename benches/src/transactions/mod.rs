//! The bench `transactions`: what transactions over two shards cost those that stay in one.
//!
//! Every shard has resident work that updates rows of ten columns: most of its transactions are one
//! update on its own shard, in batches; a *share* of them update one row there and one in another
//! shard, all or nothing. The shares take turns, slice by slice, so that each is compared with the
//! rate without any of the same minute. `--peers` lets other stores take turns at transactions of
//! four random updates, and `--hot` puts half of the load on one row.

mod hot;
mod latency;
mod peers;
mod shares;

use std::path::PathBuf;

use ancile::{DirectId, Engine, Schema, SurrogateId, Table};
use clap::Args;
use serde::Serialize;

use crate::failure::Failure;
use crate::machine::{self, Machine};
use crate::report::Journal;
use crate::workload::row_of;
use crate::{line, team};

/// Columns of every table.
const COLUMNS: usize = 10;

type Row = [u64; COLUMNS];

/// Options of `transactions`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Rows of the table.
    #[arg(long, default_value_t = 1_000_000)]
    pub rows: usize,
    /// Shards; each has resident work.
    #[arg(long, default_value_t = 2)]
    pub shards: usize,
    /// Shares of transactions over two shards, in per cent.
    #[arg(long, value_delimiter = ',', default_value = "0,1,10,50,100")]
    pub shares: Vec<f64>,
    /// Seconds for each share or store.
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// Slices into which that time is cut.
    #[arg(long, default_value_t = 9)]
    pub rounds: usize,
    /// Also: other stores, transactions of four random updates.
    #[arg(long)]
    pub peers: bool,
    /// Also: half of the load on one row.
    #[arg(long)]
    pub hot: bool,
    /// File for JSON lines.
    #[arg(long)]
    pub json: Option<PathBuf>,
}

/// One line of the report.
#[derive(Debug, Clone, Serialize)]
struct Line {
    bench: &'static str,
    part: &'static str,
    case: String,
    rows: usize,
    shards: usize,
    transactions_per_second: f64,
    transactions_per_second_min: f64,
    transactions_per_second_max: f64,
    /// Rate in parts of the case that it is compared with.
    ratio: Option<f64>,
    nanos_p50: Option<u64>,
    nanos_p99: Option<u64>,
    line_round_trip_ns: Option<f64>,
    oversubscribed: bool,
    durability: &'static str,
    #[serde(flatten)]
    machine: Machine,
}

/// An engine with one full table, and where its rows are.
struct Loaded {
    engine: Engine,
    table: Table<Row>,
    /// Keys of each shard's rows.
    keys: Vec<Vec<SurrogateId>>,
    /// Their places.
    ids: Vec<Vec<DirectId>>,
}

/// Runs the bench.
///
/// # Errors
/// What the engine or a store reports.
pub fn run(options: &Options) -> Result<(), Failure> {
    machine::refuse_debug()?;
    let mut report = Report::new(options)?;
    let loaded = Loaded::new(options)?;
    shares::run(options, &loaded, &mut report)?;
    latency::run(options, &loaded, &mut report)?;
    if options.hot {
        hot::run(options, &loaded, &mut report)?;
    }
    if options.peers {
        peers::run(options, &loaded, &mut report)?;
    }
    Ok(())
}

/// Where lines go, and what all of them have in common.
struct Report {
    journal: Journal,
    machine: Machine,
    rows: usize,
    shards: usize,
}

impl Report {
    fn new(options: &Options) -> Result<Self, Failure> {
        let machine = Machine::observe();
        println!("{}", machine.describe());
        println!("{}", machine::describe_line(line::round_trip().as_ref()));
        Ok(Self {
            journal: Journal::create(options.json.as_deref())?,
            machine,
            rows: options.rows,
            shards: options.shards,
        })
    }

    fn line(&self, part: &'static str, case: impl Into<String>) -> Line {
        Line {
            bench: "transactions",
            part,
            case: case.into(),
            rows: self.rows,
            shards: self.shards,
            transactions_per_second: 0.0,
            transactions_per_second_min: 0.0,
            transactions_per_second_max: 0.0,
            ratio: None,
            nanos_p50: None,
            nanos_p99: None,
            line_round_trip_ns: line::round_trip().map(|trip| trip.median),
            oversubscribed: self.shards > team::cores().len(),
            durability: "none",
            machine: self.machine.clone(),
        }
    }
}

impl Loaded {
    fn new(options: &Options) -> Result<Self, Failure> {
        let engine = Engine::builder().shards(options.shards).build()?;
        let rows = options.rows as u64;
        let table =
            engine.create_table::<Row>("rows", Schema::cells(COLUMNS).keyed().expect_rows(rows))?;
        let mut keys = vec![Vec::new(); options.shards];
        for key in (0..rows).map(SurrogateId) {
            keys[engine.shard_of(&table, key)].push(key);
        }
        let mut ids = Vec::new();
        for (shard, keys) in keys.iter().enumerate() {
            let (table, keys) = (table.clone(), keys.clone());
            let load = move |resident: &mut ancile::Resident<'_>| {
                let mut rows = resident.rows(&table)?;
                keys.iter()
                    .map(|key| rows.insert_keyed(*key, &row_of(key.0)))
                    .collect::<ancile::Result<Vec<DirectId>>>()
            };
            ids.push(engine.spawn(shard, load)?.join()??);
        }
        Ok(Self {
            engine,
            table,
            keys,
            ids,
        })
    }
}
