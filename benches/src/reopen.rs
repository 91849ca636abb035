//! The bench `reopen`: how long it takes until a database that was closed, or whose process was killed,
//! answers again, whatever its size.
//!
//! A database of rows is filled once for each size and durability; then a process opens it, changes rows
//! by chance for some seconds and closes it, or is killed in the midst of that, and the next opening is
//! timed, to its end and to its first answer. Closed and killed take turns. What is then found is checked:
//! all rows are there, and those that are looked at are what some process has set.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ancile::{
    Durability, Engine, EngineBuilder, Resident, Schema, Session, SurrogateId, Table, Verbs,
};
use clap::{Args, ValueEnum};
use serde::Serialize;
use tempfile::TempDir;

use crate::failure::Failure;
use crate::machine::{self, Machine};
use crate::random::XorShift;
use crate::report::{Journal, Table as Shown};

/// 512 bytes a row.
const COLUMNS: usize = 64;
type Row = [u64; COLUMNS];
const ROW_BYTES: u64 = COLUMNS as u64 * 8;
const BATCH: u64 = 256;

/// Rows that are looked at after an opening.
const LOOKS: u64 = 1000;

/// What the changes survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kept {
    /// Mapped files, in shared memory where there is any.
    Process,
    /// Journals, synced every 100 ms.
    Epoch,
}

/// How the process before ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum End {
    Closed,
    Killed,
}

/// Options of `reopen`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Sizes of the database in GiB of rows; 0 means a single row.
    #[arg(long, value_delimiter = ',', default_values_t = [0.0, 0.1, 1.0, 5.0])]
    pub gib: Vec<f64>,
    /// Openings after each end.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// How long a process changes rows before it ends, in seconds.
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// Where databases with journals lie; a directory of their own is made there, and removed. Default:
    /// the system's directory for temporary files.
    #[arg(long)]
    pub directory: Option<PathBuf>,
    /// File for JSON lines.
    #[arg(long)]
    pub json: Option<PathBuf>,
}

/// Options of one process that changes rows.
#[derive(Debug, Clone, Args)]
pub struct Change {
    path: PathBuf,
    #[arg(long)]
    kept: Kept,
    #[arg(long)]
    rows: u64,
    /// Seconds after which it says so and goes on until it is killed; without them it closes at once.
    #[arg(long)]
    seconds: f64,
    #[arg(long)]
    closes: bool,
}

/// What was found of one size, durability and end.
#[derive(Debug, Serialize)]
struct Found {
    bench: &'static str,
    kept: Kept,
    after: End,
    rows: u64,
    row_bytes: u64,
    /// All rounds in order of length, in milliseconds.
    open_ms: Vec<f64>,
    first_answer_ms: Vec<f64>,
    /// Until all memory is that of the shards; nothing of mapped files.
    loaded_ms: Vec<f64>,
    #[serde(flatten)]
    machine: Machine,
}

/// What one opening took.
struct Opening {
    open: Duration,
    answer: Duration,
    loaded: Duration,
}

/// Runs the bench.
///
/// # Errors
/// What the engine or the system reports, and rows that are not what they should be.
pub fn run(options: &Options) -> Result<(), Failure> {
    machine::refuse_debug()?;
    let machine = Machine::observe();
    println!("{}", machine.describe());
    let mut journal = Journal::create(options.json.as_deref())?;
    let head = [
        "kept",
        "after",
        "MiB",
        "open ms",
        "max",
        "first answer ms",
        "max",
        "loaded ms",
    ];
    let mut shown = Shown::new(&head);
    for kept in [Kept::Process, Kept::Epoch] {
        for &gib in &options.gib {
            for (after, openings) in turns(options, kept, rows_of(gib)?)? {
                let found = Found::new(kept, after, rows_of(gib)?, &openings, &machine);
                journal.write(&found)?;
                shown.push(found.cells());
            }
        }
    }
    print!("{}", shown.render());
    println!("medians of {} openings", options.rounds.max(1));
    Ok(())
}

