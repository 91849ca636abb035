//! One contestant's turn, in a process of its own.
//!
//! A fresh process has neither the last contestant's memory nor its fragments, and its peak of resident
//! memory is the contestant's. Small books are too quick for one pass: the turn goes on, each time with
//! a new and empty book, until a tenth of a second has gone. Making and dropping books is not timed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::book::Contestant;
use super::job::{Job, Phase};
use super::roster::{Files, Places, Spec};
use crate::failure::Failure;
use crate::rounds::Summary;
use crate::{machine, team};

/// A turn ends with the first pass that ends after this time.
const TURN: Duration = Duration::from_millis(100);

/// Options of one turn.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Code of the contestant.
    #[arg(long)]
    pub contestant: String,
    /// Rows.
    #[arg(long)]
    pub rows: u64,
    /// Indexes.
    #[arg(long)]
    pub indexes: u8,
    /// Rows a call.
    #[arg(long)]
    pub batch: usize,
    /// Where files and sockets are.
    #[command(flatten)]
    pub places: Places,
}

/// What a turn came to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Turn {
    /// Passes through all four phases.
    pub passes: usize,
    /// Median seconds of each phase.
    pub phases: [f64; 4],
    /// Median seconds of all four.
    pub total: f64,
    /// Least seconds of all four.
    pub total_min: f64,
    /// Sum over the rows read in one pass; the same for every contestant.
    pub checksum: u64,
    /// Whether the thread was pinned.
    pub pinned: bool,
    /// Peak of the process's resident memory.
    pub peak_resident_bytes: u64,
    /// Its files after the phase that left the most.
    pub file_bytes: u64,
}

impl Turn {
    /// Seconds of all passes together, about.
    pub fn seconds(&self) -> f64 {
        self.total * self.passes as f64
    }
}

/// Runs a turn and prints it as JSON, for the process that asked for it.
///
/// # Errors
/// Wrong answers, or the store's own.
pub fn run(options: &Options) -> Result<(), Failure> {
    machine::refuse_debug()?;
    let job = Job {
        rows: options.rows,
        indexes: options.indexes,
        batch: options.batch,
    };
    let spec = Spec::by_code(&options.contestant)?;
    let turn = take(spec, job, &options.places, TURN)?;
    println!("{}", serde_json::to_string(&turn)?);
    Ok(())
}

/// Lets a process of this program take the turn.
///
/// # Errors
/// When it fails, or cannot be started.
pub fn launch(spec: &Spec, job: Job, places: &Places) -> Result<Turn, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["persist-turn", "--contestant", spec.code])
        .args(["--rows", &job.rows.to_string()])
        .args(["--indexes", &job.indexes.to_string()])
        .args(["--batch", &job.batch.to_string()])
        .arg("--directory")
        .arg(&places.directory)
        .arg("--disk")
        .arg(&places.disk);
    if let Some(socket) = &places.mariadb_socket {
        command.arg("--mariadb-socket").arg(socket);
    }
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(Failure::new(format!(
            "the turn of {} ended with {}",
            spec.name, output.status
        )));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Takes a turn in this process.
///
/// # Errors
/// Wrong answers, or the store's own.
pub fn take(spec: &Spec, job: Job, places: &Places, time: Duration) -> Result<Turn, Failure> {
    let start = Instant::now();
    let mut passes: Vec<Pass> = Vec::new();
    let mut is_pinned = false;
    // Contestants are made here, where no thread is pinned, for their own threads would be pinned to
    // the same core; they do their work on one pinned thread.
    thread::scope(|scope| {
        let (seats, seated) = mpsc::channel::<Seated>();
        let (ends, ended) = mpsc::channel();
        scope.spawn(move || {
            let pinned = team::pin(0);
            for seated in seated {
                if ends.send((pinned, seated.pass(job))).is_err() {
                    break;
                }
            }
        });
        while passes.is_empty() || start.elapsed() < time {
            let seated = Seated::new(spec, job, places)?;
            let end = seats.send(seated).ok().and_then(|()| ended.recv().ok());
            let (pinned, pass) = end.ok_or_else(|| Failure::new("it panicked"))?;
            is_pinned = pinned;
            passes.push(pass?);
        }
        Ok(())
    })
    .map_err(|failure: Failure| {
        let Job { rows, indexes, .. } = job;
        Failure::new(format!(
            "{}, {rows} rows, indexes: {indexes}: {failure}",
            spec.name
        ))
    })?;
    let median = |seconds: &dyn Fn(&Pass) -> f64| {
        Summary::of(&passes.iter().map(seconds).collect::<Vec<_>>()).median
    };
    let totals: Vec<f64> = passes.iter().map(Pass::total).collect();
    Ok(Turn {
        passes: passes.len(),
        phases: std::array::from_fn(|phase| median(&|pass: &Pass| pass.phases[phase])),
        total: Summary::of(&totals).median,
        total_min: Summary::of(&totals).min,
        checksum: passes[0].checksum,
        pinned: is_pinned,
        peak_resident_bytes: machine::peak_resident_bytes(),
        file_bytes: passes[0].file_bytes,
    })
}

/// A contestant, and the directory of its files, which goes after it.
struct Seated {
    contestant: Box<dyn Contestant>,
    directory: Option<TempDir>,
}

/// One way through all phases.
struct Pass {
    phases: [f64; 4],
    checksum: u64,
    file_bytes: u64,
}

impl Pass {
    fn total(&self) -> f64 {
        self.phases.iter().sum()
    }
}

impl Seated {
    fn new(spec: &Spec, job: Job, places: &Places) -> Result<Self, Failure> {
        let place = places.of(spec.files)?;
        let directory = match (spec.files, place) {
            (Files::Memory | Files::Disk, Some(parent)) => Some(TempDir::new_in(parent)?),
            _ => None,
        };
        let own = directory.as_ref().map(TempDir::path).or(place);
        let contestant = (spec.make)(own.unwrap_or(Path::new("")), job)?;
        Ok(Self {
            contestant,
            directory,
        })
    }

    fn pass(mut self, job: Job) -> Result<Pass, Failure> {
        let mut pass = Pass {
            phases: [0.0; 4],
            checksum: 0,
            file_bytes: 0,
        };
        for (seconds, phase) in pass.phases.iter_mut().zip(Phase::ALL) {
            let done = self.contestant.run(job, phase);
            let done =
                done.map_err(|failure| Failure::new(format!("{}: {failure}", phase.name())))?;
            *seconds = done.seconds;
            pass.checksum = pass.checksum.wrapping_add(done.checksum);
            pass.file_bytes = pass.file_bytes.max(self.file_bytes()?);
        }
        Ok(pass)
    }

    /// Blocks of its files: some stores make them longer than what they use.
    fn file_bytes(&self) -> Result<u64, Failure> {
        let Some(directory) = &self.directory else {
            return Ok(0);
        };
        let mut blocks = 0;
        for file in fs::read_dir(directory.path())? {
            blocks += file?.metadata()?.blocks();
        }
        Ok(blocks * 512)
    }
}
