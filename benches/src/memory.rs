//! The bench `memory`: bytes a row, bytes of its index, and the longest insert while a table grows.
//!
//! One shard, one keyed table without any expectation of its size, rows inserted one by one. Every
//! insert is timed by itself; a table that moves or doubles in one step shows here and nowhere else.
//! Memory is made present beforehand, unless `--cold` asks for the page faults, too: first touch of a
//! huge page takes as long as its zeroing does, which is the system's time and not the table's.
//! Time for which the system kept the thread off its core is taken out, where the system tells it.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use ancile::{Engine, Resident, Schema, SurrogateId, Table};
use clap::Args;
use serde::Serialize;

use crate::failure::Failure;
use crate::machine::{self, Machine};
use crate::random::key_of;
use crate::report::Journal;
use crate::with_columns;
use crate::workload::row_of;

/// Inserts that are slower than this are counted.
const SLOW_MICROS: u64 = 1_000;

/// From here on it is asked whether the thread was kept waiting for its core by others.
const SUSPECT_NANOS: u64 = 50_000;

/// Options of `memory`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Rows to grow to.
    #[arg(long, default_value_t = 20_000_000)]
    pub rows: u64,
    /// Columns of 8 bytes.
    #[arg(long, default_value_t = 10)]
    pub columns: usize,
    /// Leave memory to be touched first by the inserts.
    #[arg(long)]
    pub cold: bool,
    /// File for one JSON line.
    #[arg(long)]
    pub json: Option<PathBuf>,
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
struct Found {
    bench: &'static str,
    columns: usize,
    rows: u64,
    bytes_per_row: f64,
    bytes_per_row_bound: f64,
    index_bytes_per_row: f64,
    index_bytes_per_row_bound: f64,
    used_bytes: u64,
    resident_bytes: u64,
    insert_nanos_mean: f64,
    insert_micros_max: f64,
    inserts_over_a_millisecond: u64,
    cold: bool,
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
    println!("{}", machine.describe());
    let mut journal = Journal::create(options.json.as_deref())?;
    with_columns!(options.columns, N => grow::<N>(options, &machine, &mut journal))
}

/// What one shard saw of its inserts.
struct Growth {
    nanos_sum: u64,
    nanos_max: u64,
    slow: u64,
    row_bytes: u64,
    index_bytes: u64,
}

fn grow<const N: usize>(
    options: &Options,
    machine: &Machine,
    journal: &mut Journal,
) -> Result<(), Failure> {
    let rows = options.rows;
    let arena_bytes = (rows * (N as u64 * 8 + 64) + (256 << 20)).next_multiple_of(2 << 20);
    let engine = Engine::builder()
        .shards(1)
        .arena_bytes(arena_bytes)
        .build()?;
    let table: Table<[u64; N]> = engine.create_table("grown", Schema::cells(N).keyed())?;
    if !options.cold {
        engine.prefault(arena_bytes)?;
    }
    let task = engine.spawn(0, move |resident| insert(resident, &table, rows))?;
    let growth = task.join()??;
    let used_bytes = engine.used_bytes()?.iter().sum();
    let found = Found {
        bench: "memory",
        columns: N,
        rows,
        bytes_per_row: growth.row_bytes as f64 / rows as f64,
        // A keyed row holds its key besides the cells.
        bytes_per_row_bound: 1.1 * (8 * N) as f64 + 8.0,
        index_bytes_per_row: growth.index_bytes as f64 / rows as f64,
        index_bytes_per_row_bound: 14.0,
        used_bytes,
        resident_bytes: machine::resident_bytes(),
        insert_nanos_mean: growth.nanos_sum as f64 / rows as f64,
        insert_micros_max: growth.nanos_max as f64 / 1e3,
        inserts_over_a_millisecond: growth.slow,
        cold: options.cold,
        machine: machine.clone(),
    };
    println!(
        "{} rows of {} columns: {:.1} bytes a row with its key (bound without key {:.1}), \
         {:.1} of index (bound with key {:.0}); {} MiB in use, {} MiB resident",
        found.rows,
        found.columns,
        found.bytes_per_row,
        found.bytes_per_row_bound,
        found.index_bytes_per_row,
        found.index_bytes_per_row_bound,
        found.used_bytes >> 20,
        found.resident_bytes >> 20,
    );
    println!(
        "insert{}: mean {:.0} ns, longest {:.0} us, {} over a millisecond",
        if options.cold {
            " into memory never touched"
        } else {
            ""
        },
        found.insert_nanos_mean,
        found.insert_micros_max,
        found.inserts_over_a_millisecond
    );
    journal.write(&found)
}

fn insert<const N: usize>(
    resident: &mut Resident<'_>,
    table: &Table<[u64; N]>,
    count: u64,
) -> ancile::Result<Growth> {
    let mut growth = Growth {
        nanos_sum: 0,
        nanos_max: 0,
        slow: 0,
        row_bytes: 0,
        index_bytes: 0,
    };
    let mut rows = resident.rows(table)?;
    let mut delay_before = run_delay_nanos();
    let mut before = Instant::now();
    for ordinal in 0..count {
        let key = key_of(ordinal);
        rows.insert_keyed(SurrogateId(key), &row_of(key))?;
        let after = Instant::now();
        let mut nanos = (after - before).as_nanos() as u64;
        growth.nanos_sum += nanos;
        let is_suspect = nanos > SUSPECT_NANOS;
        if is_suspect {
            let delay = run_delay_nanos();
            nanos = nanos.saturating_sub(delay - delay_before);
            delay_before = delay;
        }
        growth.nanos_max = growth.nanos_max.max(nanos);
        growth.slow += u64::from(nanos > SLOW_MICROS * 1_000);
        // After looking at the delay: reading it takes time of its own.
        before = if is_suspect { Instant::now() } else { after };
    }
    (growth.row_bytes, growth.index_bytes) = rows.bytes();
    Ok(growth)
}

/// How long this thread has waited for a core so far, while it could have run.
fn run_delay_nanos() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let delay = text.split_whitespace().nth(1);
    delay.and_then(|word| word.parse().ok()).unwrap_or(0)
}
