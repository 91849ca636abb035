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

/// A process that is to be killed, and is not, ends by itself after so long.
const KILLED_WITHIN: Duration = Duration::from_secs(60);

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
    /// Shards; one a processor if not given.
    #[arg(long)]
    pub shards: Option<usize>,
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
    /// Small databases, opened once after each end: only whether what is found is right.
    #[arg(long)]
    pub smoke: bool,
}

/// Options of one process that changes rows.
#[derive(Debug, Clone, Args)]
pub struct Change {
    path: PathBuf,
    #[command(flatten)]
    base: Base,
    /// Seconds after which it says that it has changed rows.
    #[arg(long)]
    seconds: f64,
    /// Whether it closes the database then, or goes on until it is killed.
    #[arg(long)]
    closes: bool,
}

/// A database: how it is kept, and what is in it.
#[derive(Debug, Clone, Copy, Args)]
struct Base {
    #[arg(long)]
    kept: Kept,
    #[arg(long)]
    rows: u64,
    #[arg(long)]
    shards: Option<usize>,
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
    if options.smoke {
        return smoke(options);
    }
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
            let base = options.base(kept, gib)?;
            for (after, openings) in turns(options, base)? {
                let found = Found::new(base, after, &openings, &machine);
                journal.write(&found)?;
                shown.push(found.cells());
            }
        }
    }
    print!("{}", shown.render());
    println!("medians of {} openings", options.rounds.max(1));
    Ok(())
}

fn smoke(options: &Options) -> Result<(), Failure> {
    let options = Options {
        rounds: 1,
        seconds: 0.1,
        shards: Some(2),
        ..options.clone()
    };
    for kept in [Kept::Process, Kept::Epoch] {
        for gib in [0.0, 0.001] {
            turns(&options, options.base(kept, gib)?)?;
        }
    }
    println!("databases that were closed or killed are found whole");
    Ok(())
}

impl Options {
    fn base(&self, kept: Kept, gib: f64) -> Result<Base, Failure> {
        if !(0.0..=1024.0).contains(&gib) {
            return Err(Failure::new("--gib takes numbers from 0 to 1024"));
        }
        Ok(Base {
            kept,
            rows: ((gib * f64::from(1 << 30)) as u64 / ROW_BYTES).max(1),
            shards: self.shards,
        })
    }
}

/// Openings of a database that was closed and whose process was killed, in turns.
fn turns(options: &Options, base: Base) -> Result<[(End, Vec<Opening>); 2], Failure> {
    let directory = directory(options, base.kept)?;
    let path = directory.path().join("database");
    fill(&path, base)?;
    let mut all = [(End::Closed, Vec::new()), (End::Killed, Vec::new())];
    for _ in 0..options.rounds.max(1) {
        for (end, openings) in &mut all {
            change_elsewhere(&path, base, options.seconds, *end)?;
            openings.push(open(&path, base)?);
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

impl Base {
    fn builder(self) -> EngineBuilder {
        let builder = Engine::builder()
            .arena_bytes(self.rows * (ROW_BYTES + 64) + (256 << 20))
            .durability(match self.kept {
                Kept::Process => Durability::Process,
                Kept::Epoch => Durability::Epoch(Duration::from_millis(100)),
            });
        match self.shards {
            Some(shards) => builder.shards(shards),
            None => builder,
        }
    }

    /// Words for another process that is to open the same database.
    fn words(self) -> Vec<String> {
        let mut words = vec![
            format!("--kept={}", self.kept.name()),
            format!("--rows={}", self.rows),
        ];
        words.extend(self.shards.map(|shards| format!("--shards={shards}")));
        words
    }
}

impl Kept {
    fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Epoch => "epoch",
        }
    }
}

impl End {
    fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Killed => "killed",
        }
    }
}

/// A row that says whose it is.
fn row_of(key: u64, version: u64) -> Row {
    let mut row = [version; COLUMNS];
    row[0] = key;
    row
}

fn fill(path: &Path, base: Base) -> Result<(), Failure> {
    let engine = base.builder().open(path)?;
    let schema = Schema::cells(COLUMNS).keyed().expect_rows(base.rows);
    let table: Table<Row> = engine.create_table("rows", schema)?;
    let mut session = engine.session()?;
    for first in (0..base.rows).step_by(BATCH as usize) {
        let keys = first..base.rows.min(first + BATCH);
        let ids: Vec<_> = keys.clone().map(SurrogateId).collect();
        let new: Vec<_> = keys.map(|key| row_of(key, 0)).collect();
        session.insert_keyed_batch(&table, &ids, &new)?;
    }
    drop(session);
    Ok(engine.close()?)
}

/// Lets another process change rows and end.
fn change_elsewhere(path: &Path, base: Base, seconds: f64, end: End) -> Result<(), Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("reopen-change").arg(path);
    command
        .args(base.words())
        .arg(format!("--seconds={seconds}"));
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

/// Changes rows in every shard, says so, and closes the database, sooner or later.
///
/// # Errors
/// What the engine reports.
pub fn change(options: &Change) -> Result<(), Failure> {
    let time = Duration::try_from_secs_f64(options.seconds)
        .map_err(|_| Failure::new("--seconds must be a length of time"))?;
    let engine = options.base.builder().open(&options.path)?;
    let table: Table<Row> = engine.open_table("rows")?;
    change_for(&engine, &table, options.base.rows, time)?;
    println!("changed");
    if !options.closes {
        change_for(&engine, &table, options.base.rows, KILLED_WITHIN)?;
    }
    Ok(engine.close()?)
}

fn change_for(
    engine: &Engine,
    table: &Table<Row>,
    rows: u64,
    time: Duration,
) -> Result<(), Failure> {
    let (table, until) = (table.clone(), Instant::now() + time);
    let changed =
        engine.on_every_shard(move |resident| change_until(resident, &table, rows, until))?;
    Ok(changed.into_iter().collect::<ancile::Result<()>>()?)
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

fn open(path: &Path, base: Base) -> Result<Opening, Failure> {
    let builder = base.builder();
    let start = Instant::now();
    let engine = builder.open(path)?;
    let open = start.elapsed();
    let table: Table<Row> = engine.open_table("rows")?;
    let mut session = engine.session()?;
    look(&mut session, &table, base.rows / 2)?;
    let answer = start.elapsed();
    while !is_loaded(&engine) {
        std::thread::sleep(Duration::from_micros(200));
    }
    let loaded = start.elapsed();
    check(&mut session, &table, base.rows)?;
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
    fn new(base: Base, after: End, openings: &[Opening], machine: &Machine) -> Self {
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
            kept: base.kept,
            after,
            rows: base.rows,
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
            self.kept.name().to_owned(),
            self.after.name().to_owned(),
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
