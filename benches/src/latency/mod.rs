//! The bench `latency`: how long a call takes, by percentiles.
//!
//! One shard and one session, pinned to a core of its own where there are two. Calls are a SELECT in the
//! shard itself, and from a thread: SELECT, UPDATE, 32 UPDATEs at once, and a transaction that reads and
//! changes a row; in memory, and in engines with journals: synced every 100 ms (`epoch`, where a call
//! waits for no sync), or before each answer (`commit`).
//!
//! Each *idle*, with nobody else there, and *loaded*, while another session changes rows in batches of 64
//! without a pause; where there are only two cores that one shares the caller's or the shard's. Each one
//! call after the other, and at given rates (counted as `timer` says). *Parked*: with pauses in which the shard
//! goes to sleep. Each figure includes the clock's own cost, about twenty nanoseconds.

mod calls;
mod timer;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ancile::{Durability, Engine, Schema, Table, Verbs};
use clap::Args;
use serde::Serialize;

use crate::failure::Failure;
use crate::machine::{self, Machine};
use crate::random::XorShift;
use crate::report::{self, Journal};
use crate::workload::row_of;
use crate::{line, team};
use calls::{Call, Loaded, PIPELINED};
use timer::{Bound, Pace, Timer};

const COLUMNS: usize = 10;
type Row = [u64; COLUMNS];

/// Longer than any shard spins before it sleeps.
const PAUSE: Duration = Duration::from_millis(5);

/// How often journals are synced where no call waits for it.
const EPOCH: Duration = Duration::from_millis(100);

/// Options of `latency`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Rows of the table.
    #[arg(long, default_value_t = 1_000_000)]
    pub rows: usize,
    /// Calls of a kind, at most.
    #[arg(long, default_value_t = 200_000)]
    pub calls: usize,
    /// Seconds for a kind of calls, at most.
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// Calls with pauses.
    #[arg(long, default_value_t = 300)]
    pub idle_calls: usize,
    /// Also so many calls a second, each counted from the moment at which it was to begin.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000.0, 10_000.0])]
    pub rate: Vec<f64>,
    /// Where databases with journals lie; a directory of their own is made there, and removed. Default:
    /// the system's directory for temporary files.
    #[arg(long)]
    pub directory: Option<PathBuf>,
    /// File for one JSON line a kind of calls.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// A small table and few calls, whose answers are checked: no figures.
    #[arg(long)]
    pub smoke: bool,
}

#[derive(Debug, Clone, Serialize)]
struct Latency {
    bench: &'static str,
    call: &'static str,
    durability: &'static str,
    /// `idle`, `loaded`, or `parked`.
    load: &'static str,
    /// Calls a second that were to begin; null where each began when the last one had ended.
    rate_asked: Option<f64>,
    /// Operations a second that were answered.
    rate: f64,
    rows: usize,
    columns: usize,
    /// Operations.
    calls: u64,
    nanos_p50: u64,
    nanos_p90: u64,
    nanos_p99: u64,
    nanos_p999: u64,
    nanos_max: u64,
    line_round_trip_ns: Option<f64>,
    /// Caller, shard and load have fewer cores than they are.
    oversubscribed: bool,
    pinned: bool,
    #[serde(flatten)]
    machine: Machine,
}

/// Calls that are timed in one go.
#[derive(Debug, Clone, Copy)]
struct Case {
    call: Call,
    load: &'static str,
    pace: Pace,
}

/// Runs the bench.
///
/// # Errors
/// What the engine reports, and rows that are not there.
pub fn run(options: &Options) -> Result<(), Failure> {
    if options.smoke {
        return smoke(options);
    }
    machine::refuse_debug()?;
    if options
        .rate
        .iter()
        .any(|rate| !rate.is_normal() || *rate < 0.0)
    {
        return Err(Failure::new("--rate takes calls a second, more than none"));
    }
    let machine = Machine::observe();
    let trip = line::round_trip();
    println!("{}", machine.describe());
    println!("{}", machine::describe_line(trip.as_ref()));
    let mut journal = Journal::create(options.json.as_deref())?;
    let mut shown = report::Table::new(&[
        "", "kept", "load", "a second", "p50 us", "p90", "p99", "p99.9", "max", "calls",
    ]);
    each(options, |durability, case, timer, apart| {
        let mut latency = Latency::new(options, durability, case, timer, &machine);
        latency.line_round_trip_ns = trip.map(|trip| trip.median);
        let running = if case.load == "loaded" { 3 } else { 2 };
        latency.oversubscribed = case.call != Call::Own && machine.cores < running;
        latency.pinned = apart;
        journal.write(&latency)?;
        shown.push(latency.cells());
        Ok(())
    })?;
    print!("{}", shown.render());
    println!(
        "a second: as asked, counted from the moment at which a call was to begin; - one after the other"
    );
    Ok(())
}

fn smoke(options: &Options) -> Result<(), Failure> {
    let options = Options {
        rows: 1_000,
        calls: 20,
        idle_calls: 2,
        rate: vec![10_000.0],
        ..options.clone()
    };
    let mut kinds = 0;
    each(&options, |_, case, timer, _| {
        kinds += 1;
        let each = if case.call == Call::Pipelined {
            PIPELINED
        } else {
            1
        };
        if timer.nanos.is_empty() || !timer.nanos.len().is_multiple_of(each as u64) {
            return Err(Failure::new(format!(
                "{} was not answered",
                case.call.name()
            )));
        }
        Ok(())
    })?;
    println!("{kinds} kinds of calls were answered");
    Ok(())
}