fn rows_of(gib: f64) -> Result<u64, Failure> {
    match gib {
        gib if (0.0..=1024.0).contains(&gib) => {
            Ok(((gib * f64::from(1 << 30)) as u64 / ROW_BYTES).max(1))
        }
        _ => Err(Failure::new("--gib takes numbers from 0 to 1024")),
    }
}

/// Openings of a database that was closed and whose process was killed, in turns.
fn turns(options: &Options, kept: Kept, rows: u64) -> Result<[(End, Vec<Opening>); 2], Failure> {
    let directory = directory(options, kept)?;
    let path = directory.path().join("database");
    fill(&path, kept, rows)?;
    let mut all = [(End::Closed, Vec::new()), (End::Killed, Vec::new())];
    for _ in 0..options.rounds.max(1) {
        for (end, openings) in &mut all {
            change_elsewhere(options, &path, kept, rows, *end)?;
            openings.push(open(&path, kept, rows)?);
        }
    }
    Ok(all)
}

fn directory(options: &Options, kept: Kept) -> Result<TempDir, Failure> {
    let shared = Path::new("/dev/shm");
    let folder = match kept {
        Kept::Process if shared.is_dir() => shared.to_owned(),
        _ => options.directory.clone().unwrap_or_else(std::env::temp_dir),
    };
    let directory = tempfile::Builder::new()
        .prefix("ancile-reopen.")
        .tempdir_in(&folder);
    directory
        .map_err(|error| Failure::new(format!("no directory in {}: {error}", folder.display())))
}

fn builder(kept: Kept, rows: u64) -> EngineBuilder {
    let epoch = Duration::from_millis(100);
    Engine::builder()
        .arena_bytes(rows * (ROW_BYTES + 64) + (256 << 20))
        .durability(match kept {
            Kept::Process => Durability::Process,
            Kept::Epoch => Durability::Epoch(epoch),
        })
}

/// A row that says whose it is.
fn row_of(key: u64, version: u64) -> Row {
    let mut row = [version; COLUMNS];
    row[0] = key;
    row
}

fn fill(path: &Path, kept: Kept, rows: u64) -> Result<(), Failure> {
    let engine = builder(kept, rows).open(path)?;
    let schema = Schema::cells(COLUMNS).keyed().expect_rows(rows);
    let table: Table<Row> = engine.create_table("rows", schema)?;
    let mut session = engine.session()?;
    for first in (0..rows).step_by(BATCH as usize) {
        let keys = first..rows.min(first + BATCH);
        let ids: Vec<_> = keys.clone().map(SurrogateId).collect();
        let new: Vec<_> = keys.map(|key| row_of(key, 0)).collect();
        session.insert_keyed_batch(&table, &ids, &new)?;
    }
    drop(session);
    Ok(engine.close()?)
}

/// Lets another process change rows and end.
fn change_elsewhere(
    options: &Options,
    path: &Path,
    kept: Kept,
    rows: u64,
    end: End,
) -> Result<(), Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("reopen-change").arg(path);
    command.args(["--kept", &format!("{kept:?}").to_lowercase()]);
    command.args([
        "--rows",
        &rows.to_string(),
        "--seconds",
        &options.seconds.to_string(),
    ]);
    if end == End::Closed {
        command.arg("--closes");
    }
    let mut process = command.stdout(Stdio::piped()).spawn()?;
    let told = process
        .stdout
        .take()
        .and_then(|out| BufReader::new(out).lines().next());
    if end == End::Killed {
        process.kill()?;
    }
    let status = process.wait()?;
    match (told, end) {
        (Some(Ok(_)), End::Killed) => Ok(()),
        (Some(Ok(_)), End::Closed) if status.success() => Ok(()),
        _ => Err(Failure::new(format!(
            "the process that changes rows ended with {status}"
        ))),
    }
}

/// Changes rows in every shard, says so, and closes the database or goes on.
///
/// # Errors
/// What the engine reports.
pub fn change(options: &Change) -> Result<(), Failure> {
    let engine = builder(options.kept, options.rows).open(&options.path)?;
    let table: Table<Row> = engine.open_table("rows")?;
    let time = Duration::try_from_secs_f64(options.seconds)
        .map_err(|_| Failure::new("--seconds must be a length of time"))?;
    let mut until = Instant::now() + time;
    loop {
        let (table, rows) = (table.clone(), options.rows);
        let changed =
            engine.on_every_shard(move |resident| change_until(resident, &table, rows, until))?;
        for changed in changed {
            changed?;
        }
        println!("changed");
        if options.closes {
            return Ok(engine.close()?);
        }
        until = Instant::now() + Duration::from_secs(3600);
    }
}

