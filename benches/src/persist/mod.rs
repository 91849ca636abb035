//! The bench `persist`: a phone book in maps and stores, next to the figures published for Persist.
//!
//! # The job
//! Rows of name, address and telephone are entered, found in sequence, found in random order and
//! deleted, one query a row; [`job`] has the details. With one index rows are found by name, as in the
//! original; with two the random order asks by telephone.
//!
//! # How a figure comes about
//! For each number of rows the contestants take turns, round after round, each turn in a process of its
//! own ([`turn`]). A cell is the median of its turns, and a turn the median of its passes. A contestant
//! that has used up its seconds takes no further turns for that number of rows. Every row is compared
//! with what was stored, and a wrong answer ends the run.
//!
//! # What is compared with what
//! Maps keep nothing and are the measure of speed. Stores have a transaction a row, or one a batch where
//! batches are asked for; what a commit survives is on each line. Files that are not synced lie in
//! shared memory. Stores and servers that take minutes are left out above some number of rows.
//!
//! # How to add a contestant
//! Write a [`book::Book`], or a [`book::Contestant`] where the work is done elsewhere, and enter it in
//! [`roster::ROSTER`].

pub mod book;
pub mod job;
pub mod lmdb;
pub mod maps;
#[cfg(feature = "mariadb")]
pub mod mariadb;
pub mod ours;
pub mod published;
pub mod redb_store;
pub mod roster;
pub mod sqlite;
mod table;
pub mod turn;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::failure::Failure;
use crate::machine::{self, Machine};
use crate::report::{Journal, progress};
use crate::rounds::Summary;
use crate::team;
use job::Job;
use roster::{Choice, Durability, Files, Kind, Places, ROSTER, Spec};
use turn::Turn;

/// Rows that the engine is asked at a time, where it is asked in batches.
const ROWS_PER_BATCH: usize = 256;

/// What the largest of the maps takes for a row, with room to spare.
const ROW_BYTES: u64 = 500;

/// Options of `persist`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Rows of the full book.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "100,1000,10000,100000,1000000",
        value_parser = clap::value_parser!(u64).range(1..=1 << 32)
    )]
    pub rows: Vec<u64>,
    /// 1: found by name; 2: by telephone, too.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,2",
        value_parser = clap::value_parser!(u8).range(1..=2)
    )]
    pub indexes: Vec<u8>,
    /// What rows must survive: stores in this process that promise less are left out.
    #[arg(long, default_value = "none")]
    pub durability: Durability,
    /// Who takes part; all but MariaDB if not given.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "std,hashbrown,sqlite,lmdb,redb"
    )]
    pub peers: Vec<Choice>,
    /// Rows a transaction of the stores; 1 means single calls.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1",
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1 << 20)
    )]
    pub batch: Vec<usize>,
    /// Turns of each contestant.
    #[arg(
        long,
        default_value_t = 5,
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..)
    )]
    pub rounds: usize,
    /// A contestant whose turns have taken this many seconds takes no more for that many rows.
    #[arg(long, default_value_t = 60.0)]
    pub seconds: f64,
    /// Stores get at most this many rows.
    #[arg(long, default_value_t = 1_000_000)]
    pub store_rows: u64,
    /// Servers get at most this many rows.
    #[arg(long, default_value_t = 100_000)]
    pub server_rows: u64,
    /// What syncs every transaction gets at most this many rows.
    #[arg(long, default_value_t = 10_000)]
    pub synced_rows: u64,
    /// Where files and sockets are.
    #[command(flatten)]
    pub places: Places,
    /// File for one JSON line a contestant and shape.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// A hundred rows, single calls and batches, no figures.
    #[arg(long)]
    pub smoke: bool,
}

