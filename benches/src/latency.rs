//! The bench `latency`: how long one blocking SELECT takes, by percentiles.
//!
//! One shard and one session, pinned to a core of its own where there are two. `busy`: one call after
//! the other, the shard spins. `idle`: pauses between the calls in which the shard goes to sleep.
//! `own`: single calls of resident work on its own rows, for comparison; each figure includes the
//! clock's own cost, about twenty nanoseconds.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use ancile::{DirectId, Engine, Schema, Table, Verbs};
use clap::Args;
use serde::Serialize;

use crate::failure::Failure;
use crate::machine::{self, Machine};
use crate::random::XorShift;
use crate::report::{self, Journal};
use crate::workload::row_of;
use crate::{line, team};

const COLUMNS: usize = 10;

/// Longer than any shard spins before it sleeps.
const PAUSE: Duration = Duration::from_millis(5);

/// Options of `latency`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Rows of the table.
    #[arg(long, default_value_t = 1_000_000)]
    pub rows: usize,
    /// Calls without pauses.
    #[arg(long, default_value_t = 200_000)]
    pub calls: usize,
    /// Calls with pauses.
    #[arg(long, default_value_t = 300)]
    pub idle_calls: usize,
    /// File for one JSON line a way of calling.
    #[arg(long)]
    pub json: Option<PathBuf>,
}

#[derive(Debug, Clone, Serialize)]
struct Latency {
    bench: &'static str,
    way: &'static str,
    rows: usize,
    columns: usize,
    calls: usize,
    nanos_p50: u64,
    nanos_p99: u64,
    nanos_p999: u64,
    nanos_max: u64,
    checksum: u64,
    line_round_trip_ns: Option<f64>,
    oversubscribed: bool,
    #[serde(flatten)]
    machine: Machine,
}

/// Runs the bench.
///
/// # Errors
/// What the engine reports.
pub fn run(options: &Options) -> Result<(), Failure> {
    machine::refuse_debug()?;
    let machine = Machine::observe();
    let trip = line::round_trip();
    println!("{}", machine.describe());
    println!("{}", machine::describe_line(trip.as_ref()));
    let mut journal = Journal::create(options.json.as_deref())?;
    let engine = Engine::builder().shards(1).build()?;
    let table: Table<[u64; COLUMNS]> = engine.create_table(
        "rows",
        Schema::cells(COLUMNS).expect_rows(options.rows as u64),
    )?;
    let ids = load(&engine, &table, options.rows)?;

    let mut ways = Vec::new();
    let (own_table, own_ids, calls) = (table.clone(), ids.clone(), options.calls);
    let own = engine.spawn(0, move |resident| {
        let rows = resident.rows(&own_table)?;
        time(&own_ids, calls, None, |id| Ok(rows.select(id)))
    })?;
    ways.push(("own", own.join()??));
    // Behind the shard's back, on its core, nobody would answer until the system takes turns.
    let apart = pin_apart(&engine)?;
    let mut session = engine.session()?;
    for (way, calls, pause) in [
        ("busy", options.calls, None),
        ("idle", options.idle_calls, Some(PAUSE)),
    ] {
        ways.push((
            way,
            time(&ids, calls, pause, |id| session.select(&table, id))?,
        ));
    }

    let mut shown = report::Table::new(&["", "p50 ns", "p99", "p99.9", "max", "calls"]);
    for (way, (nanos, checksum)) in ways {
        let at = |share: f64| nanos[((nanos.len() - 1) as f64 * share) as usize];
        let latency = Latency {
            bench: "latency",
            way,
            rows: options.rows,
            columns: COLUMNS,
            calls: nanos.len(),
            nanos_p50: at(0.5),
            nanos_p99: at(0.99),
            nanos_p999: at(0.999),
            nanos_max: at(1.0),
            checksum,
            line_round_trip_ns: trip.map(|trip| trip.median),
            oversubscribed: !apart,
            machine: machine.clone(),
        };
        journal.write(&latency)?;
        shown.push(vec![
            way.to_owned(),
            latency.nanos_p50.to_string(),
            latency.nanos_p99.to_string(),
            latency.nanos_p999.to_string(),
            latency.nanos_max.to_string(),
            latency.calls.to_string(),
        ]);
    }
    print!("{}", shown.render());
    Ok(())
}

/// Pins this thread to a core other than the shard's; false where there is none.
fn pin_apart(engine: &Engine) -> Result<bool, Failure> {
    let shards = engine.report()?.verification.map(|read| read.shards);
    let taken = shards.and_then(|shards| Some(shards.first()?.pu_asked as usize));
    let seat = team::cores().iter().position(|core| Some(core.id) != taken);
    Ok(seat.is_some_and(team::pin))
}

/// Ids of a full table, in random order.
fn load(
    engine: &Engine,
    table: &Table<[u64; COLUMNS]>,
    count: usize,
) -> Result<Vec<DirectId>, Failure> {
    let mut session = engine.session()?;
    let mut ids = Vec::with_capacity(count);
    let rows: Vec<_> = (0..count as u64).map(row_of::<COLUMNS>).collect();
    session.insert_batch(table, &rows, &mut ids)?;
    XorShift::new(count as u64).shuffle(&mut ids);
    Ok(ids)
}

/// Sorted times of single calls, and a sum of what they read.
fn time(
    ids: &[DirectId],
    calls: usize,
    pause: Option<Duration>,
    mut select: impl FnMut(DirectId) -> ancile::Result<Option<[u64; COLUMNS]>>,
) -> ancile::Result<(Vec<u64>, u64)> {
    let mut nanos = Vec::with_capacity(calls);
    let mut checksum = 0_u64;
    for id in ids.iter().cycle().take(calls) {
        if let Some(pause) = pause {
            thread::sleep(pause);
        }
        let start = Instant::now();
        let row = select(*id)?;
        nanos.push(start.elapsed().as_nanos() as u64);
        checksum = checksum.wrapping_add(row.map_or(0, |row| row[0]));
    }
    nanos.sort_unstable();
    Ok((nanos, checksum))
}