fn change_until(
    resident: &mut Resident<'_>,
    table: &Table<Row>,
    rows: u64,
    until: Instant,
) -> ancile::Result<()> {
    let mut random = XorShift::new(resident.shard() as u64 + 1);
    let mut version = 1;
    while Instant::now() < until {
        for _ in 0..BATCH {
            let key = random.below(rows as usize) as u64;
            // Those of others are not touched: the shard's own are found without a hop.
            resident
                .rows(table)?
                .update(SurrogateId(key), &row_of(key, version))?;
        }
        version += 1;
        resident.serve();
    }
    Ok(())
}

fn open(path: &Path, kept: Kept, rows: u64) -> Result<Opening, Failure> {
    let builder = builder(kept, rows);
    let start = Instant::now();
    let engine = builder.open(path)?;
    let open = start.elapsed();
    let table: Table<Row> = engine.open_table("rows")?;
    let mut session = engine.session()?;
    look(&mut session, &table, rows / 2)?;
    let answer = start.elapsed();
    while !is_loaded(&engine) {
        std::thread::sleep(Duration::from_micros(200));
    }
    let loaded = start.elapsed();
    check(&mut session, &table, rows)?;
    drop(session);
    engine.close()?;
    Ok(Opening {
        open,
        answer,
        loaded,
    })
}

fn is_loaded(engine: &Engine) -> bool {
    let (loaded, all) = engine.loaded_bytes();
    loaded >= all
}

fn check(session: &mut Session, table: &Table<Row>, rows: u64) -> Result<(), Failure> {
    let count = session.count(table)?;
    if count != rows {
        return Err(Failure::new(format!("{count} rows are there, not {rows}")));
    }
    let mut random = XorShift::new(rows);
    for _ in 0..LOOKS.min(rows) {
        look(session, table, random.below(rows as usize) as u64)?;
    }
    Ok(())
}

/// Reads one row, which must be whole.
fn look(session: &mut Session, table: &Table<Row>, key: u64) -> Result<(), Failure> {
    let row = session.select(table, SurrogateId(key))?;
    match row {
        Some(row) if row == row_of(key, row[1]) => Ok(()),
        Some(_) => Err(Failure::new(format!("row {key} is torn"))),
        None => Err(Failure::new(format!("row {key} is not there"))),
    }
}

impl Found {
    fn new(kept: Kept, after: End, rows: u64, openings: &[Opening], machine: &Machine) -> Self {
        let sorted = |of: fn(&Opening) -> Duration| {
            let mut millis: Vec<_> = openings
                .iter()
                .map(|opening| of(opening).as_secs_f64() * 1e3)
                .collect();
            millis.sort_unstable_by(f64::total_cmp);
            millis
        };
        Self {
            bench: "reopen",
            kept,
            after,
            rows,
            row_bytes: ROW_BYTES,
            open_ms: sorted(|opening| opening.open),
            first_answer_ms: sorted(|opening| opening.answer),
            loaded_ms: sorted(|opening| opening.loaded),
            machine: machine.clone(),
        }
    }

    fn cells(&self) -> Vec<String> {
        let median = |millis: &[f64]| format!("{:.1}", millis[millis.len() / 2]);
        let max = |millis: &[f64]| format!("{:.1}", millis[millis.len() - 1]);
        vec![
            format!("{:?}", self.kept).to_lowercase(),
            format!("{:?}", self.after).to_lowercase(),
            format!(
                "{:.1}",
                (self.rows * self.row_bytes) as f64 / f64::from(1 << 20)
            ),
            median(&self.open_ms),
            max(&self.open_ms),
            median(&self.first_answer_ms),
            max(&self.first_answer_ms),
            median(&self.loaded_ms),
        ]
    }
}