/// Times all cases, engine by engine.
fn each(
    options: &Options,
    mut timed: impl FnMut(&'static str, Case, &Timer, bool) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let folder = options.directory.clone().unwrap_or_else(std::env::temp_dir);
    let directory = tempfile::Builder::new()
        .prefix("ancile-latency.")
        .tempdir_in(folder)?;
    for durability in ["none", "epoch", "commit"] {
        let loaded = load(durability, &directory.path().join(durability), options.rows)?;
        let mut apart = true;
        for case in cases(durability, &options.rate) {
            // The shard's own calls come first: they need no core but its own. Behind the shard's back,
            // on its core, nobody would answer until the system takes turns.
            if case.call != Call::Own {
                apart = pin_apart(&loaded.engine)?;
            }
            let bound = Bound {
                calls: match case.pace {
                    Pace::Paused(_) => options.idle_calls,
                    _ => options.calls,
                },
                time: Duration::try_from_secs_f64(options.seconds)?,
            };
            let is_loaded = case.load == "loaded";
            let timer = loaded.time(case.call, is_loaded, case.pace, bound)?;
            timed(durability, case, &timer, apart)?;
        }
        loaded.engine.close()?;
    }
    Ok(())
}

/// What is timed at a durability.
fn cases(durability: &str, rates: &[f64]) -> Vec<Case> {
    let case = |call, load, pace| Case { call, load, pace };
    let mut cases = Vec::new();
    let calls: &[Call] = if durability == "none" {
        cases.push(case(Call::Own, "idle", Pace::Closed));
        cases.push(case(Call::Select, "parked", Pace::Paused(PAUSE)));
        &[
            Call::Select,
            Call::Update,
            Call::Pipelined,
            Call::Transaction,
        ]
    } else {
        &[Call::Update, Call::Pipelined, Call::Transaction]
    };
    for &call in calls {
        for load in ["idle", "loaded"] {
            cases.push(case(call, load, Pace::Closed));
            if call != Call::Pipelined {
                cases.extend(rates.iter().map(|rate| case(call, load, Pace::Open(*rate))));
            }
        }
    }
    cases
}

/// Pins this thread to a core other than the shard's; false where there is none.
fn pin_apart(engine: &Engine) -> Result<bool, Failure> {
    let shards = engine.report()?.verification.map(|read| read.shards);
    let taken = shards.and_then(|shards| Some(shards.first()?.pu_asked as usize));
    let seat = team::cores().iter().position(|core| Some(core.id) != taken);
    Ok(seat.is_some_and(team::pin))
}

/// An engine with a full table, and its ids in random order.
fn load(durability: &str, path: &Path, rows: usize) -> Result<Loaded, Failure> {
    let builder = Engine::builder().shards(1);
    let files = |builder: ancile::EngineBuilder, durability| {
        let bytes = (rows as u64 * 128) + (256 << 20);
        builder.arena_bytes(bytes).durability(durability).open(path)
    };
    let engine = match durability {
        "epoch" => files(builder, Durability::Epoch(EPOCH))?,
        "commit" => files(builder, Durability::Commit)?,
        _ => builder.build()?,
    };
    let schema = Schema::cells(COLUMNS).expect_rows(rows as u64);
    let table: Table<Row> = engine.create_table("rows", schema)?;
    let mut ids = Vec::with_capacity(rows);
    let all: Vec<_> = (0..rows as u64).map(row_of::<COLUMNS>).collect();
    engine.session()?.insert_batch(&table, &all, &mut ids)?;
    XorShift::new(rows as u64).shuffle(&mut ids);
    Ok(Loaded { engine, table, ids })
}

impl Latency {
    fn new(
        options: &Options,
        durability: &'static str,
        case: Case,
        timer: &Timer,
        machine: &Machine,
    ) -> Self {
        let at = |share| timer.nanos.value_at_quantile(share);
        Self {
            bench: "latency",
            call: case.call.name(),
            durability,
            load: case.load,
            rate_asked: match case.pace {
                Pace::Open(rate) => Some(rate),
                _ => None,
            },
            rate: timer.nanos.len() as f64 / timer.elapsed.as_secs_f64(),
            rows: options.rows,
            columns: COLUMNS,
            calls: timer.nanos.len(),
            nanos_p50: at(0.5),
            nanos_p90: at(0.9),
            nanos_p99: at(0.99),
            nanos_p999: at(0.999),
            nanos_max: timer.nanos.max(),
            line_round_trip_ns: None,
            oversubscribed: false,
            pinned: false,
            machine: machine.clone(),
        }
    }

    fn cells(&self) -> Vec<String> {
        let micros = |nanos: u64| format!("{:.2}", nanos as f64 / 1e3);
        let rate = |rate: f64| format!("{rate:.0}");
        vec![
            self.call.to_owned(),
            self.durability.to_owned(),
            self.load.to_owned(),
            self.rate_asked.map_or_else(|| "-".to_owned(), rate),
            micros(self.nanos_p50),
            micros(self.nanos_p90),
            micros(self.nanos_p99),
            micros(self.nanos_p999),
            micros(self.nanos_max),
            self.calls.to_string(),
        ]
    }
}
