//! The bench `durability`: what it costs that changes outlive the process, or the system.
//!
//! - *updates*: each shard updates rows of its own, in batches, in engines of each durability that take
//!   turns; and how much of that the disk kept up with.
//! - *commits*: changes that count only when they are on the disk: so many under way at once from one
//!   session, and single calls from threads; beside a plain file to which records are appended and synced
//!   one by one, and, if asked for, RocksDB with synced writes.
//! - *disk*: how fast the directory's disk takes what the journal writes: the limit of the rest.

mod commits;
mod disk;
#[cfg(feature = "rocksdb")]
mod rocks;
mod updates;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ancile::{Engine, EngineBuilder};
use clap::Args;
use serde::Serialize;

use crate::failure::Failure;
use crate::line;
use crate::machine::{self, Machine};
use crate::report::{Journal, Table};

/// Columns of a row.
const COLUMNS: usize = 10;
type Row = [u64; COLUMNS];

/// Options of `durability`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Rows of each shard.
    #[arg(long, default_value_t = 500_000)]
    pub rows: usize,
    /// Shards; one a processor if not given. Fewer leave the writer of journals a processor.
    #[arg(long)]
    pub shards: Option<usize>,
    /// Seconds for each figure.
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// Rounds in which the figures take turns.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Where the databases lie; a directory of their own is made there, and removed. Default: the
    /// system's directory for temporary files.
    #[arg(long)]
    pub directory: Option<PathBuf>,
    /// Also RocksDB with synced writes, from as many threads (built in with the feature `rocksdb`).
    #[arg(long)]
    pub rocksdb: bool,
    /// File for one JSON line a figure.
    #[arg(long)]
    pub json: Option<PathBuf>,
}

impl Options {
    fn builder(&self) -> EngineBuilder {
        match self.shards {
            Some(shards) => Engine::builder().shards(shards),
            None => Engine::builder(),
        }
    }
}

/// One figure.
#[derive(Debug, Clone, Serialize)]
struct Figure {
    bench: &'static str,
    group: &'static str,
    subject: String,
    /// Operations a second; bytes a second for the disk. Median of the rounds.
    per_second: f64,
    per_second_min: f64,
    per_second_max: f64,
    /// Of the group's first subject.
    ratio: f64,
    /// Longest wait of one operation or batch, in microseconds.
    longest_micros: u64,
    rounds: usize,
}

/// What one turn has measured.
#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    per_second: f64,
    longest_micros: u64,
}

/// A subject's turns.
struct Turns {
    subject: String,
    turns: Vec<Turn>,
}

impl Turns {
    fn figure(&self, group: &'static str, first: Option<f64>) -> Figure {
        let mut rates: Vec<f64> = self.turns.iter().map(|turn| turn.per_second).collect();
        rates.sort_unstable_by(f64::total_cmp);
        let median = rates[rates.len() / 2];
        Figure {
            bench: "durability",
            group,
            subject: self.subject.clone(),
            per_second: median,
            per_second_min: rates[0],
            per_second_max: rates[rates.len() - 1],
            ratio: first.map_or(1.0, |first| median / first),
            longest_micros: self
                .turns
                .iter()
                .map(|turn| turn.longest_micros)
                .max()
                .unwrap_or(0),
            rounds: self.turns.len(),
        }
    }
}

/// A directory that is removed with this value.
struct Place(PathBuf);

impl Place {
    fn new(options: &Options) -> Result<Self, Failure> {
        let base = options.directory.clone().unwrap_or_else(std::env::temp_dir);
        let path = base.join(format!("ancile-durability-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed is left to its owner.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the bench.
///
/// # Errors
/// What the engine or the disk reports.
pub fn run(options: &Options) -> Result<(), Failure> {
    machine::refuse_debug()?;
    let machine = Machine::observe();
    println!("{}", machine.describe());
    println!("{}", machine::describe_line(line::round_trip().as_ref()));
    let place = Place::new(options)?;
    let time = Duration::from_secs_f64(options.seconds);
    let mut journal = Journal::create(options.json.as_deref())?;
    let mut shown = Table::new(&[
        "",
        "subject",
        "a second",
        "min",
        "max",
        "ratio",
        "longest us",
    ]);
    let mut show = |group: &'static str, all: &[Turns]| -> Result<(), Failure> {
        let mut first = None;
        for turns in all {
            let figure = turns.figure(group, first);
            first = first.or(Some(figure.per_second));
            journal.write(&figure)?;
            let number = |value: f64| format!("{value:.0}");
            shown.push(vec![
                group.to_owned(),
                figure.subject.clone(),
                number(figure.per_second),
                number(figure.per_second_min),
                number(figure.per_second_max),
                format!("{:.2}", figure.ratio),
                figure.longest_micros.to_string(),
            ]);
        }
        Ok(())
    };
    show("disk bytes", &disk::run(place.path(), options.rounds)?)?;
    show("updates", &updates::run(place.path(), options, time)?)?;
    show("commits", &commits::run(place.path(), options, time)?)?;
    print!("{}", shown.render());
    Ok(())
}