/// One line of the report. Seconds are medians over turns.
#[derive(Debug, Clone, Serialize)]
struct Line {
    bench: &'static str,
    contestant: String,
    kind: &'static str,
    /// What a commit survives: nothing, the end of its process, a power cut.
    durability: &'static str,
    setting: &'static str,
    /// Directory of its files, or its socket.
    place: Option<PathBuf>,
    rows: u64,
    indexes: u8,
    batch: usize,
    seconds_create: f64,
    seconds_sequence: f64,
    seconds_random: f64,
    seconds_delete: f64,
    seconds_total: f64,
    /// The quickest pass of all turns.
    seconds_total_min: f64,
    seconds_total_max: f64,
    seconds_total_mad: f64,
    /// What writing and comparing the texts takes of any total.
    seconds_texts: f64,
    turns: usize,
    passes: usize,
    checksum: u64,
    /// Peak of this process; null where another one holds the rows.
    peak_resident_bytes: Option<u64>,
    /// Size of its files after the phase that left the most.
    file_bytes: Option<u64>,
    published_mysql_seconds: Option<f64>,
    published_persist_seconds: Option<f64>,
    published_stl_seconds: Option<f64>,
    pinned: bool,
    oversubscribed: bool,
    #[serde(flatten)]
    machine: Machine,
}

/// All that took part for one number of rows and of indexes.
struct Shape {
    rows: u64,
    indexes: u8,
    seconds_texts: f64,
    lines: Vec<Line>,
}

/// A contestant of a shape.
struct Entry {
    spec: &'static Spec,
    job: Job,
    turns: Vec<Turn>,
}

/// Runs the bench.
///
/// # Errors
/// Wrong answers, or what keeps a store from being made.
pub fn run(options: &Options) -> Result<(), Failure> {
    if options.smoke {
        return smoke(options);
    }
    machine::refuse_debug()?;
    if options.peers.contains(&Choice::Mariadb) {
        // Not after the others have had their turns.
        options.places.of(Files::Server)?;
    }
    let machine = Machine::observe();
    println!("{}", machine.describe());
    let mut journal = Journal::create(options.json.as_deref())?;
    let mut shapes = Vec::new();
    for indexes in &options.indexes {
        for rows in &options.rows {
            if let Some(shape) = measure(options, &machine, *rows, *indexes)? {
                for line in &shape.lines {
                    journal.write(line)?;
                }
                print!("{}", table::shape(&shape));
                shapes.push(shape);
            }
        }
    }
    print!("{}", table::summary(&shapes));
    Ok(())
}

/// Every contestant in this process, small.
fn smoke(options: &Options) -> Result<(), Failure> {
    let mut options = options.clone();
    // Syncing is not what is looked at.
    options.places.disk = options.places.directory.clone();
    options.batch = vec![1, 7];
    let mut count = 0;
    for indexes in [1, 2] {
        let mut checksums = Vec::new();
        for entry in entries(&options, 100, indexes) {
            let turn = turn::take(entry.spec, entry.job, &options.places, Duration::ZERO)?;
            checksums.push(turn.checksum);
            count += 1;
        }
        if checksums.iter().any(|checksum| *checksum != checksums[0]) {
            return Err(Failure::new("contestants have read different rows"));
        }
    }
    println!("{count} phone books held and gave back what was stored");
    Ok(())
}

