//! The bench `indexes`: what an index of each kind costs an insert, a change and a removal, and what it
//! finds.
//!
//! Records with a number and a text, in one shard, asked by a session, many a call; those with a unique
//! index, whose changes are transactions, one by one within the call. The indexed values come by chance,
//! two records to each but for the unique ones. Kinds take turns, each with a table of its own.

use std::path::PathBuf;
use std::time::Instant;

use ancile::{Engine, FieldKind, RecordSchema, Records, Session, Value, Verbs};
use clap::Args;
use serde::Serialize;

use crate::failure::Failure;
use crate::machine::{self, Machine};
use crate::random::key_of;
use crate::report::Journal;

/// Records of one call.
const BATCH: usize = 1024;

/// Options of `indexes`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Records of each table.
    #[arg(long, default_value_t = 200_000)]
    pub rows: u64,
    /// How often everything is done; the fastest counts.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// File for JSON lines.
    #[arg(long)]
    pub json: Option<PathBuf>,
}

/// Which index a table has.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    None,
    Hash,
    Ordered,
    Unique,
}

/// Nanoseconds of one operation.
#[derive(Debug, Clone, Copy, Serialize)]
struct Times {
    insert: f64,
    find: f64,
    replace: f64,
    delete: f64,
}

/// What was found.
#[derive(Debug, Serialize)]
struct Found {
    bench: &'static str,
    kind: Kind,
    rows: u64,
    nanos: Times,
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
    println!("nanoseconds of one operation, {} records", options.rows);
    println!("index       insert     find  replace   delete");
    for kind in [Kind::None, Kind::Hash, Kind::Ordered, Kind::Unique] {
        let mut best: Option<Times> = None;
        for _ in 0..options.rounds.max(1) {
            let times = turn(kind, options.rows)?;
            let fastest = best.map_or(times, |best| best.fastest(times));
            best = Some(fastest);
        }
        let Some(nanos) = best else { continue };
        println!(
            "{:<8} {:>9.0} {:>8.0} {:>8.0} {:>8.0}",
            format!("{kind:?}").to_lowercase(),
            nanos.insert,
            nanos.find,
            nanos.replace,
            nanos.delete,
        );
        journal.write(&Found {
            bench: "indexes",
            kind,
            rows: options.rows,
            nanos,
            machine: machine.clone(),
        })?;
    }
    Ok(())
}

impl Times {
    fn fastest(self, other: Self) -> Self {
        Self {
            insert: self.insert.min(other.insert),
            find: self.find.min(other.find),
            replace: self.replace.min(other.replace),
            delete: self.delete.min(other.delete),
        }
    }
}

/// The record of a number; its indexed value differs from round to round.
fn record(kind: Kind, number: u64, round: u64) -> Vec<Value> {
    let group = match kind {
        Kind::Unique => number,
        Kind::None | Kind::Hash | Kind::Ordered => number / 2,
    };
    vec![
        Value::U64(number),
        Value::Text(value(group, round)),
        Value::U64(round),
    ]
}

fn value(group: u64, round: u64) -> String {
    format!("{:016x}", key_of(group << 1 | round))
}

fn turn(kind: Kind, rows: u64) -> Result<Times, Failure> {
    let arena_bytes = (rows * 1024 + (64 << 20)).next_multiple_of(2 << 20);
    let settings = Engine::builder().shards(1).arena_bytes(arena_bytes);
    let engine = settings.build()?;
    let schema = RecordSchema::new()
        .field("number", FieldKind::U64)
        .field("value", FieldKind::Text)
        .field("round", FieldKind::U64)
        .key(&["number"]);
    let schema = match kind {
        Kind::None => schema,
        Kind::Hash => schema.hash_index("value", &["value"]),
        Kind::Ordered => schema.ordered_index("value", &["value"]),
        Kind::Unique => schema.unique_index("value", &["value"]),
    };
    let table = engine.create_records_with("records", schema)?;
    let mut session = engine.session()?;
    let times = Times {
        insert: timed(rows, || {
            let insert = |session: &mut Session, records: &[Vec<Value>]| {
                session.records(&table).insert_batch(records).map(drop)
            };
            batches(&mut session, (kind, rows, 0), insert)
        })?,
        find: timed(rows, || find(&mut session, &table, (kind, rows)))?,
        replace: timed(rows, || {
            let replace = |session: &mut Session, records: &[Vec<Value>]| {
                session.records(&table).replace_batch(records).map(drop)
            };
            batches(&mut session, (kind, rows, 1), replace)
        })?,
        delete: timed(rows, || {
            let keys: Vec<Value> = (0..rows).map(Value::U64).collect();
            let deleted = session.records(&table).delete_batch(&keys)?;
            assert_eq!(deleted as u64, rows);
            Ok(())
        })?,
    };
    drop(session);
    engine.close()?;
    Ok(times)
}

fn timed(rows: u64, work: impl FnOnce() -> Result<(), Failure>) -> Result<f64, Failure> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_nanos() as f64 / rows as f64)
}

/// Makes and hands over all records, some at a time.
fn batches(
    session: &mut Session,
    (kind, rows, round): (Kind, u64, u64),
    mut work: impl FnMut(&mut Session, &[Vec<Value>]) -> ancile::Result<()>,
) -> Result<(), Failure> {
    for first in (0..rows).step_by(BATCH) {
        let numbers = first..rows.min(first + BATCH as u64);
        let records: Vec<_> = numbers.map(|number| record(kind, number, round)).collect();
        work(session, &records)?;
    }
    Ok(())
}

/// Finds every record by its indexed value, or, without an index, by its key.
fn find(
    session: &mut Session,
    table: &Records<Vec<Value>>,
    (kind, rows): (Kind, u64),
) -> Result<(), Failure> {
    let mut records = session.records(table);
    let mut found = 0;
    if matches!(kind, Kind::None) {
        let keys: Vec<Value> = (0..rows).map(Value::U64).collect();
        records.get_each(&keys, |_, record| found += u64::from(record.is_some()))?;
    } else {
        let groups = match kind {
            Kind::Unique => rows,
            Kind::None | Kind::Hash | Kind::Ordered => rows.div_ceil(2),
        };
        let values: Vec<Value> = (0..groups)
            .map(|group| Value::Text(value(group, 0)))
            .collect();
        records.find_each("value", &values, |_, _| found += 1)?;
    }
    assert_eq!(found, rows, "every record is found once");
    Ok(())
}