/// Lets the contestants take turns; `None` where nobody takes part.
fn measure(
    options: &Options,
    machine: &Machine,
    rows: u64,
    indexes: u8,
) -> Result<Option<Shape>, Failure> {
    let mut entries = entries(options, rows, indexes);
    let (needed, free) = (rows * ROW_BYTES, machine::memory_available());
    if needed > free {
        return Err(Failure::new(format!(
            "{rows} rows need {} MiB of memory, and {} are free",
            needed >> 20,
            free >> 20
        )));
    }
    let Some(first) = entries.first() else {
        return Ok(None);
    };
    let seconds_texts = first.job.texts_seconds();
    let bar = progress((options.rounds * entries.len()) as u64);
    for _ in 0..options.rounds {
        for entry in &mut entries {
            bar.set_message(format!("{}, {rows} rows, {indexes}", entry.name()));
            let taken: f64 = entry.turns.iter().map(Turn::seconds).sum();
            if entry.turns.is_empty() || taken < options.seconds {
                let turn = turn::launch(entry.spec, entry.job, &options.places)?;
                entry.turns.push(turn);
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let mut shape = Shape {
        rows,
        indexes,
        seconds_texts,
        lines: Vec::new(),
    };
    for entry in &entries {
        shape
            .lines
            .push(entry.line(options, machine, seconds_texts)?);
    }
    Ok(Some(shape))
}

/// Who takes part at this size, in the order of the roster.
fn entries(options: &Options, rows: u64, indexes: u8) -> Vec<Entry> {
    let mut entries = Vec::new();
    for spec in ROSTER {
        let is_wanted = spec.choice == Choice::Ours || options.peers.contains(&spec.choice);
        let promises_too_little = spec.kind == Kind::Store && spec.durability < options.durability;
        let mut rows_max = match spec.kind {
            Kind::Map | Kind::Batched => u64::MAX,
            Kind::Store => options.store_rows,
            Kind::Server => options.server_rows,
        };
        if spec.durability == Durability::Power {
            rows_max = rows_max.min(options.synced_rows);
        }
        if !is_wanted || promises_too_little || rows > rows_max {
            continue;
        }
        let batches = match spec.kind {
            Kind::Store => &options.batch[..],
            Kind::Batched => &[ROWS_PER_BATCH][..],
            Kind::Map | Kind::Server => &[1],
        };
        entries.extend(batches.iter().map(|batch| Entry {
            spec,
            job: Job {
                rows,
                indexes,
                batch: *batch,
            },
            turns: Vec::new(),
        }));
    }
    entries
}

impl Entry {
    fn name(&self) -> String {
        match self.job.batch {
            1 => self.spec.name.to_owned(),
            batch => format!("{}/{batch}", self.spec.name),
        }
    }

    fn line(
        &self,
        options: &Options,
        machine: &Machine,
        seconds_texts: f64,
    ) -> Result<Line, Failure> {
        let summary =
            |of: &dyn Fn(&Turn) -> f64| Summary::of(&self.turns.iter().map(of).collect::<Vec<_>>());
        let phase = |phase: usize| summary(&|turn: &Turn| turn.phases[phase]).median;
        let total = summary(&|turn: &Turn| turn.total);
        let is_here = self.spec.kind != Kind::Server;
        let peak = self.turns.iter().map(|turn| turn.peak_resident_bytes).max();
        let files = self.turns.iter().map(|turn| turn.file_bytes).max();
        let published = published::of(self.job.rows);
        Ok(Line {
            bench: "persist",
            contestant: self.name(),
            kind: self.spec.kind.name(),
            durability: self.spec.durability.name(),
            setting: self.spec.setting,
            place: options.places.of(self.spec.files)?.map(PathBuf::from),
            rows: self.job.rows,
            indexes: self.job.indexes,
            batch: self.job.batch,
            seconds_create: phase(0),
            seconds_sequence: phase(1),
            seconds_random: phase(2),
            seconds_delete: phase(3),
            seconds_total: total.median,
            seconds_total_min: summary(&|turn: &Turn| turn.total_min).min,
            seconds_total_max: total.max,
            seconds_total_mad: total.mad,
            seconds_texts,
            turns: self.turns.len(),
            passes: self.turns.iter().map(|turn| turn.passes).sum(),
            checksum: self.turns[0].checksum,
            peak_resident_bytes: peak.filter(|_| is_here),
            file_bytes: files.filter(|_| is_here),
            published_mysql_seconds: published.map(|published| published.mysql),
            published_persist_seconds: published.map(|published| published.persist),
            published_stl_seconds: published.map(|published| published.stl),
            pinned: self.turns.iter().all(|turn| turn.pinned),
            oversubscribed: !is_here && team::cores().len() < 2,
            machine: machine.clone(),
        })
    }
}
